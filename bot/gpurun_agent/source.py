"""The repository at its commit, from the bot into the work folder."""

from __future__ import annotations

import os

from gpurun_agent import protocol
from gpurun_agent.ending import End, Ended
from gpurun_agent.tar import BadTar, Unpacking
from gpurun_agent.wire import Request

BUFFER = 1024 * 1024
"""Bytes of the archive that are read at a time: small files would cost two calls each."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpurun_agent.contact import Errand
    from gpurun_agent.run import Run


def fetch(run: Run, commit: str, folder: str, tmp: str) -> None:
    """Raises Ended (failed, `source`) when the archive is not of `commit` or not safe to unpack."""
    found = _unpack(run, "source", folder, tmp)
    if found != commit:
        raise Ended(End(protocol.FAILED, protocol.SOURCE, "The source is of commit %r, not %s." % (found, commit)))


def fetch_git(run: Run, folder: str, tmp: str) -> None:
    """A `.git` for the source, which no source holds itself. Raises Ended as `fetch`."""
    git = os.path.join(folder, ".git")
    os.mkdir(git)
    _unpack(run, "source/" + protocol.GIT_FOLDER, git, tmp)


def _unpack(run: Run, path: str, folder: str, tmp: str) -> str:
    """The commit that the archive names."""
    name = os.path.join(tmp, ".gpurun-source-%s" % os.urandom(8).hex())
    file = open(name, "w+b", BUFFER)  # noqa: SIM115  # closed below, on every path
    line = run.new_line()  # of its own: the source need not wait until the phase is told
    try:
        os.unlink(name)

        def build() -> Request:
            file.seek(0)
            file.truncate()
            return Request("GET", protocol.PREFIX + path, sink=take)

        def take(_status: int, data: bytes) -> None:
            file.write(data)

        _check_answer(run.wait_for(run.errand_on(line, build)))
        file.seek(0)
        unpacking = Unpacking(file, folder)
        for _ in unpacking:
            run.breathe()
    except BadTar as exc:
        raise Ended(End(protocol.FAILED, protocol.SOURCE, str(exc))) from exc
    finally:
        line.close()
        file.close()
    return unpacking.commit


def _check_answer(errand: Errand) -> None:
    answer = errand.answer
    assert answer is not None
    if answer.status != 200:
        raise Ended(
            End(protocol.FAILED, protocol.SOURCE, "The bot has no source (%d): %s" % (answer.status, answer.text()))
        )
