"""GPU figures: from recordings of real GPUs, and from every way in which `nvidia-smi` fails.

The programs are real processes and the loop is the agent's own, so spawning, reading, waiting and killing are real.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.telemetry.summarise import MAX_LINE_BYTES, summarise
from gpurun_agent import gpu as module
from gpurun_agent.command import session_members
from gpurun_agent.gpu import FIGURES, Gpu, Gpus, find_program, gpu_devices, parse
from gpurun_agent.loop import Loop
from tests.fakes import nvidia_smi
from tests.unit.agent.fake_bot import pause, with_code

DATA = Path(__file__).parents[2] / "data" / "nvidia-smi"
RECORDINGS = ("rtx-4080-super", "h100", "h200-mig", "l40s")
ROW = "0, GPU-0, NVIDIA L40S, 9, 1235, 46068, 110.23, 54, 2520"
KEYS = ("util_pct", "vram_mib", "vram_total_mib", "power_w", "temp_c", "sm_mhz")


class QuietLoop(Loop):
    """Leaves the signals of the test's own process alone."""

    def _listen_to_signals(self) -> None:
        self.terminated = False


def program(folder: Path, script: str) -> str:
    path = folder / "nvidia-smi"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return str(path)


def recorded(folder: Path, name: str, state: str = "load") -> str:
    """The fake with a recording in its hand."""
    words = [sys.executable, "-I", "-S", nvidia_smi.__file__, str(DATA / f"{name}.txt"), state]
    return program(folder, f'exec {shlex.join(words)} "$@"\n')


def printing(folder: Path, text: str | bytes, code: int = 0) -> str:
    """A program that says just this."""
    (folder / "said").write_bytes(text if isinstance(text, bytes) else text.encode())
    return program(folder, f"cat {folder}/said; exit {code}\n")


@pytest.fixture
def asked(monkeypatch):
    """Starts asking a program, and ends what is left of it."""
    monkeypatch.setattr(module, "TIMEOUT_S", 5.0)
    made: list[Asked] = []

    def ask(path: str) -> Asked:
        made.append(Asked(path))
        return made[-1]

    yield ask
    for one in made:
        one.gpus.stop()
        assert one.gpus._pipe == -1


class Asked:
    """A loop with somebody who asks."""

    def __init__(self, path: str) -> None:
        self.loop = QuietLoop()
        self.gpus = Gpus(self.loop, path, {"PATH": os.defpath})

    def until(self, done, longest_s: float = 20.0) -> Asked:
        end = time.monotonic() + longest_s
        while not done():
            assert time.monotonic() < end, self.gpus.notes()
            self.loop.tick(0.02)
        return self

    def rows(self) -> list[dict]:
        self.until(self.gpus.latest)
        return [json.loads(gpu.json()) for gpu in self.gpus.latest()]

    def note(self) -> str:
        """The one note that there is after something failed."""
        self.until(self.gpus.notes)
        (note,) = self.gpus.notes()
        return note


# recordings


@pytest.mark.parametrize(
    ("name", "state", "figures"),
    [
        ("rtx-4080-super", "idle", (0, 596, 16376, 26.2, 43, 210)),
        ("rtx-4080-super", "load", (7, 1474, 16376, 84.2, 46, 2805)),
        ("h100", "idle", (0, 0, 81559, 69.8, 41, 345)),
        ("h100", "load", (100, 19818, 81559, 632, 59, 1980)),
        ("h200-mig", "idle", (None, 55, 143771, 78.3, 28, 345)),
        ("h200-mig", "load", (None, 16959, 143771, 295, 36, 1980)),
        ("l40s", "idle", (100, 0, 46068, 145, 63, 2520)),
        ("l40s", "load", (9, 1235, 46068, 110.2, 54, 2520)),
    ],
)
def test_b111_figures_of_recorded_gpus_and_mig_is_null(asked, tmp_path, name, state, figures):
    (row,) = asked(recorded(tmp_path, name, state)).rows()
    assert row["index"] == 0
    assert row["uuid"] == "GPU-00000000-0000-0000-0000-000000000000"
    assert row["name"].startswith("NVIDIA ")
    assert tuple(row[key] for key in KEYS) == pytest.approx(figures, abs=0.06)


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize("state", ["idle", "load"])
def test_the_table_and_the_list_of_a_recording_are_no_rows(name, state):
    """Whatever prints them in place of an answer."""
    found = nvidia_smi.sections(str(DATA / f"{name}.txt"))
    assert parse("\n".join(found[state, "nvidia-smi"])) == []
    assert parse("\n".join(found["capabilities", "nvidia-smi -L"])) == []


