"""Runs and attempts: the states of the engine and the rows that hold them.

Three kinds of columns, and who writes them:
- engine-owned (state, due_at, timers): only `flow.engine`, guarded by the lease;
- facts (set once or append-only): anybody who saw them, never lease-guarded;
- intents (cancel, supersede, paused): anybody who may, together with `due_at = now`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from gpurun.domain.build import BuildPin
from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import CommitSha, ImageRef, JobName, TreeSha
from gpurun.domain.lock import Lock
from gpurun.domain.narrow import Narrow
from gpurun.domain.offer import DiskUse, InstanceState, Offer
from gpurun.domain.plan import ModelPin, Plan, SetupInput
from gpurun.domain.source import Gitlink, GitTag, Merge


class RunState(StrEnum):
    """Where a run is; docs/concepts/engine.md says what each means. None is renamed while rows can hold it."""

    PLANNING = "planning"
    WAITING_APPROVAL = "waiting_approval"
    QUEUED = "queued"
    ACTIVE = "active"
    ENDED = "ended"


class Untrusted(StrEnum):
    """Why nobody of the repository answers for the code of a run. None is renamed while rows can hold it."""

    FORK = "fork"
    """It comes from another repository."""
    AUTHOR = "author"
    """The author of the pull request may not push to this one."""


class AttemptState(StrEnum):
    """What the instance is; docs/concepts/engine.md says what each means."""

    CHOSEN = "chosen"
    CREATING = "creating"
    LOOKING = "looking"
    UNSURE = "unsure"
    BOOTING = "booting"
    LIVE = "live"
    DESTROYING = "destroying"
    GONE = "gone"
    VOID = "void"


AGENT_IS_OVER = frozenset({AttemptState.UNSURE, AttemptState.DESTROYING, AttemptState.GONE, AttemptState.VOID})
"""States in which the agent of an attempt has nothing more to say."""


class Verdict(StrEnum):
    """How a run ended."""

    PASSED = "passed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    LOST = "lost"
    CANCELLED = "cancelled"
    REFUSED = "refused"


class ResultKind(StrEnum):
    """What the job of one attempt did."""

    PASSED = "passed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    LOST = "lost"
    CANCELLED = "cancelled"
    REFUSED = "refused"


BUILDING = "building"
BUILT = "built"
"""When the build of an image began and ended, beside the phases of the agent."""
FETCHING = "fetching"
FETCHED = "fetched"
"""The same of the weights that the bot brings before there is an instance. Neither when they are all there."""


class Phase(StrEnum):
    """Where the agent is."""

    CLAIMED = "claimed"
    SOURCE = "source"
    WEIGHTS = "weights"
    SETUP = "setup"
    RUNNING = "running"
    COLLECTING = "collecting"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Set once per attempt; the first commit wins."""

    kind: ResultKind
    exit_code: int | None = None
    reason: str = ""
    """One word that code branches on: `exit`, `weights_mismatch`, `boot_timeout`, `silent`, `host`, …"""
    detail: str = ""
    """A sentence for people; untrusted text."""
    left_out: str = ""
    """Which artifacts were not kept, why and how large they are, in sentences, a line for each reason and each name;
    untrusted text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a file of the commit."""

    file: str
    """From the top of the repository."""
    line: int
    """From 1."""
    text: str
    """What is wrong and what to do, in sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """What a run would cost where it would run first."""

    label: str
    """Of the offer."""
    usd_per_hour_micro: int
    longest_s: int
    """Until the hard deadline of one attempt."""
    declared: bool
    """The operator's own price, and no provider's bill."""

    @property
    def worst_usd_micro(self) -> int:
        """Of one attempt that runs until its hard deadline; rounded up."""
        return -(-self.usd_per_hour_micro * self.longest_s // 3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFiles:
    """What the base branch says of the job at the moment at which somebody is asked to approve another word."""

    config_text: str | None
    """Its `.gpurun.yml` in the run's folder; None when there is none, or none that can be read."""
    lock: Lock = field(default_factory=Lock)
    """What its `.gpurun.lock` holds for the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What planning has found out so far; one more with each step."""

    tree: TreeSha | None = None
    lock: Lock | None = None
    """The entries of `.gpurun.lock` that the job needs; None before it was read, or when the file pins everything."""
    build: BuildPin | None = None
    """What the commit holds for the job's `build`; None before it was read, and for a job without."""
    confirmed: tuple[ImageRef, ...] = ()
    """Images of the Dockerfile that their registries have."""
    image_confirmed: bool = False
    platforms: tuple[str, ...] = ()
    """That the image is for; empty when nobody says."""
    tag_points_to: str = ""
    """The digest that the tag of a locked image stands for now; empty when nobody says."""
    not_on: tuple[str, ...] = ()
    """Providers whose machines do not run the image."""
    models: tuple[ModelPin, ...] = ()
    """In the order of the job's `models`."""
    merge: Merge | None = None
    """The commit that runs, for a job that wants the merge; None before GitHub was asked, and for all others."""
    source_bytes: int = 0
    """Of the archive of what was fetched so far."""
    links: tuple[Gitlink, ...] = ()
    """Submodules that are known; those without a `source` are still to be fetched."""
    lfs: bool = False
    """Something of it is in git LFS, and the job gets it."""
    lfs_left: tuple[str, ...] = ()
    """Repositories whose LFS files are still to be fetched: the path of a submodule, empty for the run's own."""
    tags: tuple[GitTag, ...] | None = None
    """Of the commits behind the run's; None before the history was fetched."""
    setup_inputs: tuple[SetupInput, ...] | None = None
    """What the job's `setup_inputs` mean in the commit; None before that was asked."""
    base: BaseFiles | None = None
    """None before it was read, and for a run that nobody has to approve."""
    starter: str = ""
    """A `.gpurun.yml` to begin with, for a commit that has none. Made of foreign text."""
    notes: tuple[str, ...] = ()
    """What people should know of how pins were found: whom nobody could ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One request carrying out one plan."""

    # identity, written by intake
    id: str
    repo: RepoRef
    pr: int | None
    job: JobName
    sha: CommitSha
    base_sha: CommitSha | None = None
    base_ref: str = ""
    """The branch that the pull request goes to; empty without one."""
    untrusted: Untrusted | None = None
    """Decided when it was asked for, from what the forge said then."""
    who: str
    why: str
    """`comment`, `button`, `cli`."""
    comment_id: int | None = None
    created_at: datetime
    read_key: str = field(repr=False)
    """128 bits, url-safe; opens the run page."""
    config_text: str | None
    """`.gpurun.yml` at `sha`; None when there is no such file."""
    folder: str = ""
    """The folder that holds the file, from the top of the repository; empty for the top."""
    policy_text: str | None = None
    """`.gpurun.yml` of the default branch when the run was asked for; None when there is none, or for a local run."""
    narrow: Narrow = field(default_factory=Narrow)
    """What was asked of it beyond the file."""
    also_asked: tuple[str, ...] = ()
    """Who asked for the same while it was live."""

    # engine-owned
    state: RunState = RunState.PLANNING
    state_since: datetime
    due_at: datetime | None
    tries: int = 0
    last_error: str = ""
    pins: Pins = field(default_factory=Pins)
    plan: Plan | None = None
    plan_digest: str = ""
    result_key: str = ""
    attempts: int = 0
    verdict: Verdict | None = None
    reason: str = ""
    """One word: `config`, `pin`, `hardware`, `no_capacity`, `exit`, …"""
    detail: str = ""
    error_line: int = 0
    """Line of `.gpurun.yml` for refused (config, hardware) when it is known, else 0."""
    faults: tuple[Fault, ...] = ()
    """All faults of the file, from top to bottom, for refused (config)."""
    notes: tuple[str, ...] = ()
    """What people should know and nothing is wrong with."""
    max_attempts: int = 2
    quote: Quote | None = None
    """For a run that somebody has to approve; None when no offer was known."""
    approval: str = ""
    """The id of the approval under which it goes on; empty before there was one, and for trusted code."""
    ended_at: datetime | None = None

    # intents
    cancel_at: datetime | None = None
    cancel_by: str = ""
    superseded_by: str = ""
    paused: bool = False
    """Its repository is paused."""

    @property
    def is_held(self) -> bool:
        """It waits for the end of a pause. What has an instance goes on, and what waits for an approval still does."""
        return self.paused and self.state in (RunState.PLANNING, RunState.QUEUED)


