"""The whole agent against a bot: what a command does and how it ends."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.unit.agent.fake_bot import pause, with_code


def test_echo_passes_and_its_line_is_the_log(bot, run):
    run("echo hi")
    assert bot.log == b"::gpurun:: run\nhi\n"
    assert bot.end["result"] == "passed"
    assert bot.end["exit_code"] == "0"
    assert bot.end["log_size"] == str(len(bot.log))
    assert bot.phases == ["running"]
    assert len(bot.claims) == 1
    assert len(bot.claims[0]["boot_id"]) == 32


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("exit 3", "3"),
        ("exit 126", "126"),
        ("no-such-program-anywhere", "127"),
        ("kill -9 $$", "137"),
        ("kill -SEGV $$", "139"),
        ("kill -TERM $$", "143"),
    ],
)
def test_a_command_that_does_not_end_with_0_failed(bot, run, text, code):
    run(text)
    assert bot.end["result"] == "failed"
    assert bot.end["reason"] == "exit"
    assert bot.end["exit_code"] == code
    if int(code) > 128:
        assert f"signal {int(code) - 128}" in bot.end["detail"]


def test_b098_output_of_both_kinds_keeps_its_order_and_every_byte(bot, run):
    run(
        r"printf 'a\r50%%\r100%%\n'; printf '\033[31mred\033[0m\n' >&2; printf '\377\376\000\200end' ; printf 'é\n' >&2"
    )
    assert bot.output == b"a\r50%\r100%\n\033[31mred\033[0m\n\xff\xfe\x00\x80end\xc3\xa9\n"


def test_the_job_sees_its_environment_and_nothing_of_the_boot_script(bot, run):
    bot.env = ["MODEL=small", "WITH_EQUALS=a=b", "HF_HUB_DISABLE_XET=1"]
    agent = run("env; pwd")
    env = dict(line.split("=", 1) for line in bot.output.decode().splitlines() if "=" in line)
    assert env["MODEL"] == "small"
    assert env["WITH_EQUALS"] == "a=b"
    assert env["HF_HOME"] == str(agent.root / "hub")
    assert env["HF_HUB_OFFLINE"] == "1"
    assert env["LANG"] == "C.UTF-8"
    assert {name for name in env if name.startswith("GPURUN")} == {"GPURUN", "GPURUN_ATTEMPT"}
    assert (env["GPURUN"], env["GPURUN_ATTEMPT"]) == ("1", "1")
    assert env["HOME"] == str(agent.root)
    assert bot.output.splitlines()[-1].decode() == str(agent.root / "work")


def test_a_job_without_a_locale_gets_none(bot, run):
    run("env", env={"LANG": ""})
    assert b"LC_CTYPE" not in bot.output


def test_python_and_sh_leave_no_ignored_signals_behind(bot, run):
    run("grep SigIgn /proc/self/status")
    # GNU make starts its children with glibc's own signals 32 and 33 ignored, and glibc lets nobody reset them.
    assert int(bot.output.split()[1], 16) & 0x7FFF_FFFF == 0


def test_a_background_child_that_holds_the_output_does_not_hold_the_run(bot, run):
    started = time.monotonic()
    run("sleep 300 & echo $!; exit 4")
    assert time.monotonic() - started < 3
    assert bot.end["exit_code"] == "4"
    assert not _alive(int(bot.output))


def test_a_child_that_left_the_process_group_ends_with_the_session(bot, run):
    code = "import os, time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(300)"
    run(f"{sys.executable} -c '{code}' & sleep 0.3; exit 0")
    assert not _alive(int(bot.output))


def test_a_short_lived_background_child_may_finish(bot, run):
    run("(sleep 0.1; echo late) & exit 0")
    assert bot.output == b"late\n"


def test_a_command_that_closes_its_output_runs_on(bot, run):
    run("exec >&- 2>&-; sleep 0.2; exit 5")
    assert bot.end["exit_code"] == "5"


def test_setup_comes_first_and_its_failure_is_told_apart(bot, run):
    bot.setup = "printf preparing; exit 9"
    run("echo never")
    assert bot.log == b"::gpurun:: setup\npreparing"
    assert bot.end["reason"] == "setup"
    assert bot.end["exit_code"] == "9"


def test_lines_of_the_agent_start_at_the_start_of_a_line(bot, run):
    bot.setup = "printf preparing; echo x > made"
    run("cat made")
    assert bot.log == b"::gpurun:: setup\npreparing\n::gpurun:: run\nx\n"
    assert bot.phases == ["setup", "running"]


def test_a_printed_line_reaches_the_bot_while_the_command_runs(bot, start):
    bot.run = "mkfifo go; echo first; read line < go; echo $line"
    agent = start()
    bot.wait_for_log(b"first\n")
    assert not bot.finished
    (agent.root / "work" / "go").write_text("second\n")
    assert agent.wait() == 0
    assert bot.output == b"first\nsecond\n"


@pytest.mark.parametrize("first", ["setup", "run"])
def test_user_code_waits_until_the_bot_knows_that_it_begins(bot, start, first):
    """Who is lost before is tried again, and user code must not run twice."""
    setattr(bot, first, "echo begun > begun")
    bot.busy_with_phases = True
    agent = start()
    bot.wait(lambda: sum("phase" in one for one in bot.requests) > 2)
    assert not (agent.root / "work" / "begun").exists()
    bot.busy_with_phases = False
    assert agent.wait() == 0
    assert (agent.root / "work" / "begun").exists()
    assert bot.end["result"] == "passed"


def test_b107_cancel_ends_the_command_with_term(bot, start):
    bot.run = "trap 'echo bye; exit 1' TERM; echo ready; while :; do sleep 0.05; done"
    agent = start()
    bot.wait_for_log(b"ready")
    bot.cancel = True
    assert agent.wait() == 0
    assert bot.end["result"] == "cancelled"
    assert "exit_code" not in bot.end
    assert bot.output.endswith(b"bye\n")


COUNTS_TERM = """
import os, signal, time
who = "in the group" if os.fork() else "in a group of its own"
if who != "in the group":
    os.setpgid(0, 0)
