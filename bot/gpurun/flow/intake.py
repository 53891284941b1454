"""A delivery becomes runs, cancels and one reply: exactly once, whatever dies in between.

Everything asked of the forge is a read and happens before the one transaction that takes the commands, adds the rows
and settles the delivery. A second worker, a redelivery or a restart finds the (repo, comment, index) rows taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import anyio
import anyio.to_thread
import structlog

from gpurun.command.allow import may
from gpurun.command.grammar import help_text, render
from gpurun.command.parse import parse, suggest
from gpurun.domain.command import Cancel, Command, Help, RunJob
from gpurun.domain.delivery import Delivery, InboxRow, InboxState
from gpurun.domain.errors import (
    CommandError,
    ConfigError,
    ForgeLimited,
    ForgeRefused,
    ForgeSuspended,
    ForgeUnavailable,
    UserError,
)
from gpurun.domain.forge import Comment, Permission, PullRequest, RepoRef
from gpurun.domain.ids import JobName, RepoName
from gpurun.domain.pace import DEFAULT, SLOT_KEEPS, Budget, have_read, may_read
from gpurun.domain.publication import Publication, PublicationKind
from gpurun.domain.run import AuditEntry, Run
from gpurun.flow import edges, failpoints
from gpurun.flow.events import CommentCreated, comment_created
from gpurun.flow.limits import PAUSE_MAX, limited, suspended
from gpurun.plan.load import job_names, load
from gpurun.ports.clock import Chance
from gpurun.ports.forge import Forge
from gpurun.ports.store import Lease, Store, Tx
from gpurun.report import reply

CONFIG_PATH = ".gpurun.yml"
CONFIG_MAX_BYTES = 64 * 1024
CALL_TIMEOUT_S = 30.0
MAX_TRIES = 5
"""Failures of whatever kind after which a delivery is poison."""
PREFIX = "/gpurun"
UNAUTHORIZED = 401
GONE = frozenset({404, 410, 451})
"""Statuses of what a person or GitHub removed."""
OLDEST = timedelta(days=7)
"""GitHub keeps deliveries, to send them again, for a few days. Whoever has the webhook's secret could send the word of
years ago, on which nobody acted, for the commit of today."""

READS_OF_A_COMMENT = 7
"""Comment, pull request, rights, and two files in two steps each."""
WAITS = timedelta(days=1)
"""A command that could not be looked at for so long (the App is suspended) is answered instead of carried out."""
TOLD_EVERY = timedelta(hours=1)
"""How often a person without write access gets words; in between a reaction, which notifies nobody."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A comment with at least one command line, as the webhook told it."""

    event: CommentCreated
    repo: RepoRef
    parsed: tuple[Command | CommandError, ...]
    unpaid: int = 0
    """Reads that were not booked before."""


