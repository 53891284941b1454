"""Resolving and digests. The golden files in `tests/data/plans` never change: stored digests must stay true."""

import json
from dataclasses import MISSING, Field, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.domain.errors import Bug, PinNotFound
from gpurun.domain.ids import CommitSha, JobName, RepoName, TreeSha
from gpurun.domain.lock import Lock
from gpurun.domain.plan import ModelPin, Plan, Resources
from gpurun.domain.run import Pins
from gpurun.domain.source import Submodule
from gpurun.plan.digest import canonical, digest, result_key
from gpurun.plan.load import load
from gpurun.plan.lock import pinned
from gpurun.plan.resolve import MAX_LISTED_BYTES, ConfirmImage, FetchCommit, ResolveModel, build, missing_pins
from tests.unit.plan.golden import COMMIT, FILES, FULL, GOLDEN, IMAGE, LEAST, PLANS, REPO, REVISION, TREE


def pin(model_id, target=None):
    return ModelPin(id=model_id, revision=REVISION, target=target, files=FILES)


def plan(text: str, models=()) -> Plan:
    job = load(text).jobs["smoke"]
    pins = Pins(tree=TREE, image_confirmed=True, models=models)
    return build(repo=REPO, sha=COMMIT, job_name=JobName("smoke"), job=job, pins=pins)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_golden_digests(name):
    golden = json.loads((PLANS / f"{name}.json").read_text(encoding="utf-8"))
    assert json.loads(canonical(GOLDEN[name])) == golden["canonical"]
    assert digest(GOLDEN[name]) == golden["digest"]
    assert result_key(GOLDEN[name]) == golden["result_key"]


def test_every_plan_on_disk_is_checked():
    assert {path.stem for path in PLANS.glob("*.json")} == set(GOLDEN)
    assert len(GOLDEN) >= 30


def test_the_golden_plans_cover_every_field_and_its_default():
    """`least` leaves out what can be left out, so it holds every default; of each field there is another value too."""
    for whole, values in ((Plan, list(GOLDEN.values())), (Resources, [one.resources for one in GOLDEN.values()])):
        (least,) = [value for name, value in zip(GOLDEN, values, strict=True) if name == "least"]
        for field in fields(whole):
            if field.name in ("commit", "tree"):
                continue  # one for all: whatever has a plan has them, and another test changes them
            if (default := default_of(field)) is not MISSING:
                assert getattr(least, field.name) == default, field.name
            assert any(getattr(one, field.name) != getattr(least, field.name) for one in values), field.name


