"""What is installed where the job runs, read from files: no program is started, and a broken file is left out.

The text is for people and for `diff`: a line that begins with `#` says where the lines below it come from.

    # python 3.11 in /usr/local
    numpy==2.1.0
    train @ file:///gpurun/work (editable)
    # conda in /opt/conda
    pytorch=2.4.1=py3.11_cuda12.4_cudnn9.1.0_0
    # dpkg
    libc6=2.36-9+deb12u10
"""

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST_S = 1.0
"""What is not read by then is left out."""

MAX_BYTES = 512 * 1024
"""Of the text."""

_MAX_FILE = 32 * 1024 * 1024
"""Of a file that is read."""

CUT = "# the rest is left out: this took too long, or is too much\n"


class _Enough(Exception):
    """No time is left."""


class Installed:
    """Reads once. `env` is the job's; `root` is changed by tests only."""

    def __init__(self, env: dict[str, str], root: str = "", longest_s: float = LONGEST_S) -> None:
        self._env = env
        self._root = root
        self._until = time.monotonic() + longest_s

    def text(self) -> str:
        """Empty when nothing is known. Raises nothing."""
        lines, size = [], 0
        try:
            for line in self._lines():
                line = "%s\n" % line.encode("utf-8", "replace").decode("utf-8").replace("\n", " ")
                size += len(line.encode("utf-8"))
                if size > MAX_BYTES or time.monotonic() > self._until:
                    raise _Enough
                lines.append(line)
        except _Enough:
            lines.append(CUT)
        except Exception as exc:  # whatever the job left there: this is nice to have
            lines.append("# the rest is left out: %s\n" % type(exc).__name__)
        return "".join(lines)

    def _lines(self) -> Iterator[str]:
        prefix, version = self._python()
        if prefix:
            yield "# python %s in %s" % (version, prefix) if version else "# python in %s" % prefix
            yield from sorted(self._distributions(prefix, version), key=str.lower)
        conda = self._env.get("CONDA_PREFIX", "") or prefix
        packages = sorted(name[: -len(".json")] for name in self._names(conda + "/conda-meta") if name[-5:] == ".json")
        if conda and packages:
            yield "# conda in %s" % conda
            for name in packages:
                parts = name.rsplit("-", 2)
                yield "=".join(parts)
        packages = sorted(_dpkg(self._read("/var/lib/dpkg/status")))
        if packages:
            yield "# dpkg"
            yield from packages

    def _python(self) -> tuple[str, str]:
        """Prefix and version of what `python3`, or else `python`, means to the job; empty when there is none."""
        folders = self._env.get("PATH", "").split(":")
        for name in ("python3", "python"):
            for folder in folders:
                path = "%s/%s" % (folder.rstrip("/"), name)
                if folder.startswith("/") and os.access(self._root + path, os.X_OK):
                    return self._prefix(path)
        return "", ""

    def _prefix(self, path: str) -> tuple[str, str]:
        place = os.path.dirname(os.path.dirname(path))
        lines = self._read_lines(place + "/pyvenv.cfg")
        said = {key.strip(): value.strip() for key, is_one, value in (line.partition("=") for line in lines) if is_one}
        if said:
            words = (said.get("version") or said.get("version_info") or "").split(".")
            return place, ".".join(words[:2])
        real = os.path.realpath(self._root + path)[len(os.path.realpath(self._root)) if self._root else 0 :]
        version = os.path.basename(real)[len("python") :]
        return os.path.dirname(os.path.dirname(real)) or "/", version if "." in version else ""

    def _distributions(self, prefix: str, version: str) -> Iterator[str]:
        """As pip freezes them; of two with one name the one that is imported."""
        seen = set()
        for folder in self._site_folders(prefix, version):
            for entry in self._names(folder):
                stem, dot, kind = entry.rpartition(".")
                if not dot or kind not in ("dist-info", "egg-info"):
                    continue
                name, _, rest = stem.partition("-")
                key = name.lower().replace("_", "-").replace(".", "-")
                if key not in seen:
                    seen.add(key)
                    found = rest.partition("-py")[0] if kind == "egg-info" else rest
                    yield _frozen(name.replace("_", "-"), found, self._read("%s/%s/direct_url.json" % (folder, entry)))

    def _site_folders(self, prefix: str, version: str) -> Iterator[str]:
        """In the order of `sys.path`, as far as files tell it."""
        yield from (one for one in self._env.get("PYTHONPATH", "").split(":") if one.startswith("/"))
        lib = prefix.rstrip("/") + "/lib"
        names = ["python" + version] if version else sorted(n for n in self._names(lib) if n.startswith("python3."))
        for name in names:
            home = self._env.get("HOME", "")
            if home:
                yield "%s/.local/lib/%s/site-packages" % (home, name)
            if prefix == "/usr":
                yield "/usr/local/lib/%s/dist-packages" % name
            yield "%s/%s/site-packages" % (lib, name)
            yield "%s64/%s/site-packages" % (lib, name)
            yield "%s/%s/dist-packages" % (lib, name)
        if prefix == "/usr":
            yield "/usr/lib/python3/dist-packages"

    def _names(self, folder: str) -> list[str]:
        if time.monotonic() > self._until:
            raise _Enough
        try:
            return os.listdir(self._root + folder)
        except OSError:
            return []

    def _read_lines(self, path: str) -> Iterable[str]:
        return self._read(path).decode("utf-8", "replace").split("\n")

    def _read(self, path: str) -> bytes:
        """Empty for what is no regular file, also where somebody put a pipe."""
        if time.monotonic() > self._until:
            raise _Enough
        try:
            fd = os.open(self._root + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_FILE:
                return b""
            with os.fdopen(os.dup(fd), "rb") as file:
                return file.read(_MAX_FILE)
        except OSError:
            return b""
        finally:
            os.close(fd)


def _frozen(name: str, version: str, direct: bytes) -> str:
    """`name==version`; with the place when it did not come from an index."""
    plain = "%s==%s" % (name, version) if version else name
    if not direct:
        return plain
    import json

    try:
        said = json.loads(direct)
        place, commit = _place(str(said["url"])), said.get("vcs_info", {}).get("commit_id", "")
        if not place:
            return plain
        place = "git+%s@%s" % (place, commit) if commit else place
        return "%s @ %s%s" % (name, place, " (editable)" if said.get("dir_info", {}).get("editable") else "")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return plain


def _place(url: str) -> str:
    """Without what may open it: user, password, query (a signature), fragment. Empty for what is no URL."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return ""
    rest = rest.partition("#")[0].partition("?")[0]
    host, slash, path = rest.partition("/")
    return scheme + slashes + host.rpartition("@")[2] + slash + path


def _dpkg(status: bytes) -> Iterator[str]:
    """`name=version` of what is installed. A stanza has its fields in this order, and long ones behind them."""
    for stanza in status.split(b"\n\n"):
        if stanza.startswith(b"Package: ") and b" installed\n" in stanza[:400]:
            name = stanza[9 : stanza.find(b"\n")]
            at = stanza.find(b"\nVersion: ") + 10
            version = stanza[at : stanza.find(b"\n", at)] if at > 9 else b""
            yield "%s=%s" % (name.decode("utf-8", "replace"), version.decode("utf-8", "replace"))
