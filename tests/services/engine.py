"""Docker Engine, registry and base images for tests."""

from __future__ import annotations

import os

import pytest

from ops.local_services import Images, Missing, busybox_tar, shared_registry
from ops.local_services import engine as connect

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
    def user_1000(self) -> str:
        """Python as uid 1000 without a passwd entry, HOME not writable, an environment and a working folder."""
        return self._images.derived("user", "ENV COLOUR=green\nWORKDIR /srv\nUSER 1000:1000")

    @property
    def busybox_shell(self) -> str:
        """Python with busybox as `/bin/sh`."""
        return self._images.derived(
            "ash", "ADD box.tar /box\nRUN ln -sf /box/bin/busybox /bin/sh", {"box.tar": busybox_tar()}
        )

    @property
    def python_minimal(self) -> str:
        """The part of the standard library that Debian's `python3-minimal` has: no json, http, shutil."""
        return self._images.derived("minimal", MINIMAL)
