"""`gpurun run` as a person and a script meet it: a checkout, a terminal or a pipe, a real container."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pty
import re
import signal
import socket
import socketserver
import sqlite3
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ops.demo_model import demo_model
from ops.local_services import CACHE, free_port
from tests.docker.watchdogs import end_watchdogs, watchdogs
from tests.fakes.hub import FakeHub

pytestmark = pytest.mark.docker

WITHIN_S = 30.0
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Desk:
    """A checkout and the command in it."""

    def __init__(self, folder: Path, engine: Any, image: str) -> None:
        self.checkout = folder / "train"
        self.home = folder / "state"
        self.image = image
        self._engine = engine
        self._folder = folder
        self.checkout.mkdir()
        self.git("init", "-q")

    def jobs(self, **jobs: dict[str, Any]) -> None:
        """Committed."""
        config = {"version": 1, "jobs": {name: {"image": self.image, **job} for name, job in jobs.items()}}
        (self.checkout / ".gpurun.yml").write_text(json.dumps(config, indent=2))
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "jobs")

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        done = subprocess.run(["git", *who, *words], cwd=self.checkout, check=True, capture_output=True, text=True)
        return done.stdout

    def start(self, *words: str, stdout: Any = subprocess.PIPE, **settings: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "gpurun", "run", *words],
            cwd=self.checkout,
            env=self._environment(settings),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE if stdout == subprocess.PIPE else stdout,
            text=True,
        )

    def plan(self, *words: str, **settings: str) -> dict[str, Any]:
        """The object that `gpurun plan` prints."""
        argv = [sys.executable, "-m", "gpurun", "plan", *words, "--json"]
        done = subprocess.run(
            argv, cwd=self.checkout, env=self._environment(settings), check=True, capture_output=True, timeout=WITHIN_S
        )
        return json.loads(done.stdout)

    def _environment(self, settings: dict[str, str]) -> dict[str, str]:
        return {
            "PATH": os.getenv("PATH", ""),
            "HOME": str(self._folder),
            "GPURUN_STATE_DIR": str(self.home),
            **{f"GPURUN_{name.upper()}": value for name, value in settings.items()},
        }

    def run(self, *words: str, **settings: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr; nothing of it is left on the engine."""
        process = self.start(*words, **settings)
        out, err = process.communicate(timeout=WITHIN_S)
        assert self.containers() == []
        return process.returncode, out, err

    def containers(self) -> list[str]:
        """Ids of all that the runs of this desk have on the engine."""
        installs = {_install(database) for database in self.home.glob("runs/*/gpurun.db")}
        ours = self._engine.containers(all=True, filters={"label": "gpurun.attempt"})
        return [one["Id"] for one in ours if one["Labels"]["gpurun.install"] in installs]


def _install(database: Path) -> str:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as connection:
        return str(connection.execute("SELECT install_id FROM meta").fetchone()[0])


@pytest.fixture
def desk(tmp_path, engine, base_images):
    desk = Desk(tmp_path, engine, base_images.python)
    yield desk
    end_watchdogs(desk.home / "watchdog")


def read_until(process: subprocess.Popen[str], line: str) -> list[str]:
    """What was printed before."""
    assert process.stdout is not None
    before = []
    for read in process.stdout:
        if read.rstrip("\n") == line:
            return before
        before.append(read.rstrip("\n"))
    pytest.fail(f"the output ended before {line!r}: {process.stderr and process.stderr.read()}")


