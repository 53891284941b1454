"""The server's application: webhook, agent API, pages."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.routing import Mount, Route

from gpurun.http.agent_api import AgentApi
from gpurun.http.pages import Pages
from gpurun.http.services import HttpServices
from gpurun.http.webhook import Webhook


def build_app(services: HttpServices) -> FastAPI:
    """One ASGI application; it holds no state that another process would miss.

    Webhook and agent API are raw routes: the first must see bytes before any parser does, the second moves megabytes.
    """
    app = FastAPI(title="gpurun", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    webhook = Webhook(store=services.store, clock=services.clock, secrets=services.webhook_secrets)
    app.router.routes += [
        Route("/github", webhook),
        Mount("/agent/v1", AgentApi(services)),
        *Pages(services).routes(),
    ]
    return app
