"""`docs/concepts/engine.md` names every state, verdict, timer and rule that the code has, and no other."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from gpurun.domain.delivery import InboxState
from gpurun.domain.gate import GateState
from gpurun.domain.publication import PublicationState
from gpurun.domain.run import AttemptState, Phase, ResultKind, RunState, StrayState, Verdict
from gpurun.flow import worker
from gpurun.ports.store import Kind
from gpurun.provider_kit import boot
from gpurun.run import timers
from tests.unit.docs.pages import ROOT, section, tables, tracked

ENGINE = (ROOT / "docs/concepts/engine.md").read_text("utf-8")
AGENT = (ROOT / "docs/concepts/agent.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("kind", "states"),
    [
        (Kind.INBOX, InboxState),
        (Kind.RUN, RunState),
        (Kind.ATTEMPT, AttemptState),
        (Kind.STRAY, StrayState),
        (Kind.GATE, GateState),
        (Kind.PUBLICATION, PublicationState),
    ],
)
def test_each_state_has_a_row(kind, states):
    rows = tables(section(ENGINE, f"`{kind}`"))
    told = {row[0].strip("`") for row in rows if row[0].startswith("`")}
    assert told == {state.value for state in states}


def test_each_kind_of_row_has_a_section():
    assert set(re.findall(r"^## `(\w+)`", ENGINE, re.MULTILINE)) == {kind.value for kind in Kind}


def test_verdicts_and_results_are_all_named():
    run, attempt = section(ENGINE, "`run`"), section(ENGINE, "`attempt`")
    assert {v for v in Verdict if f"`{v}`" not in run} == set()
    assert {r for r in ResultKind if f"`{r}`" not in attempt} == set()


def test_timers_are_those_of_the_code():
    constants = {name: value for name, value in vars(timers).items() if name.isupper() and not name.startswith("_")}
    assert {row[0].strip("`"): row[1] for row in tables(section(ENGINE, "Timers"))} == {
        name: shown(value) for name, value in constants.items()
    }


def test_the_lease_is_told_as_it_is():
    rule = next(row[1] for row in tables(section(ENGINE, "Rules")) if row[0] == "R1")
    assert f"lease of {shown(worker.LEASE)}" in rule
    assert f"every {shown(worker.RENEW_EVERY_S)}" in rule


def test_every_rule_that_the_code_cites_is_there():
    rules = {row[0] for row in tables(section(ENGINE, "Rules"))}
    cited = set()
    for path in tracked():
        if path.suffix == ".py":
            for words in re.findall(r"docs/concepts/engine\.md, (R\d+(?: and R\d+)*)", path.read_text("utf-8")):
                cited |= set(words.split(" and "))
    assert cited
    assert cited <= rules


def test_phases_of_the_agent_are_all_there_and_in_order():
    assert [row[0].strip("`") for row in tables(section(AGENT, "Phases"))] == [phase.value for phase in Phase]


def test_exit_codes_of_the_boot_script_are_told():
    told = {int(code) for row in tables(section(AGENT, "Boot")) for code in row[0].split(", ")}
    assert {boot.EXIT_NO_AGENT, boot.EXIT_NO_PYTHON, boot.EXIT_RAN_BEFORE, boot.EXIT_UNREPORTED} <= told


def shown(value: object) -> str:
    """A duration or number as the page writes it."""
    if isinstance(value, tuple):
        return ", ".join(map(shown, value))
    if isinstance(value, float):
        return shown(timedelta(seconds=value))
    if not isinstance(value, timedelta):
        return str(value)
    if value >= timedelta(days=1):
        return f"{value // timedelta(days=1)} d"
    if value > timedelta(seconds=120):
        return f"{value // timedelta(minutes=1)} min"
    if value < timedelta(seconds=1):
        return f"{value // timedelta(milliseconds=1)} ms"
    return f"{value // timedelta(seconds=1)} s"
