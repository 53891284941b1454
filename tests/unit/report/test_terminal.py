"""The report of `gpurun run`, in every situation."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from gpurun.domain.ids import CommitSha
from gpurun.domain.manifest import manifest_digest
from gpurun.domain.run import Result, ResultKind, Verdict
from gpurun.domain.source import GitTag, Submodule
from gpurun.domain.stream import Artifact
from gpurun.report.comment import render_comment
from gpurun.report.limits import COMMENT_BYTES
from gpurun.report.terminal import RunResult, render_terminal, run_result
from tests.unit.report.situations import FULL, PLAN, SHA, SITUATIONS

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def text(facts, **more) -> str:
    report = render_terminal(facts, **more)
    return f"{report.headline}\n{report.because}\n{report.table}"


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_report_is_plain_text_for_a_terminal(name):
    shown = text(SITUATIONS[name])
    assert not CONTROL.search(shown)
    for of_markdown in ("**", "| ---", "](", "&lt;", "\\_", "\u200b"):
        assert of_markdown not in shown
    assert "run page" not in shown


@pytest.mark.parametrize("name", SITUATIONS)
def test_pins_are_whole(name):
    facts = SITUATIONS[name]
    shown = text(facts)
    assert facts.run.sha in shown
    if facts.run.plan is not None:
        assert str(facts.run.plan.image) in shown
        assert facts.run.plan_digest in shown
        for model in facts.run.plan.models:
            assert f"{model.id}@{model.revision}" in shown


def test_what_was_fetched_beside_the_commit_is_pinned_in_words():
    source = {
        "submodules": (
            Submodule(path="vendor/\x1b[2Jlib", url="https://github.com/org/lib", commit=CommitSha("2" * 40)),
        ),
        "lfs": True,
        "git": True,
        "tags": tuple(GitTag(name=f"v{n}", object=CommitSha("4" * 40), commit=SHA) for n in range(7)),
    }
    facts = replace(FULL, run=replace(FULL.run, plan=replace(PLAN, **source)))
    assert render_terminal(facts).table.splitlines()[1:4] == [
        f"  submodule  vendor/lib@{'2' * 40}, from https://github.com/org/lib",
        "  lfs        fetched: its files have their content, which the commit binds",
        "  .git       there, with the tags v0, v1, v2, v3, v4 and 2 more",
    ]
    comment = render_comment(facts)
    assert f"| submodule | `vendor/lib` at `{'2' * 40}`, `from https://github.com/org/lib` |\n| `lfs`" in comment
    facts = replace(facts, run=replace(facts.run, plan=replace(PLAN, **{**source, "tags": (), "lfs": False})))
    assert render_terminal(facts).table.splitlines()[2] == "  .git       there, without tags"


def test_a_comment_with_many_submodules_counts_them():
    many = tuple(Submodule(path="p" * 900 + str(n), url="u" * 900, commit=CommitSha("2" * 40)) for n in range(64))
    comment = render_comment(replace(FULL, run=replace(FULL.run, plan=replace(PLAN, submodules=many, lfs=True))))
    assert comment.count(f"`{'2' * 40}`") == 20
    assert "and 44 more submodules" in comment
    assert "| `lfs` |" in comment
    assert len(comment.encode()) <= COMMENT_BYTES


def test_why_it_failed_comes_with_the_line_that_says_most():
    assert render_terminal(SITUATIONS["failed"]).because == (
        "`run` ended with exit code 1.\n  ValueError: loss is nan, see @acme/all fixes #1"
    )
    assert render_terminal(FULL).because == ""


def test_artifacts_lie_where_they_were_written():
    evil = Artifact(path="out/\x1b]0;title\x07a.txt", size=3, sha256="a" * 64, blob="b")
    lines = render_terminal(replace(FULL, artifacts=(evil,)), artifacts_dir="/home/ada/kept").table.splitlines()
    digest = manifest_digest([evil])
    assert lines[-3:] == ["  artifacts  /home/ada/kept", "               out/a.txt  3 B", f"  manifest   {digest}"]


def test_artifacts_that_were_not_kept_are_told():
    told = "1 (9.0 GiB together), larger than the 1.0 GiB that one file may have: out/\x1b[2Ja, 9.0 GiB."
    result = Result(kind=ResultKind.PASSED, exit_code=0, left_out=told)
    facts = replace(FULL, artifacts=(), attempts=(replace(FULL.attempts[0], result=result),))
    shown = told.replace("\x1b[2J", "")
    assert render_terminal(facts).table.splitlines()[-1] == f"  not kept   {shown}"
    assert run_result(facts).artifacts_left_out == told
    assert "**Not kept:** 1 (9.0 GiB together), larger than" in render_comment(facts)


def test_earlier_tries_are_told():
    assert "attempt 1  lost: No RTX 4090 is free." in text(SITUATIONS["passed at the second try"])


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_object_has_every_key_in_every_situation(name):
    facts = SITUATIONS[name]
    result = json.loads(run_result(facts, artifacts_dir="/kept").model_dump_json())
    assert set(result) == set(RunResult.model_fields)
    assert result["verdict"] in set(Verdict)
    assert result["artifacts_dir"] == "/kept"
    assert float(result["usd"]) >= 0
