from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from gpurun.adapters.store.codec import Moment, canonical, dump, load, micros, moment, plain_text
from gpurun.domain.ids import CommitSha, ImageRef, JobName, RepoName, Revision, TreeSha
from gpurun.domain.offer import Offer
from gpurun.domain.plan import ModelFile, ModelPin, Plan, Resources
from gpurun.domain.run import Phase, Pins, Result

hex40 = st.text("0123456789abcdef", min_size=40, max_size=40)
hex64 = st.text("0123456789abcdef", min_size=64, max_size=64)
images = st.builds(lambda digest: ImageRef(f"docker.io/library/python:3.12@sha256:{digest}"), hex64)
counts = st.integers(0, 2**53)
files = st.builds(ModelFile, size=counts)
models = st.builds(ModelPin, revision=hex40.map(Revision), files=st.lists(files, max_size=3).map(tuple))
resources = st.builds(Resources, cpus=st.floats(0, 1e6))
plans = st.builds(
    Plan,
    repo=st.just(RepoName("octo/models")),
    commit=hex40.map(CommitSha),
    tree=hex40.map(TreeSha),
    job=st.just(JobName("smoke")),
    image=images,
    models=st.lists(models, max_size=2).map(tuple),
    resources=resources,
)
pins = st.builds(Pins, tree=st.none() | hex40.map(TreeSha), models=st.lists(models, max_size=2).map(tuple))
moments = st.datetimes(timezones=st.just(UTC))


@given(plans | pins | st.builds(Offer) | st.builds(Result))
def test_every_structured_value_comes_back_as_it_was(value):
    assert load(type(value), dump(value)) == value


@given(plans)
def test_checked_identifiers_come_back_as_their_types(plan):
    again = load(Plan, dump(plan))
    assert [type(part) for part in (again.repo, again.commit, again.tree, again.image)] == [
        RepoName,
        CommitSha,
        TreeSha,
        ImageRef,
    ]


@given(st.dictionaries(st.sampled_from(list(Phase)), moments))
def test_phase_times_come_back(times):
    assert load(dict[str, datetime], dump(times)) == times


def test_a_value_of_a_later_version_is_read_without_its_new_fields():
    assert load(Result, '{"kind": "passed", "colour": "green"}') == Result(kind="passed")


def test_json_holds_what_text_cannot():
    result = Result(kind="failed", detail="nul \x00, lone surrogate \udc80")
    assert dump(result).isascii()
    assert load(Result, dump(result)) == result


@given(moments)
def test_times_keep_their_microseconds(at):
    assert moment(micros(at)) == at


def test_times_of_other_zones_are_the_same_moment():
    at = datetime(2026, 1, 5, 14, tzinfo=timezone(timedelta(hours=2)))
    assert moment(micros(at)) == datetime(2026, 1, 5, 12, tzinfo=UTC)


def test_a_naive_time_is_refused():
    with pytest.raises(TypeError):
        Moment().process_bind_param(datetime(2026, 1, 5), create_engine("sqlite://").dialect)  # noqa: DTZ001


@given(st.text(st.characters(codec=None)))
def test_cleaned_text_fits_both_databases_and_stays_cleaned(words):
    cleaned = plain_text(words)
    assert "\x00" not in cleaned
    cleaned.encode()
    assert plain_text(cleaned) == cleaned


@given(st.text())
def test_ordinary_text_is_left_alone(words):
    assert plain_text(words) == words.replace("\x00", "\ufffd")


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text()))
def test_canonical_json_does_not_know_the_order_of_keys(data):
    assert canonical(data) == canonical(dict(reversed(data.items())))


def test_sqlite_integers_hold_every_time_that_we_write():
    with create_engine("sqlite://").connect() as connection:
        latest = micros(datetime.max.replace(tzinfo=UTC))
        assert connection.execute(text("SELECT :latest"), {"latest": latest}).scalar_one() == latest
