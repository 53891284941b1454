"""`/agent/v1/*`: the agent protocol (`gpurun_agent.protocol`) as one raw ASGI application.

It only writes facts. Whatever follows from them is the engine's business; no request waits for the forge or a provider.
The same application answers on the server's port and on the Unix socket of each attempt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from starlette.types import Message, Receive, Scope, Send

from gpurun.http.agent_files import Artifacts, ModelFiles, serve_source
from gpurun.http.agent_layer import hear_of_layer
from gpurun.http.agent_session import claim, finish, report_phase, tell_masks
from gpurun.http.agent_streams import StreamAppends
from gpurun.http.asgi import ClientGone, Refusal, refuse
from gpurun.http.callers import refusal_of
from gpurun.http.services import HttpServices
from gpurun_agent import protocol

Handler = Callable[[Scope, Receive, Send, str], Awaitable[None]]
"""The last argument is what stands behind the route's word in the path, decoded."""

log = structlog.get_logger()


class AgentApi:
    """ASGI application."""

    def __init__(self, services: HttpServices) -> None:
        self.appends = appends = StreamAppends(services)
        models, artifacts = ModelFiles(services), Artifacts(services)

        async def serve_claim(scope: Scope, receive: Receive, send: Send, _: str) -> None:
            await claim(services, scope, receive, send)

        async def serve_phase(scope: Scope, receive: Receive, send: Send, _: str) -> None:
            await report_phase(services, scope, receive, send)

        async def serve_finish(scope: Scope, receive: Receive, send: Send, _: str) -> None:
            await finish(services, scope, receive, send)

        async def masks(scope: Scope, receive: Receive, send: Send, _: str) -> None:
            await tell_masks(services, scope, receive, send)

        async def layer(scope: Scope, receive: Receive, send: Send, _: str) -> None:
            await hear_of_layer(services, scope, receive, send)

        async def source(scope: Scope, receive: Receive, send: Send, rest: str) -> None:
            await serve_source(services, scope, receive, send, rest)

        self._routes: dict[str, tuple[str, Handler]] = {
            "claim": ("POST", serve_claim),
            "phase": ("POST", serve_phase),
            "finish": ("POST", serve_finish),
            "streams": ("PUT", appends),
            "masks": ("GET", masks),
            "source": ("GET", source),
            "layer": ("POST", layer),
            "models": ("GET", models),
            "artifacts": ("PUT", artifacts),
            "installed": ("PUT", artifacts.installed),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; errors of the protocol become its statuses."""
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._route(scope, receive, watched_send)
        except ClientGone:
            return
        except Exception as error:
            # The border of the route. An answer that has begun stays cut short, which the agent sees.
            refusal = refusal_of(error)
            if refusal is None:
                log.exception("agent_request_failed", path=scope["path"])
                refusal = Refusal(500, "The server failed; try again.")
            if not started:
                await refuse(send, refusal)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(protocol.PREFIX):
            raise Refusal(404, "There is nothing here.")
        word, _, rest = scope["path"].removeprefix(protocol.PREFIX).partition("/")
        if word not in self._routes:
            raise Refusal(404, "There is nothing here.")
        method, handler = self._routes[word]
        if scope["method"] != method:
            raise Refusal(405, f"This is {method} only.", headers=[(b"allow", method.encode())])
        await handler(scope, receive, send, rest)
