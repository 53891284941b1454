"""Pins against a hub that keeps state: what is listed, what is hashed, and how each refusal reads."""

from __future__ import annotations

import hashlib
import socket
from dataclasses import replace

import pytest
from huggingface_hub.utils import filter_repo_objects
from pydantic import SecretStr

from gpurun.adapters.hub import HuggingFaceHub, listing
from gpurun.adapters.hub.listing import Entry, read_page
from gpurun.domain.errors import HubUnavailable, NothingIncluded, PinNotFound
from gpurun.domain.folder import is_safe_path
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelFile, ModelSpec
from tests.fakes.clock import FakeClock
from tests.fakes.hub.state import object_id
from tests.fakes.lfs import pointer_of

ID = "acme/tiny"
TOKEN = "hf_0123456789SECRET"
WEIGHTS = bytes(range(256)) * 64
FILES = {"weights.safetensors": WEIGHTS, "config.json": b'{"a": 1}', "sub/ä #1?.txt": b"hi", "empty.txt": b""}


def spec(revision: str, id: str = ID) -> ModelSpec:
    return ModelSpec(id=id, revision=Revision(revision), target="/weights")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def test_every_file_is_pinned_by_path_size_and_hash(fake, hub):
    revision = fake.add_model(ID, FILES)
    pin = await hub.resolve(spec(revision))
    assert (pin.id, pin.revision, pin.target) == (ID, revision, "/weights")
    assert pin.files == tuple(
        ModelFile(
            path=path,
            size=len(data),
            sha256=sha256(data),
            etag=sha256(data) if path.endswith(".safetensors") else object_id("blob", data).hex(),
        )
        for path, data in sorted(FILES.items())
    )


async def test_b082_the_same_revision_gives_the_same_pin_while_main_moves(fake, hub):
    revision = fake.add_model(ID, FILES)
    first = await hub.resolve(spec(revision))
    fake.add_model(ID, {"other.bin": b"x"})
    assert await hub.resolve(spec(revision)) == first


async def test_weights_are_not_downloaded_and_small_files_only_once(fake, make_hub):
    revision = fake.add_model(ID, FILES)
    await make_hub().resolve(spec(revision))
    await make_hub().resolve(spec(revision))
    assert [request.path.rpartition("/")[2] for request in fake.seen("/resolve/")].count("config.json") == 1
    assert fake.seen("/repos/") == []


async def test_a_damaged_cache_entry_is_fetched_again(fake, make_hub, tmp_path):
    revision = fake.add_model(ID, FILES)
    pin = await make_hub().resolve(spec(revision))
    cached = tmp_path / "cache/acme--tiny" / sha256(FILES["config.json"])
    cached.write_bytes(b'{"a": 2}')
    assert await make_hub().resolve(spec(revision)) == pin
    assert cached.read_bytes() == FILES["config.json"]


async def test_pages_are_followed_on_our_own_address(fake, hub):
    fake.page_size = 2
    revision = fake.add_model(ID, {f"d{n}/f.bin": b"%d" % n for n in range(5)})
    real, fake.url = fake.url, "http://example.org"  # what a mirror's `Link` header says
    try:
        assert len((await hub.resolve(spec(revision))).files) == 5
    finally:
        fake.url = real
    assert len(fake.seen("/tree/")) == 5


async def test_small_files_may_come_by_a_redirect(fake, make_hub):
    fake.redirects_small_files = True
    revision = fake.add_model(ID, FILES, private=True)
    fake.add_token(TOKEN, ID)
    pin = await make_hub(TOKEN).resolve(spec(revision))
    assert pin.files[0].sha256 == sha256(FILES["config.json"])
    assert fake.seen("/resolve-cache/")[0].token == TOKEN


