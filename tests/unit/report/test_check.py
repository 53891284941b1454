# ruff: noqa: E501 - snapshots hold lines as they are

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from markdown_it import MarkdownIt

from gpurun.domain.forge import Annotation, CheckAction, CheckStatus
from gpurun.domain.run import Phase, ResultKind, Verdict
from gpurun.report.check import conclusion, minimal_check, render_check
from gpurun.report.limits import within
from tests.unit.report.situations import FULL, SITUATIONS, at, ended, with_result

LIMIT = 65_535


def test_what_the_agent_says_is_shown_before_the_engine_has_looked():
    facts = SITUATIONS["booting"]
    spoken = replace(facts, attempts=(replace(facts.attempts[0], phase=Phase.RUNNING, last_seen_at=facts.now),))
    assert render_check(spoken).title == "running"


def test_the_table_of_conclusions():
    rows = {name: render_check(facts) for name, facts in SITUATIONS.items()}
    assert {name: f"{c.status} {c.conclusion} | {c.title}" for name, c in rows.items()} == snapshot(
        {
            "planning": "in_progress None | in progress since 12:00:00 UTC",
            "queued": "in_progress None | queued: Waiting for a free place on local Docker.",
            "preparing": "in_progress None | preparing: pulling image 43 %",
            "booting": "in_progress None | booting",
            "running": "in_progress None | running",
            "quiet": "in_progress None | running: quiet for 1 m 15 s",
            "stopping": "in_progress None | stopping: cancelled by bob",
            "waiting for approval": "completed action_required | waiting for approval",
            "paused": "completed action_required | paused",
            "passed": "completed success | passed in 41 s",
            "passed at the second try": "completed success | passed in 41 s",
            "failed": "completed failure | 'run' ended with exit code 1. ValueError: loss is nan, see @\u200bacme/all fixes #\u200b1",
            "killed": "completed failure | 'run' ended with exit code 137: killed (SIGKILL), most often because memory ran out.",
            "setup failed": "completed failure | 'setup' ended with exit code 127: a command was not found; install it in 'setup' or in the image, or correct its name. sh: pipp: not found",
            "weights mismatch": "completed failure | model.safetensors of minishlab/potion-base-8M is not what its hash says.",
            "timed out": "completed timed_out | Stopped: it ran longer than 'max_duration' (20 m 00 s).",
            "lost": "completed failure | lost (our side): The instance ended while the job ran.",
            "no capacity": "completed failure | lost (our side): No provider offers 2 GPUs.",
            "cancelled": "completed cancelled | Cancelled by bob.",
            "superseded": "completed cancelled | A newer run of this job took its place.",
            "refused for its file": "completed failure | refused: .gpurun.yml line 4: 'jobs.smoke.image': 'python:3.12' names an image by tag, and a tag can move. Write it with its digest, name@sha256:…",
            "refused for a pin": "completed failure | refused: The registry has no such manifest.",
            "approval expired": "completed action_required | refused: Nobody approved the run in 13 days.",
        }
    )


@pytest.mark.parametrize("verdict", Verdict)
def test_only_a_pass_is_green_and_nothing_is_neutral(verdict):
    found = conclusion(ended(verdict))
    assert (found == "success") is (verdict is Verdict.PASSED)
    assert found not in ("neutral", "skipped", None)


@pytest.mark.parametrize("name", SITUATIONS)
def test_identity_and_times(name):
    check = render_check(SITUATIONS[name])
    assert (check.name, check.external_id) == ("gpurun / smoke", "01kebgx0000000000000000001")
    assert check.started_at == at(0)
    assert (check.completed_at is None) is (check.status is CheckStatus.IN_PROGRESS)
    assert (check.conclusion is None) is (check.status is CheckStatus.IN_PROGRESS)
    assert check.details_url == SITUATIONS[name].run_url
    assert replace(minimal_check(SITUATIONS[name]), summary="", text="") == replace(check, summary="", text="")


def test_a_broken_file_is_annotated_at_its_line():
    (annotation,) = render_check(SITUATIONS["refused for its file"]).annotations
    assert (annotation.path, annotation.line, annotation.level) == (".gpurun.yml", 4, "failure")
    assert "names an image by tag" in annotation.message


