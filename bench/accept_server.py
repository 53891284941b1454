"""`python -m bench.accept_server bare|gpurun PORT FOLDER`: the two servers of `bench.accept`, as processes.

`gpurun` is the web side of `gpurun serve`, with SQLite in FOLDER. Its worker does not run: what is measured is the
request, not what is done with it afterwards.
"""

from __future__ import annotations

import hashlib
import hmac
import sys
from pathlib import Path

import anyio
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import SecretStr
from starlette.types import Receive, Scope, Send

from bench.deliveries import SECRET
from gpurun.cli.serve import web_config
from gpurun.http.server import build_app
from gpurun.settings import Settings
from gpurun.wiring import open_server

_KEY = SECRET.encode()


async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body, checks its signature, answers 202."""
    assert scope["type"] == "http"
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            break
    signature = dict(scope["headers"])[b"x-hub-signature-256"]
    expected = b"sha256=" + hmac.new(_KEY, body, hashlib.sha256).hexdigest().encode()
    status = 202 if hmac.compare_digest(signature, expected) else 401
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"9")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"Accepted\n"})


async def serve(which: str, port: int, folder: Path) -> None:
    """For ever."""
    settings = settings_of(port, folder)
    if which == "bare":
        await uvicorn.Server(web_config(bare, settings)).serve()
    else:
        async with open_server(settings) as house:
            await uvicorn.Server(web_config(build_app(house.http), settings)).serve()


def settings_of(port: int, folder: Path) -> Settings:
    """Of a server that asks nobody anything."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Settings(
        state_dir=folder,
        port=port,
        github_app_id=1,
        github_private_key=SecretStr(pem.decode()),
        webhook_secret=SecretStr(SECRET),
    )


if __name__ == "__main__":
    anyio.run(serve, sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), backend_options={"use_uvloop": True})
