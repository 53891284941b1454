"""The registry of one process."""

from __future__ import annotations

from pydantic import SecretStr

from gpurun.adapters.secrets import MemorySecrets
from gpurun.http.maskers import Maskers
from gpurun.telemetry.redact import EverythingMasker
from gpurun.telemetry.shown import Hide
from tests.fakes.rows import an_attempt

VALUE = SecretStr("value-of-many")


def test_a_value_of_many_attempts_is_sought_once():
    secrets = MemorySecrets()
    for attempt_id in ("a", "b", "c"):
        secrets.register(VALUE, attempt_id=attempt_id)
    secrets.register(VALUE)
    assert secrets.everything() == (VALUE,)
    assert secrets.attempts() == {"a", "b", "c"}


def test_what_is_forgotten_is_hidden_as_long_as_somebody_else_has_it():
    secrets = MemorySecrets()
    hide = Hide(secrets)
    for attempt_id in ("a", "b"):
        secrets.register(VALUE, attempt_id=attempt_id)
    secrets.forget("a")
    assert secrets.version("a") == 0
    assert hide("so value-of-many") == "so *************"
    secrets.forget("b")
    secrets.forget("never known")
    assert hide("so value-of-many") == "so value-of-many"
    assert secrets.attempts() == frozenset()


def test_of_an_attempt_that_cannot_be_known_only_line_ends_are_shown():
    secrets = MemorySecrets()
    maskers = Maskers(secrets, b"k" * 32)
    attempt = an_attempt()
    assert maskers.of(attempt).mask(b"plain\ntext") == b"plain\ntext"
    secrets.cannot_know(attempt.id)
    masker = maskers.of(attempt)
    assert isinstance(masker, EverythingMasker)
    assert masker.mask(b"plain\n\ntext\n") == b"*****\n\n****\n"
    assert masker.take(b"pla") == b"***"
    assert masker.text("réd\n") == "****\n"
    secrets.forget(attempt.id)
    assert maskers.of(attempt).mask(b"plain") == b"plain"
