"""Values to put into rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gpurun.domain.delivery import Delivery
from gpurun.domain.forge import RepoRef
from gpurun.domain.gate import Gate
from gpurun.domain.ids import CommitSha, JobName, RepoName
from gpurun.domain.offer import Offer
from gpurun.domain.publication import Publication, PublicationKind
from gpurun.domain.run import Attempt, Run, Stray, StrayState
from gpurun.ports.store import Kind
from tests.fakes.clock import START

REPO = RepoRef(installation_id=7, name=RepoName("octo/models"), id=70)
SHA = CommitSha("a" * 40)
LEASE = timedelta(seconds=75)


def a_delivery(guid="guid-1", **changes):
    delivery = Delivery(
        guid=guid,
        event="issue_comment",
        action="created",
        installation_id=7,
        repo="octo/models",
        number=1,
        body=b'{"comment": {}}',
        received_at=START,
    )
    return replace(delivery, **changes)


def a_run(id="run-1", **changes):
    run = Run(
        id=id,
        repo=REPO,
        pr=1,
        job=JobName("smoke"),
        sha=SHA,
        who="ada",
        why="comment",
        comment_id=900,
        created_at=START,
        read_key="key",
        config_text="version: 1\n",
        state_since=START,
        due_at=START,
    )
    return replace(run, **changes)


def an_attempt(id="attempt-1", **changes):
    offer = Offer(provider="docker", id="local", label="local Docker", usd_per_hour_micro=0, declared=True)
    attempt = Attempt(
        id=id,
        run_id="run-1",
        number=1,
        offer=offer,
        name=f"gpurun-abcdefgh-{id}-zz",
        claim_sha256="c" * 64,
        created_at=START,
        hard_deadline=START + timedelta(hours=1),
        state_since=START,
        due_at=START,
    )
    return replace(attempt, **changes)


def a_publication(id="publication-1", **changes):
    publication = Publication(
        id=id,
        kind=PublicationKind.CHECK,
        repo=REPO,
        pr=1,
        run_id="run-1",
        text="",
        comment_id=0,
        nonce=f"nonce-{id}",
        created_at=START,
        due_at=START,
    )
    return replace(publication, **changes)


def a_gate(id="gate-1", **changes):
    return replace(Gate(id=id, repo=REPO, pr=1, sha=SHA, base_ref="main", created_at=START, due_at=START), **changes)


def a_stray(id="stray-1", **changes):
    stray = Stray(
        id=id,
        provider="docker",
        ref="container-1",
        name="gpurun-abcdefgh-x-zz",
        first_seen=START,
        state=StrayState.SEEN,
        due_at=START,
    )
    return replace(stray, **changes)


async def claim(store, kind: Kind, *, limit=10, token="token-1"):
    return await store.write(lambda tx: tx.claim(kind, limit=limit, token=token, length=LEASE))


async def claim_one(store, kind: Kind, *, token="token-1"):
    (lease,) = await claim(store, kind, token=token)
    return lease
