"""The tables. Statements use them through the `Table` handles at the end; no ORM session is ever opened.

Rows refer to each other by id without foreign keys: both ends are made by transactions that hold the other end, ids
are never used again, and a key-share lock per log chunk would buy nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Index, Integer, LargeBinary, MetaData, Table, UniqueConstraint, text
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

from gpurun.adapters.store.codec import FileText, Moment, Named, Structured, Words
from gpurun.domain.approval import ApprovalEnd
from gpurun.domain.delivery import InboxState
from gpurun.domain.gate import GateLook, GateState
from gpurun.domain.ids import CommitSha, JobName, RepoName
from gpurun.domain.narrow import Narrow
from gpurun.domain.offer import DiskUse, InstanceState, Offer
from gpurun.domain.plan import Plan
from gpurun.domain.publication import PublicationKind, PublicationState
from gpurun.domain.run import (
    AttemptState,
    Fault,
    Phase,
    Pins,
    Quote,
    Result,
    RunState,
    StrayState,
    Untrusted,
    Verdict,
)
from gpurun.domain.stream import StreamName

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_COUNTER = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite numbers rows by itself only in an INTEGER key."""

# Room on each page for the next version of a row, so that updates of columns without an index stay on their page.
_HOT: dict[str, Any] = {"postgresql_with": {"fillfactor": "70"}}


class Row(SQLModel, registry=registry(metadata=metadata)):
    """Base of every table."""


class Work(Row):
    """What the engine claims (docs/concepts/engine.md, R1)."""

    due_at: datetime | None = Field(default=None, sa_type=Moment)
    lease_until: datetime | None = Field(default=None, sa_type=Moment)
    lease_token: str | None = Field(default=None, sa_type=Words)
    woken_at: datetime | None = Field(default=None, sa_type=Moment)
    """When somebody woke the row since it was claimed: the holder's `due_at` then yields to it."""
    tries: int = 0
    last_error: str = Field(default="", sa_type=Words)


def _due(table: str) -> Index:
    """Rows without work stay out of it."""
    where = text("due_at IS NOT NULL")
    return Index(f"ix_{table}_due_at", "due_at", sqlite_where=where, postgresql_where=where)


class Inbox(Work, table=True):
    """Accepted deliveries, numbered in the order of acceptance."""

    __tablename__ = "inbox"
    __table_args__ = (
        _due("inbox"),
        Index(
            "ix_inbox_undone",
            "repo",
            "number",
            "id",
            sqlite_where=text("state = 'new'"),
            postgresql_where=text("state = 'new'"),
        ),
        {"sqlite_autoincrement": True, **_HOT},
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=_COUNTER)
    guid: str = Field(sa_type=Words, unique=True)
    event: str = Field(sa_type=Words)
    action: str = Field(sa_type=Words)
    installation_id: int = Field(sa_type=BigInteger)
    repo: str = Field(sa_type=Words)
    number: int = Field(sa_type=BigInteger)
    body: bytes = Field(sa_type=LargeBinary)
    received_at: datetime = Field(sa_type=Moment)
    state: InboxState = Field(sa_type=Named(InboxState))
    note: str = Field(default="", sa_type=Words)
    slot_at: datetime | None = Field(default=None, sa_type=Moment, nullable=True)


class CommandRow(Row, table=True):
    """One line of a comment, taken by exactly one inbox row."""

    __tablename__ = "command_row"

    repo: str = Field(primary_key=True, sa_type=Words)
    comment_id: int = Field(primary_key=True, sa_type=BigInteger)
    index: int = Field(primary_key=True)
    inbox_id: str = Field(sa_type=Words)


