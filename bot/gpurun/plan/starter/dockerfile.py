"""What a Dockerfile says of the image it starts from, of what it installs and of its command."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpurun.domain.errors import PinNotFound
from gpurun.domain.ids import ImageRef, ImageTag

_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.+)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{?(\w+)(?::-([^}]*))?\}?")
_PYTHON_INSIDE = re.compile(
    r"python|pytorch|vllm|tensorflow|conda|mamba|miniforge|jupyter|huggingface|transformers|rapids|unsloth|sglang|triton"
    r"|nvcr\.io/nvidia/(?:nemo|modulus)"
)
_OLD_PYTHON = re.compile(r"python:(?:2|3\.[0-7])(?![0-9])")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_PIP_WORD = re.compile(
    r"(?:--?[a-z-]+(?:=\S+)?|https?://[\w./-]+|[A-Za-z0-9][\w.-]*(?:\[[\w,.-]+\])?(?:[=<>!~]=?[\w.*+,<>=!~-]+)?)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """Of the environment."""

    name: str
    value: str | None
    """None when the file alone does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dockerfile:
    """Foreign text; empty where it says nothing, or nothing that can be used."""

    path: str
    base: str = ""
    """The image behind its last stage, as it is written there, with the defaults of its arguments."""
    base_line: int = 0
    command: tuple[str, ...] = ()
    """ENTRYPOINT and CMD as words."""
    command_line: int = 0
    """Of the CMD, or of the ENTRYPOINT that does without one."""
    entrypoint_line: int = 0
    """0 when the command is of one instruction."""
    variables: tuple[Variable, ...] = ()
    """What ENV sets in the image that it builds, each name once."""
    variables_line: int = 0
    """Of the first."""
    apt: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    """Words after `pip install` that name packages, quoted for a shell."""
    ports: tuple[int, ...] = ()

    @property
    def has_python(self) -> bool:
        """One that runs gpurun's agent, as far as the name of the base tells."""
        return bool(_PYTHON_INSIDE.search(self.base)) and not _OLD_PYTHON.search(self.base)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What an ENTRYPOINT or a CMD says."""

    words: tuple[str, ...]
    """Empty for a shell's line that is more than one plain command."""
    shell: str
    """The line of the shell form; empty for the exec form."""
    line: int


@dataclass(slots=True)
class _Reading:
    arguments: dict[str, str] = field(default_factory=dict)
    stages: dict[str, Dockerfile] = field(default_factory=dict)
    orders: dict[str, tuple[_Order | None, _Order | None]] = field(default_factory=dict)
    """ENTRYPOINT and CMD of each stage."""
    stage: str = ""
    entrypoint: _Order | None = None
    cmd: _Order | None = None
    is_cmd_older: bool = False
    """It is of the stage that this one starts from."""


