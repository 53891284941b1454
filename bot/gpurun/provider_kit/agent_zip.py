"""The agent as one file: sources, and bytecode of this interpreter's version for a quicker start.

Bytecode lies in a folder named by the interpreter's cache tag (`cpython-311/`), which the boot script puts first on the
path: another version does not see it and compiles the sources. Its header says "do not check the source", because
zipimport would compile every module twice to do so.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.util import MAGIC_NUMBER, find_spec
from pathlib import Path

_PACKAGE = "gpurun_agent"

_COMPILE_TIMEOUT_S = 60

_UNCHECKED_HASH = (1).to_bytes(4, "little")
"""Flags of a bytecode file (PEP 552): by hash, not to be checked."""

_COMPILE = """
import marshal, pathlib, sys
for name in sys.stdin.read().split("\\n"):
    source, shown = name.split("\\0")
    code = compile(pathlib.Path(source).read_bytes(), shown, "exec", dont_inherit=True, optimize=0)
    body = marshal.dumps(code)
    sys.stdout.buffer.write(len(body).to_bytes(8, "little") + body)
"""

_MAIN = b"""import sys
sys.path[:0] = [sys.argv[0] + "/" + sys.implementation.cache_tag]
from gpurun_agent.main import main
main()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentZip:
    """A built agent."""

    path: Path
    sha256: str


def agent_zip(folder: Path) -> AgentZip:
    """The agent of this installation in `folder`, built when it is not there yet. The same sources and interpreter
    give the same bytes. Blocks for some 0.1 s when it builds.
    """
    sources = _sources()
    path = folder / f"agent-{_identity(sources)}.pyz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write_atomically(path, _build(sources))
    return AgentZip(path=path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def _sources() -> dict[str, Path]:
    """Path in the zip to path on the disk, sorted."""
    spec = find_spec(_PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    return {f"{_PACKAGE}/{path.name}": path for path in sorted(root.glob("*.py"))}


def _identity(sources: dict[str, Path]) -> str:
    digest = hashlib.sha256(_MAIN + _COMPILE.encode() + MAGIC_NUMBER + sys.version.encode())
    for name, path in sources.items():
        content = path.read_bytes()
        digest.update(b"%s\0%d\0" % (name.encode(), len(content)) + content)
    return digest.hexdigest()[:16]


def _build(sources: dict[str, Path]) -> bytes:
    out = io.BytesIO()
    # Stored, not deflated: small images may lack zlib, and reading is quicker.
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "__main__.py", _MAIN)
        for name, path in sources.items():
            _add(archive, name, path.read_bytes())
        for name, code in _compiled(sources).items():
            source = sources[name].read_bytes()
            header = MAGIC_NUMBER + _UNCHECKED_HASH + _source_hash(source)
            _add(archive, f"{sys.implementation.cache_tag}/{name}c", header + code)
    return out.getvalue()


def _compiled(sources: dict[str, Path]) -> dict[str, bytes]:
    """In a process of its own: marshalled bytes depend on which strings the process has interned before."""
    names = "\n".join(f"{path}\0{name}" for name, path in sources.items())
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", _COMPILE],
        input=names.encode(),
        stdout=subprocess.PIPE,
        check=True,
        timeout=_COMPILE_TIMEOUT_S,
    )
    codes, at = {}, 0
    for name in sources:
        size = int.from_bytes(done.stdout[at : at + 8], "little")
        codes[name] = done.stdout[at + 8 : at + 8 + size]
        at += 8 + size
    return codes


def _source_hash(source: bytes) -> bytes:
    """Eight bytes that nothing compares, but that must be there."""
    return hashlib.sha256(source).digest()[:8]


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o644 << 16
    entry.create_system = 3
    archive.writestr(entry, content)


def _write_atomically(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    Path(file.name).replace(path)
