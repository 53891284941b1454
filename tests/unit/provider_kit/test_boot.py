"""The boot script in every shell that images have, and what its words mean."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from gpurun.provider_kit.boot import MAX_SCRIPT_CHARS, boot_marker, boot_script

SHELLS = [
    pytest.param([name, *more], id=name, marks=pytest.mark.skipif(not shutil.which(name), reason=f"there is no {name}"))
    for name, *more in (["dash"], ["busybox", "sh"])
]


@pytest.fixture(params=SHELLS)
def boot(request, tmp_path):
    """Runs the script with a stand-in for the agent."""
    started: list[subprocess.Popen[bytes]] = []
    (tmp_path / "tmp").mkdir()
    (tmp_path / "boot.sh").write_text(boot_script())

    def boot(agent: str = "def main(): print('agent ran')", **env: str) -> subprocess.Popen[bytes]:
        path = tmp_path / "agent.pyz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("gpurun_agent/__init__.py", "")
            archive.writestr("gpurun_agent/main.py", agent)
        full = {
            "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
            "HOME": str(tmp_path),
            "GPURUN_ROOT": str(tmp_path),
            "GPURUN_ATTEMPT": "at1",
            "GPURUN_AGENT": str(path),
            "GPURUN_SHA256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "GPURUN_DEADLINE": str(int(time.time()) + 600),
            "GPURUN_GRACE": "1",
            "GPURUN_PAUSE": "0",
        } | env
        process = subprocess.Popen(
            [shutil.which(request.param[0]) or "", *request.param[1:], str(tmp_path / "boot.sh")],
            env=full,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield boot
    for process in started:
        # The script's own session: nothing else is in it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def ended(process) -> tuple[int, bytes]:
    out, _ = process.communicate(timeout=20)
    return process.returncode, out


def test_it_fits_and_is_plain_ascii():
    assert len(boot_script()) <= MAX_SCRIPT_CHARS
    assert boot_script().isascii()


def test_the_agent_runs_and_its_exit_code_is_told(boot):
    assert ended(boot()) == (0, b"agent ran\n::gpurun-boot 1 at1 exit 0\n")


def test_an_agent_that_fails_is_told(boot):
    assert ended(boot("import os\ndef main(): os._exit(75)")) == (75, b"::gpurun-boot 1 at1 exit 75\n")


def test_the_image_environment_reaches_the_agent_unchanged(boot):
    names = "kid", "sig", "py", "n", "d", "rc", "p", "f", "once", "dog", "w", "T", "A", "D", "S", "U"
    agent = f"import os\ndef main(): print([os.environ[n] for n in {names}])"
    code, out = ended(boot(agent, **dict.fromkeys(names, "mine")))
    assert code == 0
    assert out.splitlines()[0].decode() == str(["mine"] * len(names))


def test_a_second_start_is_refused(boot):
    assert ended(boot())[0] == 0
    assert ended(boot()) == (79, b"::gpurun-boot 1 at1 error ran-before\n")


def test_an_image_without_python(boot, tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("mkdir", "date", "sleep", "sha256sum"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "/missing")
    code, out = ended(boot(PATH=str(tmp_path / "bin")))
    if os.access("/usr/local/bin/python3", os.X_OK) or os.access("/opt/conda/bin/python", os.X_OK):
        pytest.skip("this machine has a Python in one of the places where images have it")
    assert (code, out) == (78, b"::gpurun-boot 1 at1 error no-python3\n")


def test_a_python_that_is_too_old_is_passed_over(boot, tmp_path):
    (tmp_path / "bin").mkdir()
    old = tmp_path / "bin" / "python3"
    old.write_text("#!/bin/sh\nexit 2\n")
    old.chmod(0o755)
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    assert ended(boot(PATH=f"{tmp_path}/bin:{os.defpath}"))[1] == b"agent ran\n::gpurun-boot 1 at1 exit 0\n"


def test_only_old_pythons(boot, tmp_path):
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\nexit 78\n")
    old.chmod(0o755)
    (tmp_path / "bin").mkdir()
    for name in ("python3", "python"):
        (tmp_path / "bin" / name).symlink_to(old)
    if os.access("/usr/local/bin/python3", os.X_OK) or os.access("/opt/conda/bin/python", os.X_OK):
        pytest.skip("this machine has a Python in one of the places where images have it")
    assert ended(boot(PATH=f"{tmp_path}/bin:{os.defpath}")) == (78, b"::gpurun-boot 1 at1 error old-python\n")


def test_a_wrong_agent_never_runs(boot):
    assert ended(boot(GPURUN_SHA256="0" * 64)) == (77, b"::gpurun-boot 1 at1 error agent-hash\n")


def test_no_agent(boot):
    assert ended(boot(GPURUN_AGENT="/missing")) == (77, b"::gpurun-boot 1 at1 error agent-fetch\n")


@pytest.fixture
def server(tmp_path):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("absent", ["", "curl", "curl wget"])
def test_the_agent_is_fetched_with_what_there_is(boot, server, tmp_path, absent):
    (tmp_path / "bin").mkdir()
    for name in {"mkdir", "date", "sleep", "sha256sum", "curl", "wget", "rm"} - set(absent.split()):
        if found := shutil.which(name):
            (tmp_path / "bin" / name).symlink_to(found)
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    process = boot(GPURUN_AGENT="", GPURUN_URL=f"{server}/agent.pyz", PATH=f"{tmp_path}/bin")
    assert ended(process)[1] == b"agent ran\n::gpurun-boot 1 at1 exit 0\n"


def test_a_fetched_agent_is_checked_and_tried_again(boot, server):
    process = boot(GPURUN_AGENT="", GPURUN_URL=f"{server}/agent.pyz", GPURUN_SHA256="0" * 64)
    assert ended(process) == (77, b"::gpurun-boot 1 at1 error agent-hash\n")
    process = boot(GPURUN_ATTEMPT="at2", GPURUN_AGENT="", GPURUN_URL=f"{server}/missing")
    assert ended(process) == (77, b"::gpurun-boot 1 at2 error agent-fetch\n")


SLEEPING = "import time\ndef main():\n    print('ready', flush=True)\n    time.sleep(60)"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPING


def test_the_deadline_ends_the_agent(boot):
    process = boot(SLEEPING, GPURUN_DEADLINE=str(int(time.time()) + 3))
    assert ended(process) == (143, b"ready\n::gpurun-boot 1 at1 deadline\n::gpurun-boot 1 at1 exit 143\n")


def test_the_time_to_live_ends_it_when_the_clock_is_wrong(boot):
    process = boot(SLEEPING, GPURUN_TTL="1")
    assert ended(process) == (143, b"ready\n::gpurun-boot 1 at1 deadline\n::gpurun-boot 1 at1 exit 143\n")


def test_an_agent_that_ignores_the_deadline(boot):
    process = boot(STUBBORN, GPURUN_TTL="1")
    process.wait(timeout=10)
    assert process.returncode == -signal.SIGKILL


def test_term_goes_to_the_agent(boot):
    process = boot(SLEEPING)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (143, b"::gpurun-boot 1 at1 exit 143\n")


@pytest.mark.parametrize(
    ("log", "words", "sentence"),
    [
        (b"::gpurun-boot 1 at1 error no-python3\n", ("error", "no-python3"), "There is no python3 in the image"),
        (b"x\n::gpurun-boot 1 at1 exit 137\n", ("exit", "137"), "killed"),
        (b"::gpurun-boot 1 at1 deadline\n::gpurun-boot 1 at1 exit 143\n", ("deadline",), "reached its deadline"),
        (b"::gpurun-boot 1 at1 error missing-module ssl\n::gpurun-boot 1 at1 exit 1\n", None, "no module ssl"),
        (b"::gpurun-boot 1 at1 note no-writable-folder\n::gpurun-boot 1 at1 exit 0\n", ("exit", "0"), "as it should"),
        (b"::gpurun-boot 1 at1 error new-word x\n", ("error", "new-word", "x"), "new-word x"),
    ],
)
def test_markers(log, words, sentence):
    marker = boot_marker(log, "at1")
    assert marker is not None
    assert words in (None, marker.words)
    assert sentence in marker.sentence


@pytest.mark.parametrize("log", [b"", b"hello\n", b"::gpurun-boot 1 at2 exit 0\n", b" ::gpurun-boot 1 at1 exit 0\n"])
def test_no_marker(log):
    assert boot_marker(log, "at1") is None
