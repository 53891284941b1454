"""The answer of `claim` as values."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class File:
    """A file of a model."""

    __slots__ = ("etag", "path", "sha256", "size")

    def __init__(self, size: int, sha256: str, etag: str, path: str) -> None:
        self.size = size
        self.sha256 = sha256
        self.etag = etag
        self.path = path


class Model:
    """A model or data set at a revision. `target` is a folder for plain files, or empty; `refs` are names of it."""

    __slots__ = ("files", "id", "index", "kind", "refs", "revision", "target")

    def __init__(self, index: int, id: str, revision: str, target: str) -> None:
        self.index = index
        self.id = id
        self.revision = revision
        self.target = target
        self.kind = "model"
        self.refs: list[str] = []
        self.files: list[File] = []


class Layer:
    """What is to be done with the volume: take what `sha256` names, or with an empty one make it."""

    __slots__ = ("day", "most_bytes", "setup_s", "sha256", "size")

    def __init__(self, *, sha256: str = "", size: int = 0, day: str = "", setup_s: float = 0.0, most: int = 0) -> None:
        self.sha256 = sha256
        self.size = size
        self.day = day
        self.setup_s = setup_s
        self.most_bytes = most


_ARTIFACT_LIMITS = ("artifact_files", "artifact_file_bytes", "artifact_bytes")


class BadSpec(ValueError):
    """The bot sent something that this agent does not understand."""


class Spec:
    """What to do. Raises BadSpec."""

    def __init__(self, fields: Iterable[tuple[str, bytes]]) -> None:
        self.token = ""
        self.number = 1
        self.max_duration_s = 0
        self.log_quota = 0
        self.source = ""
        self.setup = ""
        self.run = ""
        self.workdir = ""
        self.git = 0
        self.env: list[tuple[str, str]] = []
        self.secrets: list[tuple[str, str]] = []
        self.mask: list[bytes] = []
        self.weights = ""
        self.models: dict[int, Model] = {}
        self.layer: Layer | None = None
        self.layer_inputs: list[str] = []
        self.artifacts: list[str] = []
        self.artifact_files = 1000
        self.artifact_file_bytes = self.artifact_bytes = 1 << 30
        try:
            for name, value in fields:
                self._take(name, value)
        except (ValueError, KeyError) as exc:
            raise BadSpec("the spec is broken: %s" % type(exc).__name__) from exc
        if not self.token:
            raise BadSpec("the spec has no token")

    def _take(self, name: str, value: bytes) -> None:
        if name == "mask":
            self.mask.append(value)
            return
        text = value.decode("utf-8", "surrogateescape")
        if name in ("token", "source", "setup", "run", "workdir", "weights"):
            setattr(self, name, text)
        elif name in ("number", "max_duration_s", "log_quota", "git", *_ARTIFACT_LIMITS):
            setattr(self, name, int(text))
        elif name in ("env", "secret"):
            key, equals, content = text.partition("=")
            if key and equals:
                (self.env if name == "env" else self.secrets).append((key, content))
        elif name == "model":
            index, name, revision, target = text.split("\0")
            self.models[int(index)] = Model(int(index), name, revision, target)
        elif name == "layout":
            index, kind, *refs = text.split("\0")
            self.models[int(index)].kind = kind
            self.models[int(index)].refs = refs
        elif name == "file":
            index, size, sha256, etag, path = text.split("\0")
            self.models[int(index)].files.append(File(int(size), sha256, etag, path))
        elif name == "layer":
            self.layer = _layer(*text.split("\0"))
        elif name == "layer_input":
            self.layer_inputs.append(text)
        elif name == "artifact":
            self.artifacts.append(text)


def _layer(what: str, *more: str) -> Layer | None:
    if what == "take":
        sha256, size, day, setup_ms = more
        return Layer(sha256=sha256, size=int(size), day=day, setup_s=int(setup_ms) / 1000)
    return Layer(most=int(more[0])) if what == "make" else None
