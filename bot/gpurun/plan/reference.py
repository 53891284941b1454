"""The reference page and the JSON Schema of `.gpurun.yml`, from the models."""

from __future__ import annotations

import json

from gpurun.domain.config import (
    MAX_ARTIFACTS,
    MAX_MODELS,
    PLANNED_KEYS,
    BuildKeys,
    CheckoutKeys,
    File,
    JobKeys,
    LimitKeys,
    MaxKeys,
    ModelKeys,
    PermissionKeys,
    PolicyKeys,
    RegistryKeys,
    ResourceKeys,
    RetryKeys,
    SecretRule,
    TriggerKeys,
    UntrustedKeys,
)
from gpurun.domain.part import Part
from gpurun.domain.project import SCHEMA_URL
from gpurun.plan.described import description, descriptions
from gpurun.plan.faults import MAX_FAULTS
from gpurun.plan.load import MAX_MERGED
from gpurun.plan.nodes import MAX_DEPTH, MAX_NODES
from gpurun.plan.schema import gpurun_yml_schema
from gpurun.plan.source import MAX_BYTES

EXAMPLE = (
    f"# yaml-language-server: $schema={SCHEMA_URL}\n"
    """\
version: 1
defaults:
  limits: {max_duration: 20m}
jobs:
  smoke:
    image: ghcr.io/org/app@sha256:0d5f9f0f2a0f4d1d6b1b4a1c2e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f
    setup: pip install -e .
    run: python -m app.smoke --seed 0
    env: {SEED: "0", REGION: NO}
    models:
      - id: org/model
        revision: 2f1a0b9c8d7e6f5a4b3c2d1e0f0d5f9f0f2a0f4d
    resources: {gpu: "24GB..80GB:1", memory: 32GB, shm_size: 8GB}
    artifacts: ["out/**"]
"""
)


def gpurun_yml_page() -> str:
    """Text of `docs/reference/gpurun-yml.md`."""
    return "\n".join(
        [
            "# `.gpurun.yml`",
            "",
            "<!-- Generated from bot/gpurun/domain/config.py. Write it anew with `make docs`. -->",
            "",
            "The file lies at the top of the repository. A run reads it at the commit that it runs.",
            "`gpurun validate` checks it. Editors do, too, with the JSON Schema in `gpurun-yml.schema.json`: the first",
            "line of the example names it for those that use `yaml-language-server`.",
            "",
            "```yaml",
            EXAMPLE.rstrip(),
            "```",
            "",
            *_table("Top level", "", File),
            *_table("A job: `jobs.<name>`, and `defaults`", description(JobKeys), JobKeys),
            *_table("`build`", description(BuildKeys), BuildKeys),
            *_table("`registry`", description(RegistryKeys), RegistryKeys),
            *_table("`models[]`", description(ModelKeys) + f" At most {MAX_MODELS}.", ModelKeys),
            *_table("`resources`", description(ResourceKeys), ResourceKeys),
            *_table("`limits`", description(LimitKeys), LimitKeys),
            *_table("`trigger`", description(TriggerKeys), TriggerKeys),
            *_table("`retry`", description(RetryKeys), RetryKeys),
            *_table("`checkout`", description(CheckoutKeys), CheckoutKeys),
            *_table("`policy`", description(PolicyKeys), PolicyKeys),
            *_table("`policy.secrets.<NAME>`", description(SecretRule), SecretRule),
            *_table("`policy.max`", description(MaxKeys), MaxKeys),
            *_table("`policy.untrusted`", description(UntrustedKeys), UntrustedKeys),
            *_table("`permissions`", description(PermissionKeys), PermissionKeys),
            "## Rules",
            "",
            "- Values are text as written: `NO`, `on`, `3.10` and `1e-4` reach the job unchanged.",
            '  A value that is left empty, `~` or `null` is refused: write `""` for an empty text.',
            "- Job names are lower-case letters, digits, `.`, `_` and `-`, at most 63, and no command word.",
            f"- `artifacts` holds at most {MAX_ARTIFACTS} patterns, relative to the work folder, without `..`.",
            "- Reserved variables: `PATH`, `HF_HOME`, `HF_HUB_OFFLINE`, `GPURUN`, and those that start with `LD_`,",
            "  `GITHUB_`, `RUNPOD_`, `DOCKER_` or `GPURUN_`.",
            f"- UTF-8, at most {MAX_BYTES // 1024} KiB, {MAX_NODES:,} keys and values, {MAX_DEPTH} levels.",
            "  No aliases, anchors, merge keys, tags, `%` directives or duplicate keys.",
            f"- The keys and values of `defaults`, times the number of jobs, are at most {MAX_MERGED:,}.",
            f"- The first {MAX_FAULTS} faults are told from top to bottom, and then how many more there are.",
            '- An unknown key is an error. These keys are planned and answered with "not in this version":',
            f"  {_planned()}.",
            "",
        ]
    )


def json_schema() -> str:
    """Text of `docs/reference/gpurun-yml.schema.json`."""
    return json.dumps(gpurun_yml_schema(), indent=2, ensure_ascii=False) + "\n"


def _table(title: str, text: str, model: type[Part]) -> list[str]:
    rows = []
    meanings = descriptions(model)
    for name, key in model.KEYS.items():
        meaning = meanings[name]
        example = " ".join(f"`{example}`" for example in key.examples)
        rows.append(f"| `{name}` | {meaning} | {example} |".replace("  ", " "))
    return [
        f"## {title}",
        "",
        *([text, ""] if text else []),
        "| Key | Meaning | Examples |",
        "|---|---|---|",
        *rows,
        "",
    ]


def _planned() -> str:
    return ", ".join(f"`{key}`" for keys in PLANNED_KEYS.values() for key in sorted(keys))
