"""What a run's source is made of: the commit, the submodules that it points to, and files of git LFS."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpurun.domain.errors import PinNotFound
from gpurun.domain.ids import CommitSha, RepoName, TreeSha
from gpurun.domain.quantity import quoted

MAX_SOURCE_BYTES = 2 * 1024 * 1024 * 1024
"""Of everything that lies in the work folder before `setup`, as the archive that brings it."""
MAX_SUBMODULES = 64
MAX_SUBMODULE_DEPTH = 5
"""Submodules in submodules."""

_SCP = re.compile(r"(?:[^@/:\s]+@)?(?P<host>[A-Za-z0-9.\-]+):(?!/)(?P<path>.+)")
_PATH = re.compile(r"(?:[A-Za-z0-9_~+][A-Za-z0-9._~+\-]*/)*[A-Za-z0-9_~+][A-Za-z0-9._~+\-]*")
_SSH = frozenset({"ssh", "git+ssh", "ssh+git"})
_WEB = frozenset({"https", "http", "git"})
_MODULE_NAME = re.compile(r"(?!-)[^\x00-\x1f\x7f\\]{1,200}")


class ModuleUrl(str):
    """Where a submodule is fetched from, without a credential: an address, or a folder for the local forge."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """What a pull request would become: the commit that runs instead of its head."""

    commit: CommitSha
    base: CommitSha | None = None
    """Its other parent; None before it was fetched, and where there is no pull request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gitlink:
    """A submodule as a commit names it."""

    path: str
    """From the top of the commit that has it; in a run's pins from the top of the run's commit."""
    name: str
    """In `.gitmodules`."""
    url: str
    """As `.gitmodules` writes it: anybody's text."""
    commit: CommitSha
    above: str = ""
    """Where the repository was fetched from that has it; empty for the run's own."""
    depth: int = 1
    source: str = ""
    """Where it was fetched from; empty before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What is in the mirror after a fetch."""

    tree: TreeSha
    n_bytes: int
    """What an archive of it has, with the content of LFS files when they were asked for."""
    links: tuple[Gitlink, ...] = ()
    """Submodules, when they were asked for."""
    n_lfs: int = 0
    """Files of git LFS, when they were asked for."""
    base: CommitSha | None = None
    """Of a merge commit the parent that is not the head, when that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submodule:
    """A submodule of a plan."""

    path: str
    """From the top."""
    url: str
    """Decides nothing: the commit does."""
    commit: CommitSha


@dataclass(frozen=True, slots=True, kw_only=True)
class GitTag:
    """A tag of a commit that a run's `.git` holds."""

    name: str
    object: CommitSha
    """What the tag's ref holds: an annotated tag itself, or the commit."""
    commit: CommitSha


@dataclass(frozen=True, slots=True)
class ModulePlace:
    """Where a submodule is."""

    url: str
    repo: RepoName | None
    """When it is at the forge itself."""


def module_place(written: str, *, above: str, forge_url: str, hosts: frozenset[str]) -> ModulePlace:
    """What `url` of `.gitmodules` stands for in the repository at `above`: a place at the forge, or at one of `hosts`.

    Whatever protocol is written, the forge is asked as the server asks it, and other hosts by https. A user name in it
    is not used. Raises PinNotFound for every other address.
    """
    if written.startswith(("./", "../")):
        written = _joined(above, written)
    host, path = _host_and_path(written)
    path = path.strip("/")
    if not _PATH.fullmatch(path):
        raise PinNotFound(f"{quoted(written)} in `.gitmodules` is no address of a repository that gpurun fetches.")
    forge = urlsplit(forge_url)
    if host in {forge.netloc.lower(), forge.hostname}:
        return _at_forge(path, forge_url)
    if host not in hosts:
        known = ", ".join(sorted({forge.netloc.lower(), *hosts}))
        raise PinNotFound(
            f"A submodule is on the host {quoted(host)}; this server fetches submodules from {known} only.",
            hint="An operator can add it with GPURUN_SUBMODULE_HOSTS; or write `checkout: {submodules: skip}`.",
        )
    return ModulePlace(f"https://{host}/{path}", None)


def require_module_name(name: str) -> str:
    """Itself, when it can be a folder below `.git/modules`. Raises PinNotFound."""
    if not _MODULE_NAME.fullmatch(name) or any(part in {"", ".", ".."} for part in name.split("/")):
        raise PinNotFound(f"`.gitmodules` names a submodule {quoted(name)}, which leads out of its folder.")
    return name


def _at_forge(path: str, forge_url: str) -> ModulePlace:
    try:
        repo = RepoName(path.removesuffix(".git"))
    except PinNotFound:
        raise PinNotFound(f"{quoted(path)} in `.gitmodules` is no repository (owner/name) of the forge.") from None
    return ModulePlace(f"{forge_url.rstrip('/')}/{repo}.git", repo)


def _host_and_path(written: str) -> tuple[str, str]:
    """The host in lower case, with its port when it is written for the web."""
    try:
        parts = urlsplit(written)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise PinNotFound(f"{quoted(written)} in `.gitmodules` is no address.") from None
    if parts.scheme in _SSH and host:
        return host, parts.path
    if parts.scheme in _WEB and host and not parts.query and not parts.fragment:
        return (f"{host}:{port}" if port and parts.scheme != "git" else host), parts.path
    match = _SCP.fullmatch(written)
    if match and "://" not in written:
        return match["host"].lower(), match["path"]
    raise PinNotFound(
        f"The submodule address {quoted(written)} is not fetched; gpurun takes https, ssh and relative addresses."
    )


def _joined(above: str, relative: str) -> str:
    """As git does it: a repository is a folder to its submodules."""
    parts = urlsplit(above)
    names = parts.path.strip("/").split("/")
    rest = relative.split("/")
    while rest and rest[0] in {".", ".."}:
        if rest.pop(0) == "..":
            if not names:
                raise PinNotFound(f"{quoted(relative)} in `.gitmodules` leads out of its host.")
            names.pop()
    return f"{parts.scheme}://{parts.netloc}/{'/'.join([*names, *rest])}"
