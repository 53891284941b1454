"""Maskers are built once, and go when nobody uses them."""

from __future__ import annotations

import threading

import pytest
from pydantic import SecretStr

from gpurun.adapters.secrets import MemorySecrets
from gpurun.http import maskers as module
from gpurun.http.maskers import IDLE_S, Maskers
from gpurun.telemetry.redact import Masker
from tests.fakes.rows import an_attempt


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def secrets():
    return MemorySecrets()


@pytest.fixture
def maskers(clock, secrets):
    return Maskers(secrets, b"k" * 32, monotonic=clock)


ONE, OTHER = an_attempt(id="one"), an_attempt(id="other")


def test_one_is_built_again_only_for_a_new_secret(maskers, secrets):
    first = maskers.of(ONE)
    assert maskers.of(ONE) is first
    secrets.register(SecretStr("value-of-other"), attempt_id=OTHER.id)
    assert maskers.of(ONE) is first
    secrets.register(SecretStr("value-of-one"), attempt_id=ONE.id)
    assert maskers.of(ONE).mask(b"value-of-one") == b"*" * 12


def test_one_of_other_values_is_built_though_there_are_as_many(maskers, secrets):
    secrets.register(SecretStr("value-before"), attempt_id=ONE.id)
    maskers.of(ONE)
    secrets.forget(ONE.id)
    secrets.register(SecretStr("value-of-one"), attempt_id=ONE.id)
    assert maskers.of(ONE).mask(b"value-of-one") == b"*" * 12


def test_one_that_masks_everything_is_kept_too(maskers, secrets):
    plain = maskers.of(ONE)
    secrets.cannot_know(ONE.id)
    everything = maskers.of(ONE)
    assert everything.mask(b"word") == b"****"
    assert maskers.of(ONE) is everything
    secrets.can_know(ONE.id)
    assert maskers.of(ONE).mask(b"word") == b"word"
    assert maskers.of(ONE) is not plain


async def test_a_large_one_is_built_beside_the_event_loop(maskers, secrets, monkeypatch):
    threads = set()

    class Noted(Masker):
        def __init__(self, values):
            threads.add(threading.current_thread())
            super().__init__(values)

    monkeypatch.setattr(module, "Masker", Noted)
    large = SecretStr("x1" * module.AT_ONCE_CHARS)
    await maskers.beside(OTHER)
    assert threads == {threading.current_thread()}
    secrets.register(large, attempt_id=ONE.id)
    assert maskers.at_once(ONE) is None
    built = await maskers.beside(ONE)
    assert len(threads) == 2
    assert maskers.at_once(ONE) is maskers.of(ONE) is built
    assert built.mask(large.get_secret_value().encode()) == b"*" * (2 * module.AT_ONCE_CHARS)


def test_what_nobody_uses_goes_and_what_is_used_stays(maskers, clock):
    used, idle = maskers.of(ONE), maskers.of(OTHER)
    clock.now += IDLE_S - 1
    assert maskers.of(ONE) is used
    clock.now += 1
    assert maskers.of(ONE) is used
    assert maskers.of(OTHER) is not idle


def test_too_many_push_out_the_one_that_was_used_longest_ago(maskers, monkeypatch):
    monkeypatch.setattr(module, "MAX_MASKERS", 2)
    first, second = maskers.of(ONE), maskers.of(OTHER)
    assert maskers.of(ONE) is first
    maskers.of(an_attempt(id="third"))
    assert maskers.of(ONE) is first
    assert maskers.of(OTHER) is not second
