"""Models that code names: calls of the usual libraries, read from the syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from gpurun.domain.config_values import MODEL_REVISION
from gpurun.domain.quantity import quoted
from gpurun.plan.starter.python_source import constants, defaults, dotted, imports, modules, parsed, text_of
from gpurun.plan.starter.secrets import NAMES_A_VARIABLE, FoundSecret, secrets_in_code

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_HEX40 = re.compile(r"[0-9a-f]{40}")
NAMES_A_MODEL = re.compile(
    r"from_pretrained|snapshot_download|hf_hub_download|pipeline|LLM|EngineArgs|SentenceTransformer|CrossEncoder"
    r"|load_lora_weights|load_dataset|hub\.load|hub import load"
)
"""Only files with one of these are looked through for calls."""
_FOLDERS = frozenset(
    {
        *("checkpoint", "checkpoints", "ckpt", "ckpts", "data", "experiments", "logs", "model", "models", "out"),
        *("output", "outputs", "path", "pretrained", "results", "runs", "saved", "saved_models", "tmp", "weights"),
    }
)
"""First parts of an `a/b` that is far more often a folder than an organisation of the hub."""


_CALLS: dict[str, tuple[int, tuple[str, ...]]] = {
    "from_pretrained": (0, ("pretrained_model_name_or_path", "pretrained_model_name", "model_name", "model_id")),
    "snapshot_download": (0, ("repo_id",)),
    "hf_hub_download": (0, ("repo_id",)),
    "pipeline": (1, ("model",)),
    "LLM": (0, ("model",)),
    "EngineArgs": (0, ("model",)),
    "AsyncEngineArgs": (0, ("model",)),
    "SentenceTransformer": (0, ("model_name_or_path", "model_name")),
    "CrossEncoder": (0, ("model_name_or_path", "model_name")),
    "load_lora_weights": (0, ("pretrained_model_name_or_path_or_dict",)),
    "load_dataset": (0, ("path",)),
    "load": (0, ("repo_or_dir",)),
}
"""Where a call has the name of what it loads: at which place, or behind which keyword."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model with its name in the code."""

    id: str
    revision: str
    """As the code has it; empty when it asks for none."""
    where: str
    """`app.py:12`."""
    lost_revision: str = ""
    """What the code asks for there instead, when that is nothing that could be pinned: `args.revision`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    """A call that loads something whose name is not there to be read."""

    where: str
    call: str
    """`from_pretrained(args.model)`."""
    why: str


@dataclass(frozen=True, slots=True)
class _Call:
    """What a call asks for."""

    name: str
    source: ast.expr | None
    revision: ast.expr | None
    line: int


@dataclass(frozen=True, slots=True)
class Source:
    """What one file of Python says, after its tree is gone."""

    imports: frozenset[str] = frozenset()
    modules: tuple[str, ...] = ()
    found: tuple[FoundModel | Untold, ...] = ()
    """By line."""
    secrets: tuple[FoundSecret, ...] = ()
    """By line."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Of variables of the environment."""


def read_source(path: str, text: str, folders: Collection[str], variables: Mapping[str, str]) -> Source:
    """`folders` of the repository tell paths from names of the hub; `variables` are those that a job will have."""
    tree = parsed(text)
    if tree is None:
        return Source()
    nodes = tuple(ast.walk(tree))
    source = Source(imports=imports(nodes), modules=modules(nodes, path))
    names_a_model, asks = NAMES_A_MODEL.search(text), NAMES_A_VARIABLE.search(text)
    texts = constants(tree, nodes, variables) if names_a_model or asks else {}
    if names_a_model:
        source = replace(source, found=tuple(_found(path, texts, variables, nodes, folders)))
    if asks:
        source = replace(source, secrets=tuple(secrets_in_code(path, nodes)), defaults=defaults(nodes, texts))
    return source


def models_in(sources: Iterable[Source]) -> tuple[tuple[FoundModel, ...], tuple[Untold, ...]]:
    """Of one id only one, of one call that cannot be read too."""
    models: dict[str, FoundModel] = {}
    untold: dict[tuple[str, str], Untold] = {}
    for found in (one for source in sources for one in source.found):
        if isinstance(found, Untold):
            untold.setdefault((found.call, found.why), found)
        elif found.id not in models or (found.revision and not models[found.id].revision):
            models[found.id] = found
    return tuple(models.values()), tuple(untold.values())


