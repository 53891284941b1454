"""Parts as values."""

import copy
import pickle

import pytest

from gpurun.domain.config import Job, JobKeys, LimitKeys, MaxKeys, PolicyKeys
from gpurun.domain.config_values import TEXT
from gpurun.domain.ids import ImageTag
from gpurun.domain.part import Part, key


class Box(Part, place="box"):
    label: str = key(TEXT)
    note: str = key(TEXT, default="")


class Crate(Box):
    note: str = key(TEXT)


def test_what_is_left_out_is_equal_to_its_default():
    assert Box(label="a") == Box(label="a", note="")
    assert Box(label="a") != Box(label="b")
    assert Box(label="a") != Crate(label="a", note="")
    assert PolicyKeys() == PolicyKeys(images=None, max=MaxKeys())
    assert PolicyKeys() != PolicyKeys(images=())


def test_only_what_is_written_goes_over_something_else():
    assert Box(label="a", note="x") | Box(label="b") == Box(label="b", note="x")
    assert LimitKeys(max_duration=60) | LimitKeys() == LimitKeys(max_duration=60)


def test_a_part_is_frozen_and_can_be_copied():
    box = Box(label="a")
    with pytest.raises(AttributeError, match="Box is frozen"):
        box.note = "x"
    assert copy.deepcopy(box) == box
    limits = LimitKeys(max_duration=60)
    assert pickle.loads(pickle.dumps(limits)) == limits
    assert repr(box) == "Box(label='a')"


def test_keys_go_on_in_parts_made_from_others_and_may_become_required():
    assert (list(Box.KEYS), Box.REQUIRED) == (["label", "note"], ("label",))
    assert (list(Crate.KEYS), Crate.REQUIRED, Crate.PLACE) == (["label", "note"], ("label", "note"), "box")
    assert (list(Job.KEYS), Job.REQUIRED) == (list(JobKeys.KEYS), ("run",))
    assert Job(image=ImageTag("a:1"), run="x").env == {}
