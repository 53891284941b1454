"""Parts that comment and check are built from. Each is bounded, so that their sum stays within the limits."""

from __future__ import annotations

import re
from datetime import datetime
from itertools import groupby
from urllib.parse import quote

from gpurun.domain.folder import config_path as config_path_in
from gpurun.domain.folder import job_in
from gpurun.domain.manifest import manifest_digest
from gpurun.domain.money import usd_text
from gpurun.domain.narrow import numbered
from gpurun.domain.plan import ModelPin, Plan
from gpurun.domain.project import REFERENCE_URL
from gpurun.domain.run import BUILDING, BUILT, FETCHED, FETCHING, Attempt, AttemptState, Phase, Run, RunState
from gpurun.domain.stream import INSTALLED, Artifact
from gpurun.domain.telemetry import Cost, GpuSummary, Series, Summary
from gpurun.domain.text import clean, clean_log
from gpurun.report.facts import RunFacts
from gpurun.report.source import SourcePin, source_pins
from gpurun.report.text import code, cut, duration, fenced, link, prose, size, table, usd

MAX_LINK = 300
"""Characters of an artifact's path in an address; one with a longer path is on the run page."""

MAX_ROWS = 20
"""Models, artifacts and GPUs that are listed; the run page has all."""
LOG_LINES = 50
LOG_BYTES = 24_000
LINE_BYTES = 1_000
MAX_BLANK_LINES = 2
"""Of more together only one is shown."""

STARTER_LINES = 12
STARTER_LINE_BYTES = 4_000

_GPU_NOTE = re.compile(
    r"(GPU trouble|No GPU metrics): (.{1,400}?(?: \((?:once|\d{1,9} times)\)|in this container)\.)(?=\s|$)"
)
"""The agent's words in what it says of the end; `gpurun_agent/gpu.py` makes them."""
MAX_GPU_NOTES = 5

_STEPS = (Phase.SOURCE, Phase.WEIGHTS, Phase.SETUP, Phase.RUNNING, Phase.COLLECTING, Phase.FINISHED)
_STEP_NAMES = {
    Phase.SOURCE: "source",
    Phase.WEIGHTS: "models",
    Phase.SETUP: "setup",
    Phase.RUNNING: "run",
    Phase.COLLECTING: "collect",
}


def pins(facts: RunFacts) -> str:
    """The table of what is pinned so far."""
    run = facts.run
    rows = [("commit", _commit(facts))]
    if run.plan is not None:
        rows += _source(run.plan)
        rows.append(("image", code(run.plan.container_image, 600)))
    if run.plan is not None and run.plan.build is not None:
        rows.append(("built of", code(run.plan.build.dockerfile, 300)))
        rows += [("on", code(image, 600)) for image in run.plan.build.images[:MAX_ROWS]]
    models = run.plan.models if run.plan is not None else run.pins.models
    rows += [(model.kind, _model(model, facts.hub_url)) for model in models[:MAX_ROWS]]
    if len(models) > MAX_ROWS:
        rows.append(("", f"and {len(models) - MAX_ROWS} more models"))
    if run.plan_digest:
        rows.append(("plan", code(run.plan_digest)))
    return table(("pinned", ""), *rows)


def _commit(facts: RunFacts) -> str:
    run = facts.run
    url = f"{facts.forge_url}/{run.repo.name}/commit/{run.sha}" if facts.forge_url else ""
    tree = f", tree {code(run.pins.tree[:12])}" if run.pins.tree else ""
    return link(code(run.sha), url) + tree


def _source(plan: Plan) -> list[tuple[str, str]]:
    pins = list(source_pins(plan))
    modules = [pin for pin in pins if pin.path]
    rows = [(pin.name, _submodule(pin)) for pin in modules[:MAX_ROWS]]
    if len(modules) > MAX_ROWS:
        rows.append(("", f"and {len(modules) - MAX_ROWS} more submodules"))
    return rows + [(code(pin.name), prose(pin.about, 300)) for pin in pins if not pin.path]


def _submodule(pin: SourcePin) -> str:
    """The path may be long, and the commit is what counts."""
    return ", ".join(filter(None, (f"{code(pin.path)} at {code(pin.commit)}", code(pin.about))))


def _model(model: ModelPin, hub_url: str) -> str:
    url = f"{hub_url}/{model.path}/tree/{model.revision}" if hub_url else ""
    total = size(sum(file.size for file in model.files))
    files = counted(len(model.files), "file")
    return f"{link(code(f'{model.id}@{model.revision}'), url)}, {files}, {total}"


