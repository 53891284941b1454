"""What git has in the place of a file of LFS."""

from __future__ import annotations


def pointer_of(sha256: str, size: int) -> bytes:
    """The pointer to so many bytes of that hash."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
