"""What a person is asked who is to allow a run, from the run alone. Pure."""

from __future__ import annotations

from gpurun.command.allow import who_may
from gpurun.command.grammar import Who, render
from gpurun.domain.command import Approve
from gpurun.domain.config import PermissionKeys
from gpurun.domain.errors import ConfigError
from gpurun.domain.lock import Lock
from gpurun.domain.money import usd_up
from gpurun.domain.run import Run
from gpurun.plan.changes import changed_check, file_diff
from gpurun.plan.load import find_job, permissions_of
from gpurun.report.facts import Request


def request_of(run: Run) -> Request:
    """With the ceiling that its price suggests."""
    base_text = run.pins.base.config_text if run.pins.base else None
    base, head = find_job(base_text, run.job), find_job(run.config_text, run.job)
    most = None if run.quote is None else usd_up(run.quote.worst_usd_micro)
    return Request(
        command=render(Approve(run.sha, most or None)),
        who=who_may(Who.APPROVE, _permissions(run.policy_text)),
        changed=changed_check(
            base, head, base_lock=run.pins.base.lock if run.pins.base else Lock(), head_lock=run.pins.lock or Lock()
        ),
        is_new=base is None,
        file_diff=file_diff(base_text, run.config_text),
    )


def _permissions(text: str | None) -> PermissionKeys:
    try:
        return permissions_of(text)
    except ConfigError:  # nobody starts a run then
        return PermissionKeys()
