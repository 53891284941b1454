"""The folder in which the job's commands start, when it is not the top of the commit."""

from __future__ import annotations

import os

from gpurun_agent import protocol
from gpurun_agent.ending import End, Ended


def find(work: str, name: str) -> str:
    """The real path of the folder `name` below `work`.

    Raises Ended (failed, `workdir`) when there is none, or when a link on the way leads out of `work`.
    """
    top = os.path.realpath(work)
    folder = os.path.realpath(os.path.join(top, name))
    if folder != top and not folder.startswith(top + "/"):
        raise _ended("The folder %s leads out of the commit, so nothing was started there." % name)
    if not os.path.isdir(folder):
        raise _ended("The commit has no folder %s, in which the job should start." % name)
    return folder


def _ended(detail: str) -> Ended:
    return Ended(End(protocol.FAILED, protocol.WORKDIR, detail))