async def test_a_data_set_is_another_repository_than_the_model_of_its_name(fake, hub, tmp_path):
    fake.add_model(ID, FILES)
    revision = fake.add_model(f"datasets/{ID}", {"train.csv": b"a,b", "big.zip": WEIGHTS})
    assert await hub.revision_of(ID, "main", kind="dataset") == revision
    pin = await hub.resolve(replace(spec(revision), kind="dataset"))
    assert (pin.kind, [file.path for file in pin.files]) == ("dataset", ["big.zip", "train.csv"])
    for file, data in zip(pin.files, (WEIGHTS, b"a,b"), strict=True):
        assert b"".join([piece async for piece in hub.open(pin, file)]) == data
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"datasets--acme--tiny"}
    assert [request.path for request in fake.requests if "datasets" not in request.path] == []
    assert len(fake.requests) > 2


async def test_a_gated_data_set_names_its_page(fake, hub):
    revision = fake.add_model(f"datasets/{ID}", FILES, gated="manual")
    with pytest.raises(PinNotFound, match="acme/tiny is gated") as caught:
        await hub.resolve(replace(spec(revision), kind="dataset"))
    assert f"{fake.url}/datasets/{ID}, then" in caught.value.hint


# --- some of the files


@pytest.mark.parametrize(
    ("include", "exclude", "paths"),
    [
        (("*.json",), (), ["config.json"]),
        (("*.txt",), ("empty*",), ["sub/ä #1?.txt"]),
        (("sub/",), (), ["sub/ä #1?.txt"]),
        ((), ("*.safetensors", "sub/*"), ["config.json", "empty.txt"]),
        (("w*", "*.none"), (), ["weights.safetensors"]),
    ],
)
async def test_patterns_select_as_those_of_snapshot_download_do(fake, hub, include, exclude, paths):
    revision = fake.add_model(ID, FILES)
    pin = await hub.resolve(replace(spec(revision), include=include, exclude=exclude))
    assert [file.path for file in pin.files] == paths
    theirs = filter_repo_objects(list(FILES), allow_patterns=list(include) or None, ignore_patterns=list(exclude))
    assert sorted(theirs) == paths
    fetched = {request.path.rpartition("/")[2] for request in fake.seen("/resolve/")}
    assert fetched <= {path.rpartition("/")[2] for path in paths}


async def test_patterns_that_leave_nothing_are_refused(fake, hub):
    revision = fake.add_model(ID, FILES)
    with pytest.raises(NothingIncluded, match=r"leave none of the 4 files of acme/tiny, such as 'config\.json'"):
        await hub.resolve(replace(spec(revision), include=("*.gguf",)))


BIG = {"type": "file", "path": "raw/big.bin", "oid": "a" * 40, "size": 11 << 20}
MUCH = [{"type": "file", "path": f"raw/{n}.txt", "oid": "a" * 40, "size": 9 << 20} for n in range(6)]
MANY = [{"type": "file", "path": f"raw/{n}.txt", "oid": "a" * 40, "size": 1} for n in range(10)]
NO_HASH = {"type": "file", "path": "raw/odd.txt", "oid": "", "size": 1}


@pytest.mark.parametrize("others", [[BIG], MUCH, MANY, [NO_HASH]])
async def test_limits_are_those_of_the_files_that_the_job_gets(fake, hub, monkeypatch, others):
    monkeypatch.setattr(listing, "MAX_FILES", 5)
    fake.page_size = 3
    revision = fake.add_model(ID, FILES)
    fake.models[ID].extra_tree += others
    for keys in ({"exclude": ("raw/",)}, {"include": ("w*", "*.json", "empty.txt", "sub/")}):
        pin = await hub.resolve(replace(spec(revision), **keys))
        assert [file.path for file in pin.files] == sorted(FILES)
    error = await refusal(hub, revision)
    assert others == [NO_HASH] or "`include`" in error.hint


# --- what is refused, and what the person reads


