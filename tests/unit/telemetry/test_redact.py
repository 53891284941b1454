from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import SecretStr

from gpurun.domain.errors import SecretRefused
from gpurun.telemetry.redact import Masker
from tests.unit.telemetry.naive import masked

# Two letters make nested, overlapping and periodic secrets common.
SECRETS = st.lists(st.text("ab", min_size=6, max_size=9), min_size=1, max_size=3)
TEXTS = st.text("abc", max_size=80).map(str.encode)


def masker(*secrets: str) -> Masker:
    return Masker([SecretStr(secret) for secret in secrets])


def sent_in_pieces(subject: Masker, data: bytes, cuts: list[int]) -> bytes:
    """What a stream holds when a sender keeps what was not taken and sends it again with newer bytes."""
    stored = b""
    for cut in sorted({min(cut, len(data)) for cut in cuts}):
        if cut > len(stored):
            stored += subject.take(data[len(stored) : cut])
    return stored + subject.mask(data[len(stored) :])


@given(SECRETS, TEXTS)
def test_mask_is_the_union_of_all_occurrences(secrets, data):
    subject = masker(*secrets)
    assert subject.mask(data) == masked(data, subject.needles)


@given(SECRETS, TEXTS, st.lists(st.integers(1, 80), max_size=12))
@example(["abbbba", "bababb"], b"abbbbababb", [6])
def test_any_cuts_give_the_bytes_of_the_whole(secrets, data, cuts):
    subject = masker(*secrets)
    assert sent_in_pieces(subject, data, cuts) == subject.mask(data)


def test_a_secret_cut_in_two_is_masked():
    subject = masker("hunter2-hunter2")
    first = b"the password is hunter2-h"
    taken = subject.take(first)
    assert taken == b"the password is "
    assert subject.take(first[len(taken) :] + b"unter2 ok\n") == b"*" * 15 + b" ok\n"


def test_a_line_without_a_secret_is_not_delayed():
    line = b"step 1 loss 0.25\n"
    assert masker("hunter2-hunter2").take(line) == line


def test_the_key_itself_leaves_no_letter():
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n"
    assert masker(key).mask(b"[" + key.encode() + b"]") == b"[" + b"*" * len(key) + b"]"


def test_bytes_that_are_not_text_pass():
    data = bytes(range(256)) * 3
    assert masker("hunter2-hunter2").mask(data) == data


def test_a_short_secret_is_refused_and_not_named():
    with pytest.raises(SecretRefused) as caught:
        masker("abcde")
    assert "abcde" not in str(caught.value)


def test_no_secrets_mask_nothing():
    assert Masker([]).take(b"anything\n") == b"anything\n"


def test_characters_are_masked_byte_by_byte():
    assert masker("pässwörd").text("ist pässwörd ✓") == "ist ********** ✓"
    assert masker("pässwörd").text("nothing \udc80 odd") == "nothing \udc80 odd"
