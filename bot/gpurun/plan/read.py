"""The tree of a file becomes the parts that `domain.config` declares, with every fault in it at its place.

Faults are found in the order of the file, so those that are told are the topmost. Where nothing is written is a fault
everywhere, also below keys that nobody knows.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any, TypeAlias, TypeVar

from gpurun.domain.part import Form, Many, Named, Part, Value
from gpurun.plan import faults
from gpurun.plan.faults import Fault, Path
from gpurun.plan.nodes import MERGE, Items, Node, Table, Text

P = TypeVar("P", bound=Part)
AnyForm: TypeAlias = "Form[Any] | type[Part]"


class Reader:
    """What it read is to be used only while there are no `faults`."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def part(self, model: type[P], node: Node, key: Node, path: Path) -> P:
        """What the node means, which stands behind the key and at that path of the file."""
        if model.SHORT and isinstance(node, Text) and not node.is_null:
            return self._short(model, node, key, path)
        if not isinstance(node, Table):
            self._add(node, partial(faults.no_part, path, model))
            self._find_nothing(node, key)
            return model()
        if model.REQUIRED and node.find(MERGE) is None:
            self.require_keys(model.REQUIRED, [name.value for name, _ in node.entries], key, path)
        found: dict[str, Any] = {}
        for name, value in node.entries:
            known = model.KEYS.get(name.value)
            if known is None:
                self._add(name, partial(faults.unknown_key, name.value, model))
                self._find_nothing(value, name)
                continue
            n_faults = len(self.faults)
            empty = faults.to_write(name.value, known) if isinstance(value, Text) and value.is_null else None
            read = self.value(known.form, value, name, (*path, name.value), empty=empty)
            if len(self.faults) == n_faults:
                found[name.value] = read
        made = model(**found)
        self.require_even(made, node, path)
        return made

    def _short(self, model: type[P], node: Text, key: Node, path: Path) -> P:
        """One text for the one key that is meant then."""
        n_faults = len(self.faults)
        read = self.value(model.KEYS[model.SHORT].form, node, key, path)
        return model(**{model.SHORT: read}) if len(self.faults) == n_faults else model()

    def require_keys(self, names: Collection[str], written: Collection[str], key: Node, path: Path) -> None:
        """What must be written is."""
        for name in names:
            if name not in written:
                self._add(key, partial(faults.missing, name, path))

    def require_even(self, part: Part, node: Node, path: Path) -> None:
        """No key of the part contradicts another one."""
        odd = part.odd()
        if odd is not None:
            name, told = odd
            written = node.find(name) if isinstance(node, Table) else None
            self._add(written[1] if written else node, partial(faults.wrong, told, (*path, name)))

    def value(self, form: AnyForm, node: Node, key: Node, path: Path, *, empty: str | None = None) -> Any:
        """What stands behind the key; `empty`: what to do when that is nothing."""
        if isinstance(node, Text) and node.is_null:
            self._add(node if node.value else key, partial(faults.no_value, key, empty))
        elif isinstance(form, Value):
            return self._text(form, node, key, path)
        elif isinstance(form, Many):
            return self._items(form, node, key, path)
        elif isinstance(form, Named):
            return self._names(form, node, key, path)
        else:
            assert isinstance(form, type)
            return self.part(form, node, key if isinstance(path[-1], str) else node, path)
        return None

    def _text(self, form: Value[Any], node: Node, key: Node, path: Path) -> Any:
        if isinstance(node, Text):
            try:
                return form.read(node.value)
            except ValueError as told:
                self._add(node, partial(faults.wrong, str(told), path))
        else:
            self._add(node, partial(faults.wrong, form.no_text, path))
            self._find_nothing(node, key)
        return None

    def _items(self, form: Many[Any], node: Node, key: Node, path: Path) -> tuple[Any, ...]:
        if not isinstance(node, Items):
            self._add(node, partial(faults.no_list, path, form.hint))
            self._find_nothing(node, key)
            return ()
        if len(node.items) < form.at_least:
            self._add(node, partial(faults.empty, path))
        if len(node.items) > form.at_most:
            self._add(node, partial(faults.too_many, form.at_most, path))
        items = node.items[: form.at_most]
        return tuple([self.value(form.of, item, key, (*path, number)) for number, item in enumerate(items)])

    def _names(self, form: Named[Any, Any], node: Node, key: Node, path: Path) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        if not isinstance(node, Table):
            self._add(node, partial(faults.no_table, path, None))
            self._find_nothing(node, key)
        elif len(node.entries) < form.at_least:
            self._add(node, partial(faults.empty, path))
        else:
            for name, value in node.entries:
                read = self._text(form.name, name, name, ())
                found[read] = self.value(form.of, value, name, (*path, name.value), empty=form.empty)
        return found

    def _find_nothing(self, node: Node, key: Node) -> None:
        """The faults of what is not read at all."""
        match node:
            case Text(value, is_null=True):
                self._add(node if value else key, partial(faults.no_value, key, None))
            case Items(items):
                for item in items:
                    self._find_nothing(item, key)
            case Table(entries):
                for name, inner in entries:
                    self._find_nothing(inner, name)

    def _add(self, at: Node, sentence: faults.Sentence) -> None:
        self.faults.append((at, sentence))
