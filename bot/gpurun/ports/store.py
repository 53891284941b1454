"""The store: rows in SQLite (one process) or PostgreSQL (any number).

Writes are sync functions `fn(tx) -> T` that the store runs in one transaction, so no transaction spans the network.
An exception rolls back. Guards return False when the lease was lost or the fact was already set.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, TypeVar

from gpurun.domain.approval import Approval, ApprovalEnd
from gpurun.domain.delivery import Delivery, InboxRow, InboxState
from gpurun.domain.forge import RepoRef
from gpurun.domain.gate import Gate, Override, Pause
from gpurun.domain.ids import CommitSha
from gpurun.domain.offer import DiskUse, InstanceState
from gpurun.domain.pace import Pace
from gpurun.domain.publication import Publication
from gpurun.domain.run import Attempt, AuditEntry, Phase, ProviderAccount, Result, Run, Stray
from gpurun.domain.stream import Artifact, Piece, StreamEnd, StreamName, Taken
from gpurun.ports.vault import SecretRows

T = TypeVar("T")


class Kind(StrEnum):
    """Tables whose rows are work."""

    INBOX = "inbox"
    RUN = "run"
    ATTEMPT = "attempt"
    PROVIDER_ACCOUNT = "provider_account"
    STRAY = "stray"
    PUBLICATION = "publication"
    GATE = "gate"


@dataclass(frozen=True, slots=True)
class Lease:
    """A claim on one row. `token` guards every write of engine-owned columns."""

    kind: Kind
    id: str
    token: str
    tries: int


class Leases(Protocol):
    """Who works on which row (docs/concepts/engine.md, R1)."""

    def claim(self, kind: Kind, *, limit: int, token: str, length: timedelta) -> tuple[Lease, ...]:
        """Due rows without a living lease, oldest due first; now leased by `token`. Terminal states never come.

        Inbox: skips a row while an earlier row of the same (repo, number) is undone.
        """
        ...

    def keep(self, lease: Lease, *, length: timedelta) -> Lease | None:
        """For a step whose transaction has given the row back: takes it again at once when it is due already."""
        ...

    def renew(self, kind: Kind, ids: Sequence[str], token: str, *, length: timedelta) -> frozenset[str]:
        """The ids still held."""
        ...

    def release(self, lease: Lease, *, due_at: datetime | None) -> bool:
        """Gives the row back without another change."""
        ...

    def failed(self, lease: Lease, error: str, *, due_at: datetime | None) -> bool:
        """`tries + 1`, the error text, and when to look again; gives the row back."""
        ...

    def wake(self, kind: Kind, id: str) -> None:
        """`due_at = now`, never later than it was."""
        ...

    def wake_by(self, kind: Kind, id: str, at: datetime) -> None:
        """`due_at = at`, never later than it was; who holds the row now looks once more when it gives the row back."""
        ...

    def due(self) -> Mapping[Kind, datetime]:
        """When a claim of that kind may find something next; a leased row counts from the end of its lease."""
        ...

    def next_due(self) -> datetime | None:
        """The earliest of `due`."""
        ...


class InboxRows(Protocol):
    """Deliveries."""

    def inbox(self, id: str) -> InboxRow: ...

    def settle_inbox(self, lease: Lease, state: InboxState, note: str) -> bool: ...

    def postpone_inbox(self, lease: Lease, until: datetime, *, slot_at: datetime | None) -> bool:
        """Gives the row back; `slot_at` is what was booked for it. Not a try."""
        ...

    def take_press(self, check_id: int, action: str, sender: str, second: int, inbox_id: str) -> bool:
        """The unique (check, action, sender, second) row. True for the inbox row that made it, also when asked anew."""
        ...

    def take_command(self, repo: str, comment_id: int, index: int, inbox_id: str) -> bool:
        """The unique (repo, comment, index) row. True for the inbox row that made it, also when asked again."""
        ...


class RunRows(Protocol):
    """Runs."""

    def add_run(self, run: Run) -> None: ...

    def run(self, id: str) -> Run | None: ...

    def save_run(self, run: Run, lease: Lease) -> bool:
        """Writes engine-owned columns, gives the row back (due at `run.due_at`). False: lease lost."""
        ...

    def live_runs(self, repo: RepoRef, pr: int) -> tuple[Run, ...]:
        """Runs of that pull request that have not ended, oldest first."""
        ...

    def runs_of_commit(self, repo_name: str, sha: str) -> tuple[Run, ...]: ...

    def runs_of_pull(self, repo: RepoRef, pr: int, sha: CommitSha) -> tuple[Run, ...]:
        """Of that commit of that pull request, oldest first."""
        ...

    def live_runs_of_repo(self, repo: RepoRef) -> tuple[Run, ...]:
        """Those that have not ended, of every pull request, oldest first."""
        ...

    def newest_runs(self, repo: RepoRef, pr: int) -> tuple[Run, ...]:
        """Of each job of that pull request the newest, whatever its commit, oldest first."""
        ...

    def waiting_before(self, run: Run) -> int:
        """How many queued runs were asked for earlier and wait for the same, whoever asked for them."""
        ...

    def hold_runs(self, repo: RepoRef) -> tuple[str, ...]:
        """Intent: live runs of the repository are `paused`, and woken. The ids of those that were not."""
        ...

    def free_runs(self, repo: RepoRef) -> tuple[str, ...]:
        """The same the other way round."""
        ...

    def latest_runs(self, *, limit: int) -> tuple[Run, ...]: ...

    def ask_cancel(self, run_id: str, who: str) -> bool:
        """Intent; wakes the run and its attempts. False when it had ended or was asked before."""
        ...

    def also_asked(self, run_id: str, who: str) -> None: ...


class AttemptRows(Protocol):
    """Attempts. `save_attempt` writes only engine-owned columns; every other method writes a fact."""

    def add_attempt(self, attempt: Attempt) -> None: ...

    def attempt(self, id: str) -> Attempt | None: ...

    def attempts(self, run_id: str) -> tuple[Attempt, ...]: ...

    def live_attempts(self, provider: str | None = None) -> tuple[Attempt, ...]:
        """Not gone and not void."""
        ...

    def live_attempt_ids(self) -> frozenset[str]:
        """The same, cheaper."""
        ...

    def save_attempt(self, attempt: Attempt, lease: Lease) -> bool: ...

    def send_create(self, lease: Lease) -> bool:
        """The CAS: `create_sent_at` was NULL, the lease is ours; now state is `creating`. Keeps the lease."""
        ...

    def set_instance_ref(self, attempt_id: str, ref: str) -> bool:
        """False when another ref stood there already (the caller makes a stray of `ref`). True when it is the same."""
        ...

    def set_claimed(self, attempt_id: str, *, boot_id: str, token_sha256: str, landed: Mapping[str, str]) -> bool:
        """True for the first boot, and for the same boot id again within 120 s; not when revoked or with a result."""
        ...

    def set_result(self, attempt_id: str, result: Result) -> bool:
        """First one wins; wakes attempt and run."""
        ...

    def saw(self, attempt_id: str, *, phase: Phase | None = None) -> None:
        """Last contact is now. A new phase is stamped and wakes the attempt, a moment later: the next is often near."""
        ...

    def note_time(self, attempt_id: str, what: str, at: datetime) -> None:
        """When something of the attempt happened that no agent tells, in `phase_times`; the first time counts. Wakes
        nobody.
        """
        ...

    def observed(
        self,
        attempt_id: str,
        state: InstanceState | None,
        *,
        at: datetime,
        exit_code: int | None = None,
        disk: DiskUse | None = None,
    ) -> None:
        """What a clean provider list said; None: not in it. Wakes the attempt when it is news.

        `exit_code` is set once. A `disk` that was too much gives way only to one that says that the host is full.
        """
        ...

    def observed_again(self, attempt_ids: Sequence[str], *, at: datetime) -> None:
        """A clean list said of all of these what was known. Wakes nobody."""
        ...


class StreamRows(Protocol):
    """Streams and artifacts of attempts."""

    def stream_end(self, attempt_id: str, name: StreamName) -> StreamEnd: ...

    def append(self, attempt_id: str, name: StreamName, offset: int, data: bytes) -> StreamEnd:
        """Exactly once. Raises WrongOffset when the stream does not end at `offset`."""
        ...

    def read_stream(self, attempt_id: str, name: StreamName, *, offset: int, max_bytes: int) -> bytes: ...

    def log_size(self, attempt_id: str) -> int:
        """Bytes of the log as people see it: what the build of the image said, and then what the agent sent."""
        ...

    def read_log(self, attempt_id: str, *, offset: int, max_bytes: int) -> bytes:
        """Of that log."""
        ...

    def add_artifact(self, attempt_id: str, artifact: Artifact) -> None: ...

    def artifacts(self, attempt_id: str) -> tuple[Artifact, ...]: ...

    def old_artifacts(self, *, ended_before: datetime, limit: int) -> tuple[tuple[str, Artifact], ...]:
        """With the ids of their attempts: those whose bytes are kept although their instance is long gone."""
        ...

    def left_nothing(self, *, ended_after: datetime, ended_before: datetime) -> tuple[str, ...]:
        """Ids of attempts that may have sent artifacts, without any on record, whose instance went in that time."""
        ...

    def drop_bytes(self, attempt_id: str, path: str) -> None:
        """The artifact has no bytes any more; all else of it stays."""
        ...


class ProviderRows(Protocol):
    """Observer's memory and strays."""

    def ensure_account(self, provider: str) -> None: ...

    def account(self, provider: str) -> ProviderAccount | None: ...

    def save_account(self, account: ProviderAccount, lease: Lease) -> bool: ...

    def add_stray(self, stray: Stray) -> None:
        """Silent when (provider, ref) is known."""
        ...

    def stray(self, id: str) -> Stray | None: ...

    def strays(self, provider: str) -> tuple[Stray, ...]: ...

    def save_stray(self, stray: Stray, lease: Lease) -> bool: ...


