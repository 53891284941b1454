"""Plans whose digests never change: files, pins, and what `tests/data/plans` says of each.

A digest that is stored must stay true, so no file there is ever written again. A new one:

    python -m tests.unit.plan.golden
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gpurun.domain.build import BuildPin
from gpurun.domain.ids import CommitSha, HubRef, ImageTag, JobName, RepoName, Revision, TreeSha
from gpurun.domain.lock import ImagePin, Lock, LockedImage, LockedModel
from gpurun.domain.plan import ModelFile, Plan, SetupInput
from gpurun.domain.run import Pins
from gpurun.domain.source import Gitlink, GitTag
from gpurun.plan.build import images_of
from gpurun.plan.digest import canonical, digest, result_key
from gpurun.plan.load import load
from gpurun.plan.lock import pinned
from gpurun.plan.resolve import build

PLANS = Path(__file__).parents[2] / "data" / "plans"
IMAGE = "ghcr.io/org/app@sha256:" + "0123456789abcdef" * 4
REVISION = Revision("0123456789" * 4)
OTHER = Revision("fedcba9876543210fedcba9876543210fedcba98")
COMMIT = CommitSha("c" * 40)
TREE = TreeSha("7" * 40)
REPO = RepoName("org/app")
FILES = (
    ModelFile(path="model.safetensors", size=16_000_000, sha256="a" * 64, etag="a" * 64),
    ModelFile(path="config.json", size=120, sha256="b" * 64, etag="b" * 40),
)
ODD_FILES = (
    ModelFile(path="ordner/größe ∑.json", size=0, sha256="c" * 64, etag="c" * 40),
    ModelFile(path="Z.bin", size=70_000_000_000, sha256="d" * 64, etag="d" * 64),
    ModelFile(path="a.bin", size=1, sha256="e" * 64, etag="e" * 64),
    ModelFile(path='"quoted" \\ back', size=2, sha256="f" * 64, etag="f" * 40),
)
PIN = ImagePin(digest=f"sha256:{'9' * 64}")
LOCK = Lock(
    images=(LockedImage(ref=ImageTag("ghcr.io/org/app:1.2"), pin=PIN, locked_on="2026-12-01"),),
    models=(
        LockedModel(id="org/model", ref=HubRef("main"), revision=REVISION, locked_on="2026-12-01"),
        LockedModel(id="org/model", ref=HubRef("v1.0"), revision=OTHER, locked_on="2026-12-01"),
    ),
)  # fmt: skip
LEAST = f"version: 1\njobs:\n  smoke:\n    image: {IMAGE}\n    run: python smoke.py\n"
FULL = LEAST + (
    "    setup: pip install -e .\n"
    "    env: {SEED: '0', REGION: NO, TEXT: 'ü ∑'}\n"
    f"    models: [{{id: org/model, revision: '{REVISION}', target: /weights}},"
    f" {{id: org/two, revision: '{REVISION}'}}]\n"
    "    resources: {gpu: '24GB..80GB:2', cpu: 0.5, memory: 32GB, disk: 60GB, shm_size: 8GB}\n"
    "    limits: {max_duration: 2h}\n"
    "    artifacts: ['out/**', report.json]\n"
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A file, and what is known besides."""

    text: str
    job: str = "smoke"
    repo: RepoName = REPO
    folder: str = ""
    files: tuple[ModelFile, ...] = FILES
    """Of each model."""
    links: tuple[Gitlink, ...] = ()
    lfs: bool = False
    tags: tuple[GitTag, ...] = ()
    build: BuildPin | None = None
    inputs: tuple[SetupInput, ...] | None = None


def planned(case: Case) -> Plan:
    """The plan of its job, all models with the same files."""
    job = load(case.text).jobs[JobName(case.job)]
    models = tuple(
        spec.with_files(tuple(file for file in case.files if spec.wants(file.path)))
        for spec in pinned(job, LOCK, images_of(job, case.build)).models
    )
    pins = Pins(tree=TREE, lock=LOCK, image_confirmed=True, models=models, links=case.links, lfs=case.lfs)
    pins = replace(pins, tags=case.tags, build=case.build, setup_inputs=case.inputs)
    return build(repo=case.repo, sha=COMMIT, job_name=JobName(case.job), job=job, pins=pins, folder=case.folder)


def _with(*lines: str) -> Case:
    return Case(text=LEAST + "".join(f"    {line}\n" for line in lines))


def _link(path: str, commit: str) -> Gitlink:
    return Gitlink(
        path=path, name=path, url="../x", commit=CommitSha(commit), source=f"https://github.com/org/{commit}"
    )


def _built(build: str, dockerfile: str) -> Case:
    pin = BuildPin(
        dockerfile="docker/Dockerfile",
        context="docker",
        text=dockerfile,
        ignore="*.md\n",
        context_sha256="5" * 64,
        platform="linux/amd64",
    )
    return Case(text=LEAST.replace(f"image: {IMAGE}", f"build: {build}"), build=pin)


_TWICE = (
    f"models: [{{id: org/model, revision: {REVISION}, target: /a}}, {{id: org/model, revision: '{OTHER}'}},"
    f" {{id: org/two, revision: '{OTHER}'}}]"
)
_MODEL = f"models: [{{id: org/model, revision: '{REVISION}'}}]"

_DATASETS = (
    f"datasets: [{{id: org/model, revision: '{REVISION}', target: /data}}, {{id: org/two, revision: '{OTHER}'}}]"
)
_SOME_FILES = _MODEL.replace("}]", ", include: ['*.safetensors', ordner/], exclude: [a.*]}]")

