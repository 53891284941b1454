"""A container registry and small base images on this machine, for tests, demo and bench. No pytest in here.

Everything lives under `.cache/` and is made once: the registry's storage, its port (digests do not depend on it, names
do) and the digests of the images. A second user on the same machine shares the running registry; the last one ends it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import io
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docker.api.client import APIClient

CACHE = Path(__file__).resolve().parent.parent / ".cache"
START_TIMEOUT_S = 10.0
_MANIFESTS = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {storage}}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
_AUTH = "auth: {{htpasswd: {{realm: gpurun, path: {htpasswd}}}}}\n"


class Missing(Exception):
    """A program or service that this machine lacks; the message says how to get it."""


def engine() -> APIClient:
    """A connection to the Docker Engine of this machine.

    Raises: Missing.
    """
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(version="auto", timeout=60)
        client.ping()
    except DockerException as exc:
        raise Missing(
            "no Docker Engine answers: `make setup` as root installs and starts one on Debian and Ubuntu; "
            "elsewhere see docs.docker.com/engine/install"
        ) from exc
    return client.api


class Registry:
    """Debian's `docker-registry` on a loopback port. Start and stop are for its owner; see `shared_registry`.

    It is nobody's child, because it may outlive whoever started it: the process id in `pid_file` is all that counts.
    """

    def __init__(self, storage: Path, port: int, *, htpasswd: Path | None = None) -> None:
        self.address = f"127.0.0.1:{port}"
        self.pid_file = storage / "pid"
        self._port = port
        self._storage = storage
        self._htpasswd = htpasswd

    def start(self) -> None:
        """Answers when this returns.

        Raises: Missing.
        """
        self._storage.mkdir(parents=True, exist_ok=True)
        config = self._storage / f"registry-{self._port}.yml"
        text = _CONFIG.format(storage=json.dumps(str(self._storage)), port=self._port)
        if self._htpasswd is not None:
            text += _AUTH.format(htpasswd=json.dumps(str(self._htpasswd)))
        config.write_text(text)
        log = self._storage / "registry.log"
        detached = 'exec setsid "$0" serve "$1" >>"$2" 2>&1 </dev/null & echo $!'
        self.pid_file.write_text(
            _run("sh", "-c", detached, _program("docker-registry", "registry"), str(config), str(log))
        )
        if not answers(self._port, wait_s=START_TIMEOUT_S):
            self.stop()
            raise Missing(f"the registry did not start; see {log}")

    def is_running(self) -> bool:
        """The process that the file names is still this registry."""
        try:
            command = Path(f"/proc/{int(self.pid_file.read_text())}/cmdline").read_bytes()
        except (OSError, ValueError):
            return False
        return f"registry-{self._port}.yml".encode() in command and str(self._storage).encode() in command

    def stop(self) -> None:
        """Gone when this returns, and so its port is free. Silent when it is not running."""
        pause = threading.Event()
        if self.is_running():
            os.kill(int(self.pid_file.read_text()), signal.SIGTERM)
        for _ in range(100):
            if not self.is_running():
                break
            pause.wait(0.05)
        self.pid_file.unlink(missing_ok=True)

    def has(self, repository: str, digest: str) -> bool:
        """Whether the manifest is stored."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("HEAD", f"/v2/{repository}/manifests/{digest}", headers={"Accept": _MANIFESTS})
            return connection.getresponse().status == 200
        finally:
            connection.close()


@contextlib.contextmanager
def shared_registry(cache: Path = CACHE) -> Iterator[Registry]:
    """The registry of this checkout. Whoever comes first starts it, whoever leaves last ends it.

    Users hold a shared lock on one file; a user that dies lets go of it. Raises: Missing.
    """
    home = cache / "registry"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "users.lock").open("w") as users:
        with _locked(home / "start.lock"):
            fcntl.flock(users, fcntl.LOCK_SH)
            registry = _running_or_started(home)
        try:
            yield registry
        finally:
            with _locked(home / "start.lock"):
                if _is_last(users):
                    registry.stop()


def _running_or_started(home: Path) -> Registry:
    port_file = home / "port"
    port = int(port_file.read_text()) if port_file.exists() else 0
    running = Registry(home, port)
    if port and running.is_running() and answers(port, wait_s=START_TIMEOUT_S):
        return running
    if not port or not _is_free(port):
        port = free_port()
    registry = Registry(home, port)
    registry.start()
    port_file.write_text(str(port))
    return registry


