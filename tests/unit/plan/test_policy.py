"""What a policy forbids, and how it is told."""

import pytest

from gpurun.domain.config import PolicyKeys
from gpurun.domain.errors import NotByPolicy
from gpurun.domain.ids import JobName
from gpurun.plan.load import load, policy_of
from gpurun.plan.policy import changed_note, providers_of, require_allowed

IMAGE = "ghcr.io/org/app@sha256:" + "0123456789abcdef" * 4
JOB = f"version: 1\njobs:\n  smoke:\n    image: {IMAGE}\n    run: x\n"
FREE = PolicyKeys()


def job(text=""):
    return load(JOB + text).jobs["smoke"]


def policy(text):
    return policy_of(f"version: 1\npolicy: {text}\njobs: {{}}\n")


@pytest.mark.parametrize(
    ("rules", "text", "told"),
    [
        ("{images: ['docker.io/*', 'ghcr.io/o/*']}", "", "The image ghcr.io/org/app is not allowed here: docker"),
        ("{images: []}", "", "none is"),
        ("{secrets: {}}", "    secrets: [HF_TOKEN]\n", "The job smoke may not use the secret HF_TOKEN."),
        ("{secrets: {HF_TOKEN: {jobs: [train]}}}", "    secrets: [HF_TOKEN]\n", "may not use the secret HF_TOKEN"),
        ("{max: {duration: 10m}}", "", "`max_duration` is 1800 s, and 600 s is the most here."),
        ("{max: {duration: 1h}}", "    kind: train\n", "`max_duration` is 86400 s"),
        ("{max: {gpus: 0}}", "    resources: {gpu: 1}\n", "The job asks for 1 GPUs, and 0 is the most here."),
        ("{providers: []}", "    providers: [docker]\n", "The provider docker is not allowed here."),
    ],
)  # fmt: skip
def test_what_a_policy_forbids(rules, text, told):
    with pytest.raises(NotByPolicy) as caught:
        require_allowed(job(text), JobName("smoke"), policy(rules))
    assert told in caught.value.message
    assert "default branch" in caught.value.hint


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ("{}", "    secrets: [HF_TOKEN]\n    resources: {gpu: 8}\n    kind: train\n"),
        ("{images: ['ghcr.io/org/*']}", ""),
        ("{secrets: {HF_TOKEN: {jobs: [train, smoke]}}}", "    secrets: [HF_TOKEN]\n"),
        ("{max: {duration: 30m, gpus: 2}}", "    resources: {gpu: '24GB:2'}\n"),
        ("{providers: [docker]}", "    providers: [docker]\n"),
    ],
)
def test_what_a_policy_allows(rules, text):
    require_allowed(job(text), JobName("smoke"), policy(rules))


@pytest.mark.parametrize(
    ("image", "glob"),
    [
        ("ghcr.io/org/app:1.2", "ghcr.io/org/app"),
        ("ghcr.io/org/app:1.2", "ghcr.io/org/app:1.*"),
        ("localhost:5000/app:1", "localhost:5000/app"),
        ("python:3.12", "docker.io/library/python"),
        ("python:3.12", "docker.io/library/*"),
        ("pytorch/pytorch:2.3", "docker.io/pytorch/*"),
        ("python", "python"),
    ],
)
def test_an_image_may_be_called_with_or_without_its_tag_and_hub(image, glob):
    named = load(f"version: 1\njobs: {{smoke: {{image: '{image}', run: x}}}}\n").jobs["smoke"]
    require_allowed(named, JobName("smoke"), policy(f"{{images: ['{glob}']}}"))
    with pytest.raises(NotByPolicy):
        require_allowed(
            named, JobName("smoke"), policy(f"{{images: ['{glob}x']}}" if "*" not in glob else "{images: [x]}")
        )


def test_everything_that_is_forbidden_is_told_at_once():
    rules = policy("{images: ['a/*'], secrets: {}, max: {gpus: 0}}")
    with pytest.raises(NotByPolicy) as caught:
        require_allowed(job("    secrets: [A, B]\n    resources: {gpu: 1}\n"), JobName("smoke"), rules)
    assert caught.value.message.count(".") >= 4


def test_where_a_job_may_run():
    assert providers_of(job(), FREE) is None
    assert providers_of(job("    providers: [docker]\n"), FREE) == ("docker",)
    assert providers_of(job(), policy("{providers: [docker]}")) == ("docker",)
    assert providers_of(job(), policy("{providers: []}")) == ()


def test_a_policy_of_ones_own_is_told_and_nothing_else():
    assert changed_note(FREE, FREE) == ""
    assert "is ignored" in changed_note(policy("{images: ['*']}"), FREE)
