"""Every refusal says why, and who can help or what to type: a sentence without the second half is a wall."""

from __future__ import annotations

import inspect

import pytest

from gpurun.command.allow import may
from gpurun.command.parse import parse
from gpurun.domain.approval import Approval
from gpurun.domain.command import Approve, Cancel, Revoke, RunJob
from gpurun.domain.config import Job, PermissionKeys, PolicyKeys, SecretRule, UntrustedKeys
from gpurun.domain.errors import CommandError, NotByPolicy, PinNotFound, UserError
from gpurun.domain.forge import RepoRef
from gpurun.domain.gate import Pause
from gpurun.domain.ids import CommitSha, JobName, RepoName
from gpurun.domain.plan import ModelSpec
from gpurun.domain.right import Right, Role
from gpurun.flow import look
from gpurun.plan.policy import no_place, not_open, require_allowed
from gpurun.report import reply
from gpurun.run.trust import NO_SECRETS
from tests.unit.report.situations import START

SHA = CommitSha("4f0c" * 10)


def denied(command, keys=None):
    said = may(command, frozenset(), keys or PermissionKeys(), own_run=False)
    assert said is not None
    return reply.error(said)


def told(fault: UserError) -> str:
    return reply.error(fault)


def refused(job: Job, policy: PolicyKeys) -> str:
    with pytest.raises(NotByPolicy) as caught:
        require_allowed(job, JobName("smoke"), policy)
    return told(caught.value)


def a_job(**more) -> Job:
    return Job(run="x", image="docker.io/library/python:3.12", **more)


def unreadable_permissions() -> str:
    _, fault = look._permissions("version: 1\npermissions: {run: nobody}\n")
    assert fault is not None
    return told(fault)


