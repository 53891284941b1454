"""The key file: who may read it, what a crash leaves, what damage says."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from gpurun.adapters.vault.cipher import DoesNotOpen, seal, unseal
from gpurun.adapters.vault.keyfile import Key, KeyFile
from gpurun.domain.errors import UserError

KEY, OTHER = Key("0a0a0a0a", b"k" * 32), Key("0b0b0b0b", b"o" * 32)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=200))
def test_what_was_sealed_opens_in_its_place_and_nowhere_else(text):
    value = SecretStr(text)
    sealed = seal(KEY, "octo/app", "TOKEN", value)
    assert unseal(KEY, "octo/app", "TOKEN", sealed) == value
    assert text.encode() not in sealed.data or len(text) < 4
    moved = [("octo/other", "TOKEN"), ("octo/app", "OTHER"), ("octo/ap", "pTOKEN"), ("octo/app\0TOKEN", "")]
    for repo, name in moved:
        with pytest.raises(DoesNotOpen):
            unseal(KEY, repo, name, sealed)
    with pytest.raises(DoesNotOpen):
        unseal(OTHER, "octo/app", "TOKEN", sealed)


@given(st.integers(0, 33), st.integers(1, 255))
def test_one_changed_byte_does_not_open(at, change):
    sealed = seal(KEY, "octo/app", "TOKEN", SecretStr("sesame"))
    data = bytearray(sealed.data)
    data[at % len(data)] ^= change
    with pytest.raises(DoesNotOpen):
        unseal(KEY, "octo/app", "TOKEN", replace(sealed, data=bytes(data)))
    for short in (b"", sealed.data[:12], sealed.data[:20]):
        with pytest.raises(DoesNotOpen):
            unseal(KEY, "octo/app", "TOKEN", replace(sealed, data=short))


def test_the_same_value_never_looks_the_same_twice():
    one, two = (seal(KEY, "octo/app", "TOKEN", SecretStr("sesame")) for _ in range(2))
    assert one.data != two.data
    assert "sesame" not in repr(one)
    assert repr(b"k" * 32) not in repr(KEY)


def test_nobody_else_can_read_the_file(keys):
    assert keys.keys() == ()
    old = os.umask(0)
    try:
        with keys.changing():
            key = keys.current()
    finally:
        os.umask(old)
    assert keys.path.stat().st_mode & 0o777 == 0o600
    assert KeyFile(keys.path).keys() == (key,)
    with keys.changing():
        assert keys.current() == key


def test_the_newest_key_is_the_current_one_and_others_see_it(keys):
    reader = KeyFile(keys.path)
    with keys.changing():
        first = keys.current()
        assert reader.keys() == (first,)
        second = keys.add()
    assert reader.keys() == (second, first)
    assert reader.key(first.id) == first
    with keys.changing():
        assert keys.keep_only(frozenset()) == 1
    assert reader.keys() == (second,)
    assert reader.key(first.id) is None


@pytest.mark.parametrize("damage", [b"garbage\n", b"00000000 AAAA\n", b"\xff\xfe \xff\n", b"one two three\n"])
def test_a_damaged_file_says_where(keys, damage):
    with keys.changing():
        keys.current()
    keys.path.write_bytes(keys.path.read_bytes() + damage)
    with pytest.raises(UserError, match="damaged in line 4"):
        keys.keys()


def test_a_flipped_bit_of_a_key_is_damage(keys):
    with keys.changing():
        keys.current()
    text = keys.path.read_text()
    at = text.index(" ", text.index("\n", text.index("keep"))) + 1
    keys.path.write_text(text[:at] + ("B" if text[at] != "B" else "C") + text[at + 1 :])
    with pytest.raises(UserError, match="damaged in line 3"):
        keys.keys()


def test_a_write_that_fails_leaves_the_old_file(keys, monkeypatch):
    with keys.changing():
        key = keys.current()
    monkeypatch.setattr(os, "fsync", _full)
    with keys.changing(), pytest.raises(UserError, match="cannot be written: No space left"):
        keys.add()
    assert KeyFile(keys.path).keys() == (key,)


def _full(descriptor):
    raise OSError(28, "No space left on device")


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path):
    keys = KeyFile(tmp_path / "none" / "secrets.key")
    assert keys.keys() == ()
    with pytest.raises(UserError, match="There is no folder"), keys.changing():
        raise AssertionError


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_root_makes_it_for_whom_the_folder_belongs_to(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    os.chown(folder, 12345, 12346)
    keys = KeyFile(folder / "secrets.key")
    with keys.changing():
        keys.current()
    assert (keys.path.stat().st_uid, keys.path.stat().st_gid) == (12345, 12346)
