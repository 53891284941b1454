"""A plan for people: a name and a value on each line. Nothing is cut to the width of the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from gpurun.domain.config import Job, ModelKeys
from gpurun.domain.ids import HubRef, ImageTag
from gpurun.domain.lock import Lock
from gpurun.domain.plan import HubKind, ModelPin, Plan, Resources
from gpurun.domain.quantity import written_duration, written_size
from gpurun.domain.text import clean
from gpurun.report.source import source_pins
from gpurun.report.text import one_line, size

NAME_WIDTH = 11
INDENT = "  "
FILES_SHOWN = 20
"""Of each model; `--json` has all."""
_PATH_CHARS = 48
_VALUE_BYTES = 400
"""Of one environment variable."""

Row = tuple[str, str]


def plan_rows(plan: Plan, job: Job, lock: Lock) -> Iterator[Row]:
    """What a run would do, and on what. An empty name goes on with the one above."""
    yield "commit", plan.commit
    yield "tree", plan.tree
    yield from _source(plan)
    yield "image", plan.container_image
    yield from _build(plan, lock)
    if image_day := _image_day(job, lock):
        yield "", f"{INDENT}{image_day}"
    for model, (kind, keys) in zip(plan.models, job.from_hub, strict=True):
        yield kind, f"{model.id}@{model.revision}"
        yield "", INDENT + " · ".join(part for part in (_model_day(kind, keys, lock), _sum(model)) if part)
        yield from (("", f"{INDENT}{INDENT}{line}") for line in _files(model))
    yield from _text("setup", plan.setup)
    yield from _list("inputs", [f"{one.path} {one.blob[:12]}" for one in plan.setup_inputs])
    yield from _text("run", plan.run)
    if plan.workdir:
        yield "workdir", one_line(plan.workdir)
    yield from _list("env", [f"{name}={_value(value)}" for name, value in plan.env])
    yield from _list("secrets", list(plan.secrets))
    yield "needs", needs(plan.resources)
    yield "limits", _limits(plan, job)
    yield from _list("artifacts", list(plan.artifacts))


def line_of(row: Row) -> str:
    """As it is shown."""
    name, value = row
    return f"{INDENT}{name:<{NAME_WIDTH}}{value}".rstrip()


def needs(resources: Resources) -> str:
    """`2 GPUs of 24GB..80GB · 8 CPUs · 32GB memory`."""
    parts = [
        _gpus(resources),
        f"{resources.cpus:g} CPU{'s' if resources.cpus != 1 else ''}" if resources.cpus else "",
        f"{written_size(resources.memory_mib)} memory" if resources.memory_mib else "",
        f"{written_size(resources.disk_mib)} disk" if resources.disk_mib else "",
        f"{written_size(resources.shm_mib)} /dev/shm" if resources.shm_mib else "",
    ]
    return " · ".join(part for part in parts if part)


def _gpus(resources: Resources) -> str:
    if not resources.gpus:
        return "no GPU"
    return f"{resources.gpus} GPU{'s' if resources.gpus > 1 else ''}{_vram(resources)}"


def _vram(resources: Resources) -> str:
    low, high = resources.vram_min_mib, resources.vram_max_mib
    if low and high:
        return f" of {written_size(low)}..{written_size(high)}"
    if low:
        return f" of at least {written_size(low)}"
    return f" of at most {written_size(high)}" if high else ""


def _source(plan: Plan) -> Iterator[Row]:
    for pin in source_pins(plan):
        if not pin.path:
            yield pin.name, one_line(pin.about)
            continue
        yield pin.name, one_line(f"{pin.path}@{pin.commit}")
        if pin.about:
            yield "", f"{INDENT}{one_line(pin.about)}"


def _build(plan: Plan, lock: Lock) -> Iterator[Row]:
    """What it is built of."""
    if plan.build is None:
        return
    build = plan.build
    about = [f"target {build.target}" if build.target else "", *(f"{name}={value}" for name, value in build.args)]
    yield "", INDENT + " · ".join([f"built of {one_line(build.dockerfile)}", *filter(None, map(one_line, about))])
    days = {entry.image.without_tag: f"  {entry.ref} as of {entry.locked_on}" for entry in lock.images}
    for image in build.images:
        yield "", f"{INDENT}on {image.without_tag}{days.get(image.without_tag, '')}"


def _image_day(job: Job, lock: Lock) -> str:
    entry = lock.image(job.image) if isinstance(job.image, ImageTag) else None
    return f"as of {entry.locked_on}" if entry is not None else ""


def _model_day(kind: HubKind, keys: ModelKeys, lock: Lock) -> str:
    entry = lock.model(keys.id, keys.ref, kind) if isinstance(keys.ref, HubRef) else None
    return f"{entry.ref} as of {entry.locked_on}" if entry is not None else ""


def _sum(model: ModelPin) -> str:
    n_files = len(model.files)
    total = size(sum(file.size for file in model.files))
    files = f"{n_files} file{'s' if n_files != 1 else ''}, {total}" if n_files else "its files are not known"
    return f"{files} → {one_line(model.target)}" if model.target else files


def _files(model: ModelPin) -> Iterator[str]:
    shown = model.files[:FILES_SHOWN]
    width = min(_PATH_CHARS, max((len(one_line(file.path)) for file in shown), default=0))
    for file in shown:
        yield f"{one_line(file.path):<{width}}  {size(file.size):>8}"
    if len(model.files) > FILES_SHOWN:
        yield f"and {len(model.files) - FILES_SHOWN:,} more"


def _text(name: str, text: str) -> Iterator[Row]:
    lines = clean(text).rstrip("\n").split("\n") if text else []
    yield from _list(name, lines)


def _list(name: str, values: list[str]) -> Iterator[Row]:
    for number, value in enumerate(values):
        yield ("" if number else name), clean(value)


def _value(text: str) -> str:
    return one_line(text, _VALUE_BYTES)


def _limits(plan: Plan, job: Job) -> str:
    attempts = f"{job.max_attempts} attempt{'s' if job.max_attempts > 1 else ''}"
    kind = f" (kind {job.kind})" if job.kind else ""
    where = f" on {', '.join(job.providers)}" if job.providers else ""
    return f"{written_duration(plan.max_duration_s)} · {attempts}{where}{kind}"
