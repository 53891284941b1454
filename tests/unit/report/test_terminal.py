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
from gpurun.report.terminal import Places, RunResult, render_terminal, run_result, unwritten_artifacts
from tests.unit.report.situations import FULL, PLAN, SHA, SITUATIONS

KEPT = Places(folder="/home/ada/kept")
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
    lines = render_terminal(replace(FULL, artifacts=(evil,)), places=KEPT).table.splitlines()
    digest = manifest_digest([evil])
    assert lines[-3:] == ["  artifacts  /home/ada/kept", "               out/a.txt  3 B", f"  manifest   {digest}"]


def many(number: int) -> tuple[Artifact, ...]:
    return tuple(Artifact(path=f"out/{at:03}", size=3, sha256="a" * 64, blob="b") for at in range(number))


@pytest.mark.parametrize(("places", "where"), [(KEPT, " in /home/ada/kept"), (Places(), "")])
def test_of_many_artifacts_the_first_are_shown(places, where):
    facts = replace(FULL, artifacts=many(1200))
    lines = render_terminal(facts, places=places).table.splitlines()
    assert lines[-23] == f"  artifacts  {places.folder or '1,200 kept'}"
    assert lines[-22] == "               out/000  3 B"
    assert lines[-3:-1] == ["               out/019  3 B", f"               and 1,180 more{where}"]
    assert len(run_result(facts).artifacts) == 1200
    assert "out/019" in render_terminal(replace(FULL, artifacts=many(20)), places=KEPT).table.splitlines()[-2]


def test_what_could_not_be_written_is_told_with_where_it_is():
    assert unwritten_artifacts(KEPT, "/state") == ""
    full = dict.fromkeys(("out/a\x1b[2J", "out/b"), "No space left on device")
    there = replace(KEPT, unwritten=full, instead="/state/artifacts")
    assert unwritten_artifacts(there, "/state").splitlines() == [
        "2 artifacts could not be written to /home/ada/kept:",
        "  out/a: No space left on device",
        "  out/b: No space left on device",
        "They are in /state/artifacts.",
    ]
    assert unwritten_artifacts(replace(there, nowhere={"out/b": "Input/output error"}), "/state").splitlines()[3:] == [
        "The others are in /state/artifacts; not there either:",
        "  out/b: Input/output error",
        "The bytes are still in /state, which is kept until 20 later runs have ended.",
    ]
    nowhere = replace(KEPT, unwritten=dict.fromkeys(map(str, range(23)), "full"), nowhere={"1": "full"})
    assert unwritten_artifacts(nowhere, "/state").splitlines()[-2:] == [
        "  and 3 more",
        "The bytes are still in /state, which is kept until 20 later runs have ended.",
    ]


def test_what_was_not_written_is_not_listed_where_it_should_be():
    facts = replace(FULL, artifacts=many(2))
    places = replace(KEPT, unwritten={"out/000": "No space left on device"}, instead="/state/artifacts")
    table = render_terminal(facts, places=places).table
    assert "out/000" not in table
    assert "out/001" in table
    assert manifest_digest(facts.artifacts) in table
    result = run_result(facts, places=places)
    assert result.artifacts_unwritten == {"out/000": "No space left on device"}
    assert (result.artifacts_dir, result.artifacts_instead) == ("/home/ada/kept", "/state/artifacts")


def test_artifacts_that_were_not_kept_are_told():
    told = "1 (9.0 GiB together), larger than the 1.0 GiB that one file may have: out/\x1b[2Ja, 9.0 GiB."
    result = Result(kind=ResultKind.PASSED, exit_code=0, left_out=told)
    facts = replace(FULL, artifacts=(), attempts=(replace(FULL.attempts[0], result=result),))
    shown = told.replace("\x1b[2J", "")
    assert render_terminal(facts).table.splitlines()[-1] == f"  not kept   {shown}"
    assert run_result(facts).artifacts_left_out == told
    assert "**Not kept:** 1 (9.0 GiB together), larger than" in render_comment(facts)


def test_what_was_not_kept_is_told_a_line_each():
    told = "30, link:\n" + ";\n".join(f"out/{number}" for number in range(12)) + "."
    result = Result(kind=ResultKind.PASSED, exit_code=0, left_out=told)
    facts = replace(FULL, attempts=(replace(FULL.attempts[0], result=result),))
    lines = render_terminal(facts).table.splitlines()
    assert lines[-11:-8] == ["  not kept   30, link:", "             out/0;", "             out/1;"]
    assert lines[-2:] == ["             out/8;", "             and 3 more"]
    assert "30, link: out/0; out/1;" in render_comment(facts)


def test_earlier_tries_are_told():
    assert "attempt 1  lost: No RTX 4090 is free." in text(SITUATIONS["passed at the second try"])


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_object_has_every_key_in_every_situation(name):
    facts = SITUATIONS[name]
    result = json.loads(run_result(facts, places=Places(folder="/kept")).model_dump_json())
    assert set(result) == set(RunResult.model_fields)
    assert result["verdict"] in set(Verdict)
    assert result["artifacts_dir"] == "/kept"
    assert float(result["usd"]) >= 0
