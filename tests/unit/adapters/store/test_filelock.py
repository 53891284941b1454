"""The lock of a SQLite database, and who else may have it for a moment."""

from __future__ import annotations

import fcntl
import os

import pytest

from gpurun.adapters.store import filelock
from gpurun.adapters.store.filelock import FileLock
from gpurun.domain.errors import StoreBusy


@pytest.fixture
def other(tmp_path):
    """Who has the lock: the descriptor that a dead process left to a child between fork and exec."""
    fd = os.open(tmp_path / "gpurun.db.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def test_the_child_of_a_dead_process_is_waited_for(tmp_path, other, monkeypatch):
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            os.close(other)

    monkeypatch.setattr(filelock, "_pause", pause)
    FileLock(tmp_path / "gpurun.db").release()
    assert len(pauses) == 3


def test_a_living_process_is_not(tmp_path, other, monkeypatch):
    pauses = []
    monkeypatch.setattr(filelock, "_pause", pauses.append)
    with pytest.raises(StoreBusy, match="Another gpurun process uses"):
        FileLock(tmp_path / "gpurun.db")
    assert sum(pauses) == pytest.approx(filelock.PATIENCE_S)
    os.close(other)
    FileLock(tmp_path / "gpurun.db").release()
