"""The first `.gpurun.yml` of a repository, guessed from its files. Nothing of it is run, and nobody is asked."""

from __future__ import annotations

from gpurun.domain.repository import RepoFacts
from gpurun.plan.starter.guess import Guess, guess
from gpurun.plan.starter.text import doubts, few_lines, rows, whole_file

__all__ = ["Guess", "doubts", "few_lines", "guess", "rows", "short_starter", "whole_file"]


def short_starter(facts: RepoFacts, job: str) -> str:
    """What to put into `.gpurun.yml` for that job, in six lines and a few more; generic when nothing is known."""
    return few_lines(guess(facts), job)
