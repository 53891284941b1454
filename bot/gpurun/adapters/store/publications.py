"""The outbox (docs/concepts/engine.md, `publication`)."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Update,
    and_,
    bindparam,
    case,
    or_,
    select,
    text,
    type_coerce,
    update,
)

from gpurun.adapters.store import tables
from gpurun.adapters.store.base import (
    NOW,
    Row,
    TransactionBase,
    Values,
    earlier,
    earlier_of,
    is_open,
    repo_of,
    repo_values,
)
from gpurun.adapters.store.codec import Moment
from gpurun.domain.folder import job_in
from gpurun.domain.forge import RepoRef
from gpurun.domain.gate import GateState
from gpurun.domain.narrow import numbered
from gpurun.domain.publication import (
    EDITED_AT_MOST,
    FIRST_EDIT,
    SOON,
    Publication,
    PublicationKind,
    PublicationState,
    next_edit,
)
from gpurun.ports.store import Kind, Lease

_FIELDS = (
    "id", "kind", "pr", "run_id", "text", "comment_id", "nonce", "created_at", "state", "due_at", "desired_rev",
    "sent_rev", "final", "remote_id", "sent_at", "slot_at", "tries", "last_error", "gate_id",
)  # fmt: skip
_SENDER_OWNED = ("state", "sent_rev", "remote_id", "sent_at", "slot_at", "tries", "last_error")
_IN_FLIGHT = (PublicationState.SENDING, PublicationState.RECONCILING)


class PublicationTable(TransactionBase):
    """`ports.store.PublicationRows`."""

    def publish(self, publication: Publication) -> None:
        values = self._values(publication)
        if publication.kind is not PublicationKind.COMMENT:
            self._change(self._insert(tables.publication).values(values))
            return
        fresh = (
            self._insert(tables.publication)
            .values(values)
            .on_conflict_do_nothing(index_elements=["repo_id", "pr", "job"], index_where=text("kind = 'comment'"))
        )
        if not self._change(fresh):
            self._take_over(values)

    def publication(self, id: str) -> Publication | None:
        row = self._one(select(tables.publication).where(tables.publication.c.id == id))
        return None if row is None else _publication(row)

    def publications(self, run_id: str) -> tuple[Publication, ...]:
        table = tables.publication
        mine = select(table).where(table.c.run_id == run_id).order_by(table.c.created_at, table.c.id)
        return tuple(map(_publication, self._all(mine)))

    def publications_of_gate(self, gate_id: str) -> tuple[Publication, ...]:
        table = tables.publication
        mine = select(table).where(table.c.gate_id == gate_id).order_by(table.c.created_at, table.c.id)
        return tuple(map(_publication, self._all(mine)))

    def raise_rev(self, run_id: str, *, final: bool, urgent: bool) -> None:
        now = self.now()
        if final or urgent:
            self._change(_raise_at_once(), {"mine_": run_id, "now_": now, "final_": final})
        else:
            self._change(_raise_spaced(), {"mine_": run_id, "now_": now})

    def raise_gate(self, repo: RepoRef, pr: int) -> None:
        gate = tables.gate
        heads = select(gate.c.sha).where(gate.c.repo_id == repo.id, gate.c.pr == pr, gate.c.state == GateState.OPEN)
        self._raise_gates(gate.c.repo_id == repo.id, gate.c.sha.in_(heads))

    def raise_gates(self, repo: RepoRef) -> None:
        self._raise_gates(tables.gate.c.repo_id == repo.id)

    def _raise_gates(self, *which: ColumnElement[bool]) -> None:
        table, gate = tables.publication, tables.gate
        gates = select(gate.c.id).where(*which, gate.c.state == GateState.OPEN)
        self._change(
            update(table)
            .where(table.c.gate_id.in_(gates), table.c.kind == PublicationKind.GATE, is_open(Kind.PUBLICATION))
            .values(
                desired_rev=table.c.desired_rev + 1,
                state=case((table.c.state.in_(_IN_FLIGHT), table.c.state), else_=PublicationState.DUE),
                due_at=earlier(table.c.due_at, self.now()),
                woken_at=self.now(),
            )
        )

    def send_publication(self, lease: Lease) -> bool:
        table = tables.publication
        ours = (table.c.id == lease.id, table.c.lease_token == lease.token, is_open(Kind.PUBLICATION))
        sending = {"state": PublicationState.SENDING, "sent_at": self.now()}
        return self._change(update(table).where(*ours).values(sending)) > 0

    def save_publication(self, publication: Publication, lease: Lease) -> bool:
        table = tables.publication
        wanted = select(table.c.desired_rev, table.c.run_created_at).where(table.c.id == publication.id)
        row = self._one(wanted.with_for_update())
        values = {name: getattr(publication, name) for name in _SENDER_OWNED}
        due_at = publication.due_at
        raised = row is not None and row["desired_rev"] > publication.desired_rev
        if row is not None and raised and publication.state is PublicationState.IDLE:
            values["state"] = PublicationState.DUE
            due_at = max(self.now(), next_edit(publication, row["run_created_at"]))
        return self._give_back(lease, values, due_at=due_at)

    def _values(self, publication: Publication) -> Values:
        table = tables.run
        of_run = select(table.c.job, table.c.folder, table.c.narrow, table.c.created_at)
        run = self._one(of_run.where(table.c.id == publication.run_id))
        return {
            **{name: getattr(publication, name) for name in _FIELDS},
            **repo_values(publication.repo),
            "job": numbered(job_in(run["job"], run["folder"]), run["narrow"]) if run else "",
            "run_created_at": run["created_at"] if run else publication.created_at,
        }

    def _take_over(self, values: Values) -> None:
        """The comment shows the newer run from now on; its id, remote id and nonce stay."""
        table, now = tables.publication, self.now()
        created_at, run_id = values["run_created_at"], values["run_id"]
        older = or_(
            table.c.run_created_at < created_at,
            and_(table.c.run_created_at == created_at, table.c.run_id < run_id),
        )
        same = (table.c.repo_id == values["repo_id"], table.c.pr == values["pr"], table.c.job == values["job"])
        kept = {name: values[name] for name in ("run_id", "run_created_at", "installation_id", "repo_name", "final")}
        self._change(
            update(table)
            .where(table.c.kind == PublicationKind.COMMENT, *same, older)
            .values(
                **kept,
                state=case((table.c.state.in_(_IN_FLIGHT), table.c.state), else_=PublicationState.DUE),
                desired_rev=table.c.desired_rev + 1,
                # a comment that a person deleted from under the older run is posted anew
                sent_rev=case((table.c.remote_id.is_(None), 0), else_=table.c.sent_rev),
                due_at=earlier(table.c.due_at, now),
                woken_at=now,
                tries=0,
                last_error="",
            )
        )


@cache
def _raise_at_once() -> Update:
    table = tables.publication
    due = {"due_at": earlier_of(table.c.due_at, NOW), "woken_at": NOW}
    return _raise().values({"final": or_(table.c.final, bindparam("final_", type_=Boolean())), **due})


@cache
def _raise_spaced() -> Update:
    table = tables.publication
    spaced = _next_edit()
    due = case(
        # A row in trouble keeps the time of its next try.
        (and_(table.c.tries > 0, table.c.due_at.is_not(None)), table.c.due_at),
        (or_(table.c.sent_at.is_(None), spaced <= NOW), earlier_of(table.c.due_at, NOW)),
        (table.c.due_at <= spaced, table.c.due_at),
        else_=spaced,
    )
    return _raise().values(due_at=due)


def _next_edit() -> ColumnElement[Any]:
    """`domain.publication.next_edit` in SQL; a test holds them against each other."""
    table = tables.publication
    sent = type_coerce(table.c.sent_at, BigInteger)
    age = sent - type_coerce(table.c.run_created_at, BigInteger)
    first = case(
        *((table.c.kind == kind, _micros(wait)) for kind, wait in FIRST_EDIT.items()), else_=_micros(EDITED_AT_MOST)
    )
    wait = case(
        (and_(table.c.kind == PublicationKind.COMMENT, age < _micros(SOON)), _micros(SOON)),
        (2 * age < first, first),
        (2 * age > _micros(EDITED_AT_MOST), _micros(EDITED_AT_MOST)),
        else_=2 * age,
    )
    return type_coerce(sent + wait, Moment())


def _micros(wait: timedelta) -> int:
    return wait // timedelta(microseconds=1)


def _raise() -> Update:
    table = tables.publication
    state = case((table.c.state.in_(_IN_FLIGHT), table.c.state), else_=PublicationState.DUE)
    fixed = table.c.kind == PublicationKind.REPLY  # the log of the run as it was
    mine = update(table).where(table.c.run_id == bindparam("mine_"), ~fixed, is_open(Kind.PUBLICATION))
    return mine.values(desired_rev=table.c.desired_rev + 1, state=state)


def _publication(row: Row) -> Publication:
    return Publication(repo=repo_of(row), **{name: row[name] for name in _FIELDS})
