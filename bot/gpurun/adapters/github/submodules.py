"""Where a submodule may be fetched from, and with which right."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from githubkit.exception import GitHubException

from gpurun.adapters.github import answers, client
from gpurun.adapters.github.errors import is_refused
from gpurun.adapters.github.permissions import SOURCE_PERMISSIONS
from gpurun.adapters.github.tokens import InstallationToken, Tokens
from gpurun.domain.errors import PinNotFound
from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import RepoName
from gpurun.domain.quantity import quoted
from gpurun.domain.source import Gitlink, ModulePlace, module_place

NOT_INSTALLED = 422
"""GitHub's answer when a token is asked for a repository that the installation does not have."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a submodule is fetched with."""

    token: InstallationToken
    is_proof: bool
    """GitHub gave it for that repository, and everybody or the reader may read it there."""


@dataclass(frozen=True, slots=True)
class SubmodulePlaces:
    """The rules. Whose code may be seen is asked of GitHub each time."""

    tokens: Tokens
    git_url: str
    hosts: frozenset[str]

    def place(self, repo: RepoRef, link: Gitlink) -> ModulePlace:
        """Raises PinNotFound for a place that nothing is fetched from."""
        above = link.above or f"{self.git_url}/{repo.name}.git"
        return module_place(link.url, above=above, forge_url=self.git_url, hosts=self.hosts)

    async def key(
        self, calls: client.Calls, repo: RepoRef, link: Gitlink, name: RepoName, *, reader: str, now: datetime
    ) -> Key:
        """For that repository alone, when the App is installed there and `reader` may read it (empty: nobody); else one
        for the run's own repository, which reads what is public and proves nothing. Raises: PinNotFound, what the
        client raises.
        """
        if _owner(name) == _owner(repo.name):
            try:
                token, found = await self.tokens.named(repo.installation_id, name, permissions=SOURCE_PERMISSIONS)
            except GitHubException as exc:
                if not is_refused(exc, NOT_INSTALLED, now=now):
                    raise
            else:
                if found.private and not reader:
                    raise PinNotFound(
                        f"The submodule {quoted(link.path)} is the private repository {name}, and code of a fork, or "
                        "of an author who may not push, gets what everybody may read.",
                        hint="Write `checkout: {submodules: skip}`.",
                    )
                if found.private and not await _may_read(calls, name, reader, now=now):
                    raise PinNotFound(
                        f"The submodule {quoted(link.path)} is the private repository {name}, which @{reader} may not "
                        "read.",
                        hint="Somebody who may can start the run; or write `checkout: {submodules: skip}`.",
                    )
                return Key(token, is_proof=True)
        token = await self.tokens.narrowed(repo.installation_id, repo_id=repo.id, permissions=SOURCE_PERMISSIONS)
        return Key(token, is_proof=False)


def _owner(name: RepoName) -> str:
    return name.split("/")[0].lower()


async def _may_read(calls: client.Calls, name: RepoName, reader: str, *, now: datetime) -> bool:
    path = f"/repos/{name}/collaborators/{quote(reader, safe='')}/permission"
    try:
        found = await calls.get(path, answers.CollaboratorPermission)
    except GitHubException as exc:
        if not is_refused(exc, 404, now=now):
            raise
        return False
    return found.user is not None and found.user.permissions.pull