async def refusal(hub, revision: str, id: str = ID) -> PinNotFound:
    with pytest.raises(PinNotFound) as caught:
        await hub.resolve(spec(revision, id))
    assert TOKEN not in str(caught.value) + caught.value.hint
    return caught.value


async def test_a_revision_that_does_not_exist(fake, hub):
    fake.add_model(ID, FILES)
    error = await refusal(hub, "1" * 40)
    assert error.message == f"acme/tiny has no commit {'1' * 40}."
    assert error.hint.endswith("/acme/tiny/commits/main.")


@pytest.mark.parametrize(("token", "says"), [("", "no token was sent"), (TOKEN, "a token was sent")])
async def test_b085_a_repository_that_is_not_shown_names_the_possibilities(fake, make_hub, token, says):
    if token:
        fake.add_token(token)
    fake.add_model("acme/private", FILES, private=True)
    for hidden in ("acme/none", "acme/private"):
        error = await refusal(make_hub(token), "1" * 40, hidden)
        assert f"does not show {hidden}: it does not exist, has another name, or is private ({says}" in error.message


@pytest.mark.parametrize(("token", "says"), [("", "no token was sent"), (TOKEN, "a token was sent")])
async def test_b085_a_bare_401_names_them_too(fake, make_hub, token, says):
    if token:
        fake.add_token(token)
    revision = fake.add_model(ID, FILES)
    fake.fail_next(401)
    error = await refusal(make_hub(token), revision)
    assert f"does not show {ID}: it does not exist, has another name, or is private ({says}" in error.message


async def test_a_private_model_with_the_right_token(fake, make_hub):
    revision = fake.add_model(ID, FILES, private=True)
    fake.add_token(TOKEN, ID)
    assert len((await make_hub(TOKEN).resolve(spec(revision))).files) == 4


@pytest.mark.parametrize(("token", "says"), [("", "the bot sent no token"), (TOKEN, "has no access to it")])
async def test_b086_a_gated_model_is_refused_before_any_download(fake, make_hub, token, says):
    if token:
        fake.add_token(token)
    revision = fake.add_model(ID, FILES, gated="manual")
    error = await refusal(make_hub(token), revision)
    assert "acme/tiny is gated" in error.message
    assert says in error.message
    assert f"{fake.url}/acme/tiny" in error.hint
    assert [request.path for request in fake.seen("/resolve/", method="HEAD")] == [
        f"/{ID}/resolve/{revision}/weights.safetensors"
    ]
    assert fake.seen("/resolve/") == fake.seen("/repos/") == []


@pytest.mark.parametrize("token", ["", TOKEN])
async def test_at_a_terminal_nobody_is_sent_to_an_administrator(fake, clock, tmp_path, token):
    hub = HuggingFaceHub(fake.url, SecretStr(token), tmp_path, clock, at_terminal=True)
    if token:
        fake.add_token(token)
    gated = await refusal(hub, fake.add_model(ID, FILES, gated="manual"))
    await hub.close()
    assert "administrator" not in gated.hint
    assert "bot" not in gated.message + gated.hint
    assert token or gated.hint.endswith(", then set GPURUN_HUB_TOKEN.")


async def test_a_gated_model_whose_terms_were_accepted(fake, make_hub):
    revision = fake.add_model(ID, FILES, gated="auto")
    fake.add_token(TOKEN, ID)
    assert len((await make_hub(TOKEN).resolve(spec(revision))).files) == 4


async def test_a_disabled_model(fake, hub):
    revision = fake.add_model(ID, FILES)
    fake.models[ID].disabled = True
    assert "has disabled acme/tiny" in (await refusal(hub, revision)).message


async def test_a_token_that_the_hub_does_not_know(fake, make_hub):
    revision = fake.add_model(ID, FILES)
    error = await refusal(make_hub(TOKEN), revision)
    assert error.message == "The hub does not accept the bot's token."


