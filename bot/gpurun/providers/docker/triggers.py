"""What base images want done in every build above them (`ONBUILD`): no Dockerfile of a commit shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gpurun.domain.ids import ImageRef
from gpurun_agent.log import in_one_line

if TYPE_CHECKING:
    from docker.api.client import APIClient

_MAY_BRING_IN = re.compile(
    r"""\s*(?:ADD\b.*(?:://|[$"'`\\]|git@|github\.com/)|(?:ADD|COPY)\s+--(?!chown=))""", re.IGNORECASE | re.DOTALL
)
"""As for an `ADD` of the Dockerfile itself; and flags, `--from=<image>` among them."""


def unpinned_trigger(api: APIClient, images: Iterable[ImageRef]) -> str:
    """A sentence about the first that may bring in what nobody pinned; empty for none. The engine has the images.
    Vendor errors pass.
    """
    for image in images:
        found: Any = api.inspect_image(image.without_tag)  # type: ignore[no-untyped-call]  # a gap of types-docker
        for trigger in (found.get("Config") or {}).get("OnBuild") or ():
            if _MAY_BRING_IN.match(str(trigger)):
                shown = in_one_line(str(trigger))[:100]
                return (
                    f"The image {image} has `ONBUILD {shown}`, which may bring in what nobody pinned. "
                    "Use an image without it."
                )
    return ""