told = []
def on_term(*_):
    told.append(time.monotonic())
    os.write(1, b"term %s\\n" % who.encode())
signal.signal(signal.SIGTERM, on_term)
os.write(1, b"ready\\n")
while not told or time.monotonic() < told[0] + 0.5:
    time.sleep(0.01)
"""


def test_cancel_asks_each_process_of_the_session_once(bot, start):
    """A handler that saves a checkpoint would run into itself."""
    bot.run = f"exec {sys.executable} -c {shlex.quote(COUNTS_TERM)}"
    agent = start()
    bot.wait(lambda: bot.output.count(b"ready") == 2)
    bot.cancel = True
    assert agent.wait() == 0
    asked = sorted(line for line in bot.output.splitlines() if line.startswith(b"term"))
    assert asked == [b"term in a group of its own", b"term in the group"]


def test_b107_cancel_kills_what_ignores_term(bot, start):
    bot.run = "trap '' TERM; echo $$; while :; do sleep 0.05; done"
    agent = start(first=with_code("run", "CANCEL_GRACE_S = 0.3"))
    bot.wait_for_log(b"\n")
    bot.wait(lambda: bot.output.endswith(b"\n"))
    bot.cancel = True
    assert agent.wait() == 0
    assert bot.end["result"] == "cancelled"
    assert not _alive(int(bot.output))


def test_a_run_cancelled_before_its_command_never_starts_it(bot, run):
    bot.cancel = True
    run("echo never")
    assert bot.end["result"] == "cancelled"
    assert bot.output == b""


def test_max_duration_is_a_timeout(bot, run):
    bot.max_duration_s = 1
    run("sleep 60")
    assert bot.end["result"] == "timeout"
    assert bot.end["reason"] == "max_duration"


def test_a_cancel_at_the_end_of_max_duration_is_a_timeout_too(bot, start):
    bot.max_duration_s = 2
    bot.run = "echo ready; sleep 60"
    agent = start()
    bot.wait_for_log(b"ready")
    pause(0.6)
    bot.cancel = True
    agent.wait()
    assert bot.end["result"] == "timeout"


def test_the_hard_deadline_ends_the_command_without_a_bot(bot, start):
    bot.deadline = int(time.time()) + 3
    bot.run = "echo $$; sleep 60"
    agent = start(first=with_code("run", "REPORT_S = 0.5"))
    bot.wait(lambda: bot.output.endswith(b"\n"))
    pid = int(bot.output)
    bot.down()
    assert agent.leave()[0] == 75
    assert not _alive(pid)


def test_the_hard_deadline_is_reported_when_the_bot_is_there(bot, run):
    bot.deadline = int(time.time()) + 2
    run("sleep 60")
    assert (bot.end["result"], bot.end["reason"]) == ("timeout", "deadline")


def test_term_of_the_agent_ends_the_command_and_is_reported(bot, start):
    bot.run = "echo ready; sleep 60"
    agent = start()
    bot.wait_for_log(b"ready")
    agent.process.send_signal(signal.SIGTERM)
    assert agent.wait() == 0
    assert bot.end["result"] == "cancelled"
    assert "told to stop" in bot.end["detail"]


def test_a_revoked_attempt_kills_its_command_and_says_nothing(bot, start):
    bot.run = "trap '' TERM; echo $$; sleep 60"
    agent = start()
    bot.wait(lambda: bot.output.endswith(b"\n"))
    pid = int(bot.output)
    bot.revoked = True
    assert agent.wait() == 0
    assert not bot.finished
    assert not _alive(pid)


def test_a_refused_claim_starts_nothing(bot, start):
    bot.revoked = True
    bot.run = "echo never"
    assert start().wait() == 0
    assert bot.requests == ["POST claim"]


def test_a_bot_that_is_not_up_yet_is_waited_for(bot, start):
    bot.down()
    bot.run = "echo hi"
    agent = start()
    pause(0.3)
    bot.up()
    assert agent.wait() == 0
    assert bot.output == b"hi\n"


def test_answers_of_503_are_tried_again(bot, run):
    bot.fail_next = 3
    run("echo hi")
    assert bot.output == b"hi\n"
    assert bot.end["result"] == "passed"


def test_an_error_of_the_agent_is_told(bot, run):
    run("echo hi", first=with_code("command", "oom_kills = lambda cgroup: 1 // 0"))
    assert (bot.end["result"], bot.end["reason"]) == ("lost", "agent")
    assert "ZeroDivisionError" in bot.end["detail"]


def killed(*counts: int | None, limit: str = "64") -> str:
    """The kernel's counter at each look."""
    return with_code(
        "command",
        f"counts = iter({counts})\noom_kills = lambda cgroup: next(counts)\nmemory_limit_mib = lambda cgroup: {limit}",
    )


