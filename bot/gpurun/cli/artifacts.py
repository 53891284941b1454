"""Collected files leave the blob store for a folder that a person can open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from gpurun.domain.errors import UserError
from gpurun.domain.stream import Artifact
from gpurun.ports.bytes import Blobs


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


async def write_artifacts(blobs: Blobs, artifacts: Iterable[Artifact], folder: Path) -> None:
    """Each under its path, in the place of what is there. The blob store has them no more afterwards.

    Raises: UserError, also when a link in the folder would lead them out of it.
    """
    for artifact in artifacts:
        _refuse_links(artifact, folder)
        try:
            await _write(blobs, artifact, folder / artifact.path)
        except OSError as error:
            raise UserError(f"The artifact {artifact.path} cannot be written to {folder}: {error.strerror}.") from error
        await blobs.delete(artifact.blob)


def _refuse_links(artifact: Artifact, folder: Path) -> None:
    """In the place of a link that stands where the file belongs the file is put."""
    here = folder
    for name in artifact.path.split("/")[:-1]:
        here = here / name
        if here.is_symlink():
            raise UserError(
                f"The artifact {artifact.path} is not written: {here} is a symbolic link, which may lead elsewhere.",
                hint="Move the link away, or name another folder with --artifacts.",
            )


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
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
