"""What a job asked the hub for and did not have, and the line that its file lacks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from gpurun.domain.errors import PinNotFound
from gpurun.domain.ids import HubRef
from gpurun.domain.plan import ModelPin, Plan

_HUB_ID = r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}"
_BY_LOAD_DATASET = re.compile(rf"Couldn't reach '(?P<id>{_HUB_ID})' on the Hub", re.ASCII)
_OF_HUB = re.compile(
    r"https?://[\w.:-]+/(?:api/(?:models|(?P<datasets>datasets))/|(?P<page>datasets/)?)"
    rf"(?P<id>(?!api/|datasets/){_HUB_ID})(?=/(?:revision|tree|resolve)/|[/\s:'\"]|\.?$)"
    r"(?:/(?P<what>revision|tree|resolve)/(?P<revision>[^/\s:'\"?]{1,200})(?:/(?P<path>[^\s'\"?]{1,1000}))?)?",
    re.ASCII | re.MULTILINE,
)
"""Addresses in errors of huggingface_hub: `Cannot reach https://huggingface.co/api/models/org/name/revision/main`."""
_PLAIN_IN_YAML = re.compile(r"(?!(?:true|false|yes|no|on|off|null|y|n)$)[A-Za-z][\w./-]*", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    key: str
    """`models` or `datasets`."""
    id: str
    revision: str
    """Empty when none can be seen."""
    path: str
    """Of a file; empty when none can be seen."""


def unpinned(plan: Plan | None, log: str) -> str:
    """A sentence, as far as the log names what was asked for."""
    models = plan.models if plan is not None else ()
    asked = _asked(log)
    if asked is None:
        left_out = ", or that its `include` or `exclude` leaves out" if any(map(_has_patterns, models)) else ""
        return (
            f"It asked the hub for something that is not under `models:` or `datasets:`{left_out}; jobs see what is "
            "pinned."
        )
    same = [one for one in models if (f"{one.kind}s", one.id) == (asked.key, asked.id)]
    if not same:
        return f"It asked the hub for {asked.id}, which is not pinned: add {_line(asked)} to the job."
    if _BY_LOAD_DATASET.search(log) and not _OF_HUB.search(log):
        return (
            "`load_dataset` does not look where the files are: give it what "
            f'`snapshot_download("{asked.id}", repo_type="dataset")` returns.'
        )
    of_revision = [one for one in same if not asked.revision or _is_at(one, asked.revision)]
    if not of_revision:
        return (
            f"It asked the hub for {asked.id} at {asked.revision}, which is not pinned: "
            f"add {_line(asked)} to the job, beside the one that is there."
        )
    return _of_a_file(asked, of_revision)


def _of_a_file(asked: _Asked, pins: list[ModelPin]) -> str:
    """The repository is pinned at that revision."""
    if not any(map(_has_patterns, pins)):
        return f"It asked the hub for a revision or a file of {asked.id} that is not pinned."
    if asked.path and any(one.wants(asked.path) for one in pins):
        return f"It asked the hub for {asked.path}, which {asked.id} does not have at that revision."
    file = asked.path or "a file"
    keys = [key for key in ("include", "exclude") if any(getattr(one, key) for one in pins)]
    return (
        f"It asked the hub for {file} of {asked.id}, which {' or '.join(f'`{key}`' for key in keys)} "
        f"of the job leaves out: correct {'them' if len(keys) > 1 else 'it'}."
    )


def _asked(log: str) -> _Asked | None:
    found = _OF_HUB.search(log)
    if found is None:
        by_load = _BY_LOAD_DATASET.search(log)
        return None if by_load is None else _Asked(key="datasets", id=by_load["id"], revision="", path="")
    key = "datasets" if found["datasets"] or found["page"] else "models"
    path = unquote(found["path"] or "").rstrip(":.,") if found["what"] == "resolve" else ""
    return _Asked(key=key, id=found["id"], revision=_revision(found["revision"] or ""), path=path)


def _revision(written: str) -> str:
    """Empty for what `revision` of a file cannot be."""
    try:
        return HubRef(unquote(written).rstrip("."))
    except PinNotFound:
        return ""


def _is_at(pin: ModelPin, revision: str) -> bool:
    return revision in pin.refs or pin.revision == revision


def _has_patterns(pin: ModelPin) -> bool:
    return bool(pin.include or pin.exclude)


def _line(asked: _Asked) -> str:
    revision = asked.revision if _PLAIN_IN_YAML.fullmatch(asked.revision) else f"'{asked.revision}'"
    at = "" if asked.revision in {"", "main"} else f", revision: {revision}"
    return f"`{asked.key}: [{{id: {asked.id}{at}}}]`"
