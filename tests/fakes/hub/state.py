"""What the hub knows: models by commit, tokens, and the trouble it is in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from tests.fakes.lfs import pointer_of

LFS_SUFFIXES = frozenset({".bin", ".ckpt", ".gguf", ".h5", ".npz", ".onnx", ".pt", ".pth", ".safetensors", ".zip"})
"""As in the `.gitattributes` that the hub gives every new repository (excerpt)."""
LFS_OVER_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of one commit."""

    path: str
    source: bytes | Path
    size: int
    sha256: str
    oid: str
    """Git blob id; of the pointer when it is LFS."""
    pointer_size: int
    """0 when it is not LFS."""

    @property
    def is_lfs(self) -> bool:
        return self.pointer_size > 0

    @property
    def etag(self) -> str:
        return self.sha256 if self.is_lfs else self.oid

    def read(self) -> bytes:
        return self.source if isinstance(self.source, bytes) else self.source.read_bytes()


@dataclass(slots=True)
class Model:
    """A repository. Its state is plain attributes; tests set them."""

    id: str
    commits: dict[str, dict[str, StoredFile]] = field(default_factory=dict)
    main: str = ""
    refs: dict[str, str] = field(default_factory=dict)
    """Commits by branch or tag, beside `main`."""
    gated: Literal[False, "auto", "manual"] = False
    """Then its files need a token that was let in; its name and file list do not."""
    private: bool = False
    """Then everything needs a token that was let in."""
    disabled: bool = False
    answers_as: str | None = None
    """Another commit that the hub claims to serve; empty: it says nothing."""
    damaged: set[str] = field(default_factory=set)
    """Paths whose bytes are served with one bit flipped, at the same size and under the same hashes."""
    pointers: set[str] = field(default_factory=set)
    """Paths of LFS files that are served as what git has in their place."""
    cut_at: dict[str, int] = field(default_factory=dict)
    """Path -> bytes after which the next answer breaks off, once."""
    stalled_at: dict[str, int] = field(default_factory=dict)
    """Path -> bytes after which answers fall silent until the client leaves."""
    extra_tree: list[dict[str, object]] = field(default_factory=list)
    """Entries that the tree listing shows beside the true ones."""

    def body(self, file: StoredFile) -> bytes:
        """What goes over the wire."""
        if file.path in self.pointers:
            return pointer_of(file.sha256, file.size)
        data = bytearray(file.read())
        if file.path in self.damaged and data:
            data[len(data) // 2] ^= 1
        return bytes(data)


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request as it came in."""

    method: str
    host: str
    path: str
    token: str | None
    range: str | None


@dataclass(slots=True)
class Trouble:
    """The next `times` requests whose path contains `part` get this answer."""

    status: int
    part: str
    times: int
    headers: dict[str, str]


def store(path: str, source: bytes | Path) -> StoredFile:
    """Hashes the file as the hub does."""
    data = source if isinstance(source, bytes) else source.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    is_lfs = PurePosixPath(path).suffix in LFS_SUFFIXES or len(data) > LFS_OVER_BYTES
    pointer = pointer_of(sha256, len(data))
    return StoredFile(
        path=path,
        source=source,
        size=len(data),
        sha256=sha256,
        oid=object_id("blob", pointer if is_lfs else data).hex(),
        pointer_size=len(pointer) if is_lfs else 0,
    )


def commit_id(files: Mapping[str, StoredFile]) -> str:
    """The id that git gives a first commit of these files by a fixed person at a fixed time."""
    tree = _tree_id({path: file.oid for path, file in files.items()})
    who = "fake hub <hub@localhost> 1767225600 +0000"
    return object_id("commit", f"tree {tree}\nauthor {who}\ncommitter {who}\n\nUpload\n".encode()).hex()


def _tree_id(oids: Mapping[str, str]) -> str:
    folders: dict[str, dict[str, str]] = {}
    lines: list[tuple[str, bytes]] = []
    for path, oid in oids.items():
        name, _, rest = path.partition("/")
        if rest:
            folders.setdefault(name, {})[rest] = oid
        else:
            lines.append((name, b"100644 " + name.encode() + b"\0" + bytes.fromhex(oid)))
    for name, inner in folders.items():
        lines.append((name + "/", b"40000 " + name.encode() + b"\0" + bytes.fromhex(_tree_id(inner))))
    return object_id("tree", b"".join(line for _, line in sorted(lines, key=lambda pair: pair[0].encode()))).hex()


def object_id(kind: str, data: bytes) -> bytes:
    """SHA-1 of a git object."""
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data, usedforsecurity=False).digest()
