"""Reads the hub's file list strictly: what is unclear is refused before anything is downloaded."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gpurun.domain.errors import HubUnavailable, PinNotFound
from gpurun.domain.folder import is_safe_path
from gpurun.domain.ids import Revision

MAX_FILES = 10_000
MAX_SMALL_FILE_BYTES = 10 * 1024 * 1024
MAX_SMALL_TOTAL_BYTES = 50 * 1024 * 1024
MAX_REF_CHARS = 250


class Lfs(msgspec.Struct, frozen=True):
    """`lfs` of an entry."""

    oid: str
    """SHA-256 of the content."""
    size: int


class Entry(msgspec.Struct, frozen=True):
    """One entry of `GET /api/models/{id}/tree/{revision}`, as huggingface_hub's `RepoFile` reads it."""

    type: str
    path: str
    oid: str = ""
    """Git blob id; of the pointer for LFS files."""
    size: int = 0
    lfs: Lfs | None = None


class _Info(msgspec.Struct, frozen=True):
    """`GET /api/models/{id}/revision/{ref}`."""

    sha: str


_PAGE = msgspec.json.Decoder(list[Entry])
_INFO = msgspec.json.Decoder(_Info)
_NO_REF = re.compile(r"\.\.|@\{|[ ~^:?*\[\\]|^@$|^-")
"""What git forbids in the name of a branch or tag (`git check-ref-format`), and what looks like an option."""


def read_page(body: bytes) -> list[Entry]:
    """The entries of one page. Raises HubUnavailable when it is something else (a proxy's page, say)."""
    try:
        return _PAGE.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise HubUnavailable(f"The hub answered with something that is no file list ({exc}).") from exc


def read_revision(body: bytes) -> Revision:
    """The commit that a model's description names. Raises HubUnavailable when it is something else."""
    try:
        return Revision(_INFO.decode(body).sha)
    except (msgspec.DecodeError, UnicodeDecodeError, PinNotFound) as exc:
        raise HubUnavailable("The hub answered with something that names no commit.") from exc


def is_ref(text: str) -> bool:
    """Git could have a branch, tag or commit of that name, and no part of an address can hide in it."""
    if len(text) > MAX_REF_CHARS or not text.isprintable() or _NO_REF.search(text):
        return False
    return all(part and not part.startswith(".") and not part.endswith((".", ".lock")) for part in text.split("/"))


def checked_files(entries: Iterable[Entry], model_id: str) -> tuple[Entry, ...]:
    """The files, sorted by path. Raises PinNotFound for names and sizes that no run could use."""
    files = sorted((entry for entry in entries if entry.type == "file"), key=lambda entry: entry.path)
    if not files:
        raise PinNotFound(f"{model_id} has no files at that commit.")
    if len(files) > MAX_FILES:
        raise PinNotFound(f"{model_id} has more than {MAX_FILES} files at that commit.")
    for entry in files:
        _check(entry, model_id)
    if len({entry.path for entry in files}) != len(files):
        raise PinNotFound(f"{model_id} lists a file twice at that commit.")
    small_bytes = sum(entry.size for entry in files if entry.lfs is None)
    if small_bytes > MAX_SMALL_TOTAL_BYTES:
        raise PinNotFound(
            f"{model_id} has {small_bytes >> 20} MiB outside of LFS, for which the hub gives no SHA-256; "
            f"at most {MAX_SMALL_TOTAL_BYTES >> 20} MiB are hashed by the bot."
        )
    return tuple(files)


def _check(entry: Entry, model_id: str) -> None:
    if not is_safe_path(entry.path):
        raise PinNotFound(f"{model_id} has a file named {entry.path!r}, which could leave its folder.")
    if entry.lfs is not None:
        right = re.fullmatch(r"[0-9a-f]{64}", entry.lfs.oid) and entry.lfs.size >= 0
    else:
        right = re.fullmatch(r"[0-9a-f]{40}", entry.oid) and entry.size >= 0
    if not right:
        raise PinNotFound(f"The hub gives no usable hash or size for {entry.path} of {model_id}.")
    if entry.lfs is None and entry.size > MAX_SMALL_FILE_BYTES:
        raise PinNotFound(
            f"{entry.path} of {model_id} has {entry.size >> 20} MiB and is not in LFS, so the hub gives no SHA-256 for "
            f"it; at most {MAX_SMALL_FILE_BYTES >> 20} MiB are hashed by the bot."
        )
