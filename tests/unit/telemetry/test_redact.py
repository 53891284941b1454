from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import SecretStr

from gpurun.domain.errors import Bug
from gpurun.telemetry.redact import Masker, forms

# Two letters make nested, overlapping and periodic secrets common.
SECRETS = st.lists(st.text("ab", min_size=6, max_size=9), min_size=1, max_size=3)
TEXTS = st.text("abc", max_size=80).map(str.encode)


def masker(*secrets: str) -> Masker:
    return Masker([SecretStr(secret) for secret in secrets])


def reference(secrets: list[str], data: bytes) -> bytes:
    """The definition: a byte is a star when any form of any secret lies over it."""
    needles = {form for secret in secrets for form in forms(secret.encode())}
    covered = {
        at
        for needle in needles
        for start in range(len(data) - len(needle) + 1)
        if data.startswith(needle, start)
        for at in range(start, start + len(needle))
    }
    return bytes(ord("*") if at in covered else byte for at, byte in enumerate(data))


def sent_in_pieces(subject: Masker, data: bytes, cuts: list[int]) -> bytes:
    """What a stream holds when a sender keeps what was not taken and sends it again with newer bytes."""
    stored = b""
    for cut in sorted({min(cut, len(data)) for cut in cuts}):
        if cut > len(stored):
            stored += subject.take(data[len(stored) : cut])
    return stored + subject.mask(data[len(stored) :])


@given(SECRETS, TEXTS)
def test_mask_is_the_union_of_all_occurrences(secrets, data):
    assert masker(*secrets).mask(data) == reference(secrets, data)


@given(SECRETS, TEXTS, st.lists(st.integers(1, 80), max_size=12))
@example(["abbbba", "bababb"], b"abbbbababb", [6])
def test_any_cuts_give_the_bytes_of_the_whole(secrets, data, cuts):
    subject = masker(*secrets)
    assert sent_in_pieces(subject, data, cuts) == subject.mask(data)


@given(SECRETS, st.text("ab", min_size=1, max_size=400).map(str.encode))
@example(["aaaaaa"], b"a" * 400)
@example(["abbabb", "babbab"], b"abb" * 130)
def test_never_more_than_two_needles_are_held_back(secrets, data):
    longest = max(len(form) for secret in secrets for form in forms(secret.encode()))
    assert len(data) - len(masker(*secrets).take(data)) <= 2 * longest


def test_a_secret_cut_in_two_is_masked():
    subject = masker("hunter2-hunter2")
    first = b"the password is hunter2-h"
    taken = subject.take(first)
    assert taken == b"the password is "
    assert subject.take(first[len(taken) :] + b"unter2 ok\n") == b"*" * 15 + b" ok\n"


def test_a_line_without_a_secret_is_not_delayed():
    line = b"step 1 loss 0.25\n"
    assert masker("hunter2-hunter2").take(line) == line


@pytest.mark.parametrize("before", ["", "x", "xy", "user:"])
@pytest.mark.parametrize("after", ["", "z", "zz"])
def test_base64_of_a_text_that_holds_the_secret(before, after):
    secret = "s3cr3t-t0ken?>~value"
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(f"{before}{secret}{after}".encode())
        masked = masker(secret).mask(encoded)
        shown = sum(1 for byte in masked if byte != ord("*"))
        # Characters that mix bits of the secret with bits of its neighbours stay: at most one on each side.
        assert shown <= len(encode(f"{before}".encode())) + len(encode(f"{after}".encode())) + 2
        assert b"******" in masked


@pytest.mark.parametrize(
    "spelled",
    [
        b'pass"word/with space+\\'.hex().encode(),
        b'pass"word/with space+\\'.hex().upper().encode(),
        quote('pass"word/with space+\\', safe="").encode(),
        quote('pass"word/with space+\\').encode(),
        quote_plus('pass"word/with space+\\').encode(),
        json.dumps('pass"word/with space+\\')[1:-1].encode(),
    ],
)
def test_spellings_are_masked_whole(spelled):
    assert masker('pass"word/with space+\\').mask(b"<" + spelled + b">") == b"<" + b"*" * len(spelled) + b">"


def test_each_line_of_a_secret_of_many_lines_is_masked():
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nshort\nkqhkiG9w0BAQEF\n-----END KEY-----\n"
    masked = masker(key).mask(b"a MIIEvQIBADANBg b\r\nkqhkiG9w0BAQEF\r\nshort\r\n")
    assert masked == b"a ************** b\r\n**************\r\nshort\r\n"


def test_the_key_itself_leaves_no_letter():
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n"
    assert masker(key).mask(b"[" + key.encode() + b"]") == b"[" + b"*" * len(key) + b"]"


def test_bytes_that_are_not_text_pass():
    data = bytes(range(256)) * 3
    assert masker("hunter2-hunter2").mask(data) == data


def test_a_short_secret_is_refused_and_not_named():
    with pytest.raises(Bug) as caught:
        masker("abcde")
    assert "abcde" not in str(caught.value)


def test_no_secrets_mask_nothing():
    assert Masker([]).take(b"anything") == b"anything"
