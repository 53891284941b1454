"""What `.gpurun.lock` holds: what every name that can move stood for when somebody looked."""

from __future__ import annotations

from dataclasses import dataclass

from gpurun.domain.ids import HubRef, ImageRef, ImageTag, Revision
from gpurun.domain.plan import HubKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePin:
    """What a registry says that a tag stands for."""

    digest: str
    """`sha256:<64 hex>` of what the tag names: an index of platforms, or one image."""
    platforms: tuple[tuple[str, str], ...] = ()
    """`("linux/amd64", "sha256:…")`, sorted; of a single image its own. Empty when the registry names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedImage:
    """An image that `.gpurun.yml` names by tag."""

    ref: ImageTag
    """As it is written there."""
    pin: ImagePin
    locked_on: str
    """The day on which the pin was written, `2026-12-01` (UTC)."""

    @property
    def image(self) -> ImageRef:
        """By digest, with the tag in front for people."""
        return ImageRef(f"{self.ref}@{self.pin.digest}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedFile:
    """One file of a model. Exactly one of the two hashes is known without its bytes."""

    path: str
    size: int
    """Bytes."""
    sha256: str = ""
    """64 hex digits, for files that the hub stores by it; else empty."""
    blob: str = ""
    """Git blob id, 40 hex digits, for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedModel:
    """A model or data set that `.gpurun.yml` names by branch or tag."""

    id: str
    """`org/name` on the hub."""
    kind: HubKind = "model"
    ref: HubRef
    """As it is written there; `main` when it is not."""
    revision: Revision
    locked_on: str
    """As with images."""
    files: tuple[LockedFile, ...] = ()
    """Sorted by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Entries in the order of the file: images by name, then models by id and ref, then data sets."""

    images: tuple[LockedImage, ...] = ()
    models: tuple[LockedModel, ...] = ()

    def image(self, ref: ImageTag) -> LockedImage | None:
        """The entry of that tag."""
        return next((entry for entry in self.images if entry.ref == ref), None)

    def model(self, id: str, ref: HubRef, kind: HubKind = "model") -> LockedModel | None:
        """The entry of that model or data set at that branch or tag."""
        wanted = (kind, id, ref)
        return next((entry for entry in self.models if (entry.kind, entry.id, entry.ref) == wanted), None)
