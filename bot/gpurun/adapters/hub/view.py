"""Pins as one folder that looks like a hub cache: hard links to cached content, nothing copied.

`models--<org>--<name>/blobs/<etag>` is the content, `snapshots/<revision>/<path>` links to it, `refs/<name>` holds the
revision: what the agent lays out where nothing is mounted. Files are 0444 and folders 0555, so that every user of a
container reads them; that nobody writes them is the mount's doing.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from gpurun.domain.errors import PinNotFound
from gpurun.domain.plan import ModelFile, ModelPin

READ_ONLY = 0o444
_FOLDER = 0o555
_VERSION = ("version.txt", "1")
"""transformers 4 would write it, and warns where it cannot."""

Content = Callable[[ModelPin, ModelFile], Path]
"""Where the bytes of a file lie."""


def key_of(pins: Sequence[ModelPin]) -> str:
    """The name of the view: the same for equal pins. Raises PinNotFound for names that lead elsewhere."""
    shape = [
        [pin.kind, pin.id, pin.revision, pin.refs, [[f.path, f.size, f.sha256, f.etag] for f in pin.files]]
        for pin in pins
    ]
    _check(pins)
    return hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:32]


def is_whole(view: Path, pins: Sequence[ModelPin], content: Content) -> bool:
    """Every name in it leads to the content that is in the cache now. Reads no content."""
    try:
        for pin in pins:
            repo = view / _repo(pin)
            if any((repo / "refs" / ref).read_text("ascii") != pin.revision for ref in pin.refs):
                return False
            for file in pin.files:
                there = (repo / "snapshots" / pin.revision / file.path).stat()
                if not os.path.samestat(there, content(pin, file).stat()):
                    return False
    except (OSError, ValueError):
        return False
    return True


def build(view: Path, pins: Sequence[ModelPin], content: Content) -> None:
    """Under its name only when it is finished. Whatever had the name before is moved aside, for those who mounted it.

    Raises OSError; FileNotFoundError when content is missing.
    """
    view.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = view.with_name(f".new-{view.name}-{secrets.token_hex(4)}")
    try:
        _fill(draft, pins, content)
        with suppress(FileNotFoundError):
            view.rename(view.with_name(f"{view.name}.old-{secrets.token_hex(4)}"))
        draft.rename(view)
    except BaseException:
        remove(draft)
        raise


def remove(folder: Path) -> None:
    """With all that is in it; the content stays in the cache. Silent when it is not there."""
    for at, _, _ in os.walk(folder):
        with suppress(OSError):
            Path(at).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def blobs(view: Path) -> Iterator[os.stat_result]:
    """What it holds."""
    for path in view.glob("*/blobs/*"):
        with suppress(FileNotFoundError):
            yield path.stat()


def _fill(draft: Path, pins: Sequence[ModelPin], content: Content) -> None:
    draft.mkdir()
    _write(draft / _VERSION[0], _VERSION[1])
    for pin in pins:
        repo = draft / _repo(pin)
        for ref in pin.refs:
            _write(repo / "refs" / ref, pin.revision)
        for file in pin.files:
            blob, link = repo / "blobs" / file.etag, repo / "snapshots" / pin.revision / file.path
            blob.parent.mkdir(parents=True, exist_ok=True)
            link.parent.mkdir(parents=True, exist_ok=True)
            source = content(pin, file)
            if not blob.exists():
                source.chmod(READ_ONLY)
                blob.hardlink_to(source)
            elif not blob.samefile(source):
                raise PinNotFound(f"Two files of {pin.id} have the etag {file.etag} and other bytes.", pin=pin.id)
            if not link.is_symlink():
                link.symlink_to("../" * (2 + file.path.count("/")) + f"blobs/{file.etag}")
    for at, _, _ in os.walk(draft, topdown=False):
        Path(at).chmod(_FOLDER)


def _write(path: Path, text: str) -> None:
    """Without a line's end, as huggingface_hub writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "ascii")
    path.chmod(READ_ONLY)


def _repo(pin: ModelPin) -> str:
    return "--".join([f"{pin.kind}s", *pin.id.split("/")])


def _check(pins: Sequence[ModelPin]) -> None:
    """The hub and a lock are trusted with bytes, not with places."""
    for pin in pins:
        flat = [pin.revision, *(file.etag for file in pin.files)]
        names = [pin.id, *pin.refs, *(file.path for file in pin.files), *flat]
        for name in names:
            if "\0" in name or not {"", ".", ".."}.isdisjoint(name.split("/")):
                raise PinNotFound(f"{name!r} is no name for a file of {pin.id}.", pin=pin.id)
        if any("/" in name for name in flat):
            raise PinNotFound(f"An etag of {pin.id} has a slash.", pin=pin.id)
