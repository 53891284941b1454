"""Files of 64 KiB that want to be expensive, one for each way that we know. None of them can be used.

A bench holds them to milliseconds and megabytes; the unit test to a multiple of an ordinary file.
"""

from __future__ import annotations

from gpurun.plan.source import MAX_BYTES

IMAGE = "ghcr.io/org/app@sha256:" + "0123456789abcdef" * 4
HEAD = f"version: 1\njobs:\n  smoke:\n    image: {IMAGE}\n    run: x\n"


def lines(pattern: str) -> str:
    """The pattern again and again with `#` counted up, as often as it fits behind HEAD."""
    made, size = [], 0
    while (size := size + len(pattern) + 4) < MAX_BYTES - len(HEAD) - 200:
        made.append(pattern.replace("#", str(len(made))))
    return "".join(made)


def times(pattern: str, n: int) -> str:
    """The pattern `n` times, `#` counted up."""
    return "".join(pattern.replace("#", str(number)) for number in range(n))


def defaults(keys: str) -> str:
    """The start of a file up to `jobs:`, with what every job gets."""
    return f"version: 1\ndefaults: {{image: {IMAGE}, run: x, {keys}}}\njobs:\n"


FILES = {
    # aliases and anchors
    "alias bomb": "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{c}: &{c} [*a,*a,*a]\n" for c in "bcdefgh"),
    "anchors": lines("- &a# x\n"),
    "anchors in a row": lines("&a# "),
    "a long anchor": "&" + "a" * 65_000,
    "a long alias": "*" + "a" * 65_000,
    "aliases": "[" + lines("*a,"),
    "merge keys": lines("<<: {}\n"),
    # depth
    "brackets": "[" * 65_536,
    "braces": "{" * 65_536,
    "maps in maps": "{a: " * 16_000,
    "brackets in lines": "[\n" * 32_000,
    "dashes": "- " * 32_000,
    "question marks": "? " * 32_000,
    "question marks in braces": "{? " * 20_000,
    "anchors in brackets": "[&a " * 16_000,
    "blocks": "\n".join(" " * depth + "a:" for depth in range(350)),
    # number
    "keys": lines("k#: v\n"),
    "keys of few letters": "".join(f"{n:x}:\n" for n in range(11_000)),
    "keys in one line": "a: {" + lines("k#: v,"),
    "keys without values": lines("? k#\n"),
    "items": "-\n" * 32_000,
    "empty lists": "[" + "[]," * 21_000,
    "one key again and again": "a: 1\n" * 13_000,
    "documents": "---\n" * 16_000,
    "ends of documents": "a: 1\n" + "...\n" * 16_000,
    "empty lines": "\n" * 65_000,
    "comments": "# x\n" * 16_000,
    "commas": "[" + "," * 65_000,
    "colons": ":" * 65_000,
    "quotes": '"' * 65_000,
    # directives and tags
    "tag directives": lines("%TAG !#! b\n") + "---\na\n",
    "tag directives at the end": "a: 1\n...\n" + lines("%TAG !#! b\n") + "---\na\n",
    "a directive behind comments": "# x\n" * 16_000 + "%",
    "percent signs": "%" * 65_000,
    "exclamation marks": "!" * 65_000,
    "a tag in percent signs": "!<" + "%41" * 20_000 + "> x",
    # long texts
    "a long comment": "#" * 65_000,
    "a long word": "a" * 65_000,
    "a long key": "x" * 65_000 + ": 1\n",
    "a long value": "a: " + "x" * 65_000,
    "a folded value": "a: x\n" + " y\n" * 20_000,
    "a block": "a: |\n" + " x\n" * 20_000,
    "a folded block": "a: >\n" + " x\n\n" * 16_000,
    "single quotes": "a: '" + "x'' " * 16_000,
    "double quotes": 'a: "' + "\\x41" * 16_000 + '"',
    "characters of four bytes": "a: " + "\U0001f600" * 16_000,
    "spaces": "a" + " " * 65_000 + "b",
    "tabs": "\t" * 65_000,
    "pairs of halves": 'a: "' + r"\ud83d\ude80" * 5_400 + '"',
    "different halves": 'a: "' + "".join(f"\\u{code:04x}" for code in range(0xD801, 0xE000)) + '"\nb: ' + "ue" * 25_000,
    "all halves": 'a: "' + "".join(rf"\u{code:04x}\u{code:04X}" for code in range(0xD800, 0xE000)) + '"',
    # thousands of faults
    "unknown keys": HEAD + times("    key#x: v\n", 980),
    "long unknown keys": HEAD + times("    " + "k" * 50 + "#: v\n", 980),
    "unknown keys that look alike": HEAD + times("    " + "artifacts" * 90 + "#: v\n", 75),
    "unknown keys in one line": "{version: 1, jobs: {a: {" + times("j#: x, ", 980) + "}}}",
    "unknown keys at the top": "version: 1\njobs: {}\n" + times("key#x: v\n", 980),
    "keys without a value": "version: 1\njobs:\n" + times("  j#:\n", 980),
    "variables without a value": HEAD + "    env:\n" + times("      J#:\n", 980),
    "jobs without anything": "version: 1\njobs:\n" + times("  j#: {}\n", 980),
    "jobs that are texts": "version: 1\njobs:\n" + times("  j#: x\n", 980),
    "jobs of bad names": "version: 1\njobs:\n" + times("  J#: {image: x, run: ''}\n", 320),
    "variables of bad names": HEAD + "    env:\n" + times("      1#: [a]\n", 640),
    "models without anything": HEAD + "    models:\n" + times("      - {}\n", 1_900),
    "bad artifacts": HEAD + "    artifacts:\n" + times("      - ../#\n", 1_900),
    "one bad artifact": HEAD + "    artifacts: ['" + "../" * 20_000 + "']\n",
    "a bad model": HEAD + "    models: [{id: '" + "a/" * 30_000 + "', revision: x}]\n",
    "a bad image": HEAD.replace(IMAGE, "a@" + "b" * 64_000),
    "a bad duration": HEAD + "    limits: {max_duration: " + "9" * 64_000 + "}\n",
    # what `defaults` multiplies
    "variables in many jobs": defaults(f"env: {{{times('A#: x, ', 490)}}}") + times("  j#: {}\n", 490),
    "artifacts in many jobs": defaults(f"artifacts: [{times('a#, ', 50)}]") + times("  j#: {}\n", 940),
}  # fmt: skip
