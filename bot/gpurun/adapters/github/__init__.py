"""GitHub as a forge. The only package that imports githubkit."""

from gpurun.adapters.github.forge import GitHubForge
from gpurun.adapters.github.permissions import EVENTS, PERMISSIONS

__all__ = ["EVENTS", "PERMISSIONS", "GitHubForge"]
