"""Artifacts as they are downloaded: whole, in parts, all as one archive, and the manifest."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.domain.manifest import manifest_digest, read_manifest
from gpurun.domain.run import Result, ResultKind
from gpurun.domain.stream import Artifact
from gpurun.http.artifact_pages import Archive
from gpurun.http.downloads import part_of
from tests.unit.http.world import ATTEMPT_ID, NOW, READ_KEY, RUN_ID

FILES = {"a": b"", "out/" + "lang/" * 40 + "e": b"x" * 512, "out/größe b.html": b"<script>" * 1000, "z": b"1"}


async def keep(world, files=FILES):
    for number, (path, data) in enumerate(files.items()):
        blob = f"artifacts/x/{number}"
        if data:
            await world.services.blobs.append(blob, 0, data)
        row = Artifact(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest(), blob=blob)
        await world.store.write(lambda tx, row=row: tx.add_artifact(ATTEMPT_ID, row))


async def test_a_file_comes_with_its_hash_and_never_as_a_page(world):
    await world.add()
    await keep(world)
    answer = await world.page("/artifacts/1/out/größe b.html")
    assert answer.content == FILES["out/größe b.html"]
    sha256 = hashlib.sha256(answer.content)
    assert answer.headers["etag"] == f'"{sha256.hexdigest()}"'
    assert answer.headers["repr-digest"] == f"sha-256=:{base64.b64encode(sha256.digest()).decode()}:"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''gr%C3%B6%C3%9Fe%20b.html"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert (await world.page("/artifacts/1/a")).content == b""


@pytest.mark.parametrize("place", ["1/z", "1.tar", "1.json", ".json"])
async def test_nothing_is_told_without_the_key(world, place):
    await world.add()
    await keep(world)
    join = "" if place.startswith(".") else "/"
    assert (await world.page(f"/artifacts{join}{place}")).status_code == 200
    for query in ("", "?key=", "?key=wrong"):
        assert (await world.client.get(f"/runs/{RUN_ID}/artifacts{join}{place}{query}")).status_code == 404


@pytest.mark.parametrize(
    ("range_", "status", "told", "content"),
    [
        ("bytes=0-", 206, "bytes 0-9/10", b"0123456789"),
        ("bytes=4-", 206, "bytes 4-9/10", b"456789"),
        ("bytes=4-5", 206, "bytes 4-5/10", b"45"),
        ("bytes=9-99", 206, "bytes 9-9/10", b"9"),
        ("bytes=-3", 206, "bytes 7-9/10", b"789"),
        ("bytes=-99", 206, "bytes 0-9/10", b"0123456789"),
        ("bytes=10-", 416, "bytes */10", b""),
        ("bytes=5-4", 416, "bytes */10", b""),
        ("bytes=-0", 416, "bytes */10", b""),
        ("bytes=-", 200, None, b"0123456789"),
        ("bytes=0-1,3-4", 200, None, b"0123456789"),
        ("lines=1-2", 200, None, b"0123456789"),
    ],
)
async def test_parts_of_a_file(world, range_, status, told, content):
    await world.add()
    await keep(world, {"f": b"0123456789"})
    address = f"/runs/{RUN_ID}/artifacts/1/f?key={READ_KEY}"
    answer = await world.client.get(address, headers={"range": range_})
    assert (answer.status_code, answer.headers.get("content-range"), answer.content) == (status, told, content)
    other = await world.client.get(address, headers={"range": range_, "if-range": '"another"'})
    assert (other.status_code, other.content) == (200, b"0123456789")
    head = await world.client.head(address)
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "10", b"")


@given(size=st.integers(0, 30), first=st.none() | st.integers(0, 40), last=st.none() | st.integers(0, 40))
def test_a_part_is_inside_the_file(size, first, last):
    text = f"bytes={'' if first is None else first}-{'' if last is None else last}"
    scope = {"headers": [(b"range", text.encode())]}
    try:
        part = part_of(scope, size=size, etag="")
    except ValueError:
        return
    assert part is None or 0 <= part.start < part.end <= size


async def test_all_files_come_as_one_archive_that_tar_reads(world):
    await world.add()
    await keep(world)
    answer = await world.page("/artifacts/1.tar")
    assert int(answer.headers["content-length"]) == len(answer.content)
    with tarfile.open(fileobj=io.BytesIO(answer.content), errorlevel=2) as archive:
        found = {member.name: archive.extractfile(member).read() for member in archive.getmembers()}
        assert all(member.isreg() for member in archive.getmembers())
    top = f"{RUN_ID}-1"
    manifest = found.pop(f"{top}.json")
    assert found == {f"{top}/{path}": data for path, data in FILES.items()}
    assert manifest == (await world.page("/artifacts/1.json")).content


@given(
    sizes=st.lists(st.integers(0, 2**36), max_size=5),
    name=st.text(st.characters(categories=["L", "N", "S"]), min_size=1, max_size=120),
)
def test_the_size_of_an_archive_is_known_before(sizes, name):
    rows = tuple(Artifact(path=f"{n}/{name}", size=size, sha256="0" * 64, blob="x") for n, size in enumerate(sizes))
    tar = Archive("top", NOW, rows)
    assert tar.size % 512 == 0
    assert tar.size >= sum(sizes) + 1024


async def test_bytes_that_rotted_are_never_taken_for_whole(world):
    """The answer ends early or is an error; a length that is right would hide it."""
    await world.add()
    await keep(world, {"large": b"x" * 1_000_000, "small": b"y"})
    small, large = (world.services.blobs._path(f"artifacts/x/{n}") for n in (1, 0))
    small.write_bytes(b"n")
    assert (await world.page("/artifacts/1/small")).status_code == 500
    large.write_bytes(b"x" * 999_999 + b"n")
    with pytest.raises(AssertionError):  # httpx' transport, of an answer that was not completed
        await world.page("/artifacts/1/large")
    with pytest.raises(AssertionError):
        await world.page("/artifacts/1.tar")
    large.write_bytes(b"x")
    assert (await world.page("/artifacts/1/large")).status_code == 500


async def test_the_manifest_is_what_its_digest_says(world):
    await world.add()
    await keep(world)
    answer = await world.page("/artifacts.json")
    digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
    assert answer.headers["etag"] == f'"{digest}"'
    assert (answer.headers["x-gpurun-attempt"], answer.headers["x-gpurun-complete"]) == ("1", "no")
    assert {one.path: one.size for one in read_manifest(answer.text)} == {p: len(d) for p, d in FILES.items()}
    assert answer.text.splitlines()[1] == f'{{"path": "a", "size": 0, "sha256": "{hashlib.sha256().hexdigest()}"}}'
    assert manifest_digest(await world.store.read(lambda tx: tx.artifacts(ATTEMPT_ID))) == digest
    assert digest in (await world.page()).text
    left_out = "1 (5.0 GiB together), larger than <b>: out/x."
    ended = Result(kind=ResultKind.PASSED, exit_code=0, left_out=left_out)
    await world.store.write(lambda tx: tx.set_result(ATTEMPT_ID, ended))
    assert (await world.page("/artifacts.json")).headers["x-gpurun-complete"] == "yes"
    assert "Not kept: 1 (5.0 GiB together), larger than &lt;b&gt;: out/x." in (await world.page()).text


async def test_when_the_bytes_are_dropped_their_hashes_stay(world):
    await world.add()
    await keep(world, {"a": b"1", "b": b"2"})
    before = (await world.page("/artifacts.json")).content
    rows = await world.store.read(lambda tx: tx.artifacts(ATTEMPT_ID))
    await world.store.write(lambda tx: tx.add_artifact(ATTEMPT_ID, replace(rows[0], blob="")))
    for place in ("1/a", "1.tar"):
        gone = await world.page(f"/artifacts/{place}")
        assert (gone.status_code, gone.text) == (410, "The bytes are not kept any more; path, size and sha256 are.\n")
    assert (await world.page("/artifacts/1/b")).content == b"2"
    assert (await world.page("/artifacts.json")).content == before
    assert "a (not kept any more)" in (await world.page()).text


async def test_the_digest_is_in_the_audit_log(world):
    await world.add()
    await world.claim()
    await world.collect("a", b"1")
    await world.post(
        "finish", [("result", "passed"), ("exit_code", 0), ("reason", "exit"), ("left_out", "1, pipe: p.")]
    )
    rows = await world.store.read(lambda tx: tx.artifacts(ATTEMPT_ID))
    entries = await world.store.read(lambda tx: tx.audit_of(f"attempt:{ATTEMPT_ID}"))
    (entry,) = [entry for entry in entries if entry.kind == "attempt_result_set"]
    assert entry.data["artifacts"] == manifest_digest(rows)
    assert (await world.attempt()).result.left_out == "1, pipe: p."
