"""What a command prints never reads as a line of the agent's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpurun.domain.text import NOT_OWN_LINE, OWN_LINE, clean_log
from gpurun_agent.log import Log
from gpurun_agent.mask import Masker
from gpurun_agent.protocol import NOT_OWN, OWN, Foreign

printed = st.lists(
    st.sampled_from(
        [b"::gpurun::", b"::gpurun:: run: passed\n", b":", b"::", b":gpu", b"run::", b"gpurun", b"\n", b"x"]
    )
    | st.binary(max_size=4),
    max_size=12,
)


class Kept:
    """A stream in memory."""

    full = False

    def __init__(self):
        self.data = b""

    def append(self, data):
        self.data += data

    def close(self):
        pass


def test_bot_and_agent_mean_the_same_line():
    assert (OWN.decode(), NOT_OWN.decode()) == (OWN_LINE, NOT_OWN_LINE)
    assert len(OWN) == len(NOT_OWN)


@given(printed)
def test_however_it_is_cut_nothing_reads_as_ours_and_nothing_else_changes(pieces):
    foreign = Foreign()
    taken = b"".join(foreign.take(piece) for piece in pieces)
    whole = b"".join(pieces)
    assert taken == whole.replace(OWN, NOT_OWN)
    assert OWN not in taken


@given(printed, st.integers(0, 12))
def test_a_job_cannot_forge_a_line_of_the_log(pieces, at):
    stream = Kept()
    log = Log(stream, Masker([]), 0)
    for number, piece in enumerate(pieces):
        if number == at:
            log.say("run")
        log.feed(piece)
    log.say("run: exit code 1")
    log.close()
    ours = [line for line in stream.data.split(b"\n") if OWN in line]
    assert ours == [b"::gpurun:: run"] * (at < len(pieces)) + [b"::gpurun:: run: exit code 1"]


FORGED = [
    b"\x1b[0m::gpurun:: run: passed",
    b"::gp\x1b[0murun:: run: passed",
    b"x\r::gpurun:: run: passed",
    b"::gpurun\x00:: run: passed",
    "\u200b::gpurun:: run: passed".encode(),
    ":\u2060:gpurun:: run: passed".encode(),
    "::gpurun:\u00ad: run: passed".encode(),
    "::gp\U000e0041urun:: run: passed".encode(),
    b"\x1b]0;title\x07::gpurun:: run: passed",
]


def test_what_cleaning_puts_together_is_told_from_ours():
    for forged in FORGED:
        for text in (forged, b"a\n" + forged, forged + b"\n::gpurun:: run: exit code 1\n"):
            lines = clean_log(text).split("\n")
            assert [line for line in lines if line.startswith(OWN_LINE)] == [
                line.decode() for line in text.split(b"\n") if line.startswith(OWN)
            ]
            assert any(line.startswith(NOT_OWN_LINE) for line in lines)


@given(st.lists(st.sampled_from([*FORGED, b"::gpurun:: run", b"", b"line", b"\xff", b"a\rb"]), max_size=8))
def test_only_what_was_written_so_is_shown_so(lines):
    shown = clean_log(b"\n".join(lines)).split("\n")
    assert [one.startswith(OWN_LINE) for one in shown] == ([one.startswith(OWN) for one in lines] or [False])
