"""The facts of a gate for its checks: one view of the database."""

from __future__ import annotations

from dataclasses import replace

from gpurun.command.grammar import render
from gpurun.domain.command import Approve, RunJob
from gpurun.domain.errors import Bug
from gpurun.domain.gate import Gate, Needed, Override
from gpurun.domain.run import Run
from gpurun.flow.facts import Links, run_page
from gpurun.ports.store import Tx
from gpurun.report.standing import GateFacts, NeedFacts, newest, run_in_question

MAX_OTHERS = 20
"""Other pull requests with the same head."""


def gather_gate(tx: Tx, gate_id: str, links: Links) -> GateFacts:
    """Raises Bug when there is no such gate."""
    gate = tx.gate(gate_id)
    if gate is None:
        raise Bug(f"gate {gate_id} vanished")
    return gate_facts(tx, gate, links)


def gate_facts(tx: Tx, gate: Gate, links: Links | None = None) -> GateFacts:
    """What became of each required job at that commit, and of those of other pull requests that have it."""
    found = tx.gates_of_commit(gate.repo, gate.sha, limit=MAX_OTHERS + 2)
    others = [one for one in found if one.id != gate.id]
    return replace(
        _facts(tx, gate, links),
        others=tuple(_facts(tx, one, links) for one in others[:MAX_OTHERS]),
        crowded=len(others) > MAX_OTHERS,
    )


def _facts(tx: Tx, gate: Gate, links: Links | None) -> GateFacts:
    links = links or Links()
    approval = tx.approval(gate.repo, gate.pr)
    runs = tx.runs_of_pull(gate.repo, gate.pr, gate.sha)
    overrides = {(one.job, one.folder): one for one in tx.overrides(gate.repo, gate.pr, gate.sha)}
    needed = gate.look.needed if gate.look else ()
    return GateFacts(
        gate=gate,
        now=tx.now(),
        needs=tuple(_need(one, newest(runs, one), overrides.get((one.job, one.folder)), links) for one in needed),
        approval=approval if approval is not None and approval.sha == gate.sha else None,
        approve_command=render(Approve(gate.sha)),
        pause=tx.pause_of(gate.repo),
        forge_url=links.forge_url,
    )


def _need(needed: Needed, runs: tuple[Run, ...], override: Override | None, links: Links) -> NeedFacts:
    need = NeedFacts(needed=needed, runs=runs, override=override, command=render(RunJob(needed.job, needed.folder)))
    run = run_in_question(need)
    if run is None:
        return need
    return replace(need, run_url=run_page(run, links.public_url))
