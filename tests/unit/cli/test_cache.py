"""`gpurun cache`: what it shows and removes, beside whoever uses the cache."""

from __future__ import annotations

import json
import os
from datetime import UTC, timedelta

import pytest
from click.testing import CliRunner

from gpurun.adapters.clock import SystemClock
from gpurun.adapters.hub.shelf import Shelf
from gpurun.adapters.layers import LayerShelf
from gpurun.cli.main import cli
from gpurun.domain.ids import Revision
from gpurun.domain.layer import LayerWish
from gpurun.domain.plan import ModelFile, ModelPin
from gpurun.provider_kit import registry
from tests.fakes.clock import FakeClock
from tests.fakes.cloud import KeepingCloud

USER = "0" * 26
NOW = SystemClock().now()


def cache(*words):
    """Exit code, stdout and stderr."""
    done = CliRunner().invoke(cli, ["cache", *words], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """`gpurun run` of this user, and no server."""
    monkeypatch.setenv("GPURUN_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def shelf(state):
    return Shelf(state / "hub")


@pytest.fixture
def put(shelf):
    """`put("acme--a", "a", 1000, days=3)`: a file that was last used so long ago."""

    def put(folder, letter, size, *, days):
        path = shelf.folder / folder / (letter * 64)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
        at = (NOW - timedelta(days=days)).timestamp()
        os.utime(path, (at, at))
        return path

    return put


def pin(letter):
    file = ModelFile(path="model.bin", size=1000, sha256=letter * 64, etag=letter * 64)
    return ModelPin(id=f"acme/{letter}", revision=Revision("d" * 40), files=(file,))


def test_nothing_yet():
    assert cache("list") == (0, "Nothing is cached yet: the first run with a model or data set does it.\n", "")
    assert cache("prune") == (0, "Nothing is cached.\n", "")
    assert json.loads(cache("list", "--json")[1]) == {"caches": [], "setup_layers": []}


def test_the_list_shows_layers_of_setup(state):
    layers = LayerShelf(state / "layers")
    wish = LayerWish(repo="0:local/train", key="k", read=("local",), write="local")
    layers.use(wish, user=USER, until=NOW + timedelta(hours=1), now=NOW)
    assert layers.made(USER, sha256="5" * 64, size=1_200_000_000, setup_ms=58_300, now=NOW) == ""
    code, out, err = cache("list")
    assert (code, err) == (0, "")
    day = NOW.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    assert out == (
        "SETUP LAYER  KEY  SIZE    SAVES   LAST USED             USED BY\n"
        f"local/train  k    1.2 GB  58.3 s  {day}  1 run\n"
        "1.2 GB of at most 53.7 GB in volumes of the Docker Engine\n"
    )
    (told,) = json.loads(cache("list", "--json")[1])["setup_layers"]
    assert (told["repository"], told["setup_s"], told["attempts"]) == ("local/train", 58.3, [USER])


def test_volumes_that_nobody_could_remove_are_not_told_as_freed(state, monkeypatch):
    layers = LayerShelf(state / "layers")
    wish = LayerWish(repo="0:local/train", key="k", read=("local",), write="local")
    volume = layers.use(wish, user=USER, until=NOW, now=NOW).volume
    layers.made(USER, sha256="5" * 64, size=1_200_000_000, setup_ms=58_300, now=NOW)
    layers.let_go(USER, NOW)
    cloud = KeepingCloud(FakeClock(), volumes={volume})
    monkeypatch.setattr(registry, "open_provider", lambda name, _: registry.Broken(name, "bad settings: no host"))
    code, out, err = cache("prune", "--all")
    assert (code, out) == (2, "")
    assert err == (
        "gpurun cache prune: The volumes of 1 setup layer are still there: the provider docker cannot be used "
        "(bad settings: no host).\nRepeat the command when this is mended.\n"
    )
    monkeypatch.setattr(registry, "open_provider", lambda *_: cloud)
    assert cache("prune", "--all")[0] == 0
    assert cloud.volumes == set()


def test_the_list_shows_what_runs_use(put, shelf, monkeypatch):
    monkeypatch.setenv("GPURUN_WEIGHTS_CACHE_MIB", "1024")
    put("acme--a", "a", 1000, days=2)
    put("datasets--acme--b", "b", 3_000_000, days=1)
    shelf.use([pin("a")], user=USER, until=NOW + timedelta(hours=1))
    code, out, err = cache("list")
    day_a, day_b = ((NOW - timedelta(days=days)).strftime("%Y-%m-%d %H:%M UTC") for days in (2, 1))
    assert (code, err) == (0, "")
    assert out == (
        "WHAT             SIZE    FILES  LAST USED             USED BY\n"
        f"datasets/acme/b  3.0 MB  1      {day_b}\n"
        f"acme/a           1.0 kB  1      {day_a}  1 run\n"
        f"3.0 MB of at most 1.1 GB in {shelf.folder}\n"
    )
    (told,) = json.loads(cache("list", "--json")[1])["caches"]
    assert (told["bytes"], told["limit_bytes"]) == (3_001_000, 1 << 30)
    assert told["repositories"][1]["attempts"] == [USER]
    assert told["repositories"][0]["last_used"] == (NOW - timedelta(days=1)).astimezone(UTC).isoformat(
        timespec="seconds"
    )


def test_prune_keeps_to_the_limit_by_itself(put, monkeypatch):
    monkeypatch.setenv("GPURUN_WEIGHTS_CACHE_MIB", "1")
    old, new = put("acme--a", "a", 600_000, days=2), put("acme--b", "b", 600_000, days=1)
    code, out, _ = cache("prune", "--json")
    (told,) = json.loads(out)["caches"]
    assert (code, told["removed_files"], told["freed_bytes"], told["left_bytes"]) == (0, 1, 600_000, 600_000)
    assert (old.exists(), new.exists()) == (False, True)


def test_prune_by_age(put):
    old, new = put("acme--a", "a", 10, days=8), put("acme--b", "b", 10, days=6)
    assert cache("prune", "--older-than", "7d")[0] == 0
    assert (old.exists(), new.exists()) == (False, True)
    assert cache("prune", "--older-than", "100h")[0] == 0
    assert not new.exists()


def test_prune_all_leaves_what_a_run_uses_and_says_so(put, shelf):
    used, other = put("acme--a", "a", 1000, days=2), put("acme--b", "b", 1000, days=1)
    shelf.use([pin("a")], user=USER, until=NOW + timedelta(hours=1))
    code, out, err = cache("prune", "--all")
    assert (code, used.exists(), other.exists()) == (1, True, False)
    assert out == f"{shelf.folder}: 1 file removed, 1.0 kB freed, 1.0 kB left.\n"
    assert err == "1.0 kB of it are used by live runs and stay until those end.\n"
    shelf.let_go(USER)
    assert cache("prune", "--all")[0] == 0
    assert not used.exists()


@pytest.mark.parametrize("age", ["7", "0d", "a week", "7w"])
def test_no_age(age):
    code, out, err = cache("prune", "--older-than", age)
    assert (code, out) == (2, "")
    assert err == (
        f"gpurun cache prune: '{age}' is no age.\n"
        "Write 1 to 99999 hours or days: 12h, 7d. `--all` removes everything that no live run uses.\n"
    )


def test_all_and_an_age():
    assert cache("prune", "--all", "--older-than", "7d")[0] == 2


def test_a_use_that_nobody_can_read_protects_nothing(put, shelf):
    path = put("acme--a", "a", 1000, days=2)
    uses = shelf.folder / "uses"
    uses.mkdir()
    (uses / USER).write_text("{")
    assert cache("prune", "--all")[0] == 0
    assert not path.exists()
