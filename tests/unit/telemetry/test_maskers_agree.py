"""Agent, bot and the plain definition give the same bytes, whatever the secrets and wherever a stream is cut.

After the manner of a fuzzed stream redactor: random secrets (nested, overlapping, periodic, of many lines, not ASCII),
random text around them, random cuts, secrets that come while the stream runs.
"""

from __future__ import annotations

import base64
import itertools
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from gpurun.telemetry.redact import Masker as BotMasker
from gpurun_agent.mask import Masker as AgentMasker
from tests.unit.telemetry import naive

KEY = (
    b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00FF\n\n"
    + b"\n".join([b"A" * 64, b"b" * 64, b"c" * 20])
    + b"\n-----END RSA PRIVATE KEY-----\n"
)
SHAPED = [
    b"ghs_" + b"a" * 36,
    b"ghs_" + b"7_" + b"J" * 40 + b".e.f",
    b"ghp_" + b"Z" * 35,
    b"ghs_" * 30,
    b"ghs_" + b"a" * 1500,
    b"hf_" + b"q" * 34,
    b"hf_hub_download(",
    b"rpa_" + b"R" * 40,
    b"github_pat_" + b"1" * 82,
    b"AKIA" + b"Q" * 16,
    b"AKIA" * 5,
    b'"SecretAccessKey": "' + b"x/+" * 14 + b'"',
    b"aws_secret_access_key = " + b"k" * 40,
    b"SecretAccessKey=" + b"SecretAccessKey" * 10,
    KEY,
    KEY.replace(b"\n", b"\\n"),
    KEY[:160],
    b"-----BEGIN PRIVATE KEY-----\n...\n",
    b"-----BEGIN ",
]
NOISE = [
    b"step 1 loss 0.5\n",
    b"/usr/lib/python3.11/site-packages/x.py",
    b" ",
    b"\n",
    b"\xff\0",
    b"\xc3",
    b"a",
    b"*" * 8,
]

words = st.lists(st.sampled_from(["a", "b", "ab", "\n", "/", '"', "é", "'", "z9"]), min_size=6, max_size=10).map(
    "".join
)
secrets = st.lists(words.filter(lambda word: len(word.strip()) >= 6), max_size=3)


@st.composite
def streams(draw):
    """Needles, a text made of them, of what looks like secrets, of beginnings of both, and of noise."""
    masker = BotMasker([SecretStr(one) for one in draw(secrets)])
    pieces = st.sampled_from([*sorted(masker.needles), *SHAPED])
    cut_pieces = st.tuples(pieces, st.integers(0, 200), st.integers(0, 3)).map(lambda cut: cut[0][cut[2] :][: cut[1]])
    text = b"".join(draw(st.lists(st.one_of(st.sampled_from(NOISE), pieces, cut_pieces), max_size=10)))
    return masker, text


def by_agent(needles, text, cuts):
    masker = AgentMasker(needles)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return b"".join(masker.feed(text[start:end]) for start, end in itertools.pairwise(places)) + masker.flush()


def by_bot(masker, text, cuts):
    """The sender keeps what was not taken and sends it again with newer bytes."""
    stored = b""
    for cut in sorted(min(cut, len(text)) for cut in cuts):
        if cut > len(stored):
            stored += masker.take(text[len(stored) : cut])
    return stored + masker.mask(text[len(stored) :])


def check(masker, text, cuts):
    expected = naive.masked(text, masker.needles)
    assert masker.mask(text) == expected
    assert AgentMasker(masker.needles).whole(text) == expected
    assert by_agent(masker.needles, text, cuts) == expected
    assert by_bot(masker, text, cuts) == expected
    assert by_bot(masker, by_agent(masker.needles, text, cuts), cuts) == expected
    assert len(expected) == len(text)


@settings(deadline=None)
@given(streams(), st.lists(st.integers(0, 400), max_size=10))
@example((BotMasker([]), KEY[: KEY.index(b"DEK-Info:") + 9] + b"ghs_" + b"a" * 36), [])
@example((BotMasker([]), KEY[: KEY.index(b"DEK-Info:") + 9] + b"ghs_" + b"a" * 1500 + KEY), [40, 200])
def test_the_same_bytes_for_every_cut(stream, cuts):
    check(*stream, cuts)


