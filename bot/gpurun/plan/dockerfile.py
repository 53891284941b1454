"""A Dockerfile, as far as it decides which bytes from elsewhere come into an image. Pure.

It is read as Docker's own builder reads it: comments, continued lines, `# escape=`, stages, and `ARG` before the first
`FROM`. What brings in bytes that nobody pinned, and what that builder does not know, is refused with its line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

from gpurun.domain.build import MAX_DOCKERFILE_BYTES
from gpurun.domain.dockerfile_lines import args_in, lines_of, split_word
from gpurun.domain.errors import ConfigError, PinNotFound
from gpurun.domain.ids import ImageRef, ImageTag
from gpurun.domain.quantity import quoted

SCRATCH = "scratch"
"""The image without anything in it."""

_WORDS = frozenset(
    {
        *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER"),
        *("ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
    }
)
_FLAGS = {"FROM": {"platform"}, "COPY": {"from", "chown"}, "ADD": {"chown"}}
"""That the builder knows, beside those of HEALTHCHECK."""
_FLAG = re.compile(r"""--([a-z][a-z-]*)(?:=([^\s"'`\\\x7f-\U0010ffff]*))?(?:[ \t]+|$)""")
"""Quotes and escapes in a flag are taken away by the builder; nobody needs them."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_HEREDOC = re.compile(r"""(?:^|\s)\d*<<-?(['"]?)[A-Za-z_][A-Za-z0-9_]*\1(?=\s|$)""")
_NOT_A_PATH = re.compile(r"""://|[$"'`\\]|^git@|^github\.com/""", re.IGNORECASE)
"""An address, or what the builder may make one of: it fills in variables, and takes quotes and escapes away."""
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::([-+])([^}]*))?\})", re.ASCII)