def test_b117_a_field_that_the_driver_does_not_know_is_left_out_from_then_on(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FIGURES", (*FIGURES[:3], "clocks_throttle_reasons.unknown", *FIGURES[3:]))
    asking = asked(recorded(tmp_path, "h100"))
    asking.gpus._figures = module.FIGURES
    asking.until(lambda: asking.gpus._figures == FIGURES)
    assert asking.rows()[0]["util_pct"] == 100
    first = asking.gpus.latest()[0]
    asking.until(lambda: asking.gpus.latest()[0] is not first)
    assert asking.gpus.notes() == []


OLD_DRIVER = f"""
case "$1" in
*power.draw*|*temperature*|*clocks*) echo 'A field is not a valid field to query.'; exit 2 ;;
*) echo '{ROW.rsplit(", ", 3)[0]}' ;;
esac
"""


def test_b117_a_driver_that_does_not_say_which_field_is_asked_for_the_least(asked, tmp_path):
    asking = asked(program(tmp_path, OLD_DRIVER))
    (row,) = asking.rows()
    assert [row[key] for key in KEYS] == [9, 1235, 46068, None, None, None]
    assert asking.gpus.notes() == []


def test_b117_a_driver_that_knows_no_field_is_one_note(asked, tmp_path):
    note = asked(printing(tmp_path, "This is not a valid field to query.\n", 2)).note()
    assert note == "No GPU metrics: nvidia-smi ended with code 2, saying: This is not a valid field to query. (once)."


# what a driver says instead of a figure

NOTHING = (
    *("[N/A]", "N/A", "[Not Supported]", "[Not Found]", "Unknown", "", "[Insufficient Permissions]", "nan", "inf"),
    *("[Requested functionality has been deprecated]", "1_000", "١٢", "110,23", "--1", "1.2.3", "-", "1e400"),
)
SICK = ("[Unknown Error]", "ERR!", "[GPU is lost]", "[GPU requires reset]")


@pytest.mark.parametrize("word", [*NOTHING, *SICK])
@pytest.mark.parametrize("at", range(3, 9))
def test_b111_b112_what_is_no_number_is_null_and_leaves_the_other_figures(word, at):
    words = ROW.split(", ")
    words[at] = word
    (row,) = (json.loads(gpu.json()) for gpu in parse(", ".join(words) + "\n"))
    values = [row[key] for key in KEYS]
    assert values.pop(at - 3) is None
    assert None not in values


def test_b111_lines_as_people_met_them():
    first, second = parse(
        "0, GPU-a, NVIDIA L4, 23034, 512, 61, [N/A], [Not Supported], 7\n1, GPU-b, NVIDIA L4, Unknown, N/A, 31, , , \n"
    )
    assert first.figures == [23034, 512, 61, None, None, 7]
    assert second.figures == [None, None, 31, None, None, None]
    assert first.sick() + second.sick() == []


def test_b112_a_sick_gpu_is_told_once_with_a_count(asked, tmp_path):
    row = "1, GPU-1, NVIDIA L40S, 83, 12, [Unknown Error], 301.5, ERR!, [GPU requires reset]"
    asking = asked(printing(tmp_path, f"{ROW}\n{row}\n"))
    assert [row["util_pct"] for row in asking.rows()] == [9, 83]
    assert asking.gpus.notes() == [
        "GPU trouble: nvidia-smi says [Unknown Error] for memory.total of GPU 1 (once).",
        "GPU trouble: nvidia-smi says ERR! for temperature.gpu of GPU 1 (once).",
        "GPU trouble: nvidia-smi says [GPU requires reset] for clocks.current.sm of GPU 1 (once).",
    ]
    asking.until(lambda: "(2 times)" in asking.gpus.notes()[0])
    assert len(asking.gpus.notes()) == 3


def test_b112_a_lost_gpu_has_no_name_and_is_still_a_row():
    lost = "[GPU is lost]"
    (gpu,) = parse(", ".join(["3", *[lost] * 8]))
    assert gpu.index == 3
    assert gpu.figures == [None] * 6
    assert len(gpu.sick()) == 6


def test_a_name_with_a_comma():
    (gpu,) = parse("0, GPU-0, NVIDIA A100, PCIe, 9, 1, 2, 3, 4, 5\n")
    assert (gpu.name, gpu.figures) == ("NVIDIA A100, PCIe", [9, 1, 2, 3, 4, 5])


def test_the_driver_is_asked_in_the_c_locale(asked, tmp_path):
    """A decimal comma would be told apart from the separator only by its space."""
    asking = asked(program(tmp_path, f'test "$LC_ALL" = C && echo "{ROW}"\n'))
    asking.gpus._env = {"PATH": os.defpath, "LC_ALL": "C"}
    assert asking.rows()[0]["power_w"] == 110.2
    assert Gpus(QuietLoop(), str(tmp_path / "none"), {"LC_ALL": "de_DE.UTF-8"})._env["LC_ALL"] == "C"


@pytest.mark.parametrize("count", [8, 1000, 1500])
def test_many_gpus(asked, tmp_path, count):
    rows = [ROW.replace("0, GPU-0", f"{n}, GPU-{n}") for n in range(count)]
    found = asked(printing(tmp_path, "\n".join(rows) + "\n")).rows()
    assert [row["index"] for row in found] == list(range(min(count, module.MAX_GPUS)))


def test_a_line_of_a_thousand_gpus_with_the_worst_names_is_taken_by_the_bot():
    words = ["1023", "GPU-" + "é" * 99, "\x01" * 200, *["999999999999.9"] * 6]
    line = b'{"gpus": [%s]}\n' % ", ".join([Gpu(words).json()] * module.MAX_GPUS).encode()
    assert len(line) < MAX_LINE_BYTES
    assert summarise(line).broken_lines == 0


WORDS = st.one_of(
    st.sampled_from([*NOTHING, *SICK, "0", "GPU-1", "54", "1e9", "-3", "999999999999999999999"]), st.text(max_size=6)
)


@given(st.lists(st.lists(WORDS, max_size=12), max_size=5), st.sampled_from([", ", ","]))
def test_whatever_nvidia_smi_says_becomes_json(rows, separator):
    text = "\n".join(separator.join(row) for row in rows)
    for gpu in parse(text.encode("utf-8", "replace").decode("utf-8", "replace")):
        row = json.loads(gpu.json())
        assert set(row) == {"index", "uuid", "name", *KEYS}
        assert all(row[key] is None or isinstance(row[key], (int, float)) for key in KEYS)


# failures


def hurry(asking, monkeypatch) -> list[float]:
    """Makes the pauses between questions short; returns how long they would have been."""
    pauses: list[float] = []
    real = asking.loop.after

    def after(seconds, call):
        if call.__name__ == "_give_up":
            return real(seconds, call)
        pauses.append(seconds)
        return real(min(seconds, 0.01), call)

    monkeypatch.setattr(asking.loop, "after", after)
    return pauses


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("No devices were found\n", 6),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that\n\n", 9),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 590.48\n", 18),
        ("Unable to determine the device handle for GPU0000:01:00.0: GPU is lost.  Reboot the system.\n", 15),
        ("nvidia-smi: error while loading shared libraries: libnvidia-ml.so.1: cannot open it\n", 127),
    ],
)
def test_b116_b117_an_answer_without_gpus_is_one_note(asked, tmp_path, said, code):
    asking = asked(printing(tmp_path, said, code))
    words = " ".join(said.split("\n")[0].split())[:200]
    assert asking.note() == f"No GPU metrics: nvidia-smi ended with code {code}, saying: {words} (once)."
    assert asking.gpus.latest() == []


