"""The spellings of a secret that programs print: the one list. The bot masks them, and the agent gets them as needles.

A value is also taken apart: each line, and each string inside a JSON value, is a secret of its own. Not covered, as it
cannot be: compressed and encrypted copies, and forms of a program's own making (reversed, spaced out, UTF-16).
"""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote_from_bytes, quote_plus

from pydantic import SecretStr

from gpurun.domain.errors import SecretRefused
from gpurun.domain.secret import MIN_SECRET_CHARS, require_maskable
from gpurun_agent import protocol

MIN_FORM_BYTES = 6
MAX_PARTS = 1000
"""Lines and JSON strings of one value that are secrets of their own; what follows is masked as part of it only."""
MAX_TOLD_BYTES = 2 * 1024 * 1024
"""Of all forms of all secrets of a job, as an agent is told them. It reads no answer of more than 8 MiB
(`gpurun_agent.wire`), and the answer to its claim holds the values, variables and models too."""

_USERS = ("x", "x-access-token")
"""Before the colon of a basic header, where the name is known; other names leave at most one character at each edge."""
_WRAPS = (64, 76)
"""Columns of base64 as PEM and MIME wrap it."""
_URL_SAFE = ("", "/", "!*'()", ";,/?:@&=+$!*'()#")
"""Left as they are by: most, Python's `quote`, JavaScript's `encodeURIComponent` and `encodeURI`."""
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_JSON_ESCAPED_TOO = ("<>&\u2028\u2029", "<>&'+`")
_JSON_CODE = re.compile(r"\\u[0-9a-f]{4}")
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
"""Nothing quotes these: most tokens have no other spelling than bytes, hex and base64."""
_SHELL_PLAIN = re.compile(r"[A-Za-z0-9_./:=@%+,-]")


def needles(secrets: Iterable[SecretStr]) -> frozenset[bytes]:
    """The forms of all of them. Raises SecretRefused."""
    return frozenset(form for secret in secrets for form in forms(secret))


def require_tellable(secrets: Iterable[SecretStr]) -> None:
    """Raises SecretRefused for more forms than an agent can be told; the message holds no value. Takes up to a second
    for large values.
    """
    size = len(protocol.encode(("mask", needle) for needle in needles(secrets)))
    if size > MAX_TOLD_BYTES:
        raise SecretRefused(
            f"What must be masked has {size // 1024} KiB in all its spellings, more than {MAX_TOLD_BYTES // 1024} KiB.",
            hint="Encrypt the large value, and make its key the secret.",
        )


def forms(secret: SecretStr) -> frozenset[bytes]:
    """Every spelling that is masked, each at least `MIN_FORM_BYTES` long. Raises SecretRefused."""
    require_maskable(secret)
    found: set[bytes] = set()
    for value in _values(secret.get_secret_value()):
        found.update(_spellings(value))
    return frozenset(form for form in found if len(form) >= MIN_FORM_BYTES)


def _values(text: str) -> set[str]:
    """The value itself, without what surrounds it, and its parts."""
    found = {text}
    parts = [*text.splitlines(), *_json_strings(text)]
    found.update(parts[:MAX_PARTS])
    bare = {value.strip() for value in found}
    inner = {value[1:-1] for value in bare if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'`"}
    return {value for value in found | bare | inner if len(value.strip()) >= MIN_SECRET_CHARS}


def _json_strings(text: str) -> list[str]:
    """Every string among the values of a JSON document, and the lines of those that have several."""
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return []
    try:
        found = list(_leaves(json.loads(text)))
    except (ValueError, RecursionError):
        return []
    return [part for leaf in found for part in (leaf, *leaf.splitlines())]


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)