class PublicationRows(Protocol):
    """The outbox."""

    def publish(self, publication: Publication) -> None:
        """A new target. The comment of (repo, pr, job) is taken over by the newer run: CAS on `run.created_at`."""
        ...

    def publication(self, id: str) -> Publication | None: ...

    def publications(self, run_id: str) -> tuple[Publication, ...]: ...

    def publications_of_gate(self, gate_id: str) -> tuple[Publication, ...]: ...

    def raise_rev(self, run_id: str, *, final: bool, urgent: bool) -> None:
        """Every target of the run wants to show the newest truth: due now if final or urgent, else at `next_edit`."""
        ...

    def raise_gate(self, repo: RepoRef, pr: int) -> None:
        """`gpurun/gate` of this and of others with the same head wants to show the newest truth at once."""
        ...

    def raise_gates(self, repo: RepoRef) -> None:
        """The same for every pull request of the repository."""
        ...

    def send_publication(self, lease: Lease) -> bool:
        """The CAS before a POST: state `sending`, `sent_at` now, while the lease is ours. Keeps the lease."""
        ...

    def save_publication(self, publication: Publication, lease: Lease) -> bool:
        """Keeps a `desired_rev` and `final` that somebody raised meanwhile, and is due again then."""
        ...


class InstallRows(Protocol):
    """How fast installations of the App may be spoken to."""

    def install_pause(self, installation_id: int) -> datetime | None:
        """Until when GitHub must not be asked anything for this installation."""
        ...

    def pause_install(self, installation_id: int, until: datetime) -> None:
        """Never shorter than it was."""
        ...

    def resume_install(self, installation_id: int) -> None:
        """The pause ends, and what waited for it is due now."""
        ...

    def strike(self, installation_id: int) -> int:
        """GitHub refused the whole installation once more; how many times in a row."""
        ...

    def forgive(self, installation_id: int) -> None:
        """GitHub did what it was asked."""
        ...

    def pace(self, installation_id: int) -> Pace:
        """What was used and booked. Nothing at first."""
        ...

    def pace_to_change(self, installation_id: int) -> Pace:
        """The same in a write; nobody else changes it until the transaction ends."""
        ...

    def save_pace(self, installation_id: int, pace: Pace) -> None: ...

    def count_telling(self, installation_id: int, login: str, *, window: timedelta) -> int:
        """The how manieth answer this is to somebody without rights, since the first one of the window. 1 opens one."""
        ...


