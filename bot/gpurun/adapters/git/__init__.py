"""Bare mirrors of git repositories."""

from gpurun.adapters.git.mirrors import GitMirrors

__all__ = ["GitMirrors"]
