"""What GitHub allows an installation: kept to, waited for, and no other installation notices."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpurun.domain.run import Verdict
from gpurun.flow import failpoints
from tests.unit.flow.town import CONFIG, Town, open_town

COMMENTS = "/repos/{}/{}/issues/{}/comments"
COMMENT = "/repos/{}/{}/issues/comments/{}"
CHECKS = "/repos/{}/{}/check-runs"
one_database = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance) as town:
        yield town
    failpoints.disarm()


def asked(town: Town, since: int = 0):
    """Requests of the API, tokens apart."""
    return [one for one in town.github.requests[since:] if not one.path.endswith("/access_tokens")]


async def ends_well(town: Town) -> None:
    (run,) = await town.runs()
    await town.end(run, Verdict.PASSED)
    for _ in range(8):
        await town.later(minutes=2)
    assert [("passed" in one.body) for one in town.comments()] == [True]
    assert [one.conclusion for one in town.github.checks(town.repo)] == ["success"]


# a limit on what intake asks


@pytest.mark.parametrize("primary", [True, False])
async def test_a_command_waits_for_the_end_of_a_limit_and_is_no_poison(town: Town, primary: bool):
    if primary:
        town.github.exhaust_rate_limit(reset_in_s=3000)
    else:
        town.github.fail_next("GET", COMMENT, status=429, headers={"retry-after": "3000"})
    await town.says("/gpurun smoke")
    before = len(town.github.requests)
    for _ in range(40):
        await town.later(minutes=1)
    assert asked(town, before) == []
    assert await town.runs() == ()
    await town.later(minutes=11)
    assert len(await town.runs()) == 1
    await ends_well(town)


@one_database
async def test_a_limit_without_a_time_is_waited_for_longer_and_longer(town: Town):
    words = {"message": "You have exceeded a secondary rate limit."}
    town.github.fail_next("GET", COMMENT, status=403, body=words, times=6)
    await town.says("/gpurun smoke")
    tries = []
    for minute in range(60):
        before = len(town.github.requests)
        await town.later(minutes=1)
        tries += [minute + 1] if asked(town, before) else []
    assert tries[:6] == [1, 3, 7, 15, 30, 45]  # 1, 2, 4, 8, 15, 15 minutes apart
    await ends_well(town)
    town.github.fail_next("PATCH", COMMENT, status=403, body=words)
    await town.progress((await town.runs())[0])  # after a success it starts at a minute again


@one_database
async def test_a_limit_that_names_the_year_2300_is_an_hour(town: Town):
    town.github.fail_next("GET", COMMENT, status=429, headers={"retry-after": "9999999999"})
    await town.says("/gpurun smoke")
    await town.later(minutes=59)
    assert await town.runs() == ()
    await town.later(minutes=2)
    assert len(await town.runs()) == 1


@one_database
@pytest.mark.parametrize("says", ["retry-after", "words"])
@pytest.mark.parametrize("status", [403, 429])
async def test_real_buckets_that_are_empty_are_waited_for(town: Town, says: str, status: int):
    """Somebody else writes with the same installation: 500 an hour are used up, and we cannot know."""
    limits = town.github.limits
    limits.secondary_says, limits.secondary_status = says, status
    for minute in range(10):
        for _ in range(50):
            limits.spend(town.repo.installation_id, "POST")
        if minute < 9:
            town.clock.advance(minutes=1)
    await town.says("/gpurun smoke")
    for _ in range(40):
        await town.later(minutes=3)
    assert limits.secondary_hits > 0
    assert limits.banned == set()
    await ends_well(town)


# answers of every kind


@pytest.mark.parametrize("target", [COMMENTS, CHECKS])
async def test_an_answer_that_breaks_off_is_looked_for(town: Town, target: str):
    town.github.cut_next("POST", target)
    await town.says("/gpurun smoke")
    await ends_well(town)


@one_database
@pytest.mark.parametrize("after_doing", [True, False])
@pytest.mark.parametrize("target", [COMMENTS, CHECKS])
async def test_a_page_of_html_is_no_answer(town: Town, target: str, after_doing: bool):
    town.github.fail_next("POST", target, status=200, body="<html>Unicorn!</html>", after_doing=after_doing)
    await town.says("/gpurun smoke")
    await ends_well(town)


@one_database
@pytest.mark.parametrize("status", [404, 410, 451])
async def test_what_is_gone_is_let_go(town: Town, status: int):
    await town.says("/gpurun smoke")
    town.github.fail_next("PATCH", CHECKS + "/{}", status=status)
    (run,) = await town.runs()
    await town.end(run, Verdict.PASSED)
    await town.settle()
    before = len(town.github.requests)
    await town.later(hours=2)
    assert asked(town, before) == []
    assert "passed" in town.comments()[0].body


@one_database
async def test_a_token_that_ends_in_mid_run_is_renewed_once(town: Town):
    await town.says("/gpurun smoke")
    town.github.revoke_tokens()
    before = len(town.github.requests)
    await ends_well(town)
    assert [one.status for one in town.github.requests[before:] if one.path.endswith("/access_tokens")] == [201]


async def test_a_comment_whose_answer_was_lost_is_found_behind_three_hundred_others(town: Town, monkeypatch):
    """They came in the same second, before it."""
    create = town.forge.create_comment

    async def lost(repo, pr, body):
        monkeypatch.setattr(town.forge, "create_comment", create)
        for number in range(300):
            town.bob.comment(town.pull, f"me first {number}")
        town.github.queued.clear()
        town.github.time_out_next("POST", COMMENTS, after_doing=True)
        return await create(repo, pr, body)

    monkeypatch.setattr(town.forge, "create_comment", lost)
    await town.says("/gpurun smoke")
    await ends_well(town)
    looks = [one for one in town.github.requests if one.method == "GET" and one.path.endswith("/comments")]
    assert len(looks) == 4


# suspension


async def test_b027_one_suspended_installation_does_not_disturb_another(town: Town):
    other = town.github.create_repo("globex/train")
    other.grant("alice", "write")
    theirs = town.alice.open_pull_request(other, branch="smoke", files={".gpurun.yml": CONFIG})
    await town.says("/gpurun smoke")
    town.github.suspend(town.repo)
    (run,) = await town.runs()
    await town.end(run, Verdict.PASSED)
    await town.settle()
    before = len(town.github.requests)
    await town.says("/gpurun smoke", on=theirs)
    assert len(town.comments(theirs)) == 1
    for _ in range(60):
        await town.later(minutes=1)
    wasted = [one for one in town.github.requests[before:] if one.status == 403]
    assert len(wasted) <= 8  # after 1, 2, 4, 8, 15, 15 … minutes
    town.github.unsuspend(town.repo)
    await town.settle()  # at once
    assert "passed" in town.comments()[0].body
    assert [one.conclusion for one in town.github.checks(town.repo)] == ["success"]


@one_database
async def test_a_command_that_came_before_the_suspension_is_carried_out_after_it(town: Town):
    town.alice.comment(town.pull, "/gpurun smoke")
    await town.github.deliver()
    town.github.suspend(town.repo, told=False)
    await town.settle()
    await town.later(hours=2)
    assert await town.runs() == ()
    town.github.unsuspend(town.repo)
    await town.settle()
    assert len(await town.runs()) == 1


@one_database
async def test_a_command_that_waited_for_days_is_answered_and_not_carried_out(town: Town):
    town.alice.comment(town.pull, "/gpurun smoke")
    await town.github.deliver()
    town.github.suspend(town.repo, told=False)
    for _ in range(60):
        await town.later(hours=1)
    town.github.unsuspend(town.repo)
    await town.settle()
    assert await town.runs() == ()
    assert ["did not let gpurun read" in one.body for one in town.comments()] == [True]


@one_database
async def test_an_end_of_the_suspension_that_nobody_told_is_found_out(town: Town):
    await town.says("/gpurun smoke")
    town.github.suspend(town.repo)
    (run,) = await town.runs()
    await town.end(run, Verdict.PASSED)
    await town.later(hours=3)
    town.github.unsuspend(town.repo, told=False)
    await town.later(minutes=15)
    await town.later(seconds=1)
    assert "passed" in town.comments()[0].body


# people without write access


async def test_a_reader_gets_five_answers_an_hour_then_one_thumb_and_then_nothing(town: Town):
    lines = ("smoke", "help", "nonsense", "cancel", "smoke", "smoke", "help", "smoke")
    asked = []
    for line in lines:
        asked.append(await town.says(f"/gpurun {line}", by="bob"))
        await town.later(minutes=1)
    assert [town.reactions(one) for one in asked] == [["eyes"]] * 5 + [["-1"], [], []]
    assert len(town.comments()) == 5
    await town.says("/gpurun smoke", by="carol")
    assert len(town.comments()) == 6
    await town.later(minutes=61)
    await town.says("/gpurun smoke", by="bob")
    assert len(town.comments()) == 7
    assert await town.runs() == ()


@one_database
async def test_who_makes_our_calls_fail_gets_no_more_words_than_others(town: Town):
    """What somebody may do is not known when GitHub lets nobody look."""
    town.github.fail_next("GET", COMMENT, status=403, times=8)
    for _ in range(8):
        await town.says("/gpurun smoke", by="bob")
        await town.later(minutes=1)
    assert ["did not let gpurun read" in one.body for one in town.comments()] == [True] * 5


@one_database
async def test_many_strangers_with_many_comments_hold_no_verdict_up(town: Town):
    await town.says("/gpurun smoke")
    (run,) = await town.runs()
    for number in range(12):
        for _ in range(7):
            town.github.user(f"stranger-{number}").comment(town.pull, "/gpurun smoke")
    await town.settle()
    since = len(town.github.requests)
    await town.end(run, Verdict.PASSED)
    await town.settle()
    assert [one.conclusion for one in town.github.checks(town.repo)] == ["success"]
    assert sum(one.method == "PATCH" for one in town.github.requests[since:]) == 2


@one_database
async def test_who_may_write_is_always_answered(town: Town):
    for number in range(3):
        await town.says("/gpurun help")
        assert len(town.comments()) == number + 1
        await town.later(minutes=1)


# the budget


@one_database
async def test_the_budget_outlives_a_restart_and_is_shared(town: Town):
    """Two workers in turn, each forgotten after a step, and one command after the other for minutes."""
    for _ in range(50):
        town.alice.comment(town.pull, "/gpurun help")
        town.worker = town.new_worker()
        await town.later(seconds=3)
    for _ in range(60):
        town.worker = town.new_worker()
        await town.later(seconds=40)
    assert town.github.limits.secondary_hits == 0
    assert town.github.limits.writes_in_last_hour(town.repo.installation_id) <= 400
    assert len(town.comments()) == 50


@one_database
async def test_a_pause_is_not_followed_by_a_rush(town: Town):
    for _ in range(50):
        town.alice.comment(town.pull, "/gpurun help")
    await town.settle()
    await town.store.write(lambda tx: tx.pause_install(town.repo.installation_id, tx.now() + timedelta(minutes=15)))
    for _ in range(60):
        await town.later(seconds=60)
    assert town.github.limits.secondary_hits == 0
    assert len(town.comments()) == 50


@one_database
@pytest.mark.parametrize("what", ["edited", "deleted"])
async def test_a_look_is_paid_for_whatever_came_of_it(town: Town, what: str):
    """Who edits or deletes each comment at once would else spend the reads of everybody."""
    comment = town.alice.comment(town.pull, "/gpurun smoke")
    if what == "edited":
        town.alice.edit_comment(comment, "nothing")
    else:
        town.alice.delete_comment(comment)
    before = len(town.github.requests)
    await town.settle()
    assert asked(town, before)
    pace = await town.store.read(lambda tx: tx.pace(town.repo.installation_id))
    assert pace.reads_until is not None
