"""`ask run|cancel|end <argument>`: a request without a comment, by a process of its own on a server's database.

`gpurun run` asks like that on a database of its own, which is SQLite always; here it can be PostgreSQL.
"""

from __future__ import annotations

import json
from functools import partial

import anyio

from gpurun.cli.environment import read_settings
from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import CommitSha, JobName, RepoName
from gpurun.flow.request import LocalRequest, request_cancel, request_end, request_run
from gpurun.wiring import House, open_server


def ask(what: str, argument: str) -> int:
    """`run`: JSON of a request. `cancel`, `end`: the id of a run."""
    anyio.run(partial(_ask, what, argument))
    return 0


async def _ask(what: str, argument: str) -> None:
    async with open_server(read_settings()) as house:
        match what:
            case "run":
                await _run(house, **json.loads(argument))
            case "cancel":
                await request_cancel(house.store, argument, "asker")
            case "end":
                await request_end(house.store, argument, "asker")


async def _run(house: House, *, installation: int, repo: str, repo_id: int, job: str, sha: str, config: str) -> None:
    request = LocalRequest(
        repo=RepoRef(installation_id=installation, name=RepoName(repo), id=repo_id),
        job=JobName(job),
        sha=CommitSha(sha),
        who="asker",
        config_text=config,
    )
    await request_run(house.store, house.chance, request)
