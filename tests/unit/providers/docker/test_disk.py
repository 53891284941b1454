"""What containers use of the disk, without an engine: when it is asked, and what is made of the answer."""

from __future__ import annotations

import threading

import docker.errors  # noqa: F401 - takes longer than a list waits for a measure
import pytest
import requests

from gpurun.domain.offer import DiskUse
from gpurun.domain.plan import Resources
from gpurun.providers.docker import disk
from gpurun.providers.docker.container import LABEL_DISK
from gpurun.providers.docker.disk import LEAVING_S, DiskWatch, Space, limit_for, space, tree_bytes

MIB = 1024 * 1024


class FakeEngine:
    """The engine and its client at once. An answer takes `takes_s` on the clock of the test."""

    def __init__(self) -> None:
        self.now = 100.0
        self.bytes: dict[str, int | None] = {}
        self.mounts: list[dict[str, str]] = []
        self.takes_s = 0.0
        self.asked: list[str] = []
        self.stuck: threading.Event | None = None

    def client(self):
        return self

    def inspect_container(self, ref):
        return {"Id": ref, "Mounts": self.mounts}

    def containers(self, *, size, filters):
        assert size
        ref = filters["id"]
        self.asked.append(ref)
        self.now += self.takes_s
        if self.stuck is not None:
            self.stuck.wait(10)
        used = self.bytes[ref]
        if used is None:
            raise requests.ReadTimeout("the walk takes long")
        return [{"Id": ref, "SizeRw": used}] if used >= 0 else []


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def free(monkeypatch):
    """Sets what is free on the disk, MiB."""

    def set_to(mib: int) -> None:
        monkeypatch.setattr(disk, "space", lambda folder: Space(100_000, mib) if folder else None)

    set_to(50_000)
    return set_to


@pytest.fixture
def watch(engine, free):
    return DiskWatch(engine, lambda: engine.now, keep_free_mib=1000)


def running(ref, limit=100, **changes):
    return {"Id": ref, "State": "running", "Labels": {LABEL_DISK: str(limit)} if limit else {}, **changes}


def test_a_quick_measure_comes_with_the_list_that_asked(engine, watch):
    engine.bytes = {"a": 70 * MIB, "b": 200 * MIB + 5}
    assert watch.look([running("a"), running("b"), running("c", State="exited")], "/") == {
        "a": DiskUse(used_mib=70, limit_mib=100),
        "b": DiskUse(used_mib=200, limit_mib=100),
    }
    assert engine.asked == ["a", "b"]


def test_a_slow_measure_holds_no_list_up_and_comes_later(engine, watch):
    engine.stuck, engine.bytes = threading.Event(), {"a": 70 * MIB}
    assert watch.look([running("a")], "/") == {}
    assert watch.look([running("a")], "/") == {}
    engine.stuck.set()
    assert watch.look([running("a")], "/") == {"a": DiskUse(used_mib=70, limit_mib=100)}
    assert engine.asked == ["a"]  # one question at a time


@pytest.mark.parametrize(("takes_s", "pause_s"), [(0.0, 2.0), (0.05, 2.0), (1.0, 20.0)])
def test_the_dearer_a_measure_the_longer_the_pause(engine, watch, takes_s, pause_s):
    engine.takes_s, engine.bytes = takes_s, {"a": 1}
    watch.look([running("a")], "/")
    engine.now += pause_s - 0.01
    watch.look([running("a")], "/")
    assert engine.asked == ["a"]
    engine.now += 0.02
    watch.look([running("a")], "/")
    assert engine.asked == ["a", "a"]


def test_a_measure_that_fails_leaves_the_last_one(engine, watch):
    engine.bytes = {"a": 70 * MIB, "b": None, "c": -1}
    everybody = [running("a"), running("b"), running("c")]
    assert watch.look(everybody, "/").keys() == {"a"}
    engine.bytes["a"] = None
    engine.now += 3
    assert watch.look(everybody, "/") == {"a": DiskUse(used_mib=70, limit_mib=100)}
    assert engine.asked == ["a", "b", "c"] * 2


