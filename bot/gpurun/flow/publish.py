"""The outbox: one row per target on the forge, rendered from the database when it is sent.

A POST is announced in the row before it is made (`sending`); who finds a row in `sending` looks for what may have been
posted before posting again. A PATCH may be repeated, so it needs no announcement.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from gpurun.domain.errors import Bug, ForgeLimited, ForgeRefused, ForgeSuspended, Transient
from gpurun.domain.forge import Check
from gpurun.domain.ids import CommitSha
from gpurun.domain.pace import DEFAULT, Budget, Urgency, turn
from gpurun.domain.publication import Publication, PublicationKind, PublicationState
from gpurun.flow import edges, failpoints
from gpurun.flow.facts import Links, gather
from gpurun.flow.gate_facts import gather_gate
from gpurun.flow.limits import PAUSE_MAX, limited, suspended
from gpurun.flow.worker import UNFORESEEN, if_mine, still_mine
from gpurun.ports.forge import Forge
from gpurun.ports.store import Lease, Store, Tx
from gpurun.report.check import minimal_check, render_check
from gpurun.report.comment import marker, minimal_comment, render_comment
from gpurun.report.facts import RunFacts
from gpurun.report.gate import minimal_gate, render_gate, render_need
from gpurun.report.standing import GateFacts, NeedFacts, Stand, stand_of

CALL_TIMEOUT_S = 30.0
LOOK_BACK = timedelta(minutes=1)
"""Clocks differ: a comment may carry an earlier time than our `sent_at`."""
ACK_WORTH = timedelta(minutes=10)
"""A reaction that could not be made for so long is not made at all: the answer itself is there, or near."""
FORBIDDEN_TRIES = 100
"""A day, at a quarter of an hour each."""
TOO_BIG = "422"
PLAIN_AFTER_TRIES = 3
CHECKS = frozenset({PublicationKind.CHECK, PublicationKind.GATE, PublicationKind.NEED})
"""Kinds whose target is a check run."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Body:
    """What a target shows."""

    comment: str = ""
    check: Check | None = None