def test_b117_a_program_that_cannot_be_started_is_one_note(asked, tmp_path):
    path = program(tmp_path, "")
    Path(path).write_bytes(b"\x7fELF of another machine")
    assert asked(path).note().startswith(f"No GPU metrics: {path} cannot be started: ")


def test_b117_failures_are_asked_about_less_and_less_and_told_once(asked, tmp_path, monkeypatch):
    asking = asked(printing(tmp_path, "No devices were found\n", 6))
    pauses = hurry(asking, monkeypatch)
    asking.until(lambda: "(8 times)" in "".join(asking.gpus.notes()))
    assert len(asking.gpus.notes()) == 1
    assert max(pauses) == module.LONGEST_PAUSE_S


def test_a_gpu_that_comes_back_is_seen(asked, tmp_path):
    asking = asked(program(tmp_path, f"test -e {tmp_path}/well || exit 9\necho '{ROW}'\n"))
    asking.until(asking.gpus.notes)
    (tmp_path / "well").touch()
    assert asking.rows()[0]["util_pct"] == 9
    assert asking.gpus.notes() == ["GPU trouble: nvidia-smi ended with code 9 (once)."]


def test_b119_one_that_hangs_is_killed_and_told(asked, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT_S", 0.3)
    asking = asked(program(tmp_path, "trap '' TERM; exec sleep 300\n"))
    pid = asking.gpus._pid
    assert asking.note() == "No GPU metrics: nvidia-smi did not answer within 0.3 s (once)."
    asking.until(lambda: not asking.gpus._pid or asking.gpus._reap())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_b119_no_second_one_is_started_beside_one_that_cannot_be_killed(asked, tmp_path, monkeypatch):
    """As when the driver holds it in the kernel: KILL is sent and nothing happens."""
    monkeypatch.setattr(module, "TIMEOUT_S", 0.1)
    monkeypatch.setattr(Gpus, "_kill", lambda self: None)
    asking = asked(program(tmp_path, f"echo x >> {tmp_path}/started; exec sleep 300\n"))
    hurry(asking, monkeypatch)
    asking.until(asking.gpus.notes)
    stuck = asking.gpus._pid
    end = time.monotonic() + 0.5
    asking.until(lambda: time.monotonic() > end)
    assert (tmp_path / "started").read_text() == "x\n"
    os.kill(stuck, 9)
    monkeypatch.setattr(module, "TIMEOUT_S", 5.0)
    asking.until(lambda: (tmp_path / "started").read_text() == "x\nx\n")
    os.kill(asking.gpus._pid, 9)


def test_a_slow_one_is_taken_and_not_asked_all_the_time(asked, tmp_path, monkeypatch):
    asking = asked(program(tmp_path, f"sleep 1; echo '{ROW}'\n"))
    pauses: list[float] = []
    real = asking.loop.after
    monkeypatch.setattr(asking.loop, "after", lambda seconds, call: pauses.append(seconds) or real(seconds, call))
    assert asking.rows()[0]["util_pct"] == 9
    assert pauses[-1] >= 4


def test_old_figures_are_not_shown_as_the_present(asked, tmp_path, monkeypatch):
    asking = asked(printing(tmp_path, ROW + "\n"))
    asking.rows()
    monkeypatch.setattr(module, "MAX_AGE_S", 0.0)
    assert asking.gpus.latest() == []


def test_a_gigantic_answer_is_cut_off(asked, tmp_path):
    note = asked(program(tmp_path, f"exec yes '{ROW}'\n")).note()
    assert note == "No GPU metrics: the answer of nvidia-smi is longer than 1048576 bytes (once)."


def test_half_a_row_of_one_that_was_killed_is_no_figure(asked, tmp_path):
    """`2520` cut to `25` would be a clock that never was."""
    asking = asked(program(tmp_path, f"printf '%s\\n%s' '{ROW}' '1, GPU-1, x, 1, 2, 3, 4, 5, 25'; kill -9 $$\n"))
    assert [row["index"] for row in asking.rows()] == [0]


def test_a_last_row_without_a_line_end_counts_when_all_is_well(asked, tmp_path):
    assert len(asked(printing(tmp_path, ROW)).rows()) == 1


def test_a_row_in_pieces(asked, tmp_path):
    asking = asked(program(tmp_path, f"printf '%s' '{ROW[:20]}'; sleep 0.05; echo '{ROW[20:]}'\n"))
    assert asking.rows()[0]["sm_mhz"] == 2520


def test_a_name_that_is_no_utf_8(asked, tmp_path):
    asking = asked(printing(tmp_path, ROW.encode().replace(b"L40S", b"\xff\xfe\x00L40S") + b"\n"))
    assert asking.rows()[0]["name"] == "NVIDIA \ufffd\ufffd\0L40S"


def test_rows_count_whatever_the_exit_code(asked, tmp_path):
    """14 is "infoROM is corrupted": a warning behind good figures."""
    assert len(asked(printing(tmp_path, f"{ROW}\nWARNING: infoROM is corrupted at gpu 0000:01:00.0\n", 14)).rows()) == 1


@pytest.mark.parametrize("script", ["exec sleep 300", f"echo '{ROW}'", "exit 9"])
def test_nothing_is_left_after_the_end(asked, tmp_path, script):
    asking = asked(program(tmp_path, script + "\n"))
    asking.until(lambda: bool(asking.gpus.latest() or asking.gpus.notes() or "sleep" in script))
    pid = asking.gpus._pid
    asking.gpus.stop()
    assert asking.loop._timers == []
    if pid:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


# where it is


def test_the_program_is_found_as_a_file_that_can_be_run(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PLACES", ())
    (tmp_path / "a" / "nvidia-smi").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "nvidia-smi").write_text("")
    (tmp_path / "c").mkdir()
    path = program(tmp_path / "c", "")
    assert find_program(f"{tmp_path}/a:{tmp_path}/b::{tmp_path}/c") == path
    assert find_program(str(tmp_path / "b")) is None


@pytest.mark.parametrize(
    ("names", "given"), [(("nvidia0", "nvidiactl"), True), (("nvidiactl", "nvidia-uvm", "null"), False), ((), False)]
)
def test_devices_tell_of_gpus(tmp_path, names, given):
    for name in names:
        (tmp_path / name).touch()
    assert gpu_devices(str(tmp_path)) is given
    assert gpu_devices(str(tmp_path / "missing")) is False


# the whole agent


def lines(bot) -> list[dict]:
    return [json.loads(line) for line in bytes(bot.streams["metrics"]).splitlines()]


def run_until(bot, start, done, **options) -> None:
    """Runs a command that goes on until `done`, then to the end of the agent."""
    bot.run = "while [ ! -e ../stop ]; do sleep 0.05; done"
    agent = start(**options)
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end
        pause(0.05)
    (agent.root / "stop").touch()
    assert agent.wait() == 0


def test_gpus_come_with_every_line(bot, start, tmp_path):
    recorded(tmp_path, "l40s")
    run_until(bot, start, lambda: any(line["gpus"] for line in lines(bot)), programs=str(tmp_path))
    assert next(line["gpus"] for line in lines(bot) if line["gpus"])[0]["util_pct"] == 9
    assert "GPU" not in bot.end["detail"]


def test_b119_a_hanging_nvidia_smi_holds_neither_samples_nor_the_log_nor_the_end(bot, run, tmp_path):
    program(tmp_path, "trap '' TERM; exec sleep 60\n")
    run("sleep 0.8; echo end", programs=str(tmp_path))
    assert bot.output == b"end\n"
    assert lines(bot)[0]["gpus"] == []


def test_b112_b117_the_end_of_the_run_tells_what_was_wrong(bot, start, tmp_path):
    marks = tmp_path / "asked"
    program(tmp_path, f"echo x >> {marks}; echo 'No devices were found'; exit 6\n")
    run_until(bot, start, lambda: marks.exists() and lines(bot), programs=str(tmp_path))
    assert bot.end["result"] == "passed"
    assert "No GPU metrics: nvidia-smi ended with code 6, saying: No devices were found (" in bot.end["detail"]


def test_b117_gpus_without_the_program_are_told(bot, run):
    """Devices were given to the container, and the image hides or lacks the program."""
    run("sleep 0.3", first=with_code("gpu", "gpu_devices = lambda: True; _PLACES = ()"))
    assert bot.end["detail"] == "No GPU metrics: there is no nvidia-smi in this container."


def test_b118_no_sample_is_taken_after_the_end(bot, start):
    """The bot is slow with the last words: a second passes, and the stream of metrics stays closed."""
    bot.run = "while [ ! -e ../stop ]; do sleep 0.05; done; date +%s.%N > ../ended"
    agent = start(first=with_code("run", "SAMPLE_S = 0.02\nFIRST_SAMPLE_S = 0.01"))
    bot.wait(lambda: len(lines(bot)) > 3)
    bot.slow_s = 0.5
    (agent.root / "stop").touch()
    assert agent.wait() == 0
    assert int(bot.end["metrics_size"]) == len(bot.streams["metrics"])
    assert max(line["t"] for line in lines(bot)) < float((agent.root / "ended").read_text()) + 0.3


def test_b118_a_process_that_vanishes_between_the_list_and_the_look(monkeypatch):
    """The sampler asks about no process; who ends a session does, and skips who is gone."""
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: ["999999999", *real(folder)])
    assert 999999999 not in session_members(os.getsid(0))
    assert os.getpid() in session_members(os.getsid(0))
