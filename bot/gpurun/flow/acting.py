"""Somebody acts on a pull request, by a comment or in another way: who it is, and what they leave in the rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpurun.command.allow import may
from gpurun.command.grammar import render
from gpurun.domain.command import Command
from gpurun.domain.errors import CommandError, NotAllowed
from gpurun.domain.forge import RepoRef
from gpurun.domain.publication import Publication, PublicationKind
from gpurun.domain.run import AuditEntry, Run
from gpurun.flow.comments import Asked
from gpurun.flow.facts import Links
from gpurun.flow.look import Seen
from gpurun.ports.clock import Chance
from gpurun.ports.store import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """What every function that obeys needs beside the transaction and the command."""

    chance: Chance
    repo: RepoRef
    seen: Seen
    links: Links = field(default_factory=Links)

    @property
    def pr(self) -> int:
        """Number of the pull request."""
        return self.seen.pull_request.number

    @property
    def subject(self) -> str:
        """The pull request, for the audit log."""
        return f"repo:{self.repo.name}#{self.pr}"

    def denied(self, command: Command, *, own_run: bool = False) -> NotAllowed | None:
        """None when they may."""
        return may(command, self.seen.rights, self.seen.permissions, own_run=own_run)

    def note(self, tx: Tx, kind: str, subject: str = "", **data: str | int | None) -> None:
        """Into the audit log, in their name; about the pull request when no subject is given."""
        tx.audit(entry(tx, self.seen, kind, subject or self.subject, **data))


def show_run(tx: Tx, chance: Chance, run: Run) -> None:
    """The check and the comment of a new run."""
    for kind in (PublicationKind.CHECK, PublicationKind.COMMENT):
        _publish(tx, chance, kind, repo=run.repo, pr=run.pr or 0, run_id=run.id)


def publish(
    tx: Tx,
    chance: Chance,
    asked: Asked,
    kind: PublicationKind,
    *,
    text: str = "",
    run_id: str = "",
    to_stranger: bool = False,
) -> None:
    """One more target on the pull request that was written on. `run_id`: whose log the text shows. `to_stranger`: it
    gives way to everything else.
    """
    _publish(
        tx,
        chance,
        kind,
        repo=asked.repo,
        pr=asked.pr,
        text=text,
        run_id=run_id,
        comment_id=asked.comment_id if kind is PublicationKind.REACT else 0,
        # a text that is written never changes again
        final=not to_stranger,
    )


def _publish(
    tx: Tx,
    chance: Chance,
    kind: PublicationKind,
    *,
    repo: RepoRef,
    pr: int,
    text: str = "",
    run_id: str = "",
    comment_id: int = 0,
    final: bool = False,
) -> None:
    now = tx.now()
    tx.publish(
        Publication(
            id=chance.ulid(),
            kind=kind,
            repo=repo,
            pr=pr,
            run_id=run_id,
            text=text,
            comment_id=comment_id,
            nonce=chance.token(8),
            created_at=now,
            due_at=now,
            final=final,
        )
    )


def subject(asked: Asked) -> str:
    """The pull request, for the audit log."""
    return f"repo:{asked.repo.name}#{asked.pr}"


def told(parsed: Command | CommandError) -> str:
    """The command as we understood it."""
    return f"not understood: {parsed}"[:200] if isinstance(parsed, CommandError) else render(parsed)


def entry(tx: Tx, seen: Seen, kind: str, subject: str, **data: str | int | None) -> AuditEntry:
    """An audit row in the name of whoever acts."""
    where = {"comment": seen.comment_id} if seen.comment_id else {"check": seen.check_id}
    return AuditEntry(
        at=tx.now(),
        actor=f"@{seen.who}",
        kind=kind,
        subject=subject,
        data={**where, "sha": seen.pull_request.head_sha, **data},
    )
