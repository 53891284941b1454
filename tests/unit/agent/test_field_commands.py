"""Commands, ends and last lines as people met them, through the real agent."""

from __future__ import annotations

import pytest

from tests.unit.agent.fake_bot import with_code


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo a  b 'c  d' \"e  f\"", b"a b c  d e  f\n"),
        ('test "$HOME" && echo "home is set"', b"home is set\n"),
        ("true && echo yes || echo no", b"yes\n"),
        ("echo one \\\n  two", b"one two\n"),
        ("echo one\necho two\n", b"one\ntwo\n"),
        ("echo end\\", b"end\\\n"),
        ("printf '%s|' '$HOME' \"a'b\" 'c\"d' `echo e` $(echo f); echo", b"$HOME|a'b|c\"d|e|f|\n"),
        ("cat <<'X'\n$HOME `id` \\\nX\n", b"$HOME `id` \\\n"),
        ("echo ${{ secrets.X }} || echo bad", None),
        ("# only a comment", b""),
        ("echo 'ü 🚀'", "ü 🚀\n".encode()),
    ],
)
def test_b103_a_command_is_run_as_it_is_written(bot, run, command, output):
    run(command)
    if output is None:
        assert bot.end["result"] == "failed"
    else:
        assert bot.output == output


def test_b107_children_that_a_shell_waits_for_get_the_cancel_too(bot, start):
    bot.run = "(trap 'sleep 0.3; echo child; exit 0' TERM; echo ready; while :; do sleep 0.05; done) & wait; wait"
    agent = start()
    bot.wait_for_log(b"ready")
    bot.cancel = True
    assert agent.wait() == 0
    assert bot.end["result"] == "cancelled"
    assert b"child\n" in bot.output


def test_b107_a_cancelled_job_has_time_for_a_checkpoint(bot, start):
    bot.artifact_globs = ["checkpoint"]
    bot.run = "trap 'sleep 0.3; echo saved > checkpoint; exit 1' TERM; echo ready; while :; do sleep 0.05; done"
    agent = start()
    bot.wait_for_log(b"ready")
    bot.cancel = True
    assert agent.wait() == 0
    assert (bot.end["result"], (agent.root / "work" / "checkpoint").read_text()) == ("cancelled", "saved\n")


def test_b109_a_last_line_without_an_end_arrives(bot, run):
    run(r"printf 'start\nFINAL acc=0.91'")
    assert bot.output == b"start\nFINAL acc=0.91"


def test_b109_a_burst_right_before_the_end_arrives_whole(bot, run):
    run("head -c 5000000 /dev/zero | tr '\\0' x; printf END")
    assert bot.output == b"x" * 5_000_000 + b"END"


def test_b109_what_a_secret_could_begin_with_arrives_at_the_end(bot, run):
    bot.mask = [b"sesame-open"]
    run("printf 'it is ses'")
    assert bot.output == b"it is ses"


def test_b098_bytes_that_are_no_text_pass_and_what_follows_too(bot, run):
    run(r"printf '\377\376\000\200 ok\n'; echo more")
    assert bot.output == b"\xff\xfe\x00\x80 ok\nmore\n"


def test_b100_a_bar_of_progress_is_kept_as_it_was_drawn(bot, run):
    run(r"printf '\r  0%%|\r 50%%|\r100%%|\n\033[31mERR\033[0m \033]8;;http://x\007link\033]8;;\007\n'")
    assert bot.output == b"\r  0%|\r 50%|\r100%|\n\x1b[31mERR\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\n"


def test_b100_a_spinner_alone_is_a_sign_of_life(bot, start):
    """No line ever ends, and bytes come."""
    bot.run = r"while :; do printf '\r|'; sleep 0.02; printf '\r/'; sleep 0.02; done"
    agent = start(first=with_code("run", "CANCEL_GRACE_S = 0.3"))
    bot.wait(lambda: bot.output.count(b"\r") > 5)
    bot.cancel = True
    assert agent.wait() == 0
