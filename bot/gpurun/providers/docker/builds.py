"""Builds of images, each in threads of its own and shared by every attempt that would build it in the same way."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gpurun.domain.build import Building, BuildOutput, BuildPlan
from gpurun.domain.errors import (
    Bug,
    BuildRefused,
    BuildUnavailable,
    GpurunError,
    ProviderRefused,
    ProviderUnavailable,
    Transient,
)
from gpurun.domain.image import RegistryLogin
from gpurun.domain.offer import Launch
from gpurun.domain.plan import Resources
from gpurun.providers.docker.build_call import BuildCall, NotBuilt, query_of
from gpurun.providers.docker.build_folder import is_ours, nameless_file, open_lock, own_trouble
from gpurun.providers.docker.build_talk import BuildTalk, Failed, refused
from gpurun.providers.docker.built_image import LABEL_INPUTS, forget_ready, is_built, keep_part, sweep, use
from gpurun.providers.docker.container import Limits, about
from gpurun.providers.docker.disk import Space
from gpurun.providers.docker.engine import Engine, translated, vendor_errors
from gpurun.providers.docker.pull import SILENCE_S, Progress, pull_image, pull_refusal
from gpurun.providers.docker.ready_image import is_there
from gpurun.providers.docker.triggers import unpinned_trigger
from gpurun_agent.log import in_one_line

if TYPE_CHECKING:
    from docker.api.client import APIClient

LIMIT_S = 25 * 60.0
"""Of a build without the pulls; what comes before create has 30 minutes in all."""
ABANDONED_S = 30.0
"""A build that nobody asked for so long is ended: its runs were cancelled."""
KEPT_S = 600.0
"""How long an answer is there for those who waited for it."""
WATCH_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildHost:
    """What a build needs of the engine's machine, asked when it begins."""

    limits: Callable[[APIClient, Resources], Limits]
    ready: Callable[[APIClient, Launch], str]
    """The network of the launch, which is there afterwards."""
    space: Callable[[APIClient], Space | None]
    min_free_mib: int
    folder: Path | None
    """For contexts on their way, and for locks between processes. None: a temporary one, and no locks."""


_Key = tuple[str, RegistryLogin | None, Resources]
"""Inputs, who pulls and what a step may use: nobody shares the refusal of another one's login, or its memory."""


class DockerBuilds:
    """One per provider."""

    def __init__(self, engine: Engine, monotonic: Callable[[], float], host: BuildHost) -> None:
        self._engine = engine
        self._monotonic = monotonic
        self._host = host
        self._builds: dict[_Key, _Build] = {}
        """Those that go on, and those whose answer somebody may still ask for."""

    async def build(
        self, launch: Launch, plan: BuildPlan, context: Callable[[], AsyncGenerator[bytes, None]], *, wait_s: float
    ) -> Building:
        """As `ports.provider.Builds`."""
        self._forget_old()
        key = plan.inputs_sha256, launch.login, launch.needs
        before = self._builds.get(key)
        if before is None or before.is_ready or not before.answers(launch.attempt_id):
            there = await self._engine.safe(lambda api: self._is_there(api, plan), to="look for the image")
            if before is not None and before.is_ready and not there:
                self._forget(key, before)  # somebody removed it since
            build = self._builds.get(key)
            if build is None or not build.answers(launch.attempt_id):  # nobody else began it meanwhile
                if there:
                    return _cached(plan)
                build = self._builds[key] = _Build(self._engine, launch, plan, context, self._monotonic, self._host)
                build.start()
        else:
            build = before
        return await build.ask(launch.attempt_id, wait_s)

    async def tidy(self) -> None:
        """Raises: ProviderUnavailable, ProviderRefused."""
        busy = {key[0] for key, build in self._builds.items() if not build.is_over}
        await self._engine.safe(lambda api: sweep(api, spare=busy), to="remove old images")

    def close(self) -> None:
        """The builds of this process end."""
        for build in self._builds.values():
            build.stop("gpurun ends")

    def _is_there(self, api: APIClient, plan: BuildPlan) -> bool:
        there = is_built(api, plan.image)
        if there:
            use(api, plan.image)
        return there

    def _forget(self, key: _Key, build: _Build) -> None:
        if self._builds.get(key) is build:
            del self._builds[key]

    def _forget_old(self) -> None:
        for key, build in list(self._builds.items()):
            if build.is_over and self._monotonic() - build.asked_at > KEPT_S:
                self._forget(key, build)


def _cached(plan: BuildPlan) -> Building:
    said = f"::gpurun:: build cached: {in_one_line(plan.dockerfile)} with these inputs is {_short(plan)}\n"
    return Building(ready=True, message="build cached", output=BuildOutput(id="cached", said=said.encode()))


def _short(plan: BuildPlan) -> str:
    """As `docker images` can be asked for it."""
    return f"{plan.image.partition(':')[0]}:{plan.inputs_sha256[:12]}…"


