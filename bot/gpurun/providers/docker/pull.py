"""Pulls run in threads of their own and are shared by every attempt that waits for the same image."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpurun.domain.errors import Bug, GpurunError, ProviderRefused, ProviderUnavailable
from gpurun.domain.ids import BuiltImage
from gpurun.domain.image import RegistryLogin
from gpurun.domain.offer import Launch, Preparation
from gpurun.providers.docker.engine import Engine, translated, vendor_errors, words
from gpurun.providers.docker.ready_image import is_there, make_ready, name_on_engine, ready_name

if TYPE_CHECKING:
    from docker.api.client import APIClient

SILENCE_S = 300.0
"""The SDK waits for ever for the next event of a pull. After so long without one the pull is given up; the next
`prepare` starts another, and the engine goes on with the layers that it has."""


class Pulls:
    """One per provider."""

    def __init__(self, engine: Engine, monotonic: Callable[[], float]) -> None:
        self._engine = engine
        self._monotonic = monotonic
        self._running: dict[tuple[str, RegistryLogin | None], _Pull] = {}
        """By ready image and who may read it: nobody shares the refusal of another one's login."""

    async def prepare(self, launch: Launch, *, wait_s: float) -> Preparation:
        """The image with our layer is on the engine, or how far it is after `wait_s`.

        Raises: ProviderRefused, ProviderUnavailable; the next call starts anew then.
        """
        ready = ready_name(launch)
        key = ready, launch.login
        pull = self._running.get(key)
        if pull is None:
            if await self._engine.safe(lambda api: is_there(api, ready), to="look for the image"):
                return READY
            pull = self._running.setdefault(key, _Pull(self._engine, launch, self._monotonic))
            pull.start()
        try:
            done = await pull.wait(wait_s)
        except GpurunError:
            self._running.pop(key, None)
            raise
        if done:
            self._running.pop(key, None)
            return READY
        return pull.progress.so_far()


READY = Preparation(ready=True, message="image ready")


class Progress:
    """Bytes of the layers, as the engine's events tell them. Written by the pulling thread, read by others."""

    def __init__(self) -> None:
        self._layers: dict[str, tuple[int, int]] = {}
        self._unpacking = False

    def take(self, event: Mapping[str, Any]) -> None:
        """One event of the pull."""
        layer, detail = event.get("id"), event.get("progressDetail") or {}
        status = event.get("status", "")
        if layer is None:
            return
        if status == "Downloading" and detail.get("total"):
            self._layers[layer] = (int(detail["current"]), int(detail["total"]))
        elif status in {"Download complete", "Pull complete", "Extracting"} and layer in self._layers:
            total = self._layers[layer][1]
            self._layers[layer] = (total, total)
            self._unpacking = self._unpacking or status != "Download complete"

    def so_far(self) -> Preparation:
        """For people. The total grows while layers are still being discovered."""
        layers = list(self._layers.values())
        done, total = sum(one for one, _ in layers), sum(all_of_it for _, all_of_it in layers)
        if not total:
            message = "pulling image"
        elif done < total:
            message = f"pulling image {100 * done // total} %"
        else:
            message = "unpacking image" if self._unpacking else "pulling image 100 %"
        return Preparation(ready=False, message=message, done_bytes=done, total_bytes=total)


@dataclass(frozen=True, slots=True)
class _Failed:
    """An outcome is a value, so that a pull nobody waits for any more leaves no unread exception."""

    error: GpurunError


