"""A provider rents instances. One file under `providers/` each, found by entry point `gpurun.providers`.

Semantics live here. A provider never retries create, never waits for an end, and never decides a verdict.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

from gpurun.domain.build import Building, BuildPlan
from gpurun.domain.ids import ImageRef
from gpurun.domain.offer import ChargeLine, Launch, Offer, Owned, Preparation
from gpurun.domain.plan import Resources


class Provider(Protocol):
    """Raises ProviderUnavailable when a call that is safe to repeat found nobody."""

    name: str
    listed_within_s: float
    """How late `list_owned` may show a new instance: before that and its first sighting, absence says nothing."""
    observe_every_s: float
    """How often `list_owned` is asked while attempts live, seconds; what the provider's rate limit bears."""

    async def offers(self, need: Resources) -> tuple[Offer, ...]:
        """Cheapest first; empty when nothing fits. May be cached for 60 s."""
        ...

    async def create(self, launch: Launch) -> str:
        """One request, no retry, ≤ 45 s; returns the ref.

        Raises: ProviderRefused (nothing was made), CreateUnknown (anything may have been made).
        """
        ...

    async def destroy(self, ref: str) -> None:
        """Returns only when the instance is positively gone; silent when it already was.

        Raises: NotYetDestroyed (call again), ProviderUnavailable.
        """
        ...

    async def list_owned(self, prefix: str) -> tuple[Owned, ...]:
        """Every instance whose name starts with `prefix`, whole or an exception. Never a partial list.

        Raises: ProviderUnavailable, ProviderRefused(kind="auth").
        """
        ...

    async def describe(self, ref: str) -> Owned | None:
        """One instance; None only on a positive "there is none"."""
        ...

    async def charges(self, ref: str) -> tuple[ChargeLine, ...]:
        """What was billed so far; empty when the provider has no bill."""
        ...

    async def logs(self, ref: str, *, max_bytes: int) -> bytes:
        """The last output that the provider itself kept, as one read that does not follow.

        It holds what boot script and agent print, and what an agent that could not reach us left behind there.
        """
        ...

    async def close(self) -> None:
        """Lets connections go."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """Power: something slow and harmless (pulling an image) comes before create."""

    async def prepare(self, launch: Launch, *, wait_s: float) -> Preparation:
        """Idempotent. Starts or continues the work and returns when it is ready or `wait_s` has passed.

        A process that dies in between loses nothing but time.
        Raises: ProviderRefused (the image is not there, no access), ProviderUnavailable.
        """
        ...


@runtime_checkable
class Builds(Protocol):
    """Power: it makes images out of Dockerfiles, where the job will run."""

    async def build(
        self, launch: Launch, build: BuildPlan, context: Callable[[], AsyncGenerator[bytes, None]], *, wait_s: float
    ) -> Building:
        """`build.image` is there, or how far it is after `wait_s`. Idempotent: an image that is there is not built
        again, a build that goes on is shared, and one that nobody asks for any more is ended.

        `context`: a tar with the files and the Dockerfile, `plan.context`; asked for only when it is built. No secret
        and no login is in the build: `launch.login` is for pulling the images that it names.

        A process that dies in between ends its build, and loses nothing but time.
        Raises: ProviderRefused (an image that it names is not there, no access, no room), ProviderUnavailable; once a
        build began BuildRefused and BuildUnavailable, with all that it said.
        """
        ...

    async def tidy_builds(self) -> None:
        """Removes built images that nobody needed for long. Raises: ProviderUnavailable, ProviderRefused."""
        ...


@runtime_checkable
class HasImages(Protocol):
    """Power: images stay where the job will run."""

    async def platform_of(self, image: ImageRef) -> str | None:
        """That digest of that repository is there now, for this platform (`linux/amd64`; empty: it does not say).

        None: it is not there.

        Raises: ProviderRefused, ProviderUnavailable.
        """
        ...


@runtime_checkable
class SaysPlatform(Protocol):
    """Power: it knows before anything is rented what its machines run."""

    async def platform(self) -> str:
        """`linux/amd64`; empty when that depends on the offer. May be cached.

        Raises: ProviderRefused, ProviderUnavailable.
        """
        ...


@runtime_checkable
class MountsWeights(Protocol):
    """Power: instances run on the bot's own machine. `Launch.weights`, a folder of it, is mounted read-only where the
    agent would lay weights out, and root in the instance cannot write there.
    """

    mounts_weights: Literal[True]


@runtime_checkable
class KeepsLayers(Protocol):
    """Power: volumes outlive instances. `Launch.layer` is mounted where the agent looks for it, read-only when there is
    a layer in it, and new when there is none. Each carries the label of its shelf.
    """

    async def layer_volumes(self, shelf: str) -> tuple[str, ...]:
        """Names of all volumes with that label. Raises: ProviderRefused, ProviderUnavailable."""
        ...

    async def remove_layers(self, volumes: Sequence[str]) -> None:
        """Those that an instance has mounted stay; silent about those that are not there.

        Raises: ProviderRefused, ProviderUnavailable.
        """
        ...


@runtime_checkable
class SaysWhyNot(Protocol):
    """Power: it knows that nothing will ever fit, so that nobody waits for it."""

    async def why_never(self, need: Resources) -> str | None:
        """A sentence for people: what is asked for and what there is. None: an offer may still come.

        Raises: ProviderRefused, ProviderUnavailable.
        """
        ...
