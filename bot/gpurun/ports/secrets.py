"""Values that must never be shown, known as soon as somebody knows them."""

from __future__ import annotations

from typing import Protocol

from pydantic import SecretStr


class Secrets(Protocol):
    """Grows while runs go on.

    Whoever obtains a secret registers it first and hands it on afterwards. Then nothing that was stored before can hold
    it: bytes that are stored are never changed.
    """

    def register(self, value: SecretStr, *, attempt_id: str = "") -> None:
        """From now on masked: in the streams and words of that attempt, by its agent too; without an attempt it is the
        bot's own, which no agent is told. Both are masked in what the bot itself says. Silent when it is known.

        Raises: SecretRefused.
        """
        ...

    def cannot_know(self, attempt_id: str) -> None:
        """That attempt holds a secret which nobody here can read: everything that it says is masked."""
        ...

    def can_know(self, attempt_id: str) -> None:
        """Takes `cannot_know` back. Silent when it was not said."""
        ...

    def is_unknown(self, attempt_id: str) -> bool:
        """`cannot_know` was said of it, and not taken back."""
        ...

    def forget(self, attempt_id: str) -> None:
        """An attempt that has nothing more to say. Silent when it is not known."""
        ...

    def attempts(self) -> frozenset[str]:
        """Those of which something is known."""
        ...

    def of_attempt(self, attempt_id: str) -> tuple[SecretStr, ...]:
        """Those of that attempt, oldest first."""
        ...

    def everything(self) -> tuple[SecretStr, ...]:
        """The bot's own and those of all attempts, each value once."""
        ...

    def version(self, attempt_id: str) -> int:
        """Grows with each value of that attempt; 0 without any. Cheap: asked with every append."""
        ...

    def total(self) -> int:
        """Grows with each change of `everything`. Cheap."""
        ...
