"""Where the values of a job come from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.domain.config import KINDS, JobKeys, ModelKeys
from gpurun.domain.errors import ConfigError
from gpurun.domain.ids import JobName
from gpurun.domain.part import Part
from gpurun.domain.quantity import duration_s, size_mib, written_duration, written_size
from gpurun.plan.load import load
from gpurun.plan.origin import Setting, Source, settings_of

SMOKE = JobName("smoke")
FILE = """\
version: 1
defaults:
  kind: train
  image: ghcr.io/org/app:1.2
  env: {SEED: "0", REGION: NO}
  limits: {max_duration: 20m}
  resources: {gpu: 24GB}
jobs:
  smoke:
    run: |
      python a.py
      python b.py
    env: {SEED: "1"}
    resources:
      memory: 32GB
    models:
      - id: org/model
      - {id: org/two, revision: v1, target: /weights}
    artifacts: ["out/**", report.json]
  other:
    kind: batch
    run: ls
    limits: {max_duration: 1h}
"""


def found(file: str = FILE, job: JobName = SMOKE) -> dict[str, Setting]:
    settings = settings_of(file, job)
    assert len({one.key for one in settings}) == len(settings)
    return {one.key: one for one in settings}


@pytest.mark.parametrize(
    ("key", "value", "source", "line"),
    [
        ("kind", "train", Source.DEFAULTS, 3),
        ("image", "ghcr.io/org/app:1.2", Source.DEFAULTS, 4),
        ("run", "python a.py\npython b.py\n", Source.JOB, 10),
        ("env.SEED", "1", Source.JOB, 13),
        ("env.REGION", "NO", Source.DEFAULTS, 5),
        ("limits.max_duration", "20m", Source.DEFAULTS, 6),
        ("resources.gpu", "24GB", Source.DEFAULTS, 7),
        ("resources.memory", "32GB", Source.JOB, 15),
        ("resources.disk", "", Source.BUILT_IN, 0),
        ("models[0].id", "org/model", Source.JOB, 17),
        ("models[0].revision", "main", Source.BUILT_IN, 0),
        ("models[1].revision", "v1", Source.JOB, 18),
        ("models[1].target", "/weights", Source.JOB, 18),
        ("artifacts", ("out/**", "report.json"), Source.JOB, 19),
        ("retry.attempts", "3", Source.PRESET, 0),
        ("trigger.comment", "true", Source.BUILT_IN, 0),
        ("setup", "", Source.BUILT_IN, 0),
        ("secrets", "", Source.BUILT_IN, 0),
    ],
)
def test_each_value_with_its_place(key, value, source, line):
    assert found()[key] == Setting(key=key, value=value, source=source, line=line)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_a_preset_of_limits_and_retries(kind):
    file = f"version: 1\njobs: {{smoke: {{kind: {kind}, image: 'a:1', run: ls}}}}\n"
    settings = found(file)
    assert settings["limits.max_duration"].source is settings["retry.attempts"].source is Source.PRESET
    assert duration_s(str(settings["limits.max_duration"].value)) == KINDS[kind].max_duration_s
    assert settings["retry.attempts"].value == str(KINDS[kind].attempts)


def test_every_key_is_there_even_when_nothing_is_written():
    def names(model: type[Part], prefix: str = "") -> set[str]:
        below = {f"{prefix}{name}": key.form for name, key in model.KEYS.items()}
        return {
            inner
            for name, form in below.items()
            for inner in (names(form, f"{name}.") if isinstance(form, type) else {name})
        }

    least = "version: 1\njobs: {smoke: {image: 'a:1', run: ls}}\n"
    assert set(found(least)) == names(JobKeys)
    one_model = least.replace("run: ls", "run: ls, models: [{id: a/b}]")
    assert set(found(one_model)) == names(JobKeys) - {"models"} | names(ModelKeys, "models[0].")


def test_what_is_told_is_what_the_job_gets():
    for name, job in load(FILE).jobs.items():
        settings = found(FILE, name)
        assert duration_s(str(settings["limits.max_duration"].value)) == job.max_duration_s
        assert settings["retry.attempts"].value == str(job.max_attempts)
        assert settings["image"].value == job.image
        assert settings["run"].value == job.run
        env = {key.removeprefix("env."): one.value for key, one in settings.items() if key.startswith("env.")}
        assert env == dict(job.env)


def test_an_empty_value_of_the_job_wins_over_defaults():
    defaults = "{setup: make, models: [{id: a/b}]}"
    job = "{image: 'a:1', run: ls, setup: '', models: []}"
    file = f"version: 1\ndefaults: {defaults}\njobs: {{smoke: {job}}}\n"
    settings = found(file)
    assert (settings["setup"].value, settings["setup"].source, settings["setup"].line) == ("", Source.JOB, 3)
    assert (settings["models"].value, settings["models"].source) == ("", Source.JOB)


def test_a_file_with_a_fault_is_refused():
    with pytest.raises(ConfigError):
        settings_of("version: 1\njobs: {smoke: {rnu: 1}}\n", SMOKE)


@given(st.integers(1, 7 * 24 * 3600))
def test_a_duration_is_written_as_it_is_read(seconds):
    assert duration_s(written_duration(seconds)) == seconds


@given(st.integers(1, 999_999_999))
def test_a_size_is_written_as_it_is_read(mib):
    assert size_mib(written_size(mib)) == mib


@pytest.mark.parametrize("written", ["build: docker", "build: {context: docker}"])
def test_one_text_is_told_as_the_key_that_it_stands_for(written):
    told = {one.key: one for one in settings_of(f"version: 1\njobs: {{a: {{run: x, {written}}}}}\n", JobName("a"))}
    assert (told["build.context"].value, told["build.context"].line) == ("docker", 2)
    assert told["build.dockerfile"].value == ""


def test_names_below_the_keys_of_a_part_are_told_one_by_one():
    text = "version: 1\njobs:\n  a:\n    run: x\n    build:\n      args:\n        A: '1'\n        B: 2\n"
    told = {one.key: (one.value, one.line) for one in settings_of(text, JobName("a"))}
    assert (told["build.args.A"], told["build.args.B"]) == (("1", 7), ("2", 8))