def test_a_job_of_a_sub_folder_starts_there_and_keeps_what_is_there(desk, tmp_path):
    job = {"image": desk.image, "run": "pwd; mkdir out; cat in.txt > out/made", "artifacts": ["out/**"]}
    stray = {"image": desk.image, "run": "true", "workdir": "none"}
    files = {"pkg/.gpurun.yml": json.dumps({"version": 1, "jobs": {"smoke": {**job, "workdir": "demo"}, "bad": stray}})}
    for name, text in {**files, "pkg/demo/in.txt": "x"}.items():
        (desk.checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (desk.checkout / name).write_text(text)
    desk.jobs(top={"run": "true"})
    code, out, err = desk.run("smoke", "--path", "pkg", "--artifacts", str(tmp_path / "kept"))
    assert code == 0, err
    assert "/gpurun/work/pkg/demo\n" in out + err
    assert "The job is that of pkg/.gpurun.yml." in out + err
    assert "gpurun smoke (pkg): ✅ passed" in out + err
    assert (tmp_path / "kept/out/made").read_text() == "x"
    code, out, err = desk.run("bad", "--path", "pkg")
    assert code == 1
    assert "The commit has no folder pkg/none, in which the job should start." in out + err


def test_a_dirty_checkout_runs_as_it_is_and_stays_as_it_was(desk):
    desk.jobs(smoke={"run": "cat new.txt; ls ignored.txt; mkdir out; cp new.txt out/kept.txt", "artifacts": ["out/**"]})
    (desk.checkout / ".gitignore").write_text("ignored.txt\n")
    (desk.checkout / "ignored.txt").write_text("no")
    (desk.checkout / "new.txt").write_text("not committed\n")
    before = desk.git("status", "--porcelain", "-uall"), desk.git("stash", "list"), desk.git("for-each-ref")
    code, out, err = desk.run("smoke")
    assert (code, err) == (0, "")
    assert "Uncommitted changes are part of this run (.gitignore, new.txt)" in out
    assert "\nnot committed\n" in out
    assert "ignored.txt': No such file" in out
    assert (desk.git("status", "--porcelain", "-uall"), desk.git("stash", "list"), desk.git("for-each-ref")) == before
    assert "gpurun smoke: ✅ passed" in out
    assert desk.image in out
    folder = re.search(r"artifacts +(/.+)", out)
    assert folder is not None
    assert (Path(folder[1]) / "out/kept.txt").read_text() == "not committed\n"
    assert not CONTROL.search(out)
    assert out.splitlines().count("· running") <= 1  # a job of a moment may be over before anybody looked


def test_json_is_all_there_is_on_stdout(desk, tmp_path):
    desk.jobs(smoke={"run": "echo to the log; echo 1 > a.txt; exit 3", "artifacts": ["a.txt"]})
    code, out, err = desk.run("smoke", "--json", "--artifacts", str(tmp_path / "kept"))
    assert code == 1
    result = json.loads(out)
    assert (result["verdict"], result["reason"], result["exit_code"]) == ("failed", "exit", 3)
    assert result["commit"] == desk.git("rev-parse", "HEAD").strip()
    assert result["image"] == desk.image
    assert result["artifacts_dir"] == str(tmp_path / "kept")
    assert set(result["artifacts"]) == {"a.txt", "gpurun/installed.txt"}
    installed = (tmp_path / "kept/gpurun/installed.txt").read_bytes()
    assert b"\n# dpkg\nadduser=" in installed or b"\n# dpkg\napt=" in installed
    assert hashlib.sha256(installed).hexdigest() == result["artifacts"]["gpurun/installed.txt"]
    assert set(result["times_s"]) == {"plan and queue", "boot", "source", "run", "collect", "clear up"}
    assert (tmp_path / "kept" / "a.txt").read_text() == "1\n"
    assert "to the log\n" in err


def test_artifacts_that_find_no_place_cost_no_report(desk, tmp_path):
    desk.jobs(smoke={"run": "echo 1 > a.txt; echo 2 > b.txt", "artifacts": ["*.txt"]})
    (tmp_path / "kept/a.txt").mkdir(parents=True)
    code, out, err = desk.run("smoke", "--json", "--artifacts", str(tmp_path / "kept"))
    assert code == 4
    result = json.loads(out)
    assert (result["verdict"], result["exit_code"], len(result["artifacts"])) == ("passed", 0, 3)
    assert result["artifacts_unwritten"] == {"a.txt": "Is a directory"}
    assert (Path(result["artifacts_instead"]) / "a.txt").read_text() == "1\n"
    assert (tmp_path / "kept/b.txt").read_text() == "2\n"
    told = f"1 artifact could not be written to {tmp_path}/kept:\n  a.txt: Is a directory\nIt is in "
    assert err.endswith(f"gpurun run: {told}{result['artifacts_instead']}.\n")


def test_the_plan_that_is_shown_is_the_one_that_is_run(desk):
    hub, model = FakeHub(), demo_model(CACHE / "demo")
    revision = hub.add_model(model.id, model.files)
    models = [{"id": model.id, "revision": revision, "target": "/weights"}]
    desk.jobs(smoke={"run": "ls", "setup": "true", "env": {"B": "1", "A": "ü"}, "models": models, "kind": "batch"})
    (desk.checkout / "new.txt").write_text("not committed\n")
    with hub.serving() as url:
        planned = desk.plan("smoke", hub_url=url)
        code, out, _ = desk.run("smoke", "--json", hub_url=url)
    assert code == 0
    ran = json.loads(out)
    assert (planned["digest"], planned["result_key"]) == (ran["plan_digest"], ran["result_key"])
    assert (planned["plan"]["commit"], planned["tree"]) == (ran["commit"], ran["tree"])


def test_a_longer_job_than_it_may_be_times_out(desk):
    desk.jobs(smoke={"run": "sleep 60", "limits": {"max_duration": "1s"}})
    code, out, _ = desk.run("smoke", "--json")
    assert (code, json.loads(out)["verdict"]) == (1, "timeout")


def test_an_image_that_is_not_there_is_refused(desk):
    desk.image = f"{desk.image.split('@')[0]}@sha256:{'0' * 64}"
    desk.jobs(smoke={"run": "echo hi"})
    code, out, _ = desk.run("smoke", "--json")
    assert code == 2
    result = json.loads(out)
    assert (result["verdict"], result["reason"]) == ("refused", "pin")
    assert desk.image in result["detail"]


def test_a_flipped_byte_in_the_weights_names_the_file(desk):
    hub, model = FakeHub(), demo_model(CACHE / "demo")
    revision = hub.add_model(model.id, model.files)
    hub.corrupt(model.id, "model.safetensors")
    desk.jobs(smoke={"run": "echo ran", "models": [{"id": model.id, "revision": revision}]})
    with hub.serving() as url:
        code, out, _ = desk.run("smoke", hub_url=url)
    assert code == 1
    assert "model.safetensors" in out
    assert "\nran\n" not in out


def test_a_terminal_shows_progress_and_obeys_no_job(desk):
    draw = "for i in $(seq 30); do printf '\\rstep %d of 30' $i; sleep 0.05; done"
    evil = "printf '\\033]52;c;aGVsbG8=\\a\\033[2J\\033[1;1H[bold]not markup[/bold]\\n'"
    desk.jobs(smoke={"run": f"{evil}; {draw}"})
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    process = desk.start("smoke", stdout=slave)
    os.close(slave)
    seen = _read_terminal(master)
    assert process.wait(timeout=WITHIN_S) == 0
    assert "[bold]not markup[/bold]" in seen
    for forbidden in ("\x1b]52", "\x1b[2J", "\x1b[1;1H", "aGVsbG8"):
        assert forbidden not in seen
    assert re.search(r"running.* · step \d+ of 30", seen)
    assert desk.containers() == []


def _read_terminal(master: int) -> str:
    """Everything until the last process has closed it."""
    seen = b""
    with os.fdopen(master, "rb", buffering=0) as terminal:
        while True:
            try:
                piece = terminal.read(65536)
            except OSError:
                return seen.decode()
            seen += piece


def test_ctrl_c_ends_a_job_that_does_not_listen_and_then_the_command(desk):
    desk.jobs(smoke={"run": "trap '' TERM INT; echo deaf; while :; do sleep 1; done"})
    process = desk.start("smoke")
    read_until(process, "deaf")
    process.send_signal(signal.SIGINT)
    stopping = (
        "Stopping: the job has 20 s to end, then its artifacts are kept and its container removed. Once more: at once."
    )
    read_until(process, stopping)
    assert len(desk.containers()) == 1
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=10)
    assert process.returncode == 130
    assert desk.containers() == []
    assert "🚫 cancelled" in out


