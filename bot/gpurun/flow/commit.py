"""What planning asks git: the commit, and for one without `.gpurun.yml` a file to begin with."""

from __future__ import annotations

from collections.abc import Collection

import anyio
import structlog

from gpurun.domain.errors import ForgeUnavailable, GpurunError, PinNotFound
from gpurun.domain.forge import Extra, GitSource
from gpurun.domain.ids import RepoName
from gpurun.domain.repository import RepoFacts
from gpurun.domain.run import Run, source_commit
from gpurun.domain.source import Fetched, Gitlink, GitTag, Merge, ModuleUrl
from gpurun.flow import edges, failpoints
from gpurun.flow.services import CALL_TIMEOUT_S, EngineServices
from gpurun.plan.starter import short_starter
from gpurun.telemetry.redact import Masker

FETCH_TIMEOUT_S = 60.0
"""git may move much data; still below the lease."""

STARTER_LIMIT_S = 20.0
"""For a help and no more: who has a large repository hears sooner that there is no file."""

log = structlog.get_logger()


async def find_merge(services: EngineServices, run: Run) -> Merge:
    """What GitHub makes of the pull request and its base; without a pull request the commit itself.

    Raises: ForgeUnavailable while it is not known, PinNotFound when there is none, what the forge raises.
    """
    number = run.pr
    if number is None:
        return Merge(commit=run.sha)
    found = await edges.call(
        failpoints.RUN_MERGE, lambda: services.forge.pull_request(run.repo, number), timeout_s=CALL_TIMEOUT_S
    )
    if found.head_sha != run.sha:
        raise PinNotFound(
            f"The pull request is at {found.head_sha[:12]} now, so nobody can merge {run.sha[:12]} any more.",
            hint="Ask again, for the commit that it has now.",
        )
    if found.mergeable is None and found.open:
        raise ForgeUnavailable("GitHub is still finding out whether the pull request can be merged.", retry_after_s=5)
    if not found.mergeable or found.merge_sha is None:
        raise PinNotFound(
            f"The pull request cannot be merged into {found.base_ref}, so there is no merge commit to run.",
            hint="Resolve the conflicts, or write `checkout: {ref: head}`.",
        )
    return Merge(commit=found.merge_sha)


async def fetch_commit(
    services: EngineServices, run: Run, *, skip: Collection[Extra], get: Collection[Extra] = ()
) -> Fetched:
    """The commit is in the mirror afterwards. Raises what the forge and `ports.bytes.Git` raise."""
    sha = source_commit(run)
    merge_of = run.sha if sha != run.sha else None
    source = await edges.call(
        failpoints.RUN_GIT_SOURCE, lambda: services.forge.git_source(run.repo), timeout_s=CALL_TIMEOUT_S
    )
    return await edges.call(
        failpoints.RUN_GIT_FETCH,
        lambda: services.git.fetch(source, run.repo.name, sha, skip=skip, get=get, merge_of=merge_of),
        timeout_s=FETCH_TIMEOUT_S,
    )


async def fetch_submodule(
    services: EngineServices, run: Run, link: Gitlink, *, skip: Collection[Extra], get: Collection[Extra]
) -> tuple[str, Fetched]:
    """Where it was fetched from, and what came. Raises as `fetch_commit`."""
    source = await _source_of(services, run, link)
    url = ModuleUrl(source.url)
    found = await edges.call(
        failpoints.RUN_SUBMODULE_FETCH,
        lambda: services.git.fetch(source, url, link.commit, skip=skip, get=get, at=link.path),
        timeout_s=FETCH_TIMEOUT_S,
    )
    return source.url, found


async def fetch_history(services: EngineServices, run: Run) -> tuple[GitTag, ...]:
    """The history of the run's commit is in a mirror afterwards; its tags. Raises as `fetch_commit`."""
    source = await edges.call(
        failpoints.RUN_HISTORY_SOURCE, lambda: services.forge.git_source(run.repo), timeout_s=CALL_TIMEOUT_S
    )
    return await edges.call(
        failpoints.RUN_HISTORY_FETCH,
        lambda: services.git.fetch_history(source, run.repo.name, source_commit(run)),
        timeout_s=FETCH_TIMEOUT_S,
    )


async def fetch_lfs(services: EngineServices, run: Run, link: Gitlink | None) -> None:
    """The LFS files of the run's commit, or of a submodule's, are here afterwards. Raises as `fetch_commit`."""
    if link is None:
        repo: RepoName | ModuleUrl = run.repo.name
        sha = source_commit(run)
        source = await edges.call(
            failpoints.RUN_LFS_SOURCE, lambda: services.forge.git_source(run.repo), timeout_s=CALL_TIMEOUT_S
        )
    else:
        source = await _source_of(services, run, link)
        repo, sha = ModuleUrl(link.source), link.commit
    await edges.call(
        failpoints.RUN_LFS_FETCH, lambda: services.git.fetch_lfs(source, repo, sha), timeout_s=FETCH_TIMEOUT_S
    )


async def _source_of(services: EngineServices, run: Run, link: Gitlink) -> GitSource:
    return await edges.call(
        failpoints.RUN_SUBMODULE_SOURCE,
        lambda: services.forge.submodule_source(run.repo, link, reader=reader_of(run)),
        timeout_s=CALL_TIMEOUT_S,
    )


def reader_of(run: Run) -> str:
    """Whose right counts for what is not the repository's own; empty for code that gets only what everybody may read.

    Who asks for a run of somebody else's code must not lend it what they may read.
    """
    return run.who if run.untrusted is None else ""


async def make_starter(services: EngineServices, run: Run) -> str:
    """Made for the tree of the run's commit; a general one when nobody can look at it, or a secret may be in it.

    A help and no more: nothing is tried again for it. Nothing of it is taken from code that somebody would have to
    approve.
    """
    if run.untrusted is not None:
        return short_starter(RepoFacts(), run.job)
    try:
        with anyio.fail_after(STARTER_LIMIT_S):
            await fetch_commit(services, run, skip=tuple(Extra))
            facts = await edges.call(
                failpoints.RUN_LOOK,
                lambda: services.git.look(run.repo.name, source_commit(run)),
                timeout_s=CALL_TIMEOUT_S,
            )
        starter = await anyio.to_thread.run_sync(short_starter, facts.inside(run.folder), run.job)
    except (GpurunError, TimeoutError) as error:
        log.warning("starter_without_look", run_id=run.id, error=str(error) or "it took too long")
        return short_starter(RepoFacts(), run.job)
    except Exception:  # the files are anybody's, and the refusal waits for nothing
        log.exception("starter_failed", run_id=run.id)
        return short_starter(RepoFacts(), run.job)
    return starter if Masker(()).text(starter) == starter else short_starter(RepoFacts(), run.job)
