"""Immutable byte strings in a local folder."""

from gpurun.adapters.blobs.folder import FolderBlobs

__all__ = ["FolderBlobs"]