Image = ImageRef | ImageTag


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, whole."""

    word: str
    """In capitals."""
    flags: Mapping[str, str]
    rest: str
    """Behind word and flags."""
    line: int
    last_line: int

    @property
    def shown(self) -> str:
        """For people, in one line."""
        text = " ".join(f"{self.word} {self.rest}".split())
        return text if len(text) <= 80 else f"{text[:77]}..."


@dataclass(frozen=True, slots=True)
class Named:
    """An image, or an earlier stage, that an instruction names."""

    written: str
    """With variables put in."""
    image: Image | None
    """None: a stage, or nothing at all."""


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """Up to the stage that is built."""

    file: str
    text: str
    steps: tuple[Instruction, ...]
    """What the builder counts as steps."""
    named: Mapping[int, Named] = field(default_factory=dict)
    """By the number of the step, from 0."""
    syntax: int = 0
    """The line of `# syntax=`; 0 when there is none."""

    @property
    def lines(self) -> Mapping[Image, int]:
        """Of each image the first line that names it."""
        found: dict[Image, int] = {}
        for number, one in self.named.items():
            if one.image is not None:
                found.setdefault(one.image, self.steps[number].line)
        return found

    @property
    def images(self) -> tuple[Image, ...]:
        """Each once, in the order of the file."""
        return tuple(dict.fromkeys(one.image for one in self.named.values() if one.image is not None))

    def step(self, number: int) -> Instruction | None:
        """The instruction of a step, counted from 1 as the builder does."""
        return self.steps[number - 1] if 0 < number <= len(self.steps) else None

    def pinned(self, digests: Mapping[ImageTag, ImageRef]) -> str:
        """The text with each image by digest; no line moves."""
        lines = self.text.split("\n")
        for number, one in self.named.items():
            step = self.steps[number]
            image = one.image if not isinstance(one.image, ImageTag) else digests[one.image]
            wanted = one.written if image is None else image.without_tag
            lines[step.line - 1 : step.last_line] = [_with(step, wanted), *[""] * (step.last_line - step.line)]
        return "\n".join(lines)


def read_dockerfile(
    data: str | bytes, *, file: str, target: str = "", args: Mapping[str, str], predefined: Mapping[str, str]
) -> Dockerfile:
    """What the file means up to the stage `target`. `file`: its path, for people. `args` are those of `build`.

    Raises: ConfigError with the file and the line.
    """
    return _read(
        dockerfile_text(data, file), file, target, tuple(sorted(args.items())), tuple(sorted(predefined.items()))
    )


@lru_cache(maxsize=64)
def _read(
    text: str, file: str, target: str, args: tuple[tuple[str, str], ...], predefined: tuple[tuple[str, str], ...]
) -> Dockerfile:
    """Every planning step needs it again."""
    reader = _Reader(file, dict(args), dict(predefined))
    reader.read(text)
    return reader.up_to(target, text)


def dockerfile_text(data: str | bytes, file: str) -> str:
    r"""With `\n` line ends. Raises: ConfigError for what is too large, or not UTF-8."""
    if len(data) > MAX_DOCKERFILE_BYTES:
        raise ConfigError(
            f"the Dockerfile has more than the {MAX_DOCKERFILE_BYTES // 1024} KiB that are read",
            file=file,
            hint="Move long scripts into files of the repository and `COPY` them.",
        )
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = bytes(exc.object[: exc.start]).count(b"\n") + 1
        raise ConfigError("the Dockerfile is not UTF-8", file=file, line=line, hint="Save it as UTF-8.") from exc
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


class _Reader:
    def __init__(self, file: str, args: dict[str, str], predefined: dict[str, str]) -> None:
        self.file = file
        self.args = args
        self.values = predefined
        """Of variables that `FROM` may use."""
        self.steps: list[Instruction] = []
        self.named: dict[int, Named] = {}
        self.stages: list[str] = []
        """Names in lower case; empty for those without."""
        self.first_steps: list[int] = []
        """Of each stage."""
        self.syntax = 0

    def read(self, text: str) -> None:
        self._require_printable(text)
        for line in lines_of(text):
            step = self._parsed(line.text, line.first, line.last)
            if line.doubtful:
                self._refuse(step, f"engines do not agree how to read {line.doubtful}", "Write the line without it.")
            if not line.directive:
                self._take(step)
            elif line.directive == "syntax":
                self.syntax = line.first
        if not self.stages:
            raise ConfigError("there is no `FROM`", file=self.file, hint="Write `FROM name:tag` in the first line.")

    def up_to(self, target: str, text: str) -> Dockerfile:
        """Without the stages behind the one that is built."""
        if not target:
            return Dockerfile(self.file, text, tuple(self.steps), self.named, self.syntax)
        names = [*self.stages]
        at = names.index(target.lower()) if target.lower() in names else -1
        if at < 0 and target.isdecimal() and int(target) < len(names):
            at = int(target)
        if at < 0:
            known = ", ".join(name for name in names if name) or "none has a name"
            raise ConfigError(
                f"there is no stage {quoted(target)}", file=self.file, hint=f"`target` is one of the stages: {known}."
            )
        end = self.first_steps[at + 1] if at + 1 < len(self.first_steps) else len(self.steps)
        kept = {number: one for number, one in self.named.items() if number < end}
        last_line = self.steps[end - 1].last_line
        text = "\n".join(text.split("\n")[:last_line]) + "\n"
        return Dockerfile(self.file, text, tuple(self.steps[:end]), kept, self.syntax)

    def _require_printable(self, text: str) -> None:
        found = _CONTROL.search(text)
        if found is not None:
            raise ConfigError(
                f"there is a control character, {found[0]!a}",
                file=self.file,
                line=text.count("\n", 0, found.start()) + 1,
                hint="Delete it: engines do not agree how to read it.",
            )

    def _parsed(self, text: str, line: int, last_line: int) -> Instruction:
        word, rest = split_word(text)
        flags: dict[str, str] = {}
        while word != "ONBUILD" and (match := _FLAG.match(rest)):
            flags[match[1]] = match[2] or ""
            rest = rest[match.end() :]
        return Instruction(word, flags, rest, line, last_line)

    def _take(self, step: Instruction) -> None:
        if step.word not in _WORDS:
            self._refuse(step, f"{quoted(step.word[:40])} is no instruction", "Is the line before it meant to go on?")
        if step.word != "FROM" and not self.stages and step.word != "ARG":
            self._refuse(step, f"`{step.word}` stands before the first `FROM`", "Only `ARG` may.")
        self.steps.append(step)
        self._require_known(step)
        match step.word:
            case "FROM":
                self._from(step)
            case "ARG" if not self.stages:
                self._arg(step)
            case "COPY" | "ADD":
                self._copy(step)
            case "ONBUILD":
                inner = self._parsed(step.rest, step.line, step.last_line)
                if inner.word not in _WORDS:
                    self._refuse(step, f"{quoted(inner.word[:40])} is no instruction", "Write one behind `ONBUILD`.")
                self._require_known(inner)
                if inner.word in {"COPY", "ADD"}:
                    self._sources_are_here(inner)
                if "from" in inner.flags:
                    self._refuse(step, "`ONBUILD COPY --from` is not built here", "Write it without `ONBUILD`.")

    def _require_known(self, step: Instruction) -> None:
        if step.rest.startswith("--"):
            flag = step.rest.split()[0][:40]
            self._refuse(
                step,
                f"`{step.word} {flag}` is no flag that can be read",
                "Write flags as `--name=value`, without quotes.",
            )
        if step.word in {"RUN", "COPY", "ADD"} and _HEREDOC.search(step.rest):
            self._refuse(
                step,
                f"`{step.word} <<…` needs BuildKit, which builds here do not have",
                "Write one line with `&& \\`, or `COPY` a script of the repository and run it.",
            )
        if step.word == "HEALTHCHECK":
            return
        for flag in step.flags:
            if flag not in _FLAGS.get(step.word, ()):
                self._refuse(
                    step, f"`{step.word} --{flag}` needs BuildKit, which builds here do not have", _instead(step, flag)
                )

    def _from(self, step: Instruction) -> None:
        words = step.rest.split()
        if len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "AS"):
            self._refuse(step, "`FROM` takes an image, and a name behind `AS`", "Write `FROM name:tag AS name`.")
        self._require_own_platform(step)
        written = self._filled(words[0], step)
        is_stage = written.lower() in {name for name in self.stages if name}
        image = None if is_stage or written == SCRATCH else self._image(written, step)
        self.first_steps.append(len(self.steps) - 1)
        self.named[len(self.steps) - 1] = Named(written, image)
        self.stages.append(words[2].lower() if len(words) == 3 else "")

    def _require_own_platform(self, step: Instruction) -> None:
        wanted = step.flags.get("platform")
        own = self.values.get("TARGETPLATFORM", "")
        if wanted and own and self._filled(wanted, step) != own:
            self._refuse(
                step,
                f"`FROM --platform={wanted}` is not the machine's own platform, {own}",
                "Builds for another platform are not in this version. Delete the flag.",
            )

    def _arg(self, step: Instruction) -> None:
        for name, value in args_in(step.rest):
            if name in self.args:
                self.values[name] = self.args[name]
            elif value:
                self.values[name] = self._filled(value.strip("\"'"), step)

    def _copy(self, step: Instruction) -> None:
        self._sources_are_here(step)
        written = step.flags.get("from")
        if written is None:
            return
        if "$" in written:
            self._refuse(step, f"`COPY --from={written}` has a variable", "Write the stage or the image itself.")
        is_stage = written.lower() in self.stages[:-1] or (written.isdecimal() and int(written) < len(self.stages) - 1)
        if written.isdecimal() and not is_stage:
            self._refuse(step, f"there is no stage {written[:40]} before this line", self._stages_before())
        image = None if is_stage else self._image(written, step)
        self.named[len(self.steps) - 1] = Named(written, image)

    def _stages_before(self) -> str:
        before = [f"{number} ({name})" if name else str(number) for number, name in enumerate(self.stages[:-1])]
        return f"`--from` takes one of these: {', '.join(before)}." if before else "This is the first stage."

    def _sources_are_here(self, step: Instruction) -> None:
        """They come from the commit."""
        if step.word != "ADD":
            return
        for source in _sources(step.rest):
            if _NOT_A_PATH.search(source):
                self._refuse(
                    step,
                    f"`ADD {source[:60]}` may bring in what nobody pinned",
                    "Put the file into the repository and write its path, without variables, quotes and escapes; or "
                    "fetch it in `RUN` and compare it: `echo '<sha256>  <file>' | sha256sum -c`.",
                )

    def _image(self, written: str, step: Instruction) -> Image:
        try:
            return ImageRef(written) if "@" in written else ImageTag(written)
        except PinNotFound:
            self._refuse(
                step, f"{quoted(written)} is neither an image nor an earlier stage", "Write name:tag, or name@sha256:…"
            )

    def _filled(self, text: str, step: Instruction) -> str:
        """With the values of variables."""

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            found = self.values.get(name, "")
            if match[3] == "-":
                return found or match[4]
            if match[3] == "+":
                return match[4] if found else ""
            if not found:
                self._refuse(
                    step,
                    f"`{step.shown}` needs a value for {name}",
                    f"Write `ARG {name}=<value>` before the first `FROM`, or `args: {{{name}: …}}` below `build`.",
                )
            return found

        filled = _VARIABLE.sub(value, text)
        if "$" in filled:
            self._refuse(step, f"`{step.shown}` has a variable that cannot be read", "Write the image itself.")
        return filled

    def _refuse(self, step: Instruction, message: str, hint: str) -> NoReturn:
        raise ConfigError(message, file=self.file, line=step.line, hint=hint)


def _instead(step: Instruction, flag: str) -> str:
    match step.word, flag:
        case "RUN", "mount" if "type=cache" in step.flags[flag]:
            return f"Delete `--mount={step.flags[flag]}`: steps that did not change are not run again anyway."
        case _, "chmod":
            return "Delete it, and write `RUN chmod` below; git keeps whether a file can be executed."
        case _, "link":
            return "Delete it: the image is the same."
        case _:
            return f"Write the step without `--{flag}`."


def _sources(rest: str) -> list[str]:
    """All words but the last, of both forms of ADD."""
    words: list[str] = rest.split()
    if rest.startswith("["):
        with suppress(ValueError):  # the builder takes it for the other form as well
            words = [str(word) for word in json.loads(rest)]
    return words[:-1] if len(words) > 1 else words


def _with(step: Instruction, named: str) -> str:
    """The instruction in one line, with that image or stage."""
    if step.word == "FROM":
        return " ".join(["FROM", named, *step.rest.split()[1:]])
    flags = {**step.flags, "from": named}
    return " ".join([step.word, *(f"--{flag}={value}" for flag, value in flags.items()), step.rest])
