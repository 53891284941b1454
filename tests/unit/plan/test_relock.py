"""What a lock should hold, and what becomes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.domain.ids import HubRef, ImageTag, Revision
from gpurun.domain.lock import ImagePin, Lock, LockedFile, LockedImage, LockedModel
from gpurun.plan.load import load
from gpurun.plan.lock import read_lock, write_lock
from gpurun.plan.relock import (
    ModelName,
    Row,
    difference,
    entry_of,
    jobs_that_want,
    names_in,
    renewed,
    to_look_up,
    wanted_by,
)

APP, BASE = ImageTag("ghcr.io/org/app:1.2"), ImageTag("ghcr.io/org/base")
MAIN, V1 = (ModelName(is_dataset=False, id="org/model", ref=HubRef(ref)) for ref in ("main", "v1"))
WORDS = ModelName(is_dataset=True, id="org/model", ref=HubRef("main"))
CONFIG = load(f"""\
version: 1
jobs:
  smoke:
    image: {APP}
    run: "true"
    models: [{{id: org/model}}, {{id: org/other, revision: {"a" * 40}}}]
  train:
    image: {APP}
    run: "true"
    models: [{{id: org/model, revision: v1}}]
  pinned:
    image: ghcr.io/org/app@sha256:{"b" * 64}
    run: "true"
""")


def image(ref=APP, digit="1", day="2026-11-01"):
    return LockedImage(ref=ref, pin=ImagePin(digest=f"sha256:{digit * 64}"), locked_on=day)


def model(name=MAIN, digit="1", day="2026-11-01"):
    file = LockedFile(path="a", size=1, blob=digit * 40)
    return LockedModel(
        id=name.id, kind=name.kind, ref=name.ref, revision=Revision(digit * 40), locked_on=day, files=(file,)
    )


FULL = Lock(images=(image(),), models=(model(MAIN), model(V1)))


def test_what_the_file_pins_itself_is_not_locked_and_the_rest_once():
    assert wanted_by(CONFIG.jobs.values()) == (APP, MAIN, V1)
    assert jobs_that_want(APP, CONFIG) == ("smoke", "train")
    assert jobs_that_want(V1, CONFIG) == ("train",)


def test_what_is_missing_and_what_is_there_in_vain():
    lock = Lock(images=(image(BASE),), models=(model(V1),))
    found = difference(CONFIG, lock)
    assert found.missing == (APP, MAIN)
    assert found.unneeded == (BASE,)
    assert difference(CONFIG, FULL) == difference(CONFIG, FULL).__class__(missing=(), unneeded=())


def test_a_locked_name_is_not_looked_up_again_unless_its_job_is_upgraded():
    assert to_look_up(CONFIG, Lock(), ()) == (APP, MAIN, V1)
    assert to_look_up(CONFIG, FULL, ()) == ()
    assert to_look_up(CONFIG, FULL, ("smoke",)) == (APP, MAIN)
    assert to_look_up(CONFIG, FULL, ("pinned",)) == ()
    assert to_look_up(CONFIG, FULL, tuple(CONFIG.jobs)) == (APP, MAIN, V1)
    without_v1 = Lock(images=FULL.images, models=FULL.models[:1])
    assert to_look_up(CONFIG, without_v1, ("smoke",)) == (APP, MAIN, V1)


def test_new_moved_kept_and_dropped():
    lock = Lock(images=(image(), image(BASE)), models=(model(MAIN),))
    found = {APP: image(digit="2", day="2026-12-01"), MAIN: model(day="2026-12-01"), V1: model(V1, "3", "2026-12-01")}
    after, rows = renewed(CONFIG, lock, found)
    assert rows == (
        Row(name=APP, before=image(), after=found[APP]),
        Row(name=MAIN, before=model(), after=model()),
        Row(name=V1, before=None, after=found[V1]),
        Row(name=BASE, before=image(BASE), after=None, is_needed=False),
    )
    assert after == Lock(images=(found[APP],), models=(model(), found[V1]))


def test_a_name_that_was_not_found_keeps_what_it_has():
    after, rows = renewed(CONFIG, Lock(images=(image(),)), {})
    assert after == Lock(images=(image(),))
    assert [(row.before, row.after) for row in rows] == [(image(), image()), (None, None), (None, None)]


entries = st.builds(
    lambda images, models: Lock(images=tuple(images), models=tuple(models)),
    st.lists(
        st.builds(image, st.sampled_from([APP, BASE]), st.sampled_from("12"), st.just("2026-11-01")),
        unique_by=lambda entry: entry.ref,
    ),
    st.lists(
        st.builds(model, st.sampled_from([MAIN, V1, WORDS, ModelName(is_dataset=False, id="z/z", ref=HubRef("main"))])),
        unique_by=lambda e: (e.id, e.ref),
    ),
)


@given(entries)
def test_afterwards_nothing_is_missing_or_in_vain_and_what_stays_is_the_same_bytes(lock):
    names = to_look_up(CONFIG, lock, ())
    found = {name: image(name, "9") if isinstance(name, ImageTag) else model(name, "9") for name in names}
    after, _ = renewed(CONFIG, lock, found)
    assert set(names_in(after)) == set(wanted_by(CONFIG.jobs.values()))
    assert to_look_up(CONFIG, after, ()) == ()
    assert renewed(CONFIG, after, {})[0] == after == read_lock(write_lock(after))
    before_lines = write_lock(lock).splitlines()
    for name in set(names_in(lock)) & set(names_in(after)):
        assert entry_of(after, name) == entry_of(lock, name)
    kept = [line for line in write_lock(after).splitlines() if "9" * 40 not in line]
    assert set(kept) <= set(before_lines)


@pytest.mark.parametrize("name", [APP, MAIN])
def test_names_read_as_people_say_them(name):
    assert str(name) in {"ghcr.io/org/app:1.2", "org/model at main"}
