"""The build of an image in the life of a run: what the commit holds for it, and the build before create."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

from anyio import to_thread

from gpurun.domain.build import (
    MAX_IGNORE_BYTES,
    Building,
    BuildOutput,
    BuildPin,
    BuildPlan,
    predefined_args,
)
from gpurun.domain.config import BuildKeys
from gpurun.domain.errors import Bug, BuildRefused, BuildUnavailable, ConfigError, ProviderRefused
from gpurun.domain.offer import Launch, Preparation
from gpurun.domain.plan import Plan
from gpurun.domain.run import BUILDING, BUILT, Attempt, AttemptState, Run, source_commit
from gpurun.domain.source import Submodule
from gpurun.domain.stream import StreamName
from gpurun.flow import edges, failpoints
from gpurun.flow.services import CALL_TIMEOUT_S, EngineServices
from gpurun.plan.build import no_context, no_dockerfile, paths_of
from gpurun.plan.context import Contents, ContextReader, ContextTar
from gpurun.plan.dockerfile import dockerfile_text, read_dockerfile
from gpurun.plan.lines import at_build
from gpurun.ports.provider import Builds
from gpurun.ports.store import Tx
from gpurun.run.decide_attempt import BuildFailed, Rejected

READ_TIMEOUT_S = 60.0
"""Of an archive of two gigabytes that is hashed; below the lease."""
AGAIN = b"::gpurun:: the build begins again\n"


async def read_build(services: EngineServices, run: Run, keys: BuildKeys, *, platform: str) -> BuildPin:
    """Out of the archive of the run's commit, which is all there. Raises: ConfigError, SourceUnavailable."""
    dockerfile = ""
    try:
        dockerfile, context = paths_of(keys, run.folder)
        reader = ContextReader(dockerfile=dockerfile, context=context)
        commit, modules = source_commit(run), _submodules(run)
        contents = await edges.call(
            failpoints.RUN_BUILD,
            lambda: read_archive(
                services.git.archive(run.repo.name, commit, submodules=modules, lfs=run.pins.lfs), reader
            ),
            timeout_s=READ_TIMEOUT_S,
        )
        return pin_of_contents(contents, dockerfile=dockerfile, context=context, platform=platform)
    except ConfigError as error:
        if error.file == dockerfile:
            raise
        raise at_build(error, run.config_text, run.job) from error


async def read_archive(archive: AsyncGenerator[bytes, None], reader: ContextReader) -> Contents:
    """All of it. Raises: SourceUnavailable; ConfigError, without its line, as `ContextReader.contents`."""
    async with aclosing(archive) as pieces:
        async for piece in pieces:
            reader.feed(piece)
    return await to_thread.run_sync(reader.contents)


def pin_of_contents(contents: Contents, *, dockerfile: str, context: str, platform: str) -> BuildPin:
    """Raises: ConfigError, without its line when it is about the job's `build`."""
    if contents.dockerfile is None:
        raise no_dockerfile(dockerfile)
    if not contents.is_there:
        raise no_context(context)
    if len(contents.ignore) > MAX_IGNORE_BYTES:
        raise ConfigError(f"`.dockerignore` has more than the {MAX_IGNORE_BYTES >> 10} KiB that are read")
    return BuildPin(
        dockerfile=dockerfile,
        context=context,
        text=dockerfile_text(contents.dockerfile, dockerfile),
        ignore=contents.ignore.decode("utf-8", "surrogateescape"),
        context_sha256=contents.context_sha256,
        platform=platform,
    )


def _submodules(run: Run) -> tuple[Submodule, ...]:
    links = sorted(run.pins.links, key=lambda link: link.path)
    return tuple(Submodule(path=link.path, url=link.source, commit=link.commit) for link in links)


@dataclass(frozen=True, slots=True)
class _Kept:
    """How much of which try's output the stream has."""

    of: str = ""
    n_bytes: int = 0
    over: bool = False


