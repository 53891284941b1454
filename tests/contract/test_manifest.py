"""`app.yml` asks for what the adapter uses, no more and no less."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpurun.adapters.github import EVENTS, PERMISSIONS
from gpurun.adapters.github.permissions import SOURCE_PERMISSIONS

LEVELS = ["read", "write"]


@pytest.fixture(scope="module")
def manifest():
    return yaml.safe_load((Path(__file__).parents[2] / "app.yml").read_text())


def test_the_manifest_asks_for_what_the_adapter_uses(manifest):
    assert manifest["default_permissions"] == dict(PERMISSIONS)
    assert set(manifest["default_events"]) == EVENTS


def test_no_token_asks_for_more_than_was_granted(manifest):
    granted = manifest["default_permissions"]
    assert all(LEVELS.index(level) <= LEVELS.index(granted[name]) for name, level in SOURCE_PERMISSIONS.items())


def test_the_app_can_never_change_code():
    assert PERMISSIONS["contents"] == "read"
    assert not PERMISSIONS.keys() & {"workflows", "actions", "administration", "secrets", "members"}