class RunRow(Work, table=True):
    """`domain.run.Run`."""

    __tablename__ = "run"
    __table_args__ = (
        _due("run"),
        Index(
            "ix_run_live",
            "repo_id",
            "pr",
            sqlite_where=text("state <> 'ended'"),
            postgresql_where=text("state <> 'ended'"),
        ),
        Index(None, "repo_name", "sha"),
        Index(None, "created_at", "id"),
        _HOT,
    )

    id: str = Field(primary_key=True, sa_type=Words)
    installation_id: int = Field(sa_type=BigInteger)
    repo_name: str = Field(sa_type=Named(RepoName))
    repo_id: int = Field(sa_type=BigInteger)
    pr: int | None = Field(sa_type=BigInteger, nullable=True)
    job: str = Field(sa_type=Named(JobName))
    sha: str = Field(sa_type=Named(CommitSha))
    base_sha: str | None = Field(sa_type=Named(CommitSha), nullable=True)
    who: str = Field(sa_type=Words)
    why: str = Field(sa_type=Words)
    comment_id: int | None = Field(sa_type=BigInteger, nullable=True)
    created_at: datetime = Field(sa_type=Moment)
    read_key: str = Field(sa_type=Words)
    config_text: str | None = Field(sa_type=FileText, nullable=True)
    folder: str = Field(sa_type=Words, sa_column_kwargs={"server_default": ""})
    policy_text: str | None = Field(sa_type=FileText, nullable=True)
    base_ref: str = Field(sa_type=Words, sa_column_kwargs={"server_default": ""})
    untrusted: str | None = Field(default=None, sa_type=Named(Untrusted), nullable=True)
    also_asked: str = Field(sa_type=Structured(tuple[str, ...]))

    state: str = Field(sa_type=Named(RunState))
    state_since: datetime = Field(sa_type=Moment)
    pins: str = Field(sa_type=Structured(Pins))
    plan: str | None = Field(sa_type=Structured(Plan), nullable=True)
    plan_digest: str = Field(sa_type=Words)
    result_key: str = Field(sa_type=Words)
    attempts: int = 0
    verdict: str | None = Field(sa_type=Named(Verdict), nullable=True)
    reason: str = Field(sa_type=Words)
    detail: str = Field(sa_type=Words)
    error_line: int = 0
    faults: str = Field(sa_type=Structured(tuple[Fault, ...]), sa_column_kwargs={"server_default": "[]"})
    notes: str = Field(sa_type=Structured(tuple[str, ...]), sa_column_kwargs={"server_default": "[]"})
    max_attempts: int = Field(default=2, sa_column_kwargs={"server_default": "2"})
    quote: str | None = Field(default=None, sa_type=Structured(Quote), nullable=True)
    approval: str = Field(sa_type=Words)
    narrow: str = Field(sa_type=Structured(Narrow), sa_column_kwargs={"server_default": "{}"})
    ended_at: datetime | None = Field(sa_type=Moment, nullable=True)

    cancel_at: datetime | None = Field(sa_type=Moment, nullable=True)
    cancel_by: str = Field(sa_type=Words)
    superseded_by: str = Field(sa_type=Words)
    paused: bool = False


class AttemptRow(Work, table=True):
    """`domain.run.Attempt`."""

    __tablename__ = "attempt"
    __table_args__ = (
        _due("attempt"),
        Index(
            "ix_attempt_live",
            "provider",
            sqlite_where=text("state NOT IN ('gone', 'void')"),
            postgresql_where=text("state NOT IN ('gone', 'void')"),
        ),
        UniqueConstraint("run_id", "number"),
        UniqueConstraint("name"),
        _HOT,
    )

    id: str = Field(primary_key=True, sa_type=Words)
    run_id: str = Field(sa_type=Words)
    number: int
    provider: str = Field(sa_type=Words)
    """From the offer, for the index."""
    offer: str = Field(sa_type=Structured(Offer))
    name: str = Field(sa_type=Words)
    claim_sha256: str = Field(sa_type=Words)
    created_at: datetime = Field(sa_type=Moment)
    hard_deadline: datetime = Field(sa_type=Moment)

    state: str = Field(sa_type=Named(AttemptState))
    state_since: datetime = Field(sa_type=Moment)
    preparing: str = Field(sa_type=Words)
    create_sent_at: datetime | None = Field(sa_type=Moment, nullable=True)
    looks: int = 0
    claim_revoked_at: datetime | None = Field(sa_type=Moment, nullable=True)
    run_deadline: datetime | None = Field(sa_type=Moment, nullable=True)
    stop_asked_at: datetime | None = Field(sa_type=Moment, nullable=True)
    destroy_asked_at: datetime | None = Field(sa_type=Moment, nullable=True)
    gone_at: datetime | None = Field(sa_type=Moment, nullable=True)
    unconfirmed_at: datetime | None = Field(sa_type=Moment, nullable=True)

    instance_ref: str | None = Field(sa_type=Words, nullable=True)
    instance_ref_at: datetime | None = Field(default=None, sa_type=Moment)
    """When the ref became known: an older list that lacks the instance says nothing."""
    claimed_at: datetime | None = Field(sa_type=Moment, nullable=True)
    boot_id: str = Field(sa_type=Words)
    token_sha256: str = Field(sa_type=Words)
    phase: str | None = Field(sa_type=Named(Phase), nullable=True)
    phase_times: str = Field(sa_type=Structured(Mapping[str, datetime]))
    last_seen_at: datetime | None = Field(sa_type=Moment, nullable=True)
    observed: str | None = Field(sa_type=Named(InstanceState), nullable=True)
    observed_at: datetime | None = Field(sa_type=Moment, nullable=True)
    observed_gone_at: datetime | None = Field(sa_type=Moment, nullable=True)
    exit_code: int | None = Field(default=None, nullable=True)
    disk: str | None = Field(default=None, sa_type=Structured(DiskUse), nullable=True)
    result: str | None = Field(sa_type=Structured(Result), nullable=True)
    result_at: datetime | None = Field(sa_type=Moment, nullable=True)
    landed: str = Field(sa_type=Structured(Mapping[str, str]))


