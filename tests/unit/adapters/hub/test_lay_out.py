"""Pins laid out from the cache: whole, from verified bytes, once for all, and safe from whoever makes room."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from huggingface_hub import hf_hub_download, snapshot_download
from pydantic import SecretStr

from gpurun.adapters.clock import SystemClock
from gpurun.adapters.hub import HuggingFaceHub, layouts
from gpurun.adapters.hub.shelf import Limits, Shelf
from gpurun.domain.errors import HubSilent, HubUnavailable, PinNotFound
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelPin, ModelSpec

ID = "acme/tiny"
FILES = {"model.safetensors": b"w" * 5000, "config.json": b"{}", "sub/vocab.bin": b"v" * 100}
USER, OTHER = "0" * 25 + "a", "0" * 25 + "b"
UNTIL = datetime(2040, 1, 1, tzinfo=UTC)
WAIT_S = 30.0


@pytest.fixture
def clock():
    return SystemClock()


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def shelf(cache) -> Shelf:
    return Shelf(cache)


@pytest.fixture
def add_pin(fake, make_hub):
    """`await add_pin("acme/tiny", FILES)`."""

    async def add(name: str = ID, files=FILES, **more) -> ModelPin:
        revision = Revision(fake.add_model(name, files))
        pin = await make_hub().resolve(ModelSpec(id=name, revision=revision, **more))
        fake.requests.clear()
        return pin

    return add


async def laid_out(hub, *pins, user=USER, until=UNTIL) -> Path:
    done = await hub.lay_out(pins, user=user, until=until, wait_s=WAIT_S)
    assert done.ready
    return Path(done.folder)


def downloads(fake, name="model.safetensors") -> int:
    return len([one for one in fake.seen("/repos/", method="GET") if one.path.endswith(name)])


def content(cache: Path, pin: ModelPin, path: str) -> Path:
    (sha256,) = [file.sha256 for file in pin.files if file.path == path]
    return cache / pin.id.replace("/", "--") / sha256


async def test_huggingface_hub_finds_everything_by_name_and_by_commit(make_hub, add_pin):
    pin = await add_pin(refs=("main", "pr/1"))
    view = await laid_out(make_hub(), pin)
    for revision in (pin.revision, "main", "pr/1"):
        folder = Path(snapshot_download(ID, revision=revision, cache_dir=view, local_files_only=True))
        assert {name: (folder / name).read_bytes() for name in FILES} == FILES
        found = hf_hub_download(ID, "sub/vocab.bin", revision=revision, cache_dir=view, local_files_only=True)
        assert Path(found).read_bytes() == FILES["sub/vocab.bin"]


async def test_b094_everybody_may_read_and_nobody_may_write(make_hub, add_pin):
    view = await laid_out(make_hub(), await add_pin())
    for path in (view, *view.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o555 if path.is_dir() else 0o444), path


async def test_nothing_is_copied_and_the_second_run_asks_nobody(fake, make_hub, add_pin, cache):
    pin, hub = await add_pin(), make_hub()
    view = await laid_out(hub, pin)
    (blob,) = [path for path in view.glob("*/blobs/*") if path.stat().st_size == 5000]
    assert blob.samefile(content(cache, pin, "model.safetensors"))
    fake.requests.clear()
    before = view.stat().st_ino
    assert await laid_out(hub, pin, user=OTHER) == view
    assert await laid_out(make_hub(), pin) == view  # as another process
    assert view.stat().st_ino == before
    assert fake.requests == []


async def test_two_pins_and_two_revisions_share_content(fake, make_hub, add_pin, cache):
    first = await add_pin()
    second = await add_pin(files={**FILES, "config.json": b'{"new": 1}'}, refs=("v2",))
    view = await laid_out(make_hub(), first, second)
    assert downloads(fake) == 1
    for pin, config in ((first, b"{}"), (second, b'{"new": 1}')):
        folder = Path(snapshot_download(ID, revision=pin.revision, cache_dir=view, local_files_only=True))
        assert (folder / "config.json").read_bytes() == config
    assert len(list((view / "models--acme--tiny/blobs").iterdir())) == 4


async def test_a_torn_file_is_found_before_it_is_mounted(fake, make_hub, add_pin, cache):
    """As after a power cut: the name, the size and even the time are right, the bytes are not."""
    pin = await add_pin()
    view = await laid_out(make_hub(), pin)
    torn = content(cache, pin, "model.safetensors")
    found = torn.stat()
    torn.chmod(0o600)
    torn.write_bytes(b"\0" * 5000)
    os.utime(torn, ns=(found.st_atime_ns, found.st_mtime_ns))
    fake.requests.clear()
    mounted = os.open(view, os.O_RDONLY)  # a live run has the old one
    assert await laid_out(make_hub(), pin, user=OTHER) == view
    assert downloads(fake) == 1
    folder = Path(snapshot_download(ID, cache_dir=view, local_files_only=True))
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert sorted(os.listdir(mounted)) == ["models--acme--tiny", "version.txt"]  # noqa: PTH208 - of the descriptor
    os.close(mounted)


async def test_a_view_that_lost_a_name_is_laid_out_again(make_hub, add_pin):
    pin, hub = await add_pin(), make_hub()
    view = await laid_out(hub, pin)
    ref = view / "models--acme--tiny/refs/main"
    ref.chmod(0o600)
    ref.write_text("")
    await laid_out(hub, pin)
    assert ref.read_text() == pin.revision


async def test_it_says_how_far_it_is_and_goes_on_meanwhile(fake, make_hub, add_pin):
    pin, hub = await add_pin(), make_hub()
    fake.stall(ID, "model.safetensors", after=1000)
    early = await hub.lay_out([pin], user=USER, until=UNTIL, wait_s=0.3)
    assert (early.folder, early.ready, early.bytes_total) == ("", False, 5102)
    again = await hub.lay_out([pin], user=USER, until=UNTIL, wait_s=0.1)
    assert not again.ready
    assert downloads(fake) == 1  # it is still the same


async def test_what_nobody_asks_for_any_more_stops(fake, make_hub, add_pin, monkeypatch):
    pin, hub, other = await add_pin(), make_hub(), make_hub()
    fake.stall(ID, "model.safetensors", after=1000)
    with monkeypatch.context() as hasty:
        hasty.setattr(layouts, "FORGOTTEN_S", 0.2)
        while not downloads(fake):
            await hub.lay_out([pin], user=USER, until=UNTIL, wait_s=0.0)
    fake.models[ID].stalled_at.clear()
    assert (await other.lay_out([pin], user=OTHER, until=UNTIL, wait_s=WAIT_S)).ready  # nobody holds the part
    assert not (await hub.lay_out([pin], user=USER, until=UNTIL, wait_s=WAIT_S)).ready
    assert (await hub.lay_out([pin], user=USER, until=UNTIL, wait_s=WAIT_S)).ready


async def test_wrong_bytes_and_a_silent_hub_are_told_apart(fake, make_hub, add_pin):
    pin, hub = await add_pin(), make_hub()
    fake.fail_next(503, part="/resolve/", times=50)
    with pytest.raises(HubUnavailable):
        await laid_out(hub, pin)
    fake.trouble.clear()
    fake.corrupt(ID, "model.safetensors")
    with pytest.raises(PinNotFound, match=r"model\.safetensors"):
        await laid_out(hub, pin)


@pytest.mark.parametrize("name", ["../../etc/x", "/etc/x", "a/./b", "a//b"])
async def test_a_name_that_leads_out_is_refused(make_hub, add_pin, name):
    pin = await add_pin()
    bad = replace(pin, files=(replace(pin.files[0], path=name),))
    with pytest.raises(PinNotFound, match="no name for a file"):
        await laid_out(make_hub(), bad)
    with pytest.raises(PinNotFound):
        await laid_out(make_hub(), replace(pin, refs=(name,)))


async def test_runs_at_the_same_time_download_a_file_once(fake, make_hub, add_pin):
    pin, hub = await add_pin(), make_hub()
    await asyncio.gather(
        laid_out(hub, pin), laid_out(hub, pin, user=OTHER), laid_out(make_hub(), replace(pin, refs=("v2",)))
    )
    assert downloads(fake) == 1


async def test_two_processes_download_a_file_once(fake, make_hub, add_pin, cache):
    pin = await add_pin()
    program = f"""
