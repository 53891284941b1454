"""Bytes reach the bot once each, whatever happens on the way."""

from __future__ import annotations

import hashlib
import json
import random
import re
import signal
import tempfile
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.telemetry.last_log import log_to_append, metrics_to_append, read_last_log
from gpurun_agent.backlog import Backlog
from tests.unit.agent.fake_bot import ATTEMPT, pause, with_code


def test_50_mb_over_two_restarts_of_the_bot(bot, start):
    """What was not durable is lost with the bot and comes again."""
    bot.durable_lag = 300_000
    bot.run = "yes 0123456789abcdefghijklmnopqrstuvwxyz | head -c 50000000"
    agent = start()
    for size in (5_000_000, 20_000_000):
        bot.wait(lambda size=size: len(bot.streams["log"]) > size)
        bot.down()
        pause(0.2)
        bot.up()
    assert agent.wait() == 0
    line = b"0123456789abcdefghijklmnopqrstuvwxyz\n"
    expected = b"::gpurun:: run\n" + (line * (50_000_000 // len(line) + 1))[:50_000_000]
    assert hashlib.sha256(bot.log).digest() == hashlib.sha256(expected).digest()
    assert bot.end["log_size"] == str(len(expected))
    assert len(bot.finished) == 1


def test_the_command_does_not_wait_for_a_bot_that_is_down(bot, start):
    bot.run = "echo ready; read line < go; yes abcdefgh | head -c 30000000; echo > done"
    bot.setup = "mkfifo go"
    agent = start(first=with_code("contact", "LONGEST_PAUSE_S = 0.2"))
    bot.wait_for_log(b"ready")
    bot.down()
    (agent.root / "work" / "go").write_text("\n")
    bot.wait((agent.root / "work" / "done").exists)
    bot.up()
    assert agent.wait() == 0
    assert bot.log.endswith(b"ready\n" + (b"abcdefgh\n" * 3_333_334)[:30_000_000])
    assert bot.end["result"] == "passed"


def test_a_full_backlog_makes_the_command_wait(bot, start):
    bot.run = "echo ready; read line < go; yes abcdefgh | head -c 3000000; echo > done"
    bot.setup = "mkfifo go"
    agent = start(first=with_code("run", "SPILL_MAX = 1000000"))
    bot.wait_for_log(b"ready")
    bot.down()
    (agent.root / "work" / "go").write_text("\n")
    pause(0.5)
    assert not (agent.root / "work" / "done").exists()
    bot.up()
    assert agent.wait() == 0
    assert bot.log.endswith(b"ready\n" + (b"abcdefgh\n" * 333_334)[:3_000_000])


@pytest.mark.parametrize("bytes_read", [0, 1, 5, 100])
def test_a_connection_that_breaks_within_an_append(bot, run, bytes_read):
    bot.drop_body_after = bytes_read
    run("seq 1 1000")
    assert bot.output == b"".join(b"%d\n" % n for n in range(1, 1001))


def test_an_append_whose_answer_was_lost_is_not_doubled(bot, run):
    bot.lose_answers = 2
    run("seq 1 1000")
    assert bot.output == b"".join(b"%d\n" % n for n in range(1, 1001))
    assert bot.end["result"] == "passed"


def test_a_tail_that_the_bot_holds_back_comes_with_newer_bytes_or_at_the_end(bot, start):
    bot.hold_back = 3
    bot.run = "mkfifo go; printf abcdef; read line < go; printf ghijkl"
    agent = start()
    bot.wait_for_log(b"abc")
    appends = sum(request == "PUT streams/log" for request in bot.requests)
    pause(0.3)
    assert sum(request == "PUT streams/log" for request in bot.requests) - appends <= 1
    (agent.root / "work" / "go").write_text("\n")
    assert agent.wait() == 0
    assert bot.output == b"abcdefghijkl"


def test_a_chatty_command_does_not_make_an_append_a_line(bot, run):
    run("for i in $(seq 1 100); do echo $i; sleep 0.005; done")
    assert bot.output == b"".join(b"%d\n" % n for n in range(1, 101))
    times = [time for time, _ in bot.arrivals]
    assert 3 < len(times) < (times[-1] - times[0]) / 0.05 + 10


def test_a_log_that_reaches_its_quota_ends_with_how_much_was_discarded(bot, run):
    bot.log_quota = 1000
    bot.setup = "seq 1 100000"
    run("printf more; exit 6")
    printed = b"".join(b"%d\n" % number for number in range(1, 100_001)) + b"more"
    assert bot.end["exit_code"] == "6"
    assert len(bot.log) <= 1000
    first, kept, last = re.fullmatch(
        rb"(::gpurun:: setup\n)(.*)\n(::gpurun:: .*\n::gpurun:: .*\n)", bot.log, re.DOTALL
    ).groups()
    assert printed.startswith(kept)
    assert last == (
        b"::gpurun:: the log reached its quota of 1000 bytes; what follows is discarded\n"
        b"::gpurun:: the log ends here: %d bytes of output were discarded; "
        b"GPURUN_LOG_QUOTA_MIB of the server keeps more\n" % (len(printed) - len(kept))
    )
    assert len(kept) == 1000 - 256 - len(first)


def test_a_log_of_exactly_its_quota_is_whole(bot, run):
    bot.log_quota = 1000
    room = 1000 - 256 - len(b"::gpurun:: run\n")
    run(f"yes | head -c {room}")
    assert bot.output == b"y\n" * 364 + b"y"
    bot.streams["log"].clear()
    bot.durable["log"] = 0
    run(f"yes | head -c {room + 1}")
    assert b" 1 bytes of output were discarded" in bot.log


def left_behind(output: bytes, stored: bytes = b"") -> tuple[bytes, dict[str, bytes]]:
    """The log that a bot with `stored` makes of what an agent printed, and the end."""
    last = read_last_log(output, ATTEMPT, lambda data: data)
    assert last.end is not None
    return stored + log_to_append(last, len(stored), at_line_start=True, limit=1 << 30), dict(last.end)


def test_an_agent_that_reaches_nobody_until_its_deadline_prints_what_is_left(bot, start):
    """The bot dies with bytes that it had taken and not made durable; the job goes on and passes."""
    bot.deadline = int(time.time()) + 4
    bot.durable_lag = 5
    bot.setup = "mkfifo go"
    bot.run = "seq 1 100000; read line < go; seq 100001 200000"
    agent = start(first=with_code("run", "REPORT_S = 0.5"))
    bot.wait_for_log(b"\n99999\n")
    bot.wait(lambda: bot.streams["metrics"])
    bot.down()
    (agent.root / "work" / "go").write_text("\n")
    code, output = agent.leave()
    assert code == 75
    log, end = left_behind(output, bot.log)
    expected = b"::gpurun:: setup\n::gpurun:: run\n" + b"".join(b"%d\n" % n for n in range(1, 200_001))
    assert len(bot.log) < len(expected)
    assert log == expected
    assert (end["result"], end["exit_code"], end["log_size"]) == (b"passed", b"0", b"%d" % len(expected))
    metrics = bytes(bot.streams["metrics"])
    metrics += metrics_to_append(read_last_log(output, ATTEMPT, lambda data: data), len(metrics), limit=1 << 30)
    assert len([json.loads(line) for line in metrics.splitlines()]) >= 1


def test_an_agent_that_is_told_to_stop_without_a_bot_prints_what_is_left(bot, start):
    bot.run = "echo ready; trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done"
    agent = start(first=with_code("run", "REPORT_S = HURRY_GRACE_S = 0.3"))
    bot.wait_for_log(b"ready")
    bot.down()
    agent.process.send_signal(signal.SIGTERM)
    code, output = agent.leave()
    log, end = left_behind(output, bot.log)
    assert code == 75
    assert re.fullmatch(rb"::gpurun:: run\nready\n(Terminated\n)?bye\n", log)
    assert end["result"] == b"cancelled"


def test_of_more_than_fits_the_first_and_the_last_bytes_are_printed(bot, start):
    bot.run = "echo ready; read line < go; seq 1 300000; echo > done; sleep 60"
    bot.setup = "mkfifo go"
    shrunk = "FRAMES_FIRST = 1000; FRAMES_LAST = 5000; REPORT_S = HURRY_GRACE_S = 0.3"
    agent = start(first=with_code("run", shrunk) + "\n" + with_code("backlog", "MEMORY = 100000; REFILL = 50000"))
    bot.wait_for_log(b"ready\n")
    bot.down()
    (agent.root / "work" / "go").write_text("\n")
    bot.wait((agent.root / "work" / "done").exists)
    agent.process.send_signal(signal.SIGTERM)
    _, output = agent.leave()
    printed = b"".join(b"%d\n" % number for number in range(1, 300_001))
    log, end = left_behind(output, bot.log)
    told = b"::gpurun:: %d bytes of the log are missing here: the agent could not reach the bot\n"
    assert log.endswith(b"ready\n" + printed[:1000] + told % (len(printed) - 6000) + printed[-5000:])
    assert end["log_size"] == b"%d" % (len(log) - len(told % 10**6) + len(printed) - 6000)


def test_a_slow_bot_gets_larger_appends(bot, run):
    bot.slow_s = 0.1
    run("yes abcdefgh | head -c 20000000")
    assert len(bot.log) == len(b"::gpurun:: run\n") + 20_000_000
    assert sum(request == "PUT streams/log" for request in bot.requests) < 30


def test_a_backlog_keeps_its_bytes_in_memory_then_in_a_file_then_again_in_memory(tmp_path):
    backlog = Backlog(str(tmp_path), limit=10_000, memory=100)
    text = bytes(range(256)) * 20
    for at in range(0, 3000, 7):
        backlog.append(text[at : at + 7])
    assert list(tmp_path.iterdir()) == []
    assert backlog.end == 3003
    seen = b""
    while backlog.start < backlog.end:
        piece = backlog.peek(backlog.start, 50)
        seen += piece
        backlog.forget(backlog.start + len(piece))
        if backlog.end < 4000:
            backlog.append(text[backlog.end : backlog.end + 10])
    assert seen == text[: backlog.end]


def drained(backlog: Backlog, piece: int) -> bytes:
    seen = b""
    while backlog.start < backlog.end:
        data = backlog.peek(backlog.start, piece)
        assert data
        seen += data
        backlog.forget(backlog.start + len(data))
    return seen


def test_a_backlog_without_room_on_the_disk_is_full_and_keeps_what_it_has(tmp_path):
    backlog = Backlog(str(tmp_path / "missing"), limit=10_000, memory=100)
    for _ in range(30):
        backlog.append(b"0123456789")
    assert backlog.full
    assert drained(backlog, 70) == b"0123456789" * 30
    assert not backlog.full


def test_a_disk_that_fills_up_later_costs_no_memory_but_the_last_bytes(tmp_path):
    text = random.Random(1).randbytes(4000)
    backlog = Backlog(str(tmp_path), limit=3000, memory=100)  # the file has a limit too, as a disk has
    for at in range(0, 3300, 100):
        backlog.append(text[at : at + 100])
    assert backlog.full
    assert len(backlog._tail) == 200
    backlog.forget(3050)  # most of it is never read
    assert drained(backlog, 99) == text[3050:3300]
    backlog.append(text[3300:])
    assert not backlog.full
    assert drained(backlog, 1000) == text[3300:]


@given(st.data())
def test_a_backlog_gives_back_every_byte_in_order(data):
    with tempfile.TemporaryDirectory() as folder:
        backlog = Backlog(folder, limit=data.draw(st.integers(1, 400)), memory=data.draw(st.integers(1, 100)))
        model = bytearray()
        for number in range(data.draw(st.integers(1, 40))):
            if data.draw(st.booleans()):
                piece = bytes([number]) * data.draw(st.integers(0, 90))
                backlog.append(piece)
                model += piece
            else:
                backlog.forget(data.draw(st.integers(0, len(model))))
            assert backlog.end == len(model)
            assert backlog.start == backlog.end or backlog.ready(backlog.start) > 0
            found = backlog.peek(backlog.start, 1000)
            assert found == model[backlog.start : backlog.start + len(found)]
        rest = bytes(model[backlog.start :])
        assert drained(backlog, 17) == rest
