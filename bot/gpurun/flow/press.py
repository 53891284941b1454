"""What the press of a button on a check asks for, whether it is true, and what it does.

Who has the webhook's secret can sign that anybody pressed anything. So a press is believed only when the forge itself
has sent it (`ports.forge.Forge.delivery`), and what the check is about comes from the check as the API gives it and
from our own rows, never from the delivery.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from gpurun.domain.command import Approve, Cancel, RunJob
from gpurun.domain.delivery import Delivery
from gpurun.domain.errors import NotAllowed, PinNotFound
from gpurun.domain.forge import CheckSeen, RepoRef, Sent
from gpurun.domain.gate import Gate
from gpurun.domain.ids import CommitSha, RepoName
from gpurun.domain.right import Right
from gpurun.domain.run import Run, RunState, Verdict
from gpurun.flow import obey_run, obey_stop
from gpurun.flow.acting import Acting
from gpurun.flow.comments import NotForUs
from gpurun.flow.events import Pressed, pressed
from gpurun.flow.look import Seen
from gpurun.flow.obey import Obey
from gpurun.ports.store import Tx
from gpurun.report import reply

EVENTS: Final = frozenset({"check_run", "check_suite"})
AGAIN = "rerequested"
"""GitHub's own Re-run, which carries no identifier."""
ALL_AGAIN = "rerequested all"
"""Re-run of all checks of a commit."""
RUN, RERUN, CANCEL, APPROVE = "run", "rerun", "cancel", "approve"
"""The identifiers of our own buttons. Behind `approve:` stands the ceiling in micro-USD."""
GATE, NEED = "gate:", "need:"
"""What `external_id` of a check begins with that is of no run."""

