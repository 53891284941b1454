"""Public images for what a repository asks for, where it names none that can be used."""

from __future__ import annotations

import re

from gpurun.plan.starter.packages import Package

PYTORCH = {
    "2.8": "2.8.0-cuda12.8-cudnn9-runtime",
    "2.7": "2.7.1-cuda12.8-cudnn9-runtime",
    "2.6": "2.6.0-cuda12.4-cudnn9-runtime",
    "2.5": "2.5.1-cuda12.4-cudnn9-runtime",
    "2.4": "2.4.1-cuda12.4-cudnn9-runtime",
    "2.3": "2.3.1-cuda12.1-cudnn8-runtime",
    "2.2": "2.2.2-cuda12.1-cudnn8-runtime",
    "2.1": "2.1.2-cuda12.1-cudnn8-runtime",
    "2.0": "2.0.1-cuda11.7-cudnn8-runtime",
    "1.13": "1.13.1-cuda11.6-cudnn8-runtime",
}
"""Tags of docker.io/pytorch/pytorch by torch's version. Source: public Dockerfiles that name them, read 2026-12."""
PYTORCH_DEFAULT = "2.6"
TENSORFLOW_DEFAULT = "2.17.0"
PYTHONS = ("3.13", "3.12", "3.11", "3.10", "3.9", "3.8")
PYTHON_DEFAULT = "3.12"
"""Most packages with compiled code have wheels for it."""
MINIFORGE = "docker.io/condaforge/miniforge3:24.11.3-0"

_CLAUSE = re.compile(r"(>=|<=|==|~=|!=|<|>|\^|=)?\s*3(?:\.(\d{1,2}))?")


def pytorch(torch: Package | None) -> str:
    """With the torch that is asked for, as far as there is one."""
    version = ".".join(torch.version.split(".")[:2]) if torch is not None else ""
    return f"docker.io/pytorch/pytorch:{PYTORCH.get(version, PYTORCH[PYTORCH_DEFAULT])}"


def tensorflow(asked: Package) -> str:
    """With that TensorFlow, and CUDA."""
    version = asked.version if re.fullmatch(r"2\.\d{1,2}\.\d{1,2}", asked.version) else TENSORFLOW_DEFAULT
    return f"docker.io/tensorflow/tensorflow:{version}-gpu"


def vllm(asked: Package) -> str:
    """With that vLLM, and all that it needs."""
    version = asked.version if re.fullmatch(r"\d{1,2}\.\d{1,3}\.\d{1,3}(?:\.post\d)?", asked.version) else ""
    return f"docker.io/vllm/vllm-openai:{f'v{version}' if version else 'latest'}"


def python(wanted: str, *, slim: bool) -> str:
    """The usual version, when `wanted` (`>=3.10,<3.12`) allows it, else the newest that it allows."""
    allowed = [version for version in PYTHONS if _allows(wanted, int(version.partition(".")[2]))]
    version = PYTHON_DEFAULT if PYTHON_DEFAULT in allowed or not allowed else allowed[0]
    return f"docker.io/library/python:{version}{'-slim' if slim else ''}"


def _allows(wanted: str, minor: int) -> bool:
    return all(_holds(clause, minor) for clause in _CLAUSE.finditer(wanted))


def _holds(clause: re.Match[str], minor: int) -> bool:
    if clause[2] is None or clause[1] == "!=":
        return True
    asked = int(clause[2])
    match clause[1]:
        case ">=" | "~=" | "^" | ">":  # `>3.8` means a later patch of it, too
            return minor >= asked
        case "<" | "<=":
            return minor < asked + (clause[1] == "<=")
        case _:
            return minor == asked
