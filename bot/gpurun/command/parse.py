"""What the command lines of a comment mean."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from gpurun.command.arguments import PATH, REASON, SHA, USAGE, split_reason
from gpurun.command.grammar import BY_WORD, PLANNED, Argument, Entry, Given, render
from gpurun.command.lines import INVISIBLE, Line, command_lines
from gpurun.domain.command import Command, Help
from gpurun.domain.command_words import ARGUMENTS_PLANNED
from gpurun.domain.errors import CommandError
from gpurun.domain.folder import ENDS_A_SENTENCE, typed_folder

MAX_COMMANDS = 5
"""Lines of one comment that count."""

_JOB = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9_-])?")
_HEX = re.compile(r"[0-9a-fA-F]{7,}")
_PAIR = re.compile(r"[A-Za-z][A-Za-z_-]*=")
_ZERO_WIDTH = re.compile(f"[{INVISIBLE}]")
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


Parsed = Command | CommandError


def parse(body: str, *, prefix: str = "/gpurun") -> tuple[Parsed, ...]:
    """One item per command line, in order; nothing for a comment that is not ours.

    At most five lines count, and a repeated command counts once; one CommandError each says so. A line that starts
    with the prefix never ends in silence.
    """
    lines = command_lines(body, prefix)
    found: list[Parsed] = []
    for line in lines[:MAX_COMMANDS]:
        item = _parse_line(line, prefix)
        if isinstance(item, CommandError) or item not in found:
            found.append(item)
        else:
            found.append(CommandError(f"`{render(item, prefix=prefix)}` is written more than once; it counts once."))
    if len(lines) > MAX_COMMANDS:
        left = len(lines) - MAX_COMMANDS
        found.append(
            CommandError(
                f"A comment holds at most {MAX_COMMANDS} commands; the last {left} of this one "
                f"{'was' if left == 1 else 'were'} not read.",
                hint="Write them in another comment.",
            )
        )
    return tuple(found)


def suggest(word: str, jobs: Iterable[str]) -> str | None:
    """The job or command word that was probably meant."""
    names = [*jobs, *BY_WORD]
    close = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return close[0] if close else None


def _parse_line(line: Line, prefix: str) -> Parsed:  # noqa: PLR0911 - guards
    if line.problem:
        return CommandError(f"A line with `{prefix}` was not read: {line.problem}.")
    if _DIRECTION.search(line.rest):
        return CommandError(
            f"A line with `{prefix}` holds invisible characters that change the direction of text.",
            hint="Type it anew instead of pasting it.",
        )
    fault, reason = "", None
    text = _ZERO_WIDTH.sub("", line.rest.lstrip(INVISIBLE))
    try:
        text, reason = split_reason(text)
    except ValueError as error:
        fault = str(error)
    every = _words(text)
    pairs = [word for word in every if _PAIR.match(word)]
    words = [word for word in every if not _PAIR.match(word)]
    if not every and reason is None:
        return Help()
    entry, behind = _entry(words)
    known = (entry or BY_WORD["run"]).keys
    if fault and REASON in known:
        return _told(f"`{prefix} {words[0]}`: {fault}")
    given = _arguments(pairs, reason, known)
    if not words:
        return given if isinstance(given, CommandError) else _no_job(prefix)
    parsed = _parse_words(words, entry, behind, {} if isinstance(given, CommandError) else given, prefix)
    if isinstance(parsed, Help):
        return parsed
    if isinstance(given, CommandError) and (entry is not None or not isinstance(parsed, CommandError)):
        return given
    return parsed


def _entry(words: list[str]) -> tuple[Entry | None, list[str]]:
    """The command that the words begin with, and the words behind it; two of them may be one."""
    for length in (2, 1):
        entry = BY_WORD.get(" ".join(words[:length]).lower())
        if entry is not None and len(words) >= length:
            return entry, words[length:]
    return None, words


def _arguments(pairs: list[str], reason: str | None, known: tuple[str, ...]) -> Given | CommandError:
    """Every `key=value` may stand anywhere in the line. A folder is as `domain.folder` writes it."""
    given: dict[str, str] = {}
    if reason is not None and REASON not in known:
        return _unknown_argument(REASON, known)
    if reason is not None:
        given[REASON] = reason
    for pair in pairs:
        key, _, value = pair.partition("=")
        key = key.lower()
        if key not in known:
            return _unknown_argument(key, known)
        if key in given:
            hint = "Write one line for each folder." if key == PATH else ""
            return CommandError(f"`{key}=…` stands in the line twice.", hint=hint)
        read = _folder(pair, value) if key == PATH else value
        if isinstance(read, CommandError):
            return read
        given[key] = read
    return given


def _folder(pair: str, value: str) -> str | CommandError:
    try:
        return typed_folder(value)
    except ValueError as fault:
        why, _, hint = str(fault).partition(". ")
        if value not in ("", ".", "./", "/"):
            return CommandError(f"{_shown(pair)} {why}.", hint=f"{hint}." if hint else "")
        return CommandError(f"`{PATH}=` needs a folder.", hint=f"The top needs no `{PATH}=`.")


def _unknown_argument(key: str, known: tuple[str, ...]) -> CommandError:
    close = difflib.get_close_matches(key.lower(), [*known, *ARGUMENTS_PLANNED], n=1, cutoff=0.6)
    if close and close[0] in known:
        return CommandError(f"There is no argument {_shown(key + '=…')}. Did you mean `{close[0]}=…`?")
    if not known:
        return CommandError(f"This command has no arguments such as {_shown(key + '=…')}.")
    listed = " and ".join(filter(None, (", ".join(f"`{USAGE[one]}`" for one in known[:-1]), f"`{USAGE[known[-1]]}`")))
    if key in USAGE:
        return CommandError(f"{_shown(key + '=…')} is no argument of this command.", hint=f"It knows {listed}.")
    return CommandError(
        f"Arguments such as {_shown(key + '=…')} are not in this version.",
        hint=f"{listed} {'is' if len(known) == 1 else 'are'}.",
    )


def _parse_words(words: list[str], entry: Entry | None, behind: list[str], given: Given, prefix: str) -> Parsed:
    word, *rest = words
    if entry is not None:
        return _with_argument(entry, behind, given, prefix)
    if word.lower() in PLANNED:
        return CommandError(f"`{prefix} {word.lower()}` is not in this version.", hint=_try_help(prefix))
    meant = suggest(word, ()) if rest else None
    if meant is not None:
        return CommandError(f"{_shown(word)} is no command. Did you mean `{prefix} {meant}`?", hint=_try_help(prefix))
    return _bad_job(word, prefix) or _unexpected(rest, prefix) or _made(BY_WORD["run"], word, given, prefix)


def _words(rest: str) -> list[str]:
    """Split at spaces of every kind.

    Punctuation that ends the line ends the sentence: no job name and no folder ends with it.
    """
    return rest.strip().rstrip(ENDS_A_SENTENCE).split()


def _with_argument(entry: Entry, rest: list[str], given: Given, prefix: str) -> Parsed:
    if entry.argument is Argument.NONE:
        if entry.short:  # somebody who asks for help gets help, whatever stands behind the word
            return entry.make(None, {})
        if rest and SHA in entry.keys and _HEX.fullmatch(rest[0]):
            return CommandError(f"Write `{SHA}=` before the commit.")
        return _unexpected(rest, prefix) or _made(entry, None, given, prefix)
    if not rest:
        return _no_job(prefix, entry.word) if entry.argument is Argument.JOB else _made(entry, None, given, prefix)
    job, *more = rest
    return _bad_job(job, prefix) or _unexpected(more, prefix) or _made(entry, job, given, prefix)


def _made(entry: Entry, job: str | None, given: Given, prefix: str) -> Parsed:
    try:
        return entry.make(job, given)
    except ValueError as fault:
        typed = f"{job}" if entry.word == "run" else entry.word
        return _told(f"`{prefix} {typed}`: {fault}")


def _told(fault: str) -> CommandError:
    """A sentence, and often a second one that says what to write instead."""
    why, _, hint = fault.partition(". ")
    return CommandError(f"{why}.", hint=f"{hint}." if hint else "")


def _no_job(prefix: str, word: str = "run") -> CommandError:
    return CommandError(f"`{prefix} {word}` needs the name of a job.", hint=_try_help(prefix))


def _bad_job(word: str, prefix: str) -> CommandError | None:
    if _JOB.fullmatch(word):
        return None
    if "=" in word or word.startswith("-"):
        return _unexpected([word], prefix)
    if "," in word or "*" in word:
        return CommandError(
            f"{_shown(word)}: several jobs in one line are not in this version.", hint="Write one line for each job."
        )
    if word.startswith("<") and word.endswith(">"):
        return CommandError(f"Write the name of a job in place of {_shown(word)}.", hint=_try_help(prefix))
    bare = word.lower().strip("`'\"*_;,:!?()[]")
    if _JOB.fullmatch(bare):
        why = "Job names are lower case" if bare == word.lower() else "Write the name of the job, nothing around it"
        return CommandError(f"{why}: `{prefix} {bare}`.")
    return CommandError(
        f"{_shown(word)} cannot be the name of a job: lower-case letters, digits, `.`, `_` and `-`, at most 63.",
        hint=_try_help(prefix),
    )


def _unexpected(words: list[str], prefix: str) -> CommandError | None:
    if not words:
        return None
    word = words[0]
    if word.lower() == prefix:
        return CommandError(
            "Write each command on a line of its own. A line ends where Enter was pressed, nowhere else."
        )
    key, is_argument, _ = word.partition("=")
    if is_argument:
        return _unknown_argument(key, BY_WORD["run"].keys)
    if word.startswith("-"):
        return CommandError(f"Options such as {_shown(word)} are not in this version.")
    return CommandError(f"{_shown(word)} is not understood here.", hint="Write other text on another line.")


def _try_help(prefix: str) -> str:
    return f"`{prefix} help` shows what can be typed."


def _shown(word: str) -> str:
    """A word of the comment as inline code, short, without anything that could end the code."""
    clean = "".join(c if c.isprintable() and c not in "`|" else "·" for c in word)
    return f"`{clean[:40]}{'…' if len(clean) > 40 else ''}`"
