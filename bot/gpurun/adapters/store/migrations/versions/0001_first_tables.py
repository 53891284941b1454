"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
HOT = {"fillfactor": "70"}


def upgrade() -> None:
    op.create_table(
        "inbox",
        *_work(),
        sa.Column("id", COUNTER, nullable=False),
        sa.Column("guid", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("installation_id", sa.BigInteger(), nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_inbox"),
        sa.UniqueConstraint("guid", name="uq_inbox_guid"),
        sqlite_autoincrement=True,
        postgresql_with=HOT,
    )
    _index("ix_inbox_due_at", "inbox", ["due_at"], where="due_at IS NOT NULL")
    _index("ix_inbox_undone", "inbox", ["repo", "number", "id"], where="state = 'new'")
    op.create_table(
        "command_row",
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("comment_id", sa.BigInteger(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("inbox_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("repo", "comment_id", "index", name="pk_command_row"),
    )
    op.create_table(
        "run",
        *_work(),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("installation_id", sa.BigInteger(), nullable=False),
        sa.Column("repo_name", sa.Text(), nullable=False),
        sa.Column("repo_id", sa.BigInteger(), nullable=False),
        sa.Column("pr", sa.BigInteger(), nullable=True),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("base_sha", sa.Text(), nullable=True),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("comment_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("read_key", sa.Text(), nullable=False),
        sa.Column("config_text", sa.LargeBinary(), nullable=True),
        sa.Column("also_asked", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_since", sa.BigInteger(), nullable=False),
        sa.Column("pins", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=True),
        sa.Column("plan_digest", sa.Text(), nullable=False),
        sa.Column("result_key", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("error_line", sa.Integer(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("cancel_at", sa.BigInteger(), nullable=True),
        sa.Column("cancel_by", sa.Text(), nullable=False),
        sa.Column("superseded_by", sa.Text(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("approval", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
        postgresql_with=HOT,
    )
    op.create_index("ix_run_created_at_id", "run", ["created_at", "id"])
    _index("ix_run_due_at", "run", ["due_at"], where="due_at IS NOT NULL")
    _index("ix_run_live", "run", ["repo_id", "pr"], where="state <> 'ended'")
    op.create_index("ix_run_repo_name_sha", "run", ["repo_name", "sha"])
    op.create_table(
        "attempt",
        *_work(),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("offer", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("claim_sha256", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("hard_deadline", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_since", sa.BigInteger(), nullable=False),
        sa.Column("preparing", sa.Text(), nullable=False),
        sa.Column("create_sent_at", sa.BigInteger(), nullable=True),
        sa.Column("looks", sa.Integer(), nullable=False),
        sa.Column("claim_revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("run_deadline", sa.BigInteger(), nullable=True),
        sa.Column("stop_asked_at", sa.BigInteger(), nullable=True),
        sa.Column("destroy_asked_at", sa.BigInteger(), nullable=True),
        sa.Column("gone_at", sa.BigInteger(), nullable=True),
        sa.Column("unconfirmed_at", sa.BigInteger(), nullable=True),
        sa.Column("instance_ref", sa.Text(), nullable=True),
        sa.Column("instance_ref_at", sa.BigInteger(), nullable=True),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("boot_id", sa.Text(), nullable=False),
        sa.Column("token_sha256", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("phase_times", sa.Text(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=True),
        sa.Column("observed", sa.Text(), nullable=True),
        sa.Column("observed_at", sa.BigInteger(), nullable=True),
        sa.Column("observed_gone_at", sa.BigInteger(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("result_at", sa.BigInteger(), nullable=True),
        sa.Column("landed", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_attempt"),
        sa.UniqueConstraint("run_id", "number", name="uq_attempt_run_id_number"),
        sa.UniqueConstraint("name", name="uq_attempt_name"),
        postgresql_with=HOT,
    )
    _index("ix_attempt_due_at", "attempt", ["due_at"], where="due_at IS NOT NULL")
    _index("ix_attempt_live", "attempt", ["provider"], where="state NOT IN ('gone', 'void')")
    op.create_table(
        "provider_account",
        *_work(),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("list_ok_at", sa.BigInteger(), nullable=True),
        sa.Column("broken_since", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("provider", name="pk_provider_account"),
        postgresql_with=HOT,
    )
    _index("ix_provider_account_due_at", "provider_account", ["due_at"], where="due_at IS NOT NULL")
    op.create_table(
        "stray",
        *_work(),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("first_seen", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_stray"),
        sa.UniqueConstraint("provider", "ref", name="uq_stray_provider_ref"),
        postgresql_with=HOT,
    )
    _index("ix_stray_due_at", "stray", ["due_at"], where="due_at IS NOT NULL")
    op.create_table(
        "publication",
        *_work(),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("installation_id", sa.BigInteger(), nullable=False),
        sa.Column("repo_name", sa.Text(), nullable=False),
        sa.Column("repo_id", sa.BigInteger(), nullable=False),
        sa.Column("pr", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("run_created_at", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("comment_id", sa.BigInteger(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("desired_rev", sa.Integer(), nullable=False),
        sa.Column("sent_rev", sa.Integer(), nullable=False),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.Column("remote_id", sa.BigInteger(), nullable=True),
        sa.Column("sent_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_publication"),
        postgresql_with=HOT,
    )
    _index("ix_publication_due_at", "publication", ["due_at"], where="due_at IS NOT NULL")
    op.create_index("ix_publication_run_id", "publication", ["run_id"])
    _index("uq_publication_comment", "publication", ["repo_id", "pr", "job"], where="kind = 'comment'", unique=True)
    op.create_table(
        "install",
        sa.Column("installation_id", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("paused_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("installation_id", name="pk_install"),
    )
    op.create_table(
        "stream",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("next", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", "name", name="pk_stream"),
        postgresql_with=HOT,
    )
    op.create_table(
        "chunk",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", "name", "offset", name="pk_chunk"),
    )
    op.create_table(
        "artifact",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", "path", name="pk_artifact"),
    )
    op.create_table(
        "audit",
        sa.Column("id", COUNTER, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("sealed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_subject_id", "audit", ["subject", "id"])
    _index("ix_audit_unsealed", "audit", ["id"], where="NOT sealed")
    op.create_table(
        "audit_seal",
        sa.Column("position", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("audit_id", sa.BigInteger(), nullable=False),
        sa.Column("previous", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("position", name="pk_audit_seal"),
        sa.UniqueConstraint("audit_id", name="uq_audit_seal_audit_id"),
    )
    op.create_table(
        "meta",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("install_id", sa.Text(), nullable=False),
        sa.Column("install_secret", sa.LargeBinary(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("sealed", sa.BigInteger(), nullable=False),
        sa.Column("seal_hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_meta"),
    )


def _work() -> list[sa.Column[object]]:
    return [
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("woken_at", sa.BigInteger(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=False),
    ]


def _index(name: str, table: str, columns: list[str], *, where: str, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)
