"""From what is known of a repository to one job that is likely to work, with the reason for each line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gpurun.domain.repository import RepoFacts
from gpurun.plan.starter import images
from gpurun.plan.starter.commands import Command, command_of, may_hold_a_secret
from gpurun.plan.starter.dockerfile import Dockerfile, pip_words, read_dockerfile
from gpurun.plan.starter.mains import files_of_module
from gpurun.plan.starter.models import FoundModel, Source, Untold, folders_of, models_in, models_in_words, read_source
from gpurun.plan.starter.packages import Package, Packages, from_imports, from_words, read_packages
from gpurun.plan.starter.python_source import notebook_code
from gpurun.plan.starter.secrets import FoundSecret, chosen, secrets_in_examples
from gpurun.plan.starter.variables import Environment, environment, given_by

_PROJECT = re.compile(
    r"(?:requirements[\w.-]*\.txt|pyproject\.toml|setup\.py|environment\.ya?ml|Dockerfile|[^/]+\.ipynb"
    r"|(?:smoke|demo|app|main|inference|predict|generate|server|serve|train)\.py|test_[^/]+\.py)"
)
"""A folder with one of these is a project."""
_TORCH = (
    "torch", "torchvision", "torchaudio", "transformers", "diffusers", "accelerate", "sentence-transformers",
    "bitsandbytes", "xformers", "flash-attn", "pytorch-lightning", "lightning", "timm", "peft", "trl", "ultralytics",
    "openai-whisper", "deepspeed", "auto-gptq", "autoawq", "unsloth", "open-clip-torch", "optimum",
)  # fmt: skip
"""They need torch, and are slow or useless without a GPU."""
_OTHER_GPU = (
    "vllm",
    "sglang",
    "tensorflow",
    "tensorflow-gpu",
    "onnxruntime-gpu",
    "faster-whisper",
    "cupy-cuda12x",
    "paddlepaddle-gpu",
)
_GPU_BASE = re.compile(r"cuda|nvidia|nvcr\.io|pytorch/pytorch|vllm|sglang|-gpu\b|rocm|unsloth")
_IMAGE_HAS = frozenset({"torch", "vllm", "tensorflow"})
_APT_FOR_PYTHON = re.compile(r"python|pip|sudo$|apt-utils$")
MAX_MODELS = 8
"""That the job gets; a first run should not load a dozen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A value and where it comes from. An empty value is left out."""

    value: str = ""
    because: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """Everything that a first file says."""

    folder: str
    """The project that it is for; empty for the top of the repository."""
    other_folders: tuple[str, ...]
    image: Line
    setup: tuple[str, ...]
    """Commands, each of which must work."""
    setup_because: tuple[str, ...]
    command: Command
    models: tuple[FoundModel, ...]
    other_models: tuple[FoundModel, ...]
    """Named in files that the command does not seem to reach."""
    untold: tuple[Untold, ...]
    secrets: tuple[FoundSecret, ...]
    """Variables that look like credentials."""
    env: Environment
    """What the image of the Dockerfile sets, and that of the job does not."""
    gpu: Line
    artifacts: str


def guess(facts: RepoFacts) -> Guess:
    """For any repository, also an empty one."""
    folder, others = _folder(facts.paths)
    project = facts.inside(folder)
    dockerfile = _dockerfile(project)
    sources = _read(project, given_by(dockerfile))
    packages = _with_more(read_packages(project.texts, project.paths), project.texts, dockerfile, sources)
    command = command_of(project.paths, project.texts, packages, dockerfile)
    image = _image(packages, dockerfile)
    setup, because = _setup(packages, dockerfile, command, image.value)
    models, other_models, untold = _models(sources, command, folder)
    return Guess(
        folder=folder,
        other_folders=others,
        image=image,
        setup=setup,
        setup_because=because,
        command=command,
        models=models,
        other_models=other_models,
        untold=untold,
        secrets=_secrets(project, sources, command),
        env=environment(dockerfile, _defaults(sources, command)),
        gpu=_gpu(packages, dockerfile),
        artifacts="out/**" if "--output-dir out" in command.text else "",
    )


def _folder(paths: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The project of a repository, empty for its top, and the folders of others."""
    signs: dict[str, int] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if _PROJECT.fullmatch(name) and folder.count("/") < 3 and _is_plain(folder):
            signs[folder] = signs.get(folder, 0) + 1
    if "" in signs or "tests" in signs:
        return "", ()
    ordered = sorted(signs, key=lambda folder: (folder.count("/"), -signs[folder], folder))
    top = [folder for folder in ordered if not any(folder.startswith(f"{other}/") for other in ordered)]
    return (top[0], tuple(top[1:])) if top else ("", ())