def test_what_is_gone_is_forgotten(engine, watch):
    engine.bytes = {"a": 70 * MIB}
    watch.look([running("a")], "/")
    assert watch.look([], "/") == {}


def test_after_close_nobody_is_asked(engine, watch):
    engine.stuck, engine.bytes = threading.Event(), {"a": 1, "b": 1}
    watch.look([running("a"), running("b")], "/")
    watch.close()
    engine.stuck.set()
    watch._idle.wait(10)
    assert engine.asked == ["a"]


def test_on_a_full_disk_the_one_that_uses_most_is_named_and_no_other(engine, watch, free):
    engine.bytes = {"a": 70 * MIB, "b": 90 * MIB, "c": 10 * MIB}
    everybody = [running("a"), running("b", limit=0), running("c")]
    free(1000)
    assert not any(use.is_too_much for use in watch.look(everybody, "/").values())
    free(999)
    uses = watch.look(everybody, "/")
    assert uses["b"] == DiskUse(used_mib=90, limit_mib=0, host_free_mib=999)
    assert [ref for ref, use in uses.items() if use.is_too_much] == ["b"]
    assert not any(use.is_too_much for use in watch.look(everybody, "").values())  # a disk that cannot be seen


def test_nobody_else_is_named_while_the_files_of_one_that_ended_go(engine, watch, free):
    engine.bytes = {"a": 70 * MIB, "b": 90 * MIB}
    free(999)
    assert watch.look([running("a"), running("b")], "/")["b"].is_too_much
    ended = [running("a"), running("b", State="exited")]
    assert not watch.look(ended, "/")["a"].is_too_much
    engine.now += LEAVING_S - 1
    assert not watch.look(ended, "/")["a"].is_too_much
    engine.now += 1
    assert watch.look(ended, "/")["a"].is_too_much  # its end does not come, and the disk is still full
    engine.now += 1
    engine.bytes["c"] = -1
    watch.look([running("a", State="removing")], "/")
    assert watch.look([running("c")], "/") == {}
    engine.bytes["c"] = 5 * MIB
    engine.now += 3
    assert watch.look([running("c")], "/")["c"].is_too_much  # what is removed has given back what it had


def test_volumes_that_the_image_asks_for_count(engine, watch, tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").write_bytes(bytes(3 * MIB))
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone").symlink_to("/nowhere/at/all")
    engine.bytes = {"a": 1 * MIB}
    bind = {"Type": "bind", "Source": "/usr"}
    engine.mounts = [{"Type": "volume", "Source": str(tmp_path)}, bind, {"Type": "volume"}]
    mounts = [{"Type": "volume", "Source": ""}, bind]  # the list does not say where
    assert watch.look([running("a", Mounts=mounts)], "/")["a"].used_mib == 4
    assert tree_bytes(str(tmp_path / "not there")) == 0


@pytest.mark.parametrize(
    ("asked", "default", "seen", "limit"),
    [
        (500, 300, Space(9_000, 1_000), 500),
        (0, 300, Space(9_000, 1_000), 300),
        (0, 0, Space(9_000, 1_000), 450),
        (0, 0, None, 0),
    ],
)
def test_the_limit_is_what_was_asked_for_or_the_default_or_a_share_of_what_is_free(asked, default, seen, limit):
    assert limit_for(Resources(disk_mib=asked), seen, default_mib=default, max_runs=2) == limit


def test_the_space_of_a_real_folder(tmp_path):
    seen = space(str(tmp_path))
    assert 0 < seen.free_mib < seen.total_mib
    assert space(str(tmp_path / "nowhere")) is None
    assert space("") is None


@pytest.mark.parametrize(
    ("use", "too_much"),
    [
        (DiskUse(used_mib=100, limit_mib=100), False),
        (DiskUse(used_mib=101, limit_mib=100), True),
        (DiskUse(used_mib=10**6, limit_mib=0), False),
        (DiskUse(used_mib=1, limit_mib=0, host_free_mib=0), True),
    ],
)
def test_what_is_too_much(use, too_much):
    assert use.is_too_much is too_much
