"""A smoke test: the weights are there, they are the right ones, and they can be computed with.

    python3 smoke.py ORG/MODEL REVISION

Reads the first half-precision tensor of `model.safetensors` from the Hugging Face cache under HF_HOME and prints its
shape, the SHA-256 of its bytes and the sum of its numbers. Exits with 1 when EXPECTED_CHECKSUM says another sum.
Needs Python 3.8 and nothing else.
"""

import hashlib
import json
import math
import os
import pathlib
import struct
import sys
import time

PIECE_NUMBERS = 65536


def snapshot(model_id, revision):
    """The folder of the model at that revision, as huggingface_hub lays it out."""
    home = pathlib.Path(os.getenv("HF_HOME") or pathlib.Path.home() / ".cache" / "huggingface")
    return home / "hub" / ("models--" + model_id.replace("/", "--")) / "snapshots" / revision


def first_tensor(path):
    """(name, shape, bytes) of the first float16 tensor of a safetensors file."""
    with path.open("rb") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_bytes))
        for name, tensor in sorted(header.items()):
            if name != "__metadata__" and tensor["dtype"] == "F16":
                start, stop = tensor["data_offsets"]
                file.seek(8 + header_bytes + start)
                return name, tensor["shape"], file.read(stop - start)
    raise SystemExit(f"{path} holds no float16 tensor")


def checksum(data):
    """The sum of the numbers, rounded once per piece and once in the end, so that it does not depend on the machine."""
    piece = struct.Struct(f"<{PIECE_NUMBERS}e")
    whole = len(data) - len(data) % piece.size
    sums = [math.fsum(piece.unpack_from(data, at)) for at in range(0, whole, piece.size)]
    sums.append(math.fsum(struct.unpack(f"<{(len(data) - whole) // 2}e", data[whole:])))
    return f"{math.fsum(sums):.6f}"


def main(model_id, revision):
    started = time.monotonic()
    folder = snapshot(model_id, revision)
    print(f"model     {model_id} at {revision}")
    config = json.loads((folder / "config.json").read_text())
    print(f"config    {config}", flush=True)
    name, shape, data = first_tensor(folder / "model.safetensors")
    found = {"tensor": name, "shape": shape, "sha256": hashlib.sha256(data).hexdigest(), "checksum": checksum(data)}
    for key, value in found.items():
        print(f"{key:9} {value}", flush=True)
    out = pathlib.Path("out")
    out.mkdir(exist_ok=True)
    (out / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(data) // 2} numbers in {time.monotonic() - started:.2f} s")
    expected = os.getenv("EXPECTED_CHECKSUM", found["checksum"])
    if found["checksum"] != expected:
        print(f"FAILED    expected checksum {expected}")
        return 1
    print("OK")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: smoke.py ORG/MODEL REVISION")
    sys.exit(main(sys.argv[1], sys.argv[2]))
