"""A command of the repository that ends by itself and says whether something works."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from gpurun.plan.placeholder import PLACEHOLDER
from gpurun.plan.starter.dockerfile import Dockerfile
from gpurun.plan.starter.mains import files_of_module, mains
from gpurun.plan.starter.packages import Packages
from gpurun.plan.starter.python_source import dotted, imports, parsed

_TEST_FILE = re.compile(r"(?:^|/)(?:test_[^/]+|[^/]+_test)\.py$")
_SCRIPTS = ("smoke", "smoke_test", "demo", "app", "main", "inference", "infer", "predict", "generate", "run", "server",
            "serve", "api", "example", "train")  # fmt: skip
"""In the order in which they are tried."""
_PLACES = ("", "scripts/", "src/", "app/", "demo/", "examples/")
_PLAIN = re.compile(r"[\w@%+=:,./\[\]{} \-]*")
_PORT = re.compile(r"--(?:port|server\.port|server-port)(?:=|\s+)(\d{2,5})\b|0\.0\.0\.0:(\d{2,5})\b")
_SERVES = re.compile(r"\b(?:uvicorn|gunicorn|hypercorn|streamlit run|vllm serve|api_server|flask run|http\.server)\b")
_SECRET = re.compile(
    r"""(?ix) (?:auth|api|access|hf|hub)[-_]?token | \btoken[=:] | --token\b | secret | passw | api[-_]?key | credential
    | ://[^/\s]*@ | \b(?=\w*\d)(?=\w*[a-z])\w{24,}\b"""
)
_PORTS = {"gradio": 7860, "streamlit": 8501, "fastapi": 8000, "flask": 5000}
_HELP = " --help"
_SHOWN = 5
_LAUNCHES = frozenset({"launch", "run", "serve", "serve_forever", "run_app"})
VLLM_ENTRYPOINT = ("python3", "-m", "vllm.entrypoints.openai.api_server")
"""Of the image vllm/vllm-openai. Source: its Dockerfile in github.com/vllm-project/vllm, read 2026-12."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What `run` says."""

    text: str
    """Lines for a shell."""
    because: tuple[str, ...]
    """Sentences: where it comes from, and what a person should know."""
    short: str = ""
    """The same in one line, when `text` has several."""
    installs: str = ""
    """What `setup` has to install for it, besides."""
    words: tuple[str, ...] = ()
    """Of a command that was taken from a Dockerfile."""
    where: str = ""
    """`Dockerfile:7`, for those."""
    starts: str = ""
    """The file of the repository that it runs, where the text has its module."""

    @property
    def line(self) -> str:
        """In one line."""
        return self.short or self.text


def command_of(
    paths: tuple[str, ...], texts: Mapping[str, str], packages: Packages, dockerfile: Dockerfile | None
) -> Command:
    """The first kind that the repository has; without any, one that fails and says so."""
    script, ordered = _script(paths, texts), _of_dockerfile(texts, dockerfile)
    if script is not None and ordered is not None:
        if script.text.endswith(_HELP) or _names_a_file(ordered, paths):
            script = None  # there are values for what the script needs
        else:
            not_taken = f"The command of `{ordered.where}` was not taken: {shlex.join(ordered.words)}"
            script = replace(script, because=(*script.because, not_taken))
    for guess in (
        _tests(paths, packages),
        script,
        ordered,
        _notebook(paths),
        _program(packages),
        _main(paths, texts, packages),
        _import(paths, packages),
    ):
        if guess is not None:
            return guess
    return Command(text=PLACEHOLDER, because=("Nothing to run was found: write a command that ends by itself.",))


def _names_a_file(command: Command, paths: tuple[str, ...]) -> bool:
    """Whether it runs a script of the repository, in the way in which people run it."""
    there = frozenset(paths)
    words = " ".join(command.words).split()
    by_module = (module for option, module in pairwise(words) if option == "-m")
    return any(word.endswith(".py") and word.removeprefix("./") in there for word in words) or any(
        path for module in by_module for path in files_of_module(module, there)
    )


def may_hold_a_secret(text: str) -> bool:
    """Such a text of the repository is not taken over."""
    return _SECRET.search(text) is not None


