r"""JSON writes a character beyond U+FFFF as two escapes, `\ud83d\ude80`; libyaml refuses each of them.

So the parser gets other escapes of the same length, of characters that the text does not hold, and they are put back
in the values. Whether a backslash starts an escape at all (in single quotes it does not) thus stays with the parser.
"""

from __future__ import annotations

import re

_HALF = r"(?i)(?<=\\u)d[89a-f][0-9a-f]{2}|(?<=\\U0000)d[89a-f][0-9a-f]{2}"
"""Patterns are texts here: `re` compiles them for the first file that has such an escape."""
_DIGITS = "(?=(e[0-9a-f]{3}))"
_STAND_INS = range(0xE000, 0xF000)
"""Private characters. `_DIGITS` and `_STAND_IN` know their range."""
_STAND_IN = "[\ue000-\uefff]|(?<=u)e[0-9a-f]{3}|(?<=U0000)e[0-9a-f]{3}"


class Halves:
    """`text` is what to parse; everything in it stands where it stood."""

    def __init__(self, text: str) -> None:
        self._originals: dict[str, str] = {}
        has_half = ("\\u" in text or "\\U" in text) and re.search(_HALF, text) is not None
        self.text = self._without(text) if has_half else text

    def put_back(self, value: str) -> str:
        """A value of the parsed text becomes one of the original text, with halves where escapes stood for them."""
        if not self._originals:
            return value
        return re.sub(_STAND_IN, lambda found: self._originals.get(found.group(), found.group()), value)

    def _without(self, text: str) -> str:
        taken = {*text, *(chr(int(digits, 16)) for digits in re.findall(_DIGITS, text.lower()))}
        free = (code for code in _STAND_INS if chr(code) not in taken)
        # where more halves differ than there are stand-ins, the rest stay and the parser refuses the first
        stand_ins = dict(zip(dict.fromkeys(re.findall(_HALF, text)), free, strict=False))
        for half, code in stand_ins.items():
            self._originals |= {f"{code:04x}": half, chr(code): chr(int(half, 16))}
        return re.sub(_HALF, lambda found: _digits(stand_ins.get(found.group()), found.group()), text)


def _digits(code: int | None, otherwise: str) -> str:
    return otherwise if code is None else f"{code:04x}"