def read_dockerfile(path: str, text: str) -> Dockerfile:
    """Of any text."""
    found, reading = Dockerfile(path=path), _Reading()
    for line, instruction, rest in _instructions(text):
        match instruction:
            case "ARG":
                name, _, value = rest.partition("=")
                reading.arguments.setdefault(name.strip(), value.strip().strip("\"'"))
            case "FROM":
                found = _stage(path, rest, line, reading)
            case "RUN":
                found = replace(found, apt=(*found.apt, *_apt(rest)), pip=(*found.pip, *_pip(rest)))
            case "EXPOSE":
                ports = tuple(int(word) for word in re.findall(r"\b\d{2,5}\b", rest))
                found = replace(found, ports=(*found.ports, *ports))
            case "ENV":
                found = replace(
                    found,
                    variables=_with_variables(found.variables, rest, reading.arguments),
                    variables_line=found.variables_line or line,
                )
            case "CMD":
                reading.cmd, reading.is_cmd_older = _order(rest, line), False
                found = _with_command(found, reading)
            case "ENTRYPOINT":
                reading.entrypoint = _order(rest, line)
                reading.cmd = None if reading.is_cmd_older else reading.cmd
                found = _with_command(found, reading)
            case _:
                continue
        reading.stages[reading.stage] = found
        reading.orders[reading.stage] = reading.entrypoint, reading.cmd
    return found


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, name in capitals, rest; continued lines together."""
    start, so_far = 0, ""
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if line.lstrip().startswith("#") or (so_far and not line.strip()):  # Docker passes over both
            continue
        start = start if so_far else number
        stripped = line.rstrip()
        if stripped.endswith("\\"):
            so_far += stripped[:-1] + " "
            continue
        found = _INSTRUCTION.fullmatch(so_far + stripped)
        so_far = ""
        if found:
            yield start, found[1].upper(), found[2].strip()


def _stage(path: str, rest: str, line: int, reading: _Reading) -> Dockerfile:
    """A new stage: from an image, or from all that an earlier stage is."""
    words = [word for word in rest.split() if not word.startswith("--")]
    image = _expanded(words[0], reading.arguments) if words else ""
    reading.stage = words[2].lower() if len(words) == 3 and words[1].lower() == "as" else ""
    reading.entrypoint, reading.cmd = reading.orders.get(image.lower(), (None, None))
    reading.is_cmd_older = True
    if image.lower() in reading.stages:
        return reading.stages[image.lower()]
    return Dockerfile(path=path, base=image if _is_image(image) else "", base_line=line)


def _is_image(text: str) -> bool:
    try:
        (ImageRef if "@" in text else ImageTag)(text)
    except PinNotFound:
        return False
    return text != "scratch"


def _expanded(text: str, arguments: Mapping[str, str]) -> str:
    """Empty when an argument has no default."""
    unknown = False

    def value(found: re.Match[str]) -> str:
        nonlocal unknown
        said = arguments.get(found[1]) or found[2] or ""
        unknown = unknown or not said
        return said

    expanded = _VARIABLE.sub(value, text)
    return "" if unknown else expanded


def _with_command(found: Dockerfile, reading: _Reading) -> Dockerfile:
    """ENTRYPOINT and CMD, as Docker puts them together: an ENTRYPOINT in the shell form takes no CMD."""
    entrypoint, cmd = reading.entrypoint, reading.cmd
    if cmd is not None and (entrypoint is None or not (entrypoint.words or entrypoint.shell)):  # `[]` takes it away
        return replace(found, command=cmd.words, command_line=cmd.line, entrypoint_line=0)
    if entrypoint is None:
        return found
    if cmd is None or entrypoint.shell or not (cmd.words or cmd.shell):
        return replace(found, command=entrypoint.words, command_line=entrypoint.line, entrypoint_line=0)
    more = ("/bin/sh", "-c", cmd.shell) if cmd.shell else cmd.words
    words = (*entrypoint.words, *more)
    return replace(found, command=words, command_line=cmd.line, entrypoint_line=entrypoint.line)


def _order(rest: str, line: int) -> _Order:
    return _Order(words=_words(rest), shell="" if rest.startswith("[") else rest, line=line)


def _with_variables(before: tuple[Variable, ...], rest: str, arguments: Mapping[str, str]) -> tuple[Variable, ...]:
    """What it sets anew counts."""
    known = {**arguments, **{one.name: one.value for one in before if one.value is not None}}
    set_here = {name: Variable(name=name, value=_value(text, known)) for name, text in _assigned(rest)}
    return (*(one for one in before if one.name not in set_here), *set_here.values())


def _assigned(rest: str) -> Iterator[tuple[str, str]]:
    """Of `A=1 B="2"`, and of the old `A 1 2`."""
    try:
        words = shlex.split(rest)
    except ValueError:
        return
    pairs = [word.partition("=")[::2] for word in words if "=" in word]
    if "=" not in "".join(words[:1]):
        pairs = [(words[0], " ".join(words[1:]))] if words else []
    yield from ((name, text) for name, text in pairs if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII))


def _value(text: str, known: Mapping[str, str]) -> str | None:
    if "$" not in text:
        return text
    expanded = _expanded(text, known)
    return expanded if expanded and "$" not in expanded else None


def _words(rest: str) -> tuple[str, ...]:
    """Of the exec form, or of the shell form when it is one plain command; empty for anything else."""
    if rest.startswith("["):
        try:
            words = json.loads(rest)
        except (ValueError, RecursionError):
            return ()
        return tuple(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else ()
    try:
        words = shlex.split(rest)
    except ValueError:
        return ()
    return () if re.search(r"[|&;<>$`()]", rest) else tuple(words)


def _apt(rest: str) -> Iterator[str]:
    for command in re.split(r"&&|;|\|\|", rest):
        words = command.split()
        if words[:1] and words[0] in ("apt-get", "apt") and "install" in words:
            yield from (word for word in words[words.index("install") + 1 :] if _PACKAGE.fullmatch(word))


def pip_words(command: str) -> tuple[str, ...]:
    """What stands behind `pip install` in a command, quoted for a shell; empty when it is not only packages."""
    return tuple(_pip(command))


def _pip(rest: str) -> Iterator[str]:
    for command in re.split(r"&&|;|\|\|", rest):
        try:
            words = shlex.split(command)
        except ValueError:
            continue
        if "install" not in words or not any(re.fullmatch(r"(?:.*/)?pip3?", word) for word in words[:4]):
            continue
        given = words[words.index("install") + 1 :]
        if "-r" in given or "--requirement" in given or "-e" in given or not all(map(_PIP_WORD.fullmatch, given)):
            continue
        yield from (shlex.quote(word) for word in given if word != "--no-cache-dir")
