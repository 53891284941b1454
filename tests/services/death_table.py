"""A pytest plugin: the table of failpoints at which processes died, at the end of the session.

It travels with the reports of tests, because tests may run in several processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

_new: list[tuple[str, str, str]] = []
"""Deaths of the test that runs in this process."""
_table: dict[str, dict[str, str]] = {}
"""By failpoint and database, the story in which a process died there and all was well in the end."""

_PROPERTY = "deaths"


def tell(failpoints: Iterable[str], database: str, story: str) -> None:
    """Processes died there, and all was well."""
    _new.extend((failpoint, database, story) for failpoint in failpoints)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call" and report.passed and _new:
        report.user_properties.append((_PROPERTY, [list(death) for death in _new]))
    if call.when == "call":
        _new.clear()
    return report


def pytest_runtest_logreport(report):
    if report.when != "call":
        return
    for name, deaths in report.user_properties:
        if name == _PROPERTY:
            for failpoint, database, story in deaths:
                _table.setdefault(failpoint, {})[database] = story


def pytest_terminal_summary(terminalreporter):
    if _table:
        terminalreporter.section("failpoints")
        _show(terminalreporter.write_line)


def _show(write: Callable[[str], object]) -> None:
    """One line for each failpoint that a process died at."""
    databases = sorted({database for died in _table.values() for database in died})
    for failpoint, died in sorted(_table.items()):
        told = "  ".join(f"{database if database in died else '-':<8}" for database in databases)
        write(f"{failpoint:<32} {told}  {', '.join(sorted(set(died.values())))}")
    write(f"{len(_table)} failpoints, a process killed at each; all laws hold afterwards")
