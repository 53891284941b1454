"""The manifest: the same files give the same bytes, and what is read of it cannot lead out of a folder."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.domain.errors import UserError
from gpurun.domain.manifest import is_plain_path, manifest_digest, read_manifest, write_manifest
from gpurun.domain.stream import Artifact

PATHS = st.text(max_size=20).filter(is_plain_path)
HASHES = st.binary(min_size=32, max_size=32).map(bytes.hex)
ROWS = st.lists(
    st.builds(Artifact, path=PATHS, size=st.integers(0, 2**50), sha256=HASHES, blob=st.just("x")),
    unique_by=lambda row: row.path, max_size=8,
)  # fmt: skip


@given(rows=ROWS, random=st.randoms())
def test_order_and_place_of_the_bytes_change_nothing(rows, random):
    text = write_manifest(rows)
    again = [Artifact(path=row.path, size=row.size, sha256=row.sha256, blob="") for row in rows]
    random.shuffle(again)
    assert write_manifest(again) == text
    assert text.count("\n") == len(rows) + 1
    found = {(entry.path, entry.size, entry.sha256) for entry in read_manifest(text)}
    assert found == {(row.path, row.size, row.sha256) for row in rows}


def test_it_is_written_as_it_was():
    """A digest that was shown stays true."""
    row = Artifact(path="out/ä", size=3, sha256="a" * 64, blob="x")
    assert (
        write_manifest([row]) == f'{{"gpurun_artifacts": 1}}\n{{"path": "out/ä", "size": 3, "sha256": "{"a" * 64}"}}\n'
    )
    assert manifest_digest([row]) == "sha256:14a17800677b88e89e88cd94330db3b7d933e68671db53e7bbafc598349b6c12"
    assert manifest_digest([]) == ""


GOOD = {"path": "a", "size": 1, "sha256": "a" * 64}


@pytest.mark.parametrize(
    "entry",
    [
        GOOD | {"path": "../a"},
        GOOD | {"path": "/etc/passwd"},
        GOOD | {"path": "a//b"},
        GOOD | {"path": "a\\b"},
        GOOD | {"path": "a\nb"},
        GOOD | {"path": ""},
        GOOD | {"path": 1},
        GOOD | {"size": -1},
        GOOD | {"size": True},
        GOOD | {"sha256": "A" * 64},
        {"path": "a"},
        "a",
        None,
    ],
)
def test_what_is_no_entry_is_refused(entry):
    with pytest.raises(UserError, match="no list of artifacts"):
        read_manifest(f'{{"gpurun_artifacts": 1}}\n{json.dumps(entry)}\n')


@pytest.mark.parametrize("text", ["", "<html>", "{}", '{"gpurun_artifacts": 2}', "[1]", "\x00"])
def test_what_is_no_manifest_is_refused(text):
    with pytest.raises(UserError):
        read_manifest(text)
