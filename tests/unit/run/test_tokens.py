from __future__ import annotations

import base64

import pytest

from gpurun.run.tokens import attempt_tokens, claim_token, run_token, token_attempt, token_sha256
from gpurun.telemetry.redact import Masker
from tests.fakes.rows import an_attempt

SECRET = b"s" * 32
ATTEMPT = "01kdxyz0000000000000000000"


def test_a_claim_token_is_the_same_each_time_and_never_padded():
    token = claim_token(SECRET, ATTEMPT)
    # HMAC-SHA256(key 32 x "s", "claim:01kdxyz0000000000000000000"), computed with `openssl dgst`
    assert token == "01kdxyz0000000000000000000.NfMaC0C8dDVYw3vRnEVOVY7HFPfnZ1NiuALFdID0LJo"
    assert token == claim_token(SECRET, ATTEMPT)


@pytest.mark.parametrize(
    "other",
    [
        claim_token(b"t" * 32, ATTEMPT),
        claim_token(SECRET, "01kdxyz0000000000000000001"),
        run_token(SECRET, ATTEMPT, "boot"),
        run_token(SECRET, ATTEMPT, "boot2"),
        run_token(b"t" * 32, ATTEMPT, "boot"),
    ],
)
def test_another_secret_attempt_boot_or_purpose_gives_another_token(other):
    tokens = {claim_token(SECRET, ATTEMPT), run_token(SECRET, ATTEMPT, "boot1"), other}
    assert len(tokens) == 3
    assert len({token_sha256(token) for token in tokens}) == 3


@pytest.mark.parametrize(
    ("token", "attempt"),
    [(claim_token(SECRET, ATTEMPT), ATTEMPT), (run_token(SECRET, ATTEMPT, "b.c"), ATTEMPT), ("nodot", ""), ("", "")],
)
def test_the_attempt_stands_in_front(token, attempt):
    assert token_attempt(token) == attempt


def test_a_token_is_hidden_whatever_is_made_of_it():
    """Only its tag is a needle; whole, in hex, in base64 or in a header it holds a spelling of the tag."""
    attempt = an_attempt(boot_id="boot")
    masker = Masker(attempt_tokens(SECRET, attempt))
    for token in (claim_token(SECRET, attempt.id), run_token(SECRET, attempt.id, "boot")):
        tag = token.partition(".")[2].encode()
        whole = token.encode()
        for front in (b"", b"x", b"xy"):
            for made in (
                front + whole,
                (front + whole).hex().encode(),
                base64.b64encode(front + whole),
                base64.urlsafe_b64encode(b"x-access-token:" + front + whole),
            ):
                left = masker.mask(b"curl -H '" + made + b"'").decode()
                assert left.count("*") >= len(tag) - 1
                assert tag.decode() not in left
