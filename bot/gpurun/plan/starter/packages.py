"""Which packages a repository asks for, where it says so, and how they are installed."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpurun.plan.starter.python_source import parsed

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*(?:(?:===?|~=)\s*([0-9][\w.+]*))?")
_CONDA = re.compile(r"\s*-\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:(?:={1,3}|~=)\s*([0-9][\w.+]*))?")
_DEV = re.compile(r"dev|test|doc|lint|ci|example|build|colab", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")

IMPORTED = {
    "accelerate": "accelerate", "datasets": "datasets", "diffusers": "diffusers", "fastapi": "fastapi uvicorn",
    "flask": "flask", "gradio": "gradio", "numpy": "numpy", "peft": "peft", "PIL": "pillow", "requests": "requests",
    "scipy": "scipy", "sentence_transformers": "sentence-transformers", "sklearn": "scikit-learn",
    "streamlit": "streamlit", "tensorflow": "tensorflow", "timm": "timm", "torch": "torch",
    "torchaudio": "torchaudio", "torchvision": "torchvision", "transformers": "transformers", "trl": "trl",
    "ultralytics": "ultralytics", "vllm": "vllm",
}  # fmt: skip
"""What a well-known import is called where packages are published. Others are not guessed: anybody may own the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Asked for outright, not as an option."""

    name: str
    """Normalised: lower case, with `-`."""
    version: str
    """Empty when it is not fixed."""
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """Of one project."""

    asked: tuple[Package, ...] = ()
    """In the order in which they are looked at."""
    requirements: str = ""
    """The file that `pip install -r` takes; empty for none."""
    dev_requirements: str = ""
    installable: str = ""
    """`pyproject.toml` or `setup.py`, when `pip install -e .` works with it."""
    conda: str = ""
    """`environment.yml`."""
    test_extra: str = ""
    """An extra of the project with pytest."""
    scripts: tuple[str, ...] = ()
    python: str = ""
    """What it says of the version, such as `>=3.10,<3.13`."""
    python_where: str = ""
    apt: tuple[str, ...] = ()
    """Of `packages.txt`."""
    from_git: bool = False
    """pip needs git."""
    cpu_only: str = ""
    """Where torch is asked for without CUDA."""
    dev_names: frozenset[str] = field(default_factory=frozenset)
    """Of the file for development."""

    def find(self, *names: str) -> Package | None:
        """The first of these that is asked for."""
        asked = self.by_name()
        return next((asked[name] for name in names if name in asked), None)

    def by_name(self) -> dict[str, Package]:
        """Each once: where its version is fixed, else where it is asked for first."""
        ordered = sorted(self.asked, key=lambda package: bool(package.version), reverse=True)
        return {package.name: package for package in reversed(ordered)}


def read_packages(texts: Mapping[str, str], paths: Iterable[str]) -> Packages:
    """From the texts of one project; `paths` for files that were not read."""
    every = frozenset(paths)
    names = sorted(path for path in every if re.fullmatch(r"requirements[\w.-]*\.txt|requirements/[\w.-]+\.txt", path))
    plain = [name for name in names if not _DEV.search(name.removeprefix("requirements"))]
    chosen = "requirements.txt" if "requirements.txt" in names else next(iter(plain), "")
    dev = next((name for name in names if re.search(r"dev|test", name) and name != chosen), "")
    project = _Project.read(texts.get("pyproject.toml", ""))
    conda = next((name for name in ("environment.yml", "environment.yaml") if name in every), "")
    text = texts.get(chosen, "")
    asked = [
        *_requirements(chosen, text),
        *_named("pyproject.toml", project.dependencies),
        *_named("setup.py", _setup_requires(texts.get("setup.py", ""))),
        *_conda(conda, texts.get(conda, "")),
    ]
    python, where = _python(texts, project)
    return Packages(
        asked=tuple(asked),
        requirements=chosen,
        dev_requirements=dev,
        installable=_installable(every, project),
        conda=conda,
        test_extra=project.test_extra,
        scripts=project.scripts,
        python=python,
        python_where=where,
        apt=tuple(
            word for word in texts.get("packages.txt", "").split() if re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", word)
        ),
        from_git="git+" in text or "git+" in " ".join(project.dependencies),
        cpu_only=chosen if re.search(r"whl/cpu\b|^torch==\S+\+cpu", text, re.MULTILINE) else "",
        dev_names=frozenset(one.name for one in _requirements(dev, texts.get(dev, ""))),
    )


def from_words(words: Iterable[str], where: str) -> tuple[Package, ...]:
    """From what stands behind `pip install`."""
    return tuple(_named(where, [word.strip("'") for word in words if not word.startswith(("-", "http"))]))


def from_imports(imported: Iterable[tuple[str, str]]) -> tuple[Package, ...]:
    """From (import, where), as far as it is well known."""
    found = [
        Package(name=name, version="", where=where)
        for module, where in imported
        for name in IMPORTED.get(module, "").split()
    ]
    return tuple({package.name: package for package in reversed(found)}.values())


def normal(name: str) -> str:
    """`Flash_Attn` is `flash-attn`. Source: PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _installable(paths: frozenset[str], project: _Project) -> str:
    if "pyproject.toml" in paths and project.installable:
        return "pyproject.toml"
    return "setup.py" if "setup.py" in paths else ""


