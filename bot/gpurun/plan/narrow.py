"""A job as somebody narrowed it for one run: never wider than its file says."""

from __future__ import annotations

from gpurun.domain.config import Job, ResourceKeys
from gpurun.domain.errors import TooWide
from gpurun.domain.narrow import Narrow
from gpurun.domain.quantity import GpuNeed, gpu_need


def narrowed(job: Job, narrow: Narrow) -> Job:
    """With only that provider, and only those GPUs. Raises: TooWide."""
    if narrow.provider:
        if job.providers and narrow.provider not in job.providers:
            raise TooWide(
                f"`provider={narrow.provider}` is none of those that the job names: {', '.join(job.providers)}.",
                hint="Name one of them, or none.",
            )
        job = job | Job(run=job.run, providers=(narrow.provider,))
    if narrow.gpu:
        job = job | Job(run=job.run, resources=job.resources | ResourceKeys(gpu=_within(job, narrow.gpu)))
    return job


def _within(job: Job, typed: str) -> GpuNeed:
    """What was not typed stays as the job has it. Raises: TooWide."""
    asked = job.resources.gpu
    if asked is None or not asked.count:
        raise TooWide(f"`gpu={typed}` cannot narrow a job that asks for no GPU.", hint="Leave it out.")
    need = _read(typed)
    count = need.count if typed.isdigit() or ":" in typed else asked.count
    most = need.vram_max_mib or asked.vram_max_mib
    least = need.vram_min_mib or asked.vram_min_mib
    too_much = asked.vram_max_mib and max(most, least) > asked.vram_max_mib
    if count != asked.count or least < asked.vram_min_mib or too_much or (most and most < least):
        raise TooWide(
            f"`gpu={typed}` is not within what the job asks for: `{asked}`.",
            hint="Ask for a part of that, or leave it out.",
        )
    return GpuNeed(count=count, vram_min_mib=least, vram_max_mib=most)


def _read(typed: str) -> GpuNeed:
    try:
        return gpu_need(typed)
    except ValueError as fault:  # of a row: the command was read before
        raise TooWide(f"`gpu={typed}`: {fault}.") from fault