def _spellings(value: str) -> Iterator[bytes]:
    """A run's own tokens are plain, and a thousand runs have two each."""
    data = value.encode("utf-8", "surrogateescape")
    yield data
    yield from _both_cases(data.hex())
    yield from _base64_forms(data)
    if _PLAIN.fullmatch(value):
        return
    yield from _url_forms(data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        yield repr(data)[2:-1].encode()
        return
    for form in (*_json_forms(text), *_shell_forms(text), *_python_forms(text), *_markup_forms(text)):
        yield form.encode()


def _both_cases(form: str) -> Iterator[bytes]:
    yield form.lower().encode()
    yield form.upper().encode()


def _base64_forms(data: bytes) -> Iterator[bytes]:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for shift in range(3):
            # The characters that depend on nothing but the secret, for 0, 1 and 2 bytes in front of it.
            first, last = (shift * 8 + 5) // 6, (shift + len(data)) * 8 // 6
            yield encode(b"\0" * shift + data)[first:last]
        alone = [data, data + b"\n", *(f"{user}:".encode() + data for user in _USERS)]
        yield from (encode(text).rstrip(b"=") for text in alone)
    for text in (data, data + b"\n"):
        encoded = base64.b64encode(text)
        for width in _WRAPS:
            if len(encoded) > width:
                yield from (encoded[at : at + width] for at in range(0, len(encoded), width))


def _url_forms(data: bytes) -> Iterator[bytes]:
    quoted = {quote_from_bytes(data, safe=safe) for safe in _URL_SAFE} | {quote_plus(data)}
    for form in quoted:
        yield form.encode()
        yield re.sub("%[0-9A-F]{2}", _lowered, form).encode()


def _lowered(match: re.Match[str]) -> str:
    return match[0].lower()


def _json_forms(text: str) -> set[str]:
    r"""Of Python, JavaScript, PHP (`\/`), Go and .NET (more as `\u00xx`); twice for JSON inside JSON."""
    once = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    found = once | {json.dumps(form)[1:-1] for form in once}
    found |= {form.replace("/", "\\/") for form in found}
    found |= {form.replace('\\"', "\\u0022") for form in once}
    found |= {_unicode_escaped(form, characters) for form in found for characters in _JSON_ESCAPED_TOO}
    return found | {_JSON_CODE.sub(_upper_digits, form) for form in found}


def _unicode_escaped(form: str, characters: str) -> str:
    return "".join(f"\\u{ord(char):04x}" if char in characters else char for char in form)


def _upper_digits(match: re.Match[str]) -> str:
    return "\\u" + match[0][2:].upper()


def _shell_forms(text: str) -> Iterator[str]:
    """Of `shlex.quote`, `set -x`, `printf %q`, `$'…'`, and inside double quotes."""
    yield shlex.quote(text)
    yield text.replace("'", "'\"'\"'")
    yield text.replace("'", "'\\''")
    yield "".join(char if _SHELL_PLAIN.fullmatch(char) or ord(char) > 127 else f"\\{char}" for char in text)
    yield _escaped(text, "'", lambda code: f"\\{code:03o}")
    yield "".join(f"\\{char}" if char in '"\\$`' else char for char in text)


def _python_forms(text: str) -> Iterator[str]:
    """Of `repr`, `ascii` and the repr of bytes; which quote is escaped depends on the text around."""
    for shown in (repr(text), ascii(text), repr(text.encode())[1:]):
        inner = shown[1:-1]
        bare = inner.replace("\\'", "'")
        yield inner
        yield bare
        yield bare.replace("'", "\\'")


def _markup_forms(text: str) -> Iterator[str]:
    plain = html.escape(text, quote=False)
    yield plain
    for double in ("&quot;", "&#34;"):
        for single in ("&#x27;", "&#39;", "&apos;", "'"):
            yield plain.replace('"', double).replace("'", single)


def _escaped(text: str, quotes: str, other: Callable[[int], str]) -> str:
    """With backslashes; what is not printable ASCII byte by byte."""
    out = []
    for char in text:
        if char in _SHORT_ESCAPES:
            out.append(_SHORT_ESCAPES[char])
        elif char in quotes:
            out.append(f"\\{char}")
        elif " " <= char <= "~":
            out.append(char)
        else:
            out.extend(other(byte) for byte in char.encode())
    return "".join(out)
