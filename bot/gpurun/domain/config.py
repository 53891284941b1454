"""`.gpurun.yml` as this version understands it.

`File` is what may be written; `Config` is what it means, with `defaults` merged into every job. The attribute
docstrings are the reference page and the descriptions of the JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from gpurun.domain.command import RESERVED_WORDS
from gpurun.domain.errors import PinNotFound
from gpurun.domain.forge import NotFetched
from gpurun.domain.ids import ImageRef, JobName, Revision
from gpurun.domain.plan import ModelSpec, Resources
from gpurun.domain.quantity import GpuNeed, duration_s, gpu_need, least_cpus, least_size_mib, quoted, size_mib

MAX_ARTIFACTS = 50
MAX_MODELS = 32
MAX_ENV_VALUE_BYTES = 64 * 1024
DEFAULT_MAX_DURATION_S = 1800

PLANNED_KEYS: Mapping[str, frozenset[str]] = {
    "file": frozenset({"permissions", "budgets", "policy", "notifications"}),
    "job": frozenset(
        {
            *("trigger", "paths", "skip_if_only_changed", "build", "setup_inputs", "workdir", "secrets", "datasets"),
            *("providers", "retry", "checkpoint", "matrix", "assert", "required", "concurrency"),
            *("merge_queue", "kind"),
        }
    ),
    "limits": frozenset({"max_price", "max_cost", "idle"}),
    "model": frozenset({"include"}),
    "resources": frozenset(),
    "checkout": frozenset(),
}
"""Keys of the planned schema that this version does not act on, by the place where they stand."""

_HEX40 = re.compile(r"[0-9a-f]{40}")
_MODEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_RESERVED_ENV = frozenset({"PATH", "GPURUN", "HF_HOME", "HF_HUB_OFFLINE"})
_RESERVED_ENV_PREFIXES = ("LD_", "GITHUB_", "RUNPOD_", "DOCKER_", "GPURUN_")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be one text")  # noqa: TRY004 - pydantic turns only ValueError into an error of the file
    return value


def _read(parse: Callable[[str], object]) -> PlainValidator:
    return PlainValidator(lambda value: parse(_text(value)))


def _version(value: object) -> object:
    if value != "1":
        raise ValueError("this version of gpurun reads `version: 1`")
    return 1


def _job_name(text: str) -> JobName:
    if text in RESERVED_WORDS:
        raise ValueError(f"a job cannot be called {quoted(text)}: it is a command word. Choose another name")
    try:
        # "run smoke." ends a sentence: the full stop must not be part of a name
        return JobName("" if text.endswith(".") else text)
    except PinNotFound as exc:
        raise ValueError(
            f"{quoted(text)} cannot be the name of a job. Use lower-case letters, digits, '.', '_' and '-', "
            "at most 63, starting with a letter or digit and not ending with '.'"
        ) from exc


def _image(text: str) -> ImageRef:
    try:
        return ImageRef(text)
    except PinNotFound as exc:
        shown = quoted(text)
        if "@" in text:
            raise ValueError(f"{shown} is no image by digest. Write name@sha256: and 64 hex digits") from exc
        raise ValueError(
            f"{shown} names an image by tag, and a tag can move. Write it with its digest, name@sha256:…; "
            "`docker buildx imagetools inspect NAME:TAG` shows the digest, and so does `docker pull NAME:TAG`"
        ) from exc


def _model_id(text: str) -> str:
    if not _MODEL_ID.fullmatch(text):
        raise ValueError(f"{quoted(text)} is no model. Write organisation/name, as in its address on the hub")
    return text


def _revision(text: str) -> Revision:
    if _HEX40.fullmatch(text):
        return Revision(text)
    if re.fullmatch(r"[0-9A-Fa-f]{4,}", text):
        raise ValueError(
            f"{quoted(text)} is no full commit id. Write all 40 lower-case hex digits; "
            "the page 'Files' → 'History' of the model shows them"
        )
    raise ValueError(
        f"{quoted(text)} is a branch or tag, and it can move. Write the 40-digit commit id; "
        "the page 'Files' → 'History' of the model shows it"
    )


def _target(text: str) -> str:
    parts = text.split("/")
    if not text.startswith("/") or text == "/" or ".." in parts or "." in parts or "" in parts[1:]:
        raise ValueError(
            f"{quoted(text)} is no absolute folder. Write one such as /weights, without '..' or a last '/'"
        )
    return text


def _env_name(text: str) -> str:
    if not _ENV_NAME.fullmatch(text):
        raise ValueError(
            f"{quoted(text)} cannot be the name of a variable. Use letters, digits and '_', no digit first"
        )
    if text.upper() in _RESERVED_ENV or text.upper().startswith(_RESERVED_ENV_PREFIXES):
        raise ValueError(f"{text} is reserved and cannot be set by a job. Choose another name")
    return text


def _env_value(text: str) -> str:
    if len(text.encode()) > MAX_ENV_VALUE_BYTES:
        raise ValueError(f"is longer than {MAX_ENV_VALUE_BYTES // 1024} KiB")
    return text


def _artifact(text: str) -> str:
    if not text.strip() or text.startswith(("/", "~")) or ".." in text.split("/") or "\\" in text:
        raise ValueError(
            f"{quoted(text)} is no path under the work folder. Write a relative one such as out/** without '..'"
        )
    return text


def _shell(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty. Write the command")
    return text


def _skip(text: str) -> str:
    if text == "fetch":
        raise ValueError("'fetch' is not in this version. Write skip, or put the files where the job can get them")
    if text != "skip":
        raise ValueError(f"{quoted(text)} is no answer here. Write skip, or delete the line")
    return text


def _schema(kind: str | list[str], **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": kind, **more})


Version = Annotated[Literal[1], BeforeValidator(_version), WithJsonSchema({"const": 1})]
Name = Annotated[JobName, _read(_job_name), _schema("string", pattern="^[a-z0-9][a-z0-9._-]*$", maxLength=63)]
Image = Annotated[ImageRef, _read(_image), _schema("string", pattern="@sha256:[0-9a-f]{64}$")]
Text = Annotated[str, _read(str), _schema("string")]
Shell = Annotated[str, _read(_shell), _schema("string", minLength=1)]
ModelId = Annotated[str, _read(_model_id), _schema("string", pattern="^[^/]+/[^/]+$")]
ModelRevision = Annotated[Revision, _read(_revision), _schema("string", pattern="^[0-9a-f]{40}$")]
Target = Annotated[str, _read(_target), _schema("string", pattern="^/.+")]
EnvName = Annotated[str, _read(_env_name), _schema("string", pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
EnvValue = Annotated[str, _read(_env_value), _schema(["string", "number", "boolean"])]
Artifact = Annotated[str, _read(_artifact), _schema("string")]
Duration = Annotated[int, _read(duration_s), _schema("string", pattern="^[0-9]+(s|m|h)$")]
Gpu = Annotated[GpuNeed, _read(gpu_need), _schema(["string", "integer"])]
Cpus = Annotated[float, _read(least_cpus), _schema(["string", "number"])]
LeastSize = Annotated[int, _read(least_size_mib), _schema("string", pattern=r"^[0-9]+(MB|GB|TB)(\.\.)?$")]
Skip = Annotated[str, _read(_skip), WithJsonSchema({"const": "skip"})]
Size = Annotated[int, _read(size_mib), _schema("string", pattern="^[0-9]+(MB|GB|TB)$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ModelKeys(_Part):
    """One model of the hub, pinned."""

    id: ModelId = Field(examples=["org/name"])
    """The model on the hub."""
    revision: ModelRevision = Field(examples=["40 hex digits"])
    """Its full commit id. Branches and tags move, so they are refused."""
    target: Target | None = Field(default=None, examples=["/weights"])
    """A folder in the container that gets the plain files. They are always in the hub cache, where `from_pretrained`
    finds them by id."""


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
    """The longest time from the start of `setup` to the end of `run`: `90s`, `30m` or `2h`. Without it: `30m`.
    A command that does not end at SIGTERM gets 20 s more."""


class JobKeys(_Part):
    """What may stand under a job, and under `defaults`."""

    image: Image | None = Field(default=None, examples=["ghcr.io/org/app@sha256:…"])
    """Required. The container image, by digest."""
    setup: Text = Field(default="", examples=["pip install -e ."])
    """Shell text that runs before `run`, timed apart."""
    run: Shell | None = Field(default=None, examples=["python -m app.smoke --seed 0"])
    """Required. Shell text, run by `sh -c` in a checkout of the commit. Its exit code decides: 0 is passed."""
    env: Mapping[EnvName, EnvValue] = Field(default_factory=dict, examples=['{SEED: "0"}'])
    """Environment variables. Values stay exactly as written: `NO`, `3.10` and `1e-4` are text."""
    models: tuple[ModelKeys, ...] = Field(default=(), max_length=MAX_MODELS)
    """Models whose files are verified and laid out before `setup`."""
    resources: ResourceKeys = Field(default_factory=ResourceKeys)
    """What the job needs. Without it no GPU is asked for."""
    limits: LimitKeys = Field(default_factory=LimitKeys)
    """What stops the job."""
    checkout: CheckoutKeys = Field(default_factory=CheckoutKeys)
    """What of the commit the job does without."""
    artifacts: tuple[Artifact, ...] = Field(default=(), max_length=MAX_ARTIFACTS, examples=['["out/**"]'])
    """Files to keep: patterns under the work folder. Only regular files; symbolic links are not followed."""


class File(_Part):
    """The file `.gpurun.yml`."""

    version: Version
    """Required. The version of this schema, `1`."""
    defaults: JobKeys = Field(default_factory=JobKeys)
    """Keys for every job. A job's own key wins; `env`, `resources` and `limits` are merged key by key."""
    jobs: Mapping[Name, JobKeys] = Field(min_length=1)
    """Required. Jobs by name. `/gpurun <name>` runs one."""


class Job(JobKeys):
    """A job after `defaults` were merged into it."""

    image: Image
    run: Shell

    def model_specs(self) -> tuple[ModelSpec, ...]:
        """The models to resolve, in the order of the file."""
        return tuple(ModelSpec(id=m.id, revision=m.revision, target=m.target) for m in self.models)

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

    def skipped(self) -> frozenset[NotFetched]:
        """What of the commit the job does without."""
        wanted = {NotFetched.LFS: self.checkout.lfs, NotFetched.SUBMODULES: self.checkout.submodules}
        return frozenset(what for what, answer in wanted.items() if answer)

    @property
    def max_duration_s(self) -> int:
        """Seconds from the start of `setup`."""
        return self.limits.max_duration or DEFAULT_MAX_DURATION_S


class Config(_Part):
    """What the file means."""

    version: Version
    jobs: Mapping[Name, Job]
