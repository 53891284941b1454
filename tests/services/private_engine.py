"""A Docker Engine of the test's own, which may be stopped, killed and frozen. Needs root and a dockerd."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ops.local_services import Missing
from tests.services.engine import missing

if TYPE_CHECKING:
    from docker.api.client import APIClient

WITHIN_S = 30.0
_PATH = f"{os.getenv('PATH', '')}:/usr/sbin:/sbin"


class PrivateEngine:
    """Its own folders, socket and bridge: without one of its own, or with none, it would take away the other's docker0.
    Without a network namespace of its own it leaves the packet filter alone. Its folder is short, because the path of a
    socket has 107 characters. It lies in memory, because removing an image of 220 MB from a busy disk takes 20 s, and
    is as large as the bot asks for.
    """

    def __init__(self, network: str = "", *, dns: str = "") -> None:
        """`network`: a network namespace of the test's own, in which it may do with the packet filter what it likes.
        `dns`: the name server of its containers.
        """
        if os.geteuid() != 0 or shutil.which("dockerd", path=_PATH) is None:
            raise Missing("an engine of the test's own needs root and dockerd; `make setup` as root installs it")
        self._dns = dns
        # not `ip netns exec`, which hides the control groups
        self._inside = ["nsenter", f"--net=/run/netns/{network}"] if network else []
        self.folder = Path(tempfile.mkdtemp(prefix="gpurun-engine-"))
        self.host = f"unix://{self.folder}/docker.sock"
        self._bridge = f"gpurun{os.getpid() % 10**6}"
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[APIClient] = []

    def start(self) -> None:
        """It answers when this returns."""
        if self._process is None:
            _do(*self._inside, "ip", "link", "add", self._bridge, "type", "bridge")
            _do("mount", "-t", "tmpfs", "-o", "size=8g,mode=0700", "gpurun-engine", str(self.folder))
        options = {
            "--data-root": f"{self.folder}/root",
            "--exec-root": f"{self.folder}/exec",
            "--pidfile": f"{self.folder}/pid",
            "--host": self.host,
            "--bridge": self._bridge,
        }
        if self._dns:
            options["--dns"] = self._dns
        if not self._inside:
            options |= dict.fromkeys(("--iptables", "--ip-masq", "--ip-forward", "--userland-proxy"), "false")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._inside, "dockerd", *(f"{name}={value}" for name, value in options.items())],
                env={"PATH": _PATH},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        _until(self._answers, f"an engine; see {self.folder}/log")

    def stop(self) -> None:
        """SIGTERM: it ends its containers first."""
        self._signal(signal.SIGTERM)
        self._wait()

    def kill(self) -> None:
        """SIGKILL: its containers go on. Its containerd dies with it, and the next start must not take it for alive."""
        containerd = int((self.folder / "exec/containerd/containerd.pid").read_text())
        self._signal(signal.SIGKILL)
        self._wait()
        _until(lambda: not Path(f"/proc/{containerd}").exists(), "the end of containerd")
        (self.folder / "pid").unlink(missing_ok=True)

    def freeze(self) -> None:
        """Takes connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """As if nothing had been."""
        self._signal(signal.SIGCONT)

    def client(self) -> APIClient:
        """Closed with the engine."""
        import docker

        self._clients.append(docker.APIClient(self.host, version="auto", timeout=60))
        return self._clients[-1]

    def close(self) -> None:
        """Nothing of it is left."""
        for client in self._clients:
            client.close()
        if self._process is not None:
            if self._process.poll() is None:
                self.thaw()
                self._remove_what_it_made()
                self.kill()
            _do(*self._inside, "ip", "link", "delete", self._bridge)
        for left in self._processes():
            os.kill(left, signal.SIGKILL)
        _until(lambda: not self._processes(), "the end of containerd and the shims")
        for mount in reversed(self._mounts()):
            _do("umount", "--lazy", mount)
        self.folder.rmdir()

    def _remove_what_it_made(self) -> None:
        """Bridges of networks outlive an engine that is killed, and the machine has some thirty addresses for them."""
        client = self.client()
        for one in client.containers(all=True):
            client.remove_container(one["Id"], force=True, v=True)
        for network in client.networks(filters={"type": "custom"}):
            client.remove_network(network["Id"])
        client.close()

    def _mounts(self) -> list[str]:
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return [mount for mount in mounts if f"{mount}/".startswith(f"{self.folder}/")]

    def _processes(self) -> list[int]:
        """That name our folder."""
        words = f"{self.folder}/".encode()
        return [int(process.name) for process in Path("/proc").glob("[0-9]*") if words in _command(process)]

    def _answers(self) -> bool:
        """Asked without the SDK, which leaves its socket open when nobody listens."""
        assert self._process is not None
        assert self._process.poll() is None, f"dockerd ended; see {self.folder}/log"
        with socket.socket(socket.AF_UNIX) as line, contextlib.suppress(OSError):
            line.settimeout(5)
            line.connect(self.host.removeprefix("unix://"))
            line.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in line.recv(100)
        return False

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait(WITHIN_S)


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def _do(*words: str) -> None:
    subprocess.run(words, check=True, timeout=WITHIN_S, env={"PATH": _PATH}, stdout=subprocess.DEVNULL)


def _until(look: Any, what: str) -> None:
    pause, began = threading.Event(), time.monotonic()
    while not look():
        assert time.monotonic() - began < WITHIN_S, f"waited {WITHIN_S:g} s for {what}"
        pause.wait(0.05)


@contextlib.contextmanager
def private_engine_running(network: str = "", *, dns: str = "") -> Iterator[PrivateEngine]:
    """One that answers, as long as the block runs. Skips where there can be none."""
    try:
        engine = PrivateEngine(network, dns=dns)
    except Missing as exc:
        missing(str(exc))
    try:
        engine.start()
        yield engine
    finally:
        engine.close()
