"""Secrets of repositories: sealed with keys of a file, in rows of the store."""

from gpurun.adapters.vault.desk import SecretDesk, SecretLine
from gpurun.adapters.vault.given import GivenVault
from gpurun.adapters.vault.keyfile import KeyFile
from gpurun.adapters.vault.stored import StoredVault

__all__ = ["GivenVault", "KeyFile", "SecretDesk", "SecretLine", "StoredVault"]