def default_of(field: Field[object]) -> object:
    """MISSING when there is none."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def test_only_plans_that_say_the_same_have_the_same_digest():
    by_digest: dict[str, set[str]] = {}
    for name, one in GOLDEN.items():
        by_digest.setdefault(digest(one), set()).add(name)
    assert [names for names in by_digest.values() if len(names) > 1] == [{"least", "kind-verify"}]


def test_commit_image_and_one_model_are_resolved_together():
    job = load(FULL).jobs["smoke"]
    first, second = pinned(job, Lock()).models
    pins = Pins()
    assert missing_pins(job, pins) == (FetchCommit(), ConfirmImage(job.image), ResolveModel(first))
    pins = replace(pins, image_confirmed=True, models=(pin("org/model", "/weights"),))
    assert missing_pins(job, pins) == (FetchCommit(), ResolveModel(second))
    pins = replace(pins, tree=TREE, models=(*pins.models, pin("org/two")))
    assert missing_pins(job, pins) == ()


@pytest.mark.parametrize(
    "pins",
    [
        Pins(),
        Pins(tree=TREE, image_confirmed=True, models=(pin("org/model", "/weights"),)),
        Pins(tree=TREE, image_confirmed=True, models=(pin("org/two"), pin("org/model", "/weights"))),
        Pins(tree=TREE, image_confirmed=True, models=(pin("org/model"), pin("org/two"))),
    ],
)
def test_a_plan_with_missing_or_foreign_pins_is_a_bug(pins):
    with pytest.raises(Bug):
        build(repo=REPO, sha=COMMIT, job_name=JobName("smoke"), job=load(FULL).jobs["smoke"], pins=pins)


def changed(**fields):
    return replace(GOLDEN["full"], **fields)


@pytest.mark.parametrize(
    "other",
    [
        changed(repo=RepoName("org/other")),
        changed(job=JobName("eval")),
        changed(image=type(GOLDEN["full"].image)(IMAGE.replace("0123", "ffff"))),
        changed(run="true"),
        changed(setup=""),
        changed(workdir="sub"),
        changed(secrets=("HF_TOKEN",)),
        changed(env=(("SEED", "1"),)),
        changed(models=GOLDEN["full"].models[:1]),
        changed(models=GOLDEN["full"].models[::-1]),
        changed(models=(replace(GOLDEN["full"].models[0], files=FILES[:1]), GOLDEN["full"].models[1])),
        changed(models=(replace(GOLDEN["full"].models[0], target=None), GOLDEN["full"].models[1])),
        changed(resources=replace(GOLDEN["full"].resources, gpus=1)),
        changed(resources=replace(GOLDEN["full"].resources, cpus=0.25)),
        changed(max_duration_s=60),
        changed(artifacts=()),
        changed(submodules=(Submodule(path="a", url="", commit=COMMIT),)),
        changed(lfs=True),
        changed(git=True),
    ],
)
def test_everything_that_decides_the_result_is_in_both_digests(other):
    assert digest(other) != digest(GOLDEN["full"])
    assert result_key(other) != result_key(GOLDEN["full"])


def test_commit_and_tree_stand_in_for_each_other():
    other_commit = replace(GOLDEN["full"], commit=CommitSha("d" * 40))
    assert digest(other_commit) != digest(GOLDEN["full"])
    assert result_key(other_commit) == result_key(GOLDEN["full"])
    other_tree = replace(GOLDEN["full"], tree=TreeSha("8" * 40))
    assert result_key(other_tree) != result_key(GOLDEN["full"])


@given(st.permutations(FULL.splitlines()[3:]), st.permutations(["SEED: '0'", "REGION: 'NO'", "TEXT: 'ü ∑'"]),
       st.permutations(FILES))  # fmt: skip
def test_no_order_of_keys_or_files_changes_a_digest(lines, env, files):
    head = "\n".join(FULL.splitlines()[:3])
    lines = [f"    env: {{{', '.join(env)}}}" if line.lstrip().startswith("env") else line for line in lines]
    models = tuple(replace(model, files=tuple(files)) for model in GOLDEN["full"].models)
    shuffled = plan("\n".join([head, *lines, ""]), models)
    assert digest(shuffled) == digest(GOLDEN["full"])
    assert result_key(shuffled) == result_key(GOLDEN["full"])


PARTS = {
    "image": IMAGE,
    "run": "python smoke.py",
    "setup": "make",
    "workdir": "sub",
    "kind": "batch",
    "secrets": ["B", "A"],
    "artifacts": ["out/**"],
    "env": {"SEED": "0", "REGION": "NO"},
    "resources": {"gpu": "24GB:2", "memory": "32GB"},
    "limits": {"max_duration": "2h"},
}
WHOLE = plan(json.dumps({"version": "1", "jobs": {"smoke": PARTS}}))


@st.composite
def files_of_the_same_job(draw) -> str:
    """Each key in the job or in `defaults`, those of mappings one by one, and all in any order."""
    job: dict[str, object] = {}
    defaults: dict[str, object] = {}
    for key in draw(st.permutations(list(PARTS))):
        value = PARTS[key]
        if isinstance(value, dict):
            for inner in draw(st.permutations(list(value))):
                draw(st.sampled_from([job, defaults])).setdefault(key, {})[inner] = value[inner]
        else:
            draw(st.sampled_from([job, defaults]))[key] = value
            if key in job and draw(st.booleans()):
                defaults[key] = "other/x" if isinstance(value, str) and key != "kind" else value
    file = {"version": "1", "defaults": defaults, "jobs": {"smoke": job}}
    return json.dumps({key: file[key] for key in draw(st.permutations(list(file)))})


@given(files_of_the_same_job())
def test_neither_order_nor_where_a_value_came_from_changes_a_digest(text):
    assert digest(plan(text)) == digest(WHOLE)
    assert result_key(plan(text)) == result_key(WHOLE)


def test_defaults_written_out_change_no_digest():
    written = LEAST + "    setup: ''\n    env: {}\n    models: []\n    limits: {max_duration: 30m}\n    artifacts: []\n"
    assert digest(plan(written)) == digest(GOLDEN["least"])
    elsewhere = f"version: 1\ndefaults: {{image: '{IMAGE}'}}\njobs: {{smoke: {{run: python smoke.py}}}}\n"
    assert digest(plan(elsewhere)) == digest(GOLDEN["least"])


def test_the_file_lists_of_a_job_are_short_enough_for_a_row_and_for_the_agent():
    many = tuple(replace(FILES[0], path=f"{number:0100}") for number in range(6_000))
    models = [replace(pin("org/model", "/weights"), files=many), replace(pin("org/two"), files=many)]
    with pytest.raises(PinNotFound, match="12,000 files"):
        plan(FULL, tuple(models))
    fits = tuple(replace(model, files=many[:4_000]) for model in models)
    told = sum(len(f"0\0{f.size}\0{f.sha256}\0{f.etag}\0{f.path}") for m in plan(FULL, fits).models for f in m.files)
    assert told < MAX_LISTED_BYTES


def test_who_reads_the_image_is_no_part_of_a_plan():
    """As with the provider: the bytes are the same."""
    text = LEAST + "    registry: {username: ci, password: REGISTRY_TOKEN}\n"
    assert plan(text) == GOLDEN["least"]
