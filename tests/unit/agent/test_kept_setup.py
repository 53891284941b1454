"""`setup` carried out once and taken from its layer after that, by the whole agent."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from tests.unit.agent.fake_bot import with_code

SETUP = "echo tool > ../../usr/tool; rm ../../usr/old; echo so > made.so"
SLOW_DISK = """
import time

class Slow(_Tar):
    def _put(self, data):
        time.sleep(0.2 if len(data) >= 1 << 20 else 0)
        super()._put(data)

_Tar = Slow
"""
RUN = "cat ../../usr/tool made.so; ls ../../usr"


@pytest.fixture
def machines(start, tmp_path):
    """Containers of one image: a folder each, with `/gpurun` in it."""

    def machine(name: str, **options):
        files = tmp_path / name
        (files / "usr").mkdir(parents=True)
        (files / "usr/old").touch()
        (files / "gpurun/layer").mkdir(parents=True)
        env = {"GPURUN_ROOT": str(files / "gpurun"), "GPURUN_FILES": str(files), "HOME": str(files)}
        return files, lambda: start(env=env, **options)

    return machine


def made(bot, machines) -> Path:
    """The volume after a first run."""
    bot.setup, bot.run, bot.layer = SETUP, RUN, "make\x001000000"
    files, go = machines("one")
    assert go().wait() == 0
    assert bot.end["result"] == "passed", bot.end
    return files / "gpurun/layer"


def again(bot, machines, volume: Path) -> str:
    """The log of a second run with that volume."""
    (told,) = bot.layers
    bot.layers.clear()
    bot.streams["log"].clear()
    bot.streams["metrics"].clear()
    bot.layer = "\0".join(("take", told["sha256"], told["size"], "2026-12-01", "12500"))
    files, go = machines("two")
    shutil.copytree(volume, files / "gpurun/layer", dirs_exist_ok=True)
    assert go().wait() == 0
    return bot.log.decode()


def test_the_second_run_has_what_setup_did_without_it(bot, machines):
    volume = made(bot, machines)
    first, kept, *rest = bot.log.decode().splitlines()
    assert first == "::gpurun:: setup"
    assert re.fullmatch(r"::gpurun:: setup: kept as a layer, \d\.\d KiB in \d\.\d s", kept)
    assert rest == ["::gpurun:: run", "tool", "so", "tool"]
    assert (bot.layers[0]["state"], bot.layers[0]["size"]) == ("made", str((volume / "layer.tar").stat().st_size))
    taken, *rest = again(bot, machines, volume).splitlines()
    assert re.fullmatch(r"::gpurun:: setup: taken from the layer of 2026-12-01 \(12\.\d s saved\), \d\.\d KiB", taken)
    assert rest == ["::gpurun:: run", "tool", "so", "tool"]
    assert bot.layers == []
    assert bot.phases[-2:] == ["setup", "running"]


def test_a_layer_with_another_byte_is_thrown_away_and_setup_is_carried_out(bot, machines):
    volume = made(bot, machines)
    tar = bytearray((volume / "layer.tar").read_bytes())
    tar[-1500] ^= 1
    (volume / "layer.tar").write_bytes(tar)
    told, *rest = again(bot, machines, volume).splitlines()
    why = "its bytes are not those that were recorded"
    assert told == f"::gpurun:: setup: the layer of 2026-12-01 is not taken and thrown away: {why}"
    assert rest == ["::gpurun:: setup", "::gpurun:: run", "tool", "so", "tool"]
    assert bot.layers == [{"state": "spoilt", "detail": why}]


def test_a_layer_that_does_not_fit_this_commit_is_said_and_not_thrown_away(bot, machines):
    volume = made(bot, machines)
    bot.set_source({"made.so": b"of the commit\n"})
    told, *rest = again(bot, machines, volume).splitlines()
    assert told == "::gpurun:: setup: the layer of 2026-12-01 is not taken: the commit has made.so"
    assert rest == ["::gpurun:: setup", "::gpurun:: run", "tool", "so", "tool"]
    assert bot.layers == [{"state": "misfit", "detail": "the commit has made.so"}]


def test_a_volume_without_a_layer_is_told(bot, machines, tmp_path):
    made(bot, machines)
    (tmp_path / "empty").mkdir()
    log = again(bot, machines, tmp_path / "empty")
    assert "not taken and thrown away: it cannot be read: No such file or directory" in log
    assert bot.end["result"] == "passed"


@pytest.mark.parametrize(
    ("setup", "no_layer", "told"),
    [
        (SETUP, "somebody else was first", "setup: not kept as a layer: somebody else was first"),
        ("head -c 2000000 /dev/zero > ../../usr/x", "", "setup: not kept as a layer: it would have more than 0 MiB"),
        ("rm -r ../layer", "", "setup: not kept as a layer: it cannot be written: No such file or directory"),
    ],
)
def test_setup_has_passed_whatever_becomes_of_its_layer(bot, machines, setup, no_layer, told):
    bot.setup, bot.run, bot.layer, bot.no_layer = setup, "echo ran", "make\x001000000", no_layer
    _, go = machines("one")
    go().wait()
    assert bot.log.decode().splitlines() == ["::gpurun:: setup", f"::gpurun:: {told}", "::gpurun:: run", "ran"]
    assert bot.end["result"] == "passed"


@pytest.mark.parametrize(("most", "first"), [(2, True), (11, False)])
def test_more_files_than_there_is_memory_for_are_not_kept(bot, machines, most, first):
    """Before `setup`, or made by it."""
    bot.setup, bot.run, bot.layer = (
        "mkdir ../../many; cd ../../many; touch 1 2 3 4 5 6 7 8",
        "echo ran",
        "make\x001000000",
    )
    _, go = machines("one", first=with_code("layer", f"MOST_FILES = {most}"))
    go().wait()
    told = f"::gpurun:: setup: not kept as a layer: there are more than {most} files"
    before, after = ([told], []) if first else ([], [told])
    assert bot.log.decode().splitlines() == [*before, "::gpurun:: setup", *after, "::gpurun:: run", "ran"]
    assert bot.layers == []
    assert bot.end["result"] == "passed"


def test_a_cancel_is_heard_while_a_large_file_is_packed(bot, start, tmp_path):
    """On a disk that takes a fifth of a second for each MiB: 12 s in all."""
    slow = with_code("layer", SLOW_DISK)
    bot.setup, bot.run, bot.layer = "truncate -s 60M ../../usr/large; echo large", "echo ran", "make\x00100000000"
    (tmp_path / "usr").mkdir()
    (tmp_path / "gpurun/layer").mkdir(parents=True)
    env = {"GPURUN_ROOT": str(tmp_path / "gpurun"), "GPURUN_FILES": str(tmp_path), "HOME": str(tmp_path)}
    agent = start(env=env, first=slow)
    bot.wait_for_log(b"large")
    bot.wait((tmp_path / "gpurun/layer/layer.tar").exists)
    bot.cancel = True
    began = time.monotonic()
    agent.wait()
    assert bot.end["result"] == "cancelled"
    assert time.monotonic() - began < 6
    assert bot.layers == []


def test_a_setup_that_failed_is_not_kept(bot, machines):
    bot.setup, bot.run, bot.layer = "exit 3", "echo ran", "make\x001000000"
    _, go = machines("one")
    go().wait()
    assert (bot.end["result"], bot.end["reason"], bot.layers) == ("failed", "setup", [])