@pytest.mark.parametrize(
    ("status", "says"),
    [(401, "does not show"), (403, "forbids"), (404, "does not show"), (400, "status 400"), (451, "451")],
)
async def test_bare_refusals_are_final(fake, hub, status, says):
    revision = fake.add_model(ID, FILES)
    fake.fail_next(status)
    assert says in (await refusal(hub, revision)).message


@pytest.mark.parametrize(
    ("status", "headers", "retry_after_s"),
    [
        (429, {"RateLimit": '"api";r=0;t=90', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}, 90.0),
        (429, {"Retry-After": "7"}, 7.0),
        (429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        (429, {"Retry-After": "99999999999"}, 3600.0),
        (429, {}, None),
        (503, {"Retry-After": "30", "RateLimit": '"api";r=400;t=90'}, 30.0),
        (500, {}, None),
        (502, {}, None),
        (408, {}, None),
    ],
)
async def test_trouble_of_the_hub_is_transient_and_one_try(fake, hub, clock, status, headers, retry_after_s):
    revision = fake.add_model(ID, FILES)
    fake.fail_next(status, headers=headers)
    with pytest.raises(HubUnavailable, match=str(status)) as caught:
        await hub.resolve(spec(revision))
    assert caught.value.retry_after_s == retry_after_s
    assert len(fake.requests) == 1
    clock.advance(seconds=retry_after_s or 0)
    assert (await hub.resolve(spec(revision))).files


@pytest.mark.parametrize("part", ["/tree/", "weights.safetensors", "config.json"])
async def test_trouble_at_any_step_is_transient(fake, hub, part):
    revision = fake.add_model(ID, FILES)
    fake.fail_next(503, part=part)
    with pytest.raises(HubUnavailable):
        await hub.resolve(spec(revision))


async def test_no_hub_at_all(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        hub = HuggingFaceHub(f"http://127.0.0.1:{closed.getsockname()[1]}", SecretStr(TOKEN), tmp_path, FakeClock())
        with pytest.raises(HubUnavailable, match=r"127\.0\.0\.1 cannot be reached"):
            await hub.resolve(spec("1" * 40))
    await hub.close()


async def test_a_silent_hub_ends_at_the_timeout(fake, make_hub):
    revision = fake.add_model(ID, FILES)
    fake.stall(ID, "config.json", after=2)
    with pytest.raises(HubUnavailable, match=r"longer than 0\.3 s"):
        await make_hub(resolve_timeout_s=0.3).resolve(spec(revision))
    with pytest.raises(HubUnavailable, match="the connection broke"):
        await make_hub(idle_timeout_s=0.2).resolve(spec(revision))


# --- a hub that does not keep its word


@pytest.mark.parametrize("claimed", ["2" * 40, ""])
async def test_another_commit_than_asked_for_is_refused(fake, hub, claimed):
    revision = fake.add_model(ID, FILES)
    fake.models[ID].answers_as = claimed
    assert f"Asked for acme/tiny at {revision}, the hub answered for" in (await refusal(hub, revision)).message


async def test_a_small_file_with_other_bytes_names_both_hashes(fake, hub, tmp_path):
    revision = fake.add_model(ID, FILES)
    fake.corrupt(ID, "config.json")
    error = await refusal(hub, revision)
    assert "config.json of acme/tiny" in error.message
    assert object_id("blob", FILES["config.json"]).hex() in error.message
    fake.repair(ID, "config.json")
    assert (await hub.resolve(spec(revision))).files[0].sha256 == sha256(FILES["config.json"])


async def test_a_small_file_that_breaks_off_is_transient(fake, hub):
    revision = fake.add_model(ID, FILES)
    fake.cut(ID, "config.json", after=3)
    with pytest.raises(HubUnavailable, match=r"config\.json of acme/tiny"):
        await hub.resolve(spec(revision))


async def test_an_lfs_pointer_instead_of_the_file(fake, hub):
    revision = fake.add_model(ID, {"model.weights": pointer_of("a" * 64, 12345)})
    assert "is an LFS pointer, not the file" in (await refusal(hub, revision)).message


BAD_PATHS = ["../x", "/etc/passwd", "a/../b", "a//b", "./a", "a/", "", "a\\b", "a\0b", "a\nb", "x" * 2000, "\u202etxt"]


@pytest.mark.parametrize("path", BAD_PATHS)
async def test_a_path_that_could_leave_its_folder_is_refused(fake, hub, path):
    revision = fake.add_model(ID, FILES)
    fake.models[ID].extra_tree.append({"type": "file", "path": path, "oid": "a" * 40, "size": 1})
    assert "could leave its folder" in (await refusal(hub, revision)).message


@pytest.mark.parametrize("path", ["a", "a/b.txt", "..a", "a..", "ä ö/☃.json", "-rf"])
def test_usual_paths_are_safe(path):
    assert is_safe_path(path)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"oid": "z" * 40, "size": 1}, "no usable hash"),
        ({"oid": "", "size": 1}, "no usable hash"),
        ({"oid": "a" * 40, "size": -1}, "no usable hash"),
        ({"oid": "a" * 40, "size": 1, "lfs": {"oid": "A" * 64, "size": 1, "pointerSize": 1}}, "no usable hash"),
        ({"oid": "a" * 40, "size": 11 << 20}, "is not in LFS"),
    ],
)
async def test_entries_without_a_usable_hash_are_refused(fake, hub, entry, says):
    revision = fake.add_model(ID, FILES)
    fake.models[ID].extra_tree.append({"type": "file", "path": "odd.txt"} | entry)
    assert says in (await refusal(hub, revision)).message


