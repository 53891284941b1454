"""What a plan pins of its source beside the commit: submodules, content of git LFS, a `.git`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpurun.domain.plan import Plan

TAGS_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePin:
    """A line for people. Its texts are others', and not clean."""

    name: str
    path: str = ""
    """Of a submodule; empty for the others."""
    commit: str = ""
    about: str


def source_pins(plan: Plan) -> Iterator[SourcePin]:
    """Submodules by path, LFS, `.git`; nothing of what the job did not ask for or the commit does not have."""
    for one in plan.submodules:
        yield SourcePin(name="submodule", path=one.path, commit=one.commit, about=f"from {one.url}" if one.url else "")
    if plan.lfs:
        yield SourcePin(name="lfs", about="fetched: its files have their content, which the commit binds")
    if plan.git:
        yield SourcePin(name=".git", about=_tags([tag.name for tag in plan.tags]))


def _tags(names: list[str]) -> str:
    more = f" and {len(names) - TAGS_SHOWN} more" if len(names) > TAGS_SHOWN else ""
    shown = ", ".join(names[:TAGS_SHOWN])
    return f"there, with the tag{'s' if len(names) > 1 else ''} {shown}{more}" if names else "there, without tags"
