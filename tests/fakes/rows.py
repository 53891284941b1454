"""Rows for tests: everything that a test does not name has a plain value."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from gpurun.domain.forge import PullRequest, RepoRef
from gpurun.domain.ids import BranchName, CommitSha, ImageRef, JobName, RepoName, TreeSha
from gpurun.domain.offer import Offer
from gpurun.domain.plan import Plan
from gpurun.domain.run import Attempt, ProviderAccount, Run
from tests.fakes.clock import START

SHA = CommitSha("c" * 40)
TREE = TreeSha("7" * 40)
IMAGE = ImageRef("registry.example/app@sha256:" + "a" * 64)
REPO = RepoRef(installation_id=1, name=RepoName("octo/app"), id=7)
OFFER = Offer(
    provider="fake", id="big", label="Big GPU (fake)", usd_per_hour_micro=1_000_000, declared=False, boot_timeout_s=600
)
PLAN = Plan(
    repo=REPO.name, commit=SHA, tree=TREE, job=JobName("smoke"), image=IMAGE, run="python smoke.py", max_duration_s=1800
)
_RUN = Run(
    id="01kdrun0000000000000000001",
    repo=REPO,
    pr=1,
    job=JobName("smoke"),
    sha=SHA,
    who="ada",
    why="comment",
    created_at=START,
    read_key="k" * 22,
    config_text="version: 1\n",
    state_since=START,
    due_at=START,
)
_PULL = PullRequest(
    number=1,
    open=True,
    draft=False,
    head_sha=SHA,
    head_repo=REPO.name,
    base_sha=CommitSha("9" * 40),
    base_ref="main",
    author="ada",
    title="t",
    default_branch=BranchName("main"),
    mergeable=True,
)
_ATTEMPT = Attempt(
    id="01kdattempt000000000000001",
    run_id=_RUN.id,
    number=1,
    offer=OFFER,
    name="gpurun-a1b2c3d4-01kdattempt000000000000001-abc",
    claim_sha256="0" * 64,
    created_at=START,
    hard_deadline=START + timedelta(hours=2),
    state_since=START,
    due_at=START,
)


def a_run(**changes: Any) -> Run:
    """A run of `smoke` on pull request 1, in planning unless `changes` say otherwise."""
    return replace(_RUN, **changes)


def a_pull(**changes: Any) -> PullRequest:
    """Pull request 1 as GitHub shows it: open, at `SHA`, and without conflicts."""
    return replace(_PULL, **changes)


def an_attempt(**changes: Any) -> Attempt:
    """The first attempt of `a_run`, just chosen."""
    return replace(_ATTEMPT, **changes)


def an_account(**changes: Any) -> ProviderAccount:
    """The account of the provider `fake`, listed just now."""
    return replace(ProviderAccount(provider="fake", due_at=START, list_ok_at=START), **changes)
