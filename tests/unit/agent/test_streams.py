"""Bytes reach the bot once each, whatever happens on the way."""

from __future__ import annotations

import hashlib

import pytest

from gpurun_agent.backlog import Backlog
from tests.unit.agent.fake_bot import pause, with_code


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


def test_a_log_that_reaches_its_quota_ends_with_one_line(bot, run):
    bot.log_quota = 1000
    run("seq 1 100000; exit 6")
    assert bot.end["exit_code"] == "6"
    assert len(bot.log) <= 1000
    assert bot.log.endswith(b"\n::gpurun:: the log reached its quota of 1000 bytes; the rest is discarded\n")
    assert bot.log.count(b"quota") == 1
    assert b"\n1\n2\n3\n" in bot.log


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


def test_a_backlog_without_room_on_the_disk_stays_in_memory_and_is_full(tmp_path):
    backlog = Backlog(str(tmp_path / "missing"), limit=10_000, memory=100)
    for _ in range(30):
        backlog.append(b"0123456789")
    assert backlog.full
    assert backlog.peek(0, 1000) == b"0123456789" * 30
