"""What a person sees of `gpurun lock`: one line for each name, and what it stands for now."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Sequence

from rich.text import Text

from gpurun.cli.lock import Place
from gpurun.cli.paper import Paper
from gpurun.domain.lock import LockedModel
from gpurun.plan.relock import Entry, Name, Row
from gpurun.report.text import size

SHORT_CHARS = 12


class LockScreen:
    """Lines on stdout, coloured on a terminal."""

    def __init__(self) -> None:
        # what the terminal's encoding lacks is shown as `?`
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
        self._console = Paper(highlight=False, soft_wrap=True)

    def asking(self, n_names: int) -> contextlib.AbstractContextManager[object]:
        """While registries and the hub are asked."""
        if not n_names or not self._console.is_terminal:
            return contextlib.nullcontext()
        return self._console.status(f"Looking up {n_names} name{'s' if n_names > 1 else ''}")

    def shows(self, place: Place, rows: Sequence[Row], *, failed: Collection[Name], written: bool) -> None:
        """What became of each name, and of the file."""
        width = max((len(str(row.name)) for row in rows), default=0)
        for row in rows:
            text, style = _what(row, failed=row.name in failed)
            self._console.print(Text.assemble(f"{row.name!s:<{width}}  ", (text, style)))
        self._console.print(Text(_sum(place, rows, failed=failed, written=written), "bold"))


def _what(row: Row, *, failed: bool) -> tuple[str, str]:
    """The line behind the name, and its style."""
    match row:
        case Row(before=None, after=None):
            return "not pinned", "bold red"
        case Row(before=None, after=entry) if entry is not None:
            return f"{_short(entry)}  new: {_more(entry)}", "green"
        case Row(before=entry, after=None) if entry is not None:
            return f"{_short(entry)}  dropped: no job needs it", "yellow"
        case Row(before=before, after=after) if before is not None and after is not None:
            if failed or not row.is_needed:
                return _kept(row, before)
            if before == after:
                return f"{_short(after)}  as of {after.locked_on}", "dim"
            return f"{_short(before)} → {_short(after)}  {_more(after)}", "green"
    raise AssertionError(row)


def _kept(row: Row, before: Entry) -> tuple[str, str]:
    """Of an entry that stays, because not all names could be looked up."""
    if not row.is_needed:
        return f"{_short(before)}  kept until all names are pinned: no job needs it", "yellow"
    return f"{_short(before)}  kept as of {before.locked_on}: see below", "bold red"


def _short(entry: Entry) -> str:
    """Enough to recognise it by."""
    if isinstance(entry, LockedModel):
        return entry.revision[:SHORT_CHARS]
    return entry.pin.digest[: len("sha256:") + SHORT_CHARS]


def _more(entry: Entry) -> str:
    if isinstance(entry, LockedModel):
        n_files = len(entry.files)
        return f"{n_files} file{'s' if n_files != 1 else ''}, {size(sum(file.size for file in entry.files))}"
    return ", ".join(name for name, _ in entry.pin.platforms) or "the registry names no platform"


def _sum(place: Place, rows: Sequence[Row], *, failed: Collection[Name], written: bool) -> str:
    pins = _pins(sum(row.after is not None for row in rows))
    if written:
        pins += ", written; commit it beside the file"
    else:
        pins += ", as it was" if place.lock_file.exists() else ", not written"
    if failed:
        wanted = sum(row.is_needed for row in rows)
        anew = " anew" if all(row.before is not None for row in rows if row.name in failed) else ""
        return f"{len(failed)} of {wanted} names could not be pinned{anew}. {place.lock_file}: {pins}."
    if not rows:
        return f"Nothing to lock: {place.file} pins everything itself."
    return f"{place.lock_file}: {pins}."


def _pins(number: int) -> str:
    return f"{number} pin{'s' if number != 1 else ''}"