def counted(count: int, what: str) -> str:
    """`1 file`, `3 files`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def starter(run: Run) -> str:
    """A file to begin with, for a commit that has none; else empty."""
    if not run.pins.starter:
        return ""
    lines = "\n".join(cut(line, STARTER_LINE_BYTES) for line in clean(run.pins.starter).split("\n")[:STARTER_LINES])
    about = (
        f"To begin with, write this into {code(config_path(run))}, let {code('gpurun lock')} pin what it names, and "
        f"commit both files. {code('gpurun init')} writes a longer one, with the reasons."
    )
    return f"{about}\n\n{fenced(lines, 'yaml')}\n\n{link('All keys', REFERENCE_URL)}"


def times(facts: RunFacts) -> str:
    """One row: how long each step took. Empty before there was an attempt."""
    known = spans(facts)
    if not known:
        return ""
    return table(tuple(name for name, _ in known), tuple(took for _, took in known))


def spans(facts: RunFacts) -> list[tuple[str, str]]:
    """Each step that was seen and how long it took, `("boot", "0.5 s")`. Empty before there was an attempt."""
    return [(name, duration(took)) for name, took in step_seconds(facts).items()]


def step_seconds(facts: RunFacts) -> dict[str, float]:
    """The same in seconds."""
    lasted: dict[str, float] = {}
    for name, start, end in _steps(facts):
        if start and end:
            lasted[name] = lasted.get(name, 0.0) + max((end - start).total_seconds(), 0.0)
    return lasted


_Step = tuple[str, datetime | None, datetime | None]


def _steps(facts: RunFacts) -> list[_Step]:
    """A step of the agent lasts until the next one that was seen, the last one until the result.

    One name may stand for several stretches of time: weights come before the instance or into it, or both.
    """
    attempt = facts.attempt
    if attempt is None:
        return []
    began, built = attempt.phase_times.get(BUILDING), attempt.phase_times.get(BUILT)
    fetching, fetched = attempt.phase_times.get(FETCHING), attempt.phase_times.get(FETCHED)
    never_fetched = None if attempt.claimed_at else attempt.result_at
    boots = built or attempt.created_at
    seen = [(phase, attempt.phase_times[phase]) for phase in _STEPS if phase in attempt.phase_times]
    ends = [moment for _, moment in seen[1:]] + [attempt.result_at]
    return [
        ("plan and queue", facts.run.created_at, attempt.created_at),
        ("pull", attempt.created_at, began),
        ("build", began, built),
        ("models", fetching, fetched or never_fetched),
        ("boot", boots, fetching if attempt.claimed_at else None),
        ("boot", fetched or fetching or boots, attempt.claimed_at),
        *(
            (_STEP_NAMES[phase], start, end)
            for (phase, start), end in zip(seen, ends, strict=False)
            if phase in _STEP_NAMES
        ),
        ("clear up", attempt.destroy_asked_at, attempt.gone_at),
    ]


def attempts(facts: RunFacts) -> str:
    """What became of earlier tries; empty when there was one."""
    if len(facts.attempts) < 2:
        return ""
    rows = [
        (str(attempt.number), prose(attempt.offer.label, 100), _ended(attempt))
        for attempt in facts.attempts[-MAX_ROWS:]
    ]
    return table(("attempt", "where", "result"), *rows)


def _ended(attempt: Attempt) -> str:
    if attempt.result is None:
        return "running"
    return ": ".join(part for part in (attempt.result.kind.value, prose(attempt.result.detail, 200)) if part)


def cost(facts: RunFacts) -> str:
    """What it costs, and where the price comes from. Empty before anything could cost."""
    if not facts.costs or facts.attempt is None:
        return ""
    total = usd(sum(one.usd_micro for one in facts.costs))
    parts = " + ".join(_cost_part(one) for one in facts.costs[-MAX_ROWS:])
    label = prose(facts.attempt.offer.label, 100)
    source = "the declared price" if facts.costs[-1].declared else "the price"
    return f"**Cost** {total} = {parts}; {source} of {label}, time by our clock."


def _cost_part(one: Cost) -> str:
    return f"{duration(one.elapsed.total_seconds())} × {usd(one.usd_per_hour_micro)}/h"


def metrics(summary: Summary | None) -> str:
    """One line for each GPU and one for the machine; what was not measured is not there."""
    shown = metric_lines(summary)
    if summary is None or not shown:
        return ""
    about = counted(summary.samples, "sample")
    return f"**Metrics** ({about}; low / mean / high)\n\n" + "\n".join(f"- {line}" for line in shown)


def gpu_trouble(facts: RunFacts) -> str:
    """What the GPU's driver said that should worry somebody; empty as a rule."""
    return "\n\n".join(f"**{what}:** {prose(said, 400)}" for what, said in gpu_notes(facts))