class ApprovalRows(Protocol):
    """Who allowed which commit of a pull request to run. Wakes nobody."""

    def approve(self, approval: Approval) -> None:
        """From now on it is the one in force: one that was ends, `REPLACED`."""
        ...

    def approval(self, repo: RepoRef, pr: int) -> Approval | None:
        """The one in force."""
        ...

    def hold_approval(self, repo: RepoRef, pr: int) -> Approval | None:
        """The same in a write; nobody ends it until the transaction is over."""
        ...

    def end_approval(self, id: str, end: ApprovalEnd, by: str) -> bool:
        """False when it had ended."""
        ...

    def approvals(self, repo: RepoRef, pr: int) -> tuple[Approval, ...]:
        """All that there ever were, oldest first."""
        ...


class GateRows(Protocol):
    """What must have passed, who said otherwise, and where nothing starts."""

    def open_gate(self, gate: Gate) -> None:
        """A new one; where (repo, pr, sha) is known that one is open again, has the new `base_ref`, and is due now."""
        ...

    def gate(self, id: str) -> Gate | None: ...

    def gates(self, repo: RepoRef, pr: int) -> tuple[Gate, ...]:
        """Open ones, oldest first."""
        ...

    def gates_of_commit(self, repo: RepoRef, sha: CommitSha, *, limit: int) -> tuple[Gate, ...]:
        """Open ones, of every pull request that has this head, oldest first."""
        ...

    def save_gate(self, gate: Gate, lease: Lease) -> bool:
        """Writes state, look and the like, and gives the row back. False: lease lost."""
        ...

    def end_gate(self, id: str) -> None:
        """Nobody asks for it any more."""
        ...

    def override(self, override: Override) -> None:
        """From now on it holds; an older one of the same job and commit ends."""
        ...

    def overrides(self, repo: RepoRef, pr: int, sha: CommitSha) -> tuple[Override, ...]:
        """Those that hold, oldest first."""
        ...

    def end_override(self, id: str, by: str) -> bool:
        """False when it had ended."""
        ...

    def pause(self, pause: Pause) -> None:
        """From now on it holds; one that held ends."""
        ...

    def pause_of(self, repo: RepoRef) -> Pause | None:
        """The one that holds."""
        ...

    def end_pause(self, id: str, by: str) -> bool:
        """False when it had ended."""
        ...


