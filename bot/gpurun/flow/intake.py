"""A delivery becomes runs, cancels and one reply: exactly once, whatever dies in between.

Everything asked of the forge is a read and happens before the one transaction that takes the commands, adds the rows
and settles the delivery. A second worker, a redelivery or a restart finds the (repo, comment, index) rows taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import anyio
import anyio.to_thread
import structlog

from gpurun.domain.delivery import Delivery, InboxRow, InboxState
from gpurun.domain.errors import ForgeLimited, ForgeRefused, ForgeSuspended, ForgeUnavailable
from gpurun.domain.pace import DEFAULT, SLOT_KEEPS, Budget, have_read, may_read
from gpurun.domain.publication import PublicationKind
from gpurun.domain.run import AuditEntry
from gpurun.flow import approvals, edges, failpoints, gates, press
from gpurun.flow.acting import Acting, entry, publish, subject, told
from gpurun.flow.comments import Asked, NotForUs, addressed, understand
from gpurun.flow.events import pull_changed
from gpurun.flow.facts import Links
from gpurun.flow.intake_press import Presses
from gpurun.flow.limits import PAUSE_MAX, limited, suspended
from gpurun.flow.look import Look, Memory, Seen
from gpurun.flow.obey import Obey
from gpurun.ports.clock import Chance
from gpurun.ports.forge import Forge
from gpurun.ports.store import Lease, Store, Tx
from gpurun.report import reply

MAX_TRIES = 5
"""Failures of whatever kind after which a delivery is poison."""
UNAUTHORIZED = 401
GONE = frozenset({404, 410, 451})
"""Statuses of what a person or GitHub removed."""

READS_OF_A_COMMENT = 9
"""Comment, pull request, rights of two people, the end of the default branch, and two files in two steps each."""
WAITS = timedelta(days=1)
"""A command that could not be looked at for so long (the App is suspended) is answered instead of carried out."""
TOLD_IN = timedelta(hours=1)
WORDS = 5
"""Replies in that time to somebody without rights. The next comment gets one reaction, which notifies nobody, and those
after it nothing: anybody may comment, and each answer is one write less for everybody else."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Handler of `inbox` rows."""

    store: Store
    forge: Forge
    chance: Chance
    budget: Budget = DEFAULT
    """Of each installation."""
    memory: Memory = field(default_factory=Memory)
    links: Links = field(default_factory=Links)

    async def __call__(self, lease: Lease) -> None:
        """One step: read the delivery, ask the forge, commit."""
        row, kept_out_until, now = await self.store.read(lambda tx: self._read(tx, lease))
        if lease.tries >= MAX_TRIES:
            await self._poison(lease, row.delivery)
        elif row.delivery.event == "installation":
            await self._installation(lease, row.delivery)
        elif row.delivery.event == "pull_request":
            await self._pull(lease, row.delivery)
        elif row.delivery.event in press.EVENTS:
            await self._press(lease, row, kept_out_until, now)
        else:
            # in a thread: anybody may write a comment, and its Markdown may take long
            asked = await anyio.to_thread.run_sync(understand, row.delivery)
            if isinstance(asked, NotForUs):
                await self._settle(lease, InboxState.IGNORED, asked.note)
            elif kept_out_until is not None:
                await self._later(lease, lambda tx: self._book(tx, row))
            else:
                unpaid = 0 if row.slot_at else READS_OF_A_COMMENT
                await self._act(lease, row.delivery, replace(asked, unpaid=unpaid), now)

    async def _press(self, lease: Lease, row: InboxRow, kept_out_until: datetime | None, now: datetime) -> None:
        """A button of a check."""
        found = press.understand(row.delivery)
        if isinstance(found, NotForUs):
            await self._settle(lease, InboxState.IGNORED, found.note)
        elif kept_out_until is not None:
            await self._later(lease, lambda tx: self._book(tx, row))
        else:
            presses = Presses(
                store=self.store,
                forge=self.forge,
                chance=self.chance,
                memory=self.memory,
                later=self._later,
                settle=self._settle,
                pay=self._pay,
                answer=self._answer,
                links=self.links,
            )
            unpaid = 0 if row.slot_at else READS_OF_A_COMMENT
            await presses(lease, row.delivery, found, now=now, unpaid=unpaid)

    async def _act(self, lease: Lease, delivery: Delivery, asked: Asked, now: datetime) -> None:
        """Asks the forge, and believes it rather than the delivery."""
        seen = await self._try_to_look(lease, asked, delivery, now)
        if seen is None:
            return
        asked = replace(asked, unpaid=asked.unpaid + seen.more_reads)
        if seen.forged:
            await self._distrust(lease, asked, seen, seen.forged)
        elif seen.outdated:
            await self._settle(lease, InboxState.IGNORED, seen.outdated, asked)
        else:
            await edges.commit(self.store, failpoints.INTAKE_COMMIT, lambda tx: self._apply(tx, lease, asked, seen))

    def _read(self, tx: Tx, lease: Lease) -> tuple[InboxRow, datetime | None, datetime]:
        """The row, until when the forge must not be asked for it (None: now), and the time."""
        row, now = tx.inbox(lease.id), tx.now()
        installation_id = row.delivery.installation_id
        if pause := tx.install_pause(installation_id):
            return row, pause, now
        if row.slot_at is not None and now - row.slot_at <= SLOT_KEEPS:
            return row, row.slot_at if row.slot_at > now else None, now
        free = may_read(tx.pace(installation_id), now, budget=self.budget)
        return row, free if free > now else None, now

    def _book(self, tx: Tx, row: InboxRow) -> tuple[datetime, datetime | None]:
        """When to look at this row again, and what is booked for it then."""
        installation_id, now = row.delivery.installation_id, tx.now()
        if pause := tx.install_pause(installation_id):
            return pause, None
        if row.slot_at is not None and now - row.slot_at <= SLOT_KEEPS:
            return row.slot_at, row.slot_at
        pace = tx.pace_to_change(installation_id)
        free = may_read(pace, now, budget=self.budget)
        tx.save_pace(installation_id, have_read(pace, free, READS_OF_A_COMMENT, budget=self.budget))
        return free, free

    async def _later(self, lease: Lease, when: Callable[[Tx], tuple[datetime, datetime | None]]) -> None:
        """Not a try, and no fault of the comment's."""

        def postpone(tx: Tx) -> None:
            until, slot_at = when(tx)
            tx.postpone_inbox(lease, until, slot_at=slot_at)

        await edges.commit(self.store, failpoints.INTAKE_LATER, postpone)

    async def _try_to_look(self, lease: Lease, asked: Asked, delivery: Delivery, now: datetime) -> Seen | None:
        """None when the row has been given back or settled."""
        installation_id = asked.repo.installation_id
        try:
            return await Look(self.forge, self.memory)(asked, delivery)
        except ForgeLimited as limit:
            told = limit
            await self._later(lease, lambda tx: (limited(tx, installation_id, told), None))
        except ForgeSuspended as refused:
            if now - delivery.received_at > WAITS:
                await self._refused(lease, asked, refused)
            else:
                await self._later(lease, lambda tx: (suspended(tx, installation_id)[0], None))
        except ForgeRefused as refused:
            await self._refused(lease, asked, refused)
        return None

    def _pay(self, tx: Tx, asked: Asked) -> None:
        if asked.unpaid:
            installation_id = asked.repo.installation_id
            paid = have_read(tx.pace_to_change(installation_id), tx.now(), asked.unpaid, budget=self.budget)
            tx.save_pace(installation_id, paid)

    async def _installation(self, lease: Lease, delivery: Delivery) -> None:
        """The owner suspended the App, or let it in again, or gave it new rights."""
        log.info("installation", installation=delivery.installation_id, action=delivery.action)

        def apply(tx: Tx) -> None:
            if not tx.settle_inbox(lease, InboxState.DONE, delivery.action):
                return
            if delivery.action == "suspend":
                tx.pause_install(delivery.installation_id, tx.now() + PAUSE_MAX)
            else:
                tx.resume_install(delivery.installation_id)
            data = {"delivery": delivery.guid}
            subject = f"installation:{delivery.installation_id}"
            kind = f"installation_{delivery.action}"
            tx.audit(AuditEntry(at=tx.now(), actor="github", kind=kind, subject=subject, data=data))

        await edges.commit(self.store, failpoints.INTAKE_RESUME, apply)

    async def _pull(self, lease: Lease, delivery: Delivery) -> None:
        """A push, a close and the like. It can only end something and open a gate, which looks for itself; so nobody is
        asked whether it is true.
        """
        event = pull_changed(delivery.body)
        turn = None if event is None else approvals.turn_of(event)
        if event is None or (turn is None and not gates.is_told(event)):
            await self._settle(lease, InboxState.IGNORED, f"{delivery.event}.{delivery.action} starts nothing")
            return

        def apply(tx: Tx) -> None:
            if not tx.settle_inbox(lease, InboxState.DONE, delivery.action):
                return
            if turn is not None:
                approvals.take(tx, turn)
            gates.told(tx, self.chance, event)

        await edges.commit(self.store, failpoints.INTAKE_PULL, apply)

    def _apply(self, tx: Tx, lease: Lease, asked: Asked, seen: Seen) -> None:
        """The one transaction."""
        if not tx.settle_inbox(lease, InboxState.DONE, ""):
            return
        self._pay(tx, asked)
        approvals.take(tx, approvals.head_of(asked.repo, seen.pull_request))
        gates.asked(tx, self.chance, asked.repo, seen.pull_request)
        obey = Obey(Acting(chance=self.chance, repo=asked.repo, seen=seen, links=self.links))
        said: list[str] = []
        for index, parsed in enumerate(asked.parsed):
            if tx.take_command(asked.repo.name, seen.comment_id, index, lease.id):
                tx.audit(entry(tx, seen, "command_taken", subject(asked), command=told(parsed)))
                said += obey(tx, parsed)
        if said and not seen.rights:
            self._answer_stranger(tx, asked, reply.join(said), seen.who, log_of=obey.log_of)
            return
        publish(tx, self.chance, asked, PublicationKind.REACT, text="eyes")
        if said:
            publish(tx, self.chance, asked, PublicationKind.REPLY, text=reply.join(said), run_id=obey.log_of)

    def _answer(self, tx: Tx, asked: Asked, seen: Seen, said: str) -> None:
        """Of a press. There is no comment that could be reacted to."""
        if seen.rights:
            publish(tx, self.chance, asked, PublicationKind.REPLY, text=said)
        elif tx.count_telling(asked.repo.installation_id, seen.who, window=TOLD_IN) <= WORDS:
            publish(tx, self.chance, asked, PublicationKind.REPLY, text=said, to_stranger=True)

    def _answer_stranger(self, tx: Tx, asked: Asked, said: str, login: str, *, log_of: str) -> None:
        told = tx.count_telling(asked.repo.installation_id, login, window=TOLD_IN)
        if told <= WORDS:
            publish(tx, self.chance, asked, PublicationKind.REACT, text="eyes", to_stranger=True)
            publish(tx, self.chance, asked, PublicationKind.REPLY, text=said, run_id=log_of, to_stranger=True)
        elif told == WORDS + 1:
            publish(tx, self.chance, asked, PublicationKind.REACT, text="-1", to_stranger=True)

    def _answer_unknown(self, tx: Tx, asked: Asked, said: str) -> None:
        """Nobody could be asked what the author may do."""
        login = asked.author
        if tx.count_telling(asked.repo.installation_id, login, window=TOLD_IN) <= WORDS:
            publish(tx, self.chance, asked, PublicationKind.REPLY, text=said, to_stranger=True)

    async def _refused(self, lease: Lease, asked: Asked, refused: ForgeRefused) -> None:
        """A person waits for a word, unless what they wrote on is gone. Missing permissions are the usual case."""
        if refused.status == UNAUTHORIZED:  # the App's key or our clock is wrong, and it may pass
            raise ForgeUnavailable(str(refused)) from refused
        note = f"the forge refused: {refused}"
        log.warning("forge_refused", inbox=lease.id, status=refused.status, note=note)
        said = "" if refused.status in GONE else reply.not_allowed_to_look()
        await self._settle(lease, InboxState.IGNORED, note, asked, said)

    async def _settle(
        self, lease: Lease, state: InboxState, note: str, asked: Asked | None = None, said: str = ""
    ) -> None:
        """`asked`: what the forge was asked for, which is paid for whatever comes of it, and who is told `said`."""
        log.info("delivery_settled", inbox=lease.id, state=state, note=note)

        def settle(tx: Tx) -> None:
            if not tx.settle_inbox(lease, state, note[:500]) or asked is None:
                return
            self._pay(tx, asked)
            if said:
                self._answer_unknown(tx, asked, said)

        await edges.commit(self.store, failpoints.INTAKE_SETTLE, settle)

    async def _distrust(self, lease: Lease, asked: Asked, seen: Seen, note: str) -> None:
        """Signed with our secret and yet not true: somebody else may have the secret, so it stays on record."""
        log.warning("forged_suspect", inbox=lease.id, note=note)

        def apply(tx: Tx) -> None:
            if tx.settle_inbox(lease, InboxState.IGNORED, f"forged_suspect: {note}"):
                self._pay(tx, asked)
                tx.audit(entry(tx, seen, "forged_suspect", subject(asked), note=note))

        await edges.commit(self.store, failpoints.INTAKE_DISTRUST, apply)

    async def _poison(self, lease: Lease, delivery: Delivery) -> None:
        """Whatever keeps failing ends here: the comments behind it wait for it, and its author for a word."""
        log.error("delivery_poisoned", inbox=lease.id, guid=delivery.guid, tries=lease.tries)
        asked = addressed(delivery)

        def apply(tx: Tx) -> None:
            if tx.settle_inbox(lease, InboxState.POISON, f"given up after {lease.tries} tries") and asked is not None:
                self._answer_unknown(tx, asked, reply.gave_up())
                about = {"comment": asked.comment_id}
                tx.audit(
                    AuditEntry(
                        at=tx.now(), actor="engine", kind="delivery_poisoned", subject=subject(asked), data=about
                    )
                )

        await edges.commit(self.store, failpoints.INTAKE_POISON, apply)