def gpu_notes(facts: RunFacts) -> list[tuple[str, str]]:
    """The same as (what, plain text). A run that asked for no GPU misses no metrics of one."""
    result = facts.attempt.result if facts.attempt is not None else None
    if result is None:
        return []
    wants_gpu = facts.run.plan is not None and facts.run.plan.resources.gpus > 0
    found = [(note[1], note[2]) for note in _GPU_NOTE.finditer(result.detail)]
    return [(what, said) for what, said in found if wants_gpu or what == "GPU trouble"][:MAX_GPU_NOTES]


def metric_lines(summary: Summary | None) -> list[str]:
    """The same as plain text."""
    if summary is None or summary.samples == 0:
        return []
    lines = [_gpu(gpu) for gpu in summary.gpus[:MAX_ROWS]]
    lines.append(
        _joined(
            "machine",
            _range("CPU", summary.cpu_pct, "%"),
            _peak("RAM", summary.ram_mib, summary.ram_total_mib),
        )
    )
    return [line for line in lines if line]


def _gpu(gpu: GpuSummary) -> str:
    return _joined(
        f"GPU {gpu.index}",
        _range("use", gpu.util_pct, "%"),
        _peak("VRAM", gpu.vram_mib, gpu.vram_total_mib),
        _range("power", gpu.power_w, "W"),
        _range("temperature", gpu.temp_c, "°C"),
        _range("SM clock", gpu.sm_mhz, "MHz"),
    )


def _joined(name: str, *parts: str) -> str:
    known = [part for part in parts if part]
    return f"{name}: {', '.join(known)}" if known else ""


def _range(name: str, series: Series | None, unit: str) -> str:
    return f"{name} {series.low:.0f} / {series.mean:.0f} / {series.high:.0f} {unit}" if series else ""


def _peak(name: str, series: Series | None, total_mib: float | None) -> str:
    if series is None:
        return ""
    of = f" of {_mib(total_mib)}" if total_mib else ""
    return f"{name} peak {_mib(series.high)}{of}"


def _mib(mib: float) -> str:
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib:.0f} MiB"


def artifacts(facts: RunFacts) -> str:
    """Names with their links, sizes, the digest of all, and what was left out."""
    left_out = f"**Not kept:** {prose(facts.left_out, 1500)}" if facts.left_out else ""
    if not facts.artifacts:
        return left_out
    own, head = own_artifacts(facts), ""
    if own:
        listed = [f"{_artifact(facts, one, code(one.path, 120))} {size(one.size)}" for one in own[:MAX_ROWS]]
        more = len(own) - len(listed)
        total = size(sum(one.size for one in facts.artifacts))
        head = f"**Artifacts** ({link('all', _page_of(facts, f'artifacts/{_number(facts)}.tar'))}, {total}): "
        head += ", ".join(listed) + (f" and {more} more" if more else "")
    digest = f"Manifest {code(manifest_digest(facts.artifacts))}"
    installed = [_artifact(facts, one, "what was installed") for one in facts.artifacts if one.path == INSTALLED]
    digest += f", with {installed[0]}" if installed else ""
    return "\n\n".join(part for part in (head, digest, left_out) if part)


def own_artifacts(facts: RunFacts) -> tuple[Artifact, ...]:
    """Those that the job left."""
    return tuple(one for one in facts.artifacts if one.path != INSTALLED)


def _artifact(facts: RunFacts, one: Artifact, name: str) -> str:
    place = quote(one.path)
    if not one.blob or len(place) > MAX_LINK:
        return name
    return link(name, _page_of(facts, f"artifacts/{_number(facts)}/{place}"))


def _page_of(facts: RunFacts, place: str) -> str:
    """Below the run page, with its key; empty when there is no such page."""
    page, _, key = facts.run_url.partition("?")
    return f"{page}/{place}?{key}" if page else ""


def _number(facts: RunFacts) -> int:
    return facts.attempt.number if facts.attempt else 0


def config_path(run: Run) -> str:
    """`.gpurun.yml`, with its folder when that is not the top."""
    return config_path_in(run.folder)


