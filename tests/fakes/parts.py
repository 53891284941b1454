"""State-keeping fakes of the small ports, and of the agents inside the instances of a FakeCloud."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpurun.domain.errors import (
    Bug,
    GpurunError,
    HubSilent,
    NoSuchInput,
    NothingIncluded,
    PinNotFound,
    SourceUnavailable,
    UserError,
)
from gpurun.domain.forge import (
    ChangedFiles,
    Check,
    CheckSeen,
    Comment,
    Extra,
    GitSource,
    Permission,
    PullRequest,
    RepoFile,
    RepoRef,
    Sent,
)
from gpurun.domain.ids import BranchName, CommitSha, ImageRef, RepoName, Revision, TreeSha
from gpurun.domain.image import RegistryLogin, SeenImage
from gpurun.domain.layer import Layer, LayerUse, LayerWish
from gpurun.domain.lock import ImagePin, LockedImage
from gpurun.domain.offer import Uplink
from gpurun.domain.plan import HubKind, ModelFile, ModelPin, ModelSpec, SetupInput
from gpurun.domain.repository import RepoFacts
from gpurun.domain.run import Phase, Result, ResultKind
from gpurun.domain.source import Fetched, Gitlink, GitTag, ModuleUrl, Submodule
from gpurun.ports.bytes import Preparation, SaidBefore
from gpurun.ports.store import Store, Tx
from gpurun.run.tokens import run_token, token_sha256
from tests.fakes.cloud import FakeCloud, FakeInstance

PASSED = Result(kind=ResultKind.PASSED, exit_code=0, reason="exit")


@dataclass
class FakeGit:
    """`ports.bytes.Git` over a table of commits: what remotes have, whatever their name.

    As the real one it keeps what it fetched, and refuses what the job does not care for, what is no merge, and to read
    what was not fetched before.
    """

    trees: dict[CommitSha, TreeSha]
    errors: list[GpurunError] = field(default_factory=list)
    """Raised first, one a call."""
    links: dict[CommitSha, tuple[Gitlink, ...]] = field(default_factory=dict)
    """Submodules, by commit."""
    n_lfs: dict[CommitSha, int] = field(default_factory=dict)
    n_bytes: dict[CommitSha, int] = field(default_factory=dict)
    parents: dict[CommitSha, tuple[CommitSha, ...]] = field(default_factory=dict)
    kept: dict[tuple[str, CommitSha], TreeSha] = field(default_factory=dict)
    """The mirrors: repository and commit."""
    lfs: list[tuple[str, CommitSha]] = field(default_factory=list)
    """Repository and commit whose LFS files were fetched."""
    facts: RepoFacts = field(default_factory=RepoFacts)
    """Of every commit."""
    looks: int = 0
    """How often somebody looked."""
    archives: dict[CommitSha, bytes] = field(default_factory=dict)
    """Tars of commits whose files matter."""

    async def inputs(
        self, repo: RepoName, sha: CommitSha, folder: str, patterns: Sequence[str]
    ) -> tuple[SetupInput, ...]:
        """One file a pattern."""
        if "missing" in patterns:
            raise NoSuchInput("`missing` means no file of the commit.", pattern="missing")
        return tuple(SetupInput(path=path, mode="100644", blob="e" * 40) for path in patterns)

    async def look(self, repo: RepoName, sha: CommitSha) -> RepoFacts:
        self._require_fetched(repo, sha)
        self.looks += 1
        return self.facts

    async def fetch(
        self,
        source: GitSource,
        repo: RepoName | ModuleUrl,
        sha: CommitSha,
        *,
        skip: Collection[Extra] = (),
        get: Collection[Extra] = (),
        merge_of: CommitSha | None = None,
        at: str = "",
    ) -> Fetched:
        _raise_next(self.errors)
        if (str(repo), sha) not in self.kept:
            self.kept[str(repo), sha] = self._asked_for(repo, sha)
        base = None if merge_of is None else self._other_parent(sha, merge_of)
        has = {Extra.SUBMODULES: self.links.get(sha), Extra.LFS: self.n_lfs.get(sha)}
        missing = [what for what, there in has.items() if there and what not in {*skip, *get}]
        if missing:
            raise PinNotFound(f"Commit {sha} holds {missing}, and the job does not say what to do with them.")
        return Fetched(
            tree=self.kept[str(repo), sha],
            n_bytes=self.n_bytes.get(sha, 0),
            links=self.links.get(sha, ()) if Extra.SUBMODULES in get else (),
            n_lfs=self.n_lfs.get(sha, 0) if Extra.LFS in get else 0,
            base=base,
        )

    def _asked_for(self, repo: RepoName | ModuleUrl, sha: CommitSha) -> TreeSha:
        if sha not in self.trees:
            raise PinNotFound(f"{repo} has no commit {sha}.")
        return self.trees[sha]

    def _other_parent(self, sha: CommitSha, head: CommitSha) -> CommitSha:
        parents = self.parents.get(sha, ())
        if len(parents) != 2 or head not in parents:
            raise PinNotFound(f"Commit {sha} does not merge {head}.")
        return parents[1 - parents.index(head)]

    def _require_fetched(self, repo: RepoName | ModuleUrl, sha: CommitSha) -> None:
        if (str(repo), sha) not in self.kept:
            raise SourceUnavailable(f"the mirror of {repo} has no commit {sha}")

    async def fetch_lfs(self, source: GitSource, repo: RepoName | ModuleUrl, sha: CommitSha) -> None:
        _raise_next(self.errors)
        self._require_fetched(repo, sha)
        self.lfs.append((str(repo), sha))

    async def fetch_history(self, source: GitSource, repo: RepoName, sha: CommitSha) -> tuple[GitTag, ...]:
        _raise_next(self.errors)
        self._asked_for(repo, sha)
        return ()

    def git_folder(
        self, repo: RepoName, sha: CommitSha, tags: Sequence[GitTag], *, lfs: bool = False
    ) -> AsyncIterator[bytes]:
        raise Bug("no flow test reads a git folder")

    async def archive(
        self, repo: RepoName, sha: CommitSha, *, submodules: Sequence[Submodule] = (), lfs: bool = False
    ) -> AsyncIterator[bytes]:
        _raise_next(self.errors)
        yield self.archives[sha]


@dataclass
class FakeLayers:
    """`ports.layers.Layers` that keeps what it is told; one volume an attempt."""

    uses: dict[str, LayerUse] = field(default_factory=dict)
    wishes: list[LayerWish] = field(default_factory=list)
    told: list[tuple[str, ...]] = field(default_factory=list)
    there: Layer | None = None
    refuse: str = ""

    async def use(self, wish: LayerWish, *, user: str, until: datetime) -> LayerUse | None:
        self.wishes.append(wish)
        return self.uses.setdefault(user, LayerUse(volume=f"v-{user}", shelf="s", layer=self.there, most_bytes=99))

    async def of(self, user: str) -> LayerUse | None:
        return self.uses.get(user)

    async def made(self, user: str, *, sha256: str, size: int, setup_ms: int) -> str:
        self.told.append(("made", user, sha256, str(size), str(setup_ms)))
        return self.refuse

    async def spoilt(self, user: str) -> None:
        self.told.append(("spoilt", user))

    async def let_go(self, user: str) -> tuple[str, ...]:
        use = self.uses.pop(user, None)
        return (use.volume,) if use else ()

    async def users(self) -> frozenset[str]:
        return frozenset(self.uses)

    async def shelf(self) -> str:
        return "s"

    async def tidy(self, over: Collection[str], volumes: Collection[str]) -> tuple[str, ...]:
        self.uses = {user: use for user, use in self.uses.items() if user not in over}
        return tuple(sorted(set(volumes) - {use.volume for use in self.uses.values()}))


@dataclass
class FakeHub:
    """`ports.bytes.Hub` over a table of models."""

    models: dict[tuple[str, Revision], tuple[ModelFile, ...]] = field(default_factory=dict)
    refs: dict[tuple[str, str], Revision] = field(default_factory=dict)
    """Branches and tags."""
    errors: list[GpurunError] = field(default_factory=list)
    said_before: dict[tuple[str, Revision], SaidBefore] = field(default_factory=dict)
    """What it answered on another day."""
    missing_bytes: list[int] = field(default_factory=list)
    """What is still to come at each question, before all is there."""
    uses: dict[str, datetime] = field(default_factory=dict)
    """Attempts that use something, and until when."""
    gated: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)

    async def resolve(self, spec: ModelSpec) -> ModelPin:
        _raise_next(self.errors)
        files = self.models.get((spec.id, spec.revision))
        if files is None:
            raise PinNotFound(f"The hub has no {spec.id} at {spec.revision}.", pin=f"{spec.id} at {spec.revision}")
        wanted = tuple(file for file in files if spec.wants(file.path))
        if files and not wanted:
            raise NothingIncluded(f"`include` and `exclude` leave none of the {len(files)} files of {spec.id}.")
        return spec.with_files(wanted)

    async def require_open(self, spec: ModelSpec, *, gated_too: bool) -> None:
        _raise_next(self.errors)
        if spec.id in self.private or (spec.id in self.gated and not gated_too):
            raise PinNotFound(f"The hub does not show {spec.id}.")

    async def resolve_or_recall(self, spec: ModelSpec) -> SaidBefore:
        try:
            return SaidBefore(await self.resolve(spec), "")
        except HubSilent:
            if (spec.id, spec.revision) not in self.said_before:
                raise
            return self.said_before[spec.id, spec.revision]

    async def revision_of(self, model_id: str, ref: str, *, kind: HubKind = "model") -> Revision:
        _raise_next(self.errors)
        commits = {str(revision): revision for name, revision in self.models if name == model_id}
        found = self.refs.get((model_id, ref)) or commits.get(ref)
        if found is None:
            raise PinNotFound(f"The hub has no {model_id} at {ref}.", pin=f"{model_id} at {ref}")
        return found

    async def prefetch(self, pins: Sequence[ModelPin], wait_s: float) -> Preparation:
        _raise_next(self.errors)
        return Preparation(
            bytes_total=sum(file.size for pin in pins for file in pin.files), bytes_missing=0, files_missing=0
        )

    async def lay_out(self, pins: Sequence[ModelPin], *, user: str, until: datetime, wait_s: float) -> Preparation:
        self.uses[user] = until
        _raise_next(self.errors)
        total = sum(file.size for pin in pins for file in pin.files)
        if self.missing_bytes:
            return Preparation(bytes_total=total, bytes_missing=self.missing_bytes.pop(0), files_missing=1)
        return Preparation(bytes_total=total, bytes_missing=0, files_missing=0, folder="/cache/views/v")

    async def unuse(self, user: str) -> None:
        self.uses.pop(user, None)

    async def users(self) -> frozenset[str]:
        return frozenset(self.uses)

    async def tidy(self, over: Collection[str] = ()) -> None:
        for user in over:
            self.uses.pop(user, None)

    def open(self, pin: ModelPin, file: ModelFile, *, offset: int = 0) -> AsyncIterator[bytes]:
        raise Bug("no flow test reads a model")


@dataclass
class FakeImages:
    """`ports.bytes.Images` over a set of digests and a table of tags."""

    known: set[ImageRef] = field(default_factory=set)
    tags: dict[str, ImagePin] = field(default_factory=dict)
    """By `name:tag`."""
    platforms: tuple[str, ...] = ("linux/amd64",)
    """Of every image."""
    logins: list[RegistryLogin | None] = field(default_factory=list)
    """Who asked."""
    errors: list[GpurunError] = field(default_factory=list)

    async def confirm(
        self, image: ImageRef, *, locked: LockedImage | None = None, login: RegistryLogin | None = None
    ) -> SeenImage:
        self.logins.append(login)
        _raise_next(self.errors)
        if image not in self.known:
            raise PinNotFound(f"The registry has no {image}.", pin=image)
        now = self.tags.get(str(locked.ref)) if locked is not None else None
        return SeenImage(platforms=self.platforms, tag_points_to=now.digest if now is not None else "")

    async def pin(self, name: str, tag: str, *, login: RegistryLogin | None = None) -> ImagePin:
        _raise_next(self.errors)
        try:
            return self.tags[f"{name}:{tag}"]
        except KeyError:
            raise PinNotFound(f"The registry has no {name}:{tag}.", pin=f"{name}:{tag}") from None


@dataclass
class FakeUplinks:
    """`ports.uplink.Uplinks`."""

    open_now: set[str] = field(default_factory=set)

    async def open(self, attempt_id: str, provider: str) -> Uplink:
        self.open_now.add(attempt_id)
        return Uplink(kind="unix", address=f"/run/gpurun/{attempt_id}")

    async def close(self, attempt_id: str) -> None:
        self.open_now.discard(attempt_id)


@dataclass
class SourceOnlyForge:
    """`ports.forge.Forge` for the engine, which asks it for files, and where git fetches from."""

    errors: list[GpurunError] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    """At every commit, by path."""
    at_branch: dict[str, bytes] = field(default_factory=dict)
    """At the end of every branch."""
    pull: PullRequest | None = None
    """Every one."""
    asked_for: list[str] = field(default_factory=list)
    """Paths that were read."""
    readers: list[str] = field(default_factory=list)
    """Whose right to submodules was asked for."""

    async def git_source(self, repo: RepoRef) -> GitSource:
        _raise_next(self.errors)
        return GitSource(url=f"https://forge.example/{repo.name}.git")

    async def submodule_source(self, repo: RepoRef, link: Gitlink, *, reader: str) -> GitSource:
        self.readers.append(reader)
        _raise_next(self.errors)
        return GitSource(url=f"https://forge.example/{link.name}.git")

    async def pull_request(self, repo: RepoRef, number: int) -> PullRequest:
        _raise_next(self.errors)
        if self.pull is None:
            raise Bug("the engine asks for a pull request only to merge it")
        return self.pull

    async def comment(self, repo: RepoRef, comment_id: int) -> Comment:
        raise Bug("the engine does not read comments")

    async def permission(self, repo: RepoRef, login: str) -> Permission:
        raise Bug("the engine does not ask for rights")

    async def read_file(self, repo: RepoRef, at: CommitSha | BranchName, path: str, *, max_bytes: int) -> bytes | None:
        self.asked_for.append(path)
        _raise_next(self.errors)
        content = (self.at_branch if isinstance(at, BranchName) else self.files).get(path)
        if content is not None and len(content) > max_bytes:
            raise UserError(f"{path} is too large.")
        return content

    async def read_files(
        self, repo: RepoRef, at: CommitSha | BranchName, paths: Sequence[str], *, max_bytes: int
    ) -> tuple[RepoFile, ...]:
        raise Bug("the engine knows which file it reads")

    async def changed_files(self, repo: RepoRef, number: int) -> ChangedFiles:
        raise Bug("the engine does not ask for pull requests")

    async def react(self, repo: RepoRef, comment_id: int, content: str) -> int:
        raise Bug("the engine does not write to the forge")

    async def create_comment(self, repo: RepoRef, pr: int, body: str) -> int:
        raise Bug("the engine does not write to the forge")

    async def update_comment(self, repo: RepoRef, comment_id: int, body: str) -> None:
        raise Bug("the engine does not write to the forge")

    async def find_comment(self, repo: RepoRef, pr: int, *, marker: str, since: datetime) -> int | None:
        raise Bug("the engine does not look for comments")

    async def create_check(self, repo: RepoRef, sha: CommitSha, check: Check) -> int:
        raise Bug("the engine does not write to the forge")

    async def update_check(self, repo: RepoRef, check_id: int, check: Check) -> bool:
        raise Bug("the engine does not write to the forge")

    async def find_check(self, repo: RepoRef, sha: CommitSha, *, name: str, external_id: str) -> int | None:
        raise Bug("the engine does not look for checks")

    async def read_check(self, repo: RepoRef, check_id: int) -> CheckSeen:
        raise Bug("the engine does not read checks")

    async def delivery(self, guid: str, *, since: datetime) -> Sent | None:
        raise Bug("the engine does not ask for deliveries")


@dataclass(frozen=True, kw_only=True)
class Script:
    """What an agent does."""

    claims: bool = True
    talks: bool = True
    """It keeps in contact after the claim."""
    works_s: float = 5.0
    result: Result | None = PASSED
    """None: it works for ever."""
    obeys: bool = True
    """It ends when it is told to stop."""
    dies_in: Phase | None = None
    """The instance ends without a word in this phase."""


@dataclass
class FakeAgents:
    """Plays the agent in every running instance, with the facts that the agent API would write."""

    store: Store
    cloud: FakeCloud
    secret: bytes
    script: Script = field(default_factory=Script)
    scripts: list[Script] = field(default_factory=list)
    """Of the first instances, in order; `script` for the rest."""
    claimed: dict[str, datetime] = field(default_factory=dict)
    """When each instance's claim was taken, by ref."""
    user_code: list[str] = field(default_factory=list)
    """Attempts whose command ran."""

    async def act(self) -> bool:
        """One beat of every agent; False when there is none."""
        running = self.cloud.running()
        for instance in running:
            await self._act(instance)
        return bool(running)

    def _script(self, instance: FakeInstance) -> Script:
        index = self.cloud.book.index(instance)
        return self.scripts[index] if index < len(self.scripts) else self.script

    async def _act(self, instance: FakeInstance) -> None:
        script = self._script(instance)
        if instance.ref not in self.claimed:
            if script.claims:
                await self._claim(instance, script)
            return
        if script.talks and await self.store.write(lambda tx: _told_to_stop(tx, instance.launch.attempt_id)):
            if script.obeys:
                await self._finish(instance, Result(kind=ResultKind.CANCELLED, reason="asked"))
            return
        done_at = self.claimed[instance.ref] + timedelta(seconds=script.works_s)
        if script.result is not None and self.cloud.clock.now() >= done_at:
            await self._finish(instance, script.result)

    async def _claim(self, instance: FakeInstance, script: Script) -> None:
        attempt_id = instance.launch.attempt_id
        token = instance.launch.claim_token.get_secret_value()
        run_sha256 = token_sha256(run_token(self.secret, attempt_id, instance.ref))

        def claim(tx: Tx) -> bool:
            attempt = tx.attempt(attempt_id)
            if attempt is None or attempt.claim_sha256 != token_sha256(token):
                return False
            return tx.set_claimed(attempt_id, boot_id=instance.ref, token_sha256=run_sha256, landed={})

        if not await self.store.write(claim):
            self.cloud.exit(instance)  # 410: not wanted
            return
        self.claimed[instance.ref] = self.cloud.clock.now()
        for phase in (Phase.SOURCE, Phase.WEIGHTS, Phase.SETUP, Phase.RUNNING):
            if phase is script.dies_in:
                self.cloud.exit(instance)
                return
            await self._enter(attempt_id, phase)

    async def _enter(self, attempt_id: str, phase: Phase) -> None:
        if phase is Phase.RUNNING:
            self.user_code.append(attempt_id)
        await self.store.write(lambda tx: tx.saw(attempt_id, phase=phase))

    async def _finish(self, instance: FakeInstance, result: Result) -> None:
        await self.store.write(lambda tx: tx.set_result(instance.launch.attempt_id, result))
        self.cloud.exit(instance)


def _told_to_stop(tx: Tx, attempt_id: str) -> bool:
    tx.saw(attempt_id)
    attempt = tx.attempt(attempt_id)
    if attempt is None or attempt.claim_revoked_at is not None or attempt.result is not None:
        return True
    run = tx.run(attempt.run_id)
    return run is None or run.cancel_at is not None or attempt.stop_asked_at is not None


def _raise_next(errors: list[GpurunError]) -> None:
    if errors:
        raise errors.pop(0)
