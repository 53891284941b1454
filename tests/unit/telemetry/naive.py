"""What masking means, in the plainest way: what an occurrence covers becomes stars. Slow, and apart on purpose."""

from __future__ import annotations

import re
from collections.abc import Iterable

SPACE = rb"(?:[ \t\r\n\"'+,]|\\+[nr]?)*"
BASE64 = rb"[A-Za-z0-9+/=]"
HEADER = rb"(?=[^\n\\]{0,119}[\n\\])(?:Proc-Type|DEK-Info|Version|Comment):[^\n\\]*+"
"""To its line's end: what stands behind `DEK-Info:` is no line of the key."""
LABEL = rb"[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"

SHAPES = [
    re.compile(b"(?=(%s))" % shape)
    for shape in (
        rb"gh[pousr]_[A-Za-z0-9_-]{36}[A-Za-z0-9_.-]{0,984}",
        rb"github_pat_[A-Za-z0-9_]{50,255}",
        rb"(?:hf|rpa)_[A-Za-z0-9]{30,80}",
        rb"(?:AKIA|ASIA)[A-Z2-7]{16}",
        rb"(?:aws_secret_access_key|AWS_SECRET_ACCESS_KEY|SecretAccessKey)[ \t\"'=:>,\\]{1,8}[A-Za-z0-9/+]{40,64}",
        b"".join(
            (
                rb"-----BEGIN " + LABEL,
                rb"(?:" + SPACE + HEADER + rb")*",
                rb"(?:" + SPACE + BASE64 + rb"{32,})+",
                rb"(?:" + SPACE + BASE64 + rb"{1,31}(?!" + BASE64 + rb"))?",
                rb"(?:" + SPACE + rb"-----END " + LABEL + rb")?",
            )
        ),
    )
]


def masked(text: bytes, needles: Iterable[bytes]) -> bytes:
    """The definition."""
    out = bytearray(text)
    for needle in needles:
        for at in range(len(text) - len(needle) + 1):
            if text.startswith(needle, at):
                out[at : at + len(needle)] = b"*" * len(needle)
    for shape in SHAPES:
        for match in shape.finditer(text):
            start, end = match.span(1)
            out[start:end] = b"*" * (end - start)
    return bytes(out)
