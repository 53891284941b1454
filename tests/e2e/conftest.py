"""The table of deaths, at the end of the session."""

from __future__ import annotations

from tests.world.deaths import show_table, table


def pytest_terminal_summary(terminalreporter):
    if table:
        terminalreporter.section("failpoints")
        show_table(terminalreporter.write_line)