class AuditRows(Protocol):
    """Append-only; each row carries its own hash, the sealer gives position and previous hash."""

    def audit(self, entry: AuditEntry) -> None: ...

    def seal_audit(self, *, limit: int) -> int:
        """Chains up to `limit` unsealed rows in id order; how many. One sealer at a time."""
        ...

    def audit_of(self, subject: str) -> tuple[AuditEntry, ...]: ...


class Tx(
    Leases,
    InboxRows,
    RunRows,
    AttemptRows,
    StreamRows,
    ProviderRows,
    PublicationRows,
    InstallRows,
    ApprovalRows,
    GateRows,
    SecretRows,
    AuditRows,
    Protocol,
):
    """One transaction."""

    def now(self) -> datetime:
        """The database's clock, fixed for the transaction."""
        ...


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What `gpurun audit verify` found."""

    sealed: int
    unsealed: int
    first_bad: int | None
    """Position of the first row that does not fit, None when all do."""
    problem: str = ""


class Store(Protocol):
    """Open it with `async with`."""

    async def write(self, fn: Callable[[Tx], T], *, durable: bool = True) -> T:
        """Commits. Wakes the loops of this process.

        `durable=False` is for what a start voids anyway, such as leases: it survives the process, but maybe not a power
        cut unless something durable was committed after it.
        """
        ...

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """A read-only view."""
        ...

    async def accept(self, delivery: Delivery) -> bool:
        """Durable when it returns; many callers share one commit. False: this GUID was accepted before."""
        ...

    def append(self, piece: Piece) -> Awaitable[Taken]:
        """Durable when it returns; many agents share one commit. Also notes the contact, to a few seconds.

        Raises: UnknownToken, Revoked.
        """
        ...

    async def committed(self, *, timeout_s: float) -> bool:
        """Waits for the next commit of this process, at most `timeout_s` of real time; False on timeout."""
        ...

    async def verify_audit(self) -> ChainReport:
        """Walks the whole chain."""
        ...