def _is_plain(folder: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_./-]*", folder) is not None and not folder.startswith("-")


def _dockerfile(project: RepoFacts) -> Dockerfile | None:
    """The nearest; one for a GPU before others."""
    found = [path for path in project.texts if re.search(r"(?:^|/|\.)(?:Dockerfile|Containerfile)", path)]
    found.sort(key=lambda path: (path.count("/"), not re.search("gpu|cuda", path, re.IGNORECASE), path))
    return read_dockerfile(found[0], project.texts[found[0]]) if found else None


def _with_more(
    packages: Packages, texts: Mapping[str, str], dockerfile: Dockerfile | None, sources: Mapping[str, Source]
) -> Packages:
    """What the Dockerfile installs counts, too; what code imports only where nothing else says anything."""
    asked = (*packages.asked, *_of_notebooks(texts))
    if dockerfile is not None:
        asked = (*asked, *from_words(dockerfile.pip, dockerfile.path))
    if not packages.asked and not packages.installable and (dockerfile is None or not dockerfile.pip):
        imported = ((name, path) for path, source in sources.items() for name in sorted(source.imports))
        asked = (*asked, *from_imports(imported))
    return replace(packages, asked=asked)


def _of_notebooks(texts: Mapping[str, str]) -> Iterator[Package]:
    """`!pip install …` of their cells."""
    for path, text in texts.items():
        for line in notebook_code(text)[1] if path.endswith(".ipynb") else ():
            yield from from_words(pip_words(line.lstrip("!%")), path)


def _read(project: RepoFacts, variables: Mapping[str, str]) -> dict[str, Source]:
    """Each file of Python, parsed once."""
    folders = folders_of(project.paths)
    return {path: read_source(path, text, folders, variables) for path, text in _sources(project.texts)}


