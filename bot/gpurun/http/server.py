"""The server's application: webhook, agent API, pages."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from gpurun.http.agent_api import AgentApi
from gpurun.http.pages import Pages
from gpurun.http.services import HttpServices
from gpurun.http.webhook import PATH, Webhook
from gpurun_agent import protocol


def build_app(services: HttpServices) -> ASGIApp:
    """One ASGI application; it holds no state that another process would miss."""
    pages = FastAPI(title="gpurun", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    pages.router.routes += Pages(services).routes()
    webhook = Webhook(store=services.store, clock=services.clock, secrets=services.webhook_secrets)
    return _Front(webhook, AgentApi(services), pages)


class _Front:
    """Webhook and agent API are raw and come before the framework: the first must see bytes before any parser does, the
    second moves megabytes, and neither needs what a framework costs for each request.
    """

    def __init__(self, webhook: ASGIApp, agent_api: ASGIApp, pages: ASGIApp) -> None:
        self._webhook = webhook
        self._agent_api = agent_api
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        await self._app_for(scope)(scope, receive, send)

    def _app_for(self, scope: Scope) -> ASGIApp:
        if scope["type"] != "http":
            return self._pages
        path: str = scope["path"]
        if path == PATH:
            return self._webhook
        return self._agent_api if path.startswith(protocol.PREFIX) else self._pages