def _is_last(users: io.TextIOBase) -> bool:
    try:
        fcntl.flock(users.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Images:
    """Images in the registry, by digest; made when they are not there yet. Needs `mmdebstrap` for the first one."""

    def __init__(self, api: APIClient, registry: Registry, cache: Path = CACHE) -> None:
        self._api = api
        self._registry = registry
        self._home = cache / "images"
        self._home.mkdir(parents=True, exist_ok=True)

    def python(self) -> str:
        """Debian or Ubuntu as on this machine, with the whole standard library of `python3`; about 150 MB."""
        return self._made("python", f"mmdebstrap 1 {_suite()}", self._bootstrap)

    def busybox(self) -> str:
        """A static busybox and its links, nothing else: a shell without Python."""
        return self._made("busybox", "1", self._import_busybox)

    def derived(self, name: str, dockerfile: str, files: Mapping[str, bytes] | None = None) -> str:
        """`FROM` the Python image. Its lines are built without a network, `files` are in the context."""
        base = self.python()
        recipe = f"{base.split('@')[1]}\n{dockerfile}\n{_digests(files or {})}"
        return self._made(name, recipe, lambda tag: self._build(tag, f"FROM {base}\n{dockerfile}", files or {}))

    def _made(self, name: str, recipe: str, make: Any) -> str:
        repository = f"gpurun-test/{name}"
        known = self._home / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
        with _locked(self._home / f"{name}.lock"):
            digest = known.read_text() if known.exists() else ""
            if not digest or not self._registry.has(repository, digest):
                tag = f"{self._registry.address}/{repository}"
                make(tag)
                digest = self._push(tag)
                known.write_text(digest)
        return f"{self._registry.address}/{repository}@{digest}"

    def _bootstrap(self, tag: str) -> None:
        with tempfile.TemporaryDirectory(prefix="gpurun-image-") as folder:
            tar = Path(folder) / "root.tar"
            _run(
                _program("mmdebstrap"),
                "--quiet",
                "--variant=minbase",
                "--include=python3",
                "--dpkgopt=path-exclude=/usr/share/doc/*",
                "--dpkgopt=path-exclude=/usr/share/man/*",
                "--dpkgopt=path-exclude=/usr/share/locale/*",
                _suite(),
                str(tar),
            )
            _checked(self._api.import_image_from_file(str(tar), repository=tag, tag="latest"))

    def _import_busybox(self, tag: str) -> None:
        _checked(self._api.import_image_from_data(busybox_tar(), repository=tag, tag="latest"))

    def _build(self, tag: str, dockerfile: str, files: Mapping[str, bytes]) -> None:
        context = io.BytesIO(tar_of({"Dockerfile": dockerfile.encode(), **files}))
        events = self._api.build(
            fileobj=context,
            custom_context=True,
            tag=f"{tag}:latest",
            decode=True,
            rm=True,
            forcerm=True,
            network_mode="none",
        )
        for event in events:
            _raise_if_error(event)

    def _push(self, tag: str) -> str:
        digest = ""
        for event in self._api.push(tag, tag="latest", stream=True, decode=True, auth_config={}):
            _raise_if_error(event)
            digest = event.get("aux", {}).get("Digest", digest)
        return digest


def _digests(files: Mapping[str, bytes]) -> list[tuple[str, str]]:
    return [(name, hashlib.sha256(data).hexdigest()) for name, data in sorted(files.items())]


def busybox_tar(*, shell: str = "bin/sh") -> bytes:
    """Busybox as `/bin/busybox` with a link per applet.

    Raises: Missing.
    """
    program = Path(_program("busybox"))
    applets = _run(str(program), "--list").split()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder in ("bin", "tmp", "etc", "dev", "proc", "sys"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        _add(tar, "bin/busybox", program.read_bytes(), 0o755)
        for applet in sorted({*applets, shell.removeprefix("bin/")} - {"busybox"}):
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return out.getvalue()


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """A plain tar with those files, readable by all and executable."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in sorted(files.items()):
            _add(tar, name, data, 0o755)
    return out.getvalue()


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def _suite() -> str:
    """The release of this machine, `bookworm`."""
    code_name = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    if not code_name:
        raise Missing("this machine does not name its Debian or Ubuntu release, which the base image is made from")
    return code_name


def _program(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    raise Missing(f"{names[0]} is not installed: `make setup` as root installs it on Debian and Ubuntu")


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise Missing(f"{argv[0]} failed with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _checked(answer: str) -> None:
    for line in answer.splitlines():
        _raise_if_error(json.loads(line))


def _raise_if_error(event: Mapping[str, Any]) -> None:
    if "error" in event:
        raise RuntimeError(f"Docker: {event['error']}")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def answers(port: int, *, wait_s: float) -> bool:
    """Whether something listens within `wait_s`."""
    pause, tries = threading.Event(), int(wait_s / 0.05)
    for _ in range(tries):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            pause.wait(0.05)
    return False


def main() -> int:
    """Makes the base images, so that no test has to wait for them. 1 when something is missing, with its sentence."""
    try:
        api = engine()
        with shared_registry() as registry:
            images = Images(api, registry)
            print(images.python())
            print(images.busybox())
        api.close()
    except Missing as exc:
        print(f"setup: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
