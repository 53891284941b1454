"""Reads what a tag points to: an index of manifests by platform, or one manifest.

Source: the OCI image specification, "Image Index" and "Image Manifest"; Docker's v2 schema 2 has the same fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gpurun.domain.errors import PinNotFound

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")
MAX_PLATFORMS = 64


class _Platform(msgspec.Struct):
    os: str = ""
    architecture: str = ""
    variant: str = ""


class _Described(msgspec.Struct):
    """A descriptor."""

    digest: str = ""
    size: int = 0
    platform: _Platform | None = None


class Manifest(msgspec.Struct):
    """An index when it lists `manifests`, else a single manifest with a `config`."""

    schema_version: int = msgspec.field(name="schemaVersion", default=0)
    manifests: list[_Described] | None = None
    config: _Described | None = None

    @property
    def config_digest(self) -> str:
        """Where a single manifest's configuration lies; empty when it names none."""
        digest = self.config.digest if self.config is not None else ""
        return digest if DIGEST.fullmatch(digest) else ""


def read_manifest(body: bytes, shown: str) -> Manifest:
    """Raises PinNotFound for what is no image: a first format that engines do not pull any more, or a login page."""
    try:
        manifest = msgspec.json.decode(body, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise PinNotFound(f"The registry answers for {shown} with something that is no manifest.") from exc
    if manifest.schema_version != 2 or (manifest.manifests is None and manifest.config is None):
        raise PinNotFound(f"{shown} is no image in a format that container engines pull (OCI, or Docker's schema 2).")
    return manifest


def platforms_of_index(manifests: Iterable[_Described]) -> tuple[tuple[str, str], ...]:
    """Sorted; without attestations and what names no platform. Of two for one platform the first, as engines do."""
    found: dict[str, str] = {}
    for one in manifests:
        name = _name(one.platform)
        if name and DIGEST.fullmatch(one.digest):
            found.setdefault(name, one.digest)
    return tuple(sorted(found.items())[:MAX_PLATFORMS])


def platform_of_config(body: bytes) -> str:
    """`linux/arm64/v8` from an image's configuration; empty when it names none, as other artifacts' do."""
    try:
        return _name(msgspec.json.decode(body, type=_Platform))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _name(platform: _Platform | None) -> str:
    """Empty for `unknown/unknown`, which marks attestations, and for what could not be shown to a person as it is."""
    if platform is None or "unknown" in {platform.os, platform.architecture}:
        return ""
    parts = [platform.os, platform.architecture, *([platform.variant] if platform.variant else [])]
    return "/".join(parts) if all(_WORD.fullmatch(part) for part in parts) else ""