import anyio
from datetime import UTC, datetime
from pathlib import Path
from pydantic import SecretStr
from gpurun.adapters.clock import SystemClock
from gpurun.adapters.hub import HuggingFaceHub
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelSpec

async def main():
    hub = HuggingFaceHub({fake.url!r}, SecretStr(""), Path({str(cache)!r}), SystemClock())
    pin = await hub.resolve(ModelSpec(id={ID!r}, revision=Revision({pin.revision!r})))
    print("ready", flush=True)
    input()
    done = await hub.lay_out([pin], user={OTHER!r}, until=datetime(2040, 1, 1, tzinfo=UTC), wait_s=30)
    print(done.folder)
    await hub.close()

anyio.run(main)
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as other:
        assert await asyncio.to_thread(other.stdout.readline) == "ready\n"
        mine, (said, _) = await asyncio.gather(laid_out(make_hub(), pin), asyncio.to_thread(other.communicate, "go\n"))
    assert said.strip() == str(mine)
    assert downloads(fake) == 1


# making room


def at(shelf: Shelf, name: str, day: int) -> None:
    """All of that repository was last used on that day of 2026."""
    for path in (shelf.folder / name).iterdir():
        if path.is_file():
            used = datetime(2026, 1, day, tzinfo=UTC).timestamp()
            os.utime(path, (used, path.stat().st_mtime))


