import pytest

from gpurun.command.allow import may
from gpurun.domain.command import Cancel, Help, RunJob
from gpurun.domain.errors import NotAllowed
from gpurun.domain.forge import Permission

NOBODY = Permission(push=False, maintain=False, admin=False)
WRITER = Permission(push=True, maintain=False, admin=False)


@pytest.mark.parametrize(
    ("command", "permission", "is_fork", "own_run", "allowed"),
    [
        (Help(), NOBODY, True, False, True),
        (RunJob("smoke"), WRITER, False, False, True),
        (RunJob("smoke"), NOBODY, False, False, False),
        (RunJob("smoke"), NOBODY, False, True, False),
        (RunJob("smoke"), WRITER, True, False, False),
        (RunJob("smoke"), NOBODY, True, True, False),
        (Cancel(), WRITER, False, False, True),
        (Cancel(), NOBODY, False, False, False),
        (Cancel(), NOBODY, False, True, True),
        (Cancel(), NOBODY, True, True, True),
        (Cancel("smoke"), WRITER, True, False, True),
    ],
)
def test_who_may(command, permission, is_fork, own_run, allowed):
    answer = may(command, permission, is_fork=is_fork, own_run=own_run)
    assert (answer is None) is allowed


def test_without_write_the_answer_says_who_can():
    answer = may(RunJob("smoke"), NOBODY, is_fork=True, own_run=False)
    assert isinstance(answer, NotAllowed)
    assert answer.message == "`/gpurun smoke` is for people with write access."
    assert "write access" in answer.hint


def test_a_fork_is_told_that_approvals_are_not_there_yet():
    answer = may(RunJob("smoke"), WRITER, is_fork=True, own_run=False)
    assert isinstance(answer, NotAllowed)
    assert "approvals are not in this version" in answer.message


@pytest.mark.parametrize("right", ["maintain", "admin"])
def test_only_push_counts_as_write(right):
    """GitHub sets `push` too for both; a record without it is not trusted."""
    permission = Permission(**({"push": False, "maintain": False, "admin": False} | {right: True}))
    assert may(RunJob("smoke"), permission, is_fork=False, own_run=False) is not None
