"""Arguments of a command narrow a job, and never widen it."""

import pytest

from gpurun.domain.errors import TooWide
from gpurun.domain.narrow import Narrow, asked_alike, numbered
from gpurun.plan.load import load
from gpurun.plan.narrow import narrowed

DIGEST = "a" * 64


def a_job(keys=""):
    text = f'version: 1\njobs:\n  smoke: {{image: "ghcr.io/acme/app@sha256:{DIGEST}", run: x{keys}}}\n'
    return load(text).jobs["smoke"]


def gpus(job):
    needs = job.needs()
    return needs.gpus, needs.vram_min_mib // 1024, needs.vram_max_mib // 1024


def test_nothing_asked_is_the_job_itself():
    job = a_job(", resources: {gpu: 24GB}")
    assert narrowed(job, Narrow(max_usd_micro=1, number=2, of=3, batch="b")) == job


@pytest.mark.parametrize(
    ("asked", "typed", "result"),
    [
        ("1", "24GB", (1, 24, 0)),
        ("1", "24GB..48GB", (1, 24, 48)),
        ("1", "1", (1, 0, 0)),
        ("24GB..80GB", "40GB", (1, 40, 80)),
        ("24GB..80GB", "..40GB", (1, 24, 40)),
        ("24GB..80GB", "1", (1, 24, 80)),
        ("24GB..80GB:2", "40GB", (2, 40, 80)),
        ("24GB..80GB:2", "40GB..48GB:2", (2, 40, 48)),
        ("24GB", "80GB", (1, 80, 0)),
    ],
)
def test_gpus_within_what_the_job_asks(asked, typed, result):
    assert gpus(narrowed(a_job(f', resources: {{gpu: "{asked}", memory: 1GB}}'), Narrow(gpu=typed))) == result


@pytest.mark.parametrize(
    ("asked", "typed"),
    [
        ("1", "2"),
        ("1", "0"),
        ("2", "1"),
        ("24GB..80GB", "16GB"),
        ("24GB..80GB", "24GB..96GB"),
        ("24GB..80GB", "96GB"),
        ("24GB..80GB", "..16GB"),
        ("24GB", "40GB:2"),
        ("24GB:2", "40GB:1"),
    ],
)
def test_gpus_beyond_it_are_refused(asked, typed):
    with pytest.raises(TooWide, match="is not within what the job asks for"):
        narrowed(a_job(f', resources: {{gpu: "{asked}"}}'), Narrow(gpu=typed))


def test_a_job_without_gpus_gets_none():
    with pytest.raises(TooWide, match="asks for no GPU"):
        narrowed(a_job(), Narrow(gpu="1"))


def test_a_provider_of_those_that_the_job_names():
    assert narrowed(a_job(), Narrow(provider="docker")).providers == ("docker",)
    assert narrowed(a_job(", providers: [docker]"), Narrow(provider="docker")).providers == ("docker",)
    with pytest.raises(TooWide, match="is none of those that the job names: docker"):
        narrowed(a_job(", providers: [docker]"), Narrow(provider="vast"))


def test_everything_else_of_the_job_stays():
    job = a_job(", resources: {gpu: 24GB, memory: 8GB}, limits: {max_duration: 20m}")
    less = narrowed(job, Narrow(gpu="40GB", provider="docker"))
    assert (less.needs().memory_mib, less.max_duration_s, less.run) == (8 * 1024, 1200, "x")


def test_the_runs_of_one_repeat_were_asked_alike():
    one, two = Narrow(gpu="1", number=1, of=2, batch="a"), Narrow(gpu="1", number=2, of=2, batch="b")
    assert asked_alike(one, two)
    assert not asked_alike(one, Narrow(gpu="1"))
    assert (numbered("smoke", two), numbered("smoke", Narrow())) == ("smoke (2 of 2)", "smoke")