class ProviderAccountRow(Work, table=True):
    """`domain.run.ProviderAccount`. It has no state: it is watched as long as it is there."""

    __tablename__ = "provider_account"
    __table_args__ = (_due("provider_account"), _HOT)

    provider: str = Field(primary_key=True, sa_type=Words)
    list_ok_at: datetime | None = Field(default=None, sa_type=Moment)
    broken_since: datetime | None = Field(default=None, sa_type=Moment)


class StrayRow(Work, table=True):
    """`domain.run.Stray`."""

    __tablename__ = "stray"
    __table_args__ = (_due("stray"), UniqueConstraint("provider", "ref"), _HOT)

    id: str = Field(primary_key=True, sa_type=Words)
    provider: str = Field(sa_type=Words)
    ref: str = Field(sa_type=Words)
    name: str = Field(sa_type=Words)
    first_seen: datetime = Field(sa_type=Moment)
    state: str = Field(sa_type=Named(StrayState))


class PublicationRow(Work, table=True):
    """`domain.publication.Publication`."""

    __tablename__ = "publication"
    __table_args__ = (
        _due("publication"),
        Index(
            "uq_publication_comment",
            "repo_id",
            "pr",
            "job",
            unique=True,
            sqlite_where=text("kind = 'comment'"),
            postgresql_where=text("kind = 'comment'"),
        ),
        Index(None, "run_id"),
        Index(None, "gate_id"),
        _HOT,
    )

    id: str = Field(primary_key=True, sa_type=Words)
    kind: str = Field(sa_type=Named(PublicationKind))
    installation_id: int = Field(sa_type=BigInteger)
    repo_name: str = Field(sa_type=Named(RepoName))
    repo_id: int = Field(sa_type=BigInteger)
    pr: int = Field(sa_type=BigInteger)
    run_id: str = Field(sa_type=Words)
    job: str = Field(sa_type=Words)
    """Of the run, as `smoke` or `smoke (sub)`: whose comment it is. Empty without one."""
    run_created_at: datetime = Field(sa_type=Moment)
    """Of the run; the newer one keeps the comment."""
    text: str = Field(sa_type=Words)
    comment_id: int = Field(sa_type=BigInteger)
    nonce: str = Field(sa_type=Words)
    created_at: datetime = Field(sa_type=Moment)
    state: str = Field(sa_type=Named(PublicationState))
    desired_rev: int
    sent_rev: int
    final: bool
    remote_id: int | None = Field(sa_type=BigInteger, nullable=True)
    sent_at: datetime | None = Field(sa_type=Moment, nullable=True)
    slot_at: datetime | None = Field(default=None, sa_type=Moment, nullable=True)
    gate_id: str = Field(sa_type=Words, sa_column_kwargs={"server_default": ""})
    """What it is about when it is about no run."""


class InstallRow(Row, table=True):
    """How fast an installation of the App may be spoken to (`domain.pace.Pace`), and until when not at all."""

    __tablename__ = "install"

    installation_id: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    paused_until: datetime = Field(sa_type=Moment)
    strikes: int | None = Field(default=None, nullable=True)
    hour_until: datetime | None = Field(default=None, sa_type=Moment, nullable=True)
    minute_until: datetime | None = Field(default=None, sa_type=Moment, nullable=True)
    reads_until: datetime | None = Field(default=None, sa_type=Moment, nullable=True)
    yielding_until: datetime | None = Field(default=None, sa_type=Moment, nullable=True)


class RefusalRow(Row, table=True):
    """How often somebody without rights was answered."""

    __tablename__ = "refusal"

    installation_id: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    login: str = Field(primary_key=True, sa_type=Words)
    told_at: datetime = Field(sa_type=Moment)
    """The start of the window."""
    told: int = Field(default=1, sa_column_kwargs={"server_default": "1"})
    """How often since then."""


class PressRow(Row, table=True):
    """One press of a button of a check, taken by exactly one inbox row."""

    __tablename__ = "press"

    check_id: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    action: str = Field(primary_key=True, sa_type=Words)
    sender: str = Field(primary_key=True, sa_type=Words)
    second: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    inbox_id: str = Field(sa_type=Words)


