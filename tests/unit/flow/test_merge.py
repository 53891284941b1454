"""`checkout: {ref: merge}`: which commit it is, and when there is none."""

from __future__ import annotations

import pytest

from gpurun.domain.errors import ForgeUnavailable, PinNotFound
from gpurun.domain.ids import CommitSha
from gpurun.domain.source import Merge
from gpurun.flow.commit import find_merge
from gpurun.flow.planning import merge_note
from tests.fakes.parts import SourceOnlyForge
from tests.fakes.rows import SHA, a_pull, a_run

MERGE, OTHER = CommitSha("e" * 40), CommitSha("f" * 40)


class Services:
    def __init__(self, **changes):
        self.forge = SourceOnlyForge(pull=a_pull(**{"merge_sha": MERGE, **changes}))


async def test_the_merge_commit_of_the_pull_request_as_it_is():
    assert await find_merge(Services(), a_run()) == Merge(commit=MERGE)


async def test_without_a_pull_request_it_is_the_commit_itself():
    assert await find_merge(Services(), a_run(pr=None)) == Merge(commit=SHA)


async def test_while_github_finds_out_the_run_waits():
    with pytest.raises(ForgeUnavailable) as caught:
        await find_merge(Services(mergeable=None, merge_sha=OTHER), a_run())
    assert caught.value.retry_after_s == 5


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"head_sha": OTHER}, "is at ffffffffffff now, so nobody can merge cccccccccccc any more"),
        ({"mergeable": False}, "cannot be merged into main"),
        ({"merge_sha": None}, "cannot be merged into main"),
        ({"mergeable": None, "open": False}, "cannot be merged into main"),
    ],
)
async def test_what_cannot_be_merged_is_refused(changes, told):
    with pytest.raises(PinNotFound, match=told):
        await find_merge(Services(**changes), a_run())


def test_the_run_says_which_commits_it_has():
    told = merge_note(SHA, Merge(commit=MERGE, base=OTHER))
    assert told == "It runs eeeeeeeeeeee, the merge of cccccccccccc and ffffffffffff of the base branch."