async def test_too_much_outside_of_lfs(fake, hub):
    revision = fake.add_model(ID, FILES)
    fake.models[ID].extra_tree += [
        {"type": "file", "path": f"{n}.txt", "oid": "a" * 40, "size": 9 << 20} for n in range(6)
    ]
    assert "54 MiB outside of LFS" in (await refusal(hub, revision)).message


async def test_a_file_listed_twice(fake, hub):
    revision = fake.add_model(ID, FILES)
    fake.models[ID].extra_tree.append({"type": "file", "path": "config.json", "oid": "a" * 40, "size": 1})
    assert "lists a file twice" in (await refusal(hub, revision)).message


async def test_a_model_without_files(fake, hub):
    revision = fake.add_model(ID, {})
    assert "has no files" in (await refusal(hub, revision)).message


@pytest.mark.parametrize(
    "body", [b"<html>log in</html>", b"{}", b'[{"type": "file"}]', b'[{"type":"file","path":3}]', b"\xff", b""]
)
def test_something_else_than_a_list_is_transient(body):
    with pytest.raises(HubUnavailable, match="no file list"):
        read_page(body)


def test_unknown_fields_of_the_list_are_ignored():
    body = b'[{"type":"file","path":"a","oid":"b","size":1,"xetHash":"c","lastCommit":{"id":"d"}}]'
    assert read_page(body) == [Entry(type="file", path="a", oid="b", size=1)]


@pytest.mark.parametrize("id", ["../../etc", "a/b/c", "a--b/c", "-a/b", "a/b.git", "", "a b/c"])
async def test_an_id_that_is_none_never_leaves_the_machine(fake, hub, id):
    assert "is not the id of a model" in (await refusal(hub, "1" * 40, id)).message
    assert fake.requests == []


async def test_an_endless_list_is_not_read_to_its_end(fake, hub, monkeypatch):
    monkeypatch.setattr(listing, "MAX_FILES", 10)
    fake.page_size = 4
    revision = fake.add_model(ID, {f"{number}.txt": b"x" for number in range(40)})
    with pytest.raises(PinNotFound, match="more than 10 files"):
        await hub.resolve(spec(revision))
    assert len(fake.seen("/tree/")) == 3