@pytest.mark.parametrize("text", SHAPED, ids=lambda text: text[:24].decode())
@pytest.mark.parametrize("around", [b"", b"x", b"\n"], ids=repr)
def test_what_looks_like_a_secret_at_every_single_cut(text, around):
    masker = BotMasker([])
    whole = around + text[:400] + around
    expected = naive.masked(whole, [])
    for cut in range(len(whole)):
        assert by_agent([], whole, [cut]) == expected
        assert by_bot(masker, whole, [cut]) == expected


SEEDS = [
    (["abbbba", "bababb"], b"abbbbababb", [6]),
    (["abcabc", "bcabcab"], b"xabcabcabcabx", list(range(13))),
    (["aaaaaa"], b"a" * 40 + b"b" + b"a" * 5, [1, 7, 13, 40]),
    (["aaaaaa", "aaaaaab"], b"a" * 20 + b"b", list(range(21))),
    (["abcdefghijkl", "fghijk", "jklmno"], b"xabcdefghijkl yz", [13]),
    (["hunter-two", "two-hunter"], b"hunter-two-hunter-two", [8, 11]),
    (["line one\nline two\n"], b"line one\r\nline two\nline one\nline two\n", [5, 20, 25]),
    (["pässwörd✓"], "<pässwörd✓>".encode() + b"p%C3%A4ssw%c3%b6rd%e2%9c%93", [3, 4, 13]),
    (["ghs_secret"], b"ghs_secret" + b"a" * 30 + b" ghs_secret", [3, 7, 12]),
    (["AAAAAAAAAA"], KEY + KEY, [30, 120, 200]),
    (["-----BEGIN X-----"], b"-----BEGIN X-----BEGIN PRIVATE KEY-----\n" + b"Q" * 64 + b"\n", [12, 17, 60]),
]


@pytest.mark.parametrize(("secrets", "text", "cuts"), SEEDS)
def test_seeds_that_were_hard(secrets, text, cuts):
    check(BotMasker([SecretStr(one) for one in secrets]), text, cuts)


@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_needles(seed):
    """More than a look for each would allow; short ones and ones without a long run of letters among them."""
    chance = random.Random(seed)
    values = [base64.urlsafe_b64encode(chance.randbytes(chance.randint(5, 40))).decode() for _ in range(60)]
    values += ["".join(chance.choices("abcde /.", k=chance.randint(6, 30))) for _ in range(60)]
    masker = BotMasker([SecretStr(f"x{value}y") for value in values])
    needles = sorted(masker.needles)
    assert len(needles) > 1000
    parts = [chance.choice(needles) if chance.random() < 0.5 else chance.choice(NOISE) for _ in range(60)]
    parts += [needle[: chance.randint(1, len(needle))] for needle in chance.choices(needles, k=40)]
    chance.shuffle(parts)
    text = b"".join(parts)
    check(masker, text, chance.choices(range(len(text)), k=30))


@pytest.mark.parametrize("seed", range(40))
def test_needles_that_come_while_the_stream_runs(seed):
    """Whoever starts after a needle is known is masked; what was released before stays as it is."""
    chance = random.Random(seed)
    early, late = (
        sorted(BotMasker([SecretStr("".join(chance.choices("abc", k=chance.randint(6, 9))))]).needles) for _ in range(2)
    )
    before, after = (b"".join(chance.choices([*early, *late, b"ab", b"\n"], k=8)) for _ in range(2))
    masker = AgentMasker(early)
    released = masker.feed(before)
    masker.add(late)
    masker.add(late)
    rest = masker.feed(after[:5]) + masker.feed(after[5:]) + masker.flush()
    text = before + after
    assert released == naive.masked(text, early)[: len(released)]
    # In what was held back both count; before it only those that were known.
    expected = bytearray(naive.masked(text, early))
    behind = naive.masked(text[len(released) :], [*early, *late])
    for at, byte in enumerate(behind, len(released)):
        if byte == ord("*"):
            expected[at] = byte
    assert released + rest == bytes(expected)
    assert not any(needle in rest for needle in late)


@given(st.text("ab", min_size=1, max_size=400).map(str.encode), st.integers(1, 400))
@example(b"a" * 400, 399)
@settings(deadline=None)
def test_periodic_secrets_are_held_back_briefly(text, cut):
    masker = BotMasker([SecretStr("aaaaaa"), SecretStr("abbabb"), SecretStr("babbab")])
    longest = max(map(len, masker.needles))
    assert len(text) - len(masker.take(text)) <= 2 * longest
    check(masker, text, [cut])
