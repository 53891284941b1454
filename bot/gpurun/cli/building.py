"""What a commit of this checkout holds for a job's `build`, as a run would find it."""

from __future__ import annotations

import platform

from gpurun.adapters.local import LocalForge
from gpurun.cli.environment import read_settings
from gpurun.cli.planning import At
from gpurun.domain.build import BuildPin
from gpurun.domain.config import Job
from gpurun.domain.errors import ConfigError
from gpurun.domain.forge import Extra, GitSource
from gpurun.domain.ids import JobName
from gpurun.domain.platform import platform_of_machine
from gpurun.domain.run import Pins
from gpurun.domain.source import ModuleUrl, Submodule
from gpurun.flow.build import pin_of_contents, read_archive
from gpurun.plan.build import paths_of
from gpurun.plan.context import ContextReader
from gpurun.plan.lines import at_build
from gpurun.wiring import open_sources


async def build_of(forge: LocalForge, at: At, name: JobName, job: Job, source: Pins | None) -> BuildPin | None:
    """None for a job without a build. Nothing is asked of a network; the commit goes into this user's mirror. Without
    `source` as if the commit pointed to nothing else.

    Raises: ConfigError, SourceUnavailable.
    """
    if job.build is None:
        return None
    folder, repo = at.folder, at.state.repo
    skip, get = (tuple(Extra), ()) if source is None else (job.skipped(), job.fetched())
    links = () if source is None else source.links
    lfs = source is not None and source.lfs
    dockerfile = ""
    try:
        dockerfile, context = paths_of(job.build, folder)
        async with open_sources(read_settings()) as sources:
            places = [(await forge.git_source(repo), repo.name, at.sha)]
            places += [(GitSource(url=link.source), ModuleUrl(link.source), link.commit) for link in links]  # type: ignore[misc]
            for where, of, sha in places:
                await sources.git.fetch(where, of, sha, skip=skip, get=get)
                if lfs:
                    await sources.git.fetch_lfs(where, of, sha)
            modules = [Submodule(path=link.path, url=link.source, commit=link.commit) for link in links]
            archive = sources.git.archive(repo.name, at.sha, submodules=modules, lfs=lfs)
            contents = await read_archive(archive, ContextReader(dockerfile=dockerfile, context=context))
        own = platform_of_machine("linux", platform.machine())
        return pin_of_contents(contents, dockerfile=dockerfile, context=context, platform=own)
    except ConfigError as error:
        if error.file == dockerfile:
            raise
        raise at_build(error, at.config_text, name) from error
