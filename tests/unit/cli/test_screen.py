"""Lines and objects for people and scripts. A real terminal: tests/e2e/test_cli.py."""

from __future__ import annotations

import io
import json
import os
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

from gpurun.adapters.local.checkout import LocalState
from gpurun.cli.screen import JsonScreen, PeopleScreen
from gpurun.domain.run import Phase, RunState, Verdict
from gpurun.report.facts import RunFacts
from gpurun.report.terminal import Places, RunResult, no_run_result
from tests.unit.report import situations
from tests.unit.report.situations import ACTIVE, CHOSEN, FULL, LIVE, PLANNING


def facts(run, *attempts) -> RunFacts:
    return RunFacts(run=run, now=situations.at(30), attempts=attempts)


def state(*dirty: str) -> LocalState:
    return LocalState(top=Path("/src/app"), repo=PLANNING.repo, sha=PLANNING.sha, branch="main", dirty=dirty)


def test_a_line_for_each_phase_and_none_for_each_percent(capsys):
    screen = PeopleScreen()
    pulling = [replace(CHOSEN, preparing=f"pulling image {percent} %") for percent in (1, 43, 99)]
    for attempt in (*pulling, LIVE, LIVE):
        screen.shows(facts(ACTIVE, attempt), b"")
    assert capsys.readouterr().out == "· preparing: pulling image\n· running\n"


def test_a_download_is_told_once_with_its_size(capsys):
    screen = PeopleScreen()
    for weights in ("", ", downloading weights 0 % of 300 MB", ", downloading weights 43 % of 300 MB"):
        for percent in (0, 50):
            screen.shows(facts(ACTIVE, replace(CHOSEN, preparing=f"pulling image {percent} %{weights}")), b"")
    for percent in (44, 99):
        screen.shows(facts(ACTIVE, replace(CHOSEN, preparing=f"downloading weights {percent} % of 300 MB")), b"")
    screen.shows(facts(ACTIVE, replace(CHOSEN, preparing="verifying weights")), b"")
    assert capsys.readouterr().out == (
        "· preparing: pulling image\n· preparing: pulling image, downloading weights, 300 MB\n"
        "· preparing: downloading weights, 300 MB\n· preparing: verifying weights\n"
    )


def test_a_build_is_told_and_not_each_of_its_steps(capsys):
    screen = PeopleScreen()
    for message in ("building image", "building image, step 1/4", "building image, step 2/4"):
        screen.shows(facts(ACTIVE, replace(CHOSEN, preparing=message)), b"")
    assert capsys.readouterr().out == "· preparing: building image\n"


def test_silence_is_told_once_and_not_each_second(capsys):
    screen = PeopleScreen()
    for seconds in (5, 60, 61, 62, 120):
        seen = replace(LIVE, last_seen_at=situations.at(0))
        screen.shows(RunFacts(run=ACTIVE, now=situations.at(seconds), attempts=(seen,)), b"")
    assert capsys.readouterr().out == "· running\n· running: quiet for 1 m 00 s\n"


def test_why_something_is_tried_again_is_told_once(capsys):
    screen = PeopleScreen()
    for tries in (1, 2, 3):
        screen.shows(facts(replace(PLANNING, tries=tries, last_error="The registry is away.")), b"")
    assert capsys.readouterr().out == "· pinning: the commit; trying again: The registry is away.\n"


def test_the_log_is_whole_lines_without_anything_that_steers_a_terminal(capsys):
    screen = PeopleScreen()
    screen.shows(facts(ACTIVE, LIVE), b"")
    capsys.readouterr()
    for piece in (b"one\ntw", b"o \x1b]52;c;aGk=\x07[red]markup[/red] :smile:\n", b"\r 1 %\r 99 %", b"\r100 %\n"):
        screen.shows(facts(ACTIVE, LIVE), piece)
    assert capsys.readouterr().out == "one\ntwo [red]markup[/red] :smile:\n100 %\n"


def test_what_only_cleaning_brings_together_is_hidden(capsys):
    screen = PeopleScreen()
    screen.hides(lambda text: text.replace("hf_secret", "*" * 9))
    screen.shows(facts(ACTIVE, LIVE), b"")
    capsys.readouterr()
    screen.shows(facts(ACTIVE, LIVE), b"token=\x1b[1mhf_\x1b[0msec\x00ret\n")
    assert capsys.readouterr().out == "token=*********\n"


def test_a_million_empty_lines_are_written_whole_and_in_little_memory(capsys):
    screen = PeopleScreen()
    screen.shows(facts(ACTIVE, LIVE), b"before\n")
    capsys.readouterr()
    tracemalloc.start()
    try:
        screen.shows(facts(ACTIVE, LIVE), b"\n" * 1_000_000 + b"[bold]after\n")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert capsys.readouterr().out == "\n" * 1_000_000 + "[bold]after\n"
    assert peak < 32 * 1024 * 1024


def test_the_last_lines_of_the_job_come_before_the_next_phase(capsys):
    screen = PeopleScreen()
    screen.shows(facts(ACTIVE, LIVE), b"first\n")
    screen.shows(facts(ACTIVE, replace(LIVE, phase=Phase.COLLECTING)), b"last\n")
    assert capsys.readouterr().out == "· running\nfirst\nlast\n· collecting artifacts\n"


def test_uncommitted_changes_are_named(capsys):
    PeopleScreen().starts("smoke", state("a", "b", "c\x1b[2J", "d", "e"), PLANNING.sha)
    told = capsys.readouterr().out
    assert "Uncommitted changes are part of this run (a, b, c and 2 more): a snapshot" in told


def test_the_report_is_not_cut_and_names_the_folder(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    PeopleScreen().ends(FULL, Places(folder="/state/artifacts"))
    told = capsys.readouterr().out
    assert str(FULL.run.plan.image) in told
    assert FULL.run.plan_digest in told
    assert "run page" not in told
    assert "  artifacts  /state/artifacts\n" in told


def test_a_closed_pipe_is_noticed_and_nothing_is_raised(monkeypatch):
    read_end, write_end = os.pipe()
    os.close(read_end)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(os.fdopen(write_end, "wb"), write_through=True))
    screen = PeopleScreen()
    assert not screen.broken
    screen.shows(facts(ACTIVE, LIVE), b"line\n")
    assert screen.broken
    screen.shows(facts(ACTIVE, LIVE), b"more\n")
    sys.stdout.close()


def test_json_says_what_a_run_that_never_was_came_to(capsys):
    JsonScreen().fails(no_run_result("smoke", Verdict.REFUSED, reason="config", detail="No."))
    result = json.loads(capsys.readouterr().out)
    assert set(result) == set(RunResult.model_fields)
    assert (result["verdict"], result["exit_code"], result["commit"]) == ("refused", None, "")


def test_json_keeps_the_raw_log_on_stderr(capfdbinary):
    screen = JsonScreen()
    screen.shows(facts(ACTIVE, LIVE), b"\xff\x1b[31m half a l")
    screen.ends(FULL, Places())
    out, err = capfdbinary.readouterr()
    assert err == b"\xff\x1b[31m half a l"
    assert json.loads(out)["verdict"] == "passed"


def test_a_run_that_has_ended_shows_no_phase(capsys):
    PeopleScreen().shows(facts(replace(ACTIVE, state=RunState.ENDED, verdict=Verdict.PASSED)), b"")
    assert capsys.readouterr().out == ""
