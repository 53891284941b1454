"""Bytes of `.gpurun.yml` become text that a YAML reader and a person see alike."""

from __future__ import annotations

import re

from gpurun.domain.errors import ConfigError

MAX_BYTES = 64 * 1024

_BAD = (
    # control characters, direction marks, zero-width and line separators, byte order marks, lone surrogates
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)
_MERGE_MARK = re.compile(r"^(?:<{7}|\|{7}|={7}|>{7})(?= |\r?$)", re.MULTILINE)
_MAY_BREAK = {ord("\n"): None, ord("\t"): None}
"""What is neither printable nor bad. Most files hold nothing else, and need no pattern."""
_DIRECTION = "[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"


def readable(file: str | bytes) -> str:
    r"""Text with `\n` line ends, without the byte order mark. Raises ConfigError with line and column."""
    text = _decoded(file)
    text = _with_newlines(text.removeprefix("\ufeff"))
    bad = None if text.isascii() and text.translate(_MAY_BREAK).isprintable() else re.search(_BAD, text)
    if bad is not None:
        line, column = position(text, bad.start())
        if "\udc80" <= bad.group() <= "\udcff":  # a byte that somebody decoded with `surrogateescape`
            raise _not_utf8(ord(bad.group()) - 0xDC00, line, column)
        raise ConfigError(
            f"the character U+{ord(bad.group()):04X} ({_kind(bad.group())}) is not allowed in this file",
            line=line,
            column=column,
            hint="Delete it; it is invisible in most editors.",
        )
    return text


def position(text: str, at: int) -> tuple[int, int]:
    """Line and column of the character at `at`, both from 1."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def merge_mark(text: str) -> int:
    """The line of the first mark that an unfinished merge left; 0 without any."""
    mark = _MERGE_MARK.search(text)
    return text.count("\n", 0, mark.start()) + 1 if mark is not None else 0


def quote(text: str, line: int, column: int) -> str:
    """The line with a caret under the column; a long one is cut around it. Empty when there is no such line."""
    lines = text.split("\n", max(line, 0))  # not all of them: fifty faults are quoted
    if not 1 <= line <= len(lines):
        return ""
    start = max(0, column - 80)
    shown = "".join(c if c.isprintable() else " " if c == "\t" else "·" for c in lines[line - 1][start : start + 120])
    caret = " " * (min(column - start, len(shown) + 1) - 1) + "^"
    gutter = f"{line} | "
    return f"{gutter}{shown}\n{' ' * (len(gutter) - 2)}| {caret}"


def _with_newlines(text: str) -> str:
    """Lines are counted at newlines, whatever ends them in the file."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decoded(file: str | bytes) -> str:
    if isinstance(file, str):
        _check_size(len(file.encode("utf-8", "surrogatepass")))
        return file
    _check_size(len(file))
    try:
        return file.decode("utf-8")
    except UnicodeDecodeError as exc:
        before = _with_newlines(file[: exc.start].decode("utf-8"))
        line, column = position(before, len(before))
        raise _not_utf8(file[exc.start], line, column) from exc


def _not_utf8(byte: int, line: int, column: int) -> ConfigError:
    if byte in (0xFE, 0xFF) and (line, column) == (1, 1):
        return ConfigError("the file is saved as UTF-16", hint="Save it as UTF-8.")
    return ConfigError(
        f"the byte 0x{byte:02x} is not UTF-8; the file may be saved as Latin-1",
        line=line,
        column=column,
        hint="Save it as UTF-8.",
    )


def _check_size(n_bytes: int) -> None:
    if n_bytes > MAX_BYTES:
        raise ConfigError(
            f"the file has {n_bytes:,} bytes, more than the {MAX_BYTES:,} that are read",
            hint="Move long scripts into the repository and call them from `run`.",
        )


def _kind(character: str) -> str:
    if re.match(_DIRECTION, character):
        return "it changes the direction of text"
    if character == "\x00":
        return "NUL"
    return "an invisible space or line break" if ord(character) > 0x9F else "a control character"
