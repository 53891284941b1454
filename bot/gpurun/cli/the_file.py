"""Which `.gpurun.yml` of this disk is meant. The tab key waits for it, so nothing heavy is imported."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpurun.domain.errors import UserError
from gpurun.domain.folder import A_FOLDER, A_LINK, CONFIG_NAME, config_path, not_a_file, typed_folder


def named_folder(typed: str) -> str:
    """From the top of the checkout, as `--path` names it; empty for the top. Raises UserError."""
    if typed in (".", "./"):
        return ""
    try:
        return typed_folder(typed)
    except ValueError as fault:
        raise UserError(f"--path {typed} {fault}.", hint="It starts at the top: --path sub.") from fault


@dataclass(frozen=True, slots=True)
class FileOnDisk:
    """A `.gpurun.yml` as it is now."""

    folder: str
    """That holds it, from the top of the checkout; empty for the top."""
    file: Path
    """By a short name."""


def file_on_disk(typed: str | None, start: Path | None = None) -> FileOnDisk:
    """The file of that folder; None: the nearest one, from `start` up to the top, else the one at the top.

    `start`: the current folder when there is none. Without a checkout it is the top. Raises UserError for a folder
    that is none.
    """
    try:
        cwd = Path.cwd()
    except OSError:  # the folder was deleted under us
        return FileOnDisk("", Path(CONFIG_NAME))
    here = cwd if start is None else (cwd / start).resolve()
    top = top_above(here)
    folder = _nearest(here, top) if typed is None else named_folder(typed)
    return FileOnDisk(folder, Path(os.path.relpath(top / config_path(folder), cwd)))


def named_files(typed: Sequence[Path], path: str | None) -> tuple[Path, ...]:
    """Those that were typed, a folder as its `.gpurun.yml`; without any the one that `--path` or nothing means.

    Raises UserError.
    """
    if not typed:
        return (file_on_disk(path).file,)
    if path is not None:
        raise UserError("--path names a folder, and FILES name files. Use one of them.")
    return tuple(file / CONFIG_NAME if file.name != CONFIG_NAME and file.is_dir() else file for file in typed)


def top_of(start: Path | None) -> Path:
    """The top of the checkout that `start` is in, else of the current folder; itself where there is no checkout."""
    try:
        cwd = Path.cwd()
    except OSError:
        return Path()
    return top_above(cwd if start is None else (cwd / start).resolve())


def top_above(here: Path) -> Path:
    """The top of the checkout that has this absolute folder; the folder itself when none has."""
    # a file in worktrees; git itself is not asked, starting it takes longer
    return next((one for one in (here, *here.parents) if (one / ".git").exists()), here)


def _nearest(here: Path, top: Path) -> str:
    for folder in (here, *here.parents):
        file = folder / CONFIG_NAME
        if file.is_file() or file.is_symlink():  # a link is refused, wherever it leads
            return "" if folder == top else folder.relative_to(top).as_posix()
        if folder == top:
            break
    return ""


def read_config(file: Path) -> bytes:
    """Raises UserError, also for a link: git keeps where it leads to, not what is there."""
    try:
        if file.is_symlink():
            raise not_a_file(file, A_LINK)
        return file.read_bytes()
    except IsADirectoryError:
        raise not_a_file(file, A_FOLDER) from None
    except OSError as error:
        hint = _elsewhere() if isinstance(error, FileNotFoundError) else way_in(error, file)
        raise UserError(f"{file} cannot be read: {error.strerror}.", hint=hint) from error


def way_in(error: OSError, file: Path) -> str:
    """What to do about a file of the checkout that may not be read; empty for another fault."""
    named = shlex.quote(str(file))
    return (
        f"`chmod u+r {named}` lets you, if it is yours: `ls -l {named}`." if isinstance(error, PermissionError) else ""
    )


def _elsewhere() -> str:
    from gpurun.cli.other_files import hint_by_path  # only for who has no file

    return hint_by_path() or "`gpurun init` writes a first one."
