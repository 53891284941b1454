"""The files of models as `.gpurun.lock` lists them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpurun.domain.errors import NothingIncluded
from gpurun.domain.ids import HubRef, Revision
from gpurun.domain.lock import Lock, LockedFile, LockedModel
from gpurun.domain.plan import ModelFile, ModelSpec
from gpurun.plan.locked import files_of, pin_of, small_files

REVISION = Revision("1" * 40)
SMALL = LockedFile(path="config.json", size=665, blob="2" * 40)
LARGE = LockedFile(path="model.safetensors", size=16_000_000, sha256="a" * 64)
ENTRY = LockedModel(id="org/model", ref=HubRef("main"), revision=REVISION, locked_on="2026-12-01", files=(SMALL, LARGE))
SPEC = ModelSpec(id="org/model", revision=REVISION, target="/weights")


def test_the_entry_is_found_by_revision_whatever_it_was_called():
    without = LockedModel(id="org/model", ref=HubRef("a"), revision=REVISION, locked_on="2026-12-01")
    assert files_of(SPEC, Lock(models=(without, ENTRY))) is ENTRY
    assert files_of(SPEC, Lock(models=(without,))) is None
    assert files_of(ModelSpec(id="org/model", revision=Revision("3" * 40)), Lock(models=(ENTRY,))) is None
    assert files_of(ModelSpec(id="org/other", revision=REVISION), Lock(models=(ENTRY,))) is None


def test_a_small_file_has_a_hash_only_when_somebody_knows_its_bytes():
    assert small_files(SPEC, ENTRY) == {"2" * 40: 665}
    large = ModelFile(path="model.safetensors", size=16_000_000, sha256="a" * 64, etag="a" * 64)
    for known, sha256 in (({}, ""), ({"2" * 40: "b" * 64}, "b" * 64)):
        pin = pin_of(SPEC, ENTRY, known)
        assert (pin.id, pin.revision, pin.target) == (SPEC.id, SPEC.revision, SPEC.target)
        assert pin.files == (ModelFile(path="config.json", size=665, sha256=sha256, etag="2" * 40), large)


def test_a_pin_has_the_wanted_files_of_the_whole_list():
    weights = replace(SPEC, include=("*.safetensors",))
    assert small_files(weights, ENTRY) == {}
    assert [file.path for file in pin_of(weights, ENTRY, {}).files] == ["model.safetensors"]
    with pytest.raises(NothingIncluded, match=r"leave none of the 2 files of org/model, such as 'config\.json'"):
        pin_of(replace(SPEC, exclude=("*",)), ENTRY, {})
