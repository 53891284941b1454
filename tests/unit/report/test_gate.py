"""The checks of a gate: their table of conclusions, their buttons, and foreign text in them, which is only shown."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpurun.command.parse import parse
from gpurun.domain.approval import Approval
from gpurun.domain.changed import Changed
from gpurun.domain.gate import Gate, GateLook, Needed, Override, Pause
from gpurun.domain.ids import CommitSha, JobName
from gpurun.domain.run import Fault, RunState, Verdict
from gpurun.report.check import render_check
from gpurun.report.gate import minimal_gate, render_gate, render_need
from gpurun.report.limits import CHECK_BYTES, TITLE_BYTES
from gpurun.report.standing import GateFacts, NeedFacts
from tests.fakes.clock import START
from tests.unit.report.situations import DONE, FULL, SITUATIONS
from tests.unit.report.vectors import VECTORS, faults, text_faults

REPO = FULL.run.repo
SHA = CommitSha("c" * 40)
GATE = Gate(
    id="gate-1",
    repo=REPO,
    pr=3,
    sha=SHA,
    base_ref="main",
    created_at=START,
    due_at=None,
    look=GateLook(base_ref="main"),
)
OURS = ("https://gpurun.example/", "https://github.com/")
SMOKE = Needed(job=JobName("smoke"))
CHANGED = replace(SMOKE, changed=(Changed(key="run", diff=("-a", "+b")),))
OVERRIDE = Override(
    id="o", repo=REPO, pr=3, sha=SHA, job=JobName("smoke"), folder="", reason="flaky", by="carol", at=START
)
APPROVAL = Approval(
    id="a", repo=REPO, pr=3, sha=SHA, max_usd_micro=None, by="carol", at=START, asked_at=START
)  # fmt: skip


def facts(*needs, **more):
    look = replace(GATE.look, needed=tuple(need.needed for need in needs))
    given = {"gate": replace(GATE, look=look), "now": START, "needs": needs, "forge_url": "https://github.com"}
    return GateFacts(**(given | {"approve_command": f"/gpurun approve sha={SHA}"} | more))


def need(needed=SMOKE, *runs, **more):
    return NeedFacts(needed=needed, runs=runs, command="/gpurun smoke", **more)


def a_run(verdict=None, state=RunState.ACTIVE, reason=""):
    return replace(FULL.run, verdict=verdict, state=RunState.ENDED if verdict else state, reason=reason)


TABLE = [
    ("nothing started", need(), {}, "action_required"),
    ("planning", need(SMOKE, a_run(state=RunState.PLANNING)), {}, None),
    ("queued", need(SMOKE, a_run(state=RunState.QUEUED)), {}, None),
    ("running", need(SMOKE, a_run()), {}, None),
    ("waiting for approval", need(SMOKE, a_run(state=RunState.WAITING_APPROVAL)), {}, "action_required"),
    ("passed", need(SMOKE, a_run(Verdict.PASSED)), {}, "success"),
    ("failed", need(SMOKE, a_run(Verdict.FAILED)), {}, "failure"),
    ("timeout", need(SMOKE, a_run(Verdict.TIMEOUT)), {}, "failure"),
    ("lost", need(SMOKE, a_run(Verdict.LOST)), {}, "failure"),
    ("refused for its file", need(SMOKE, a_run(Verdict.REFUSED, reason="config")), {}, "failure"),
    ("refused for its price", need(SMOKE, a_run(Verdict.REFUSED, reason="budget")), {}, "action_required"),
    ("nobody approved", need(SMOKE, a_run(Verdict.REFUSED, reason="expired")), {}, "action_required"),
    ("cancelled", need(SMOKE, a_run(Verdict.CANCELLED)), {}, "action_required"),
    ("n/a by paths", need(replace(SMOKE, applies=False)), {}, "success"),
    ("overridden", need(SMOKE, a_run(Verdict.FAILED), override=OVERRIDE), {}, "success"),
    ("changed", need(CHANGED, a_run(Verdict.PASSED)), {}, "action_required"),
    ("changed and approved", need(CHANGED, a_run(Verdict.PASSED)), {"approval": APPROVAL}, "success"),
    ("changed, approved, not run", need(CHANGED), {"approval": APPROVAL}, "action_required"),
    ("removed", need(replace(CHANGED, gone=True)), {}, "action_required"),
    ("removed and approved", need(replace(CHANGED, gone=True)), {"approval": APPROVAL}, "success"),
    ("unreadable", need(replace(SMOKE, fault="line 3")), {"approval": APPROVAL}, "action_required"),
    ("one of a repeat failed", need(SMOKE, a_run(Verdict.PASSED), a_run(Verdict.FAILED)), {}, "failure"),
    ("one of a repeat runs", need(SMOKE, a_run(Verdict.PASSED), a_run()), {}, None),
]


@pytest.mark.parametrize(("name", "required", "more", "conclusion"), TABLE, ids=[row[0] for row in TABLE])
def test_the_table_of_conclusions(name, required, more, conclusion):
    check = render_gate(facts(required, **more))
    assert check.conclusion == conclusion
    assert check.external_id == "gate:gate-1"
    assert check.title
    assert (render_gate(facts(required, need(SMOKE, a_run(Verdict.FAILED)), **more)).conclusion) == "failure"


def test_before_a_look_and_where_nobody_can_know():
    assert render_gate(replace(facts(), gate=replace(GATE, look=None))).conclusion is None
    unknown = render_gate(facts(gate=replace(GATE, look=GateLook(fault="it cannot be read", base_ref="main"))))
    assert (unknown.conclusion, "it cannot be read" in unknown.title) == ("action_required", True)
    paused = Pause(id="p", repo=REPO, reason="moving", by="dora", at=START)
    assert render_gate(facts(need(SMOKE, a_run(Verdict.PASSED)), pause=paused)).conclusion == "action_required"


def test_other_pull_requests_with_the_same_head_count_by_what_their_base_requires():
    other = replace(facts(need()), gate=replace(GATE, id="gate-2", pr=9))
    mine = need(SMOKE, a_run(Verdict.PASSED))
    check = render_gate(facts(mine, others=(other,)))
    assert check.conclusion == "action_required"
    assert check.title.replace("\u200b", "").startswith("#9 has this commit, too: not started: smoke")
    by_head = replace(other, needs=(need(replace(SMOKE, by_head=True)),))
    assert render_gate(facts(mine, others=(by_head,))).conclusion == "success"
    assert render_gate(facts(mine, crowded=True)).conclusion == "action_required"


def test_buttons():
    def of(check):
        return [one.identifier for one in check.actions]

    shown = {name: of(render_check(facts)) for name, facts in SITUATIONS.items()}
    assert shown["passed"] == shown["lost"] == shown["cancelled"] == ["rerun"]
    assert shown["running"] == shown["queued"] == ["cancel"]
    assert shown["stopping"] == []
    assert shown["waiting for approval"][-1] == "cancel"
    assert shown["waiting for approval"][0].startswith("approve")
    assert of(render_gate(facts(need(CHANGED)))) == ["approve"]
    assert of(render_gate(facts(need()))) == []
    assert of(render_need(facts(need()), need())) == ["run"]
    every = [one for facts in SITUATIONS.values() for one in render_check(facts).actions]
    assert all(len(one.label) <= 20 and len(one.description) <= 40 and len(one.identifier) <= 20 for one in every)


def places(text):
    """A gate whose every foreign text is this one."""
    changed = (Changed(key="run", diff=(f"-{text}", f"+{text}")),)
    last = need(replace(SMOKE, fault=text))
    return [
        facts(need(replace(SMOKE, changed=changed))),
        facts(need(override=replace(OVERRIDE, reason=text, by="carol"))),
        facts(need(), pause=Pause(id="p", repo=REPO, reason=text, by="dora", at=START)),
        facts(last),
        facts(gate=replace(GATE, look=GateLook(fault=text, unsure=text, base_ref=text))),
        replace(
            facts(need()),
            gate=replace(GATE, look=GateLook(base_ref="main", faults=(Fault(file=".gpurun.yml", line=1, text=text),))),
        ),
    ]


def only_shown(check):
    for markdown in (check.summary, check.text):
        assert len(markdown.encode()) <= CHECK_BYTES
        assert faults(markdown, links=OURS) == []
        assert parse(markdown) == ()
    assert len(check.title.encode()) <= TITLE_BYTES
    assert text_faults(check.title) == []


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_foreign_text_is_only_shown(vector):
    for one in places(vector):
        only_shown(render_gate(one))
        only_shown(minimal_gate(one))


@settings(deadline=None)
@given(text=st.text(max_size=300), times=st.sampled_from([1, 400]))
def test_any_text_is_only_shown_and_never_too_long(text, times):
    for one in places(text * times):
        only_shown(render_gate(one))


def test_a_run_of_it_is_linked():
    assert DONE.run_id
    check = render_gate(facts(need(SMOKE, a_run(Verdict.FAILED), run_url="https://gpurun.example/runs/1?key=k")))
    assert check.details_url == "https://gpurun.example/runs/1?key=k"
