"""Which files `setup_inputs` mean, in a real repository."""

from __future__ import annotations

import subprocess

import pytest

from gpurun.adapters.git import inputs
from gpurun.adapters.git.inputs import find_inputs
from gpurun.adapters.git.process import run_git
from gpurun.domain.errors import NoSuchInput, PinNotFound
from gpurun.domain.ids import CommitSha


@pytest.fixture
def repo(tmp_path):
    files = {
        "pkg/requirements.txt": "numpy",
        "pkg/src/a.c": "c",
        "pkg/src/deep/b.c": "c",
        "top.txt": "t",
        "pkg/run.sh": "x",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "pkg/run.sh").chmod(0o755)
    (tmp_path / "pkg/link").symlink_to("../top.txt")
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True)
    sha = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    async def git(*argv: str, given: bytes = b""):
        return await run_git("-C", str(tmp_path), *argv, environment=None, timeout_s=30, given=given)

    async def find(*patterns: str, folder: str = "pkg"):
        return [(one.path, one.mode) for one in await find_inputs(git, CommitSha(sha.strip()), folder, patterns)]

    return find


async def test_paths_and_patterns_below_the_folder(repo):
    assert await repo("requirements.txt") == [("pkg/requirements.txt", "100644")]
    assert await repo("src/**", "src/a.c") == [("pkg/src/a.c", "100644"), ("pkg/src/deep/b.c", "100644")]
    assert await repo("*.sh") == [("pkg/run.sh", "100755")]
    assert await repo("top.txt", folder="") == [("top.txt", "100644")]


async def test_a_pattern_that_means_nothing_is_named(repo):
    with pytest.raises(NoSuchInput, match=r"top\.txt.* means no file") as none:
        await repo("requirements.txt", "top.txt")
    assert none.value.pattern == "top.txt"


async def test_too_many_are_refused(repo, monkeypatch):
    monkeypatch.setattr(inputs, "MAX_INPUTS", 2)
    with pytest.raises(PinNotFound, match="`setup_inputs` mean more than the 2 files of the commit there may be"):
        await repo("src/**", "*.sh")


async def test_each_pattern_that_means_something_counts(repo):
    """Also where an earlier one meant the same file."""
    assert await repo("src/**", "src/a.c", "**/b.c", "src/deep") == [
        ("pkg/src/a.c", "100644"),
        ("pkg/src/deep/b.c", "100644"),
    ]
    with pytest.raises(NoSuchInput, match=r"src/z\.c.* means no file"):
        await repo("src/**", "src/z.c")


@pytest.mark.parametrize("pattern", ["link", "**", "l*"])
async def test_a_link_is_refused_for_what_it_leads_to_could_change_unseen(repo, pattern):
    with pytest.raises(NoSuchInput, match=r"means the symbolic link 'pkg/link'") as refused:
        await repo("requirements.txt", pattern)
    assert refused.value.pattern == pattern


async def test_patterns_that_would_take_minutes_are_refused(repo, monkeypatch):
    monkeypatch.setattr(inputs, "MAX_COMPARED", 2000)
    assert len(await repo("src/**")) == 2
    with pytest.raises(PinNotFound, match="too many patterns for the files of this commit"):
        await repo(*(f"**/*{number}*" for number in range(100)))


async def test_what_no_pattern_may_mean_is_not_compared_with_any(repo, monkeypatch):
    """Each folder is looked at once, and with what is left of the patterns there."""
    monkeypatch.setattr(inputs, "MAX_COMPARED", 1240)
    assert await repo("src/a.c", "src/deep/b.c", "requirements.txt") == [
        ("pkg/requirements.txt", "100644"),
        ("pkg/src/a.c", "100644"),
        ("pkg/src/deep/b.c", "100644"),
    ]
