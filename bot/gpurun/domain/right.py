"""What a person may do with gpurun in a repository."""

from __future__ import annotations

from enum import StrEnum


class Right(StrEnum):
    """Each holds those before it."""

    RUN = "run"
    """Start and cancel runs of the repository's own code."""
    APPROVE = "approve"
    """Let code run that somebody without write access wrote."""
    ADMIN = "admin"
    """Stop gpurun here, and let it go on."""

    @property
    def includes(self) -> frozenset[Right]:
        """Itself and what is less."""
        every = tuple(Right)
        return frozenset(every[: every.index(self) + 1])


class Role(StrEnum):
    """Of the repository, as GitHub calls it. Each holds those before it."""

    WRITE = "write"
    MAINTAIN = "maintain"
    ADMIN = "admin"
