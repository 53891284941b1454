"""Who may do what."""

from __future__ import annotations

from gpurun.command.grammar import WHO_TEXT, Who, entry_of, render
from gpurun.domain.command import Command
from gpurun.domain.config import PermissionKeys
from gpurun.domain.errors import NotAllowed
from gpurun.domain.forge import Permission
from gpurun.domain.right import Right, Role

LEAST_ROLE = {Right.RUN: Role.WRITE, Right.APPROVE: Role.MAINTAIN, Right.ADMIN: Role.ADMIN}
"""Where `permissions` does not say otherwise."""

_NEEDS = {
    Who.RUN: Right.RUN,
    Who.OWN_RUN: Right.RUN,
    Who.APPROVED_RUN: Right.RUN,
    Who.APPROVE: Right.APPROVE,
    Who.ADMIN: Right.ADMIN,
}
_ALSO = {
    Who.OWN_RUN: "whoever started the run",
    Who.APPROVED_RUN: "the author of a pull request whose head was approved",
}
"""Who may without the right."""


def rights_of(login: str, permission: Permission, keys: PermissionKeys) -> frozenset[Right]:
    """What the forge's answer of this moment and the default branch's `permissions` give, together."""
    held: set[Right] = set()
    for right, least in least_roles(keys).items():
        if _has(permission, least):
            held |= right.includes
    own = keys.users.get(login.lower())
    return frozenset(held | (own.includes if own else frozenset()))


def least_roles(keys: PermissionKeys) -> dict[Right, Role]:
    """Which role gives which right."""
    said = {Right.RUN: keys.run, Right.APPROVE: keys.approve, Right.ADMIN: keys.admin}
    return {right: said[right] or LEAST_ROLE[right] for right in Right}


def may(command: Command, rights: frozenset[Right], keys: PermissionKeys, *, own_run: bool) -> NotAllowed | None:
    """None when who has these rights may, else what to tell them.

    `own_run`: every run that the command touches was started by this person, or, to try again, the commit is theirs and
    approved.
    """
    entry = entry_of(command)
    if entry.who is Who.ANYONE or (entry.who in _ALSO and own_run):
        return None
    needed = _NEEDS[entry.who]
    if needed in rights:
        return None
    return NotAllowed(
        f"`{render(command)}` is for {who_may(entry.who, keys)}.",
        hint="Ask one of them to write the command.",
    )


def who_may(who: Who, keys: PermissionKeys) -> str:
    """In words, as this repository has it."""
    if who is Who.ANYONE:
        return WHO_TEXT[who]
    needed = _NEEDS[who]
    role = least_roles(keys)[needed]
    people = f"people with {'write access' if role is Role.WRITE else f'the role {role}'}"
    if any(needed in right.includes for right in keys.users.values()):
        people += ", and those whom `permissions` names"
    return f"{people}, and {_ALSO[who]}" if who in _ALSO else people


def _has(permission: Permission, least: Role) -> bool:
    match least:
        case Role.WRITE:
            return permission.push
        case Role.MAINTAIN:
            return permission.push and permission.maintain
        case Role.ADMIN:
            return permission.push and permission.admin
