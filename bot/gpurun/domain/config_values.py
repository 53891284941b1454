"""The values that may stand behind the keys of `.gpurun.yml`: how each is read, and how it is described.

Each reader takes the text as it was written and raises ValueError with a sentence, and often a second one that says
what to write instead. Patterns are texts: `re` compiles one when a file holds what it is for, and keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpurun.domain.command_words import RESERVED_WORDS
from gpurun.domain.environment import NAME_IN_CAPITALS, RESERVED, RESERVED_PREFIXES, is_reserved, name_fault
from gpurun.domain.errors import PinNotFound
from gpurun.domain.ids import HubRef, ImageRef, ImageTag, JobName, Revision
from gpurun.domain.part import Value
from gpurun.domain.quantity import duration_s, gpu_need, least_cpus, least_size_mib, quoted, size_mib
from gpurun.domain.right import Right, Role

MAX_ENV_VALUE_BYTES = 64 * 1024
MAX_GLOB_CHARS = 200

PROVIDERS = ("docker",)
"""Those that this version can rent from."""
PROVIDERS_PLANNED = ("runpod", "vast", "lambda_cloud", "digitalocean", "paperspace", "ssh", "glows", "dstack")

KIND_NAMES = ("verify", "batch", "train")
MAX_RETRY_ATTEMPTS = 5
MODEL_ID_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
"""`organisation/name` on the hub."""

_COMMIT = r"[0-9A-Fa-f]{7,40}"
"""An id of the hub, or the start of one: only the hub knows whether it is enough of it, so `.gpurun.lock` pins it."""
_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,255}"
_LOGIN = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,98}[A-Za-z0-9])?"
_BOT = rf"{_LOGIN}\[bot\]"


_OTHER_VERSION = "this version of gpurun reads `version: 1`"


def _version(text: str) -> int:
    if text != "1":
        raise ValueError(_OTHER_VERSION)
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
    if not re.fullmatch(MODEL_ID_PATTERN, text):
        raise ValueError(f"{quoted(text)} is no model. Write organisation/name, as in its address on the hub")
    return text


def _revision(text: str) -> Revision | HubRef:
    if re.fullmatch(_COMMIT, text):
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
    if not re.fullmatch(_ENV_NAME, text):
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


def _username(text: str) -> str:
    if not re.fullmatch(r"[^\x00-\x20\x7f:]{1,255}", text):
        raise ValueError(f"{quoted(text)} is no user of a registry. Write the name alone, without spaces and ':'")
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


def _setup_input(text: str) -> str:
    if len(text) > MAX_GLOB_CHARS:
        raise ValueError(f"a path or pattern here has at most {MAX_GLOB_CHARS} characters, this one {len(text)}")
    if not text.strip() or text.startswith(("/", "~")) or ".." in text.split("/") or "\\" in text:
        raise ValueError(
            f"{quoted(text)} is no path under the folder of this file. Write one such as requirements.txt, without '..'"
        )
    return text


def _changed_path(text: str) -> str:
    if len(text) > MAX_GLOB_CHARS:
        raise ValueError(f"a path or pattern here has at most {MAX_GLOB_CHARS} characters, this one {len(text)}")
    if not text.strip() or text.startswith(("/", "~", "!")) or ".." in text.split("/") or "\\" in text:
        raise ValueError(
            f"{quoted(text)} is no path under the folder of this file. Write one such as src/**, without '..' and '!'"
        )
    return text


def _workdir(text: str) -> str:
    parts = text.split("/")
    if text.startswith(("/", "~")) or "\\" in text or any(part in ("", "..") for part in parts):
        raise ValueError(
            f"{quoted(text)} is no folder under the one that holds this file. Write one such as examples/demo"
        )
    return "/".join(part for part in parts if part != ".")


def _checkout_path(text: str) -> str:
    if text.startswith(("/", "~")) or "\\" in text or not text.strip() or not text.isprintable():
        raise ValueError(
            f"{quoted(text)} is no path of the checkout. Write one such as docker/Dockerfile, from the folder that "
            "holds this file"
        )
    return text


def _stage(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", text):
        raise ValueError(f"{quoted(text)} is no stage of a Dockerfile. Write the name behind `AS`")
    return text


def _build_arg(text: str) -> str:
    if not re.fullmatch(_ENV_NAME, text):
        raise ValueError(f"{quoted(text)} cannot be the name of an `ARG`. Use letters, digits and '_', no digit first")
    return text


def _registry_server(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,252}(:[0-9]{1,5})?", text) or not (
        text == "localhost" or "." in text or ":" in text
    ):
        raise ValueError(f"{quoted(text)} is no registry. Write its host as images name it, such as ghcr.io")
    return text


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


def _login(text: str) -> str:
    if not re.fullmatch(_LOGIN, text):
        raise ValueError(f"{quoted(text)} is no login at GitHub. Write it as in the person's address, without '@'")
    return text.lower()


def _bot(text: str) -> str:
    if not re.fullmatch(_BOT, text):
        raise ValueError(f"{quoted(text)} is no login of a bot. Write one such as renovate[bot]")
    return text.lower()


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise ValueError(f"{quoted(text)} is no role here. Write write, maintain or admin") from None


def _right(text: str) -> Right:
    try:
        return Right(text)
    except ValueError:
        raise ValueError(f"{quoted(text)} is no right. Write run, approve or admin") from None


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


def _source_ref(text: str) -> str:
    if text not in ("head", "merge"):
        raise ValueError(f"{quoted(text)} is no commit that a job can run. Write head or merge")
    return text


def _fetch_or_skip(text: str) -> str:
    if text not in ("fetch", "skip"):
        raise ValueError(f"{quoted(text)} is no answer here. Write fetch or skip, or delete the line")
    return text


Schema = Mapping[str, Any]


def _any_text(**more: Any) -> Schema:
    """Text that an editor may take for something else: `3.10` is a number to it, and the command `true` a boolean."""
    return {"anyOf": [{**more, "type": "string"}, {"type": "number"}, {"type": "boolean"}]}


def _number_or_text(kind: str, pattern: str, **more: Any) -> Schema:
    """A number to an editor; in quotes it is a text, and means the same here."""
    return {"anyOf": [{**more, "type": kind}, {"pattern": pattern, "type": "string"}]}


_NO_RESERVED_ENV = {
    "not": {
        "pattern": f"^(({'|'.join(sorted(RESERVED))})$|({'|'.join(RESERVED_PREFIXES)}))",
        "type": "string",
    }
}
_NO_RESERVED_WORD = {"not": {"enum": sorted(RESERVED_WORDS)}}
_A_NAME = "^[a-z0-9]([a-z0-9._-]*[a-z0-9_-])?$"
_A_SIZE = "[1-9][0-9]{0,8}(MB|GB|TB)"
_A_DURATION = "^[1-9][0-9]{0,6}[smh]$"
_A_GPU = f"^([0-9]{{1,2}}|({_A_SIZE}(\\.\\.({_A_SIZE})?)?|\\.\\.({_A_SIZE})?)(:[0-9]{{1,2}})?)$"

VERSION = Value(_version, {"enum": [1, "1"]}, no_text=_OTHER_VERSION)
NAME = Value(_job_name, {"maxLength": 63, **_NO_RESERVED_WORD, "pattern": _A_NAME, "type": "string"})
NAME_IN_LIST = Value(_job_name, _any_text(maxLength=63, **_NO_RESERVED_WORD, pattern=_A_NAME))
IMAGE = Value(_image, _any_text(pattern=r"^[a-z0-9][^\s@]*(@sha256:[0-9a-f]{64})?$"))
TEXT = Value(str, _any_text())
SHELL = Value(_shell, _any_text(pattern=r"\S"))
MODEL_ID = Value(_model_id, {"pattern": f"^{MODEL_ID_PATTERN}$", "type": "string"})
MODEL_REVISION = Value(_revision, _any_text(maxLength=200, pattern="^[A-Za-z0-9][A-Za-z0-9._/-]*$"))
TARGET = Value(_target, {"pattern": "^(/[^/]+)+$", "type": "string"})
ENV_NAME = Value(_env_name, {**_NO_RESERVED_ENV, "pattern": f"^{_ENV_NAME}$", "type": "string"})
ENV_VALUE = Value(_env_value, _any_text())
ARTIFACT = Value(_artifact, _any_text(pattern=r"^(?![/~])[^\\]+$"))
SETUP_INPUT = Value(_setup_input, _any_text(maxLength=MAX_GLOB_CHARS, pattern=r"^(?![/~])[^\\]+$"))
CHANGED_PATH = Value(_changed_path, _any_text(maxLength=MAX_GLOB_CHARS, pattern=r"^(?![/~!])[^\\]+$"))
DURATION = Value(duration_s, {"pattern": _A_DURATION, "type": "string"})
GPU = Value(gpu_need, _number_or_text("integer", _A_GPU, maximum=99, minimum=0))
CPUS = Value(least_cpus, _number_or_text("number", r"^[0-9]{1,4}(\.[0-9]{1,2})?(\.\.)?$", exclusiveMinimum=0))
LEAST_SIZE = Value(least_size_mib, {"pattern": rf"^{_A_SIZE}(\.\.)?$", "type": "string"})
SIZE = Value(size_mib, {"pattern": f"^{_A_SIZE}$", "type": "string"})
SOURCE_REF = Value(_source_ref, {"enum": ["head", "merge"], "type": "string"})
FETCH_OR_SKIP = Value(_fetch_or_skip, {"enum": ["fetch", "skip"], "type": "string"})
SECRET_NAME = Value(_secret_name, {**_NO_RESERVED_ENV, "pattern": f"^{NAME_IN_CAPITALS}$", "type": "string"})
CHECKOUT_PATH = Value(_checkout_path, _any_text(pattern=r"^(?![/~])[^\\]+$"))
STAGE = Value(_stage, _any_text(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$", maxLength=128))
BUILD_ARG = Value(_build_arg, {"pattern": f"^{_ENV_NAME}$", "type": "string"})
REGISTRY_SERVER = Value(_registry_server, {"pattern": r"^(localhost|[a-z0-9.-]*[.:][a-z0-9.:-]*)$", "type": "string"})
USERNAME = Value(_username, _any_text(pattern=r"^[^\s:]+$", maxLength=255))
WORKDIR = Value(_workdir, _any_text(pattern=r"^(?![/~])[^\\]+$"))
GLOB = Value(_glob, _any_text(maxLength=MAX_GLOB_CHARS, pattern=r"^\S+$"))
FILES_PATTERN = Value(_files_pattern, _any_text(maxLength=MAX_GLOB_CHARS, pattern=r"^[^/].*$"))
PROVIDER_ID = Value(_provider, {"enum": list(PROVIDERS), "type": "string"})
LOGIN = Value(_login, {"pattern": f"^{_LOGIN}$", "type": "string"})
BOT_LOGIN = Value(_bot, {"pattern": f"^{_BOT}$", "type": "string"})
ROLE = Value(_role, {"enum": [str(role) for role in Role], "type": "string"})
RIGHT = Value(_right, {"enum": [str(right) for right in Right], "type": "string"})
KIND_NAME = Value(_kind, {"enum": list(KIND_NAMES), "type": "string"})
FLAG = Value(_flag, {"anyOf": [{"type": "boolean"}, {"enum": ["true", "false"], "type": "string"}]})
ATTEMPTS = Value(_attempts, _number_or_text("integer", "^0{0,2}[1-5]$", maximum=MAX_RETRY_ATTEMPTS, minimum=1))
GPU_COUNT = Value(_gpu_count, _number_or_text("integer", "^[0-9]{1,2}$", maximum=99, minimum=0))
