"""What tests of the flow stand on: `FakeGit` takes and refuses what real mirrors do."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gpurun.adapters.git import GitPast
from gpurun.domain.errors import PinNotFound, SourceUnavailable
from gpurun.domain.forge import Extra, GitSource
from gpurun.domain.ids import CommitSha, TreeSha
from gpurun.domain.source import Gitlink
from gpurun.ports.bytes import Git
from tests.fakes.parts import FakeGit
from tests.unit.adapters.git.test_mirrors import LFS, NOWHERE, POINTER, REPO, Origin

MODULE = CommitSha("2" * 40)
MODULES = b'[submodule "vendor"]\n\tpath = vendor\n\turl = https://other.test/x\n'


@dataclass
class Place:
    git: Git
    source: GitSource
    base: CommitSha
    head: CommitSha
    merge: CommitSha
    """Of the two above."""
    holed: CommitSha
    """With a submodule and a file of LFS."""
    trees: dict[CommitSha, TreeSha]


@pytest.fixture(params=["real", "fake"])
def place(request, tmp_path) -> Place:
    origin = Origin(tmp_path / "origin")
    trees = {}

    def commit() -> CommitSha:
        sha = CommitSha(origin.git("rev-parse", "HEAD"))
        trees[sha] = origin.tree()
        return sha

    origin.commit({"a": b"1"})
    origin.git("checkout", "-q", "-b", "side")
    origin.commit({"b": b"1"})
    head = commit()
    origin.git("checkout", "-q", "-")
    origin.commit({"c": b"1"})
    base = commit()
    origin.git("merge", "-q", "--no-edit", "side")
    merge = commit()
    origin.commit({".gitmodules": MODULES, ".gitattributes": LFS, "x.bin": POINTER})
    origin.git("update-index", "--add", "--cacheinfo", f"160000,{MODULE},vendor")
    origin.git("commit", "-q", "-m", "holes")
    holed = commit()
    vendor = Gitlink(path="vendor", name="vendor", url="https://other.test/x", commit=MODULE)
    fake = FakeGit(trees, parents={merge: (base, head)}, links={holed: (vendor,)}, n_lfs={holed: 1})
    git = fake if request.param == "fake" else GitPast(tmp_path / "mirrors")
    return Place(git, origin.source, base, head, merge, holed, trees)


async def test_a_commit_is_fetched_with_its_tree_or_is_not_there(place):
    assert (await place.git.fetch(place.source, REPO, place.head)).tree == place.trees[place.head]
    for absent in (place.git.fetch, place.git.fetch_history):
        with pytest.raises(PinNotFound):
            await absent(place.source, REPO, NOWHERE)


SOME = [(), (Extra.LFS,), (Extra.SUBMODULES,), tuple(Extra)]


@pytest.mark.parametrize(("skip", "get"), [(skip, get) for skip in SOME for get in SOME if not {*skip} & {*get}])
async def test_what_the_job_does_not_care_for_is_refused_and_what_it_wants_is_listed(place, skip, get):
    if {*skip, *get} != set(Extra):
        with pytest.raises(PinNotFound, match="the job does not say what to do with"):
            await place.git.fetch(place.source, REPO, place.holed, skip=skip, get=get)
        return
    found = await place.git.fetch(place.source, REPO, place.holed, skip=skip, get=get)
    assert [link.commit for link in found.links] == ([MODULE] if Extra.SUBMODULES in get else [])
    assert found.n_lfs == (1 if Extra.LFS in get else 0)


async def test_a_merge_has_to_merge_the_head(place):
    assert (await place.git.fetch(place.source, REPO, place.merge)).base is None
    assert (await place.git.fetch(place.source, REPO, place.merge, merge_of=place.head)).base == place.base
    for commit, head in ((place.merge, place.holed), (place.head, place.head), (place.merge, NOWHERE)):
        with pytest.raises(PinNotFound, match="does not merge"):
            await place.git.fetch(place.source, REPO, commit, merge_of=head)


async def test_nothing_is_read_that_was_not_fetched_before(place):
    everything = tuple(Extra)
    with pytest.raises(SourceUnavailable):
        await place.git.look(REPO, place.holed)
    with pytest.raises(SourceUnavailable):
        await place.git.fetch_lfs(place.source, REPO, place.holed)
    await place.git.fetch(place.source, REPO, place.holed, skip=everything)
    await place.git.look(REPO, place.holed)
