"""What the commands of one comment do: rows of runs, cancels and publications, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpurun.domain.command import Answering, Approve, Command, Logs, OverrideJob, Starting, Stopping
from gpurun.domain.errors import CommandError
from gpurun.flow import obey_ask, obey_run, obey_stop, obey_trust
from gpurun.flow.acting import Acting
from gpurun.ports.store import Tx
from gpurun.report import reply


@dataclass(slots=True)
class Obey:
    """One comment, or one button, that is believed."""

    acting: Acting
    log_of: str = field(default="", init=False)
    """The run whose log is in what has to be said; empty when none is."""

    def __call__(self, tx: Tx, parsed: Command | CommandError) -> list[str]:
        """What has to be said about this line; the run's own comment says the rest."""
        if isinstance(parsed, CommandError):
            return [reply.error(parsed)]
        if isinstance(parsed, Starting | Approve | OverrideJob) and not self.acting.seen.pull_request.open:
            return [reply.closed()]
        if isinstance(parsed, Starting):
            return obey_run.obey(tx, self.acting, parsed)
        if isinstance(parsed, Stopping):
            return obey_stop.obey(tx, self.acting, parsed)
        if isinstance(parsed, Answering):
            return obey_trust.obey(tx, self.acting, parsed)
        return [self._logs(tx, parsed) if isinstance(parsed, Logs) else obey_ask.answer(tx, self.acting, parsed)]

    def _logs(self, tx: Tx, command: Logs) -> str:
        """One log a comment: more have no room, and each has its own secrets."""
        if self.log_of:
            return reply.one_log()
        said, self.log_of = obey_ask.end_of_log(tx, self.acting, command)
        return said