def job_name(run: Run) -> str:
    """`smoke`, or `smoke (sub)` for the job of a file in a sub-folder. Untrusted text."""
    return numbered(job_in(run.job, run.folder), run.narrow)


def command(run: Run, word: str = "") -> str:
    """What to type for this job, as code: `/gpurun cancel smoke path=sub`."""
    folder = f"path={run.folder}" if run.folder else ""
    words = ["/gpurun", word, run.job, folder, *(() if word else arguments(run))]
    return code(" ".join(part for part in words if part))


def arguments(run: Run) -> list[str]:
    """What was asked of it beyond its file, as it is typed."""
    narrow = run.narrow
    most = "" if narrow.max_usd_micro is None else usd_text(narrow.max_usd_micro)
    repeat = str(narrow.of) if narrow.of > 1 else ""
    typed = {"gpu": narrow.gpu, "provider": narrow.provider, "repeat": repeat, "max-cost": most}
    return [f"{key}={value}" for key, value in typed.items() if value]


def since(facts: RunFacts) -> datetime:
    """When the step that is shown began."""
    run, attempt = facts.run, facts.attempt
    if run.state is not RunState.ACTIVE or attempt is None:
        # who waits for a place, or for the end of a pause, has waited since it was asked for or tried last
        waits = run.is_held or (facts.queue is not None and facts.queue.before is not None)
        last = attempt.result_at if attempt and attempt.result_at else run.created_at
        return last if waits else run.state_since
    if attempt.state is AttemptState.LIVE and attempt.phase is not None:
        return attempt.phase_times.get(attempt.phase, attempt.state_since)
    return attempt.state_since


def config_line(run: Run) -> str:
    """The file at the fault, as it is written, and what else is wrong; empty when no line of it was refused."""
    lines = (run.config_text or "").lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not 1 <= run.error_line <= len(lines):
        return ""
    quoted = cut(clean(lines[run.error_line - 1]), 300)
    where = f"{prose(config_path(run), 300)}, line {run.error_line}:"
    return "\n\n".join(
        part for part in (where, fenced(f"{run.error_line} | {quoted}", "yaml"), _further_faults(run)) if part
    )


def _further_faults(run: Run) -> str:
    further = run.faults[1:]
    told = [f"- line {fault.line}: {prose(fault.text, 400)}" for fault in further[:MAX_ROWS]]
    if len(further) > MAX_ROWS:
        told.append(f"- and {counted(len(further) - MAX_ROWS, 'more fault')}")
    return "\n".join(["Also in this file:", "", *told]) if told else ""


def notes(run: Run) -> str:
    """What people should know and nothing is wrong with."""
    return "\n\n".join(f"Note: {prose(note, 500)}" for note in run.notes[:MAX_ROWS])


def log(facts: RunFacts) -> tuple[str, str]:
    """What is shown (`Log, last 3 lines of 4.5 MB`) and the fenced lines; both empty without a log.

    The end always stays. Of many empty lines together one is shown.
    """
    if not facts.log_size:
        return "", ""
    lines = _squeezed(clean_log(facts.log_tail).rstrip("\n").split("\n"))
    whole = len(facts.log_tail) >= facts.log_size
    shown = _last_lines(lines)
    if whole and len(shown) == len(lines):
        about = "Log"
    else:
        about = f"Log, last {len(shown)} line{'s' if len(shown) != 1 else ''} of {size(facts.log_size)}"
    return about, fenced("\n".join(shown))


def _squeezed(lines: list[str]) -> list[str]:
    kept: list[str] = []
    for blank, group in groupby(lines, key=lambda line: not line.strip()):
        run = list(group)
        kept += run[:1] if blank and len(run) > MAX_BLANK_LINES else run
    return kept


def _last_lines(lines: list[str]) -> list[str]:
    """At most LOG_LINES and LOG_BYTES, from the end; a long line keeps its head and its end."""
    kept: list[str] = []
    room = LOG_BYTES
    for line in reversed(lines[-LOG_LINES:]):
        short = _shortened(line)
        room -= len(short.encode()) + 1
        if room < 0:
            break
        kept.append(short)
    return kept[::-1]


def _shortened(line: str) -> str:
    data = line.encode()
    if len(data) <= LINE_BYTES:
        return line
    half = LINE_BYTES // 2 - 40
    head, end = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    return f"{head} …{len(data) - 2 * half} bytes cut… {end}"