class ImageBuilds:
    """Builds for attempts, whose output becomes their stream BUILD. One per process."""

    def __init__(self, services: EngineServices) -> None:
        self._s = services
        self._kept: dict[str, _Kept] = {}
        """By attempt."""

    async def image_of(
        self, attempt: Attempt, plan: Plan, launch: Launch, *, wait_s: float
    ) -> Preparation | Rejected | BuildFailed:
        """The image of the plan's build is where the attempt will run, or how far it is.

        Raises: Transient.
        """
        build, provider = plan.build, self._s.provider(attempt.offer.provider)
        if build is None:
            return Preparation(ready=True)
        if not isinstance(provider, Builds):
            raise Bug(f"{attempt.offer.provider} cannot build, and was chosen for a job with a build")
        try:
            building = await edges.call(
                failpoints.ATTEMPT_BUILD,
                lambda: provider.build(
                    launch,
                    build,
                    lambda: tar_for_engine(
                        build,
                        self._s.git.archive(plan.repo, plan.commit, submodules=plan.submodules, lfs=plan.lfs),
                    ),
                    wait_s=wait_s,
                ),
                timeout_s=CALL_TIMEOUT_S,
            )
        except BuildRefused as refused:
            await self._keep(attempt, refused.output)
            return Rejected(refused.kind, str(refused))
        except ProviderRefused as refused:
            return Rejected(refused.kind, str(refused))
        except BuildUnavailable as ended:
            await self._keep(attempt, ended.output)
            raise
        await self._keep(attempt, building.output)
        if building.failed:
            masker = await self._s.masker(attempt)
            return BuildFailed(masker.text(_told(building, build)))
        return Preparation(ready=building.ready, message=building.message)

    def forget(self, attempt: Attempt) -> None:
        """It will not be built for any more."""
        self._kept.pop(attempt.id, None)

    async def _keep(self, attempt: Attempt, output: BuildOutput) -> None:
        """What is new, masked to equal length. What could still become a secret is left to the next time."""
        kept = self._kept.get(attempt.id, _Kept())
        first = kept.of != output.id
        kept = _Kept(output.id) if first else kept
        masker = await self._s.masker(attempt)
        new = (masker.mask if output.over else masker.take)(output.said[kept.n_bytes :])
        if not (new or first or output.over > kept.over):
            return
        await edges.commit(
            self._s.store,
            failpoints.ATTEMPT_BUILD_LOG,
            lambda tx: _append(tx, attempt.id, new, output, first=first),
            durable=output.over,
        )
        self._kept[attempt.id] = _Kept(output.id, kept.n_bytes + len(new), output.over)


async def tar_for_engine(build: BuildPlan, archive: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The context, with the Dockerfile. Raises SourceUnavailable."""
    made = ContextTar(build)
    async with aclosing(archive) as pieces:
        async for piece in pieces:
            if kept := await to_thread.run_sync(made.feed, piece):
                yield kept
    yield made.end()


def _told(building: Building, build: BuildPlan) -> str:
    """Where in the Dockerfile, and why."""
    read = read_dockerfile(
        build.text, file=build.dockerfile, args=dict(build.args), predefined=predefined_args(build.platform)
    )
    step = read.step(building.step)
    where = f", line {step.line} of {build.dockerfile} (`{step.shown}`)" if step else f" of {build.dockerfile}"
    return f"The build failed at step {building.step}{where}: {building.failed}" if building.step else building.failed


def _append(tx: Tx, attempt_id: str, data: bytes, output: BuildOutput, *, first: bool) -> None:
    """A fact, whoever holds the row; but nothing after the agent may have begun its log."""
    attempt = tx.attempt(attempt_id)
    if attempt is None or attempt.state is not AttemptState.CHOSEN:
        return
    end = tx.stream_end(attempt_id, StreamName.BUILD).next
    data = (AGAIN if first and end and data else b"") + data
    if data:
        tx.append(attempt_id, StreamName.BUILD, end, data)
    if output.took_s is not None:
        now = tx.now()
        tx.note_time(attempt_id, BUILDING, now - timedelta(seconds=output.took_s))
        if output.over:
            tx.note_time(attempt_id, BUILT, now)
