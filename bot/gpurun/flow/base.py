"""What the base branch of a pull request says of a job, for those who are asked about the head."""

from __future__ import annotations

import anyio.to_thread

from gpurun.domain.config import Job
from gpurun.domain.errors import UserError
from gpurun.domain.folder import beside, config_path
from gpurun.domain.ids import BranchName
from gpurun.domain.lock import Lock
from gpurun.domain.run import BaseFiles, Run
from gpurun.flow import edges, failpoints
from gpurun.flow.services import CALL_TIMEOUT_S, EngineServices
from gpurun.plan.load import find_job
from gpurun.plan.lock import LOCK_NAME, MAX_LOCK_BYTES, part_for, read_lock, without_files
from gpurun.plan.source import MAX_BYTES as CONFIG_MAX_BYTES


async def read_base(services: EngineServices, run: Run) -> BaseFiles:
    """As it is now. A file that cannot be read is told as one that is not there: what the head has is new then.

    Raises: what the forge raises.
    """
    branch, path = BranchName(run.base_ref), config_path(run.folder)
    try:
        raw = await edges.call(
            failpoints.RUN_BASE,
            lambda: services.forge.read_file(run.repo, branch, path, max_bytes=CONFIG_MAX_BYTES),
            timeout_s=CALL_TIMEOUT_S,
        )
    except UserError:
        raw = None
    if raw is None:
        return BaseFiles(config_text=None)
    text = raw.decode("utf-8", "surrogateescape")
    job = await anyio.to_thread.run_sync(find_job, text, run.job)
    return BaseFiles(config_text=text, lock=Lock() if job is None else await _lock(services, run, job))


async def _lock(services: EngineServices, run: Run, job: Job) -> Lock:
    if not job.needs_lock:
        return Lock()
    branch, path = BranchName(run.base_ref), beside(run.folder, LOCK_NAME)
    try:
        raw = await edges.call(
            failpoints.RUN_BASE_LOCK,
            lambda: services.forge.read_file(run.repo, branch, path, max_bytes=MAX_LOCK_BYTES),
            timeout_s=CALL_TIMEOUT_S,
        )
        lock = Lock() if raw is None else await anyio.to_thread.run_sync(read_lock, raw)
    except UserError:
        return Lock()
    return without_files(part_for(job, lock))
