"""The host watchdog's looks, with a clock and an engine of the test; and what it makes of an engine's odd answers."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from pathlib import Path

import pytest

from gpurun.providers.docker import container, watchdog_program
from gpurun.providers.docker.watchdog_program import (
    KEEP_REMAINS_S,
    LOOK_EVERY_S,
    SILENCE_S,
    Engine,
    EngineTrouble,
    Lock,
    Watchdog,
    Watched,
    watch,
)

GRACE_S, IDLE_S = 30.0, 120.0
NOON = 1_800_000_000.0


class FakeClock:
    """`pass_time` moves both; `set_wall` is a person or a time server."""

    def __init__(self) -> None:
        self._boot, self._wall = 5_000.0, NOON

    def wall(self) -> float:
        return self._wall

    def boot(self) -> float:
        return self._boot

    def sleep(self, seconds: float) -> None:
        self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        self._boot += seconds
        self._wall += seconds

    def set_wall(self, jump_s: float) -> None:
        self._wall += jump_s


class FakeEngine:
    """Containers by id. `down` is why it does not answer."""

    def __init__(self) -> None:
        self.there: dict[str, Watched] = {}
        self.down = ""

    def add(self, id: str, *, deadline: float, running: bool = True) -> None:
        self.there[id] = Watched(id, f"name-{id}", deadline=deadline, running=running)

    def watched(self, mark: str) -> list[Watched]:
        self._answer()
        return list(self.there.values())

    def kill(self, id: str) -> bool:
        self._answer()
        was_running = self.there[id].running
        self.there[id].running = False
        return was_running

    def remove(self, id: str) -> None:
        self._answer()
        del self.there[id]

    def _answer(self) -> None:
        if self.down:
            raise EngineTrouble(self.down)


class Kennel:
    """One watchdog and its world."""

    def __init__(self) -> None:
        self.clock, self.engine, self.said = FakeClock(), FakeEngine(), []
        self.touched = 1
        self.dog = Watchdog("mark", self.engine, self.clock, self.said.append, grace_s=GRACE_S, idle_s=IDLE_S)

    def look(self) -> float | None:
        return self.dog.look(self.touched)

    def watch_for(self, seconds: float) -> None:
        """As it lives: a look, the pause that it asked for, a look …"""
        until = self.clock.boot() + seconds
        while self.clock.boot() < until:
            pause = self.look()
            assert pause is not None, "it went away"
            self.clock.pass_time(min(pause, until - self.clock.boot()))

    def running(self) -> set[str]:
        return {ref for ref, one in self.engine.there.items() if one.running}


@pytest.fixture
def kennel():
    return Kennel()


def test_each_container_is_killed_at_its_own_deadline_and_a_grace(kennel):
    kennel.engine.add("soon", deadline=NOON + 100)
    kennel.engine.add("later", deadline=NOON + 1000)
    kennel.watch_for(100 + GRACE_S - 1)
    assert kennel.running() == {"soon", "later"}
    kennel.watch_for(2)
    assert kennel.running() == {"later"}
    kennel.watch_for(1000)
    assert kennel.running() == set()
    assert kennel.said == [f"killed name-{ref}, which was past its deadline" for ref in ("soon", "later")]


def test_what_it_killed_stays_for_an_hour_so_that_the_bot_can_read_it(kennel):
    kennel.engine.add("a", deadline=NOON + 10)
    kennel.watch_for(10 + GRACE_S + KEEP_REMAINS_S - LOOK_EVERY_S)
    assert kennel.running() == set()
    assert "a" in kennel.engine.there
    kennel.watch_for(2 * LOOK_EVERY_S)
    assert kennel.engine.there == {}
    assert kennel.said[-1] == "removed name-a, which nobody had removed"


def test_a_container_that_was_never_started_is_removed_too(kennel):
    kennel.engine.add("a", deadline=NOON + 10, running=False)
    kennel.watch_for(10 + GRACE_S + KEEP_REMAINS_S + LOOK_EVERY_S)
    assert kennel.engine.there == {}


@pytest.mark.parametrize("jump_s", [-7200, 7200])
def test_a_jump_of_the_wall_clock_changes_no_end(kennel, jump_s):
    kennel.engine.add("a", deadline=NOON + 600)
    kennel.watch_for(60)
    kennel.clock.set_wall(jump_s)
    kennel.watch_for(540 + GRACE_S - 1)
    assert kennel.running() == {"a"}
    kennel.watch_for(2)
    assert kennel.running() == set()


def test_what_is_overdue_when_it_comes_is_killed_at_once(kennel):
    kennel.engine.add("a", deadline=NOON - 86_400)
    kennel.look()
    assert kennel.running() == set()


def test_it_goes_away_when_nothing_was_left_for_a_while(kennel):
    kennel.engine.add("a", deadline=NOON + 600)
    kennel.watch_for(60)
    kennel.engine.there.clear()
    kennel.watch_for(IDLE_S - LOOK_EVERY_S)
    kennel.clock.pass_time(LOOK_EVERY_S)
    assert kennel.look() is None


def test_a_bot_that_asks_for_it_makes_it_wait_anew(kennel):
    for _ in range(5):
        kennel.watch_for(IDLE_S - 1)
        kennel.touched += 1
    kennel.look()
    kennel.clock.pass_time(IDLE_S)
    assert kennel.look() is None


def test_an_engine_that_does_not_answer_is_asked_again_and_mentioned_once(kennel):
    kennel.engine.add("a", deadline=NOON + 100)
    kennel.watch_for(20)
    kennel.engine.down = "Connection refused"
    kennel.watch_for(6 * 3600)
    kennel.engine.down = ""
    kennel.look()
    assert kennel.running() == set()
    assert kennel.said == [
        "the engine cannot be asked: Connection refused",
        "the engine answers again",
        "killed name-a, which was past its deadline",
    ]
    kennel.watch_for(KEEP_REMAINS_S - LOOK_EVERY_S)
    assert "a" in kennel.engine.there, "the hour counts from the kill"


def test_silence_of_the_engine_is_no_sign_that_nothing_is_left(kennel):
    kennel.engine.add("a", deadline=NOON + 600)
    kennel.watch_for(20)
    kennel.engine.down = "no answer in time"
    kennel.watch_for(10 * IDLE_S)


def test_an_engine_that_is_gone_for_good_is_not_waited_for(kennel):
    kennel.engine.add("a", deadline=NOON + 600)
    kennel.watch_for(20)
    kennel.engine.down = "No such file or directory"
    kennel.watch_for(SILENCE_S)
    kennel.clock.pass_time(600 + GRACE_S)
    assert kennel.look() is None


def test_a_kill_that_fails_is_tried_again_and_mentioned_once(kennel):
    kennel.engine.add("a", deadline=NOON - 60)
    kennel.engine.kill = lambda _id: (_ for _ in ()).throw(EngineTrouble("it answered 500 to a kill"))
    kennel.watch_for(100)
    assert kennel.said == ["could not end name-a: it answered 500 to a kill"]
    del kennel.engine.kill
    kennel.look()
    assert kennel.running() == set()


class Answers:
    """A socket that gives one prepared answer to every request."""

    def __init__(self, path: Path) -> None:
        self.path, self.answer, self.asked = str(path), b"", []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                self.asked.append(client.recv(65536).split(b"\r\n")[0].decode())
                client.sendall(self.answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


@pytest.fixture
def answers(tmp_path):
    answers = Answers(tmp_path / "engine.sock")
    yield answers
    answers.close()


def ok(body: object) -> bytes:
    return b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + json.dumps(body).encode()


OURS = {
    "Id": "abc123",
    "Names": ["/gpurun-x-1"],
    "State": "running",
    "Labels": {"gpurun.watch": "mark", "gpurun.name": "gpurun-x-1", "gpurun.deadline": "1800000000"},
}


def test_a_list_is_asked_for_by_our_mark(answers):
    answers.answer = ok([OURS])
    (one,) = Engine(answers.path).watched("mark")
    assert (one.id, one.name, one.deadline, one.running) == ("abc123", "gpurun-x-1", 1_800_000_000.0, True)
    filters = "%7B%22label%22%3A%5B%22gpurun.watch%3Dmark%22%5D%7D"
    assert answers.asked == [f"GET /containers/json?all=1&filters={filters} HTTP/1.0"]


def changed(**labels: str | None) -> dict[str, object]:
    kept = {name: value for name, value in {**OURS["Labels"], **labels}.items() if value is not None}
    return {**OURS, "Labels": kept}


@pytest.mark.parametrize(
    "foreign",
    [
        changed(**{"gpurun.watch": "other"}),
        changed(**{"gpurun.watch": None}),
        changed(**{"gpurun.name": "gpurun-x-2"}),  # made of an image that somebody committed from a container of ours
        changed(**{"gpurun.deadline": None}),
        changed(**{"gpurun.deadline": "soon"}),
        {**OURS, "Labels": None},
        {**OURS, "Names": []},
        {**OURS, "Id": "../abc?force=1"},
    ],
)
def test_what_a_careless_filter_lets_through_is_not_touched(answers, foreign):
    answers.answer = ok([foreign, OURS])
    assert [one.id for one in Engine(answers.path).watched("mark")] == ["abc123"]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\xff\x00",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.0 OK\r\n\r\n[]",
        b"HTTP/1.0 500 Oops\r\n\r\n[]",
        b"HTTP/1.0 301 Moved\r\nLocation: /\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n<html>",
        ok([OURS])[:-9],
        ok(None),
        ok({"message": "page not found"}),
        ok("abc"),
        ok([1]),
        ok([[]]),
        ok([{}]),
        ok([{**OURS, "Labels": "gpurun.watch"}]),
        ok([{**OURS, "Names": {"0": "x"}}]),
        b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 100_000,
    ],
)
def test_an_answer_that_cannot_be_believed_is_trouble_and_never_an_empty_list(answers, answer):
    answers.answer = answer
    with pytest.raises(EngineTrouble):
        Engine(answers.path).watched("mark")


def test_an_answer_without_end_is_trouble(answers, monkeypatch):
    monkeypatch.setattr(watchdog_program, "MAX_ANSWER_BYTES", 1000)
    answers.answer = ok("x" * 2000)
    with pytest.raises(EngineTrouble, match="no end"):
        Engine(answers.path).watched("mark")


def test_no_answer_in_time_and_nobody_there_are_trouble(tmp_path, monkeypatch):
    monkeypatch.setattr(watchdog_program, "ANSWER_TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(f"{tmp_path}/deaf.sock")
        deaf.listen()
        with pytest.raises(EngineTrouble):
            Engine(f"{tmp_path}/deaf.sock").watched("mark")
    with pytest.raises(EngineTrouble, match="No such file"):
        Engine(f"{tmp_path}/nobody.sock").watched("mark")


def test_kill_and_remove_are_done_when_the_engine_says_so(answers):
    engine = Engine(answers.path)
    answers.answer = b"HTTP/1.0 204 No Content\r\n\r\n"
    assert engine.kill("abc")
    engine.remove("abc")
    answers.answer = b"HTTP/1.0 409 Conflict\r\n\r\n{}"  # not running; a removal is under way
    assert not engine.kill("abc")
    engine.remove("abc")
    answers.answer = b"HTTP/1.0 500 Oops\r\n\r\n{}"
    for ask in (engine.kill, engine.remove):
        with pytest.raises(EngineTrouble):
            ask("abc")
    assert answers.asked[:2] == ["POST /containers/abc/kill HTTP/1.0", "DELETE /containers/abc?force=1&v=1 HTTP/1.0"]


@pytest.fixture
def lock(tmp_path):
    fd = os.open(tmp_path / "a.lock", os.O_RDWR | os.O_CREAT)
    yield Lock(str(tmp_path / "a.lock"), fd)
    os.close(fd)


def another(lock: Lock) -> Lock:
    return Lock(lock._path, os.open(lock._path, os.O_RDWR))


def test_one_of_two_holds_the_lock(lock):
    other = another(lock)
    assert lock.is_ours()
    assert lock.is_ours()
    assert not other.is_ours()
    assert lock.leave(lock.touched())
    assert other.is_ours()
    os.close(other._fd)


def test_who_was_asked_for_at_the_last_moment_stays(lock):
    assert lock.is_ours()
    before = lock.touched()
    os.utime(lock._path)
    assert not lock.leave(before)
    other = another(lock)
    assert not other.is_ours(), "it holds the lock again"
    os.close(other._fd)


def test_who_was_asked_for_and_replaced_at_the_last_moment_goes(lock):
    assert lock.is_ours()
    before = lock.touched()
    os.utime(lock._path)
    other = another(lock)
    lock.is_ours = other.is_ours  # between letting go and asking again, somebody else was quicker
    assert other.is_ours
    taken = other.is_ours
    lock.is_ours = lambda: not taken()
    assert lock.leave(before)
    os.close(other._fd)


def test_it_becomes_a_newer_version_that_a_bot_left_for_it(kennel, lock):
    became = []

    class Became(BaseException):
        pass

    def become(program: str, words: list[str]) -> None:
        became.append((program, words))
        if program == "/new/python":
            raise Became
        raise OSError(2, "No such file or directory")

    kennel.engine.add("a", deadline=NOON + 600)
    asked = Path(lock._path + ".next")
    asked.write_bytes(b"/broken/python\0x")
    kennel.clock.sleep = lambda _s: asked.write_bytes(b"/new/python\0-I\0program") if became else None
    with pytest.raises(Became):
        watch(kennel.dog, lock, kennel.clock, kennel.said.append, become)
    assert became == [("/broken/python", ["/broken/python", "x"]), ("/new/python", ["/new/python", "-I", "program"])]
    assert not asked.exists()
    assert kennel.said[1] == "it cannot be started: [Errno 2] No such file or directory"


def test_it_looks_until_nothing_is_left(kennel, lock):
    assert lock.is_ours()
    kennel.engine.add("a", deadline=NOON + 600)
    watch(kennel.dog, lock, kennel.clock, kennel.said.append, lambda *_: pytest.fail("nobody asked for that"))
    assert kennel.said == ["killed name-a, which was past its deadline", "removed name-a, which nobody had removed"]
    spent = kennel.clock.wall() - NOON
    assert spent == pytest.approx(600 + GRACE_S + KEEP_REMAINS_S + IDLE_S, abs=2 * LOOK_EVERY_S)


def test_labels_are_those_that_the_provider_writes(launches):
    launch = launches("python@sha256:" + "ab" * 32, "true")
    labels = container.labels(launch, "mark")
    item = {"Id": "abc", "Names": [f"/{launch.name}"], "State": "running", "Labels": labels}
    one = watchdog_program._watched(item, "mark")
    assert one is not None
    assert one.deadline == launch.hard_deadline.timestamp()
    assert watchdog_program.LABEL_WATCH not in container.labels(launch, "")


KNOWN = {1: "dcbebfc39424"}


def test_a_changed_program_has_a_new_version():
    """A watchdog that runs is replaced only by a higher number."""
    program = Path(watchdog_program.__file__).read_bytes()
    digest = hashlib.sha256(program).hexdigest()[:12]
    assert KNOWN.get(watchdog_program.VERSION) == digest, (
        f"watchdog_program.py has changed: when its VERSION was released, raise it; then note {digest} here"
    )