PAUSE = Pause(
    id="p", repo=RepoRef(installation_id=1, name=RepoName("acme/train"), id=7), reason="moving", by="dora", at=START
)
CLOSED = PinNotFound("It is not there.")
MODEL = ModelSpec(id="acme/net", revision="0" * 40)
REFUSALS = {
    # name: (what is said, why, who can help or what to type)
    "run": (denied(RunJob("smoke", "")), "is for people with write access", "Ask one of them to write the command"),
    "run, by another role": (
        denied(RunJob("smoke", ""), PermissionKeys(run=Role.MAINTAIN)),
        "is for people with the role maintain",
        "Ask one of them",
    ),
    "cancel": (denied(Cancel(None, "")), "people with write access, and whoever started the run", "Ask one of them"),
    "approve": (denied(Approve(SHA, None)), "is for people with the role maintain", "Ask one of them"),
    "approve, by name": (
        denied(Approve(SHA, None), PermissionKeys(users={"ann": Right.APPROVE})),
        "is for people with the role maintain, and those whom `permissions` names",
        "Ask one of them",
    ),
    "revoke": (denied(Revoke()), "is for people with the role maintain", "Ask one of them"),
    "closed": (reply.closed(), "is closed", "can reopen it"),
    "another head": (reply.another_head(SHA, "0" * 40), "is not the head", "Whoever approves looks at that commit"),
    "gave up": (reply.gave_up(), "did not answer several times", "whoever runs gpurun finds the reason in its log"),
    "not allowed to look": (reply.not_allowed_to_look(), "did not let gpurun read", "an owner of this account"),
    "not by comment": (reply.not_by_comment("smoke"), "`comment: false`", "`gpurun run smoke` runs it"),
    "no file": (reply.no_file("sub"), "There is no `sub/.gpurun.yml`", "at the head of this pull request"),
    "unknown job": (
        reply.unknown_job("smok", [reply.Place(folder="", jobs=("smoke",))], "/gpurun smoke", all_seen=True),
        "There is no job",
        "`/gpurun smoke`",
    ),
    "which folder": (reply.which_folder(["/gpurun x path=a"]), "Several folders", "Write `/gpurun x path=a`"),
    "nothing to cancel": (reply.nothing_to_cancel("smoke"), "No run of `smoke`", "is going on for this pull request"),
    "nothing to revoke": (reply.nothing_to_revoke(), "No approval is in force", "a push or a close ends one"),
    "permissions that nobody can read": (unreadable_permissions(), "cannot be read", "Who may merge there"),
    "a secret of another job": (
        refused(a_job(secrets=("TOKEN",)), PolicyKeys(secrets={"TOKEN": SecretRule(jobs=("train",))})),
        "may not use the secret",
        "who may merge there can change it",
    ),
    "an image": (refused(a_job(), PolicyKeys(images=("ghcr.io/acme/*",))), "is not allowed", "who may merge there"),
    "a place": (
        told(no_place(PolicyKeys(untrusted=UntrustedKeys(providers=())), ())),
        "runs on none of the providers",
        "who may merge there",
    ),
    "the bot's own machine": (
        told(no_place(PolicyKeys(), ("docker",))),
        "machine of the bot",
        "Whoever runs this server",
    ),
    "a private model": (
        told(not_open(MODEL, CLOSED, gated_too=True)),
        "is private, or is not there",
        "Somebody with write access can open a pull request",
    ),
    "a gated model": (
        told(not_open(MODEL, CLOSED, gated_too=False)),
        "is gated or private",
        "`policy: {untrusted: {gated_models: true}}` on the default branch",
    ),
    "not the head": (reply.not_the_head("1234567", SHA), "is not the head", "Look at that commit"),
    "provider not allowed": (
        reply.provider_not_allowed("vast", ("docker",)),
        "does not allow",
        "who may merge there can change that",
    ),
    "paused": (reply.paused(PAUSE), "is paused by `dora`", "`/gpurun resume`"),
    "not paused": (reply.not_paused(), "is not paused", "`/gpurun status`"),
    "nothing to retry": (reply.nothing_to_retry("smoke", SHA), "No run of `smoke` ran", "`/gpurun list`"),
    "none worth a retry": (reply.none_worth_a_retry([]), "Nothing failed", "`/gpurun retry all`"),
    "no run": (reply.no_run("smoke"), "is known for this pull request", "`/gpurun list`"),
    "one log": (reply.one_log(), "the log of one run", "in another comment"),
    "nothing overridden": (reply.nothing_overridden("smoke"), "is not overridden", "a push ends every override"),
    "not required": (reply.not_required("smoke", ""), "No merge needs a job", "`/gpurun list`"),
    "moved on": (reply.moved_on(SHA, "0" * 40), "is of `4f0c4f0c4f0c`", "Press the button at a check of the head"),
    "over": (reply.over(), "had ended already", "so there was nothing to cancel"),
    "nothing to run again": (reply.nothing_to_run_again(), "has passed, goes on", "by its own command"),
    "nothing could be read": (reply.nothing_could_be_read(), "did not let gpurun read", "an owner of this account"),
    "secrets": (NO_SECRETS, "gets no secrets", "Somebody with write access can open a pull request"),
}
NO_REFUSALS = {
    *("join", "error", "approved", "approved_before", "revoked", "joined", "pause_begun", "pause_ended"),
    *("all_stopped", "overridden", "override_ended", "to_a_press"),
}
"""Of `reply`: how answers are put together, and what was done."""


@pytest.mark.parametrize("name", REFUSALS)
def test_it_says_why_and_who_can_help(name):
    said, why, help_ = REFUSALS[name]
    assert why in said
    assert help_ in said
    assert said.rstrip("`").endswith((".", ")"))


def test_every_answer_of_the_bot_is_among_them():
    answers = {name for name, one in inspect.getmembers(reply, inspect.isfunction) if one.__module__ == reply.__name__}
    listed = {name.replace(" ", "_") for name in REFUSALS} | NO_REFUSALS
    assert {name for name in answers if not name.startswith("_")} <= listed


@pytest.mark.parametrize("line", [
    "/gpurun run", "/gpurun smoke foo", "/gpurun smoke path=../x", "/gpurun approve", "/gpurun approve sha=12",
    "/gpurun smoke nonsense=1", "/gpurun Smoke!", "/gpurun smoke,train", "/gpurun <job>", "/gpurun smoke --gpu",
])  # fmt: skip
def test_what_is_not_understood_comes_with_what_to_type(line):
    (fault,) = parse(line)
    assert isinstance(fault, CommandError)
    said = f"{fault.message} {fault.hint}"
    assert any(word in said for word in ("Write", "shows", "Did you mean", "`/gpurun ", "path=", "not in this version"))


def test_an_approval_is_told_with_its_ceiling():
    approval = Approval(
        id="a", repo=RepoRef(installation_id=1, name=RepoName("o/r"), id=1), pr=1, sha=SHA, max_usd_micro=1_000_000,
        by="carol", at=START, asked_at=START,
    )  # fmt: skip
    assert "for at most $1.00 a run" in reply.approved(approval, needed=True)
