"""How every command ends that Ctrl-C ends. Loads click alone."""

from __future__ import annotations

import sys

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