_WORTH_A_TRY = obey_run.WORTH_ANOTHER_TRY | {Verdict.CANCELLED}
"""Whoever presses a button that GitHub shows at a cancelled check wants it to run."""
_CEILING = re.compile(r"approve:([0-9]{1,15})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """Who pressed what, as a delivery tells it. Two that are equal tell the same."""

    repo: RepoRef
    check_id: int
    """Of the suite when all its checks are meant."""
    sha: str
    button: str
    """`AGAIN`, `ALL_AGAIN`, or what the button carries."""
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a press is about, from our own rows."""

    pr: int
    sha: CommitSha
    """Of the check."""
    name: str
    """Of the check, for people."""
    wish: tuple[RunJob, ...] | Cancel | Approve | Gate
    """Runs; a run to stop; an approval; a gate that is to look again."""
    run: Run | None = None
    """The one to stop."""

    @property
    def commands(self) -> tuple[RunJob | Cancel | Approve, ...]:
        """As if they had been typed."""
        match self.wish:
            case Gate():
                return ()
            case Cancel() | Approve():
                return (self.wish,)
            case _:
                return self.wish


def understand(delivery: Delivery) -> Press | NotForUs:
    """Pure: is there anything to do, before anybody is asked?"""
    return press_of(delivery.event, delivery.body)


def press_of(event: str, body: bytes) -> Press | NotForUs:
    """From the body of a delivery."""
    told = pressed(body) if event in EVENTS else None
    if told is None or told.installation is None:
        return NotForUs("not a check of an installation")
    if told.sender is None or not told.sender.login or told.sender.type == "Bot":
        return NotForUs("pressed by a bot")
    button = _button(event, told)
    check = told.check_run if event == "check_run" else told.check_suite
    if check is None or not button:
        return NotForUs(f"{event}.{told.action} starts nothing")
    repo = told.repository
    try:
        name = RepoName(repo.full_name)
    except PinNotFound:
        return NotForUs("a repository of a strange name")
    where = RepoRef(installation_id=told.installation.id, name=name, id=repo.id)
    return Press(repo=where, check_id=check.id, sha=check.head_sha, button=button, who=told.sender.login)


def _button(event: str, told: Pressed) -> str:
    """Empty for what is none."""
    match event, told.action:
        case "check_suite", "rerequested":
            return ALL_AGAIN
        case "check_run", "rerequested":
            return AGAIN
        case "check_run", "requested_action":
            named = told.requested_action.identifier if told.requested_action else ""
            return "" if named in (AGAIN, ALL_AGAIN) else named
        case _:
            return ""


def contradicted(press: Press, sent: Sent) -> str:
    """How what the forge has sent differs from what came; empty when it does not."""
    told = press_of(sent.event, sent.body)
    if told == press:
        return ""
    return (
        told.note if isinstance(told, NotForUs) else f"GitHub has sent {told.button[:40]} by @{told.who} under this id"
    )


# what it is about


def aim(tx: Tx, press: Press, check: CheckSeen | None) -> Aim | NotForUs:
    """`check`: as the API gives it; None when all checks of the commit are meant."""
    if check is None:
        return _all_again(tx, press)
    kind, _, rest = check.external_id.partition(":")
    if f"{kind}:" not in (GATE, NEED):
        return _of_run(press, check, tx.run(check.external_id))
    gate_id, _, place = rest.partition(":")
    gate = tx.gate(gate_id)
    if gate is None or not _is_of(press, check, gate.repo, gate.sha):
        return NotForUs("a check of no gate that we know")
    folder, _, job = place.rpartition(":")
    return _of_need(press, check, gate, RunJob(job, folder)) if job else _of_gate(press, check, gate)


def _is_of(press: Press, check: CheckSeen, repo: RepoRef, sha: CommitSha) -> bool:
    return (repo.id, sha) == (press.repo.id, check.head_sha)


def _of_run(press: Press, check: CheckSeen, run: Run | None) -> Aim | NotForUs:
    if run is None or run.pr is None or not _is_of(press, check, run.repo, run.sha):
        return NotForUs("a check of no run that we know")
    wish: tuple[RunJob, ...] | Cancel | Approve | None
    if press.button in (RUN, RERUN, AGAIN):
        wish = (_once_more(run),)
    elif press.button == CANCEL:
        wish = Cancel(run.job, run.folder)
    else:
        wish = _approval(press, run.sha)
    if wish is None:
        return _unknown(press)
    return Aim(pr=run.pr, sha=run.sha, name=check.name, wish=wish, run=run)


def _of_need(press: Press, check: CheckSeen, gate: Gate, command: RunJob) -> Aim | NotForUs:
    wish = (command,) if press.button in (RUN, RERUN, AGAIN) else _approval(press, gate.sha)
    return _unknown(press) if wish is None else Aim(pr=gate.pr, sha=gate.sha, name=check.name, wish=wish)


def _of_gate(press: Press, check: CheckSeen, gate: Gate) -> Aim | NotForUs:
    wish = gate if press.button == AGAIN else _approval(press, gate.sha)
    return _unknown(press) if wish is None else Aim(pr=gate.pr, sha=gate.sha, name=check.name, wish=wish)


def _unknown(press: Press) -> NotForUs:
    return NotForUs(f"there is no button {press.button[:40]!r} there")


def _approval(press: Press, sha: CommitSha) -> Approve | None:
    """Of exactly the commit that the check stands on."""
    if press.button == APPROVE:
        return Approve(sha)
    ceiling = _CEILING.fullmatch(press.button)
    return Approve(sha, int(ceiling[1])) if ceiling else None


def _all_again(tx: Tx, press: Press) -> Aim | NotForUs:
    """The newest run of each job, where it ended and another try may help, of the pull request that ran last."""
    runs = [run for run in tx.runs_of_commit(press.repo.name, press.sha) if run.repo.id == press.repo.id]
    of_pulls = sorted((run for run in runs if run.pr is not None), key=lambda run: (run.created_at, run.id))
    if not of_pulls or of_pulls[-1].pr is None:
        return NotForUs("no run of that commit")
    last = of_pulls[-1]
    newest = obey_run.newest_of_each(run for run in of_pulls if run.pr == last.pr)
    again = tuple(_once_more(one[-1]) for one in newest if any(run.verdict in _WORTH_A_TRY for run in one))
    return Aim(pr=of_pulls[-1].pr, sha=last.sha, name="all checks", wish=again)


def _once_more(run: Run) -> RunJob:
    """As it was asked for, with all of its `repeat`."""
    asked = run.narrow
    return RunJob(
        run.job,
        run.folder,
        gpu=asked.gpu,
        provider=asked.provider,
        repeat=asked.of,
        max_usd_micro=asked.max_usd_micro,
    )


# what it does


def carry_out(tx: Tx, acting: Acting, aim: Aim) -> list[str]:
    """What has to be said; the run's own comment says the rest."""
    obey = Obey(acting)
    match aim.wish:
        case Gate() as gate:
            return _look_again(tx, acting, aim, gate)
        case Cancel() as command:
            return _stop(tx, acting, command, aim)
        case Approve() as command:
            return obey(tx, command)
        case ():
            return [reply.nothing_to_run_again()]
        case commands:
            if stale := _stale(acting.seen, aim):
                return [stale]
            return [sentence for command in commands for sentence in obey(tx, command)]


def _stale(seen: Seen, aim: Aim) -> str:
    """A run that somebody reads of is of one commit, and a new one would be of another."""
    pull_request = seen.pull_request
    if not pull_request.open:
        return reply.closed()
    return "" if pull_request.head_sha == aim.sha else reply.moved_on(aim.sha, pull_request.head_sha)


def _stop(tx: Tx, acting: Acting, command: Cancel, aim: Aim) -> list[str]:
    """That run and no other, also when a newer one of the job goes on."""
    run = None if aim.run is None else tx.run(aim.run.id)
    if run is None or run.state is RunState.ENDED:
        return [reply.over()]
    return obey_stop.cancel_runs(tx, acting, [run], command)


def _look_again(tx: Tx, acting: Acting, aim: Aim, gate: Gate) -> list[str]:
    if Right.RUN not in acting.seen.rights:
        acting.note(tx, "look_denied")
        return [reply.error(NotAllowed("Looking again is for people who may run jobs here.", hint="Ask one of them."))]
    if stale := _stale(acting.seen, aim):
        return [stale]
    # its row is found by its commit, so the id of a new one is not used
    tx.open_gate(replace(gate, id=acting.chance.ulid(), due_at=tx.now()))
    return []
