"""File, lock and plan on the page about pins belong together."""

from __future__ import annotations

import json

from gpurun.domain.ids import CommitSha, JobName, RepoName, TreeSha
from gpurun.domain.plan import ModelFile, ModelPin
from gpurun.domain.run import Pins
from gpurun.plan.digest import canonical, digest
from gpurun.plan.load import load
from gpurun.plan.lock import pinned, read_lock, require_same_files, write_lock
from gpurun.plan.relock import difference
from gpurun.plan.resolve import build
from tests.unit.docs.pages import ROOT, fences

PAGE = ROOT / "docs/concepts/pins.md"
FORMAT = ROOT / "docs/reference/gpurun-lock.md"


def test_the_plan_on_the_page_is_made_of_the_file_and_the_lock():
    (file,) = (text for language, text in fences(PAGE) if language == "yaml")
    (lock_text,) = (text for _, text in fences(PAGE) if text.startswith('{"gpurun_lock"'))
    (plan_text,) = (text for language, text in fences(PAGE) if language == "json")
    config, lock, shown = load(file), read_lock(lock_text), json.loads(plan_text)
    assert write_lock(lock) == lock_text
    assert not difference(config, lock).missing + difference(config, lock).unneeded
    (spec,) = pinned(config.jobs["smoke"], lock).models
    (model,) = shown["models"]
    pin = ModelPin(id=spec.id, revision=spec.revision, files=tuple(ModelFile(**one) for one in model["files"]))
    require_same_files(lock, pin)
    plan = build(
        repo=RepoName(shown["repo"]),
        sha=CommitSha(shown["commit"]),
        job_name=JobName(shown["job"]),
        job=config.jobs["smoke"],
        pins=Pins(tree=TreeSha("0" * 40), lock=lock, image_confirmed=True, models=(pin,)),
    )
    assert json.loads(canonical(plan)) == shown
    assert f"`{digest(plan)}`" in PAGE.read_text("utf-8")


def test_the_page_about_the_format_shows_a_lock():
    (text,) = (text for _, text in fences(FORMAT))
    assert write_lock(read_lock(text)) == text
