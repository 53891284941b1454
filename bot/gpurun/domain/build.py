"""An image that is built from a Dockerfile of the repository: what is built, and how far it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpurun.domain.ids import BuiltImage, ImageRef

_ARG_LINE = re.compile(r"^[ \t]*ARG[ \t]+(.+)$", re.IGNORECASE | re.MULTILINE)

MAX_DOCKERFILE_BYTES = 64 * 1024
MAX_IGNORE_BYTES = 64 * 1024
"""Both stand in the row of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPin:
    """What the commit holds for a build, before its images are pinned."""

    dockerfile: str
    """Its path, from the top of the repository."""
    context: str
    """The folder, from the top; empty for the top."""
    text: str
    """Of the Dockerfile, as it is written."""
    ignore: str
    """What stays out of the context, in the words of a `.dockerignore`."""
    context_sha256: str
    """Over path, kind, mode, link target and content of all that stays in it."""
    platform: str
    """Of the machine that builds it and runs it, `linux/amd64`; empty when nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """A build with nothing left that can move. `plan.build_inputs` computes `inputs_sha256` over exactly these fields,
    but for the paths and for `ignore`, which the context's digest covers.
    """

    inputs_sha256: str
    """64 hex digits: the identity."""
    dockerfile: str
    """Its path, from the top of the repository."""
    context: str
    """The folder, from the top; empty for the top."""
    text: str
    """Of the Dockerfile, with each image by digest."""
    target: str = ""
    """The stage; empty for the last one."""
    args: tuple[tuple[str, str], ...] = ()
    """Sorted by name."""
    platform: str = ""
    context_sha256: str
    ignore: str = ""
    images: tuple[ImageRef, ...] = ()
    """That the Dockerfile names, each once."""

    @property
    def image(self) -> BuiltImage:
        """What comes of it."""
        return BuiltImage(f"gpurun-build:{self.inputs_sha256}")

    @property
    def all_args(self) -> Mapping[str, str]:
        """With those predefined ones for which it has an `ARG`."""
        predefined = predefined_args(self.platform)
        asked = {name for line in _ARG_LINE.findall(self.text) for name in predefined if name in line.split()}
        return {**{name: predefined[name] for name in sorted(asked)}, **dict(self.args)}


PREDEFINED_ARGS = ("TARGETPLATFORM", "TARGETOS", "TARGETARCH", "BUILDPLATFORM", "BUILDOS", "BUILDARCH")
"""Those that a Dockerfile may use without a value of its own."""


def predefined_args(platform: str) -> Mapping[str, str]:
    """What they stand for; nothing when the platform is not known. Source: docs.docker.com/reference/dockerfile."""
    os, _, rest = platform.partition("/")
    if not rest:
        return {}
    values = (platform, os, rest.partition("/")[0])
    return dict(zip(PREDEFINED_ARGS, (*values, *values), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOutput:
    """What one try of a build has said so far."""

    id: str
    """Of the try; empty when nothing was tried."""
    said: bytes = field(default=b"", repr=False)
    """From its first byte on. Never grows shorter, and ends with `over`."""
    over: bool = True
    """No more will come."""
    took_s: float | None = None
    """Since the build began; None before it did, while images are pulled, and when nothing was built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Building:
    """How far a build is."""

    ready: bool = False
    """The image is there."""
    failed: str = ""
    """Why no other try would do better, in sentences; untrusted text."""
    step: int = 0
    """At which the build failed, counted as the engine does; 0 when it was at none."""
    message: str = ""
    """What a person reads, `building image, step 3/8`."""
    output: BuildOutput
