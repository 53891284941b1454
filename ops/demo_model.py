"""The demo's model and repository: a real small model out of a package, and `examples/smoke` with true pins.

model = demo_model(Path(".cache/demo"))
revision = hub.add_model(model.id, model.files)
files = smoke_repository(image="127.0.0.1:5000/demo@sha256:...", revision=revision, checksum=model.expected_checksum)
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-demo.lock"
EXAMPLE = ROOT / "examples" / "smoke"

MODEL_ID = "demo/wordllama-256"
_WEIGHTS = "wordllama/weights/l2_supercat_256.safetensors"
_WEIGHTS_SHA256 = "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
_LICENSE = "wordllama-0.4.0.post1.dist-info/licenses/LICENSE"
# The exact sum of the 8,192,000 numbers, rounded; a test computes it with integers.
_CHECKSUM = "-14212.973214"
_CONFIG = {"model_type": "static-embedding", "vocab_size": 32000, "hidden_size": 256, "torch_dtype": "float16"}
_INSTALL_TIMEOUT_S = 300

_IMAGE = "registry.example/python@sha256:" + "0" * 64
_REVISION = "0" * 40
_EXPECTED = '"0.000000"'


@dataclass(frozen=True, slots=True)
class DemoModel:
    """A model as the hub takes it."""

    id: str
    files: Mapping[str, Path]
    expected_checksum: str
    """What `examples/smoke/smoke.py` prints for it."""


def demo_model(cache: Path) -> DemoModel:
    """The model's files in `cache`; the first call installs them from the package index that pip is set up with.

    Raises subprocess.CalledProcessError, with pip's words in `stderr`, when that fails.
    """
    folder = cache / "wordllama-256"
    weights = folder / "model.safetensors"
    if not weights.is_file() or hashlib.sha256(weights.read_bytes()).hexdigest() != _WEIGHTS_SHA256:
        _install(cache, folder)
    files = {name: folder / name for name in ("LICENSE", "config.json", "model.safetensors")}
    return DemoModel(MODEL_ID, files, _CHECKSUM)


def smoke_repository(*, image: str, revision: str, checksum: str) -> dict[str, bytes]:
    """Files of `examples/smoke` with `image` (by digest), `revision` and `checksum` in place of the zeros."""
    files = {path.name: path.read_bytes() for path in sorted(EXAMPLE.iterdir()) if path.is_file()}
    text = files[".gpurun.yml"].decode()
    # The image first: its digest contains the zeros of a revision.
    for zeros, true in ((_IMAGE, image), (_REVISION, revision), (_EXPECTED, json.dumps(checksum))):
        if zeros not in text:
            raise ValueError(f"{EXAMPLE}/.gpurun.yml lacks {zeros}")
        text = text.replace(zeros, true)
    return files | {".gpurun.yml": text.encode()}


def _install(cache: Path, folder: Path) -> None:
    """Takes one wheel, whatever Python and machine this is: only a data file of it is used."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".installing-") as draft:
        target, made = Path(draft) / "site", Path(draft) / "model"
        argv = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"),
            *("--no-deps", "--require-hashes", "--no-compile", "--only-binary=:all:", "--implementation=cp"),
            *("--python-version=3.11", "--abi=cp311", "--platform=manylinux2014_x86_64"),
            *("--target", str(target), "--requirement", str(LOCK)),
        ]
        subprocess.run(argv, check=True, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S)
        made.mkdir()
        (target / _WEIGHTS).rename(made / "model.safetensors")
        (target / _LICENSE).rename(made / "LICENSE")
        (made / "config.json").write_text(json.dumps(_CONFIG, indent=1) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
