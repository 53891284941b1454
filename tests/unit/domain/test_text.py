"""What a terminal, and GitHub's runner, would do with text of others."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.cli.output import _ForRunner
from gpurun.domain.text import clean, no_workflow_commands


def commands(text: str) -> list[str]:
    """Lines that the runner takes for a command.

    Source: https://github.com/actions/runner, src/Runner.Common/ActionCommand.cs at 079cdb1: TryParseV2, TryParse. A
    line ends as for .NET's ReadLine: https://learn.microsoft.com/dotnet/api/system.io.textreader.readline
    """
    lines = re.split("[\r\n]", text)
    return [line for line in lines if line.strip().startswith("::") or "##[" in line]


B128 = [
    "x ##[group]y",
    "::set-output name=result::success",
    "::add-mask::e",
    "::stop-commands::x",
    "##[error]boom",
    "::endgroup::",
    "  ::error file=a::b",
    "\u00a0::warning::x",
    "::gpurun:: run",
]


@pytest.mark.parametrize("line", B128)
def test_b128_a_line_is_shown_and_is_no_command(line):
    assert commands(f"a\n{line}\nb") == [line]
    safe = no_workflow_commands(f"a\n{line}\nb")
    assert commands(safe) == []
    assert safe.replace("\u200b", "") == f"a\n{line}\nb"


def test_a_carriage_return_hides_none():
    assert commands("x\r::error::y") == ["::error::y"]
    assert no_workflow_commands("x\r::error::y") == "x\r:\u200b:error::y"


@pytest.mark.parametrize("text", ["std::vector<int> x", "a: b", "# [x]", "", ": :", "x\n:y"])
def test_what_is_no_command_stays_as_it_is(text):
    assert no_workflow_commands(text) == text


pieces = st.lists(st.sampled_from([*B128, ":", "::", "#", "##", "[", "\n", "\r", " ", "x", ""]), max_size=12)


@given(pieces)
def test_b128_the_runner_gets_no_command_however_it_is_written(pieces):
    raw = io.BytesIO()
    out = _ForRunner(raw, encoding="utf-8", newline="\n")
    for piece in pieces:
        assert out.write(piece) == len(piece)
    out.flush()
    written = raw.getvalue().decode()
    assert commands(written) == []
    assert written.replace("\u200b", "") == "".join(pieces)


@given(st.text())
def test_clean_text_cleans_to_itself_and_has_nothing_that_steers(text):
    shown = clean(text)
    assert clean(shown) == shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)


@given(st.binary())
def test_so_are_bytes(data):
    assert clean(clean(data)) == clean(data)


def test_a_log_of_another_language_is_cleaned_as_fast_as_it_is_read():
    """Four megabytes: seconds. `re` takes minutes where the characters beyond the first plane are listed one by one."""
    line = "Эпоха 1: 43%|███▌      | loss=0.123 😀\n"
    assert clean(line * 60_000) == line * 60_000
