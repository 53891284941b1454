"""The agent's masker in a stream and in the whole agent. That all maskers agree: tests/unit/telemetry."""

from __future__ import annotations

import base64

import pytest
from pydantic import SecretStr

from gpurun.telemetry.forms import needles
from gpurun_agent.mask import Masker
from tests.unit.agent.fake_bot import CLAIM, TOKEN, pause


def masker(*secrets: str) -> Masker:
    return Masker(needles([SecretStr(one) for one in secrets]))


def test_a_normal_line_is_not_delayed_and_a_beginning_is():
    subject = masker("hunter-two")
    assert subject.feed(b"loss 0.5\n") == b"loss 0.5\n"
    assert subject.feed(b"password: hunter") == b"password: "
    assert subject.feed(b"-two!\n") == b"**********!\n"
    assert subject.feed(b"hunter-t") == b""
    assert subject.flush() == b"hunter-t"


def test_without_secrets_bytes_pass_as_they_are():
    data = b"anything\n"
    assert Masker([]).feed(data) is data


def test_short_needles_are_left_out():
    assert Masker([b"short", b""]).whole(b"a short text") == b"a short text"


def test_a_secret_that_comes_later_counts_from_what_is_held_back():
    subject = masker("hunter-two")
    assert subject.feed(b"later-one hunter") == b"later-one "
    subject.add(needles([SecretStr("hunter-three")]))
    assert subject.feed(b"-three later-one\n") == b"************ later-one\n"


@pytest.mark.parametrize("tool", ["printf %s", "printf %s | base64", "printf %s | od -An -tx1 | tr -d ' \\n'"])
def test_no_secret_in_any_output(bot, run, tool):
    bot.mask = sorted(needles([SecretStr("s3cret-Value")]))
    bot.env = ["PASSWORD=s3cret-Value"]
    command, *pipe = tool.split(" | ", 1)
    run(" | ".join([f'{command} "x$PASSWORD"', *pipe]) + "; exit 3")
    raw = b"s3cret-Value"
    assert b"*****" in bot.log
    for stream in (bot.log, bytes(bot.streams["metrics"]), *bot.finished[0].values()):
        assert raw not in stream
        assert raw.hex().encode() not in stream
        assert base64.b64encode(b"x" + raw)[4:-4] not in stream


def test_the_tokens_of_the_agent_are_masked_too(bot, run):
    run("tr '\\0' '\\n' < /proc/$PPID/environ; echo " + TOKEN)
    assert CLAIM.encode() not in bot.log
    assert TOKEN.encode() not in bot.log
    assert b"GPURUN_CLAIM=" + b"*" * len(CLAIM) in bot.log


def test_a_secret_that_the_bot_learns_later_is_masked_from_then_on(bot, start):
    """The job waits for a file, as one does that is handed a secret while it runs."""
    bot.run = "printf 'ready\n'; until [ -e go ]; do sleep 0.02; done; echo later-secret-value"
    agent = start()
    bot.wait_for_log(b"ready\n")
    bot.later = sorted(needles([SecretStr("later-secret-value")]))
    bot.wait(lambda: "GET masks" in bot.requests)
    pause(0.1)
    (agent.root / "work/go").touch()
    assert agent.wait() == 0
    assert bot.output == b"ready\n" + b"*" * 18 + b"\n"
    assert bot.requests.count("GET masks") == 1


@pytest.mark.parametrize("why", ["no_masks", "later_elsewhere"])
def test_a_bot_that_cannot_tell_is_asked_once(bot, start, why):
    """An older one has no such route; with several processes another one may know."""
    bot.run = "printf 'ready\n'; until [ -e go ]; do sleep 0.02; done; sleep 0.3"
    setattr(bot, why, True)
    agent = start()
    bot.wait_for_log(b"ready\n")
    bot.later = [b"something"]
    bot.wait(lambda: "GET masks" in bot.requests)
    (agent.root / "work/go").touch()
    assert agent.wait() == 0
    assert bot.requests.count("GET masks") == 1
