"""Docker Engine, registry and base images for tests."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ops.local_services import Images, Missing, busybox_tar, shared_registry, tar_of
from ops.local_services import engine as connect
from tests.docker.launching import Bench, Launches
from tests.fakes.clock import FakeChance, FakeClock

MINIMAL = """\
RUN dpkg -L libpython3-stdlib $(dpkg-query -W -f '${Package}\\n' 'libpython3.*-stdlib') \
    | while read -r f; do if [ -f "$f" ]; then rm -f "$f"; fi; done"""


def missing(sentence: str) -> None:
    """Skips with a sentence that says how to get it; with CI=true it fails instead."""
    if os.getenv("CI") == "true":
        pytest.fail(sentence, pytrace=False)
    pytest.skip(sentence)


@pytest.fixture(scope="session")
def engine():
    """A low-level docker client (`docker.APIClient`)."""
    try:
        api = connect()
    except Missing as exc:
        missing(str(exc))
    yield api
    api.close()


@pytest.fixture(scope="session")
def registry():
    """The shared local registry; `registry.address` is `127.0.0.1:<port>`."""
    try:
        with shared_registry() as running:
            yield running
    except Missing as exc:
        missing(str(exc))


@pytest.fixture(scope="session")
def base_images(engine, registry):
    """Images by digest, made on first use and kept under `.cache/`."""
    return BaseImages(Images(engine, registry))


class BaseImages:
    """What jobs and negative tests run in. Each is `127.0.0.1:<port>/gpurun-test/<name>@sha256:…`."""

    def __init__(self, images: Images) -> None:
        self._images = images

    @property
    def python(self) -> str:
        """Debian with Python's whole standard library, root, no entrypoint."""
        return self._images.python()

    @property
    def busybox(self) -> str:
        """A shell and no Python."""
        return self._images.busybox()

    @property
    def entrypoint(self) -> str:
        """Python, with an ENTRYPOINT and CMD that must never run."""
        return self._images.derived("entrypoint", 'ENTRYPOINT ["/bin/false"]\nCMD ["never"]')

    @property
    def entrypoint_python(self) -> str:
        """An interpreter as ENTRYPOINT, which would take `sh` for a script."""
        return self._images.derived("entrypoint-python", 'ENTRYPOINT ["python3"]')

    @property
    def entrypoint_forever(self) -> str:
        """An ENTRYPOINT that never ends and never starts its arguments."""
        return self._images.derived("entrypoint-forever", 'ENTRYPOINT ["sleep", "infinity"]\nCMD ["x"]')

    @property
    def odd(self) -> str:
        """A user by number, a WORKDIR that is removed again, a failing HEALTHCHECK, an ONBUILD, a VOLUME."""
        return self._images.derived(
            "odd",
            "WORKDIR /was/here\nRUN rm -rf /was\nHEALTHCHECK --interval=1s CMD false\nONBUILD RUN false\n"
            "VOLUME /data\nUSER 12345:54321",
        )

    @property
    def volume(self) -> str:
        """With an anonymous volume, `/data`."""
        return self._images.derived("volume", "VOLUME /data")

    @property
    def user_1000(self) -> str:
        """Python as uid 1000 without a passwd entry, HOME not writable, an environment and a working folder."""
        return self._images.derived("user", "ENV COLOUR=green\nWORKDIR /srv\nUSER 1000:1000")

    @property
    def of_others(self) -> str:
        """Python as root, with a file of root that has another group, as Debian's `/etc/shadow`."""
        return self._images.derived("of-others", "RUN echo root > /etc/shadow && chown 0:42 /etc/shadow")

    @property
    def hub_client(self) -> str:
        """`user_1000` with this environment's huggingface_hub on its path, and no HOME."""
        return self._images.derived(
            "hub-client",
            "ADD site.tar /site\nENV PYTHONPATH=/site HOME=\nUSER 1000:1000",
            {"site.tar": pure_python("huggingface_hub")},
        )

    @property
    def busybox_shell(self) -> str:
        """Python with busybox as `/bin/sh`."""
        return self._images.derived(
            "ash", "ADD box.tar /box\nRUN ln -sf /box/bin/busybox /bin/sh", {"box.tar": busybox_tar()}
        )

    @property
    def no_shell(self) -> str:
        """Python without `/bin/sh`."""
        return self._images.derived("no-shell", "RUN rm /bin/sh")

    @property
    def pulled(self) -> str:
        """With 8 MB that do not compress, for tests that remove it from the engine and pull it."""
        return self._images.derived("pulled", "ADD noise /noise", {"noise": random.Random(1).randbytes(8 << 20)})

    @property
    def python_minimal(self) -> str:
        """The part of the standard library that Debian's `python3-minimal` has: no json, http, shutil."""
        return self._images.derived("minimal", MINIMAL)


@pytest.fixture(scope="session")
def docker_network(engine):
    """The name of a network for tests, removed at the end."""
    name = f"gpurun-jobs-test-{os.getpid()}"
    _remove_old_networks(engine)
    yield name
    for network in engine.networks(names=[name]):  # and that of untrusted jobs, whose name begins so
        engine.remove_network(network["Id"])


def _remove_old_networks(engine):
    """Of tests that were killed: an engine has addresses for some thirty."""
    from docker.errors import APIError

    for network in engine.networks(filters={"name": "gpurun-jobs-test-"}):
        pid = network["Name"].removeprefix("gpurun-jobs-test-").partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(APIError):  # a container of it is left, or another test was quicker
                engine.remove_network(network["Id"])


@pytest.fixture
def nothing_left(engine, docker_network):
    """Fails when the test left a container in the tests' network behind, and removes it."""
    yield
    left = engine.containers(all=True, filters={"network": docker_network})
    for one in left:
        engine.remove_container(one["Id"], force=True, v=True)
    assert not left, [one["Names"] for one in left]


@pytest.fixture
async def docker_bench(engine, docker_network, nothing_left, launches):
    """A DockerProvider on the real engine."""
    from docker.errors import NotFound

    from gpurun.providers.docker import DockerConfig, DockerProvider
    from gpurun.providers.docker.ready_image import ready_name

    provider = DockerProvider(DockerConfig(network=docker_network))
    yield Bench(provider, engine)
    await provider.close()
    for launch in launches.made:
        with contextlib.suppress(NotFound):
            engine.remove_image(ready_name(launch))


@pytest.fixture
def launches(tmp_path):
    """Makes launches for `docker_bench`. Random, because container names outlive a test that was killed."""
    return Launches(tmp_path, FakeChance(FakeClock(), seed=secrets.randbits(32)))


def pure_python(distribution: str) -> bytes:
    """A tar of the Python files of an installed distribution and of all that it requires."""
    names, files = [distribution], {}
    for name in names:
        found = metadata.distribution(name)
        for path in found.files or ():
            if path.suffix == ".py" or path.parent.suffix == ".dist-info":
                files[str(path)] = found.locate_file(path)
        for needed in map(Requirement, found.requires or ()):
            if needed.name not in names and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
                names.append(needed.name)
    inside = {name: Path(str(path)).read_bytes() for name, path in sorted(files.items()) if not name.startswith("..")}
    return tar_of(inside)