_LINES = "run: |\n      set -e\n\n      python a.py # not a comment\n"
_UNICODE = '"echo \'grüße 😀 e\\u0301 \\u2028 日本語\' \\\\ \\"x\\" \\t"'
_BY_NAME = "    models: [{id: org/model}, {id: org/model, revision: v1.0, target: /w}]\n"
_ODD = 'env: {EMPTY: "", QUOTES: \'"\'\'"\', LINES: "a\\nb\\r\\n", BACK: \'\\\', BELL: "\\a\\e"}'
_SCALARS = "env: {A: NO, B: 3.10, C: 1e-4, D: 0x10, E: 'null', F: 1_000, G: 2026-12-01, H: '~', I: true}"

CASES = {
    "least": Case(text=LEAST),
    "full": Case(text=FULL),
    # commands
    "setup": _with("setup: |", "  pip install -e .", "  pip check"),
    "run-of-lines": Case(text=LEAST.replace("run: python smoke.py\n", _LINES)),
    "run-in-unicode": Case(text=LEAST.replace("python smoke.py", _UNICODE)),
    "workdir": _with("workdir: examples/démo"),
    "folder": replace(_with("setup: make"), folder="packages/a b"),
    "folder-and-workdir": replace(_with("workdir: ./deep"), folder="sub"),
    # variables and secrets
    "secrets": _with("secrets: [WANDB_API_KEY, HF_TOKEN, _A1]"),
    "env-of-odd-values": _with(_ODD),
    "env-as-written": _with(_SCALARS),
    "env-in-order": _with("env: {b: '1', B: '2', _: '3', A10: '4', A9: '5', a_b: '6', aB: '7'}"),
    "env-in-unicode": _with('env: {TEXT: "ü ∑ \\U0001F600 e\\u0301 \\u00e9 \\ufeff", REST: "日本語"}'),
    # kinds and limits
    "kind-verify": _with("kind: verify"),
    "kind-batch": _with("kind: batch"),
    "kind-train-with-a-limit": _with("kind: train", "limits: {max_duration: 90s}"),
    "longest": _with("limits: {max_duration: 168h}"),
    # resources
    "gpus-by-number": _with("resources: {gpu: 8}"),
    "gpu-of-at-least": _with("resources: {gpu: 24GB}"),
    "gpus-of-at-most": _with("resources: {gpu: '..80GB:4'}"),
    "gpu-none": _with("resources: {gpu: 0, shm_size: 64MB}"),
    "cpus-and-sizes": _with("resources: {cpu: 8.., memory: 1TB.., disk: 512MB, shm_size: 1TB}"),
    "cpus-in-parts": _with("resources: {cpu: 0.25}"),
    # images and models
    "image-with-tag-and-port": Case(text=LEAST.replace("ghcr.io/org/app@", "localhost:5000/org/app:1.2-rc_1@")),
    "image-and-models-by-name": Case(
        text=LEAST.replace(IMAGE, "ghcr.io/org/app:1.2") + _BY_NAME
    ),
    "models-twice": _with(_TWICE),
    "model-of-odd-files": replace(_with(_MODEL), files=ODD_FILES),
    "model-of-some-files": replace(_with(_SOME_FILES), files=(*FILES, *ODD_FILES)),
    "datasets": _with(_DATASETS),
    "build": _built(".", f"FROM {IMAGE}\nCOPY . /app\n"),
    "build-of-stages": _built(
        "{dockerfile: docker/Dockerfile, target: gpu, args: {CUDA: '12.4', A: ü}}",
        f"ARG BASE=ghcr.io/org/app:1.2\nFROM scratch AS none\nFROM {IMAGE} AS tools\nFROM $BASE AS gpu\n"
        "COPY --from=tools /größe \\\n  /x\nFROM busybox AS later\n",
    ),
    # source
    "submodules-and-lfs": replace(
        _with("checkout: {submodules: fetch, lfs: fetch}"),
        lfs=True,
        links=(_link("vendor/größe", "2" * 40), _link("a", "1" * 40), _link("vendor/größe/in", "3" * 40)),
    ),
    "git": replace(
        _with("checkout: {git: true}"),
        tags=(GitTag(name="größe", object=CommitSha("4" * 40), commit=COMMIT),),
    ),
    "setup-inputs": replace(
        _with("setup: pip install -r größe.txt", "setup_inputs: [größe.txt, 'reqs/*']"),
        inputs=(
            SetupInput(path="reqs/a.txt", mode="100755", blob="5" * 40),
            SetupInput(path="größe.txt", mode="100644", blob="6" * 40),
        ),
    ),
    "git-without-tags": _with("checkout: {git: true}"),
    # the rest
    "artifacts": _with("artifacts: ['out/**', 'größe/*.json', out/a b, '*', 'out/**']"),
    "defaults": Case(
        text=f"version: 1\ndefaults:\n  image: {IMAGE}\n  env: {{SEED: '0', X: a}}\n  resources: {{gpu: 1, cpu: 2}}\n"
        "  kind: batch\njobs:\n  smoke: {run: ls, env: {X: b}, resources: {gpu: 2}}\n"
    ),
    "names": Case(text=LEAST.replace("smoke:", "0.a_b-c:"), job="0.a_b-c", repo=RepoName("local/My_App.v2")),
}  # fmt: skip
GOLDEN = {name: planned(case) for name, case in CASES.items()}


def written(plan: Plan) -> str:
    """The text of a golden file."""
    told = {"canonical": json.loads(canonical(plan)), "digest": digest(plan), "result_key": result_key(plan)}
    return json.dumps(told, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def missing() -> Iterator[str]:
    """Cases without a file."""
    return (name for name in CASES if not (PLANS / f"{name}.json").exists())


if __name__ == "__main__":
    for new in tuple(missing()):
        (PLANS / f"{new}.json").write_text(written(GOLDEN[new]), encoding="utf-8")
