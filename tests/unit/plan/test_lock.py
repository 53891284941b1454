"""`.gpurun.lock`: what is written is read again, and what it pins is what runs."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.domain.errors import ConfigError, PinNotFound
from gpurun.domain.folder import is_safe_path
from gpurun.domain.ids import HubRef, ImageTag, Revision
from gpurun.domain.lock import ImagePin, Lock, LockedFile, LockedImage, LockedModel
from gpurun.domain.plan import ModelFile, ModelPin
from gpurun.plan.load import load
from gpurun.plan.lock import (
    Unpinned,
    lock_again,
    lock_upgraded,
    part_for,
    pinned,
    read_lock,
    require_same_files,
    without_files,
    write_lock,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4
REVISION = Revision("0123456789" * 4)
TAG = ImageTag("ghcr.io/org/app:1.2")
MAIN = HubRef("main")
FILES = (
    LockedFile(path="config.json", size=120, blob="b" * 40),
    LockedFile(path="model.safetensors", size=16_000_000, sha256="a" * 64),
)
IMAGE = LockedImage(ref=TAG, pin=ImagePin(digest=DIGEST, platforms=(("linux/amd64", DIGEST),)), locked_on="2026-12-01")
MODEL = LockedModel(id="org/model", ref=MAIN, revision=REVISION, locked_on="2026-12-01", files=FILES)
LOCK = Lock(images=(IMAGE,), models=(MODEL,))
JOB = f"version: 1\njobs:\n  smoke:\n    image: {TAG}\n    run: x\n    models: [{{id: org/model, target: /w}}]\n"


def job(text=JOB):
    return load(text).jobs["smoke"]


def refused(text):
    with pytest.raises(ConfigError) as caught:
        read_lock(text)
    assert str(caught.value).startswith(f".gpurun.lock:{caught.value.line}:1: ")
    return f"{caught.value.line} {caught.value.message}"


def test_one_entry_a_line_and_the_same_bytes_for_the_same_lock():
    text = write_lock(LOCK)
    assert [next(iter(json.loads(line))) for line in text.splitlines()] == [
        "gpurun_lock",
        "image",
        "model",
        "file",
        "file",
    ]
    assert write_lock(read_lock(text)) == text
    assert read_lock(text) == LOCK
    lines = text.splitlines()
    assert write_lock(read_lock("\n".join([lines[0], *lines[2:], lines[1]]))) == text, "order on disk does not matter"


hexes = st.text("0123456789abcdef", min_size=64, max_size=64)
paths = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(is_safe_path)
files = st.builds(LockedFile, path=paths, size=st.integers(0, 2**50), sha256=hexes) | st.builds(
    LockedFile, path=paths, size=st.integers(0, 9), blob=hexes.map(lambda text: text[:40])
)
models = st.builds(
    LockedModel,
    id=st.sampled_from(["a/b", "org/model", "A.b-c/d_e"]),
    ref=st.sampled_from(["main", "v1.0", "refs/pr/1"]).map(HubRef),
    revision=hexes.map(lambda text: Revision(text[:40])),
    locked_on=st.just("2026-12-01"),
    files=st.lists(files, min_size=1, max_size=3, unique_by=lambda one: one.path).map(
        lambda some: tuple(sorted(some, key=lambda one: one.path))
    ),
)


@given(st.lists(models, max_size=4, unique_by=lambda one: (one.id, one.ref)))
def test_whatever_is_locked_is_read_again(some):
    lock = Lock(models=tuple(sorted(some, key=lambda one: (one.id, one.ref))))
    assert read_lock(write_lock(lock)) == lock


@given(st.text() | st.binary() | st.lists(st.sampled_from(
    ['{"gpurun_lock":1}', "\n", '{"image":"a:b"', ',"digest":1}', "[" * 3000, "{}", '"', "1e999", "\ud800", "NaN",
     '{"file":"x","size":1,"blob":"' + "a" * 40 + '"}', '{"image":["a"]}', '{"model":{}}'])).map("".join))  # fmt: skip
def test_anything_is_a_lock_or_an_error_of_the_file(text):
    try:
        found: object = read_lock(text)
    except ConfigError as error:
        found = (error.file, error.line >= 1)
    assert isinstance(found, Lock) or found == (".gpurun.lock", True)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: "", "1 the file is empty"),
        (lambda text: text.replace("2026-12-01", "2026-99-99", 1), "2 `locked_on` is '2026-99-99', which is no date"),
        (lambda text: text.replace("2026-12-01", "2026-02-30", 1), "2 `locked_on` is '2026-02-30', which is no date"),
        (lambda text: text.replace('"gpurun_lock": 1', '"gpurun_lock": 2'), "1 the first line must be"),
        (lambda text: text.replace(DIGEST, "sha256:1", 1), "2 `digest` is 'sha256:1', which is none"),
        (lambda text: text.replace('"ref"', '"reff"'), "3 the key 'reff' is unknown"),
        (lambda text: text + text.splitlines()[1] + "\n", "6 this entry stands in the file twice"),
        (lambda text: text + text.splitlines()[2] + "\n", "6 this entry stands in the file twice"),
        (lambda text: text.replace("120", "-1"), "4 `size` is no number of bytes"),
        (lambda text: text.replace("120", "9" * 400), "4 `size` is no number of bytes"),
        (lambda text: text.replace("120", str(2**50 + 1)), "4 `size` is no number of bytes"),
        (lambda text: text.replace("config.json", "../config.json"), "4 `file` is '../config.json', which is no path"),
        (lambda text: text.replace("config.json", "\\ud800"), "4 `file` is '\\ud800', which is no path"),
        (lambda text: text.replace("config.json", "a\\u001bb"), "4 `file` is 'a\\x1bb', which is no path"),
        (lambda text: text + text.splitlines()[4] + "\n", "6 this entry stands in the file twice"),
        (lambda text: "\n".join(text.splitlines()[:3]), "3 this model has no `file` line below it"),
        (
            lambda text: text.replace('{"model"', text.splitlines()[2].replace("main", "v1") + "\n" + '{"model"'),
            "3 this model has no `file` line below it",
        ),
        (lambda text: text + "nonsense\n", "6 this line is no JSON object"),
        (lambda text: text + "[1]\n", "6 this line is no JSON object"),
        (lambda text: "\n".join([text.splitlines()[0], text.splitlines()[3]]), "2 this line belongs to nothing"),
        (lambda text: "<<<<<<< ours\n" + text, "1 the file has marks of a merge"),
        (lambda text: text.encode() + b"\xe9", "6 the file is not UTF-8"),
    ],
)
def test_a_broken_lock_says_where(change, told):
    assert told in refused(change(write_lock(LOCK)))


def test_a_broken_lock_says_to_delete_a_whole_entry():
    """A `file` line that is deleted alone would stay away: what is pinned is not looked up again."""
    with pytest.raises(ConfigError) as caught:
        read_lock(write_lock(LOCK).replace("120", "-1"))
    assert "the entry (a `model` line with all `file` lines below it)" in caught.value.hint


def test_b102_an_image_by_tag_is_its_digest_or_nothing():
    found = pinned(job(), LOCK)
    assert found.images == (f"{TAG}@{DIGEST}",)
    assert [(spec.id, spec.revision, spec.target) for spec in found.models] == [("org/model", REVISION, "/w")]
    with pytest.raises(Unpinned, match=r"The image ghcr.io/org/app:1.2 is not pinned, and can move") as caught:
        pinned(job(), replace(LOCK, images=()))
    assert "gpurun lock" in caught.value.hint
    with pytest.raises(Unpinned, match=r"The image .* and the model org/model at main are not pinned") as caught:
        pinned(job(), Lock())
    assert (caught.value.images, caught.value.models) == ((TAG,), (("org/model", MAIN),))
    with pytest.raises(Unpinned) as caught:
        pinned(job(), Lock(), folder="sub")
    paste, instead = caught.value.hint.splitlines()
    assert paste == "Run `gpurun lock sub/.gpurun.yml` and commit `sub/.gpurun.lock`."
    assert instead == (
        "Or write in `sub/.gpurun.yml` what cannot move: `image: ghcr.io/org/app@sha256:<digest>` (`docker buildx "
        "imagetools inspect ghcr.io/org/app:1.2` prints the digest) and `revision: <commit>` for org/model (40 hex "
        "digits, from the hub)."
    )


def test_a_command_to_paste_holds_nothing_that_a_shell_would_run():
    """Whoever opens the pull request has named the folder."""
    assert lock_again("a;b$(c)").startswith("Run `gpurun lock 'a;b$(c)/.gpurun.yml'` ")
    assert lock_upgraded("a&b").startswith("`gpurun lock 'a&b/.gpurun.yml' --upgrade` ")


def test_another_tag_or_branch_is_another_entry():
    for text in (JOB.replace(":1.2", ":1.3"), JOB.replace("org/model", "org/model, revision: v2")):
        with pytest.raises(Unpinned):
            pinned(job(text), LOCK)


def test_what_the_file_pins_itself_needs_no_lock():
    own = job(JOB.replace(str(TAG), f"{TAG}@{DIGEST}").replace("org/model", f"org/model, revision: '{REVISION}'"))
    assert not own.needs_lock
    assert pinned(own, Lock()) == pinned(job(), LOCK)
    assert job().needs_lock


def test_a_row_holds_what_the_job_needs():
    more = Lock(images=(IMAGE, replace(IMAGE, ref=ImageTag("other:1"))), models=(MODEL, replace(MODEL, id="a/b")))
    assert part_for(job(), more) == LOCK
    assert without_files(LOCK).models[0].files == ()


def test_the_hub_must_list_what_the_lock_has_seen():
    listed = (
        ModelFile(path="config.json", size=120, sha256="c" * 64, etag="b" * 40),
        ModelFile(path="model.safetensors", size=16_000_000, sha256="a" * 64, etag="a" * 64),
    )
    pin = ModelPin(id="org/model", revision=REVISION, files=listed)
    require_same_files(LOCK, pin)
    for odd in (listed[:1], (*listed, replace(listed[0], path="more.json")), (listed[0], replace(listed[1], size=1))):
        with pytest.raises(PinNotFound, match=r"otherwise than `.gpurun.lock` of 2026-12-01"):
            require_same_files(LOCK, replace(pin, files=odd))
    require_same_files(LOCK, replace(pin, revision=Revision("f" * 40), files=())), "another commit is another list"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("9C41AB07", HubRef("9c41ab07")), ("9C41AB07" * 5, Revision("9c41ab07" * 5)), ("9c41ab", HubRef("9c41ab"))],
)
def test_b084_upper_case_is_normalised_and_a_short_id_needs_the_lock(written, meant):
    (model,) = job(JOB.replace("target: /w", f"revision: {written}")).models
    assert (type(model.ref), model.ref) == (type(meant), meant)


@pytest.mark.parametrize(
    ("models", "refs"),
    [
        ("{id: org/model}", [("main",)]),
        (f"{{id: org/model, revision: '{REVISION}'}}", [("main",)]),
        ("{id: org/model, revision: v1.0}", [("v1.0",)]),
        ("{id: org/model, revision: 0123456}", [("main", "0123456")]),
        (f"{{id: org/model}}, {{id: org/model, revision: '{REVISION}'}}", [("main",), ()]),
        (f"{{id: org/model, revision: v1.0}}, {{id: org/model, revision: '{REVISION}'}}", [("v1.0",), ("main",)]),
        (f"{{id: org/model, revision: '{REVISION}'}}, {{id: org/model, revision: '{'1' * 40}'}}", [(), ()]),
        (f"{{id: org/model, revision: '{REVISION}'}}, {{id: org/two, revision: '{'1' * 40}'}}", [("main",), ("main",)]),
    ],
)
def test_a_revision_has_the_name_that_is_written_and_a_commit_is_main_where_nothing_else_can_be(models, refs):
    names = (replace(MODEL, ref=HubRef(ref)) for ref in ("main", "v1.0", "0123456"))
    found = pinned(job(JOB.replace("{id: org/model, target: /w}", models)), replace(LOCK, models=tuple(names)))
    assert [spec.refs for spec in found.models] == refs


DATA = replace(MODEL, kind="dataset", revision=Revision("1" * 40))


def test_a_data_set_is_pinned_beside_the_model_of_its_name():
    both = Lock(images=(IMAGE,), models=(MODEL, DATA))
    text = write_lock(both)
    assert '{"dataset": "org/model", "ref": "main", "revision": "1111' in text
    assert read_lock(text) == both
    one = job(JOB + "    datasets: [{id: org/model, include: ['*.json']}]\n")
    assert part_for(one, both) == both
    model, data = pinned(one, both).models
    assert (model.kind, model.revision, data.kind, data.revision) == ("model", REVISION, "dataset", DATA.revision)
    with pytest.raises(Unpinned, match="The data set org/model at main is not pinned"):
        pinned(one, LOCK)


@pytest.mark.parametrize("file", ["", b"\x00\xff\x80"])
def test_nothing_of_an_empty_or_binary_file_is_worth_keeping(file):
    with pytest.raises(ConfigError) as caught:
        read_lock(file)
    assert caught.value.hint == "Delete the file and run `gpurun lock`, which writes it anew."


def test_a_byte_order_mark_is_no_fault():
    text = write_lock(Lock(images=(IMAGE,)))
    assert read_lock(("\ufeff" + text).encode()) == read_lock(text)


def test_a_digest_that_its_own_platforms_contradict():
    """What lists several manifests is none of them; one manifest alone is its own list."""
    others = (("linux/amd64", DIGEST), ("linux/arm64", f"sha256:{'b' * 64}"))
    read_lock(write_lock(Lock(images=(IMAGE,))))
    with pytest.raises(ConfigError, match="`digest` is that of one of its `platforms`") as caught:
        read_lock(write_lock(Lock(images=(replace(IMAGE, pin=replace(IMAGE.pin, platforms=others)),))))
    assert caught.value.line == 2
