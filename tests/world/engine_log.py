"""What the Docker Engine tells of containers while it happens: the book that nobody can forget to write."""

from __future__ import annotations

import threading
from typing import Any

from ops.local_services import engine


class EngineLog:
    """Listens from the moment it is made. The engine itself keeps only the last 256 events of everybody."""

    def __init__(self) -> None:
        self._api = engine()
        self._events = self._api.events(decode=True, filters={"type": "container", "label": "gpurun.attempt"})
        self._made: list[tuple[str, str]] = []
        self._thread = threading.Thread(target=self._listen, name="engine-log", daemon=True)
        self._thread.start()

    def made(self, install: str) -> list[str]:
        """Names of containers of that installation, oldest first, one for each create that came through."""
        return [name for of, name in self._made if of == install]

    def close(self) -> None:
        """Silent when it is closed."""
        self._events.close()
        self._thread.join(10)
        self._api.close()

    def _listen(self) -> None:
        for event in self._events:
            self._note(event)

    def _note(self, event: dict[str, Any]) -> None:
        about = event["Actor"]["Attributes"]
        if event["Action"] == "create":
            self._made.append((about.get("gpurun.install", ""), about["name"]))
