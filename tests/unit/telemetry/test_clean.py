from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.domain.text import clean
from gpurun.telemetry.clean import MAX_LINE_BYTES, clean_whole_lines, whole_lines


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain\n", "plain\n"),
        (b"\x1b[1;31mred\x1b[0m and \x1b[38;2;1;2;3mtrue colour\x1b[m\n", "red and true colour\n"),
        (b"\x1b]0;title\x07text\n", "text\n"),
        (b"\x1b]52;c;cm0gLXJmIH4=\x07copy\n", "copy\n"),
        (b"\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\\n", "link\n"),
        (b"\x1b]52;c;never ended\nnext\n", "\nnext\n"),
        (b"\x1bP1$r\x1b\\dcs\n", "dcs\n"),
        (b"\xc2\x9b31mC1\n", "C1\n"),
        (b"\x1bcreset\x1b(B\n", "reset\n"),
        (b"end\x1b", "end"),
        (b"a\x00b\x08c\x7fd\te\n", "abcd\te\n"),
        ("user\u202e\u2066nimda\u2069\u200f\n".encode(), "usernimda\n"),
        ("one\u2028two\u0085three\n".encode(), "onetwothree\n"),
        (b"caf\xe9 \xff\n", "caf\ufffd \ufffd\n"),
        (b"windows\r\nlines\r\n", "windows\nlines\n"),
        (b" 1%\r 50%\r100%\n", "100%\n"),
        (b"\r  0%|\r100%|\x1b[31mERR\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07\n", "100%|ERR link\n"),
        (b"\xff\xfe\x00\x80 ok\n", "\ufffd\ufffd\ufffd ok\n"),
        (b" 1%\r 50%\r\n", " 50%\n"),
        (b"half\rway", "way"),
        ("👩\u200d💻 ok\n".encode(), "👩\u200d💻 ok\n"),
        (b"</details><script>\n", "</details><script>\n"),
    ],
)
def test_b098_b100_clean(raw, shown):
    assert clean(raw) == shown


@given(st.binary(max_size=400))
def test_nothing_that_steers_a_terminal_or_the_order_of_letters_is_left(data):
    for letter in clean(data):
        assert letter in "\n\t" or unicodedata.category(letter) != "Cc"
        assert unicodedata.bidirectional(letter) not in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@given(st.binary(max_size=200).map(lambda data: bytes(byte & 0x7F for byte in data)))
def test_plain_letters_are_cleaned_like_all_others(data):
    assert clean(data) + "é" == clean(data + b"\n\xc3\xa9").replace("\n\u00e9", "\u00e9")


@given(st.lists(st.sampled_from([b"a", b"\x1b[31m", b"\r", b"\n", b"\xc3\xa9", b"\x1b]0;t\x07"]), max_size=40))
def test_whole_lines_read_the_same_in_pieces(parts):
    data = b"".join(parts)
    cut = whole_lines(data)
    assert clean_whole_lines(data[:cut]) + clean(data[cut:]) == clean(data)


def test_a_line_waits_for_its_end():
    assert whole_lines(b"one\ntwo") == 4
    assert whole_lines(b"two") == 0


def test_a_line_without_end_is_cut_between_characters():
    assert whole_lines(b"x" * MAX_LINE_BYTES) == MAX_LINE_BYTES
    assert whole_lines(b"x" * MAX_LINE_BYTES + "é".encode()[:1]) == MAX_LINE_BYTES
    assert whole_lines(b"x" * MAX_LINE_BYTES + "é".encode()) == MAX_LINE_BYTES + 2
    assert whole_lines(b"x" * MAX_LINE_BYTES + b"\x1b[3") == MAX_LINE_BYTES
    assert whole_lines(b"x" * MAX_LINE_BYTES + b"\r1%") == MAX_LINE_BYTES + 1
    assert whole_lines(b"x" * MAX_LINE_BYTES + b"\r1%\r") == MAX_LINE_BYTES + 1


def test_b100_a_progress_bar_of_megabytes_is_one_line_in_pieces_too():
    bar = b"".join(b"\r %d of 50000" % number for number in range(50_001))
    for log in (bar, bar + b"\r", bar + b"\ndone\n"):
        kept, shown = b"", ""
        for at in range(0, len(log), 100_000):
            data = kept + log[at : at + 100_000]
            cut = whole_lines(data)
            kept, shown = data[cut:], shown + clean_whole_lines(data[:cut])
            assert len(kept) < MAX_LINE_BYTES
        assert shown + clean(kept) == clean(log)


def test_many_broken_escapes_take_linear_time():
    data = b"\x1b]" * 200_000
    assert clean(data) == ""