def _requirements(where: str, text: str) -> Iterator[Package]:
    lines = (line.split(" #")[0].strip() for line in text.splitlines())
    return _named(where, [line for line in lines if line and not line.startswith(("#", "-"))])


def _named(where: str, requirements: Iterable[str]) -> Iterator[Package]:
    for requirement in requirements:
        found = _REQUIREMENT.match(requirement)
        if found:
            yield Package(name=normal(found[1]), version=found[2] or "", where=where)


def _conda(where: str, text: str) -> Iterator[Package]:
    for line in text.splitlines():
        found = _CONDA.match(line)
        if found:
            name = "torch" if found[1] == "pytorch" else normal(found[1])
            yield Package(name=name, version=found[2] or "", where=where)


def _setup_requires(text: str) -> list[str]:
    tree = parsed(text) if "install_requires" in text else None
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.keyword) and node.arg == "install_requires" and isinstance(node.value, ast.List):
            return [
                one.value for one in node.value.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
    return []


def _python(texts: Mapping[str, str], project: _Project) -> tuple[str, str]:
    if project.python:
        return project.python, "pyproject.toml"
    for name in (".python-version", "runtime.txt"):
        found = re.search(r"\b3\.\d{1,2}\b", texts.get(name, ""))
        if found:
            return f"=={found[0]}", name
    found = re.search(r"^python_version:\s*[\"']?(3\.\d{1,2})", texts.get("README.md", "")[:2000], re.MULTILINE)
    return (f"=={found[1]}", "README.md") if found else ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Project:
    """Of `pyproject.toml`."""

    installable: bool = False
    dependencies: tuple[str, ...] = ()
    test_extra: str = ""
    scripts: tuple[str, ...] = ()
    python: str = ""

    @classmethod
    def read(cls, text: str) -> _Project:
        """Empty for what is no such file."""
        try:
            root = tomllib.loads(text)
        except (ValueError, RecursionError):
            return cls()
        project, poetry = _table(root, "project"), _table(_table(root, "tool"), "poetry")
        wanted = _table(poetry, "dependencies")
        python = project.get("requires-python") or wanted.get("python")
        return cls(
            installable=bool(project or poetry or "build-system" in root),
            dependencies=(*_texts(project.get("dependencies")), *(_poetry(name, wanted[name]) for name in wanted)),
            test_extra=_test_extra(_table(project, "optional-dependencies")),
            scripts=tuple(
                name for name in (*_table(project, "scripts"), *_table(poetry, "scripts")) if _NAME.fullmatch(name)
            ),
            python=python if isinstance(python, str) else "",
        )


def _table(parent: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _poetry(name: str, version: object) -> str:
    fixed = isinstance(version, str) and re.fullmatch(r"=*\d[\d.]*", version)
    return f"{name}=={str(version).lstrip('=')}" if fixed else name


def _test_extra(extras: Mapping[str, object]) -> str:
    """One with pytest, the one that is named after tests before others."""
    having = [
        name for name, wanted in extras.items()
        if _NAME.fullmatch(name) and any(one.name == "pytest" for one in _named("", _texts(wanted)))
    ]  # fmt: skip
    return next((name for name in ("test", "tests", "testing", "dev") if name in having), next(iter(having), ""))
