import pytest

from gpurun.command.allow import may, rights_of, who_may
from gpurun.command.grammar import Who
from gpurun.domain.command import (
    Approve,
    Cancel,
    CancelOverride,
    Help,
    ListJobs,
    Logs,
    OverrideJob,
    PauseRepo,
    ResumeRepo,
    Retry,
    Revoke,
    RunJob,
    Status,
    StopAll,
)
from gpurun.domain.config import PermissionKeys
from gpurun.domain.errors import NotAllowed
from gpurun.domain.forge import Permission
from gpurun.domain.ids import CommitSha
from gpurun.domain.right import Right
from gpurun.plan.load import permissions_of

NOBODY = Permission(push=False, maintain=False, admin=False)
WRITER = Permission(push=True, maintain=False, admin=False)
MAINTAINER = Permission(push=True, maintain=True, admin=False)
ADMIN = Permission(push=True, maintain=True, admin=True)
APPROVE = Approve(CommitSha("a" * 40))
DEFAULT = PermissionKeys()
RUN_ONLY, TO_APPROVE, ALL = (right.includes for right in Right)


def keys(text):
    return permissions_of(f"permissions: {text}")


@pytest.mark.parametrize(
    ("command", "rights", "own_run", "allowed"),
    [
        (Help(), frozenset(), False, True),
        (RunJob("smoke"), RUN_ONLY, False, True),
        (RunJob("smoke"), frozenset(), False, False),
        (RunJob("smoke"), frozenset(), True, False),
        (Cancel(), RUN_ONLY, False, True),
        (Cancel(), frozenset(), False, False),
        (Cancel(), frozenset(), True, True),
        (APPROVE, RUN_ONLY, False, False),
        (APPROVE, RUN_ONLY, True, False),
        (APPROVE, TO_APPROVE, False, True),
        (Revoke(), RUN_ONLY, True, False),
        (Revoke(), TO_APPROVE, False, True),
        (APPROVE, ALL, False, True),
        (RunJob("smoke"), ALL, False, True),
        (ListJobs(), frozenset(), False, True),
        (Status(), frozenset(), False, True),
        (Logs(), frozenset(), False, True),
        (Retry(), RUN_ONLY, False, True),
        (Retry(every=True), frozenset(), False, False),
        (Retry(), frozenset(), True, True),
        (OverrideJob("smoke", "x"), RUN_ONLY, True, False),
        (OverrideJob("smoke", "x"), TO_APPROVE, False, True),
        (CancelOverride(), RUN_ONLY, True, False),
        (CancelOverride(), TO_APPROVE, False, True),
        (PauseRepo("x"), TO_APPROVE, True, False),
        (PauseRepo("x"), ALL, False, True),
        (ResumeRepo(), TO_APPROVE, True, False),
        (ResumeRepo(), ALL, False, True),
        (StopAll(), TO_APPROVE, True, False),
        (StopAll(), ALL, False, True),
    ],
)
def test_who_may(command, rights, own_run, allowed):
    assert (may(command, rights, DEFAULT, own_run=own_run) is None) is allowed


@pytest.mark.parametrize(
    ("permission", "text", "rights"),
    [
        (NOBODY, "{}", set()),
        (WRITER, "{}", {"run"}),
        (MAINTAINER, "{}", {"run", "approve"}),
        (ADMIN, "{}", {"run", "approve", "admin"}),
        (WRITER, "{run: maintain}", set()),
        (MAINTAINER, "{run: maintain, approve: admin}", {"run"}),
        (WRITER, "{approve: write}", {"run", "approve"}),
        (NOBODY, "{users: {ann: run}}", {"run"}),
        (NOBODY, "{users: {Ann: approve}}", {"run", "approve"}),
        (NOBODY, "{users: {bob: admin}}", set()),
        (WRITER, "{run: admin, users: {ann: run}}", {"run"}),
    ],
)
def test_rights_are_of_a_role_or_of_a_name(permission, text, rights):
    assert rights_of("aNN", permission, keys(text)) == rights


@pytest.mark.parametrize("right", ["maintain", "admin"])
def test_only_push_counts_as_write(right):
    """GitHub sets `push` too for both; a record without it is not trusted to run."""
    permission = Permission(**({"push": False, "maintain": False, "admin": False} | {right: True}))
    assert rights_of("ann", permission, keys("{approve: write, admin: write}")) == set()


def test_without_the_right_the_answer_says_who_can():
    answer = may(RunJob("smoke"), frozenset(), DEFAULT, own_run=False)
    assert isinstance(answer, NotAllowed)
    assert answer.message == "`/gpurun smoke` is for people with write access."
    assert answer.hint == "Ask one of them to write the command."
    answer = may(Revoke(), RUN_ONLY, keys("{users: {ann: approve}}"), own_run=False)
    assert isinstance(answer, NotAllowed)
    assert (
        answer.message == "`/gpurun revoke` is for people with the role maintain, and those whom `permissions` names."
    )


def test_who_may_in_words():
    assert who_may(Who.ANYONE, DEFAULT) == "anyone"
    assert who_may(Who.OWN_RUN, keys("{run: admin}")) == "people with the role admin, and whoever started the run"
