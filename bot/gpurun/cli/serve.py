"""`gpurun serve`: web, engine and publisher in one process."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import anyio
import structlog
import uvicorn
from starlette.types import ASGIApp

from gpurun.cli.environment import read_settings
from gpurun.cli.first_look import first_look
from gpurun.cli.logs import keep_out_of_log, log_as_json
from gpurun.cli.trouble import first_of_ours, tell
from gpurun.domain.errors import GpurunError, UserError
from gpurun.http.server import build_app
from gpurun.settings import Settings
from gpurun.wiring import open_server

GRACE_S = 5
"""For requests that are under way when the server is told to stop."""

log = structlog.get_logger()


def serve() -> int:
    """Until SIGTERM or SIGINT. Exit code 2: it could not start, and says why."""
    log_as_json()
    try:
        anyio.run(_serve, read_settings(), backend_options={"use_uvloop": True})
    except (GpurunError, BaseExceptionGroup) as error:
        ours = first_of_ours(error)
        if ours is None:
            raise
        tell("gpurun serve", ours)
        return 2
    return 0


async def _serve(settings: Settings) -> None:
    async with open_server(settings) as house:
        keep_out_of_log(house.hide)
        stop = anyio.Event()
        web = _Web(build_app(house.http), settings, install=house.install_id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on_signal, stop, web)
            tasks.start_soon(web.serve)
            tasks.start_soon(first_look, house.app, house.providers)
            await house.live(stop)
            await web.stopped.wait()
            tasks.cancel_scope.cancel()
        log.info("stopped")


async def _stop_on_signal(stop: anyio.Event, web: _Web) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("stopping", signal=number.name)
            stop.set()
            web.should_exit = True


def web_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """How uvicorn serves `app` here."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=GRACE_S,
    )


class _Web(uvicorn.Server):
    """uvicorn, with the signals left to us."""

    def __init__(self, app: ASGIApp, settings: Settings, *, install: str) -> None:
        super().__init__(web_config(app, settings))
        self.stopped = anyio.Event()
        self._install = install

    async def startup(self, sockets: None = None) -> None:  # type: ignore[override]
        """Tells once it listens."""
        await super().startup(sockets)
        if self.started:
            log.info("serving", address=f"http://{self.config.host}:{self.config.port}", install=self._install)

    async def serve(self, sockets: None = None) -> None:  # type: ignore[override]  # no sockets are handed in
        """Also tells when it has ended. Raises UserError when the address is taken."""
        try:
            await super().serve(sockets)
        except SystemExit as error:
            raise UserError(
                f"{self.config.host}:{self.config.port} cannot be listened on.",
                hint="Set GPURUN_PORT or GPURUN_HOST, or stop what listens there.",
            ) from error
        finally:
            self.stopped.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
