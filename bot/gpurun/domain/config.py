"""`.gpurun.yml` as this version understands it.

`File` is what may be written; `Config` is what it means, with `defaults` merged into every job. The attribute
docstrings are the reference page and the descriptions of the JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from gpurun.domain.config_values import (
    Artifact,
    Attempts,
    Cpus,
    Duration,
    EnvName,
    EnvValue,
    FilesPattern,
    Flag,
    Glob,
    Gpu,
    GpuCount,
    Image,
    KindName,
    LeastSize,
    ModelId,
    ModelRevision,
    Name,
    NameInList,
    ProviderId,
    SecretName,
    Shell,
    Size,
    Skip,
    Target,
    Text,
    Version,
    Workdir,
)
from gpurun.domain.forge import NotFetched
from gpurun.domain.ids import HubRef, ImageTag, Revision
from gpurun.domain.plan import HubKind, Resources
from gpurun.domain.quantity import GpuNeed

MAX_ARTIFACTS = 50
MAX_MODELS = 32
MAX_PATTERNS = 50
MAX_SECRETS = 50
MAIN = HubRef("main")
"""The branch of the hub that is meant when none is written."""

PLANNED_KEYS: Mapping[str, frozenset[str]] = {
    "file": frozenset({"permissions", "budgets", "notifications"}),
    "job": frozenset(
        {
            *("paths", "skip_if_only_changed", "build", "setup_inputs", "checkpoint", "matrix", "assert"),
            *("required", "concurrency", "merge_queue"),
        }
    ),
    "trigger": frozenset({"pull_request", "push", "schedule"}),
    "limits": frozenset({"max_price", "max_cost", "idle"}),
    "retry": frozenset({"on_events", "other_host"}),
    "model": frozenset(),
    "resources": frozenset(),
    "checkout": frozenset({"ref"}),
    "policy": frozenset({"bots", "network", "untrusted"}),
    "max": frozenset({"price", "cost"}),
}
"""Keys of the planned schema that this version does not act on, by the place where they stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a job of this kind gets where it says nothing itself."""

    max_duration_s: int
    attempts: int


KINDS: Mapping[str, Kind] = {
    "verify": Kind(max_duration_s=30 * 60, attempts=2),
    "batch": Kind(max_duration_s=6 * 3600, attempts=3),
    "train": Kind(max_duration_s=24 * 3600, attempts=3),
}
DEFAULT_KIND = "verify"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ModelKeys(_Part):
    """One model or data set of the hub. `.gpurun.lock` pins what the file does not."""

    id: ModelId = Field(examples=["org/name"])
    """Its name on the hub."""
    revision: ModelRevision | None = Field(
        default=None, examples=["main", "v1.0", "2f1a0b9c8d7e6f5a4b3c2d1e0f0d5f9f0f2a0f4d"]
    )
    """Its full commit id; or a branch, a tag or the first 7 or more digits of a commit id, which `.gpurun.lock` pins.
    Without it: `main`."""
    target: Target | None = Field(default=None, examples=["/weights"])
    """A folder in the container that gets the plain files. They are always in the hub cache, where `from_pretrained`
    finds them by id."""
    include: tuple[FilesPattern, ...] = Field(
        default=(), max_length=MAX_PATTERNS, examples=['["*.json", "*.safetensors"]']
    )
    """Only files that match one of these patterns; `*` stands for anything, `/` too, and `folder/` for all below it. As
    `allow_patterns` of `snapshot_download`. Without it: all files."""
    exclude: tuple[FilesPattern, ...] = Field(default=(), max_length=MAX_PATTERNS, examples=['["*.bin"]'])
    """None of the files that match one of these patterns. As `ignore_patterns`."""

    @property
    def ref(self) -> Revision | HubRef:
        """What is to be pinned."""
        return self.revision or MAIN


class ResourceKeys(_Part):
    """What the job needs. A single number means: at least. On the local engine memory, CPUs and disk are limits too."""

    gpu: Gpu | None = Field(default=None, examples=["1", "24GB", "24GB..80GB:2"])
    """How many GPUs (`1`), how much memory each (`24GB..80GB`), or both (`24GB..80GB:2`). Without it: none."""
    cpu: Cpus | None = Field(default=None, examples=["8", "8.."])
    """CPU cores."""
    memory: LeastSize | None = Field(default=None, examples=["32GB"])
    """Main memory. 1GB is 1024MB."""
    disk: LeastSize | None = Field(default=None, examples=["60GB"])
    """Disk that the job may fill: everything that it writes in its container, with the models and the commit. A job
    that uses more is ended. 1GB is 1024MB."""
    shm_size: Size | None = Field(default=None, examples=["8GB"])
    """Size of `/dev/shm`; data loaders with workers need more than Docker's 64MB."""