def test_a_refusal_without_a_line_has_no_annotation():
    assert render_check(SITUATIONS["refused for a pin"]).annotations == ()


def test_summary_and_text():
    check = render_check(SITUATIONS["setup failed"])
    assert check.summary.startswith(
        "**gpurun smoke: ❌ failed · 41 s · $0.00 (declared) · local Docker**\n\n`setup` ended"
    )
    assert check.text == snapshot("""\
Log

```text
sh: pipp: not found
```\
""")


@given(detail=st.text(max_size=200), times=st.integers(0, 2000), log=st.binary(max_size=500))
def test_b033_b035_no_check_is_ever_too_long(detail, times, log):
    run = ended(Verdict.REFUSED, reason="config", detail=detail * times, error_line=1, config_text=detail * times)
    for render in (render_check, minimal_check):
        check = render(replace(FULL, run=run, log_tail=log * times, log_size=len(log * times)))
        assert len(check.summary.encode()) <= LIMIT
        assert len(check.text.encode()) <= LIMIT
        assert len(check.title.encode()) <= 255
        assert "\n" not in check.title
        assert all(len(one.message.encode()) <= 65_536 for one in check.annotations)


def test_b033_b035_every_field_of_a_check_is_cut_by_itself():
    huge = replace(
        render_check(FULL),
        title="ü" * 500,
        summary="🚀" * 40_000,
        text="x" * 70_000,
        annotations=tuple(Annotation(path="a", line=1, message="ü" * 90_000, title="t" * 300) for _ in range(120)),
        actions=tuple(CheckAction(label="l" * 30, description="d" * 50, identifier="i" * 30) for _ in range(5)),
    )
    check = within(huge)
    assert max(len(check.summary.encode()), len(check.text.encode())) <= LIMIT
    assert len(check.title.encode()) <= 255
    assert len(check.annotations) == 120
    assert all(len(one.message.encode()) <= 65_536 and len(one.title) <= 255 for one in check.annotations)
    assert len(check.actions) == 3
    assert all(len(a.label) <= 20 and len(a.description) <= 40 and len(a.identifier) <= 20 for a in check.actions)


LOUD = "ValueError: @acme/all fixes #1, closes acme/other#2, GH-3 https://github.com/acme/net/pull/9 `@acme`"
"""As GitHub would read it: mentions, closing keywords and links to elsewhere."""
_REFERENCE = re.compile(r"@acme|#\d|\bGH-\d|://(?!gpurun\.example|github\.com/org/app|huggingface\.co)")


@pytest.mark.parametrize(
    "run",
    [
        ended(Verdict.FAILED, reason="exit"),
        ended(Verdict.FAILED, reason="weights_mismatch", detail=LOUD),
        ended(Verdict.LOST, reason="host", detail=LOUD),
        ended(Verdict.CANCELLED, detail=LOUD),
        ended(Verdict.TIMEOUT, reason="x", detail=LOUD),
        ended(Verdict.REFUSED, reason="config", detail=LOUD, error_line=1, config_text=LOUD),
        ended(Verdict.REFUSED, reason="pin", detail=LOUD + "x" * 300),
    ],
    ids=lambda run: f"{run.verdict}-{run.reason}",
)
@pytest.mark.parametrize("render", [render_check, minimal_check])
def test_b127_a_check_mentions_nobody_and_closes_nothing(run, render):
    """Also not where it is cut: the neutral characters are put in before, and count."""
    log = LOUD.encode()
    attempt = with_result(ResultKind.FAILED, exit_code=1, reason="exit", detail=LOUD)
    check = render(replace(FULL, run=run, attempts=(attempt, attempt), log_tail=log, log_size=len(log)))
    assert not _REFERENCE.search(check.title)
    assert "`" not in check.title
    for text in (check.summary, check.text):
        tokens = MarkdownIt("commonmark").enable("table").parse(text)
        shown = [child.content for token in tokens for child in token.children or () if child.type == "text"]
        assert not _REFERENCE.search(" ".join(shown)), shown
    for annotation in check.annotations:
        assert not _REFERENCE.search(annotation.title + annotation.message)
