"""A real bare git repository on disk, written without a checkout."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import re
import subprocess
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

ENVIRONMENT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
"""Nobody's own git configuration changes what a test sees."""

# GitHub serves any commit that it knows, not only the tips of branches
CONFIG = """[core]
	repositoryformatversion = 0
	bare = true
[uploadpack]
	allowAnySHA1InWant = true
"""


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link as a file's content."""

    target: str


@dataclass(frozen=True, slots=True)
class Submodule:
    """A submodule entry as a file's content."""

    sha: str


@dataclass(frozen=True, slots=True)
class Change:
    """One file of a pull request."""

    path: str
    status: str
    """As the API says it."""
    blob: str
    before: str = ""
    """Its old path when it was renamed."""


_STATUS = {"A": "added", "M": "modified", "D": "removed", "R": "renamed", "C": "copied", "T": "changed"}

Files = Mapping[str, str | bytes | Link | Submodule | None]
"""Path to content. None removes the path."""


class GitRepo:
    """Commits go in by `git fast-import`; branches and pull refs are plain refs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # what an id stands for never changes, and a start of git costs more than most of what it is asked
        self._commits: set[str] = set()
        self._trees: dict[str, list[dict[str, str | int]]] = {}
        self._blobs: dict[str, bytes] = {}
        self._merges: dict[tuple[str, str], str | None] = {}

    @classmethod
    def create(cls, folder: Path) -> GitRepo:
        # by hand: a start of git costs more than all of this
        for part in ("objects/info", "objects/pack", "refs/heads"):
            (folder / part).mkdir(parents=True)
        (folder / "HEAD").write_text("ref: refs/heads/main\n")
        (folder / "config").write_text(CONFIG)
        return cls(folder)

    def fork(self, folder: Path) -> GitRepo:
        other = GitRepo.create(folder)
        other.run("fetch", "--quiet", str(self.folder), "refs/heads/*:refs/heads/*")
        return other

    def run(self, *argv: str, stdin: bytes = b"") -> bytes:
        return _git("--git-dir", str(self.folder), *argv, stdin=stdin)

    def commit(self, branch: str, files: Files, *, message: str, author: str, at: datetime, parent: str | None) -> str:
        """A commit on top of `parent` (None: a root commit); the branch is moved there. Returns its id."""
        who = f"{author} <{author}@users.noreply.example> {int(at.timestamp())} +0000"
        # a null "from" lets fast-import start at any parent, also where the branch is elsewhere now
        lines = [
            f"commit refs/heads/{branch}".encode(),
            b"mark :1",
            f"author {who}".encode(),
            f"committer {who}".encode(),
        ]
        lines.append(_data(message.encode()))
        lines.append(f"from {parent}".encode() if parent else b"from " + b"0" * 40)
        lines += [_change(path, content) for path, content in files.items()]
        lines += [b"get-mark :1", b""]
        output = self.run("fast-import", "--quiet", "--force", "--date-format=raw", stdin=b"\n".join(lines))
        sha = output.decode().strip()
        self._commits.add(sha)
        return sha

    def fetch(self, other: GitRepo, sha: str) -> None:
        """The commit and its history are here afterwards."""
        self.run("fetch", "--quiet", str(other.folder), sha)

    def set_ref(self, ref: str, sha: str) -> None:
        path = self.folder / ref
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{sha}\n")
        except OSError:  # a folder stands there, which git removes when it is empty
            self.run("update-ref", ref, sha)

    def delete_ref(self, ref: str) -> None:
        self.run("update-ref", "-d", ref)

    def resolve(self, ref: str) -> str | None:
        """The commit of a branch or commit id; None when there is none."""
        if ref in self._commits:
            return ref
        found = self._branch(ref)
        if found is None:
            try:
                found = self.run("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}").decode().strip()
            except subprocess.CalledProcessError:
                return None
        self._commits.add(found)
        return found

    def _branch(self, ref: str) -> str | None:
        """What a loose ref of that name holds; None where git has to be asked."""
        if not re.fullmatch(r"[0-9a-f]{7,40}", ref):
            name = ref if ref.startswith("refs/") else f"refs/heads/{ref}"
            with contextlib.suppress(OSError, ValueError):
                held = (self.folder / name).read_text().strip()
                return held if re.fullmatch("[0-9a-f]{40}", held) else None
        return None

    def tree(self, sha: str) -> list[dict[str, str | int]] | None:
        """The entries of a tree, not of its subtrees, as the API names them; None when there is no such tree."""
        if sha in self._trees:
            return copy.deepcopy(self._trees[sha])
        try:
            output = self.run("ls-tree", "-z", "--long", sha)
        except subprocess.CalledProcessError:
            return None
        entries: list[dict[str, str | int]] = []
        for line in output.decode().split("\0"):
            if line:
                head, path = line.split("\t", 1)
                mode, kind, blob, size = head.split()
                entry: dict[str, str | int] = {"path": path, "mode": mode, "type": kind, "sha": blob}
                entries.append(entry | ({"size": int(size)} if kind == "blob" else {}))
        if re.fullmatch("[0-9a-f]{40}", sha):
            self._trees[sha] = copy.deepcopy(entries)
        return entries

    def changes(self, base: str, head: str) -> list[Change]:
        """What the head changes since it left the base, by path, renames found."""
        start = self.run("merge-base", base, head).decode().strip()
        fields = self.run("diff-tree", "-r", "-z", "-M", start, head).decode().split("\0")
        found: list[Change] = []
        at = 0
        while at < len(fields) - 1:
            _, _, old_blob, blob, status = fields[at].split()
            moved = status[0] in "RC"
            path = fields[at + 2] if moved else fields[at + 1]
            there = old_blob if status == "D" else blob
            before = fields[at + 1] if moved else ""
            found.append(Change(path=path, status=_STATUS[status[0]], blob=there, before=before))
            at += 3 if moved else 2
        return sorted(found, key=lambda change: change.path)

    def merged(self, base: str, head: str, *, at: datetime) -> str | None:
        """A merge commit of both, which no ref holds; None for a conflict."""
        tree = self._merged_tree(base, head)
        if tree is None:
            return None
        who = f"GitHub <noreply@github.example> {int(at.timestamp())} +0000"
        text = f"tree {tree}\nparent {base}\nparent {head}\nauthor {who}\ncommitter {who}\n\nMerge {head} into {base}\n"
        return self._write("commit", text.encode())

    def _merged_tree(self, base: str, head: str) -> str | None:
        if (base, head) not in self._merges:
            try:
                tree = self.run("merge-tree", "--write-tree", base, head).decode().split()[0]
            except subprocess.CalledProcessError:
                tree = None
            self._merges[base, head] = tree
        return self._merges[base, head]

    def _write(self, kind: str, content: bytes) -> str:
        """A loose object, as git writes it. Returns its id."""
        whole = b"%b %d\0%b" % (kind.encode(), len(content), content)
        sha = hashlib.sha1(whole).hexdigest()
        path = self.folder / "objects" / sha[:2] / sha[2:]
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(zlib.compress(whole, 1))
        return sha

    def blob(self, sha: str) -> bytes | None:
        """None when there is no such blob."""
        if sha not in self._blobs:
            try:
                self._blobs[sha] = self.run("cat-file", "blob", sha)
            except subprocess.CalledProcessError:
                return None
        return self._blobs[sha]


def _git(*argv: str, stdin: bytes = b"") -> bytes:
    env = {"PATH": os.defpath, **ENVIRONMENT}
    return subprocess.run(["git", *argv], input=stdin, capture_output=True, check=True, timeout=30, env=env).stdout


def _data(content: bytes) -> bytes:
    return b"data %d\n%b" % (len(content), content)


def _change(path: str, content: str | bytes | Link | Submodule | None) -> bytes:
    match content:
        case None:
            return f"D {path}".encode()
        case Submodule(sha):
            return f"M 160000 {sha} {path}".encode()
        case Link(target):
            return f"M 120000 inline {path}\n".encode() + _data(target.encode())
        case _:
            raw = content.encode() if isinstance(content, str) else content
            mode = "100755" if raw.startswith(b"#!") else "100644"
            return f"M {mode} inline {path}\n".encode() + _data(raw)