def test_processes_killed_for_memory_are_told(bot, run):
    run("exit 3", first=killed(2, 5))
    assert bot.end["exit_code"] == "3"
    assert bot.end["detail"] == "The kernel killed 3 process(es) of the container for memory (limit 64 MiB)."


def test_processes_killed_for_memory_in_setup_are_told_although_it_passed(bot, run):
    bot.setup = "true"
    run("exit 3", first=killed(0, 2, 2, 2, limit="None"))
    assert bot.end["detail"] == "In setup: The kernel killed 2 process(es) of the container for memory."


@pytest.mark.parametrize(
    ("text", "counts", "detail"),
    [
        ("kill -9 $$", (4, 4), "Ended by signal 9. No process was killed for memory."),
        ("kill -9 $$", (None, None), "Ended by signal 9."),
        ("exit 137", (4, 4), "No process was killed for memory."),
        ("exit 139", (4, 4), ""),
        ("kill -SEGV $$", (4, 4), "Ended by signal 11."),
        ("sh -c 'kill -SEGV $$'; exit $?", (4, 4), ""),
    ],
)
def test_a_signal_and_the_exit_code_that_stands_for_one_are_told_apart(bot, run, text, counts, detail):
    run(text, first=killed(*counts))
    assert bot.end["detail"] == detail
    assert bot.end["exit_code"] in ("137", "139")


def test_a_job_that_filled_its_disk_is_killed_at_once_and_its_artifacts_are_kept(bot, start):
    bot.artifact_globs = ["out.txt"]
    bot.run = "trap '' TERM; echo some > out.txt; echo ready; while :; do sleep 0.05; done"
    agent = start()
    bot.wait_for_log(b"ready")
    bot.cancel = bot.out_of_disk = True
    assert agent.wait() == 0
    assert (bot.end["result"], bot.end["reason"]) == ("failed", "disk")
    assert "exit_code" not in bot.end
    assert bot.artifacts == {"out.txt": b"some\n"}
    assert bot.phases == ["running", "collecting"]
    assert bot.output == b"ready\n"


def test_a_job_that_filled_its_disk_before_setup_does_not_start(bot, run):
    bot.setup = "echo never"
    bot.cancel = bot.out_of_disk = True
    run("echo never")
    assert (bot.end["result"], bot.end["reason"]) == ("failed", "disk")
    assert bot.output == b""


def test_a_bot_that_does_not_say_why_cancels(bot, start):
    bot.run = "echo ready; while :; do sleep 0.05; done"
    agent = start(first=with_code("run", "WHY_S = 0.2"))
    bot.wait_for_log(b"ready")
    bot.busy_with_phases = True
    bot.cancel = bot.out_of_disk = True
    assert agent.wait() == 0
    assert bot.end["result"] == "cancelled"


def test_the_command_is_the_first_to_go_when_memory_runs_out(bot, run):
    run("cat /proc/self/oom_score_adj")
    assert bot.output == b"1000\n"


def test_metrics_are_lines_of_json(bot, run):
    run("sleep 2.2")
    lines = [json.loads(line) for line in bot.streams["metrics"].splitlines()]
    assert len(lines) >= 1
    assert lines[0]["phase"] == "running"
    assert abs(lines[0]["t"] - time.time()) < 60
    assert lines[0]["ram_mib"] > 1
    assert lines[0]["disk_total_mib"] > 1
    assert lines[0]["gpus"] == []


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
