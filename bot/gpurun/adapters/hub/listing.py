"""Reads the hub's file list strictly: what is unclear is refused before anything is downloaded."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NoReturn

import msgspec

from gpurun.domain.errors import HubUnavailable, NothingIncluded, PinNotFound
from gpurun.domain.folder import is_safe_path
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelSpec

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


class Listing:
    """The files of one model that a job wants, page by page. All others are counted and held by nobody."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._n_files = 0
        self._first = ""
        self._wanted: list[Entry] = []

    def add(self, page: Iterable[Entry]) -> None:
        """Raises PinNotFound for a name that could lead elsewhere, and when more is wanted than a job can have."""
        for entry in page:
            if entry.type != "file":
                continue
            if not is_safe_path(entry.path):
                raise PinNotFound(f"{self._spec.id} has a file named {entry.path!r}, which could leave its folder.")
            self._n_files += 1
            self._first = min(self._first or entry.path, entry.path)
            if self._spec.wants(entry.path):
                self._wanted.append(entry)
        if len(self._wanted) > MAX_FILES:
            self._refuse(f"more than {MAX_FILES:,} files that the job would get")

    def files(self) -> tuple[Entry, ...]:
        """Those that are wanted, sorted by path.

        Raises: PinNotFound for hashes and sizes that no run could use, NothingIncluded.
        """
        if not self._n_files:
            raise PinNotFound(f"{self._spec.id} has no files at that commit.")
        if not self._wanted:
            raise NothingIncluded(
                f"`include` and `exclude` leave none of the {self._n_files} files of {self._spec.id}, such as "
                f"{self._first!r}."
            )
        for entry in self._wanted:
            self._check(entry)
        if len({entry.path for entry in self._wanted}) != len(self._wanted):
            raise PinNotFound(f"{self._spec.id} lists a file twice at that commit.")
        small_bytes = sum(entry.size for entry in self._wanted if entry.lfs is None)
        if small_bytes > MAX_SMALL_TOTAL_BYTES:
            self._refuse(
                f"{small_bytes >> 20} MiB outside of LFS, for which the hub gives no SHA-256; at most "
                f"{MAX_SMALL_TOTAL_BYTES >> 20} MiB are hashed by the bot"
            )
        return tuple(sorted(self._wanted, key=lambda entry: entry.path))

    def _check(self, entry: Entry) -> None:
        if entry.lfs is not None:
            right = re.fullmatch(r"[0-9a-f]{64}", entry.lfs.oid) and entry.lfs.size >= 0
        else:
            right = re.fullmatch(r"[0-9a-f]{40}", entry.oid) and entry.size >= 0
        if not right:
            raise PinNotFound(f"The hub gives no usable hash or size for {entry.path} of {self._spec.id}.")
        if entry.lfs is None and entry.size > MAX_SMALL_FILE_BYTES:
            self._refuse(
                f"{entry.path} with {entry.size >> 20} MiB, which is not in LFS, so that the hub gives no SHA-256 for "
                f"it; at most {MAX_SMALL_FILE_BYTES >> 20} MiB are hashed by the bot"
            )

    def _refuse(self, has: str) -> NoReturn:
        raise PinNotFound(
            f"{self._spec.id} has {has}.",
            hint="Take only what the job needs with `include` or `exclude`, and write the 40-digit commit as "
            "`revision`: a lock always lists all files.",
        )