class ApprovalRow(Row, table=True):
    """`domain.approval.Approval`. A pull request has one that holds, or none."""

    __tablename__ = "approval"
    __table_args__ = (
        Index(
            "uq_approval_in_force",
            "repo_id",
            "pr",
            unique=True,
            sqlite_where=text("ended_at IS NULL"),
            postgresql_where=text("ended_at IS NULL"),
        ),
        Index(None, "repo_id", "pr", "at"),
    )

    id: str = Field(primary_key=True, sa_type=Words)
    installation_id: int = Field(sa_type=BigInteger)
    repo_name: str = Field(sa_type=Named(RepoName))
    repo_id: int = Field(sa_type=BigInteger)
    pr: int = Field(sa_type=BigInteger)
    sha: str = Field(sa_type=Named(CommitSha))
    max_usd_micro: int | None = Field(default=None, sa_type=BigInteger, nullable=True)
    by: str = Field(sa_type=Words)
    at: datetime = Field(sa_type=Moment)
    asked_at: datetime = Field(sa_type=Moment)
    ended_at: datetime | None = Field(default=None, sa_type=Moment, nullable=True)
    end: str | None = Field(default=None, sa_type=Named(ApprovalEnd), nullable=True)
    ended_by: str = Field(sa_type=Words)


class GateRow(Work, table=True):
    """`domain.gate.Gate`."""

    __tablename__ = "gate"
    __table_args__ = (_due("gate"), UniqueConstraint("repo_id", "pr", "sha"), _HOT)

    id: str = Field(primary_key=True, sa_type=Words)
    installation_id: int = Field(sa_type=BigInteger)
    repo_name: str = Field(sa_type=Named(RepoName))
    repo_id: int = Field(sa_type=BigInteger)
    pr: int = Field(sa_type=BigInteger)
    sha: str = Field(sa_type=Named(CommitSha))
    base_ref: str = Field(sa_type=Words)
    created_at: datetime = Field(sa_type=Moment)
    state: str = Field(sa_type=Named(GateState))
    look: str | None = Field(default=None, sa_type=Structured(GateLook), nullable=True)
    looked_at: datetime | None = Field(default=None, sa_type=Moment, nullable=True)


class OverrideRow(Row, table=True):
    """`domain.gate.Override`."""

    __tablename__ = "override"
    __table_args__ = (Index(None, "repo_id", "pr", "sha"),)

    id: str = Field(primary_key=True, sa_type=Words)
    installation_id: int = Field(sa_type=BigInteger)
    repo_name: str = Field(sa_type=Named(RepoName))
    repo_id: int = Field(sa_type=BigInteger)
    pr: int = Field(sa_type=BigInteger)
    sha: str = Field(sa_type=Named(CommitSha))
    job: str = Field(sa_type=Named(JobName))
    folder: str = Field(sa_type=Words)
    reason: str = Field(sa_type=Words)
    by: str = Field(sa_type=Words)
    at: datetime = Field(sa_type=Moment)
    ended_at: datetime | None = Field(default=None, sa_type=Moment, nullable=True)
    ended_by: str = Field(sa_type=Words)


class PauseRow(Row, table=True):
    """`domain.gate.Pause`. A repository has one that holds, or none."""

    __tablename__ = "pause"
    __table_args__ = (
        Index(
            "uq_pause_in_force",
            "repo_id",
            unique=True,
            sqlite_where=text("ended_at IS NULL"),
            postgresql_where=text("ended_at IS NULL"),
        ),
    )

    id: str = Field(primary_key=True, sa_type=Words)
    installation_id: int = Field(sa_type=BigInteger)
    repo_name: str = Field(sa_type=Named(RepoName))
    repo_id: int = Field(sa_type=BigInteger)
    reason: str = Field(sa_type=Words)
    by: str = Field(sa_type=Words)
    at: datetime = Field(sa_type=Moment)
    ended_at: datetime | None = Field(default=None, sa_type=Moment, nullable=True)
    ended_by: str = Field(sa_type=Words)


class SecretRow(Row, table=True):
    """`domain.secret.KeptSecret`: one version of a secret."""

    __tablename__ = "secret"
    __table_args__ = (
        Index(
            "uq_secret_in_force",
            "repo",
            "name",
            unique=True,
            sqlite_where=text("replaced_at IS NULL"),
            postgresql_where=text("replaced_at IS NULL"),
        ),
        Index(None, "key_id"),
    )

    id: str = Field(primary_key=True, sa_type=Words)
    repo: str = Field(sa_type=Words)
    name: str = Field(sa_type=Words)
    key_id: str = Field(sa_type=Words)
    data: bytes = Field(sa_type=LargeBinary)
    """Nonce and ciphertext."""
    set_at: datetime = Field(sa_type=Moment)
    set_by: str = Field(sa_type=Words)
    replaced_at: datetime | None = Field(default=None, sa_type=Moment, nullable=True)
    repo_id: int | None = Field(default=None, sa_type=BigInteger, nullable=True)


