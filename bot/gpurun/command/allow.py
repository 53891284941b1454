"""Who may do what."""

from __future__ import annotations

from gpurun.command.grammar import WHO_TEXT, Who, entry_of, render
from gpurun.domain.command import Command
from gpurun.domain.errors import NotAllowed
from gpurun.domain.forge import Permission


def may(command: Command, permission: Permission, *, is_fork: bool, own_run: bool) -> NotAllowed | None:
    """None when the person may, else what to tell them.

    `is_fork`: the pull request's code comes from another repository. `own_run`: every run that the command touches
    was started by this person.
    """
    entry = entry_of(command)
    if entry.who is Who.ANYONE:
        return None
    allowed = permission.push or (entry.who is Who.OWN_RUN and own_run)
    if not allowed:
        return NotAllowed(
            f"`{render(command)}` is for {WHO_TEXT[entry.who]}.",
            hint="Ask somebody with write access to this repository to write the command.",
        )
    if is_fork and entry.who is Who.RUN:
        return NotAllowed(
            "This pull request comes from a fork, and code of a fork runs only after an approval; "
            "approvals are not in this version.",
            hint="Somebody with write access can push the commits to a branch of this repository "
            "and open a pull request from it.",
        )
    return None
