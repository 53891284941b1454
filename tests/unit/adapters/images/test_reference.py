from __future__ import annotations

import pytest

from gpurun.adapters.images.reference import HUB_LOGINS, Place, is_loopback, place_of

HUB = "https://registry-1.docker.io"


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ("python", Place(HUB, "library/python", HUB_LOGINS)),
        ("python:3.11-slim", Place(HUB, "library/python", HUB_LOGINS)),
        ("pytorch/pytorch", Place(HUB, "pytorch/pytorch", HUB_LOGINS)),
        ("docker.io/python", Place(HUB, "library/python", HUB_LOGINS)),
        ("docker.io/library/python:3", Place(HUB, "library/python", HUB_LOGINS)),
        ("index.docker.io/org/app", Place(HUB, "org/app", HUB_LOGINS)),
        ("ghcr.io/org/app:v1", Place("https://ghcr.io", "org/app", ("ghcr.io",))),
        ("nvcr.io/nvidia/deep/er", Place("https://nvcr.io", "nvidia/deep/er", ("nvcr.io",))),
        ("registry:5000/app", Place("https://registry:5000", "app", ("registry:5000",))),
        ("localhost/app", Place("http://localhost", "app", ("localhost",))),
        ("localhost:5000/a/b:t", Place("http://localhost:5000", "a/b", ("localhost:5000",))),
        ("127.0.0.1:5000/team/py", Place("http://127.0.0.1:5000", "team/py", ("127.0.0.1:5000",))),
    ],
)
def test_where_a_name_points(written, place):
    assert place_of(written) == place


@pytest.mark.parametrize("address", ["localhost", "localhost:5000", "127.0.0.1", "127.9.9.9:1", "[::1]:5000"])
def test_loopback(address):
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["localhost.example.org", "127.0.0.1.example.org", "10.0.0.1:5000", "128.0.0.1"])
def test_not_loopback(address):
    assert not is_loopback(address)
