from __future__ import annotations

from packaging.requirements import Requirement

from ops.check_lock import find_problems, read_lock

LOCK = """\
certifi==2026.1.1 \\
    --hash=sha256:aa
    # via requests
colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash=sha256:bb
librt==0.1 ; platform_python_implementation != 'PyPy' \\
    --hash=sha256:cc
"""


def test_a_lock_is_read_for_this_platform():
    assert read_lock(LOCK) == {"certifi": "2026.1.1", "librt": "0.1"}


def problems(*direct: str, **changes: str | None) -> list[str]:
    from importlib.metadata import version

    locked = {name: version(name) for name in ("iniconfig", "pluggy")} | changes
    found = find_problems([Requirement(one) for one in direct], {k: v for k, v in locked.items() if v})
    return list(found)


def test_what_is_asked_for_locked_and_installed_is_no_problem():
    assert problems("iniconfig", "pluggy>=1") == []


def test_each_difference_is_a_sentence():
    assert problems("iniconfig", "pluggy", "absent>=2") == ["pyproject.toml needs absent>=2, which is not in the lock"]
    assert "pyproject.toml needs pluggy>=99" in problems("iniconfig", "pluggy>=99")[0]
    assert problems("pluggy") == ["iniconfig is in the lock and nothing needs it"]
    assert "pluggy 1" in problems("iniconfig", "pluggy", pluggy="0.1")[0]


def test_what_a_locked_package_needs_must_be_locked_too():
    found = problems("iniconfig", "pluggy", "httpx", httpx=__import__("httpx").__version__)
    assert any(one.startswith("httpx needs anyio") for one in found)
    assert not any("socksio" in one for one in found)  # of an extra that nobody asked for
