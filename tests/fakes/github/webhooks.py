"""Deliveries: made and signed when something happens, sent as often as asked."""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import httpx

from tests.fakes.github import payloads
from tests.fakes.github.state import HookRecord, Installation, Repo, SentHook

if TYPE_CHECKING:
    from tests.fakes.github.fake import FakeGitHub

TIMEOUT_S = 10.0
"""GitHub counts a delivery as failed after that."""


def make(
    github: FakeGitHub,
    event: str,
    action: str,
    repo: Repo | None,
    installation: Installation,
    payload: Mapping[str, Any],
) -> SentHook:
    """The bytes are fixed now: a later change of the state does not show in them."""
    full = {
        **payload,
        **({"repository": payloads.repo(github, repo)} if repo else {}),
        "installation": {"id": installation.id, "node_id": f"MDIzOk{installation.id}"},
    }
    body = json.dumps(full, ensure_ascii=False).encode()
    guid = str(uuid.UUID(int=github.random.getrandbits(128), version=4))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "GitHub-Hookshot/fake",
        "X-GitHub-Hook-ID": "512000001",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": guid,
        "X-GitHub-Hook-Installation-Target-Type": "integration",
        "X-GitHub-Hook-Installation-Target-ID": str(github.app.id),
    }
    return SentHook(
        guid=guid,
        event=event,
        action=action,
        body=body,
        headers=headers,
        made_at=github.clock.now(),
        installation_id=installation.id,
        repo_id=repo.id if repo else None,
    )


def signature(secret: str, body: bytes) -> str:
    """`X-Hub-Signature-256`: over the raw bytes."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


async def send(github: FakeGitHub, hook: SentHook) -> int:
    """One try. Returns the status, 0 when nobody answered in time."""
    status, at = 0, github.clock.now()
    if not github.hook_down:
        assert github.hook_url, "nobody said where deliveries go: set github.hook_url"
        headers = {
            **hook.headers,
            "X-Hub-Signature-256": signature(github.app.webhook_secret.get_secret_value(), hook.body),
        }
        async with httpx.AsyncClient(transport=github.hook_transport, timeout=TIMEOUT_S, trust_env=False) as client:
            try:
                status = (await client.post(github.hook_url, content=hook.body, headers=headers)).status_code
            except httpx.TransportError:
                status = 0
    hook.statuses.append(status)
    record = HookRecord(id=github.new_id(), hook=hook, at=at, status=status, again=len(hook.statuses) > 1)
    github.records.append(record)
    github.touch()
    return status