async def three(make_hub, add_pin, shelf) -> list[ModelPin]:
    """Used on the 1st, 2nd and 3rd; 1000 bytes each and nobody uses them any more."""
    pins, hub = [], make_hub()
    for number in (1, 2, 3):
        pins.append(await add_pin(f"acme/m{number}", {"model.bin": bytes([number]) * 1000}))
        await laid_out(hub, pins[-1])
        await hub.unuse(USER)
        at(shelf, f"acme--m{number}", number)
    return pins


def there(cache: Path, pins: list[ModelPin]) -> list[bool]:
    return [content(cache, pin, "model.bin").exists() for pin in pins]


async def test_the_least_recently_used_goes_first(make_hub, add_pin, shelf, cache):
    pins = await three(make_hub, add_pin, shelf)
    done = shelf.clear(Limits(max_bytes=2500), datetime.now(UTC))
    assert (there(cache, pins), done.files, done.freed_bytes, done.left_bytes) == ([False, True, True], 1, 1000, 2000)
    assert len(list((cache / "views").iterdir())) == 2  # else the bytes stayed on the disk
    hub = make_hub()
    await laid_out(hub, pins[1])  # used now
    await hub.unuse(USER)
    shelf.clear(Limits(max_bytes=1000), datetime.now(UTC))
    assert there(cache, pins) == [False, True, False]


async def test_nothing_that_a_run_uses_goes_whoever_clears(make_hub, add_pin, shelf, cache):
    pins = await three(make_hub, add_pin, shelf)
    view = await laid_out(make_hub(), pins[0])
    at(shelf, "acme--m1", 1)
    done = Shelf(cache).clear(Limits(max_bytes=0), datetime.now(UTC))  # as another process
    assert there(cache, pins) == [True, False, False]
    assert (done.files, done.in_use_bytes, done.left_bytes) == (2, 1000, 1000)
    assert (view / "models--acme--m1/refs/main").read_text() == pins[0].revision


async def test_a_use_ends_when_it_is_let_go_or_long_over(make_hub, add_pin, shelf, cache):
    (pin, *_) = await three(make_hub, add_pin, shelf)
    now = datetime.now(UTC)
    await laid_out(make_hub(), pin, until=now - timedelta(minutes=30))
    shelf.clear(Limits(max_bytes=0), now)
    assert content(cache, pin, "model.bin").exists()  # its end may be late
    shelf.clear(Limits(max_bytes=0), now + timedelta(hours=2))
    assert not content(cache, pin, "model.bin").exists()
    assert shelf.users() == frozenset()


