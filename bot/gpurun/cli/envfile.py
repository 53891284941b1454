"""Values of secrets for `gpurun run`, from a file of `NAME=value` lines as dotenv has them, without interpolation."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dotenv.parser import Binding, parse_stream
from pydantic import SecretStr

from gpurun.domain.errors import SecretRefused, UserError
from gpurun.domain.secret import require_settable
from gpurun.telemetry.forms import require_tellable

MAX_BYTES = 1024 * 1024

_LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the job gets of the file."""

    values: Mapping[str, SecretStr]
    ignored: int
    """Names of the file that the job does not list."""


def given_secrets(
    job: str, names: Sequence[str], file: Path, *, must_exist: bool, optional: Collection[str] = ()
) -> Given:
    """The values of `names`, and of `optional` where they are there, of the file alone.

    Raises UserError, SecretRefused, without a value in the message.
    """
    if not names and not optional and not must_exist:
        return Given(values={}, ignored=0)
    found = _values(file, must_exist=must_exist)
    lacking = [name for name in names if not found.get(name)]
    if lacking:
        raise UserError(
            f"The job {job} names under `secrets` what is not in {file}: {', '.join(lacking)}.",
            hint=f"Write {lacking[0]}=… there, or name another file with --env-file.",
        )
    wanted = dict.fromkeys((*names, *(name for name in optional if found.get(name))))
    values = {name: SecretStr(found[name]) for name in wanted}
    for name, value in values.items():
        try:
            require_settable(value)
            require_tellable((value,))
        except SecretRefused as refused:
            raise SecretRefused(f"{name} in {file}: {refused.message}", hint=refused.hint) from None
    return Given(values=values, ignored=len(found.keys() - set(names) - set(optional)))


def ignored_note(given: Given, job: str) -> str:
    """One sentence; empty when nothing was ignored."""
    if not given.ignored:
        return ""
    names = "1 name of the file is" if given.ignored == 1 else f"{given.ignored} names of the file are"
    return f"Secrets: {names} ignored, because the job {job} does not list them under `secrets`."


def _values(file: Path, *, must_exist: bool) -> dict[str, str]:
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        if must_exist:
            raise UserError(f"There is no file {file}.") from error
        return {}
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_BYTES:
        raise UserError(f"{file} has more than {MAX_BYTES // 1024} KiB, so it holds no secrets alone.")
    found: dict[str, str] = {}
    for binding in parse_stream(io.StringIO(data.decode("utf-8", "surrogateescape"))):
        if binding.error:
            raise UserError(f"{file} cannot be understood in line {_line(binding)}.", hint="Write NAME=value.")
        if binding.key is None:
            continue
        if binding.value is None:  # as the second line of a key without quotes, whose first one alone would be given
            raise UserError(
                f"{file} has no `=` in line {_line(binding)}.",
                hint="Write NAME=value, and quotes around a value of several lines.",
            )
        found[binding.key] = binding.value
    return found


def _line(binding: Binding) -> int:
    """Of its first word: what dotenv tells may be an empty line above it."""
    text = binding.original.string
    above = text[: len(text) - len(text.lstrip())]
    return binding.original.line + len(_LINE_END.findall(above))