def models_in_words(words: Iterable[str], where: str) -> tuple[FoundModel, ...]:
    """From a command such as `vllm serve org/name` or `… --model org/name`."""
    given = list(words)
    found: list[FoundModel] = []
    for before, word in pairwise(given):
        name, _, value = word.partition("=")
        asked = value if name in ("--model", "--model-id") else word
        if (value or before in ("--model", "--model-id", "serve")) and ID.fullmatch(asked):
            found.append(FoundModel(id=asked, revision="", where=where))
    return tuple(found)


def folders_of(paths: Iterable[str]) -> frozenset[str]:
    """Every folder above a file."""
    return frozenset(folder for path in paths for folder in _parents(path))


def _parents(path: str) -> Iterator[str]:
    parts = path.split("/")
    for end in range(1, len(parts)):
        yield "/".join(parts[:end])


def _found(
    path: str,
    texts: Mapping[str, str],
    variables: Mapping[str, str],
    nodes: Iterable[ast.AST],
    folders: Collection[str],
) -> Iterator[FoundModel | Untold]:
    calls = sorted(
        (call for node in nodes if isinstance(node, ast.Call) and (call := _call(node)) is not None),
        key=lambda call: call.line,
    )
    for call in calls:
        where = f"{path}:{call.line}"
        shown = f"{call.name}({_shown(call.source)})"
        if call.name in _OTHERWISE:
            yield Untold(where=where, call=shown, why=_OTHERWISE[call.name])
            continue
        name = text_of(call.source, texts, variables)
        if name is None:
            yield Untold(where=where, call=shown, why="the name is not written there")
        elif name.startswith((".", "/", "~")) or name in folders:
            continue
        elif not ID.fullmatch(name):
            why = (
                "an old short name; write organisation/name there and under `models:`" if "/" not in name else "no name"
            )
            yield Untold(where=where, call=f"{call.name}({quoted(name)})", why=why)
        elif name.split("/")[0].lower() in _FOLDERS:
            yield Untold(where=where, call=f"{call.name}({quoted(name)})", why="it looks like a folder")
        else:
            revision, lost = _revision(call.revision, texts, variables)
            yield FoundModel(id=name, revision=revision, where=where, lost_revision=lost)


_OTHERWISE = {
    "load_dataset": "a data set; write its id under `datasets:`",
    "torch.hub.load": "code and weights from there are not pinned",
}


def _call(node: ast.Call) -> _Call | None:
    name = dotted(node.func)
    last = name.rpartition(".")[2]
    if not (node.args or node.keywords) or last not in _CALLS:
        return None
    position, keywords = _CALLS[last]
    match last:
        case "from_pretrained" if "Peft" in name and len(node.args) > 1:
            position = 1  # behind the model that it is put on
        case "snapshot_download" | "hf_hub_download" if not _is_model(_keyword(node, "repo_type")):
            last = "load_dataset"
        case "pipeline" if name not in ("pipeline", "transformers.pipeline") or not _is_task(node):
            return None
        case "load" if name not in ("torch.hub.load", "hub.load"):
            return None
        case "load":
            last = "torch.hub.load"
        case _:
            pass
    return _Call(last, _argument(node, position, *keywords), _keyword(node, "revision"), node.lineno)


def _is_model(kind: ast.expr | None) -> bool:
    return kind is None or (isinstance(kind, ast.Constant) and kind.value in (None, "model"))


def _is_task(node: ast.Call) -> bool:
    """`pipeline("text-generation", …)`; `pipeline` of another library takes something else."""
    task = _argument(node, 0, "task")
    return isinstance(task, ast.Constant) and isinstance(task.value, str)


def _argument(node: ast.Call, position: int, *keywords: str) -> ast.expr | None:
    if len(node.args) > position:
        return node.args[position]
    return next((found for name in keywords if (found := _keyword(node, name)) is not None), None)


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in node.keywords if one.arg == name), None)


def _revision(node: ast.expr | None, texts: Mapping[str, str], variables: Mapping[str, str]) -> tuple[str, str]:
    """What a file may say of it, and else what stands there."""
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return "", ""
    text = text_of(node, texts, variables)
    if text is None:
        return "", _shown(node)
    try:
        return MODEL_REVISION.read(text), ""
    except ValueError:
        return "", quoted(text)


def is_pinned(model: FoundModel) -> bool:
    """By a full commit id."""
    return bool(_HEX40.fullmatch(model.revision))


def _shown(node: ast.expr | None) -> str:
    if node is None:
        return ""
    if isinstance(node, ast.Constant):
        return quoted(node.value) if isinstance(node.value, str) else "…"
    return (dotted(node) or "…")[:60]
