"""No form of a secret gets through, and the bytes are the same for any cut."""

from __future__ import annotations

import base64
import itertools
import json
import urllib.parse

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpurun.telemetry.redact import forms
from gpurun_agent.mask import Masker, forms_of
from tests.unit.agent.fake_bot import CLAIM, TOKEN


def reference(text: bytes, secrets: list[bytes]) -> bytes:
    out = bytearray(text)
    for form in {form for secret in secrets for form in forms_of(secret)}:
        for at in range(len(text) - len(form) + 1):
            if text[at : at + len(form)] == form:
                out[at : at + len(form)] = b"*" * len(form)
    return bytes(out)


def in_pieces(text: bytes, secrets: list[bytes], cuts: list[int]) -> bytes:
    masker = Masker(secrets)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [masker.feed(text[start:end]) for start, end in itertools.pairwise(places)]
    return b"".join(pieces) + masker.flush()


few = st.sampled_from([b"a", b"b", b"ab", b"ba", b"\n", b"/", b'"'])
secret = st.lists(few, min_size=6, max_size=9).map(b"".join)


@st.composite
def streams(draw):
    secrets = draw(st.lists(secret, min_size=1, max_size=3))
    forms = sorted({form for one in secrets for form in forms_of(one)})
    parts = draw(st.lists(st.one_of(few, st.sampled_from(forms), st.sampled_from(forms).map(lambda f: f[:-1]))))
    return secrets, b"".join(parts)


@given(streams(), st.lists(st.integers(0, 200), max_size=8))
@example(([b"abcabc", b"bcabcab"], b"xabcabcabcabx"), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
def test_any_cut_gives_the_union_of_all_occurrences(stream, cuts):
    secrets, text = stream
    masked = in_pieces(text, secrets, cuts)
    assert masked == reference(text, secrets)
    assert not any(form in masked for one in secrets for form in forms_of(one))


token = st.binary(min_size=20, max_size=30).map(base64.urlsafe_b64encode)


@given(st.lists(token, min_size=5, max_size=8, unique=True), st.data())
def test_many_secrets_take_the_quick_way_to_the_same_bytes(secrets, data):
    forms = sorted({form for one in secrets for form in forms_of(one)})
    assert len(forms) >= 30
    noise = st.sampled_from([b"step 1 loss 0.5\n", b"/usr/lib/python3.11/site-packages/x.py", b" ", b"\xff\0"])
    text = b"".join(data.draw(st.lists(st.one_of(noise, st.sampled_from(forms)), max_size=12)))
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=6))
    assert in_pieces(text, secrets, cuts) == reference(text, secrets)


@given(st.text(min_size=6, max_size=20).map(lambda text: text.encode("utf-8", "replace")), st.binary(max_size=4))
def test_every_usual_encoding_of_a_secret_is_covered(secret, before):
    if b"*" in secret or len(secret) < 6:
        return
    text = secret.decode()
    masker = Masker([secret])
    for shown in (
        secret,
        urllib.parse.quote(secret).encode(),
        urllib.parse.quote(secret, safe="").encode(),
        urllib.parse.quote_plus(secret).encode(),
        json.dumps(text).encode(),
        json.dumps(text, ensure_ascii=False).encode(),
        secret.hex().encode(),
        secret.hex().upper().encode(),
    ):
        assert b"******" in masker.whole(b"x" + shown + b"x")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        assert b"******" in masker.whole(encode(before + secret + b"tail"))


def test_lines_of_a_secret_are_secrets():
    masker = Masker([b"-----BEGIN\r\nabcdefgh\r\nshort\r\n"])
    assert masker.whole(b"see abcdefgh and short") == b"see ******** and short"


def test_a_normal_line_is_not_delayed_and_a_beginning_is():
    masker = Masker([b"hunter-two"])
    assert masker.feed(b"loss 0.5\n") == b"loss 0.5\n"
    assert masker.feed(b"password: hunter") == b"password: "
    assert masker.feed(b"-two!\n") == b"**********!\n"
    assert masker.feed(b"hunter-t") == b""
    assert masker.flush() == b"hunter-t"


def test_without_secrets_bytes_pass_as_they_are():
    data = b"anything"
    assert Masker([]).feed(data) is data


@pytest.mark.parametrize("tool", ["printf %s", "printf %s | base64", "printf %s | od -An -tx1 | tr -d ' \\n'"])
def test_no_secret_in_any_output(bot, run, tool):
    bot.mask = [b"s3cret-Value"]
    bot.env = ["PASSWORD=s3cret-Value"]
    command, *pipe = tool.split(" | ", 1)
    run(" | ".join([f'{command} "x$PASSWORD"', *pipe]) + "; exit 3")
    raw = b"s3cret-Value"
    assert b"*****" in bot.log
    for stream in (bot.log, bytes(bot.streams["metrics"]), *bot.finished[0].values()):
        assert raw not in stream
        assert raw.hex().encode() not in stream
        assert base64.b64encode(b"x" + raw)[4:-4] not in stream


def test_the_tokens_of_the_agent_are_masked_too(bot, run):
    run("tr '\\0' '\\n' < /proc/$PPID/environ; echo " + TOKEN)
    assert CLAIM.encode() not in bot.log
    assert TOKEN.encode() not in bot.log
    assert b"GPURUN_CLAIM=" + b"*" * len(CLAIM) in bot.log


@given(st.binary(min_size=6, max_size=30) | st.text(min_size=6, max_size=30).map(lambda text: text.encode()))
def test_the_bot_and_the_agent_know_the_same_forms(secret):
    assert forms_of(secret) == forms(secret)
