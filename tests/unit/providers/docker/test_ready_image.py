from __future__ import annotations

import io
import tarfile

import pytest

from gpurun.domain.ids import ImageRef
from gpurun.providers.docker.ready_image import layer, name_on_engine, ready_name

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("python", "python"),
        ("python:3.11", "python"),
        ("127.0.0.1:5000/team/py", "127.0.0.1:5000/team/py"),
        ("127.0.0.1:5000/team/py:1", "127.0.0.1:5000/team/py"),
        ("ghcr.io/org/app:v1.2", "ghcr.io/org/app"),
    ],
)
def test_the_digest_alone_names_an_image(written, expected):
    assert name_on_engine(ImageRef(f"{written}@{DIGEST}")) == f"{expected}@{DIGEST}"


def test_the_layer_is_the_same_bytes_each_time_and_open_to_every_user():
    first, second = layer("echo hi\n", b"zip"), layer("echo hi\n", b"zip")
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        modes = {entry.name: oct(entry.mode) for entry in tar}
        assert tar.extractfile("gpurun/boot.sh").read() == b"echo hi\n"
        assert tar.extractfile("gpurun/agent.pyz").read() == b"zip"
    assert modes == {
        "gpurun": "0o755",
        "gpurun/s": "0o755",
        "gpurun/work": "0o1777",
        "gpurun/home": "0o1777",
        "gpurun/hub": "0o1777",
        "gpurun/tmp": "0o1777",
        "gpurun/layer": "0o1777",
        "gpurun/boot.sh": "0o755",
        "gpurun/agent.pyz": "0o644",
    }


def test_another_agent_boot_script_or_image_is_another_ready_image_and_another_attempt_is_not(launches):
    image = f"python@{DIGEST}"
    name = ready_name(launches(image, "true"))
    assert ready_name(launches(image, "true")) == name
    others = {
        ready_name(launches(image, "false")),
        ready_name(launches(image, "true", agent_sha256="0" * 64)),
        ready_name(launches(f"python@sha256:{'cd' * 32}", "true")),
    }
    assert len(others | {name}) == 4
