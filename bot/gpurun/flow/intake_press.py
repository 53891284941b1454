"""A delivery that says that somebody pressed a button: proved, looked at and carried out, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from gpurun.domain.delivery import Delivery, InboxState
from gpurun.domain.errors import ForgeLimited, ForgeRefused, ForgeSuspended, ForgeUnavailable
from gpurun.domain.forge import CheckSeen, Sent
from gpurun.domain.run import AuditEntry
from gpurun.flow import approvals, edges, failpoints, gates
from gpurun.flow.acting import Acting, entry, subject
from gpurun.flow.comments import Asked, NotForUs
from gpurun.flow.facts import Links
from gpurun.flow.limits import limited, suspended
from gpurun.flow.look import CALL_TIMEOUT_S, Look, Memory, Seen
from gpurun.flow.press import ALL_AGAIN, Aim, Press, aim, carry_out, contradicted
from gpurun.ports.clock import Chance
from gpurun.ports.forge import Forge
from gpurun.ports.store import Lease, Store, Tx
from gpurun.report import reply

UNAUTHORIZED = 401
LOOK_BACK = timedelta(minutes=10)
"""How long before it came the forge may have sent a press: clocks differ, and a network may be slow. What was pressed
longer ago and is sent again spends no money: the page that the person saw then has changed."""
FIRST_PAUSE = timedelta(seconds=5)
PATIENCE = timedelta(minutes=2)
"""So long a press that is not on the forge's list is looked for: at once, and 5, 15, 45 and 135 s after it came."""
WAITS = timedelta(days=1)
"""Of a suspension, after which nobody remembers what they pressed."""
MORE_READS = 4
"""Beyond those of a comment: the check, two pages of the list, the delivery."""

log = structlog.get_logger()

When = Callable[[Tx], tuple[datetime, datetime | None]]


class Settle(Protocol):
    """Ends a delivery; what was asked of the forge for it is paid for, and `said` is answered."""

    def __call__(
        self, lease: Lease, state: InboxState, note: str, asked: Asked | None = None, said: str = ""
    ) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True)
class Forged:
    """Why a delivery is not true although it is signed."""

    note: str


