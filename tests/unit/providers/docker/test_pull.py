from __future__ import annotations

import pytest

from gpurun.domain.errors import ProviderRefused, ProviderUnavailable
from gpurun.domain.offer import Preparation
from gpurun.providers.docker.pull import Progress, _error_in, pull_refusal

# As Engine 20.10 sends them for an image of two layers, one of which it has.
EVENTS = [
    {"status": "Pulling from team/py", "id": "sha256:aa"},
    {"status": "Already exists", "progressDetail": {}, "id": "base"},
    {"status": "Pulling fs layer", "progressDetail": {}, "id": "one"},
    {"status": "Pulling fs layer", "progressDetail": {}, "id": "two"},
    {"status": "Downloading", "progressDetail": {"current": 10, "total": 100}, "id": "one"},
    {"status": "Downloading", "progressDetail": {"current": 100, "total": 300}, "id": "two"},
]
DONE = [
    {"status": "Download complete", "progressDetail": {}, "id": "one"},
    {"status": "Download complete", "progressDetail": {}, "id": "two"},
]
UNPACK = [{"status": "Extracting", "progressDetail": {"current": 1, "total": 100}, "id": "one"}]
END = [{"status": "Digest: sha256:aa"}, {"status": "Status: Downloaded newer image"}]


@pytest.mark.parametrize(
    ("events", "message", "done"),
    [
        ([], "pulling image", 0),
        (EVENTS[:4], "pulling image", 0),
        (EVENTS, "pulling image 27 %", 110),
        (EVENTS + DONE, "pulling image 100 %", 400),
        (EVENTS + DONE + UNPACK + END, "unpacking image", 400),
    ],
)
def test_progress_is_bytes_of_the_layers_that_are_pulled(events, message, done):
    progress = Progress()
    for event in events:
        progress.take(event)
    total = 400 if done else 0
    assert progress.so_far() == Preparation(ready=False, message=message, done_bytes=done, total_bytes=total)


def test_an_error_in_the_middle_of_a_pull_is_seen():
    event = {"errorDetail": {"message": "unexpected EOF"}, "error": "unexpected EOF"}
    assert _error_in(event) == "unexpected EOF"
    assert all(_error_in(one) == "" for one in EVENTS + DONE + UNPACK + END)


@pytest.mark.parametrize(
    ("said", "error", "kind"),
    [
        ("manifest for x@sha256:0 not found: manifest unknown: manifest unknown", ProviderRefused, "invalid"),
        ("no matching manifest for linux/amd64 in the manifest list entries", ProviderRefused, "invalid"),
        ("Get https://r/v2/: unauthorized: authentication required", ProviderRefused, "auth"),
        ("pull access denied for x, repository does not exist or may require 'docker login'", ProviderRefused, "auth"),
        ("Get http://r/v2/: no basic auth credentials", ProviderRefused, "auth"),
        ("toomanyrequests: You have reached your pull rate limit", ProviderUnavailable, None),
        ("Get https://r/v2/: dial tcp 127.0.0.1:1: connect: connection refused", ProviderUnavailable, None),
        ("unexpected EOF", ProviderUnavailable, None),
    ],
)
def test_what_a_registry_said_through_the_engine_tells_whether_to_try_again(said, error, kind):
    found = pull_refusal(said, "x@sha256:0")
    assert type(found) is error
    assert getattr(found, "kind", None) == kind
    assert "x@sha256:0" in str(found)