class _Pull:
    """Pull, then our layer, in one daemon thread: a stuck registry must not keep the process from ending."""

    def __init__(self, engine: Engine, launch: Launch, monotonic: Callable[[], float]) -> None:
        self.progress = Progress()
        self._engine = engine
        self._launch = launch
        self._monotonic = monotonic
        self._heard_at = monotonic()
        self._outcome: Future[_Failed | None] = Future()
        self._started = False

    def start(self) -> None:
        """Once; later calls do nothing."""
        if not self._started:
            self._started = True
            self._outcome.set_running_or_notify_cancel()
            threading.Thread(target=self._run, name="gpurun-docker-pull", daemon=True).start()

    async def wait(self, wait_s: float) -> bool:
        """True when the image is ready.

        Raises: what the pull failed with; ProviderUnavailable after a long silence.
        """
        waiter = asyncio.wrap_future(self._outcome)
        try:
            await asyncio.wait({waiter}, timeout=wait_s)
            if waiter.done():
                if (failed := waiter.result()) is not None:
                    raise failed.error
                return True
        finally:
            waiter.cancel()  # of this waiter only: a running Future refuses to be cancelled
        if self._monotonic() - self._heard_at > SILENCE_S:
            raise ProviderUnavailable(f"Docker pulls {self._launch.image} and said nothing for {SILENCE_S:.0f} s.")
        return False

    def _run(self) -> None:
        outcome: _Failed | None = _Failed(Bug("the pulling thread died"))
        try:
            self._pull_and_make_ready()
            outcome = None
        except GpurunError as error:
            outcome = _Failed(error)
        except vendor_errors() as exc:
            outcome = _Failed(_pull_error(exc, self._launch))
        finally:
            self._outcome.set_result(outcome)

    def _pull_and_make_ready(self) -> None:
        api = self._engine.client()
        image = name_on_engine(self._launch.image)
        if not is_there(api, image):
            self._pull(api, image)
        make_ready(api, self._launch)

    def _pull(self, api: APIClient, image: str) -> None:
        if isinstance(self._launch.image, BuiltImage):
            raise ProviderUnavailable(f"{image} is not on the Docker Engine any more.")  # the next try builds it
        pull_image(api, image, self._launch.login, self._take)

    def _take(self, event: Mapping[str, Any]) -> None:
        self._heard_at = self._monotonic()
        self.progress.take(event)


def pull_image(
    api: APIClient, image: str, login: RegistryLogin | None, take: Callable[[Mapping[str, Any]], None]
) -> None:
    """Reads all events, also after one that is an error: only then does the connection go back to the pool.

    Raises: ProviderRefused, ProviderUnavailable; vendor errors pass.
    """
    failed = ""
    for event in _events(api, image, login):
        failed = failed or _error_in(event)
        take(event)
    if failed:
        raise pull_refusal(failed, image)


def _events(api: APIClient, image: str, login: RegistryLogin | None) -> Iterator[Mapping[str, Any]]:
    """Errors in the middle of a pull come as events of an answer with status 200. Without a login the SDK looks for
    one in docker's config.json.
    """
    repository, digest = image.split("@", 1)
    auth = None
    if login is not None:
        auth = {"username": login.username, "password": login.password.get_secret_value()}
    yield from api.pull(repository, tag=digest, stream=True, decode=True, auth_config=auth)


def _error_in(event: Mapping[str, Any]) -> str:
    return str((event.get("errorDetail") or {}).get("message") or event.get("error") or "")


def _pull_error(exc: Exception, launch: Launch) -> GpurunError:
    from docker.errors import APIError

    if isinstance(exc, APIError):
        return pull_refusal(words(exc), str(launch.image))
    return translated(exc, to=f"pull {launch.image}")


def pull_refusal(said: str, image: str) -> GpurunError:
    """Engines answer 500 to a registry's 401 and to a registry that is down alike; the text tells them apart."""
    low = said.lower()
    sentence = f"Docker could not pull {image}: {' '.join(said.split())[:300]}"
    if any(sign in low for sign in _NO_SUCH_IMAGE):
        return ProviderRefused(sentence, kind="invalid")
    if any(sign in low for sign in _NO_ACCESS):
        return ProviderRefused(sentence, kind="auth")
    return ProviderUnavailable(sentence)


_NO_SUCH_IMAGE = ("not found", "manifest unknown", "no such image", "no matching manifest", "invalid reference")
_NO_ACCESS = ("unauthorized", "denied", "no basic auth credentials", "authentication required")
