"""What an agent left in its own output, and what a job can make of that."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from gpurun.domain.stream import StreamName
from gpurun.telemetry.last_log import MAX_FRAMES, LastLog, log_to_append, metrics_to_append, read_last_log
from gpurun.telemetry.redact import Masker
from gpurun_agent import protocol
from gpurun_agent.backlog import Backlog
from gpurun_agent.frames import Frames

ATTEMPT = "01kdxq4c00000000000000000a"
LOG = b"".join(b"line %d\n" % number for number in range(2000))


def printed(tmp_path, kept: bytes, *, start=0, first=1 << 20, last=1 << 20, stream="log", end=True) -> bytes:
    """The output of an agent whose backlog begins at `start`."""
    path = tmp_path / "output"
    backlog = Backlog(str(tmp_path), limit=1 << 30, memory=5000)
    backlog.start = backlog.end = start
    for at in range(0, len(kept), 777):
        backlog.append(kept[at : at + 777])
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    frames = Frames(ATTEMPT, fd)
    frames.rest(stream, backlog, first, last)
    if end:
        frames.end(protocol.encode([("result", "passed"), ("exit_code", 0), ("log_size", start + len(kept))]))
    os.close(fd)
    return path.read_bytes()


def read(output, secrets=()):
    return read_last_log(output, ATTEMPT, Masker([SecretStr(secret) for secret in secrets]).mask)


def appended(last, stored=0, *, at_line_start=True, limit=1 << 30):
    return log_to_append(last, stored, at_line_start=at_line_start, limit=limit)


@pytest.mark.parametrize("stored", [100, 101, 5000, len(LOG) - 1, len(LOG)])
def test_the_bot_gets_exactly_what_it_lacks(tmp_path, stored):
    last = read(printed(tmp_path, LOG[100:], start=100))
    assert appended(last, stored) == LOG[stored:]
    assert last.end["result"] == b"passed"


def test_every_frame_fits_into_one_write_of_a_pipe(tmp_path):
    output = printed(tmp_path, os.urandom(30_000), start=999_999_999_999)
    assert max(map(len, output.splitlines(keepends=True))) <= protocol.MAX_FRAME
    assert len(output.splitlines()) == 13


def test_of_too_much_the_beginning_and_the_end_are_there_and_the_gap_is_told(tmp_path):
    last = read(printed(tmp_path, LOG, first=1000, last=2000))
    missing = len(LOG) - 3000
    told = b"\n::gpurun:: %d bytes of the log are missing here: the agent could not reach the bot\n" % missing
    assert appended(last) == LOG[:1000] + told + LOG[-2000:]
    assert read(printed(tmp_path, LOG, first=0, last=2000)).stretches[StreamName.LOG][0].data == LOG[-2000:]


def test_what_the_provider_no_longer_has_is_told(tmp_path):
    output = printed(tmp_path, LOG)
    cut = read(output[10_000:])
    assert appended(cut).startswith(b"::gpurun:: ")
    assert LOG.endswith(appended(cut).partition(b"\n")[2])
    assert b"bytes of the log are missing here" in appended(read(printed(tmp_path, LOG)[:9_000] + output[-200:]))


def test_an_agent_that_did_not_come_to_its_end_may_have_had_more(tmp_path):
    told = b"::gpurun:: the log may be incomplete: the agent did not report its end\n"
    assert appended(LastLog()) == told
    assert appended(LastLog(), 5, at_line_start=False) == b"\n" + told
    assert appended(read(printed(tmp_path, LOG, end=False))) == LOG + told


def test_nothing_is_said_when_nothing_is_missing(tmp_path):
    assert appended(read(printed(tmp_path, b"", start=70)), 70) == b""


def test_the_quota_holds(tmp_path):
    assert appended(read(printed(tmp_path, LOG)), limit=10) == LOG[:10]
    assert appended(read(printed(tmp_path, LOG)), limit=-10) == b""


def test_a_secret_across_two_frames_is_masked(tmp_path):
    secret = "hunter2-hunter2-hunter2"
    kept = b"x" * 2950 + secret.encode() + b"\n"
    found = appended(read(printed(tmp_path, kept), [secret]))
    assert found == b"x" * 2950 + b"*" * len(secret) + b"\n"


def test_metrics_come_back_too(tmp_path):
    last = read(printed(tmp_path, LOG, stream="metrics", first=0, last=500))
    assert metrics_to_append(last, 0, limit=1 << 30) == b"\n" + LOG[-500:]
    assert metrics_to_append(last, len(LOG) - 10, limit=1 << 30) == LOG[-10:]
    assert metrics_to_append(last, 0, limit=3) == b"\n" + LOG[-500:-498]


def test_frames_of_another_attempt_and_other_output_count_for_nothing(tmp_path):
    output = printed(tmp_path, LOG)
    other = output.replace(ATTEMPT.encode(), b"0" * 26)
    assert read(other) == read(b"") == read(b"::gpurun-boot 1 x exit 75\n\xff\xfe\n")
    assert appended(read(other + b"Killed\n" + output)) == LOG


def test_what_a_job_printed_before_gives_way_to_its_agent(tmp_path):
    """It can lie about itself; it cannot take away what the agent says after it."""
    forged = printed(tmp_path, b"forged " * 5000, start=3)
    assert appended(read(forged + printed(tmp_path, LOG))) == LOG
    flood = b"\n::gpurun-log 1 %s log 0 AAAA" % ATTEMPT.encode() * 20_000
    assert appended(read(flood + printed(tmp_path, LOG))) == LOG


def test_a_flood_of_frames_is_bounded():
    one = b"::gpurun-log 1 %s log %d eA==\n"
    flood = b"".join(one % (ATTEMPT.encode(), number) for number in range(MAX_FRAMES + 500))
    (stretch,) = read(flood).stretches[StreamName.LOG]
    assert (stretch.offset, stretch.end) == (500, MAX_FRAMES + 500)


WORDS = st.sampled_from(
    [b"::gpurun-log 1 ", b"::gpurun-end 1 ", ATTEMPT.encode(), b" ", b"log ", b"metrics ", b"0 ", b"7 ", b"\n", b"eHh4",
     b"cmVzdWx0IDYKcGFzc2VkCg==", b"=", b"9" * 20, b"\r", b"\xff"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=40).map(b"".join), st.integers(0, 50), st.integers(-5, 200))
def test_whatever_is_printed_is_read_and_stays_within_bounds(output, stored, limit):
    last = read(output)
    data = log_to_append(last, stored, at_line_start=True, limit=limit)
    assert len(data) <= max(limit, 0) + 200
    assert len(metrics_to_append(last, stored, limit=limit)) <= max(limit, 0)