def _sources(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for path, text in texts.items():
        if path.endswith(".py") and path != "setup.py":
            yield path, text
        elif path.endswith(".ipynb"):
            yield path, notebook_code(text)[0]


def _image(packages: Packages, dockerfile: Dockerfile | None) -> Line:
    why: tuple[str, ...] = ()
    if dockerfile is not None and dockerfile.base and not may_hold_a_secret(dockerfile.base.partition("@")[0]):
        where = f"`{dockerfile.path}:{dockerfile.base_line}`"
        if dockerfile.has_python:
            return Line(value=_full(dockerfile.base), because=(f"{where} starts from it.", _built(dockerfile)))
        why = (
            f"{where} starts from `{dockerfile.base}`, which has no python3 of its own, and gpurun needs one.",
            _built(dockerfile),
        )
    line = _default_image(packages)
    return replace(line, because=(*line.because, *why))


def _built(dockerfile: Dockerfile) -> str:
    """The other way, which needs what the engine's builder knows."""
    key = "build: ." if dockerfile.path == "Dockerfile" else f"build: {{dockerfile: {dockerfile.path}}}"
    return f"Or write `{key}` in the place of `image`: then that Dockerfile is built, and what it gave is cached."


def _default_image(packages: Packages) -> Line:
    vllm, torch = packages.find("vllm"), packages.find(*_TORCH)
    tensorflow = packages.find("tensorflow", "tensorflow-gpu")
    if vllm is not None:
        return Line(value=images.vllm(vllm), because=(f"{_asks(vllm)}; this image has it.",))
    if packages.conda and not packages.requirements:
        return Line(value=images.MINIFORGE, because=(f"`{packages.conda}` is for conda.",))
    if torch is not None and not packages.cpu_only:
        image = images.pytorch(packages.find("torch"))
        has = image.rpartition(":")[2].partition("-")[0]
        return Line(value=image, because=(f"{_asks(packages.find('torch') or torch)}; this image has torch {has}.",))
    if tensorflow is not None:
        return Line(value=images.tensorflow(tensorflow), because=(f"{_asks(tensorflow)}; this image has it.",))
    because = (f"`{packages.python_where}` asks for Python {packages.python}.",) if packages.python else ()
    if packages.cpu_only:
        because = (*because, f"`{packages.cpu_only}` asks for torch without CUDA.")
    return Line(
        value=images.python(packages.python, slim=not packages.from_git),
        because=because or ("Nothing that was found asks for another one.",),
    )


def _asks(package: Package) -> str:
    version = f" {package.version}" if package.version else ""
    verb = "imports" if package.where.endswith((".py", ".ipynb")) and package.where != "setup.py" else "asks for"
    return f"`{package.where}` {verb} {package.name}{version}"


def _full(image: str) -> str:
    """With its registry and a tag, as `docker pull` reads it."""
    first, slash, _ = image.partition("/")
    name = image if slash and ("." in first or ":" in first or first == "localhost") else f"docker.io/{image}"
    name = name if slash else f"docker.io/library/{image}"
    return name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"


def _setup(
    packages: Packages, dockerfile: Dockerfile | None, command: Command, image: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    lines: list[str] = []
    because: list[str] = []
    apt = _apt(packages, dockerfile, image)
    if apt:
        lines.append(f"apt-get update && apt-get install -y --no-install-recommends {' '.join(apt)}")
    installs = [command.installs] if command.installs else []
    if packages.conda and not packages.requirements:
        lines.append(f"conda env update -n base -f {packages.conda}")
        because.append(f"`{packages.conda}`")
    if packages.requirements:
        lines.append(f"pip install -r {packages.requirements}")
        because.append(f"`{packages.requirements}`")
    if packages.installable:
        extra = packages.test_extra if "pytest" in command.text else ""
        lines.append(f"pip install -e '.[{extra}]'" if extra else "pip install -e .")
        because.append(f"`{packages.installable}`")
    if "pytest" in command.text and "pytest" in packages.dev_names and not packages.test_extra:
        lines.append(f"pip install -r {packages.dev_requirements}")
        because.append(f"`{packages.dev_requirements}`")
    if not packages.requirements and dockerfile is not None and dockerfile.pip:
        lines.append(f"pip install {' '.join(dockerfile.pip)}")
        because.append(f"`{dockerfile.path}`")
    elif not (packages.requirements or packages.installable or packages.conda):
        installs = [*_wanted(packages), *installs]
    if installs:
        lines.append(f"pip install {' '.join(installs)}")
    return tuple(lines), (f"From {', '.join(because)}.",) if because else ()


def _wanted(packages: Packages) -> list[str]:
    """What only code asks for, each once; the image has the largest already."""
    named = packages.by_name()
    wanted = sorted(named.keys() - _IMAGE_HAS)
    return [f"{name}=={named[name].version}" if named[name].version else name for name in wanted]


def _apt(packages: Packages, dockerfile: Dockerfile | None, image: str) -> tuple[str, ...]:
    wanted = [*packages.apt, *(dockerfile.apt if dockerfile is not None else ())]
    if packages.from_git and ("slim" in image or "pytorch/" in image):
        wanted.append("git")
    return tuple(name for name in dict.fromkeys(wanted) if not _APT_FOR_PYTHON.match(name))[:40]


def _gpu(packages: Packages, dockerfile: Dockerfile | None) -> Line:
    package = packages.find(*_TORCH, *_OTHER_GPU)
    if package is not None and not packages.cpu_only:
        return Line(
            value="{gpu: 1, shm_size: 8GB}", because=(f"{_asks(package)}. If the job needs no GPU, delete the line.",)
        )
    if dockerfile is not None and _GPU_BASE.search(dockerfile.base):
        where = f"`{dockerfile.path}:{dockerfile.base_line}`"
        return Line(value="{gpu: 1, shm_size: 8GB}", because=(f"{where} starts from `{dockerfile.base}`.",))
    return Line()


def _models(
    sources: Mapping[str, Source], command: Command, folder: str
) -> tuple[tuple[FoundModel, ...], tuple[FoundModel, ...], tuple[Untold, ...]]:
    """Those that the command reaches, others, and what cannot be read."""
    found, untold = models_in(sources.values())
    found = (*models_in_words(command.words, command.where), *found)
    found = tuple({model.id: model for model in reversed(found)}.values())[::-1]
    reached = _reached(command, sources)
    near = [model for model in found if not reached or model.where.rpartition(":")[0] in {*reached, *_file(command)}]
    far = [model for model in found if model not in near]
    near, far = near[:MAX_MODELS], near[MAX_MODELS:] + far
    untold = tuple(one for one in untold if not reached or one.where.rpartition(":")[0] in reached)
    return tuple(_at(model, folder) for model in near), tuple(_at(model, folder) for model in far), untold


def _secrets(project: RepoFacts, sources: Mapping[str, Source], command: Command) -> tuple[FoundSecret, ...]:
    """Of the files that the command reaches, when it names some, and of examples."""
    reached = _reached(command, sources) or sources.keys()
    in_code = (one for path in sources if path in reached for one in sources[path].secrets)
    return chosen((*in_code, *secrets_in_examples(project.texts, project.dotenv)))


def _defaults(sources: Mapping[str, Source], command: Command) -> dict[str, str]:
    """What the code that the command reaches takes for variables that are not set."""
    reached = _reached(command, sources) or sources.keys()
    found: dict[str, str] = {}
    for path in sources:
        found = {**sources[path].defaults, **found} if path in reached else found
    return found


def _file(command: Command) -> tuple[str, ...]:
    return (command.where.rpartition(":")[0],) if command.where else ()


def _at(model: FoundModel, folder: str) -> FoundModel:
    return replace(model, where=f"{folder}/{model.where}") if folder else model


def _reached(command: Command, sources: Mapping[str, Source]) -> frozenset[str]:
    """Files that the command names, and what they import of the repository. Empty when it names none."""
    if "-m pytest" in command.text:
        todo = [path for path in sources if re.search(r"(?:^|/)(?:tests?/|test_|conftest)|_test\.py$", path)]
    else:
        todo = [path for path in sources if re.search(rf"(?:^|\s|'){re.escape(path)}(?:$|\s|')", command.text)]
        named = re.findall(r"python3? -m ([\w.]+)", command.text)
        todo += [path for name in named for path in files_of_module(name, sources.keys())]
        todo += [command.starts] if command.starts in sources else []
    reached: set[str] = set()
    while todo:
        path = todo.pop()
        if path in reached:
            continue
        reached.add(path)
        todo += [found for name in sources[path].modules for found in _files(name, path, sources)]
    return frozenset(reached)


def _files(module: str, importer: str, sources: Mapping[str, Source]) -> Iterator[str]:
    inside = module.replace(".", "/")
    above = importer.split("/")[:-1]
    beside = ["/".join([*above[:count], ""]) for count in range(1, len(above) + 1)]
    for place in dict.fromkeys(["", "src/", *beside]):
        for path in (f"{place}{inside}.py", f"{place}{inside}/__init__.py"):
            if path in sources:
                yield path
