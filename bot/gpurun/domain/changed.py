"""What a pull request changes of a job, as those are told who have to say whether it may run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One part of a check that is not what the base branch has."""

    key: str
    """`run`, `image`, …; `job` when the head has none of that name."""
    diff: tuple[str, ...]
    """Lines of a unified diff without its head: ` same`, `-before`, `+after`. Untrusted text."""
