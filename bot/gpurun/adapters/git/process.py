"""Runs git: argv lists, a deadline, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpurun.domain.errors import NoGit

PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Ended:
    """A git process that ended by itself."""

    code: int
    stdout: bytes
    stderr: str


def git_program() -> str:
    """Absolute path of git. Raises NoGit when there is none."""
    program = shutil.which("git")
    if program is None:
        raise NoGit("git is not installed on this machine; install it and try again.")
    return program


def isolated_environment(home: Path, config: Sequence[tuple[str, str]], extra: Mapping[str, str]) -> dict[str, str]:
    """An environment in which only `config` configures git, and no prompt can wait for a person.

    Values of `config` travel as variables: argv is readable by every user of the machine, these are not.
    """
    environment = {
        "PATH": os.pathsep.join((str(Path(git_program()).parent), os.defpath)),
        "LC_ALL": "C",
        "HOME": str(home),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": "https:http:file:git",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_CONFIG_COUNT": str(len(config)),
    }
    for index, (key, value) in enumerate(config):
        environment[f"GIT_CONFIG_KEY_{index}"] = key
        environment[f"GIT_CONFIG_VALUE_{index}"] = value
    return environment | dict(extra)


async def start_git(
    *argv: str, environment: Mapping[str, str] | None, pass_fds: tuple[int, ...] = (), reads: bool = False
) -> asyncio.subprocess.Process:
    """`git *argv` in a session of its own, so that `end` also reaches its children (`git-remote-https`, `index-pack`).

    `environment` None means: the one of this process. `reads`: it has an input.
    """
    return await asyncio.create_subprocess_exec(
        git_program(),
        *argv,
        env=environment,
        stdin=asyncio.subprocess.PIPE if reads else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=PIECE_BYTES,
        start_new_session=True,
        pass_fds=pass_fds,
    )


async def end(process: asyncio.subprocess.Process) -> None:
    """The process and its children are gone and reaped afterwards, also when the caller is being cancelled."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await asyncio.shield(process.wait())


async def run_git(
    *argv: str,
    environment: Mapping[str, str] | None,
    timeout_s: float,
    pass_fds: tuple[int, ...] = (),
    given: bytes = b"",
) -> Ended:
    """Runs git to its end, with `given` as its input.

    Raises TimeoutError after `timeout_s`; then nothing of it runs any more.
    """
    process = await start_git(*argv, environment=environment, pass_fds=pass_fds, reads=bool(given))
    try:
        async with asyncio.timeout(timeout_s):
            stdout, stderr = await process.communicate(given or None)
    finally:
        await end(process)
    return Ended(process.returncode or 0, stdout, stderr.decode("utf-8", "replace"))


async def read_git(*argv: str, environment: Mapping[str, str] | None, timeout_s: float, max_bytes: int) -> Ended:
    """The beginning of what git prints, `max_bytes` at most; no more is waited for, and code 0 stands for the rest.

    Raises TimeoutError after `timeout_s`; then nothing of it runs any more.
    """
    process = await start_git(*argv, environment=environment)
    assert process.stdout is not None
    assert process.stderr is not None
    printed = b""
    try:
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as tasks:
            said = tasks.create_task(_last_bytes(process.stderr))
            while len(printed) < max_bytes and (piece := await process.stdout.read(PIECE_BYTES)):
                printed += piece
            is_cut = len(printed) >= max_bytes
            if is_cut:
                await end(process)
            code = await process.wait()
    finally:
        await end(process)
    return Ended(0 if is_cut else code, printed[:max_bytes], said.result().decode("utf-8", "replace"))


async def _last_bytes(stream: asyncio.StreamReader) -> bytes:
    """Of whatever length: what git says is partly the remote's."""
    kept = b""
    while piece := await stream.read(PIECE_BYTES):
        kept = (kept + piece)[-PIECE_BYTES:]
    return kept