def test_sigterm_gives_the_job_time_to_end(desk):
    desk.jobs(smoke={"run": "trap 'echo tidied; exit 0' TERM; echo ready; while :; do sleep 0.1; done"})
    process = desk.start("smoke")
    assert read_until(process, "ready").count("· running") == 1
    process.terminate()
    out, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 130
    assert "\ntidied\n" in out
    assert desk.containers() == []


def test_nobody_reads_any_more(desk):
    """`gpurun run smoke | head`."""
    desk.jobs(smoke={"run": "while :; do echo again; sleep 0.1; done"})
    process = desk.start("smoke")
    read_until(process, "again")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(timeout=WITHIN_S) == 130
    assert desk.containers() == []


def test_what_a_killed_run_left_is_cleared_by_the_next_one(desk):
    desk.jobs(long={"run": "echo ready; sleep 600"}, smoke={"run": "echo hi"})
    process = desk.start("long")
    read_until(process, "ready")
    process.kill()
    process.communicate(timeout=WITHIN_S)
    assert len(desk.containers()) == 1
    assert len(watchdogs(desk.home / "watchdog")) == 1, "it holds neither our output nor our life"
    alive = desk.start("long")
    read_until(alive, "ready")
    beside = desk.start("smoke")
    beside.communicate(timeout=WITHIN_S)
    assert beside.returncode == 0
    assert len(desk.containers()) == 1, "the run that is alive keeps its container"
    alive.terminate()
    alive.communicate(timeout=WITHIN_S)
    assert alive.returncode == 130
    assert desk.containers() == []
    assert sorted(folder.parent.name for folder in desk.home.glob("runs/*/ended")) == sorted(
        folder.name for folder in desk.home.glob("runs/*")
    )


