"""Says whether requirements.lock still is what pyproject.toml asks for.

Needs no network: the installed packages say what they need. Every requirement, direct or of a locked package, is in the
lock with a version that satisfies it; nothing else is in the lock; what is installed is what is locked. Requirements of
other platforms are not looked at.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("dev",)


def main() -> int:
    """Prints each problem; 1 when there is one."""
    locked = read_lock((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    direct = list(project["dependencies"])
    for extra in EXTRAS:
        direct += project["optional-dependencies"][extra]
    problems = list(find_problems([Requirement(line) for line in direct], locked))
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print("make the lock anew: `make lock`", file=sys.stderr)
    return int(bool(problems))


def read_lock(text: str) -> dict[str, str]:
    """Version by name of what this platform installs."""
    here: dict[str, str] = {}
    for line in re.findall(r"^[A-Za-z0-9].*?(?= \\$|$)", text, flags=re.MULTILINE):
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if requirement.marker is None or requirement.marker.evaluate():
            here[name] = next(iter(requirement.specifier)).version
    return here


def find_problems(direct: list[Requirement], locked: dict[str, str]) -> Iterator[str]:
    """One sentence each."""
    todo, seen = [(one, "pyproject.toml") for one in direct], set()
    needed: set[str] = set()
    while todo:
        requirement, asker = todo.pop()
        name = canonicalize_name(requirement.name)
        if (name, tuple(sorted(requirement.extras))) in seen and asker != "pyproject.toml":
            continue
        seen.add((name, tuple(sorted(requirement.extras))))
        needed.add(name)
        if name not in locked:
            yield f"{asker} needs {requirement}, which is not in the lock"
            continue
        if not requirement.specifier.contains(locked[name], prereleases=True):
            yield f"{asker} needs {requirement}, and the lock has {locked[name]}"
        todo += [(one, name) for one in requirements_of(name, requirement.extras)]
    for spare in sorted(set(locked) - needed):
        yield f"{spare} is in the lock and nothing needs it"
    for locked_name, pinned in sorted(locked.items()):
        if (installed := _installed(locked_name)) != pinned:
            yield f"{locked_name} {installed or 'is not'} installed, and the lock has {pinned}: `make setup`"


def requirements_of(name: str, extras: set[str]) -> Iterator[Requirement]:
    """What the installed package needs here, with those extras."""
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return
    for requirement in map(Requirement, lines):
        wanted = requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)
        )
        if wanted:
            yield requirement


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