def _tests(paths: tuple[str, ...], packages: Packages) -> Command | None:
    found = [path for path in paths if _TEST_FILE.search(path)]
    if not found:
        return None
    folders = sorted({path.rpartition("/")[0].partition("/")[0] for path in found})
    folder = next((name for name in ("tests", "test") if name in folders), "")
    inside = [path for path in found if path.startswith(f"{folder}/")] if folder else found
    files = "1 file" if len(inside) == 1 else f"{len(inside)} files"
    where = f"`{folder}/` has {files}" if folder else f"there are {files}"
    has_pytest = packages.find("pytest") or "pytest" in packages.dev_names or packages.test_extra
    return Command(
        text=f"python3 -m pytest -q {folder}".rstrip(),
        because=(f"{where} with tests.",),
        installs="" if has_pytest else "pytest",
    )


def _script(paths: tuple[str, ...], texts: Mapping[str, str]) -> Command | None:
    there = frozenset(paths)
    named = re.search(r"^app_file:\s*([\w./-]+\.py)\s*$", texts.get("README.md", "")[:2000], re.MULTILINE)
    if named and named[1] in there:
        return _run_script(named[1], texts.get(named[1], ""))
    for name in _SCRIPTS:
        for place in _PLACES:
            path = f"{place}{name}.py"
            if path in there:
                return _run_script(path, texts.get(path, ""))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Script:
    """What the syntax tree of a script says."""

    framework: str = ""
    """It serves with this until it is stopped; empty when it ends."""
    port: int = 0
    application: str = ""
    """The variable that holds a FastAPI application which nobody starts."""
    arguments: tuple[str, ...] = ()
    """Those that it cannot do without."""


def _run_script(path: str, text: str, call: str = "") -> Command:
    """`call`: what runs it; empty for the plain file."""
    script, call = _read_script(text), call or f"python3 {path}"
    if script.framework == "streamlit":
        command = f"python3 -m streamlit run {path} --server.headless true --server.port {_PORTS['streamlit']}"
        return _serving(command, _PORTS["streamlit"], f"`{path}` is a page of streamlit.")
    if script.application:
        module = path.removesuffix(".py").replace("/", ".")
        command = f"python3 -m uvicorn {module}:{script.application} --port {_PORTS['fastapi']}"
        return _serving(command, _PORTS["fastapi"], f"`{path}` has a FastAPI application.")
    if script.framework:
        because = f"`{path}` serves with {script.framework} until it is stopped."
        return _serving(call, script.port or _PORTS[script.framework], because)
    if script.arguments:
        wanted = ", ".join(f"`{name}`" for name in script.arguments)
        return Command(
            text=f"{call}{_HELP}",
            because=(f"`{path}` needs {wanted}: write a call with small values for them.",),
        )
    return Command(text=call, because=(f"`{path}`; it should end by itself, with 0 when all is well.",))


def _serving(command: str, port: int, because: str) -> Command:
    """Up, answering on its port, down: what can be said of a server without knowing what to ask it."""
    answers = f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 5)\" 2>/dev/null"
    ended = "kill -0 $! 2>/dev/null || exit 1"
    return Command(
        text=f"{command} &\nuntil {answers}; do\n  {ended}\n  sleep 2\ndone\nkill $!",
        short=f"{command} & until {answers}; do {ended}; sleep 2; done; kill $!",
        because=(
            because,
            f"The job passes when something listens on port {port}, and fails when the server ends before.",
        ),
    )


def _read_script(text: str) -> _Script:
    tree = parsed(text)
    if tree is None:
        return _Script()
    nodes = tuple(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    imported = imports(nodes)
    if "streamlit" in imported:
        return _Script(framework="streamlit")
    framework = next((name for name in ("gradio", "fastapi", "flask") if name in imported), "")
    if not framework and "uvicorn" in imported:
        framework = "fastapi"
    started = [call for call in calls if dotted(call.func).rpartition(".")[2] in _LAUNCHES]
    if framework and started:
        return _Script(framework=framework, port=next(_ports(started), 0))
    if framework == "fastapi":
        return _Script(application=_application(tree))
    return _Script(arguments=tuple(_needed(calls))[:5])


def _ports(calls: list[ast.Call]) -> Iterator[int]:
    for call in calls:
        for keyword in call.keywords:
            if keyword.arg in ("port", "server_port") and isinstance(keyword.value, ast.Constant):
                value = keyword.value.value
                if isinstance(value, int) and 0 < value < 65536:
                    yield value


def _application(tree: ast.Module) -> str:
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=func)) if dotted(func).endswith("FastAPI"):
                return name if name.isascii() else ""
            case _:
                pass
    return ""


