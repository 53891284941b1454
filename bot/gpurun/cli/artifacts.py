"""Collected files leave the blob store for a folder that a person can open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from gpurun.domain.errors import UserError
from gpurun.domain.stream import Artifact
from gpurun.ports.bytes import Blobs
from gpurun.report.terminal import Places


def usable_folder(folder: Path) -> Path:
    """The folder exists afterwards. Raises UserError: better before the run than after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        leads_nowhere = folder.is_symlink() and not folder.exists()
        why = "it is a symbolic link that leads nowhere" if leads_nowhere else error.strerror
        hint = "Name another folder with --artifacts."
        raise UserError(f"Artifacts cannot be written to {folder}: {why}.", hint=hint) from error
    return folder


async def place_artifacts(blobs: Blobs, artifacts: Iterable[Artifact], folder: Path, *, instead: Path) -> Places:
    """Each under its path in `folder`, in the place of what is there; what cannot be there is written to `instead`.

    Nothing is raised for a file that cannot be written: the job has run, and its report must come whatever happens
    here. The blob store has a file no more once it is written; what is written nowhere stays there.
    """
    artifacts = tuple(artifacts)
    if not artifacts:
        return Places()
    unwritten = await write_artifacts(blobs, artifacts, folder)
    left = [artifact for artifact in artifacts if artifact.path in unwritten]
    nowhere = await write_artifacts(blobs, left, instead) if left and instead != folder else unwritten
    return Places(
        folder=_named(folder),
        unwritten=unwritten,
        instead=_named(instead) if len(nowhere) < len(unwritten) else "",
        nowhere=nowhere,
    )


def _named(folder: Path) -> str:
    """As a person can use it from anywhere."""
    return str(folder.resolve())


async def write_artifacts(blobs: Blobs, artifacts: Iterable[Artifact], folder: Path) -> dict[str, str]:
    """Each under its path, in the place of what is there. The blob store has those no more afterwards.

    Those that cannot be written, and why; also where a link in the folder would lead them out of it. After one that
    found no room a smaller one may find it.
    """
    unwritten: dict[str, str] = {}
    for artifact in artifacts:
        try:
            link = _link_on_the_way(artifact, folder)
            if link is not None:
                unwritten[artifact.path] = f"{link} is a symbolic link, which may lead elsewhere"
                continue
            await _write(blobs, artifact, folder / artifact.path)
        except OSError as error:
            unwritten[artifact.path] = error.strerror or str(error)
            continue
        with contextlib.suppress(OSError):  # twice is better than not at all
            await blobs.delete(artifact.blob)
    return unwritten


def _link_on_the_way(artifact: Artifact, folder: Path) -> Path | None:
    """In the place of a link that stands where the file belongs the file is put."""
    here = folder
    for name in artifact.path.split("/")[:-1]:
        here = here / name
        if here.is_symlink():
            return here
    return None


async def _write(blobs: Blobs, artifact: Artifact, path: Path) -> None:
    """First beside its place: whoever looks sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".gpurun-{artifact.sha256[:16]}")
    try:
        draft.unlink(missing_ok=True)
        with draft.open("xb") as file:
            if artifact.size:
                async for piece in blobs.open(artifact.blob):
                    file.write(piece)
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
