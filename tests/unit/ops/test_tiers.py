from __future__ import annotations

import pytest

from ops.tiers import tier_of


@pytest.mark.parametrize(
    ("nodeid", "tier"),
    [
        ("tests/unit/run/test_x.py::test_y[a/b]", "unit"),
        ("tests/docker/test_isolation.py::TestX::test_y", "docker"),
        ("tests/test_architecture.py::test_y", "house"),
    ],
)
def test_the_folder_is_the_tier(nodeid, tier):
    assert tier_of(nodeid) == tier
