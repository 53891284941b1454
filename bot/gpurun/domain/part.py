"""Parts of a file: classes whose attributes are the keys that may be written there.

A key says how its value is read, and the docstring below it what it means: that is the reference page and the
description in the JSON Schema. `plan.read` reads parts from a file; what it made of one is trusted from then on.

Whoever saves a file waits for this: it costs nothing but the classes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar, dataclass_transform, overload

T = TypeVar("T")
K = TypeVar("K")
D = TypeVar("D")


class Form(Generic[T]):
    """What may stand behind a key, or in a list, and becomes a T. A part stands for itself."""

    __slots__ = ()


class Value(Form[T]):
    """One text. `read` raises ValueError with a sentence, and often a second one that says what to write instead."""

    __slots__ = ("no_text", "read", "schema")

    def __init__(
        self, read: Callable[[str], T], schema: Mapping[str, Any], *, no_text: str = "must be one text"
    ) -> None:
        self.read = read
        self.schema = schema
        """JSON Schema of what an editor sees."""
        self.no_text = no_text
        """What to say of keys or a list."""


class Many(Form[tuple[T, ...]]):
    """A list."""

    __slots__ = ("at_least", "at_most", "hint", "of")

    def __init__(
        self, of: Form[T] | type[T], *, at_least: int = 0, at_most: int = sys.maxsize, hint: str | None = None
    ) -> None:
        self.of = of
        self.at_least = at_least
        self.at_most = at_most
        self.hint = hint
        """What to do about something else than a list."""


class Named(Form[Mapping[K, T]]):
    """A mapping whose keys the file chooses."""

    __slots__ = ("at_least", "empty", "name", "of")

    def __init__(self, name: Value[K], of: Form[T] | type[T], *, at_least: int = 0, empty: str | None = None) -> None:
        self.name = name
        self.of = of
        self.at_least = at_least
        self.empty = empty
        """What to do about a name at which nothing is written."""


class Key:
    """A key of a part. Make it with `key`, for the sake of types."""

    __slots__ = ("default", "examples", "form", "is_required")

    def __init__(self, form: Any, default: object, examples: Sequence[str]) -> None:
        self.form: Form[Any] | type[Part] = form
        self.default = default
        self.examples = examples
        self.is_required = default is _REQUIRED


_REQUIRED = object()


@overload
def key(form: Form[T] | type[T], *, examples: Sequence[str] = ()) -> T: ...
@overload
def key(form: Form[T] | type[T], *, default: D, examples: Sequence[str] = ()) -> T | D: ...
def key(form: object, *, default: object = _REQUIRED, examples: Sequence[str] = ()) -> Any:
    """An attribute of a part. It is required unless it has a default, which all parts share."""
    return Key(form, default, examples)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(key,))
class Part:
    """Frozen. Equal to another one of its class that means the same, whether written or left out."""

    KEYS: ClassVar[Mapping[str, Key]] = {}
    """By name, in the order of the reference page."""
    REQUIRED: ClassVar[tuple[str, ...]] = ()
    """Those without a default."""
    PLACE: ClassVar[str] = ""
    """What it is called in a table by places."""
    HINT: ClassVar[str | None] = None
    """What to do about something else than keys and values."""
    SHORT: ClassVar[str] = ""
    """The key that one text in the place of keys and values stands for; empty when there is none."""

    def __init_subclass__(cls, *, place: str | None = None, hint: str | None = None, short: str = "") -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Key)}
        cls.KEYS = {**cls.KEYS, **own}
        cls.REQUIRED = tuple(name for name, value in cls.KEYS.items() if value.is_required)
        cls.PLACE = cls.PLACE if place is None else place
        cls.HINT = cls.HINT if hint is None else hint
        cls.SHORT = short or cls.SHORT
        for name, value in own.items():
            if value.is_required:
                delattr(cls, name)
            else:
                setattr(cls, name, value.default)

    def __init__(self, **written: object) -> None:
        vars(self).update(written)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __or__(self, other: Self) -> Self:
        """With what is written in the other one, as `dict` does it."""
        return type(self)(**{**vars(self), **vars(other)})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and type(self) is type(other) and self._all() == other._all()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def odd(self) -> tuple[str, str] | None:
        """A key and what is wrong with it beside the other keys, in the sentences of a reader."""
        return None

    def _all(self) -> dict[str, object]:
        return {**{name: one.default for name, one in self.KEYS.items()}, **vars(self)}