class CheckoutKeys(_Part):
    """What of the commit the job does without. A commit that points to more than its own files is refused otherwise."""

    lfs: Skip | None = Field(default=None, examples=["skip"])
    """`skip`: files of git LFS stay the pointers that the commit holds."""
    submodules: Skip | None = Field(default=None, examples=["skip"])
    """`skip`: submodules stay empty folders."""


class LimitKeys(_Part):
    """What stops the job."""

    max_duration: Duration | None = Field(default=None, examples=["20m"])
    """The longest time from the start of `setup` to the end of `run`: `90s`, `30m` or `2h`. Without it: that of its
    `kind`. A command that does not end at SIGTERM gets 20 s more."""


class TriggerKeys(_Part):
    """What starts the job."""

    comment: Flag | None = Field(default=None, examples=["true", "false"])
    """`false`: `/gpurun <job>` does not start it. Without it: `true`."""


class RetryKeys(_Part):
    """What happens when a machine is lost before the job's own commands ran there. Nothing of the job runs twice."""

    attempts: Attempts | None = Field(default=None, examples=["3"])
    """How many machines are tried in all, 1 to 5."""


class JobKeys(_Part):
    """What may stand under a job, and under `defaults`."""

    kind: KindName | None = Field(default=None, examples=["verify", "batch", "train"])
    """Presets for `limits` and `retry`: `verify` (30m, 2 attempts; the default), `batch` (6h, 3), `train` (24h, 3)."""
    trigger: TriggerKeys = Field(default_factory=TriggerKeys)
    """What starts the job."""
    image: Image | None = Field(default=None, examples=["ghcr.io/org/app:1.2", "ghcr.io/org/app@sha256:…"])
    """Required. The container image: by digest, or by a tag that `.gpurun.lock` pins."""
    setup: Text = Field(default="", examples=["pip install -e ."])
    """Shell text that runs before `run`, timed apart."""
    run: Shell | None = Field(default=None, examples=["python -m app.smoke --seed 0"])
    """Required. Shell text, run by `sh -c` in a checkout of the commit. Its exit code decides: 0 is passed."""
    workdir: Workdir | None = Field(default=None, examples=["examples/demo"])
    """The folder in which `setup` and `run` start, relative to the one that holds this file. `artifacts` are relative
    to it."""
    env: Mapping[EnvName, EnvValue] = Field(default_factory=dict, examples=['{SEED: "0"}'])
    """Environment variables. Values stay exactly as written: `NO`, `3.10` and `1e-4` are text."""
    secrets: tuple[SecretName, ...] = Field(default=(), max_length=MAX_SECRETS, examples=["[HF_TOKEN]"])
    """Names of secrets that the job gets as environment variables. Values are never in this file: `gpurun secret set`
    on the server, `.env` for `gpurun run`."""
    models: tuple[ModelKeys, ...] = Field(default=(), max_length=MAX_MODELS)
    """Models whose files are verified and laid out before `setup`."""
    datasets: tuple[ModelKeys, ...] = Field(default=(), max_length=MAX_MODELS, examples=["[{id: org/name}]"])
    """Data sets of the hub, with the same keys. `snapshot_download("org/name", repo_type="dataset")` finds them."""
    resources: ResourceKeys = Field(default_factory=ResourceKeys)
    """What the job needs. Without it no GPU is asked for."""
    providers: tuple[ProviderId, ...] = Field(default=(), max_length=10, examples=["[docker]"])
    """Where it may run, the first choice first. Without it: wherever the server can."""
    limits: LimitKeys = Field(default_factory=LimitKeys)
    """What stops the job."""
    retry: RetryKeys = Field(default_factory=RetryKeys)
    """What happens when a machine is lost."""
    checkout: CheckoutKeys = Field(default_factory=CheckoutKeys)
    """What of the commit the job does without."""
    artifacts: tuple[Artifact, ...] = Field(default=(), max_length=MAX_ARTIFACTS, examples=['["out/**"]'])
    """Files to keep: patterns under the work folder. Only regular files; symbolic links are not followed."""

    @field_validator("secrets", mode="after")
    @classmethod
    def _once(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        both = [name for name in names if name in info.data.get("env", {})]
        if both:
            raise ValueError(f"{both[0]} stands under `env` too. Delete it in one of the two places")
        if len(set(names)) < len(names):
            raise ValueError("a name stands there twice. Delete one of them")
        return names


class MaxKeys(_Part):
    """The most that a job may ask for."""

    duration: Duration | None = Field(default=None, examples=["1h"])
    """Of `limits: {max_duration: …}`."""
    gpus: GpuCount | None = Field(default=None, examples=["2"])
    """Of `resources: {gpu: …}`."""


class SecretRule(_Part):
    """Who may use a secret."""

    jobs: tuple[NameInList, ...] = Field(min_length=1, examples=["[smoke]"])
    """Required. Names of jobs."""


class PolicyKeys(_Part):
    """What jobs may ask for. It is read from the default branch; in a pull request's copy it changes nothing."""

    images: tuple[Glob, ...] | None = Field(default=None, max_length=100, examples=['["ghcr.io/org/*"]'])
    """Patterns, one of which the image's name must match; `*` stands for anything. Without it: every image."""
    providers: tuple[ProviderId, ...] | None = Field(default=None, max_length=10, examples=["[docker]"])
    """Where jobs may run. Without it: wherever the server can."""
    secrets: Mapping[SecretName, SecretRule] | None = Field(default=None, examples=["{HF_TOKEN: {jobs: [smoke]}}"])
    """Which jobs may use which secrets; one that is not named here is for nobody. Without it: every job of this
    repository may use all of its secrets."""
    max: MaxKeys = Field(default_factory=MaxKeys)
    """The most that a job may ask for."""


class File(_Part):
    """The file `.gpurun.yml`."""

    version: Version
    """Required. The version of this schema, `1`."""
    policy: PolicyKeys = Field(default_factory=PolicyKeys)
    """What jobs may ask for. Read from the default branch only."""
    defaults: JobKeys = Field(default_factory=JobKeys)
    """Keys for every job. A job's own key wins; `env`, `resources`, `limits`, `retry`, `trigger` and `checkout` are
    merged key by key."""
    jobs: Mapping[Name, JobKeys] = Field(min_length=1)
    """Required. Jobs by name. `/gpurun <name>` runs one."""


class Job(JobKeys):
    """A job after `defaults` were merged into it."""

    image: Image
    run: Shell

    def needs(self) -> Resources:
        """Zero where nothing is asked for."""
        gpu = self.resources.gpu or GpuNeed(count=0)
        return Resources(
            gpus=gpu.count,
            vram_min_mib=gpu.vram_min_mib,
            vram_max_mib=gpu.vram_max_mib,
            cpus=self.resources.cpu or 0.0,
            memory_mib=self.resources.memory or 0,
            disk_mib=self.resources.disk or 0,
            shm_mib=self.resources.shm_size or 0,
        )

    @property
    def from_hub(self) -> tuple[tuple[HubKind, ModelKeys], ...]:
        """Models, then data sets, in the order of the file."""
        return (*(("model", keys) for keys in self.models), *(("dataset", keys) for keys in self.datasets))

    def skipped(self) -> frozenset[NotFetched]:
        """What of the commit the job does without."""
        wanted = {NotFetched.LFS: self.checkout.lfs, NotFetched.SUBMODULES: self.checkout.submodules}
        return frozenset(what for what, answer in wanted.items() if answer)

    @property
    def preset(self) -> Kind:
        """What applies where the job says nothing."""
        return KINDS[self.kind or DEFAULT_KIND]

    @property
    def max_duration_s(self) -> int:
        """Seconds from the start of `setup`."""
        return self.limits.max_duration or self.preset.max_duration_s

    @property
    def max_attempts(self) -> int:
        """Machines that are tried in all."""
        return self.retry.attempts or self.preset.attempts

    @property
    def by_comment(self) -> bool:
        """Whether `/gpurun <job>` starts it."""
        return self.trigger.comment is not False

    @property
    def needs_lock(self) -> bool:
        """Whether the file names something that can move."""
        return isinstance(self.image, ImageTag) or any(isinstance(keys.ref, HubRef) for _, keys in self.from_hub)


class Config(_Part):
    """What the file means."""

    version: Version
    policy: PolicyKeys = Field(default_factory=PolicyKeys)
    jobs: Mapping[Name, Job]
