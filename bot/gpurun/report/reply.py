"""Answers to command lines that make no run: one comment for all lines of one comment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpurun.domain.approval import Approval
from gpurun.domain.errors import UserError
from gpurun.domain.folder import config_path, job_in
from gpurun.domain.gate import Override, Pause
from gpurun.domain.run import Run
from gpurun.report.limits import COMMENT_BYTES
from gpurun.report.text import code, cut, link, prose, usd
from gpurun.report.waiting import as_sentence, paused_words

MAX_JOBS = 50
LIST = "`/gpurun list` shows the jobs."
_NOT_ALL = "The pull request touches more folders than are looked through; `path=<folder>` names any."


def join(said: Sequence[str]) -> str:
    """One answer as it is, several as a list; what was said twice is said once. A table stands below the list."""
    unique = list(dict.fromkeys(said))
    for kept in range(len(unique), 1, -1):
        left = f"And {len(unique) - kept} more answers that have no room here." if kept < len(unique) else ""
        answer = _laid_out([*unique[:kept], *([left] if left else [])])
        if len(answer.encode()) <= COMMENT_BYTES:
            return answer
    return cut(unique[0], COMMENT_BYTES)  # each is far shorter: half of a code span would be no code


def _laid_out(said: Sequence[str]) -> str:
    lines = [f"- {one}" for one in said if "\n" not in one]
    blocks = [one for one in said if "\n" in one]
    return "\n\n".join(["\n".join(lines), *blocks] if lines else blocks)


def error(fault: UserError) -> str:
    """Its message and what to do."""
    return prose(f"{fault.message} {fault.hint}".strip(), 2000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A `.gpurun.yml` that was looked at."""

    folder: str
    """Empty for the top."""
    jobs: tuple[str, ...]
    """Empty when the file has a fault."""