def test_ctrl_c_while_the_image_is_pulled(desk, engine, base_images):
    image = base_images.pulled
    for known in engine.images(name=image.split("@")[0]):
        engine.remove_image(known["Id"], force=True)
    with stuck_registry(image.split("/")[0]) as address:
        desk.image = image.replace(image.split("/")[0], address)
        desk.jobs(smoke={"run": "echo hi"})
        process = desk.start("smoke")
        read_until(process, "· preparing: pulling image")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 130
    assert "🚫 cancelled" in out
    assert desk.containers() == []


@contextlib.contextmanager
def stuck_registry(address: str) -> Iterator[str]:
    """What the registry says, but at most a MiB of any layer: manifests come through, large layers never end."""
    host, _, port = address.partition(":")
    open_now: list[socket.socket] = []

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((host, int(port))) as registry:
                open_now.extend([registry, self.request])
                up = threading.Thread(target=_copy, args=(self.request, registry, sys.maxsize))
                up.start()
                _copy(registry, self.request, 1 << 20)
                up.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Forward) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        for one in open_now:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _copy(source: socket.socket, target: socket.socket, limit: int) -> None:
    with contextlib.suppress(OSError):
        while limit > 0 and (piece := source.recv(min(limit, 65536))):
            target.sendall(piece)
            limit -= len(piece)


def test_secrets_come_from_a_file_and_show_as_stars(desk):
    """Both in the terminal and in what is kept of the run; the file itself is not there."""
    value = "canary /value-91"
    say = "import base64, os, sys; v = os.environ['APP_KEY']; print(len(v), v, base64.b64encode(v.encode()).decode())"
    run = f'ls -a; env | grep -c OTHER; python3 -c "{say}"; echo "$APP_KEY" >&2'
    desk.jobs(smoke={"run": run, "secrets": ["APP_KEY"]})
    (desk.checkout / ".env").write_text(f"APP_KEY='{value}'\nOTHER=not-wanted-here\n")
    code, out, err = desk.run("smoke")
    assert code == 0, err
    assert "1 name of the file is ignored" in out + err
    assert f"16 {'*' * 16} {'*' * 22}" in out
    assert ".env" not in out.split()
    kept = [file for file in desk.home.rglob("*") if file.is_file()]
    assert any(file.suffix == ".db" and file.stat().st_size for file in kept)
    for shown in (out, err, *(file.read_bytes().decode("latin-1") for file in kept)):
        assert "canary" not in shown
        assert "Y2FuYXJ5" not in shown
        assert "not-wanted-here" not in shown
    other = desk.checkout / "other.env"
    other.write_text("APP_KEY=another-value\n")
    code, out, err = desk.run("smoke", "--env-file", str(other))
    assert (code, "13 *************" in out) == (0, True), out + err
    assert "other.env" not in out.split()


def test_a_registry_that_is_down_is_tried_again_until_ctrl_c(desk):
    name = f"127.0.0.1:{free_port()}/gpurun-test/python"
    desk.image = f"{name}@sha256:{'0' * 64}"
    desk.jobs(smoke={"run": "echo hi"})
    process = desk.start("smoke")
    why = f"The registry of {name} does not answer (127.0.0.1: Connection refused)."
    read_until(process, f"· pinning: the image; trying again: {why}")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 130
    assert time.monotonic() - began < 5
    assert "🚫 cancelled" in out