def source_commit(run: Run) -> CommitSha:
    """The commit whose files the job gets."""
    return run.pins.merge.commit if run.pins.merge else run.sha


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a run on one offer."""

    # identity, written when it is chosen
    id: str
    run_id: str
    number: int
    """1 for the first."""
    offer: Offer
    name: str
    claim_sha256: str
    """Hash of the claim token; the token itself is derived again when create is sent (see flow.engine)."""
    created_at: datetime
    hard_deadline: datetime

    # engine-owned
    state: AttemptState = AttemptState.CHOSEN
    state_since: datetime
    due_at: datetime | None
    tries: int = 0
    last_error: str = ""
    preparing: str = ""
    """What a person reads while the instance is prepared or boots."""
    create_sent_at: datetime | None = None
    looks: int = 0
    claim_revoked_at: datetime | None = None
    run_deadline: datetime | None = None
    stop_asked_at: datetime | None = None
    """When the agent was told to stop (cancel or deadline)."""
    destroy_asked_at: datetime | None = None
    gone_at: datetime | None = None
    unconfirmed_at: datetime | None = None

    # facts
    instance_ref: str | None = None
    claimed_at: datetime | None = None
    boot_id: str = ""
    token_sha256: str = ""
    """Hash of the run token; empty until claimed."""
    phase: Phase | None = None
    phase_times: Mapping[str, datetime] = field(default_factory=dict)
    """First time each phase was seen, by our clock; BUILDING and BUILT of an image, FETCHING and FETCHED of weights."""
    last_seen_at: datetime | None = None
    observed: InstanceState | None = None
    observed_at: datetime | None = None
    observed_gone_at: datetime | None = None
    """A clean list of the provider without this instance, after it had been seen or created."""
    exit_code: int | None = None
    """Of the instance's main process, when the provider told it."""
    disk: DiskUse | None = None
    """The last measure; one that was too much stays."""
    result: Result | None = None
    result_at: datetime | None = None
    landed: Mapping[str, str] = field(default_factory=dict)
    """What the agent found in the instance: python, kernel, driver, gpu names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAccount:
    """One row per provider key: the observer's memory."""

    provider: str
    due_at: datetime | None
    tries: int = 0
    last_error: str = ""
    list_ok_at: datetime | None = None
    broken_since: datetime | None = None
    """Set by 401 or 403: no create, no conclusion about instances."""


class StrayState(StrEnum):
    """A stray is destroyed until it is positively gone."""

    SEEN = "seen"
    DESTROYING = "destroying"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """An instance that carries our name and belongs to no attempt."""

    id: str
    provider: str
    ref: str
    name: str
    first_seen: datetime
    state: StrayState
    due_at: datetime | None
    tries: int = 0
    last_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Append-only record. `data` is small and holds no secret."""

    at: datetime
    actor: str
    """`engine`, `agent`, `@login`, `cli`."""
    kind: str
    """Past tense: `run_created`, `attempt_result_set`."""
    subject: str
    """`run:<id>`, `attempt:<id>`, `repo:<name>#<pr>`."""
    data: Mapping[str, str | int | None] = field(default_factory=dict)
