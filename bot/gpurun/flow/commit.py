"""What planning asks git: the commit, and for one without `.gpurun.yml` a file to begin with."""

from __future__ import annotations

from collections.abc import Collection

import anyio
import structlog

from gpurun.domain.errors import GpurunError
from gpurun.domain.forge import NotFetched
from gpurun.domain.ids import TreeSha
from gpurun.domain.repository import RepoFacts
from gpurun.domain.run import Run
from gpurun.flow import edges, failpoints
from gpurun.flow.services import CALL_TIMEOUT_S, EngineServices
from gpurun.plan.starter import short_starter
from gpurun.telemetry.redact import Masker

FETCH_TIMEOUT_S = 60.0
"""git may move much data; still below the lease."""

STARTER_LIMIT_S = 20.0
"""For a help and no more: who has a large repository hears sooner that there is no file."""

log = structlog.get_logger()


async def fetch_commit(services: EngineServices, run: Run, *, skip: Collection[NotFetched]) -> TreeSha:
    """The commit is in the mirror afterwards; its tree. Raises what the forge and `ports.bytes.Git` raise."""
    source = await edges.call(
        failpoints.RUN_GIT_SOURCE, lambda: services.forge.git_source(run.repo), timeout_s=CALL_TIMEOUT_S
    )
    return await edges.call(
        failpoints.RUN_GIT_FETCH,
        lambda: services.git.fetch(source, run.repo.name, run.sha, skip=skip),
        timeout_s=FETCH_TIMEOUT_S,
    )


async def make_starter(services: EngineServices, run: Run) -> str:
    """Made for the tree of the run's commit; a general one when nobody can look at it, or a secret may be in it.

    A help and no more: nothing is tried again for it. Runs exist only for commits of the repository itself, so this
    text was written by people who may write there.
    """
    try:
        with anyio.fail_after(STARTER_LIMIT_S):
            await fetch_commit(services, run, skip=tuple(NotFetched))
            facts = await edges.call(
                failpoints.RUN_LOOK, lambda: services.git.look(run.repo.name, run.sha), timeout_s=CALL_TIMEOUT_S
            )
        starter = await anyio.to_thread.run_sync(short_starter, facts.inside(run.folder), run.job)
    except (GpurunError, TimeoutError) as error:
        log.warning("starter_without_look", run_id=run.id, error=str(error) or "it took too long")
        return short_starter(RepoFacts(), run.job)
    except Exception:  # the files are anybody's, and the refusal waits for nothing
        log.exception("starter_failed", run_id=run.id)
        return short_starter(RepoFacts(), run.job)
    return starter if Masker(()).text(starter) == starter else short_starter(RepoFacts(), run.job)