async def _nothing_to_learn(attempt_id: str) -> None:
    """Nobody else gives secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """Handler of `publication` rows."""

    store: Store
    forge: Forge
    links: Links
    hide: Callable[[str], str] = str
    """Puts stars over secrets; the last thing that happens to a text."""
    learn: Callable[[str], Awaitable[None]] = _nothing_to_learn
    """Asked for each attempt that a text is about: `hide` knows its secrets afterwards."""
    budget: Budget = DEFAULT
    """Of each installation."""

    async def __call__(self, lease: Lease) -> None:
        """One step: one write to the forge, or one look for a write that may have happened."""
        row, paused_until, now = await self.store.read(lambda tx: _read(tx, lease.id))
        if paused_until is not None and paused_until > now:
            await self._release(lease, paused_until)
        elif row.sent_rev >= row.desired_rev and row.state is PublicationState.IDLE:
            await self._release(lease, None)
        elif await self._my_turn(row, lease):
            await self._send(row, lease)

    async def _my_turn(self, row: Publication, lease: Lease) -> bool:
        """The installation has a write left for this row; else the row has been given back until it may."""
        installation_id = row.repo.installation_id

        def ask(tx: Tx) -> bool:
            now = tx.now()
            mine = turn(tx.pace_to_change(installation_id), urgency(row), now, held=row.slot_at, budget=self.budget)
            tx.save_pace(installation_id, mine.pace)
            if mine.slot is not None and mine.at <= now:
                return True
            if mine.slot is None and row.kind is PublicationKind.REACT and now - row.created_at > ACK_WORTH:
                tx.save_publication(_shown(row), lease)
            else:
                tx.save_publication(replace(row, due_at=mine.at, slot_at=mine.slot), lease)
            return False

        return await edges.commit(self.store, failpoints.PUBLISH_TURN, ask)

    async def _send(self, row: Publication, lease: Lease) -> None:
        try:
            if in_doubt(row):
                row = replace(row, remote_id=await self._find(row))
            if was_deleted(row):
                sent: Publication | None = _shown(row)
            else:
                sent = await self._write(row, lease)
        except Transient as error:
            await self._unavailable(row, lease, error)
        except ForgeRefused as refused:
            await self._refused(row, lease, refused)
        else:
            if sent is not None:
                await self._save(sent, lease)

    async def _write(self, row: Publication, lease: Lease) -> Publication | None:
        """The row after a good answer; None when the lease was lost before the POST, or a step more is needed."""
        body = await self._render(row)
        if row.kind is PublicationKind.NEED and body.check is None:
            return _shown(row)  # somebody has started it: the run's own check stands there
        still_mine(for_s=CALL_TIMEOUT_S)
        if row.kind is PublicationKind.REACT:
            remote_id = await edges.call(
                failpoints.PUBLISH_REACT,
                if_mine(lambda: self.forge.react(row.repo, row.comment_id, row.text), for_s=CALL_TIMEOUT_S),
                timeout_s=CALL_TIMEOUT_S,
            )
        elif row.remote_id is not None:
            if not await self._patch(row, row.remote_id, body):
                await self._anew(row, lease)
                return None
            remote_id = row.remote_id
        else:
            announced = await edges.commit(
                self.store, failpoints.PUBLISH_ANNOUNCE, lambda tx: tx.send_publication(lease)
            )
            if not announced:
                return None
            remote_id = await self._post(row, body)
        return _shown(replace(row, remote_id=remote_id))

    async def _post(self, row: Publication, body: Body) -> int:
        if body.check is not None:
            check, sha = body.check, await self._sha(row)
            return await edges.call(
                failpoints.PUBLISH_CREATE_CHECK,
                if_mine(lambda: self.forge.create_check(row.repo, sha, check), for_s=CALL_TIMEOUT_S),
                timeout_s=CALL_TIMEOUT_S,
            )
        return await edges.call(
            failpoints.PUBLISH_CREATE_COMMENT,
            if_mine(lambda: self.forge.create_comment(row.repo, row.pr, body.comment), for_s=CALL_TIMEOUT_S),
            timeout_s=CALL_TIMEOUT_S,
        )

    async def _patch(self, row: Publication, remote_id: int, body: Body) -> bool:
        """Asks for the lease as well: an older text must not come after a newer one. False: it was not shown."""
        if body.check is not None:
            check = body.check
            return await edges.call(
                failpoints.PUBLISH_UPDATE_CHECK,
                if_mine(lambda: self.forge.update_check(row.repo, remote_id, check), for_s=CALL_TIMEOUT_S),
                timeout_s=CALL_TIMEOUT_S,
            )
        await edges.call(
            failpoints.PUBLISH_UPDATE_COMMENT,
            if_mine(lambda: self.forge.update_comment(row.repo, remote_id, body.comment), for_s=CALL_TIMEOUT_S),
            timeout_s=CALL_TIMEOUT_S,
        )
        return True

    async def _find(self, row: Publication) -> int | None:
        """What a POST whose answer was lost may have made."""
        if row.kind in CHECKS:
            sha, shown = await self._sha(row), (await self._render(row)).check
            if shown is None:
                return None
            return await edges.call(
                failpoints.PUBLISH_FIND_CHECK,
                lambda: self.forge.find_check(row.repo, sha, name=shown.name, external_id=shown.external_id),
                timeout_s=CALL_TIMEOUT_S,
            )
        since = (row.sent_at or row.created_at) - LOOK_BACK
        return await edges.call(
            failpoints.PUBLISH_FIND_COMMENT,
            lambda: self.forge.find_comment(row.repo, row.pr, marker=marker(row.nonce), since=since),
            timeout_s=CALL_TIMEOUT_S,
        )

    async def _render(self, row: Publication) -> Body:
        # a text that we cannot even make must not keep the verdict back
        minimal = row.last_error == TOO_BIG or (row.last_error == UNFORESEEN and row.tries >= PLAIN_AFTER_TRIES)
        match row.kind:
            case PublicationKind.REACT:
                return Body()
            case PublicationKind.REPLY:
                if row.run_id:  # it shows a log, whose secrets this process may not know yet
                    await self._facts(row)
                return Body(comment=self._comment(row.text, row))
            case PublicationKind.COMMENT:
                facts = await self._facts(row)
                text = minimal_comment(facts) if minimal else render_comment(facts)
                return Body(comment=self._comment(text, row))
            case PublicationKind.CHECK:
                facts = await self._facts(row)
                check = minimal_check(facts) if minimal else render_check(facts)
                return Body(check=self._check(check))
            case PublicationKind.GATE:
                gate = await self._gate(row)
                return Body(check=self._check(minimal_gate(gate) if minimal else render_gate(gate)))
            case PublicationKind.NEED:
                gate = await self._gate(row)
                need = need_of(gate, row)
                return Body(check=None if need is None else self._check(render_need(gate, need)))

    def _comment(self, text: str, row: Publication) -> str:
        return f"{self.hide(text)}\n\n{marker(row.nonce)}"

    def _check(self, check: Check) -> Check:
        hide = self.hide
        notes = tuple(replace(note, message=hide(note.message), title=hide(note.title)) for note in check.annotations)
        return replace(
            check, title=hide(check.title), summary=hide(check.summary), text=hide(check.text), annotations=notes
        )

    async def _facts(self, row: Publication) -> RunFacts:
        facts = await self.store.read(lambda tx: gather(tx, row.run_id, self.links))
        for attempt in facts.attempts:
            await self.learn(attempt.id)
        return facts

    async def _gate(self, row: Publication) -> GateFacts:
        return await self.store.read(lambda tx: gather_gate(tx, row.gate_id, self.links))

    async def _sha(self, row: Publication) -> CommitSha:
        return (await self._gate(row)).gate.sha if row.gate_id else (await self._facts(row)).run.sha

    async def _unavailable(self, row: Publication, lease: Lease, error: Transient) -> None:
        """When it is a limit the forge did nothing; else a POST may have been made. An old doubt stays."""
        log.warning("publication_delayed", publication=row.id, error=str(error), tries=row.tries)
        unposted = row.remote_id is None and row.kind is not PublicationKind.REACT

        def apply(tx: Tx) -> None:
            now = tx.now()
            if isinstance(error, ForgeLimited):
                doubtful, again = in_doubt(row), limited(tx, row.repo.installation_id, error)
            else:
                doubtful = in_doubt(row) or unposted
                again = now + timedelta(seconds=min(2 ** min(row.tries, 10), 60))
            tx.save_publication(_later(row, again, doubtful=doubtful), lease)

        await edges.commit(self.store, failpoints.PUBLISH_DELAY, apply)

    async def _refused(self, row: Publication, lease: Lease, refused: ForgeRefused) -> None:
        if refused.status == 401:  # the App's key or our clock is wrong: an operator's matter, and it passes
            await self._unavailable(row, lease, Transient(str(refused)))
        elif isinstance(refused, ForgeSuspended):
            await self._suspended(row, lease, refused)
        elif refused.status == 403 and row.tries < FORBIDDEN_TRIES:
            await self._forbidden(row, lease, refused)
        elif refused.status == 422 and row.last_error != TOO_BIG:
            await self._save(replace(row, state=PublicationState.DUE, last_error=TOO_BIG), lease, again=True)
        elif refused.status == 404 and row.remote_id is not None and row.kind not in CHECKS:
            await self._deleted_by_a_person(row, lease)
        else:
            log.warning("publication_dead", publication=row.id, status=refused.status, error=str(refused))
            await self._save(_dead(row, refused), lease)

    async def _forbidden(self, row: Publication, lease: Lease, refused: ForgeRefused) -> None:
        """The App lacks a right: a person can lift that, and then the truth must be shown."""
        log.warning("publication_forbidden", publication=row.id, error=str(refused), tries=row.tries)
        wait = min(timedelta(minutes=1) * 2 ** min(row.tries, 10), PAUSE_MAX)

        def apply(tx: Tx) -> None:
            tx.save_publication(_later(row, tx.now() + wait, doubtful=in_doubt(row)), lease)

        await edges.commit(self.store, failpoints.PUBLISH_FORBIDDEN, apply)

    async def _suspended(self, row: Publication, lease: Lease, refused: ForgeRefused) -> None:
        """Everything of the account waits, and one row at a time finds out whether it still has to."""
        log.warning("installation_suspended", installation=row.repo.installation_id, error=str(refused))

        def apply(tx: Tx) -> None:
            again, give_up = suspended(tx, row.repo.installation_id)
            tx.save_publication(_dead(row, refused) if give_up else _later(row, again, doubtful=in_doubt(row)), lease)

        await edges.commit(self.store, failpoints.PUBLISH_SUSPENDED, apply)

    async def _deleted_by_a_person(self, row: Publication, lease: Lease) -> None:
        """The final word is posted anew; progress is not."""
        if row.final:
            await self._save(replace(row, state=PublicationState.DUE, remote_id=None), lease, again=True)
        else:
            await self._save(_shown(replace(row, remote_id=None)), lease)

    async def _save(self, row: Publication, lease: Lease, *, again: bool = False) -> None:
        def save(tx: Tx) -> None:
            saved = replace(row, due_at=tx.now() if again else row.due_at, sent_at=tx.now(), slot_at=None)
            tx.forgive(row.repo.installation_id)
            if not tx.save_publication(saved, lease):
                _show_again(tx, row.id)

        await edges.commit(self.store, failpoints.PUBLISH_COMMIT, save)

    async def _anew(self, row: Publication, lease: Lease) -> None:
        """A completed check that has to go on: GitHub leaves it as it is, and shows the newest of the name instead."""
        await self._save(replace(row, state=PublicationState.DUE, remote_id=None), lease, again=True)

    async def _release(self, lease: Lease, due_at: datetime | None) -> None:
        await edges.commit(self.store, failpoints.PUBLISH_RELEASE, lambda tx: tx.release(lease, due_at=due_at))


def in_doubt(row: Publication) -> bool:
    """A POST was announced or sent, and nobody knows what became of it."""
    return row.remote_id is None and row.state in (PublicationState.SENDING, PublicationState.RECONCILING)


def urgency(row: Publication) -> Urgency:
    """Who goes first when GitHub lets us write less than there is to write."""
    match row.kind:
        case PublicationKind.REACT:
            return Urgency.ACK if row.final else Urgency.OTHER
        case PublicationKind.REPLY:
            return Urgency.ANSWER if row.final else Urgency.OTHER
        case PublicationKind.GATE if row.sent_rev:
            return Urgency.ANSWER  # who may open pull requests makes these, too
        case _ if row.final:
            return Urgency.VERDICT
        case _:
            return Urgency.OTHER if row.sent_rev else Urgency.ACK


def need_of(gate: GateFacts, row: Publication) -> NeedFacts | None:
    """The job of a check for what nobody has started; None once somebody has, or it is required no more."""
    need = next((one for one in gate.needs if one.name == row.text), None)
    return need if need is not None and stand_of(need, gate) is Stand.NOT_STARTED else None


def was_deleted(row: Publication) -> bool:
    """A person removed the comment while the run goes on: it comes back with the verdict, not before."""
    return row.kind is PublicationKind.COMMENT and row.remote_id is None and row.sent_rev > 0 and not row.final


def _shown(row: Publication) -> Publication:
    """Nothing is left to be sent."""
    return replace(
        row,
        state=PublicationState.IDLE,
        due_at=None,
        slot_at=None,
        sent_rev=row.desired_rev,
        tries=0,
        last_error="",
    )


def _later(row: Publication, at: datetime, *, doubtful: bool) -> Publication:
    """To be tried again."""
    state = PublicationState.RECONCILING if doubtful else PublicationState.DUE
    return replace(row, state=state, due_at=at, slot_at=None, tries=row.tries + 1, last_error="")


def _dead(row: Publication, refused: ForgeRefused) -> Publication:
    return replace(row, state=PublicationState.DEAD, due_at=None, slot_at=None, last_error=str(refused)[:500])


def _show_again(tx: Tx, id: str) -> None:
    """Who wrote without the lease may have written over something newer."""
    row = tx.publication(id)
    if row is not None and row.run_id:
        tx.raise_rev(row.run_id, final=False, urgent=True)
    elif row is not None and row.kind is PublicationKind.GATE:
        tx.raise_gate(row.repo, row.pr)


def _read(tx: Tx, id: str) -> tuple[Publication, datetime | None, datetime]:
    """The row, until when its installation must not be written to, and the time."""
    row = tx.publication(id)
    if row is None:
        raise Bug(f"publication {id} vanished")
    return row, tx.install_pause(row.repo.installation_id), tx.now()
