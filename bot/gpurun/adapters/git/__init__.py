"""Bare mirrors of git repositories."""

from gpurun.adapters.git.mirrors import GitMirrors
from gpurun.adapters.git.past import GitPast

__all__ = ["GitMirrors", "GitPast"]
