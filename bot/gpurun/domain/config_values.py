"""The values that may stand behind the keys of `.gpurun.yml`: how each is read, and how it is described.

Each reader takes the text as it was written and raises ValueError with a sentence, and often a second one that says
what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainValidator, WithJsonSchema

from gpurun.domain.command import RESERVED_WORDS
from gpurun.domain.environment import RESERVED, RESERVED_PREFIXES, is_reserved
from gpurun.domain.errors import PinNotFound
from gpurun.domain.ids import HubRef, ImageRef, ImageTag, JobName, Revision
from gpurun.domain.quantity import GpuNeed, duration_s, gpu_need, least_cpus, least_size_mib, quoted, size_mib
from gpurun.domain.secret import SECRET_NAME, name_fault

MAX_ENV_VALUE_BYTES = 64 * 1024
MAX_GLOB_CHARS = 200

PROVIDERS = ("docker",)
"""Those that this version can rent from."""
PROVIDERS_PLANNED = ("runpod", "vast", "lambda_cloud", "digitalocean", "paperspace", "ssh", "glows", "dstack")

KIND_NAMES = ("verify", "batch", "train")
MAX_RETRY_ATTEMPTS = 5
MODEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
"""`organisation/name` on the hub."""

_COMMIT = re.compile(r"[0-9A-Fa-f]{7,40}")
"""An id of the hub, or the start of one: only the hub knows whether it is enough of it, so `.gpurun.lock` pins it."""
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")


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


def _image(text: str) -> ImageRef | ImageTag:
    try:
        return ImageRef(text) if "@" in text else ImageTag(text)
    except PinNotFound as exc:
        shown = quoted(text)
        if "@" in text:
            raise ValueError(f"{shown} is no image by digest. Write name@sha256: and 64 hex digits") from exc
        case = ", the name in lower case" if text != text.lower() else ""
        raise ValueError(f"{shown} is no image. Write name:tag, or name@sha256: and 64 hex digits{case}") from exc


def _model_id(text: str) -> str:
    if not MODEL_ID.fullmatch(text):
        raise ValueError(f"{quoted(text)} is no model. Write organisation/name, as in its address on the hub")
    return text


def _revision(text: str) -> Revision | HubRef:
    if _COMMIT.fullmatch(text):
        return Revision(text.lower()) if len(text) == 40 else HubRef(text.lower())
    if re.fullmatch(r"[0-9A-Fa-f]{41,}", text):
        raise ValueError(
            f"{quoted(text)} is too long for a commit id. Write its 40 hex digits; "
            "the page 'Files' → 'History' of the model shows them"
        )
    try:
        return HubRef(text)
    except PinNotFound as exc:
        raise ValueError(
            f"{quoted(text)} is no branch, tag or commit id. Write one of them, without spaces and '..'"
        ) from exc


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
    if is_reserved(text):
        raise ValueError(f"{text} is reserved and cannot be set by a job. Choose another name")
    return text


def _secret_name(text: str) -> str:
    if told := name_fault(text):
        raise ValueError(told.removesuffix("."))
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


def _workdir(text: str) -> str:
    parts = text.split("/")
    if text.startswith(("/", "~")) or "\\" in text or any(part in ("", "..") for part in parts):
        raise ValueError(
            f"{quoted(text)} is no folder under the one that holds this file. Write one such as examples/demo"
        )
    path = str(PurePosixPath(text))
    return "" if path == "." else path


def _glob(text: str) -> str:
    if not text.strip() or any(char.isspace() for char in text) or len(text) > MAX_GLOB_CHARS:
        raise ValueError(f"{quoted(text)} is no pattern. Write one such as ghcr.io/org/*")
    return text


def _files_pattern(text: str) -> str:
    if not text.strip() or text.startswith("/") or len(text) > MAX_GLOB_CHARS or not text.isprintable():
        raise ValueError(f"{quoted(text)} is no pattern for files of a repository. Write one such as *.safetensors")
    return text


def _provider(text: str) -> str:
    if text in PROVIDERS_PLANNED:
        raise ValueError(f"the provider {text} is not in this version. Write docker, or delete it")
    if text not in PROVIDERS:
        raise ValueError(f"{quoted(text)} is no provider. Known here: {', '.join(PROVIDERS)}")
    return text


def _kind(text: str) -> str:
    if text not in KIND_NAMES:
        raise ValueError(f"{quoted(text)} is no kind of job. Write {', '.join(KIND_NAMES[:-1])} or {KIND_NAMES[-1]}")
    return text


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{quoted(text)} is neither. Write true or false")
    return text == "true"


def _attempts(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,3}", text) or not 1 <= int(text) <= MAX_RETRY_ATTEMPTS:
        raise ValueError(f"{quoted(text)} is no number of attempts. Write 1 to {MAX_RETRY_ATTEMPTS}")
    return int(text)


def _gpu_count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,2}", text):
        raise ValueError(f"{quoted(text)} is no number of GPUs. Write 0 to 99")
    return int(text)


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


def _schema(kind: str, **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": kind, **more})


def _any_text(**more: Any) -> WithJsonSchema:
    """Text that an editor may take for something else: `3.10` is a number to it, and the command `true` a boolean."""
    return WithJsonSchema({"anyOf": [{"type": "string", **more}, {"type": "number"}, {"type": "boolean"}]})


def _number_or_text(kind: str, pattern: str, **more: Any) -> WithJsonSchema:
    """A number to an editor; in quotes it is a text, and means the same here."""
    return WithJsonSchema({"anyOf": [{"type": kind, **more}, {"type": "string", "pattern": pattern}]})


_NO_RESERVED_ENV = {
    "not": {
        "type": "string",
        "pattern": f"^(({'|'.join(sorted(RESERVED))})$|({'|'.join(RESERVED_PREFIXES)}))",
    }
}
_NO_RESERVED_WORD = {"not": {"enum": sorted(RESERVED_WORDS)}}
_A_NAME = "^[a-z0-9]([a-z0-9._-]*[a-z0-9_-])?$"
_A_SIZE = "[1-9][0-9]{0,8}(MB|GB|TB)"
_A_DURATION = "^[1-9][0-9]{0,6}[smh]$"
_A_TAG = ":[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
_AN_IMAGE = (
    f"^([a-z0-9][a-z0-9._:/-]*({_A_TAG})?@sha256:[0-9a-f]{{64}}"
    f"|([A-Za-z0-9][A-Za-z0-9.-]{{0,252}}(:[0-9]{{1,5}})?/)?[a-z0-9][a-z0-9._/-]{{0,254}}({_A_TAG})?)$"
)
_A_GPU = f"^([0-9]{{1,2}}|({_A_SIZE}(\\.\\.({_A_SIZE})?)?|\\.\\.({_A_SIZE})?)(:[0-9]{{1,2}})?)$"

Version = Annotated[Literal[1], BeforeValidator(_version), WithJsonSchema({"enum": [1, "1"]})]
Name = Annotated[JobName, _read(_job_name), _schema("string", pattern=_A_NAME, maxLength=63, **_NO_RESERVED_WORD)]
NameInList = Annotated[JobName, _read(_job_name), _any_text(pattern=_A_NAME, maxLength=63, **_NO_RESERVED_WORD)]
Image = Annotated[ImageRef | ImageTag, _read(_image), _any_text(pattern=r"^[a-z0-9][^\s@]*(@sha256:[0-9a-f]{64})?$")]
Text = Annotated[str, _read(str), _any_text()]
Shell = Annotated[str, _read(_shell), _any_text(pattern=r"\S")]
ModelId = Annotated[str, _read(_model_id), _schema("string", pattern=f"^{MODEL_ID.pattern}$")]
ModelRevision = Annotated[
    Revision | HubRef, _read(_revision), _any_text(pattern="^[A-Za-z0-9][A-Za-z0-9._/-]*$", maxLength=200)
]
Target = Annotated[str, _read(_target), _schema("string", pattern="^(/[^/]+)+$")]
EnvName = Annotated[str, _read(_env_name), _schema("string", pattern=f"^{_ENV_NAME.pattern}$", **_NO_RESERVED_ENV)]
EnvValue = Annotated[str, _read(_env_value), _any_text()]
Artifact = Annotated[str, _read(_artifact), _any_text(pattern=r"^(?![/~])[^\\]+$")]
Duration = Annotated[int, _read(duration_s), _schema("string", pattern=_A_DURATION)]
Gpu = Annotated[GpuNeed, _read(gpu_need), _number_or_text("integer", _A_GPU, minimum=0, maximum=99)]
Cpus = Annotated[
    float, _read(least_cpus), _number_or_text("number", r"^[0-9]{1,4}(\.[0-9]{1,2})?(\.\.)?$", exclusiveMinimum=0)
]
LeastSize = Annotated[int, _read(least_size_mib), _schema("string", pattern=rf"^{_A_SIZE}(\.\.)?$")]
Skip = Annotated[str, _read(_skip), _schema("string", enum=["skip"])]
SecretName = Annotated[
    str, _read(_secret_name), _schema("string", pattern=f"^{SECRET_NAME.pattern}$", **_NO_RESERVED_ENV)
]
Workdir = Annotated[str, _read(_workdir), _any_text(pattern=r"^(?![/~])[^\\]+$")]
Glob = Annotated[str, _read(_glob), _any_text(pattern=r"^\S+$", maxLength=MAX_GLOB_CHARS)]
FilesPattern = Annotated[str, _read(_files_pattern), _any_text(pattern=r"^[^/].*$", maxLength=MAX_GLOB_CHARS)]
ProviderId = Annotated[str, _read(_provider), _schema("string", enum=list(PROVIDERS))]
KindName = Annotated[str, _read(_kind), _schema("string", enum=list(KIND_NAMES))]
Flag = Annotated[
    bool, _read(_flag), WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "string", "enum": ["true", "false"]}]})
]
Attempts = Annotated[
    int, _read(_attempts), _number_or_text("integer", "^0{0,2}[1-5]$", minimum=1, maximum=MAX_RETRY_ATTEMPTS)
]
GpuCount = Annotated[int, _read(_gpu_count), _number_or_text("integer", "^[0-9]{1,2}$", minimum=0, maximum=99)]
Size = Annotated[int, _read(size_mib), _schema("string", pattern=f"^{_A_SIZE}$")]