@dataclass(frozen=True, slots=True)
class NotForUs:
    """Why a delivery is ignored."""

    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the forge said when asked again."""

    comment: Comment
    pull_request: PullRequest
    permission: Permission
    config_text: str | None
    config_error: UserError | None = None
    """The file could not even be fetched (too large)."""
    jobs: tuple[str, ...] = ()
    """The job names of the file; empty when there is no usable file (the run's check then says why)."""
    not_by_comment: frozenset[str] = frozenset()
    """Jobs whose file says that comments do not start them."""
    policy_text: str | None = None
    """The file of the default branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Handler of `inbox` rows."""

    store: Store
    forge: Forge
    chance: Chance
    budget: Budget = DEFAULT
    """Of each installation."""

    async def __call__(self, lease: Lease) -> None:
        """One step: read the delivery, ask the forge, commit."""
        row, kept_out_until, now = await self.store.read(lambda tx: self._read(tx, lease))
        if lease.tries >= MAX_TRIES:
            await self._poison(lease, row.delivery)
        elif row.delivery.event == "installation":
            await self._installation(lease, row.delivery)
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

    async def _act(self, lease: Lease, delivery: Delivery, asked: Asked, now: datetime) -> None:
        """Asks the forge, and believes it rather than the delivery."""
        seen = await self._try_to_look(lease, asked, now - delivery.received_at)
        if seen is None:
            return
        if note := forged(asked, seen.comment):
            await self._distrust(lease, asked, seen, note)
        elif note := outdated(delivery, seen.comment):
            await self._settle(lease, InboxState.IGNORED, note, asked)
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

    async def _try_to_look(self, lease: Lease, asked: Asked, waited: timedelta) -> Seen | None:
        """None when the row has been given back or settled."""
        installation_id = asked.repo.installation_id
        try:
            return await self._look(asked)
        except ForgeLimited as limit:
            told = limit
            await self._later(lease, lambda tx: (limited(tx, installation_id, told), None))
        except ForgeSuspended as refused:
            if waited > WAITS:
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

    async def _look(self, asked: Asked) -> Seen:
        repo, forge = asked.repo, self.forge
        comment = await edges.call(
            failpoints.INTAKE_COMMENT, lambda: forge.comment(repo, asked.event.comment.id), timeout_s=CALL_TIMEOUT_S
        )
        pull_request = await edges.call(
            failpoints.INTAKE_PULL_REQUEST,
            lambda: forge.pull_request(repo, asked.event.issue.number),
            timeout_s=CALL_TIMEOUT_S,
        )
        permission = await edges.call(
            failpoints.INTAKE_PERMISSION, lambda: forge.permission(repo, comment.author), timeout_s=CALL_TIMEOUT_S
        )
        text, error = await self._config(repo, pull_request) if wants_config(asked) else (None, None)
        policy_text = await self._policy(repo, pull_request) if wants_run(asked) else None
        jobs, not_by_comment = await anyio.to_thread.run_sync(jobs_of, text)
        return Seen(
            comment=comment,
            pull_request=pull_request,
            permission=permission,
            config_text=text,
            config_error=error,
            jobs=jobs,
            not_by_comment=not_by_comment,
            policy_text=policy_text,
        )

    async def _config(self, repo: RepoRef, pull_request: PullRequest) -> tuple[str | None, UserError | None]:
        try:
            raw = await edges.call(
                failpoints.INTAKE_CONFIG,
                lambda: self.forge.read_file(repo, pull_request.head_sha, CONFIG_PATH, max_bytes=CONFIG_MAX_BYTES),
                timeout_s=CALL_TIMEOUT_S,
            )
        except UserError as error:
            return None, error
        # Undecodable bytes become lone surrogates, which `plan.load` reports with their position.
        return (None if raw is None else raw.decode("utf-8", "surrogateescape")), None

    async def _policy(self, repo: RepoRef, pull_request: PullRequest) -> str | None:
        """The default branch's file. One that is too large has no policy that could be known."""
        branch = pull_request.default_branch
        try:
            raw = await edges.call(
                failpoints.INTAKE_POLICY,
                lambda: self.forge.read_file(repo, branch, CONFIG_PATH, max_bytes=CONFIG_MAX_BYTES),
                timeout_s=CALL_TIMEOUT_S,
            )
        except UserError as error:
            return f"# {error}"  # a file of comments alone is one that cannot be read
        return None if raw is None else raw.decode("utf-8", "surrogateescape")

    def _apply(self, tx: Tx, lease: Lease, asked: Asked, seen: Seen) -> None:
        """The one transaction."""
        if not tx.settle_inbox(lease, InboxState.DONE, ""):
            return
        self._pay(tx, asked)
        said: list[str] = []
        for index, parsed in enumerate(asked.parsed):
            if tx.take_command(asked.repo.name, seen.comment.id, index, lease.id):
                tx.audit(entry(tx, seen, "command_taken", subject(asked), command=told(parsed)))
                said += self._obey(tx, asked, seen, parsed)
        quiet = bool(said) and not self._may_be_told(tx, asked, seen)
        self._publish(tx, asked, PublicationKind.REACT, "-1" if quiet else "eyes")
        if said and not quiet:
            self._publish(tx, asked, PublicationKind.REPLY, reply.join(said))

    def _may_be_told(self, tx: Tx, asked: Asked, seen: Seen) -> bool:
        """Anybody may comment, and each answer in words is one write less for everybody else."""
        return seen.permission.push or tx.tell_refusal(
            asked.repo.installation_id, seen.comment.author, every=TOLD_EVERY
        )

    def _obey(self, tx: Tx, asked: Asked, seen: Seen, parsed: Command | CommandError) -> list[str]:
        """What has to be said about this line; the run's own comment says the rest."""
        if isinstance(parsed, CommandError):
            return [reply.error(parsed)]
        match parsed:
            case Help():
                return [help_text(seen.jobs)]
            case Cancel():
                return self._cancel(tx, asked, seen, parsed)
            case RunJob():
                return self._run(tx, asked, seen, parsed) if seen.pull_request.open else [reply.closed()]

    def _cancel(self, tx: Tx, asked: Asked, seen: Seen, command: Cancel) -> list[str]:
        live = [r for r in tx.live_runs(asked.repo, seen.pull_request.number) if command.job in (None, r.job)]
        if not live:
            return [reply.nothing_to_cancel(command.job)]
        said: list[str] = []
        for run in live:
            denied = may(command, permission=seen.permission, is_fork=False, own_run=run.who == seen.comment.author)
            if denied:
                said.append(reply.error(denied))
                continue
            tx.ask_cancel(run.id, seen.comment.author)
            tx.audit(entry(tx, seen, "run_cancel_asked", f"run:{run.id}"))
        return list(dict.fromkeys(said))

    def _run(self, tx: Tx, asked: Asked, seen: Seen, command: RunJob) -> list[str]:
        pull_request = seen.pull_request
        denied = may(
            command, permission=seen.permission, is_fork=pull_request.is_fork_of(asked.repo.name), own_run=False
        )
        if denied:
            tx.audit(entry(tx, seen, "run_denied", subject(asked)))
            return [reply.error(denied)]
        if seen.config_error is not None:
            return [reply.error(seen.config_error)]
        if seen.jobs and command.job not in seen.jobs:
            return [reply.unknown_job(command.job, seen.jobs, suggest(command.job, seen.jobs))]
        if command.job in seen.not_by_comment:
            return [reply.not_by_comment(command.job)]
        for run in tx.live_runs(asked.repo, pull_request.number):
            # nobody joins a run that was told to end: it would never answer them
            if (run.job, run.sha) == (command.job, pull_request.head_sha) and run.cancel_at is None:
                tx.also_asked(run.id, seen.comment.author)
                tx.raise_rev(run.id, final=False, urgent=False)
                tx.audit(entry(tx, seen, "run_joined", f"run:{run.id}"))
                return []
        self._add_run(tx, asked, seen, JobName(command.job))
        return []

    def _add_run(self, tx: Tx, asked: Asked, seen: Seen, job: JobName) -> None:
        now = tx.now()
        run = Run(
            id=self.chance.ulid(),
            repo=asked.repo,
            pr=seen.pull_request.number,
            job=job,
            sha=seen.pull_request.head_sha,
            base_sha=seen.pull_request.base_sha,
            who=seen.comment.author,
            why="comment",
            comment_id=seen.comment.id,
            created_at=now,
            read_key=self.chance.token(16),
            config_text=seen.config_text,
            policy_text=seen.policy_text,
            state_since=now,
            due_at=now,
        )
        tx.add_run(run)
        for kind in (PublicationKind.CHECK, PublicationKind.COMMENT):
            self._publish(tx, asked, kind, "", run_id=run.id)
        tx.audit(entry(tx, seen, "run_created", f"run:{run.id}"))

    def _publish(self, tx: Tx, asked: Asked, kind: PublicationKind, text: str, *, run_id: str = "") -> None:
        now = tx.now()
        tx.publish(
            Publication(
                id=self.chance.ulid(),
                kind=kind,
                repo=asked.repo,
                pr=asked.event.issue.number,
                run_id=run_id,
                text=text,
                comment_id=asked.event.comment.id if kind is PublicationKind.REACT else 0,
                nonce=self.chance.token(8),
                created_at=now,
                due_at=now,
                # What has no run behind it never changes again.
                final=not run_id,
            )
        )

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
                self._publish(tx, asked, PublicationKind.REPLY, said)

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
                self._publish(tx, asked, PublicationKind.REPLY, reply.gave_up())
                about = {"comment": asked.event.comment.id}
                tx.audit(
                    AuditEntry(
                        at=tx.now(), actor="engine", kind="delivery_poisoned", subject=subject(asked), data=about
                    )
                )

        await edges.commit(self.store, failpoints.INTAKE_POISON, apply)


def understand(delivery: Delivery) -> Asked | NotForUs:
    """Pure: is there anything to do, before anybody is asked?"""
    if (delivery.event, delivery.action) != ("issue_comment", "created"):
        return NotForUs(f"{delivery.event}.{delivery.action} starts nothing")
    event = comment_created(delivery.body)
    if event is None or event.installation is None:
        return NotForUs("not a comment of an installation")
    if event.issue.pull_request is None:
        return NotForUs("a comment on an issue")
    if event.by_bot:
        return NotForUs("written by a bot")
    parsed = parse(event.comment.body or "")
    if not parsed:
        return NotForUs("no command")
    return Asked(event=event, repo=repo_of(event, event.installation.id), parsed=parsed)


def addressed(delivery: Delivery) -> Asked | None:
    """Who to answer when nothing could be done, without understanding a word; None when nobody waits for one."""
    event = comment_created(delivery.body) if delivery.event == "issue_comment" else None
    if event is None or event.installation is None or event.by_bot or PREFIX not in (event.comment.body or ""):
        return None
    return Asked(event=event, repo=repo_of(event, event.installation.id), parsed=())


def repo_of(event: CommentCreated, installation_id: int) -> RepoRef:
    """Where it was written."""
    return RepoRef(installation_id=installation_id, name=RepoName(event.repository.full_name), id=event.repository.id)


def forged(asked: Asked, comment: Comment) -> str:
    """How the comment as the API gives it contradicts what the webhook told of it; empty when it does not.

    A stolen webhook secret alone must not spend money: not in somebody's name, and not with a comment that somebody
    wrote elsewhere.
    """
    if comment.author != asked.event.author or comment.author_is_bot:
        return f"the comment is by @{comment.author}"
    if comment.number != asked.event.issue.number:
        return f"the comment stands on #{comment.number}"
    if not was_edited(comment) and comment.body != (asked.event.comment.body or ""):
        return "the comment has another text"
    return ""


def outdated(delivery: Delivery, comment: Comment) -> str:
    """Why what was written does not count any more; empty when it does."""
    if was_edited(comment):
        return "the comment was edited before it was read"
    if delivery.received_at - comment.created_at > OLDEST:
        return "the comment is too old"
    return ""


def was_edited(comment: Comment) -> bool:
    """An edited comment never starts anything."""
    return comment.updated_at != comment.created_at


def wants_config(asked: Asked) -> bool:
    """Help lists the jobs, run needs the file; errors and cancel do not."""
    return any(isinstance(p, (RunJob, Help)) for p in asked.parsed)


def wants_run(asked: Asked) -> bool:
    """What runs is bound by a policy."""
    return any(isinstance(p, RunJob) for p in asked.parsed)


def jobs_of(config_text: str | None) -> tuple[tuple[str, ...], frozenset[str]]:
    """The job names of the file, and those that comments do not start; empty when it cannot be used."""
    if config_text is None:
        return (), frozenset()
    try:
        config = load(config_text)
    except ConfigError:
        return (), frozenset()
    return job_names(config), frozenset(name for name, job in config.jobs.items() if not job.by_comment)


def subject(asked: Asked) -> str:
    """The pull request, for the audit log."""
    return f"repo:{asked.repo.name}#{asked.event.issue.number}"


def told(parsed: Command | CommandError) -> str:
    """The command as we understood it."""
    return f"not understood: {parsed}"[:200] if isinstance(parsed, CommandError) else render(parsed)


def entry(tx: Tx, seen: Seen, kind: str, subject: str, **data: str) -> AuditEntry:
    """An audit row in the name of the commenter."""
    return AuditEntry(
        at=tx.now(),
        actor=f"@{seen.comment.author}",
        kind=kind,
        subject=subject,
        data={"comment": seen.comment.id, "sha": seen.pull_request.head_sha, **data},
    )
