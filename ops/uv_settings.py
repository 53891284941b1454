"""What pip was told of indexes and certificates, as uv's variables: whoever set up a mirror did so for pip.

`pip config list | python -m ops.uv_settings` prints `NAME=value` lines for `env`. Standard library only: nothing is
installed yet. uv's variables: https://docs.astral.sh/uv/reference/environment/ (2026-12-01).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator

_SETTING = re.compile(r"(global|install|:env:)\.([a-z-]+)=(.*)")
_STRENGTH = ("global", "install", ":env:")
_ONE = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE", "default-timeout": "UV_HTTP_TIMEOUT"}
_SEVERAL = {
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}


def main() -> int:
    """From stdin to stdout."""
    for line in uv_settings(sys.stdin):
        print(line)
    return 0


def uv_settings(listed: Iterable[str]) -> Iterator[str]:
    """One `NAME=value` each. Hashes are pinned, so all indexes are as good as the first one, as pip has it."""
    found: dict[str, tuple[int, str]] = {}
    for line in listed:
        if setting := _SETTING.fullmatch(line.strip()):
            section, key, value = setting.groups()
            strength = _STRENGTH.index(section)
            if strength >= found.get(key, (0, ""))[0]:
                found[key] = strength, ast.literal_eval(value)
    yield "UV_INDEX_STRATEGY=unsafe-best-match"
    for key, (_, value) in sorted(found.items()):
        if key in _ONE:
            yield f"{_ONE[key]}={value}"
        elif key in _SEVERAL:
            name, between = _SEVERAL[key]
            yield f"{name}={between.join(value.split())}"
        elif key == "no-index" and value.lower() in ("1", "true", "yes", "on"):
            yield "UV_NO_INDEX=1"


if __name__ == "__main__":
    sys.exit(main())
