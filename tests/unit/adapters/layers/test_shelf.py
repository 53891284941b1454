"""Records of layers: who may take what, and what is left when nobody needs it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gpurun.adapters.layers import LayerShelf
from gpurun.domain.layer import LayerWish

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
UNTIL = NOW + timedelta(hours=1)
A, B, C = ("0" * 25 + letter for letter in "abc")
SHA = "5" * 64


def wish(key: str = "k", *, pr: int = 5, repo: str = "7:octo/app") -> LayerWish:
    return LayerWish(repo=repo, key=key, read=("shared", f"pr-{pr}"), write=f"pr-{pr}")


@pytest.fixture
def shelf(tmp_path):
    return LayerShelf(tmp_path / "layers", max_bytes=1000)


def use(shelf, user: str, one: LayerWish, at: datetime = NOW):
    return shelf.use(one, user=user, until=at + timedelta(hours=1), now=at)


def make(shelf, user: str, one: LayerWish, *, size: int = 10, at: datetime = NOW) -> str:
    """The volume, kept, its maker gone."""
    given = use(shelf, user, one, at)
    assert given is not None
    assert given.layer is None
    assert shelf.made(user, sha256=SHA, size=size, setup_ms=1500, now=at) == ""
    shelf.let_go(user, at)
    return given.volume


def test_what_one_made_the_next_one_takes(shelf):
    volume = make(shelf, A, wish())
    given = use(shelf, B, wish())
    assert given == shelf.of(B)
    assert (given.volume, given.most_bytes, given.shelf) == (volume, 0, shelf.id())
    assert (given.layer.sha256, given.layer.size, given.layer.setup_ms, given.layer.day) == (
        SHA, 10, 1500, "2026-12-01",
    )  # fmt: skip
    assert shelf.made(B, sha256=SHA, size=1, setup_ms=1, now=NOW) == "this run makes none"


def test_the_same_attempt_hears_the_same_whatever_happened_meanwhile(shelf):
    first = use(shelf, A, wish())
    make(shelf, B, wish())
    assert use(shelf, A, wish()) == first
    assert shelf.made(A, sha256=SHA, size=1, setup_ms=1, now=NOW) == "there is one already"
    assert shelf.let_go(A, NOW) == (first.volume,)


def test_who_did_not_hear_the_answer_may_say_it_again(shelf):
    given = use(shelf, A, wish())
    for _ in range(2):
        assert shelf.made(A, sha256=SHA, size=10, setup_ms=1500, now=NOW) == ""
    for other in ({"sha256": "6" * 64, "size": 10}, {"sha256": SHA, "size": 11}):
        assert shelf.made(A, **other, setup_ms=1500, now=NOW) == "there is one already"
    shelf.let_go(A, NOW)
    assert use(shelf, B, wish()).volume == given.volume


def test_nobody_takes_what_its_maker_may_write_to(shelf):
    use(shelf, A, wish())
    assert shelf.made(A, sha256=SHA, size=1, setup_ms=1, now=NOW) == ""
    assert use(shelf, B, wish()) is None
    assert shelf.of(B) is None
    assert shelf.let_go(A, NOW) == ()
    assert use(shelf, B, wish()).layer is not None


def test_a_pull_request_takes_only_what_the_default_branch_or_itself_made(shelf):
    make(shelf, A, wish(pr=5))
    assert use(shelf, B, wish(pr=6)).layer is None
    assert use(shelf, C, wish(pr=5, repo="8:octo/other")).layer is None
    shared = LayerWish(repo="7:octo/app", key="k", read=("shared",), write="shared")
    volume = make(shelf, "0" * 25 + "d", shared)
    assert use(shelf, "0" * 25 + "e", wish(pr=9)).volume == volume
    assert use(shelf, "0" * 25 + "f", wish("other", pr=9)).layer is None


def test_what_is_spoilt_is_forgotten_and_its_volume_goes_with_the_last_use(shelf):
    volume = make(shelf, A, wish())
    use(shelf, B, wish())
    use(shelf, C, wish())
    shelf.spoilt(B)
    assert use(shelf, "0" * 25 + "d", wish()).layer is None
    assert shelf.let_go(B, NOW) == ()
    assert shelf.let_go(C, NOW) == (volume,)
    assert shelf.let_go(C, NOW) == ()


def test_nobody_spoils_what_another_scope_has(shelf):
    shared = LayerWish(repo="7:octo/app", key="k", read=("shared",), write="shared")
    d, e, f = ("0" * 25 + letter for letter in "def")
    volume = make(shelf, A, shared)
    assert use(shelf, B, wish(pr=5)).volume == volume
    shelf.spoilt(B)
    shelf.let_go(B, NOW)
    own = make(shelf, C, wish(pr=5))  # it makes its own, and is not given the other one again
    assert use(shelf, d, wish(pr=5)).volume == own
    assert use(shelf, e, wish(pr=6)).volume == volume
    assert use(shelf, f, shared).volume == volume
    assert shelf.tidy((d, e, f), (volume, own), NOW) == ()
    assert len(list((shelf.folder / "spoilt").iterdir())) == 1
    shelf.clear(0, None, NOW)
    shelf.tidy((), (), NOW)
    assert list((shelf.folder / "spoilt").iterdir()) == []


def test_who_makes_a_layer_cannot_spoil_another_one(shelf):
    make(shelf, A, wish())
    use(shelf, B, wish("other"))
    shelf.spoilt(B)
    assert use(shelf, C, wish()).layer is not None


def test_the_least_recently_used_goes_and_never_what_is_in_use(shelf):
    volumes = [make(shelf, user, wish(user), size=400, at=NOW + timedelta(minutes=n)) for n, user in enumerate((A, B))]
    later = NOW + timedelta(minutes=30)
    use(shelf, "0" * 25 + "u", wish(A), later)
    use(shelf, C, wish(C), later)
    assert shelf.made(C, sha256=SHA, size=1001, setup_ms=1, now=later) == "it is too large"
    assert shelf.made(C, sha256=SHA, size=400, setup_ms=1, now=later) == ""
    assert shelf.let_go(C, later) == (volumes[1],)
    assert {kept.volume for kept, _ in shelf.all(later)} == {f"gpurun-layer-{shelf.id()}-{C}", volumes[0]}
    done = shelf.clear(0, None, later)
    assert (done.layers, done.freed_bytes, done.left_bytes, done.in_use_bytes) == (1, 400, 400, 400)


def test_volumes_of_containers_that_were_killed_are_found(shelf):
    kept = make(shelf, A, wish())
    half, live = use(shelf, B, wish("b")).volume, use(shelf, C, wish("c")).volume
    volumes = {kept, half, live, "gpurun-layer-of-nobody"}
    assert shelf.tidy((), volumes, NOW) == ("gpurun-layer-of-nobody",)
    assert set(shelf.tidy((B,), volumes, NOW)) == {"gpurun-layer-of-nobody", half}
    assert shelf.users() == {C}
    assert live in shelf.tidy((), volumes, UNTIL + timedelta(hours=2))  # nobody ever said that it is over


def test_records_that_cannot_be_read_are_none(shelf):
    make(shelf, A, wish())
    (record,) = (shelf.folder / "kept").iterdir()
    record.write_text("{")
    assert use(shelf, B, wish()).layer is None
    assert shelf.all(NOW) == ()


@pytest.mark.parametrize("sha256", ["", "5" * 63, "G" * 64])
def test_odd_hashes_are_not_kept(shelf, sha256):
    use(shelf, A, wish())
    assert shelf.made(A, sha256=sha256, size=1, setup_ms=1, now=NOW) == "what was told of it is odd"
