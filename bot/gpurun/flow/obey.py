"""What the commands of one comment do: rows of runs, cancels and publications, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from gpurun.command.allow import may
from gpurun.command.grammar import help_text, render
from gpurun.command.parse import suggest
from gpurun.domain.approval import Approval, ApprovalEnd
from gpurun.domain.command import Approve, Cancel, Command, Help, Revoke, RunJob
from gpurun.domain.errors import CommandError, NotAllowed
from gpurun.domain.ids import JobName
from gpurun.domain.publication import Publication, PublicationKind
from gpurun.domain.run import AuditEntry, Run, RunState
from gpurun.flow import approvals
from gpurun.flow.comments import Asked
from gpurun.flow.look import JobFile, Search, Seen
from gpurun.ports.clock import Chance
from gpurun.ports.store import Kind, Tx
from gpurun.report import reply


@dataclass(frozen=True, slots=True)
class Obey:
    """One comment, whose author and text are believed."""

    chance: Chance
    asked: Asked
    seen: Seen

    def __call__(self, tx: Tx, parsed: Command | CommandError) -> list[str]:
        """What has to be said about this line; the run's own comment says the rest."""
        if isinstance(parsed, CommandError):
            return [reply.error(parsed)]
        match parsed:
            case Help():
                return [self._help()]
            case Cancel():
                return self._cancel(tx, parsed)
            case Approve():
                return self._approve(tx, parsed) if self.seen.pull_request.open else [reply.closed()]
            case Revoke():
                return self._revoke(tx, parsed)
            case RunJob():
                return self._run(tx, parsed) if self.seen.pull_request.open else [reply.closed()]

    def _help(self) -> str:
        top, search = self.seen.files.get(""), self.seen.search
        folders = {file.folder: file.jobs for file in search.files if file.jobs} if search else {}
        return help_text(top.jobs if top else (), folders)

    # cancel

    def _cancel(self, tx: Tx, command: Cancel) -> list[str]:
        live = [run for run in tx.live_runs(self.asked.repo, self._pr) if _is_meant(command, run)]
        folders = tuple(dict.fromkeys(run.folder for run in live))
        if command.job and not command.path and len(folders) > 1:
            if "" not in folders:
                return [reply.which_folder([render(Cancel(command.job, folder)) for folder in folders])]
            live = [run for run in live if not run.folder]
        if not live:
            return [reply.nothing_to_cancel(command.job, command.path)]
        said: list[str] = []
        for run in live:
            denied = self._denied(command, own_run=run.who == self.seen.who)
            if denied:
                said.append(reply.error(denied))
                continue
            tx.ask_cancel(run.id, self.seen.who)
            tx.audit(entry(tx, self.seen, "run_cancel_asked", f"run:{run.id}"))
        return list(dict.fromkeys(said))

    def _denied(self, command: Command, *, own_run: bool = False) -> NotAllowed | None:
        return may(command, self.seen.rights, self.seen.permissions, own_run=own_run)

    # approve, revoke

    def _approve(self, tx: Tx, command: Approve) -> list[str]:
        seen, pull_request = self.seen, self.seen.pull_request
        denied = self._denied(command)
        if denied:
            tx.audit(entry(tx, seen, "approve_denied", subject(self.asked)))
            return [reply.error(denied)]
        if seen.policy_error is not None:
            return [reply.error(seen.policy_error)]
        if command.sha != pull_request.head_sha:
            return [reply.another_head(command.sha, pull_request.head_sha)]
        before = tx.hold_approval(self.asked.repo, self._pr)
        if before is not None and before.max_usd_micro == command.max_usd_micro:
            return [reply.approved_before(before)]
        approval = Approval(
            id=self.chance.ulid(),
            repo=self.asked.repo,
            pr=self._pr,
            sha=command.sha,
            max_usd_micro=command.max_usd_micro,
            by=seen.who,
            at=tx.now(),
            asked_at=seen.asked_at,
        )
        tx.approve(approval)
        tx.raise_gate(self.asked.repo, self._pr)
        most = "" if approval.max_usd_micro is None else str(approval.max_usd_micro)
        tx.audit(entry(tx, seen, "approved", subject(self.asked), approval=approval.id, max_usd_micro=most))
        live = [run for run in tx.live_runs(self.asked.repo, self._pr) if run.untrusted and run.cancel_at is None]
        for run in live:
            tx.wake(Kind.RUN, run.id)
        if any(run.state in _BEFORE_A_WORD for run in live):
            return []  # their own comments say it
        return [reply.approved(approval, needed=seen.untrusted is not None)]

    def _revoke(self, tx: Tx, command: Revoke) -> list[str]:
        denied = self._denied(command)
        if denied:
            tx.audit(entry(tx, self.seen, "revoke_denied", subject(self.asked)))
            return [reply.error(denied)]
        approval = tx.hold_approval(self.asked.repo, self._pr)
        if approval is None:
            return [reply.nothing_to_revoke()]
        who = self.seen.who
        approvals.end(tx, approval, ApprovalEnd.REVOKED, by=who, actor=f"@{who}")
        return [reply.revoked(approval)]

    # run

    def _run(self, tx: Tx, command: RunJob) -> list[str]:
        pull_request = self.seen.pull_request
        denied = self._denied(command)
        if denied:
            tx.audit(entry(tx, self.seen, "run_denied", subject(self.asked)))
            return [reply.error(denied)]
        if self.seen.policy_error is not None:
            return [reply.error(self.seen.policy_error)]
        file = self._file_of(command)
        if isinstance(file, str):
            return [file]
        if command.job in file.not_by_comment:
            return [reply.not_by_comment(command.job, file.folder)]
        for run in tx.live_runs(self.asked.repo, self._pr):
            # nobody joins a run that was told to end: it would never answer them
            same = (run.job, run.folder, run.sha) == (command.job, file.folder, pull_request.head_sha)
            if same and run.cancel_at is None:
                tx.also_asked(run.id, self.seen.who)
                tx.raise_rev(run.id, final=False, urgent=False)
                tx.audit(entry(tx, self.seen, "run_joined", f"run:{run.id}"))
                return []
        self._add_run(tx, JobName(command.job), file)
        return []

    def _file_of(self, command: RunJob) -> JobFile | str:
        """The file whose job is meant, or what to say when there is none, or several."""
        file = self.seen.files[command.path]
        if file.error is not None:
            return reply.error(file.error)
        if file.text is None and command.path:
            return reply.no_file(command.path)
        if file.text is not None and (command.job in file.jobs or not file.jobs):
            return file
        if command.path or self.seen.search is None:
            return self._no_job(command, file, Search())
        return self._found(command, file, self.seen.search)

    def _found(self, command: RunJob, top: JobFile, search: Search) -> JobFile | str:
        having = [file for file in search.files if command.job in file.jobs]
        if len(having) == 1:
            return having[0]
        if having:
            choices = [render(RunJob(command.job, file.folder)) for file in having]
            return reply.which_folder(choices, all_seen=search.all_seen)
        if top.text is None and not search.files:
            return top  # the run's own comment says how to begin
        return self._no_job(command, top, search)

    def _no_job(self, command: RunJob, file: JobFile, search: Search) -> str:
        files = [file, *search.files] if file.text is not None else list(search.files)
        meant = suggest(command.job, [job for one in files for job in one.jobs])
        where = next((one.folder for one in files if meant in one.jobs), "")
        places = [reply.Place(folder=one.folder, jobs=one.jobs) for one in files]
        typed = render(RunJob(meant, where)) if meant else None
        return reply.unknown_job(command.job, places, typed, all_seen=search.all_seen)

    def _add_run(self, tx: Tx, job: JobName, file: JobFile) -> None:
        now, seen = tx.now(), self.seen
        run = Run(
            id=self.chance.ulid(),
            repo=self.asked.repo,
            pr=self._pr,
            job=job,
            sha=seen.pull_request.head_sha,
            base_sha=seen.pull_request.base_sha,
            base_ref=seen.pull_request.base_ref,
            untrusted=seen.untrusted,
            who=seen.who,
            why="comment",
            comment_id=seen.comment.id,
            created_at=now,
            read_key=self.chance.token(16),
            config_text=file.text,
            folder=file.folder,
            policy_text=seen.policy_text,
            state_since=now,
            due_at=now,
        )
        tx.add_run(run)
        tx.raise_gate(self.asked.repo, self._pr)
        for kind in (PublicationKind.CHECK, PublicationKind.COMMENT):
            publish(tx, self.chance, self.asked, kind, run_id=run.id)
        tx.audit(entry(tx, seen, "run_created", f"run:{run.id}"))

    @property
    def _pr(self) -> int:
        return self.seen.pull_request.number


_BEFORE_A_WORD = frozenset({RunState.PLANNING, RunState.WAITING_APPROVAL})


def _is_meant(command: Cancel, run: Run) -> bool:
    return command.job in (None, run.job) and command.path in ("", run.folder)


def publish(tx: Tx, chance: Chance, asked: Asked, kind: PublicationKind, *, text: str = "", run_id: str = "") -> None:
    """One more target on the pull request that was written on."""
    now = tx.now()
    tx.publish(
        Publication(
            id=chance.ulid(),
            kind=kind,
            repo=asked.repo,
            pr=asked.event.issue.number,
            run_id=run_id,
            text=text,
            comment_id=asked.event.comment.id if kind is PublicationKind.REACT else 0,
            nonce=chance.token(8),
            created_at=now,
            due_at=now,
            # What has no run behind it never changes again.
            final=not run_id,
        )
    )


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
        actor=f"@{seen.who}",
        kind=kind,
        subject=subject,
        data={"comment": seen.comment.id, "sha": seen.pull_request.head_sha, **data},
    )
