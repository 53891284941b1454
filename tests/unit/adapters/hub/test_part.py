"""What a part says is there, is there, whoever wrote it in whatever order."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpurun.adapters.hub import part as part_module
from gpurun.adapters.hub.part import Part

RANGE = 16
SIZE = 5 * RANGE + 3
DATA = bytes(range(1, SIZE + 1))


def opened(path: Path) -> Part:
    return Part(path, os.open(path, os.O_RDWR | os.O_CREAT, 0o600), SIZE)


def missing_bytes(part: Part) -> set[int]:
    return {at for start, stop in part.missing() for at in range(start, stop)}


@given(
    in_order=st.integers(0, SIZE),
    writes=st.lists(st.tuples(st.integers(0, 5), st.integers(1, RANGE)), max_size=30),
    reopened=st.sets(st.integers(0, 29)),
)
def test_every_byte_that_is_not_missing_is_right(in_order, writes, reopened):
    before, part_module.RANGE_BYTES = part_module.RANGE_BYTES, RANGE
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.part"
            part = opened(path)
            part.write(DATA[:in_order])
            part.by_ranges()
            for number, (at, length) in enumerate(writes):
                todo = {start // RANGE: (start, stop) for start, stop in part.missing()}
                if at in todo:
                    start, stop = todo[at]
                    part.write_at(start, DATA[start : min(stop, start + length)])
                if number in reopened:
                    missing = part.missing()
                    part.close()
                    part = opened(path)
                    assert part.missing() == missing
            here = path.read_bytes().ljust(SIZE, b"\0")
            missing = missing_bytes(part)
            assert all(here[at] == DATA[at] for at in range(SIZE) if at not in missing)
            assert part.wait_beyond(SIZE, 0) == min(missing, default=SIZE)
            assert len(missing) >= SIZE - in_order - sum(length for _, length in writes)
            part.close()
    finally:
        part_module.RANGE_BYTES = before


def test_counts_that_lie_about_an_empty_file_are_dropped(tmp_path):
    (tmp_path / "x.part.ranges").write_bytes(b"\xff" * 8)
    part = opened(tmp_path / "x.part")
    assert part.missing() == [(0, SIZE)]
    part.close()
    assert not (tmp_path / "x.part.ranges").exists()


def test_counts_beyond_the_end_of_the_file_are_cut(tmp_path):
    (tmp_path / "x.part").write_bytes(DATA[:2])
    (tmp_path / "x.part.ranges").write_bytes(b"\xff" * 8)
    part = opened(tmp_path / "x.part")
    assert part.missing() == [(2, SIZE)]
    part.close()
