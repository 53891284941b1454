"""An image that is built from a Dockerfile of the repository: what is built, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpurun.domain.dockerfile_lines import args_in, lines_of, split_word
from gpurun.domain.ids import BuiltImage, ImageRef

DOCKERFILE = ".gpurun.Dockerfile"
"""Where the pinned one lies in the context. `.dockerignore` takes both out again before the first step."""
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
    """A build with nothing left that can move. `plan.build.build_inputs` computes `inputs_sha256` over these fields.
    Not over the paths, which decide nothing, not over `ignore`, which the context's digest covers, and not over
    `images`, which stand in `text`.
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
        """With those predefined ones for which it has an `ARG` without a value."""
        predefined = predefined_args(self.platform)
        asked = {name for name in _args_without_value(self.text) if name in predefined}
        return {**{name: predefined[name] for name in sorted(asked)}, **dict(self.args)}


def _args_without_value(dockerfile: str) -> Iterator[str]:
    for line in lines_of(dockerfile):
        word, rest = split_word(line.text)
        if word == "ARG":
            yield from (name for name, value in args_in(rest) if value is None)


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
