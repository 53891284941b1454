"""A guess as text: the file that `gpurun init` writes, and the few lines that a pull request shows."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator

from gpurun.domain.project import REFERENCE_URL, SCHEMA_URL
from gpurun.plan.starter.guess import Guess
from gpurun.plan.starter.models import FoundModel, is_pinned

_WIDTH = 116
_PLAIN = re.compile(r"[A-Za-z0-9./_][^\n]*")
_NOT_PLAIN = re.compile(r": | #|:$|\s$|\A(?:true|false|null|yes|no|on|off|~)\Z", re.IGNORECASE)
_SHOWN = 10
MAX_DURATION = "30m"
_FILL = "names only; `.env` at the top holds the values for `gpurun run`, `gpurun secret set` keeps them on the server."


def whole_file(guess: Guess) -> str:
    """With a comment above each line that says where it comes from."""
    lines = [
        f"# yaml-language-server: $schema={SCHEMA_URL}",
        "# Written by `gpurun init`. Read it, correct it, then `gpurun validate` and `gpurun lock`.",
        f"# All keys: {REFERENCE_URL}",
        "",
        "version: 1",
        "jobs:",
        "  smoke:",
        *(f"    {line}" if line else "" for line in _job(guess)),
    ]
    return "\n".join(lines) + "\n"


def few_lines(guess: Guess, job: str) -> str:
    """Six lines, and one more for each of a folder, models, variables and a GPU. Without comments."""
    rows = [f"image: {scalar(guess.image.value)}"]
    if guess.folder:
        rows.append(f"workdir: {scalar(guess.folder)}")
    if guess.models:
        rows.append(f"models: [{', '.join(_model(model) for model in guess.models)}]")
    if guess.setup:
        rows.append(f"setup: {scalar(' && '.join(guess.setup))}")
    rows.append(f"run: {scalar(guess.command.line)}")
    if guess.env.values:
        rows.append(f"env: {{{', '.join(_entry(name, value) for name, value in guess.env.values.items())}}}")
    if guess.gpu.value:
        rows.append(f"resources: {guess.gpu.value}")
    return "\n".join(["version: 1", "jobs:", f"  {key(job)}:", *(f"    {row}" for row in rows)])


def rows(guess: Guess) -> tuple[tuple[str, str], ...]:
    """What a person is told of it: a key of the file and its value, each in one line."""
    run = f"{guess.command.text.splitlines()[0]} …" if guess.command.short else guess.command.text
    found = [
        ("workdir", guess.folder),
        ("image", guess.image.value),
        *(("setup", line) for line in guess.setup),
        ("run", run),
        *(("models", f"{model.id} at {model.revision or 'main'}  ({model.where})") for model in guess.models),
        *(("env", f"{name}={value}") for name, value in guess.env.values.items()),
        ("secrets", ", ".join(one.name for one in guess.secrets)),
        ("resources", guess.gpu.value),
    ]
    return tuple((name, _plain(value)) for name, value in found if value)


def doubts(guess: Guess) -> tuple[str, ...]:
    """What a person should look at, in sentences of one line."""
    told = [f"image: {one}" for one in guess.image.because[1:]]
    told += [f"run: {one}" for one in guess.command.because]
    told += [f"env: {one}" for one in guess.env.because]
    if guess.secrets:
        told.append(f"secrets: {_FILL} Delete those that the job does without.")
    if guess.other_folders:
        told.append(f"workdir: there are other projects. {_others(guess)}")
    if guess.other_models:
        others = ", ".join(f"{model.id} ({model.where})" for model in guess.other_models[:_SHOWN])
        told.append(f"models: those that the command does not seem to load stand in comments: {others}.")
    told += [f"models: {one.where}{_lost(one)} instead of main." for one in guess.models if one.lost_revision]
    told += [f"models: {one.where} {one.call}: {one.why}." for one in guess.untold[:_SHOWN]]
    return tuple(map(_plain, told))


def _job(guess: Guess) -> Iterator[str]:
    if guess.folder:
        if guess.other_folders:
            yield from _comment((f"The first of several projects. {_others(guess)}",))
        yield f"workdir: {scalar(guess.folder)}"
    yield from _comment((*guess.image.because, "`gpurun lock` pins the tag to a digest." if _is_tag(guess) else ""))
    yield f"image: {scalar(guess.image.value)}"
    if guess.setup:
        yield from _comment(guess.setup_because)
        yield from _shell("setup", _joined(guess.setup))
    yield from _comment(guess.command.because)
    yield from _shell("run", guess.command.text)
    yield from _comment(guess.env.because)
    if guess.env.values:
        yield "env:"
        yield from (f"  {_entry(name, value)}" for name, value in guess.env.values.items())
    yield from _secrets(guess)
    yield from _models(guess)
    if guess.gpu.value:
        yield from _comment(guess.gpu.because)
        yield f"resources: {guess.gpu.value}"
    yield f"limits: {{max_duration: {MAX_DURATION}}}"
    if guess.artifacts:
        yield f"artifacts: [{json.dumps(guess.artifacts)}]"


def _others(guess: Guess) -> str:
    """What to type for them."""
    first, *more = guess.other_folders[:_SHOWN]
    besides = f" (also {', '.join(more)})" if more else ""
    return f"`gpurun init --path {shlex.quote(first)}` writes a file there{besides}."


def _is_tag(guess: Guess) -> bool:
    return "@" not in guess.image.value


def _joined(commands: tuple[str, ...]) -> str:
    """Each must work for the next to be tried."""
    line = " && ".join(commands)
    return line if len(line) < 100 else " &&\n".join(commands)


def _shell(name: str, text: str) -> Iterator[str]:
    if "\n" not in text:
        yield f"{name}: {scalar(text)}"
        return
    yield f"{name}: |"
    yield from (f"  {line}" for line in text.split("\n"))


def _models(guess: Guess) -> Iterator[str]:
    if guess.models:
        moving = not all(map(is_pinned, guess.models))
        yield from _comment(("`gpurun lock` pins a branch to a commit." if moving else "",))
        yield "models:"
        for model in guess.models:
            yield f"  - {_model(model)}  # {_plain(model.where)}{_lost(model)}"
    if guess.other_models:
        yield from _comment(("Named elsewhere in the code; add what the command loads:",))
        yield from (
            f"#   - {_model(model)}  # {_plain(model.where)}{_lost(model)}" for model in guess.other_models[:_SHOWN]
        )
        yield from _more(len(guess.other_models))
    if guess.untold:
        yield from _comment(
            ("Not written here. A job sees only the models that are listed, so add what the command loads:",)
        )
        yield from (f"#   {_plain(one.where)} {_plain(one.call)}: {one.why}" for one in guess.untold[:_SHOWN])
        yield from _more(len(guess.untold))


def _secrets(guess: Guess) -> Iterator[str]:
    if not guess.secrets:
        return
    named = ", ".join(f"{one.name} in `{one.where}`" for one in guess.secrets)
    yield from _comment((f"{named}: {_FILL} Delete those that the job does without.",))
    yield f"secrets: [{', '.join(one.name for one in guess.secrets)}]"


def _more(count: int) -> Iterator[str]:
    if count > _SHOWN:
        yield f"#   and {count - _SHOWN} more"


def _model(model: FoundModel) -> str:
    return f"{{id: {quoted(model.id)}, revision: {quoted(model.revision or 'main')}}}"


def _entry(name: str, value: str) -> str:
    """Of `env`, on a line of its own or inside `{…}`."""
    return f"{json.dumps(name) if _NOT_PLAIN.search(name) else name}: {quoted(value)}"


def _lost(model: FoundModel) -> str:
    """Why another revision stands here than there."""
    return f" asks for revision={_plain(model.lost_revision)}; write it here" if model.lost_revision else ""


def _comment(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in filter(None, sentences):
        yield from (f"# {line}" for line in textwrap.wrap(_plain(sentence), _WIDTH - 6, break_on_hyphens=False))


def _plain(text: str) -> str:
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def key(text: str) -> str:
    """As the key of a mapping."""
    return text if re.fullmatch(r"[a-z][a-z0-9_-]*", text) and not _NOT_PLAIN.search(text) else json.dumps(text)


def quoted(text: str) -> str:
    """As a value inside `{…}`; quoted when it could be read as anything but text."""
    simple = re.fullmatch(r"[A-Za-z][A-Za-z0-9._/-]*", text) and not _NOT_PLAIN.search(text)
    return text if simple else json.dumps(text, ensure_ascii=False)


def scalar(text: str) -> str:
    """As the value of a key on one line, plain where that says the same."""
    if _PLAIN.fullmatch(text) and not _NOT_PLAIN.search(text):
        return text
    return json.dumps(text, ensure_ascii=False)