async def test_tidy_lets_go_of_who_is_over(make_hub, add_pin, shelf, cache):
    pin, hub = await add_pin(), make_hub(max_cache_bytes=1)
    await laid_out(hub, pin)
    await laid_out(hub, pin, user=OTHER)
    await hub.tidy(over=[USER])
    assert await hub.users() == {OTHER}
    assert content(cache, pin, "model.safetensors").exists()
    await hub.tidy(over=[OTHER])
    assert not content(cache, pin, "model.safetensors").exists()


async def test_room_is_made_before_a_download(make_hub, add_pin, shelf, cache):
    pins = await three(make_hub, add_pin, shelf)
    more = await add_pin("acme/m4", {"model.bin": b"4" * 1000})
    await laid_out(make_hub(max_cache_bytes=3000), more)
    assert there(cache, [*pins, more]) == [False, True, True, True]


async def test_old_downloads_go_and_those_that_are_written_stay(shelf, cache, make_hub, add_pin, fake):
    pin, hub = await add_pin(), make_hub()
    fake.stall(ID, "model.safetensors", after=1000)
    await hub.lay_out([pin], user=USER, until=UNTIL, wait_s=0.3)
    live = content(cache, pin, "model.safetensors").with_suffix(".part")
    old = live.with_name("b" * 64 + ".part")
    old.write_bytes(b"x" * 100)
    young = live.with_name("c" * 64 + ".part")
    young.write_bytes(b"x" * 100)
    for path in (live, old):
        os.utime(path, (0, 0))
    shelf.clear(Limits(), datetime.now(UTC))
    assert (live.exists(), old.exists(), young.exists()) == (True, False, True)


async def test_the_list_says_what_is_used_by_whom(make_hub, add_pin, shelf):
    await three(make_hub, add_pin, shelf)
    pin = await add_pin()
    await laid_out(make_hub(), pin)
    listed = shelf.list(datetime.now(UTC))
    assert [one.repo for one in listed] == [ID, "acme/m3", "acme/m2", "acme/m1"]
    assert (listed[0].files, listed[0].size, listed[0].users) == (3, 5102, (USER,))
    assert listed[1].users == ()
    assert listed[3].used_at == datetime(2026, 1, 1, tzinfo=UTC)


# when nobody answers


async def test_what_the_hub_said_is_known_when_it_is_silent(fake, make_hub, add_pin, clock, cache):
    pin = await add_pin()
    silent = HuggingFaceHub("http://127.0.0.1:9", SecretStr(""), cache, clock)
    before = await silent.resolve_or_recall(pin.spec)
    assert (before.pin, before.on) == (pin, clock.now().date().isoformat())
    named = replace(pin.spec, refs=("v2",), target="/w")
    assert (await silent.resolve_or_recall(named)).pin == replace(pin, refs=("v2",), target="/w")
    for other in (replace(pin.spec, include=("*.json",)), replace(pin.spec, revision=Revision("e" * 40))):
        with pytest.raises(HubSilent):
            await silent.resolve_or_recall(other)
    assert (await make_hub().resolve_or_recall(pin.spec)).on == ""


async def test_what_was_said_and_cannot_be_read_was_not_said(add_pin, cache, clock):
    pin = await add_pin()
    (kept,) = (cache / "acme--tiny/resolved").iterdir()
    for text in ("", "{", "[]", '{"on": "2026-12-01", "files": []}', '{"on": "2026-12-01", "files": [{"x": 1}]}'):
        kept.write_text(text)
        with pytest.raises(HubSilent):
            await HuggingFaceHub("http://127.0.0.1:9", SecretStr(""), cache, clock).resolve_or_recall(pin.spec)


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
async def test_a_hub_that_answers_is_not_silent(fake, make_hub, add_pin, status):
    pin = await add_pin()
    fake.fail_next(status, times=50)
    with pytest.raises((PinNotFound, HubUnavailable)) as caught:
        await make_hub().resolve_or_recall(pin.spec)
    assert not isinstance(caught.value, HubSilent)
