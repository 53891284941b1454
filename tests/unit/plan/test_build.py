"""`build` in the file: what may be written, where it points, and what it becomes with the lock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpurun.domain.build import BuildPin
from gpurun.domain.config import BuildKeys, Job
from gpurun.domain.errors import ConfigError, NotByPolicy
from gpurun.domain.ids import CommitSha, ImageRef, ImageTag, JobName, RepoName, TreeSha
from gpurun.domain.lock import ImagePin, Lock, LockedImage
from gpurun.domain.run import Pins
from gpurun.plan.build import LeavesCheckout, images_of, paths_of, require_one_registry, syntax_note
from gpurun.plan.digest import canonical
from gpurun.plan.lines import at_build
from gpurun.plan.load import explain, load
from gpurun.plan.lock import Unpinned
from gpurun.plan.policy import require_images_allowed
from gpurun.plan.relock import difference, to_look_up
from gpurun.plan.resolve import ConfirmImage, FetchCommit, ReadBuild, ReadLock, build, missing_pins

HEAD = "version: 1\njobs:\n  smoke:\n    run: x\n"
TAG, DIGEST = ImageTag("python:3.12"), "sha256:" + "1" * 64
LOCK = Lock(images=(LockedImage(ref=TAG, pin=ImagePin(digest=DIGEST), locked_on="2026-12-01"),))
PIN = BuildPin(
    dockerfile="Dockerfile", context="", text="FROM python:3.12\n", ignore="", context_sha256="2" * 64, platform=""
)
PINS = Pins(tree=TreeSha("7" * 40))


def job(text: str = "build: .", *more: str) -> Job:
    return load(HEAD + "".join(f"    {line}\n" for line in (text, *more))).jobs[JobName("smoke")]


def fault(*lines: str) -> str:
    text = HEAD + "".join(f"    {line}\n" for line in lines)
    with pytest.raises(ConfigError) as caught:
        load(text)
    return explain(caught.value, text)


def test_one_text_is_the_context():
    assert job().build == BuildKeys(context=".")
    assert job("build: {context: docker}").build == job("build: docker").build
    keys = job("build: {dockerfile: d/Dockerfile, target: gpu, args: {CUDA: 12.4, B: NO}}").build
    assert keys is not None
    assert (keys.dockerfile, keys.target, dict(keys.args)) == ("d/Dockerfile", "gpu", {"CUDA": "12.4", "B": "NO"})


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["image: a", "build: ."], "6:12: `jobs.smoke.build`: `image` stands there too."),
        (["env: {A: b}"], "3:3: `jobs.smoke` has no `image`"),
        (["build:"], "5:5: `build` has no value"),
        (["build: []"], "5:12: `jobs.smoke.build` must hold keys and values"),
        (["build: /etc"], "5:12: `jobs.smoke.build`: '/etc' is no path of the checkout"),
        (["build: {file: a}"], "5:13: unknown key `file`"),
        (["build: {target: 'a b'}"], "5:21: `jobs.smoke.build.target`: 'a b' is no stage of a Dockerfile"),
        (["build: {args: {1A: b}}"], "5:20: '1A' cannot be the name of an `ARG`"),
        (["build: .", "registry: {username: a, password: B, server: ghcr}"], "'ghcr' is no registry"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_line_and_caret(lines, told):
    assert told in fault(*lines)
    assert "^" in fault(*lines)


def test_what_the_job_writes_takes_the_place_of_the_other_in_defaults():
    text = "version: 1\ndefaults: {%s}\njobs: {a: {run: x}, b: {run: x, %s}}\n"
    jobs = load(text % ("image: i", "build: .")).jobs
    assert (jobs["a"].image, jobs["a"].build) == (ImageTag("i"), None)
    assert (jobs["b"].image, jobs["b"].build) == (None, BuildKeys(context="."))
    jobs = load(text % ("build: .", "image: i")).jobs
    assert (jobs["a"].image, jobs["b"].build) == (None, None)


@pytest.mark.parametrize(
    ("keys", "folder", "paths"),
    [
        (BuildKeys(context="."), "", ("Dockerfile", "")),
        (BuildKeys(context="."), "sub", ("sub/Dockerfile", "sub")),
        (BuildKeys(context="docker/"), "sub", ("sub/docker/Dockerfile", "sub/docker")),
        (BuildKeys(context="../.."), "a/b", ("Dockerfile", "")),
        (BuildKeys(dockerfile="d/Dockerfile.gpu"), "sub", ("sub/d/Dockerfile.gpu", "sub")),
        (BuildKeys(dockerfile="../x", context="../y"), "sub", ("x", "y")),
    ],
)
def test_paths_start_at_the_folder_of_the_file(keys, folder, paths):
    assert paths_of(keys, folder) == paths


def test_a_path_out_of_the_repository_is_refused_at_its_line():
    text = HEAD + "    build: {context: a/../../..}\n"
    with pytest.raises(LeavesCheckout) as caught:
        paths_of(load(text).jobs[JobName("smoke")].build, "sub")
    assert explain(at_build(caught.value, text, JobName("smoke")), text) == (
        ".gpurun.yml:5:5: 'a/../../..' leads out of the repository\n5 |     build: {context: a/../../..}\n"
        "  |     ^\nWrite a path inside it; it starts at the folder that holds this file."
    )


def test_the_build_is_read_when_the_commit_is_there_and_pinned_then():
    one = job()
    assert missing_pins(one, Pins()) == (FetchCommit(),)
    assert missing_pins(one, PINS) == (ReadBuild(),)
    pins = replace(PINS, build=PIN)
    assert missing_pins(one, pins) == (ReadLock(),)
    with pytest.raises(Unpinned, match=r"The image python:3.12 is not pinned"):
        missing_pins(one, replace(pins, lock=Lock()))
    pins = replace(pins, lock=LOCK)
    image = ImageRef(f"python:3.12@{DIGEST}")
    assert missing_pins(one, pins) == (ConfirmImage(image, LOCK.images[0]),)
    assert missing_pins(one, replace(pins, confirmed=(image,))) == ()
    plan = build(
        repo=RepoName("a/b"), sha=CommitSha("c" * 40), job_name=JobName("smoke"), job=one,
        pins=replace(pins, confirmed=(image,)),
    )  # fmt: skip
    assert plan.image is None
    assert plan.build is not None
    assert plan.build.text == f"FROM python@{DIGEST}\n"
    assert plan.container_image == f"gpurun-build:{plan.build.inputs_sha256}"
    assert plan.build.inputs_sha256.encode() in canonical(plan)


def test_a_dockerfile_that_pins_all_needs_no_lock():
    pins = replace(PINS, build=replace(PIN, text=f"FROM a@{DIGEST}\nFROM scratch\n"))
    assert missing_pins(job(), pins) == (ConfirmImage(ImageRef(f"a@{DIGEST}"), None),)
    assert missing_pins(job(), replace(PINS, build=replace(PIN, text="FROM scratch\n"))) == ()


def test_the_lock_has_what_dockerfiles_name():
    config = load(HEAD + "    build: .\n")
    built = {"smoke": (TAG,)}
    assert difference(config, Lock(), built).missing == (TAG,)
    assert difference(config, LOCK, built) == difference(config, LOCK, built).__class__(missing=(), unneeded=())
    assert difference(config, LOCK).unneeded == (TAG,)
    assert to_look_up(config, LOCK, ("smoke",), built) == (TAG,)
    assert to_look_up(config, LOCK, (), built) == ()


def test_one_login_is_for_one_registry():
    images = (ImageTag("python:3.12"), ImageTag("ghcr.io/org/app:1"))
    login = "registry: {username: a, password: B}"
    with pytest.raises(ConfigError, match=r"for which of docker.io, ghcr.io the login is"):
        require_one_registry(job("build: .", login), images)
    require_one_registry(job("build: .", login.replace("}", ", server: ghcr.io}")), images)
    require_one_registry(job("build: .", login), images[:1])
    require_one_registry(job(), images)


def test_the_policy_is_for_images_of_dockerfiles_too():
    policy = load(HEAD.replace("jobs:", "policy: {images: [ghcr.io/org/*]}\njobs:") + "    build: .\n").policy
    require_images_allowed(("ghcr.io/org/app:1",), policy)
    with pytest.raises(NotByPolicy, match=r"The image python:3.12 is not allowed here"):
        require_images_allowed(images_of(job(), PIN), policy)


def test_a_frontend_is_told_and_not_used():
    pin = replace(PIN, text="# syntax=docker/dockerfile:1\nFROM scratch\n")
    assert syntax_note(pin, job().build).startswith("`# syntax=` in line 1 of `Dockerfile` is not used")
    assert syntax_note(PIN, job().build) == syntax_note(None, None) == ""
