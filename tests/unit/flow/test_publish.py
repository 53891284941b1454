"""One comment and one check show the truth in the end, whatever GitHub does in between."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import RepoName
from gpurun.domain.pace import Urgency
from gpurun.domain.publication import Publication, PublicationKind
from gpurun.domain.run import RunState, Verdict
from gpurun.flow import failpoints, publish
from gpurun.flow.failpoints import Crash
from gpurun.ports.store import Kind, Tx
from tests.unit.flow.town import Town, open_town

COMMENTS = "/repos/{}/{}/issues/{}/comments"
COMMENT = "/repos/{}/{}/issues/comments/{}"
CHECKS = "/repos/{}/{}/check-runs"
CHECK = "/repos/{}/{}/check-runs/{}"
POSTS = {"comment": ("POST", COMMENTS), "check": ("POST", CHECKS)}
PATCHES = {"comment": ("PATCH", COMMENT), "check": ("PATCH", CHECK)}


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance) as town:
        yield town
    failpoints.disarm()


async def shows_the_end(town: Town) -> None:
    """Exactly one comment and one check, both with the verdict."""
    assert [("passed" in c.body) for c in town.comments()] == [True]
    assert [c.conclusion for c in town.github.checks(town.repo)] == ["success"]


async def a_while(town: Town) -> None:
    for _ in range(8):
        await town.later(minutes=2)


async def test_the_end_is_edited_in_at_once(town: Town):
    await town.says("/gpurun smoke")
    await town.end((await town.runs())[0], Verdict.PASSED)
    await town.settle()
    await shows_the_end(town)


async def becomes(town: Town, state: RunState) -> None:
    """What the engine does, without the engine."""

    def apply(tx: Tx) -> None:
        (lease,) = tx.claim(Kind.RUN, limit=100, token="engine", length=timedelta(seconds=75))
        run = tx.run(lease.id)
        assert run is not None
        assert tx.save_run(replace(run, state=state, due_at=tx.now()), lease)
        tx.raise_rev(run.id, final=False, urgent=True)

    await town.store.write(apply)
    await town.settle()


@pytest.mark.parametrize("edge", ["publish.commit", "publish.announce", "publish.create_check", "publish.update_check"])
@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_check_that_waited_for_a_person_and_goes_on_is_made_anew(town: Town, edge: str, side: str):
    """GitHub leaves a completed check completed, and shows the newest of a name."""
    await town.says("/gpurun smoke")
    await becomes(town, RunState.WAITING_APPROVAL)
    assert [c.conclusion for c in town.github.checks(town.repo)] == ["action_required"]
    failpoints.arm(f"{edge}.{side}", "raise")
    with pytest.raises(Crash):
        await becomes(town, RunState.ACTIVE)
    town.clock.advance(minutes=2)  # the lease of the dead one ends
    town.worker = town.new_worker()
    await a_while(town)
    assert [c.conclusion for c in town.github.checks(town.repo)] == ["action_required", None]
    await town.end((await town.runs())[0], Verdict.PASSED)
    await a_while(town)
    assert [c.conclusion for c in town.github.checks(town.repo)] == ["action_required", "success"]


async def test_twenty_changes_are_one_edit(town: Town):
    await town.says("/gpurun smoke")
    (run,) = await town.runs()
    before = len(town.github.requests)
    for _ in range(20):
        await town.progress(run)
        await town.settle()
    assert writes(town, before) == 0
    await town.later(seconds=16)
    assert writes(town, before) == 1  # the comment; a check is edited more rarely
    await town.later(minutes=10)
    assert writes(town, before) == 2


@pytest.mark.parametrize("target", POSTS)
@pytest.mark.parametrize("after_doing", [True, False])
@pytest.mark.parametrize("status", [500, 502, 504])
async def test_a_post_without_a_clear_answer_is_looked_for(town: Town, target: str, after_doing: bool, status: int):
    town.github.fail_next(*POSTS[target], status=status, after_doing=after_doing)
    await town.says("/gpurun smoke")
    await a_while(town)
    await town.end((await town.runs())[0], Verdict.PASSED)
    await a_while(town)
    await shows_the_end(town)


@pytest.mark.parametrize("target", POSTS)
@pytest.mark.parametrize("after_doing", [True, False])
async def test_a_post_that_times_out_is_looked_for(town: Town, target: str, after_doing: bool):
    town.github.time_out_next(*POSTS[target], after_doing=after_doing)
    await town.says("/gpurun smoke")
    await a_while(town)
    await town.end((await town.runs())[0], Verdict.PASSED)
    await a_while(town)
    await shows_the_end(town)


@pytest.mark.parametrize(
    "edge", ["publish.announce", "publish.create_comment", "publish.create_check", "publish.commit"]
)
@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_process_that_dies_around_a_post_leaves_one_comment(town: Town, edge: str, side: str):
    failpoints.arm(f"{edge}.{side}", "raise")
    with pytest.raises(Crash):
        await town.says("/gpurun smoke")
    town.clock.advance(minutes=2)  # the lease of the dead one ends
    town.worker = town.new_worker()
    await town.settle()
    await a_while(town)
    await town.end((await town.runs())[0], Verdict.PASSED)
    await a_while(town)
    await shows_the_end(town)


@pytest.mark.parametrize("target", PATCHES)
@pytest.mark.parametrize("status", [500, 502, 409])
async def test_an_edit_that_fails_is_repeated(town: Town, target: str, status: int):
    await town.says("/gpurun smoke")
    town.github.fail_next(*PATCHES[target], status=status, times=3)
    await town.end((await town.runs())[0], Verdict.PASSED)
    await a_while(town)
    await shows_the_end(town)


async def test_a_rate_limit_pauses_the_whole_installation(town: Town):
    town.github.fail_next("POST", COMMENTS, status=403, headers={"retry-after": "120"})
    await town.says("/gpurun smoke")
    before = len(town.github.requests)
    await town.says("/gpurun help")
    await town.later(seconds=60)
    assert writes(town, before) == 0
    await town.later(seconds=61)
    await town.end((await town.runs())[0], Verdict.PASSED)
    await a_while(town)
    assert sorted("| comment |" in c.body for c in town.comments()) == [False, True]
    assert [c.conclusion for c in town.github.checks(town.repo)] == ["success"]


async def test_b033_a_body_that_github_refuses_is_sent_smaller(town: Town):
    await town.says("/gpurun smoke")
    town.github.fail_next("PATCH", COMMENT, status=422)
    await town.end((await town.runs())[0], Verdict.PASSED)
    await town.settle()
    await shows_the_end(town)
    assert "| pinned |" not in town.comments()[0].body


async def test_a_text_that_cannot_be_made_does_not_keep_the_verdict_back(town: Town, monkeypatch):
    await town.says("/gpurun smoke")

    def broken(facts):
        raise KeyError("a metric")

    monkeypatch.setattr(publish, "render_comment", broken)
    monkeypatch.setattr(publish, "render_check", broken)
    await town.end((await town.runs())[0], Verdict.PASSED)
    await a_while(town)
    await shows_the_end(town)


async def test_b033_a_second_refusal_is_the_end_of_the_comment_and_not_of_the_run(town: Town):
    await town.says("/gpurun smoke")
    town.github.fail_next("PATCH", COMMENT, status=422, times=2)
    await town.end((await town.runs())[0], Verdict.PASSED)
    await a_while(town)
    assert [c.conclusion for c in town.github.checks(town.repo)] == ["success"]
    assert "passed" not in town.comments()[0].body


async def test_a_comment_that_a_person_deleted_comes_back_with_the_verdict_only(town: Town):
    await town.says("/gpurun smoke")
    (run,) = await town.runs()
    town.alice.delete_comment(town.comments()[0])
    await town.progress(run)
    await town.later(seconds=20)
    for _ in range(3):
        await town.progress(run)
        await town.later(seconds=20)
    assert town.comments() == []
    await town.end(run, Verdict.PASSED)
    await town.settle()
    await shows_the_end(town)


async def test_a_newer_run_shows_itself_where_the_comment_was_deleted(town: Town):
    await town.says("/gpurun smoke")
    (run,) = await town.runs()
    town.alice.delete_comment(town.comments()[0])
    await town.progress(run)
    await town.later(seconds=20)
    town.alice.push(town.pull, {"more.py": "pass"})
    await town.says("/gpurun smoke")
    _, new = await town.runs()
    assert [new.id in c.body for c in town.comments()] == [True]


async def test_a_suspended_app_shows_the_end_when_it_is_let_in_again(town: Town):
    await town.says("/gpurun smoke")
    town.github.suspend(town.repo)
    await town.end((await town.runs())[0], Verdict.PASSED)
    await a_while(town)
    (run,) = await town.runs()
    assert run.verdict is Verdict.PASSED
    assert "passed" not in town.comments()[0].body
    town.github.unsuspend(town.repo)
    await a_while(town)
    await shows_the_end(town)


async def test_an_app_that_stays_suspended_is_given_up_after_a_day(town: Town):
    await town.says("/gpurun smoke")
    town.github.suspend(town.repo)
    await town.end((await town.runs())[0], Verdict.PASSED)
    for _ in range(110):
        await town.later(minutes=15)
    before = len(town.github.requests)
    await town.later(hours=3)
    assert len(town.github.requests) == before


@pytest.mark.parametrize("target", POSTS)
async def test_a_post_that_is_forbidden_for_a_while_is_made_once(town: Town, target: str):
    town.github.fail_next(*POSTS[target], status=403, times=2)
    await town.says("/gpurun smoke")
    await a_while(town)
    await town.end((await town.runs())[0], Verdict.PASSED)
    await a_while(town)
    await shows_the_end(town)


async def test_the_newer_run_keeps_the_comment(town: Town):
    await town.says("/gpurun smoke")
    (old,) = await town.runs()
    town.alice.push(town.pull, {"more.py": "pass"})
    await town.says("/gpurun smoke")
    _, new = await town.runs()
    await town.end(old, Verdict.CANCELLED)
    await town.settle()
    assert [new.id in c.body for c in town.comments()] == [True]
    assert sorted(str(c.conclusion) for c in town.github.checks(town.repo)) == ["None", "cancelled"]


def writes(town: Town, before: int) -> int:
    """Requests that change something, tokens apart, since `before`."""
    return len(
        [
            one
            for one in town.github.requests[before:]
            if one.method in ("POST", "PATCH", "PUT") and "access_tokens" not in one.path
        ]
    )


@pytest.mark.parametrize("target", POSTS)
async def test_a_limit_on_the_look_does_not_end_the_doubt(town: Town, target: str):
    """A POST was made and its answer lost; then GitHub is too busy to be asked for it."""
    looks = {"comment": COMMENTS, "check": "/repos/{}/{}/commits/{}/check-runs"}
    town.github.fail_next(*POSTS[target], status=502, after_doing=True)
    town.github.fail_next("GET", looks[target], status=429, headers={"retry-after": "5"}, times=2)
    await town.says("/gpurun smoke")
    await a_while(town)
    await town.end((await town.runs())[0], Verdict.PASSED)
    await a_while(town)
    await shows_the_end(town)


@pytest.mark.parametrize(
    "edge", ["publish.announce.after", "publish.create_comment.before", "publish.create_check.before"]
)
async def test_who_froze_before_the_post_does_not_make_it(town: Town, edge: str):
    failpoints.arm(edge, lambda: town.clock.advance(seconds=100))
    await town.says("/gpurun smoke")
    asked = [(one.method, one.path.rsplit("/", 1)[-1]) for one in town.github.requests]
    posts = {("POST", "comments"): ("GET", "comments"), ("POST", "check-runs"): ("GET", "check-runs")}
    looks = [asked.index(get) < asked.index(post) for post, get in posts.items() if get in asked]
    assert looks == [True]  # its successor looked for it before it posted
    await town.end((await town.runs())[0], Verdict.PASSED)
    await a_while(town)
    await shows_the_end(town)


@pytest.mark.parametrize("target", PATCHES)
async def test_who_froze_in_an_edit_does_not_have_the_last_word(town: Town, monkeypatch, target: str):
    """Another process took over and showed the verdict; then the old edit arrives."""
    await town.says("/gpurun smoke")
    (run,) = await town.runs()
    update = getattr(town.forge, f"update_{target}")

    async def frozen(*args):
        monkeypatch.setattr(town.forge, f"update_{target}", update)
        town.clock.advance(seconds=100)
        await town.end(run, Verdict.PASSED)
        await town.new_worker().step_until_idle()
        await update(*args)

    monkeypatch.setattr(town.forge, f"update_{target}", frozen)
    await town.progress(run)
    await town.later(seconds=20)
    await a_while(town)
    await shows_the_end(town)


async def test_a_key_that_is_refused_for_a_while_kills_no_publication(town: Town):
    await town.says("/gpurun smoke")
    for target in PATCHES.values():
        town.github.fail_next(*target, status=401, times=6)
    await town.end((await town.runs())[0], Verdict.PASSED)
    await a_while(town)
    await shows_the_end(town)


KINDS = {
    # what it is: at first, once it was shown, at its end
    PublicationKind.CHECK: (Urgency.ACK, Urgency.OTHER, Urgency.VERDICT),
    PublicationKind.COMMENT: (Urgency.ACK, Urgency.OTHER, Urgency.VERDICT),
    PublicationKind.GATE: (Urgency.ACK, Urgency.ANSWER, Urgency.ANSWER),
    PublicationKind.NEED: (Urgency.ACK, Urgency.OTHER, Urgency.VERDICT),
    PublicationKind.REPLY: (Urgency.OTHER, Urgency.OTHER, Urgency.ANSWER),
    PublicationKind.REACT: (Urgency.OTHER, Urgency.OTHER, Urgency.ACK),
}


@pytest.mark.parametrize("kind", PublicationKind)
def test_who_goes_first(kind, clock):
    """Whoever may open pull requests makes edits of gates, so these are no verdicts."""
    first = Publication(
        id="p", kind=kind, repo=RepoRef(installation_id=1, name=RepoName("acme/train"), id=1), pr=1, run_id="", text="",
        comment_id=0, nonce="n", created_at=clock.now(), due_at=clock.now(),
    )  # fmt: skip
    shown = replace(first, sent_rev=1)
    assert tuple(map(publish.urgency, (first, shown, replace(shown, final=True)))) == KINDS[kind]
