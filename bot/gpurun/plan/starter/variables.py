"""Environment variables that the image of a Dockerfile has, and a job in another image would lack."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpurun.domain.config_values import ENV_NAME, ENV_VALUE
from gpurun.domain.environment import is_reserved
from gpurun.plan.starter.commands import may_hold_a_secret
from gpurun.plan.starter.dockerfile import Dockerfile
from gpurun.plan.starter.secrets import is_credential

MAX_VALUE_CHARS = 200
MAX_VARIABLES = 20
_SHOWN = 10
_PATH_INSIDE = re.compile(r"(?:^|[:;,= ])/(?!/)")
_ADDRESS = re.compile(r"(?:^|_)(?:PORT|HOST|SERVER_NAME|ADDRESS)$")
"""A job that waits for a server does so at the address that the code has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What `env` says."""

    values: Mapping[str, str]
    because: tuple[str, ...] = ()


def given_by(dockerfile: Dockerfile | None) -> dict[str, str]:
    """What its ENV sets and a file may hold as well: no credential, and no path of an image that the job has not."""
    found = {one.name: one.value for one in (dockerfile.variables if dockerfile is not None else ())}
    taken = {name: value for name, value in found.items() if value is not None and _may_stand(name, value)}
    return dict(list(taken.items())[:MAX_VARIABLES])


def environment(dockerfile: Dockerfile | None, defaults: Mapping[str, str]) -> Environment:
    """`defaults`: those that the code has for what is not set."""
    if dockerfile is None:
        return Environment(values={})
    given = given_by(dockerfile)
    named = [one.name for one in dockerfile.variables if not is_reserved(one.name)]
    of_code = {
        name: defaults[name]
        for name in named
        if name not in given and name in defaults and _may_stand(name, defaults[name])
    }
    values = {**given, **of_code}
    left = [name for name in named if name not in values]
    where = f"`{dockerfile.path}:{dockerfile.variables_line}`"
    because = [f"From ENV of {where}: the job does not run in the image that it builds."] if values else []
    if of_code:
        because.append(f"The default of the code for {', '.join(of_code)}.")
    if left:
        names = f"{', '.join(left[:_SHOWN])}{' and more' if len(left) > _SHOWN else ''}"
        because.append(
            f"{where} sets {names} in the image that it builds. A path of that image, an address, a credential or an "
            "unknown value is not taken over: write what the job needs under `env:`, or under `secrets:`."
        )
    return Environment(values=values, because=tuple(because))


def _may_stand(name: str, value: str) -> bool:
    try:
        ENV_NAME.read(name)
        ENV_VALUE.read(value)
    except ValueError:
        return False
    if is_credential(name) or may_hold_a_secret(f"{name}={value}") or _ADDRESS.search(name):
        return False
    return value.isprintable() and len(value) <= MAX_VALUE_CHARS and _PATH_INSIDE.search(value) is None