def unknown_job(job: str, places: Sequence[Place], meant: str | None, *, all_seen: bool) -> str:
    """The jobs there are, file by file, and the command that was probably meant."""
    guess = f" Did you mean {code(meant)}?" if meant else ""
    cut_note = "" if all_seen else f" {_NOT_ALL}"
    match places:
        case [place]:
            return (
                f"There is no job {code(job, 80)} in {_path(place)}.{guess} Jobs: {_jobs(place, MAX_JOBS)}.{cut_note}"
            )
        case _:
            most = max(5, MAX_JOBS // len(places)) if places else 0
            listed = "; ".join(f"{_path(place)}: {_jobs(place, most)}" for place in places)
            return f"No `.gpurun.yml` that was looked at has a job {code(job, 80)}.{guess} {listed}.{cut_note}"


def _path(place: Place) -> str:
    return code(config_path(place.folder))


def _jobs(place: Place, most: int) -> str:
    if not place.jobs:
        return f"has a fault, and {code(f'gpurun validate {config_path(place.folder)}')} says where"
    more = f" and {len(place.jobs) - most} more" if len(place.jobs) > most else ""
    return ", ".join(code(name) for name in place.jobs[:most]) + more


def which_folder(commands: Sequence[str], *, all_seen: bool = True) -> str:
    """Several folders have that job."""
    listed = " or ".join(code(command) for command in commands)
    return f"Several folders have this job. Write {listed}.{'' if all_seen else f' {_NOT_ALL}'}"


def no_file(folder: str) -> str:
    """A folder was named that has none."""
    return f"There is no {code(config_path(folder))} at the head of this pull request, so nothing was started."


def closed() -> str:
    """The pull request is closed or merged."""
    return (
        "This pull request is closed, so nothing was started. "
        "Its author, and people with write access, can reopen it when it was not merged; else write the command on an "
        "open one."
    )


def nothing_to_cancel(job: str | None, folder: str = "") -> str:
    """No live run of that job, or none at all."""
    what = (f"No run of {code(job, 80)}" if job else "No run") + (f" in {code(folder)}" if folder else "")
    return f"{what} is going on for this pull request, so there was nothing to cancel."


def gave_up() -> str:
    """Reading the comment or its pull request failed, several times."""
    return (
        "This comment was not acted on: GitHub did not answer several times, or gpurun itself failed. "
        "Write the command again. When that fails, too, whoever runs gpurun finds the reason in its log."
    )


def not_allowed_to_look() -> str:
    """GitHub refused a call that every command needs."""
    return (
        "This comment was not acted on: GitHub did not let gpurun read what it needs for that. "
        "Perhaps an owner of this account has to accept new permissions of the App, or whoever runs gpurun finds the "
        "call in its log."
    )


def not_by_comment(job: str, folder: str = "") -> str:
    """The file says so."""
    locally = f"gpurun run {job}" + (f" --path {folder}" if folder else "")
    return f"Comments do not start {code(job)}: its `trigger` says `comment: false`. {code(locally)} runs it locally."


def another_head(typed: str, head: str) -> str:
    """The commit that somebody approved is not the one that would run."""
    return (
        f"Nothing was approved: {code(typed)} is not the head of this pull request, which is {code(head)} now. "
        "Whoever approves looks at that commit, and when it may run, approves it by its own id."
    )


def approved(approval: Approval, *, needed: bool) -> str:
    """Nothing waited for it."""
    what = f"{code(approval.sha)} may run {_ceiling(approval)}until the next push. "
    if needed:
        return what + "Nothing waits for it: a job is started as always, with its own command."
    return what + "Code of this pull request runs without an approval, too: its author may push here."


def approved_before(approval: Approval) -> str:
    """The same is in force."""
    return f"{code(approval.by)} has approved {code(approval.sha)} {_ceiling(approval)}already, and that holds."


def revoked(approval: Approval) -> str:
    """What ran under it has been told to stop."""
    return f"The approval of {code(approval.sha)} by {code(approval.by)} has ended; what ran under it is stopped."


def nothing_to_revoke() -> str:
    """None is in force."""
    return "No approval is in force for this pull request; a push or a close ends one, too."


def not_the_head(typed: str, head: str) -> str:
    """The commit that somebody named is not the one that would run."""
    return (
        f"Nothing was started: {code(typed)} is not the head of this pull request, which is {code(head)} now. "
        "Look at that commit, and write the command with its id, or without `sha=`."
    )


def provider_not_allowed(provider: str, allowed: Sequence[str]) -> str:
    """By the policy of the default branch."""
    listed = ", ".join(code(one) for one in allowed[:MAX_JOBS]) or "none"
    return (
        f"Nothing was started: the policy of the default branch does not allow {code(f'provider={provider}')}. "
        f"It allows {listed}; who may merge there can change that."
    )


def joined(run: Run, url: str) -> str:
    """The same is going on, and whoever asked is named there."""
    return (
        f"{prose(job_in(run.job, run.folder), 200)} already runs like this for this commit: {link(code(run.id), url)}."
    )


def paused(pause: Pause) -> str:
    """Nothing starts."""
    return f"Nothing was started. {paused_words(pause)}"


def pause_begun(pause: Pause, held: int) -> str:
    """What waits from now on."""
    return (
        f"Nothing starts in this repository from now on: {as_sentence(pause.reason)} "
        f"Of {_runs(held)} that had not ended, those with an instance go on, and the others wait. "
        f"{code('/gpurun resume')} ends the pause, and {code('/gpurun stop-all')} stops what goes on."
    )


def pause_ended(pause: Pause, freed: int) -> str:
    """What goes on."""
    goes = "goes" if freed == 1 else "go"
    return f"The pause by {code(pause.by)} has ended. {_runs(freed)} that had not ended {goes} on."


def not_paused() -> str:
    """Somebody wanted to end one."""
    return f"This repository is not paused, so there was nothing to end. {code('/gpurun status')} shows what goes on."


def all_stopped(count: int, *, before: int) -> str:
    """Every live run of the repository was told to end."""
    others = f" {_runs(before)} had been told before." if before else ""
    if not count:
        return f"No run of this repository goes on that had not been told to stop.{others}"
    return (
        f"{_runs(count)} of this repository {_is(count)} told to stop.{others} "
        f"{code('/gpurun pause')} with a reason keeps others from starting."
    )


def nothing_to_retry(job: str | None, head: str) -> str:
    """Nothing of that ran at the head."""
    what = f"No run of {code(job, 80)}" if job else "No job"
    return f"{what} ran at {code(head[:12])}, the head of this pull request, so there is nothing to run again. {LIST}"


def none_worth_a_retry(newest: Sequence[tuple[Run, bool]]) -> str:
    """Each newest run, and whether it goes on."""
    listed = ", ".join(
        f"{prose(job_in(run.job, run.folder), 200)} {'goes on' if live or run.verdict is None else run.verdict.value}"
        for run, live in newest[:MAX_JOBS]
    )
    return (
        f"Nothing failed, timed out or was lost at the head of this pull request: {listed}. "
        f"{code('/gpurun retry all')} runs again what has ended."
    )


def no_run(job: str | None) -> str:
    """Of that name or id."""
    what = f"No run of {code(job, 80)}, and none with that id," if job else "No run"
    return f"{what} is known for this pull request. {LIST}"


def one_log() -> str:
    """Several were asked for in one comment."""
    return "One comment shows the log of one run. Write the other command in another comment."


def overridden(override: Override) -> str:
    """It counts as passed."""
    return (
        f"{prose(job_in(override.job, override.folder), 200)} counts as passed at {code(override.sha)} until the next "
        f"push: {as_sentence(override.reason)} Its own check stays as it is. "
        f"{code('/gpurun override cancel')} takes it back."
    )


def override_ended(ended: Sequence[Override]) -> str:
    """They do not hold any more."""
    listed = ", ".join(prose(job_in(one.job, one.folder), 200) for one in ended[:MAX_JOBS])
    return f"The override of {listed} has ended: what was required is required again."


def nothing_overridden(job: str | None) -> str:
    """At the head."""
    what = f"{code(job, 80)} is not overridden" if job else "Nothing is overridden"
    return f"{what} at the head of this pull request; a push ends every override."


def not_required(job: str, typed: str) -> str:
    """There is no need to override it."""
    guess = f" Did you mean {code(typed, 600)}?" if typed else ""
    return f"No merge needs a job {code(job, 80)} here, so there was nothing to override.{guess or f' {LIST}'}"


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def _is(count: int) -> str:
    return "was" if count == 1 else "were"


def to_a_press(who: str, button: str, check: str, said: Sequence[str]) -> str:
    """There is no comment that the answer stands below."""
    about = f"{code(who)} pressed {_button(button)} at {code(check)}."
    return f"{about} {said[0]}" if len(said) == 1 and "\n" not in said[0] else f"{about}\n\n{join(said)}"


def _button(button: str) -> str:
    """As it is labelled, more or less."""
    known = {"rerequested": "Re-run", "rerequested all": "Re-run all", "rerun": "Re-run", "run": "Run"}
    return known.get(button) or {"cancel": "Cancel", "approve": "Approve"}.get(button.partition(":")[0], "a button")


def moved_on(sha: str, head: str) -> str:
    """The check is of a commit that is not the head."""
    return (
        f"That check is of {code(sha[:12])}, and the head of this pull request is {code(head[:12])} now, so nothing "
        "was started. Press the button at a check of the head, or write the command."
    )


def over() -> str:
    """A button that stops a run which has ended."""
    return "That run had ended already, so there was nothing to cancel."


def nothing_to_run_again() -> str:
    """No newest run of a job is worth another try."""
    return (
        "The newest run of each job has passed, goes on, or was refused, so nothing was started. "
        "A job is started by its own command."
    )


def nothing_could_be_read() -> str:
    """GitHub refused a call that every button needs."""
    return (
        "Nothing was done: GitHub did not let gpurun read what it needs for that. Perhaps an owner of this account has "
        "to accept new permissions of the App; whoever runs gpurun finds the call in its log."
    )


def _ceiling(approval: Approval) -> str:
    return "" if approval.max_usd_micro is None else f"for at most {usd(approval.max_usd_micro)} a run "