def _needed(calls: list[ast.Call]) -> Iterator[str]:
    """Arguments of argparse that have no default."""
    for call in calls:
        if dotted(call.func).rpartition(".")[2] != "add_argument" or not call.args:
            continue
        name = call.args[-1]
        if not (isinstance(name, ast.Constant) and isinstance(name.value, str) and _PLAIN.fullmatch(name.value)):
            continue
        given = {one.arg: one.value for one in call.keywords}
        if _is_needed(name.value, given.get("required"), given.get("nargs")):
            yield name.value


def _is_needed(name: str, required: ast.expr | None, many: ast.expr | None) -> bool:
    if name.startswith("-"):
        return isinstance(required, ast.Constant) and required.value is True
    return not (isinstance(many, ast.Constant) and many.value in ("?", "*"))


def _of_dockerfile(texts: Mapping[str, str], dockerfile: Dockerfile | None) -> Command | None:
    if dockerfile is None or not dockerfile.command:
        return None
    words, where = dockerfile.command, f"{dockerfile.path}:{dockerfile.command_line}"
    source = f"The command of `{where}`"
    if dockerfile.entrypoint_line:
        lines = sorted({dockerfile.entrypoint_line, dockerfile.command_line})
        source = f"ENTRYPOINT and CMD of `{dockerfile.path}`, lines {lines[0]} and {lines[-1]}, joined"
    if words[0].startswith("-") and "vllm/vllm-openai" in dockerfile.base:
        words = (*VLLM_ENTRYPOINT, *words)
    if words[0] in ("bash", "sh", "/bin/bash", "/bin/sh", "tail", "sleep") and len(words) < 4:
        return None
    command = shlex.join(words)
    if may_hold_a_secret(command) or not command.isprintable() or len(command) > 500:
        return None
    own = next((word for word in words[1:] if word.startswith("/") and not word.startswith(("/usr/", "/bin/"))), "")
    about = (f"`{own}` is a path of the image that it builds; the job starts in a checkout.",) if own else ()
    served = _served(words, texts, dockerfile)
    if served:
        serving = _serving(command, served, f"{source}; it serves until it is stopped.")
        return replace(serving, because=(*serving.because, *about), words=words, where=where)
    return Command(text=command, because=(f"{source}.", *about), words=words, where=where)


def _served(words: tuple[str, ...], texts: Mapping[str, str], dockerfile: Dockerfile) -> int:
    """The port on which it serves; 0 when it ends by itself, as far as anybody can see."""
    command = " ".join(words)
    script = _read_script(
        next((texts[at] for word in words if (at := word.removeprefix("./")).endswith(".py") and at in texts), "")
    )
    if not (_SERVES.search(command) or script.framework or script.application):
        return 0
    named = _PORT.search(command)
    if named:
        return int(named[1] or named[2])
    return script.port or next(iter(dockerfile.ports), 0) or _PORTS.get(script.framework or "fastapi", 8000)


def _notebook(paths: tuple[str, ...]) -> Command | None:
    found = next((path for path in paths if path.endswith(".ipynb") and "/." not in f"/{path}"), None)
    if found is None:
        return None
    name = shlex.quote(found)
    return Command(
        text=f"python3 -m jupyter nbconvert --to notebook --execute --output-dir out {name}",
        because=(f"All cells of `{found}`, in order; the first error fails the job. The result is kept in `out/`.",),
        installs="jupyter nbconvert ipykernel",
    )


def _program(packages: Packages) -> Command | None:
    if not packages.scripts:
        return None
    name = packages.scripts[0]
    return Command(text=f"{name} --help", because=(f"`pyproject.toml` has the program `{name}`.",))


def _main(paths: tuple[str, ...], texts: Mapping[str, str], packages: Packages) -> Command | None:
    """The likeliest of what is made to be run, with the others in a comment."""
    found = mains(paths, texts, _SCRIPTS, installed=bool(packages.installable))
    if not found:
        return None
    first, *others = found
    command = replace(_run_script(first.path, texts.get(first.path, ""), first.call), starts=first.path)
    if not others:
        return command
    named = ", ".join(f"`{other.call}`" for other in others[:_SHOWN])
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return replace(command, because=(*command.because, f"There are others that can be run: {named}{more}."))


def _import(paths: tuple[str, ...], packages: Packages) -> Command | None:
    """A package without tests."""
    modules = [
        found[1] for path in paths if (found := re.fullmatch(r"(?:src/)?([A-Za-z_]\w*)/__init__\.py", path, re.ASCII))
    ]
    if not packages.installable or not modules:
        return None
    return Command(
        text=f'python3 -c "import {modules[0]}"', because=(f"The package `{modules[0]}` has no tests that were found.",)
    )
