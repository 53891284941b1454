"""How plans differ: everything that is in a digest, beside commit and tree."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from gpurun.domain.build import BuildPlan
from gpurun.domain.ids import CommitSha, ImageRef, JobName, RepoName, Revision, TreeSha
from gpurun.domain.plan import ModelFile, ModelPin, Plan, Resources, SetupInput
from gpurun.domain.source import GitTag, Submodule
from gpurun.plan.diff import Change, Group, changes, needs_files

OLD, NEW = Revision("1" * 40), Revision("2" * 40)
CONFIG = ModelFile(path="config.json", size=120, sha256="b" * 64, etag="b" * 40)
WEIGHTS = ModelFile(path="model.safetensors", size=16_000_000, sha256="a" * 64, etag="a" * 64)
MODEL = ModelPin(id="org/model", revision=OLD, target=None, files=(CONFIG, WEIGHTS))
PLAN = Plan(
    repo=RepoName("org/app"),
    commit=CommitSha("c" * 40),
    tree=TreeSha("7" * 40),
    job=JobName("smoke"),
    image=ImageRef("app@sha256:" + "0" * 64),
    run="python a.py",
    setup="make",
    workdir="sub",
    secrets=("A", "B"),
    env=(("SEED", "0"), ("X", "1")),
    models=(MODEL,),
    resources=Resources(gpus=1, cpus=0.5),
    max_duration_s=60,
    artifacts=("a", "b"),
)
BUILD = BuildPlan(
    inputs_sha256="1" * 64, dockerfile="Dockerfile", context="", text="FROM a", context_sha256="2" * 64, target="gpu"
)


def told(**other) -> list[tuple[str, object, object]]:
    found = changes(PLAN, replace(PLAN, **other))
    return [(".".join((one.group, *one.name)), one.before, one.after) for one in found]


def test_the_same_plan_at_another_commit_does_not_differ():
    assert told(commit=CommitSha("d" * 40), tree=TreeSha("8" * 40)) == []


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"image": ImageRef("app@sha256:" + "1" * 64)}, [("image", PLAN.image, "app@sha256:" + "1" * 64)]),
        ({"run": "true"}, [("run", "python a.py", "true")]),
        ({"setup": ""}, [("setup", "make", None)]),
        ({"workdir": ""}, [("workdir", "sub", None)]),
        ({"env": (("SEED", "1"), ("Y", ""))}, [("env.SEED", "0", "1"), ("env.X", "1", None), ("env.Y", None, "")]),
        ({"secrets": ("B", "C")}, [("secrets.A", "A", None), ("secrets.C", None, "C")]),
        ({"resources": Resources(gpus=2)}, [("resources.cpus", 0.5, None), ("resources.gpus", 1, 2)]),
        ({"max_duration_s": 90}, [("limits.max_duration_s", 60, 90)]),
        ({"artifacts": ("a",)}, [("artifacts.b", "b", None)]),
        ({"artifacts": ("b", "a")}, [("artifacts.order", "a, b", "b, a")]),
        ({"models": ()}, [("models.org/model.revision", OLD, None)]),
        ({"models": (replace(MODEL, target="/w"),)}, [("models.org/model.target", None, "/w")]),
        ({"models": (MODEL, MODEL)}, [("models.org/model#2.revision", None, OLD)]),
    ],
)
def test_each_field(other, expected):
    assert told(**other) == expected


def test_every_field_of_a_plan_is_compared():
    others = {
        "image": ImageRef("b@sha256:" + "0" * 64),
        "build": BUILD,
        "run": "b",
        "setup": "b",
        "workdir": "b",
        "secrets": ("C",),
        "env": (),
        "models": (),
        "resources": Resources(),
        "max_duration_s": 1,
        "artifacts": (),
        "submodules": (Submodule(path="a", url="", commit=CommitSha("1" * 40)),),
        "lfs": True,
        "setup_inputs": (SetupInput(path="a", mode="100644", blob="1" * 40),),
        "git": True,
        "tags": (GitTag(name="v1", object=CommitSha("1" * 40), commit=CommitSha("1" * 40)),),
    }
    assert set(others) | {"repo", "commit", "tree", "job"} == {field.name for field in fields(Plan)}
    assert [name for name, value in others.items() if not told(**{name: value})] == []
    asked = {field.name: 1 for field in fields(Resources)}
    assert {
        one.name[0]
        for one in changes(replace(PLAN, resources=Resources()), replace(PLAN, resources=Resources(**asked)))
    } == set(asked)


def test_inputs_of_builds_are_told_one_by_one():
    one, other = ImageRef("a:1@sha256:" + "0" * 64), ImageRef("a:1@sha256:" + "1" * 64)
    after = replace(BUILD, context_sha256="3" * 64, text="FROM b", target="", args=(("A", "1"),), images=(other,))
    a = replace(PLAN, image=None, build=replace(BUILD, images=(one,)))
    b = replace(PLAN, image=None, build=replace(after, inputs_sha256="4" * 64))
    names = [".".join((change.group, *change.name)) for change in changes(a, b)]
    assert names == ["image", "build.Dockerfile", "build.a:1", "build.context", "build.target", "build.arg A"]


def test_files_of_another_revision_are_told_with_their_sizes():
    more = ModelFile(path="new.bin", size=5, sha256="", etag="e" * 40)
    files = (replace(CONFIG, size=130, etag="d" * 40, sha256=""), more)
    found = changes(PLAN, replace(PLAN, models=(replace(MODEL, revision=NEW, files=files),)))
    assert [(one.name[1:], one.before, one.after, one.size_before, one.size_after) for one in found] == [
        (("revision",), OLD, NEW, None, None),
        (("files", "config.json"), "b" * 40, "d" * 40, 120, 130),
        (("files", "model.safetensors"), "a" * 64, None, 16_000_000, None),
        (("files", "new.bin"), None, "e" * 40, None, 5),
    ]


def test_a_small_file_without_sha256_is_the_same_file():
    unhashed = replace(MODEL, files=(replace(CONFIG, sha256=""), WEIGHTS))
    assert told(models=(unhashed,)) == []


def test_files_that_one_side_does_not_list_are_not_compared():
    bare = replace(MODEL, files=())
    assert told(models=(bare,)) == []
    assert not needs_files(PLAN, replace(PLAN, models=(bare,)))
    newer = replace(PLAN, models=(replace(bare, revision=NEW),))
    assert changes(PLAN, newer) == (Change(group=Group.MODELS, name=("org/model", "revision"), before=OLD, after=NEW),)
    assert needs_files(PLAN, newer)
    assert needs_files(newer, PLAN)
    assert not needs_files(PLAN, replace(PLAN, models=()))


def test_models_in_another_order_are_another_plan():
    two = replace(MODEL, id="org/two")
    a, b = replace(PLAN, models=(MODEL, two)), replace(PLAN, models=(two, MODEL))
    assert changes(a, b) == (
        Change(group=Group.MODELS, name=("order",), before="org/model, org/two", after="org/two, org/model"),
    )