class _Ended(Exception):
    """Not by the engine: there is an outcome already."""


class _Build:
    """Pulls what the Dockerfile names, then builds, in a daemon thread; another one watches over it."""

    def __init__(
        self,
        engine: Engine,
        launch: Launch,
        plan: BuildPlan,
        context: Callable[[], AsyncGenerator[bytes, None]],
        monotonic: Callable[[], float],
        host: BuildHost,
    ) -> None:
        self.asked_at = monotonic()
        self._engine = engine
        self._launch = launch
        self._plan = plan
        self._context = context
        self._monotonic = monotonic
        self._host = host
        self._id = secrets.token_hex(8)
        self._loop = asyncio.get_running_loop()
        self._attempts: set[str] = set()
        self._outcome: Future[Failed | GpurunError | None] = Future()
        self._talk = BuildTalk()
        self._began_at: float | None = None
        self._took_s: float | None = None
        self._call: BuildCall | None = None
        self._heard_at: float | None = None
        """When the engine last said something of a pull; None while nothing is pulled."""
        self._ending = threading.Lock()
        self._end = threading.Event()

    @property
    def is_over(self) -> bool:
        """It has an outcome."""
        return self._outcome.done()

    @property
    def is_ready(self) -> bool:
        """The image was there at its end."""
        return self.is_over and self._outcome.result() is None

    def answers(self, attempt_id: str) -> bool:
        """It goes on, or this attempt waited for it."""
        return not self.is_over or attempt_id in self._attempts

    def start(self) -> None:
        """Once."""
        self._outcome.set_running_or_notify_cancel()
        threading.Thread(target=self._run, name="gpurun-docker-build", daemon=True).start()
        threading.Thread(target=self._watch, name="gpurun-docker-build-watch", daemon=True).start()

    async def ask(self, attempt_id: str, wait_s: float) -> Building:
        """How far it is after `wait_s`. Raises: BuildRefused, BuildUnavailable."""
        self._attempts.add(attempt_id)
        self.asked_at = self._monotonic()
        waiter = asyncio.wrap_future(self._outcome)
        try:
            await asyncio.wait({waiter}, timeout=wait_s)
        finally:
            waiter.cancel()  # of this waiter only: a running Future refuses to be cancelled
        self.asked_at = self._monotonic()
        over = self.is_over
        output = BuildOutput(id=self._id, said=self._talk.output(), over=over, took_s=self._lasted())
        if not over:
            return Building(message=self._talk.message, output=output)
        match self._outcome.result():
            case None:
                return Building(ready=True, message="image built", output=output)
            case Failed(said, step):
                return Building(failed=said, step=step, output=output)
            case error:
                self._attempts.discard(attempt_id)  # the next question begins anew
                raise _with_output(error, output)

    def stop(self, why: str) -> None:
        """For all who wait."""
        self._give_up(ProviderUnavailable(f"The build was ended: {why}."))

    def _lasted(self) -> float | None:
        if self._took_s is not None or self._began_at is None:
            return self._took_s
        return self._monotonic() - self._began_at

    # the watching thread

    def _watch(self) -> None:
        while not self._end.wait(WATCH_S):
            heard_at = self._heard_at
            if heard_at is not None and self._monotonic() - heard_at > SILENCE_S:
                said = f"Docker pulls for {self._plan.dockerfile} and said nothing for {SILENCE_S:.0f} s."
                self._give_up(ProviderUnavailable(said))
            lasted = self._lasted() if self._took_s is None else None
            if lasted is not None and lasted > LIMIT_S:
                self._give_up(
                    Failed(f"it took longer than the {LIMIT_S / 60:.0f} minutes that a build has", self._talk.step)
                )
            if self._monotonic() - self.asked_at > ABANDONED_S:
                self.stop("nobody waits for it any more")
            if self._took_s is None:
                with contextlib.suppress(GpurunError, *vendor_errors()):
                    self._require_room(self._engine.client())

    def _require_room(self, api: APIClient) -> None:
        disk = self._host.space(api)
        if disk is not None and disk.free_mib < self._host.min_free_mib:
            left = f"{about(disk.free_mib)} are left on the disk, and {about(self._host.min_free_mib)} must stay free"
            self._give_up(ProviderRefused(f"The build was ended: {left}.", kind="capacity"))

    def _give_up(self, why: Failed | GpurunError) -> None:
        """The outcome, at once: a thread that waits for a silent registry cannot be interrupted, and goes on to wait
        for nobody. The engine ends a build that nobody listens to.
        """
        self._finish(why)
        call = self._call
        if call is not None:
            call.stop()

    def _finish(self, outcome: Failed | GpurunError | None) -> None:
        """The first outcome stays."""
        with self._ending:
            if not self.is_over:
                self._talk.close()
                self._took_s = self._lasted()
                self._outcome.set_result(outcome)
        self._end.set()

    # the building thread

    def _run(self) -> None:
        outcome: Failed | GpurunError | None = Bug("the building thread died")
        try:
            outcome = self._built()
        except _Ended:
            return
        except GpurunError as error:
            outcome = error
        except _connection_errors() as exc:
            outcome = translated(exc, to=f"build {self._plan.dockerfile}")
        finally:
            self._finish(outcome)

    def _built(self) -> Failed | GpurunError | None:
        """A numbered story: 1 what it is made of, 2 alone, 3 the build, 4 its name and its leftovers."""
        api = self._engine.client()
        self._pull(api)
        if trigger := unpinned_trigger(api, self._plan.images):
            return Failed(trigger, 0)
        with self._alone():
            self._go_on()
            if is_built(api, self._plan.image):  # in the meantime
                self._talk.say(f"::gpurun:: {_short(self._plan)} was built for another job\n".encode())
                use(api, self._plan.image)
                return None
            network = self._host.ready(api, self._launch)
            with self._context_file() as file:
                failed = self._send(api, file, network)
            self._name_parts(api, failed=failed is not None)
            if failed is None and not is_built(api, self._plan.image):
                failed = ProviderUnavailable("Docker ended the build and has no image of it.")
            if failed is None:
                forget_ready(api, self._plan.image)
            return failed

    def _pull(self, api: APIClient) -> None:
        import docker.errors

        for image in self._plan.images:
            progress = Progress()

            def take(event: Mapping[str, Any], progress: Progress = progress) -> None:
                self._go_on()
                self._heard_at = self._monotonic()
                progress.take(event)
                self._talk.message = progress.so_far().message

            if not is_there(api, image.without_tag):
                login = self._launch.login
                login = login if login is not None and login.is_for(image) else None
                self._heard_at = self._monotonic()
                try:
                    pull_image(api, image.without_tag, login, take)
                except docker.errors.APIError as exc:
                    raise pull_refusal(str(exc.explanation or exc), str(image)) from exc
                finally:
                    self._heard_at = None
        self._talk.message = "building image"

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Of all builds with these inputs whose processes share the folder."""
        folder = self._host.folder
        if folder is None:
            yield
            return
        with contextlib.closing(open_lock(folder, self._plan.inputs_sha256)) as lock:
            while not is_ours(lock):
                self._talk.message = "building image, for another job"
                self._go_on()
                self._end.wait(WATCH_S)
            self._talk.message = "building image"
            yield

    @contextlib.contextmanager
    def _context_file(self) -> Iterator[IO[bytes]]:
        """The whole tar, in a file that has no name."""
        with nameless_file(self._host.folder) as file:
            asyncio.run_coroutine_threadsafe(self._write_context(file), self._loop).result()
            with own_trouble(self._host.folder):
                file.seek(0)
            yield file

    async def _write_context(self, file: IO[bytes]) -> None:
        async with contextlib.aclosing(self._context()) as pieces:
            async for piece in pieces:
                self._go_on()
                with own_trouble(self._host.folder):
                    await asyncio.to_thread(file.write, piece)

    def _send(self, api: APIClient, context: IO[bytes], network: str) -> Failed | GpurunError | None:
        labels = {LABEL_INPUTS: self._plan.inputs_sha256}  # each is a step of the build
        limits = self._host.limits(api, self._launch.needs)
        query = query_of(self._plan, limits=limits, network=network, labels=labels)
        self._call = BuildCall(self._engine.socket_path, str(api.api_version))
        self._go_on()  # who ended it before this had nothing to stop
        self._began_at = self._monotonic()
        failed: Failed | GpurunError | None = None
        try:
            with contextlib.closing(self._call.events(query, context)) as events:
                for event in events:
                    self._go_on()
                    failed = failed or self._talk.take(event, limits)
        except NotBuilt as answer:
            return refused(answer)
        self._go_on()
        self._took_s = self._lasted()  # no limit ends what is built and only cleared up behind
        return failed

    def _go_on(self) -> None:
        """Raises _Ended when there is an outcome."""
        if self.is_over:
            raise _Ended

    def _name_parts(self, api: APIClient, *, failed: bool) -> None:
        for number, layer in enumerate(self._talk.unnamed_layers(failed=failed)):
            keep_part(api, layer, self._plan.image, str(number))


def _with_output(error: GpurunError, output: BuildOutput) -> GpurunError:
    match error:
        case ProviderRefused():
            told: GpurunError = BuildRefused(str(error), kind=error.kind, output=output)
        case Transient():
            told = BuildUnavailable(str(error), output=output)
        case _:
            return error
    told.__cause__ = error
    return told


def _connection_errors() -> tuple[type[Exception], ...]:
    return (http.client.HTTPException, *vendor_errors())