class SecretUseRow(Row, table=True):
    """Which attempt was given which version."""

    __tablename__ = "secret_use"
    __table_args__ = (Index(None, "secret_id"),)

    attempt_id: str = Field(primary_key=True, sa_type=Words)
    secret_id: str = Field(primary_key=True, sa_type=Words)


class StreamRow(Row, table=True):
    """Where a stream ends."""

    __tablename__ = "stream"
    __table_args__ = (_HOT,)

    attempt_id: str = Field(primary_key=True, sa_type=Words)
    name: str = Field(primary_key=True, sa_type=Named(StreamName))
    next: int = Field(sa_type=BigInteger)


class ChunkRow(Row, table=True):
    """At most 64 KiB of a stream."""

    __tablename__ = "chunk"

    attempt_id: str = Field(primary_key=True, sa_type=Words)
    name: str = Field(primary_key=True, sa_type=Named(StreamName))
    offset: int = Field(primary_key=True, sa_type=BigInteger)
    data: bytes = Field(sa_type=LargeBinary)


class ArtifactRow(Row, table=True):
    """`domain.stream.Artifact`."""

    __tablename__ = "artifact"

    attempt_id: str = Field(primary_key=True, sa_type=Words)
    path: str = Field(primary_key=True, sa_type=Words)
    size: int = Field(sa_type=BigInteger)
    sha256: str = Field(sa_type=Words)
    blob: str = Field(sa_type=Words)


class AuditRow(Row, table=True):
    """What happened. Only `sealed` ever changes, and the hash leaves it out."""

    __tablename__ = "audit"
    __table_args__ = (
        Index(None, "subject", "id"),
        Index("ix_audit_unsealed", "id", sqlite_where=text("NOT sealed"), postgresql_where=text("NOT sealed")),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=_COUNTER)
    at: datetime = Field(sa_type=Moment)
    actor: str = Field(sa_type=Words)
    kind: str = Field(sa_type=Words)
    subject: str = Field(sa_type=Words)
    data: str = Field(sa_type=Words)
    """Canonical JSON text."""
    hash: bytes = Field(sa_type=LargeBinary)
    sealed: bool = False


class AuditSealRow(Row, table=True):
    """The chain: hash = sha256(position, previous hash, hash of the audit row)."""

    __tablename__ = "audit_seal"

    position: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    audit_id: int = Field(sa_type=BigInteger, unique=True)
    previous: bytes = Field(sa_type=LargeBinary)
    hash: bytes = Field(sa_type=LargeBinary)


class MetaRow(Row, table=True):
    """One row: who this installation is, and the head of the audit chain."""

    __tablename__ = "meta"

    id: int = Field(primary_key=True, sa_type=Integer, sa_column_kwargs={"autoincrement": False})
    install_id: str = Field(sa_type=Words)
    install_secret: bytes = Field(sa_type=LargeBinary)
    host: str = Field(sa_type=Words)
    """Fingerprint of where the database lives."""
    sealed: int = Field(sa_type=BigInteger)
    """Position of the newest seal; its row is also the sealer's lock."""
    seal_hash: bytes = Field(sa_type=LargeBinary)


inbox: Table = metadata.tables["inbox"]
command_row: Table = metadata.tables["command_row"]
run: Table = metadata.tables["run"]
attempt: Table = metadata.tables["attempt"]
provider_account: Table = metadata.tables["provider_account"]
stray: Table = metadata.tables["stray"]
publication: Table = metadata.tables["publication"]
install: Table = metadata.tables["install"]
refusal: Table = metadata.tables["refusal"]
approval: Table = metadata.tables["approval"]
press: Table = metadata.tables["press"]
gate: Table = metadata.tables["gate"]
override: Table = metadata.tables["override"]
pause: Table = metadata.tables["pause"]
secret: Table = metadata.tables["secret"]
secret_use: Table = metadata.tables["secret_use"]
stream: Table = metadata.tables["stream"]
chunk: Table = metadata.tables["chunk"]
artifact: Table = metadata.tables["artifact"]
audit: Table = metadata.tables["audit"]
audit_seal: Table = metadata.tables["audit_seal"]
meta: Table = metadata.tables["meta"]
