"""`nvidia-smi` as a program that answers from a recording under `tests/data/nvidia-smi`.

    python nvidia_smi.py RECORDING (idle|load) [nvidia-smi's own arguments…]

`-L`, no argument (the table) and `--query-gpu=… --format=csv[,noheader][,nounits]` are known. A field that is not in
the recording is refused as the real program refuses one that it does not know. Standard library only, for speed.
"""

import sys
from pathlib import Path

UNITS = (" %", " MiB", " W", " MHz")


def sections(path: str) -> "dict[tuple[str, str], list[str]]":
    """By (state, command)."""
    found: dict[tuple[str, str], list[str]] = {}
    lines: list[str] = []
    for line in Path(path).read_text(encoding="utf-8").split("\n"):
        if line.startswith("#### "):
            state, _, command = line[5:].partition(" $ ")
            lines = found.setdefault((state, command), [])
        else:
            lines.append(line)
    return found


def query(recorded: "dict[tuple[str, str], list[str]]", state: str, fields: "list[str]", form: "list[str]") -> int:
    lead = "nvidia-smi --query-gpu="
    command = next(command for where, command in recorded if where == state and command.startswith(lead))
    known = command[len(lead) :].split(" ")[0].split(",")
    for field in fields:
        if field not in known:
            say(f'Field "{field}" is not a valid field to query.\n')
            return 2
    head, *rows = [line.split(", ") for line in recorded[state, command] if line]
    at = [known.index(field) for field in fields]
    if "noheader" not in form:
        say(", ".join(head[index] for index in at))
    for row in rows:
        say(", ".join(_bare(row[index]) if "nounits" in form else row[index] for index in at))
    return 0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _bare(value: str) -> str:
    return next((value[: -len(unit)] for unit in UNITS if value.endswith(unit)), value)


def main(path: str, state: str, *argv: str) -> int:
    recorded = sections(path)
    options = dict(option.partition("=")[::2] for option in argv)
    if "--query-gpu" in options:
        return query(recorded, state, options["--query-gpu"].split(","), options.get("--format", "").split(","))
    where = ("capabilities", "nvidia-smi -L") if "-L" in options else (state, "nvidia-smi")
    say("\n".join(recorded[where]))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