@dataclass(frozen=True, slots=True)
class Proved:
    """A press that the forge itself has told us of."""

    press: Press
    aim: Aim
    sent: Sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Presses:
    """What intake does with a press. The last ones are intake's own."""

    store: Store
    forge: Forge
    chance: Chance
    memory: Memory = field(default_factory=Memory)
    later: Callable[[Lease, When], Awaitable[None]]
    settle: Settle
    pay: Callable[[Tx, Asked], None]
    answer: Callable[[Tx, Asked, Seen, str], None]
    links: Links = field(default_factory=Links)

    async def __call__(self, lease: Lease, delivery: Delivery, press: Press, *, now: datetime, unpaid: int) -> None:
        """One step."""
        asked = Asked(repo=press.repo, pr=0, parsed=(), unpaid=unpaid + MORE_READS)
        installation_id = press.repo.installation_id
        try:
            await self._act(lease, delivery, press, asked, now)
        except ForgeLimited as limit:
            told = limit
            await self.later(lease, lambda tx: (limited(tx, installation_id, told), None))
        except ForgeSuspended as refused:
            if now - delivery.received_at > WAITS:
                await self._refused(lease, asked, refused)
            else:
                await self.later(lease, lambda tx: (suspended(tx, installation_id)[0], None))
        except ForgeRefused as refused:
            await self._refused(lease, asked, refused)

    async def _act(self, lease: Lease, delivery: Delivery, press: Press, asked: Asked, now: datetime) -> None:
        found = await self._prove(delivery, press)
        match found:
            case Proved():
                await self._look(lease, found, asked)
            case Forged(note):
                await self._distrust(lease, asked, press, note)
            case NotForUs(note):
                await self.settle(lease, InboxState.IGNORED, note, asked)
            case None if now - delivery.received_at >= PATIENCE:
                await self._distrust(lease, asked, press, "GitHub has sent no such delivery")
            case None:
                await self._look_for_it_later(lease, asked, now - delivery.received_at)

    # is it true?

    async def _prove(self, delivery: Delivery, press: Press) -> Proved | Forged | NotForUs | None:
        """None: the forge has it not on its list, which may be late."""
        check = await self._check(press)
        if check is not None and not check.ours:
            return NotForUs("a check of another App")
        about = await self.store.read(lambda tx: aim(tx, press, check))
        if isinstance(about, NotForUs):
            return about
        if press.sha != about.sha:
            return Forged(f"the check stands on {about.sha}")
        sent = await edges.call(
            failpoints.PRESS_SENT,
            lambda: self.forge.delivery(delivery.guid, since=delivery.received_at - LOOK_BACK),
            timeout_s=CALL_TIMEOUT_S,
        )
        if sent is None:
            return None
        if note := contradicted(press, sent):
            return Forged(note)
        return NotForUs("pressed too long ago, and sent again") if sent.again else Proved(press, about, sent)

    async def _check(self, press: Press) -> CheckSeen | None:
        if press.button == ALL_AGAIN:
            return None
        return await edges.call(
            failpoints.PRESS_CHECK,
            lambda: self.forge.read_check(press.repo, press.check_id),
            timeout_s=CALL_TIMEOUT_S,
        )

    async def _look_for_it_later(self, lease: Lease, asked: Asked, age: timedelta) -> None:
        def wait(tx: Tx) -> tuple[datetime, None]:
            self.pay(tx, asked)
            return tx.now() + max(FIRST_PAUSE, 2 * age), None

        await self.later(lease, wait)

    async def _distrust(self, lease: Lease, asked: Asked, press: Press, note: str) -> None:
        """Signed with our secret and yet not true: somebody else may have the secret, so it stays on record."""
        log.warning("forged_suspect", inbox=lease.id, note=note)
        data: dict[str, str | int | None] = {
            "check": press.check_id,
            "said": f"@{press.who}: {press.button}"[:200],
            "note": note,
        }

        def apply(tx: Tx) -> None:
            if tx.settle_inbox(lease, InboxState.IGNORED, f"forged_suspect: {note}"[:500]):
                self.pay(tx, asked)
                where = f"repo:{press.repo.name}"
                tx.audit(AuditEntry(at=tx.now(), actor="engine", kind="forged_suspect", subject=where, data=data))

        await edges.commit(self.store, failpoints.PRESS_DISTRUST, apply)

    # what it does

    async def _look(self, lease: Lease, proved: Proved, asked: Asked) -> None:
        press, about = proved.press, proved.aim
        asked = Asked(repo=press.repo, pr=about.pr, parsed=about.commands, author=press.who, unpaid=asked.unpaid)
        look = Look(self.forge, self.memory)
        try:
            seen = await look.press(asked, who=press.who, at=proved.sent.at, check_id=press.check_id)
        except ForgeSuspended:
            raise
        except ForgeRefused as refused:
            await self._refused(lease, asked, refused, said=_words(proved, [reply.nothing_could_be_read()]))
        else:
            await edges.commit(
                self.store, failpoints.PRESS_COMMIT, lambda tx: self._apply(tx, lease, asked, seen, proved)
            )

    def _apply(self, tx: Tx, lease: Lease, asked: Asked, seen: Seen, proved: Proved) -> None:
        """The one transaction."""
        press, about = proved.press, proved.aim
        if not tx.settle_inbox(lease, InboxState.DONE, ""):
            return
        self.pay(tx, asked)
        second = int(proved.sent.at.timestamp())
        if not tx.take_press(press.check_id, press.button, press.who, second, lease.id):
            return
        approvals.take(tx, approvals.head_of(asked.repo, seen.pull_request))
        gates.asked(tx, self.chance, asked.repo, seen.pull_request)
        tx.audit(entry(tx, seen, "press_taken", subject(asked), button=press.button, on=about.name))
        said = carry_out(tx, Acting(chance=self.chance, repo=asked.repo, seen=seen, links=self.links), about)
        if said:
            self.answer(tx, asked, seen, _words(proved, said))

    async def _refused(self, lease: Lease, asked: Asked, refused: ForgeRefused, *, said: str = "") -> None:
        """`said`: to a person who waits for a word; nobody does before it is proved."""
        if refused.status == UNAUTHORIZED:  # the App's key or our clock is wrong, and it may pass
            raise ForgeUnavailable(str(refused)) from refused
        note = f"the forge refused: {refused}"
        log.warning("forge_refused", inbox=lease.id, status=refused.status, note=note)
        await self.settle(lease, InboxState.IGNORED, note, asked, said)


def _words(proved: Proved, said: list[str]) -> str:
    return reply.to_a_press(proved.press.who, proved.press.button, proved.aim.name, said)
