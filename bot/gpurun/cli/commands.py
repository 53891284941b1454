"""What all commands have in common: how Ctrl-C ends them, and what is said when an argument is missing."""

from __future__ import annotations

import sys
from typing import Any

import click

INTERRUPTED = 130


class Commands(click.Group):
    """The top of all commands. What one of them has to say of Ctrl-C it says before; click would say `Aborted!`."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except click.Abort as end:  # of a prompt, which makes one of a closed stdin, too
            if not isinstance(end.__context__, KeyboardInterrupt):
                raise
            sys.exit(INTERRUPTED)


class Job(click.Argument):
    """The argument JOB. Whoever leaves it out hears which jobs there are."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter as missing:
            from gpurun.cli.the_job import which_jobs

            command = ctx.command_path
            told = which_jobs(command, ctx.params.get("path"), ctx.params.get("checkout"))
            raise click.UsageError(f"Missing argument 'JOB'. {told}".strip(), ctx) from missing


class Commit(click.Argument):
    """One of two commits."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter as missing:
            told = f"Two commits, branches or tags are compared: `{ctx.command_path} main HEAD`."
            raise click.UsageError(f"Missing argument '{self.human_readable_name}'. {told}", ctx) from missing
