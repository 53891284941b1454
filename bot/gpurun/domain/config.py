"""`.gpurun.yml` as this version understands it.

`File` is what may be written; `Config` is what it means, with `defaults` merged into every job. The attribute
docstrings are the reference page and the descriptions of the JSON Schema. `plan.read` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from gpurun.domain.config_values import (
    ARTIFACT,
    ATTEMPTS,
    BOT_LOGIN,
    BUILD_ARG,
    CHANGED_PATH,
    CHECKOUT_PATH,
    CPUS,
    DURATION,
    ENV_NAME,
    ENV_VALUE,
    FETCH_OR_SKIP,
    FILES_PATTERN,
    FLAG,
    GLOB,
    GPU,
    GPU_COUNT,
    IMAGE,
    KIND_NAME,
    LEAST_SIZE,
    LOGIN,
    MODEL_ID,
    MODEL_REVISION,
    NAME,
    NAME_IN_LIST,
    PROVIDER_ID,
    REGISTRY_SERVER,
    RIGHT,
    ROLE,
    SECRET_NAME,
    SETUP_INPUT,
    SHELL,
    SIZE,
    SOURCE_REF,
    STAGE,
    TARGET,
    TEXT,
    USERNAME,
    VERSION,
    WORKDIR,
)
from gpurun.domain.ids import HubRef, ImageRef, ImageTag, JobName, Revision
from gpurun.domain.part import Many, Named, Part, key
from gpurun.domain.quantity import GpuNeed
from gpurun.domain.right import Right, Role

if TYPE_CHECKING:
    from gpurun.domain.forge import Extra
    from gpurun.domain.plan import HubKind, Resources

MAX_ARTIFACTS = 50
MAX_MODELS = 32
MAX_PATTERNS = 50
MAX_SECRETS = 50
MAIN = HubRef("main")
"""The branch of the hub that is meant when none is written."""

PLANNED_KEYS: Mapping[str, frozenset[str]] = {
    "file": frozenset({"budgets", "notifications"}),
    "job": frozenset(
        {
            *("skip_if_only_changed", "checkpoint", "matrix", "assert"),
            *("concurrency", "merge_queue"),
        }
    ),
    "trigger": frozenset({"pull_request", "push", "schedule"}),
    "limits": frozenset({"max_price", "max_cost", "idle"}),
    "retry": frozenset({"on_events", "other_host"}),
    "model": frozenset(),
    "resources": frozenset(),
    "checkout": frozenset(),
    "permissions": frozenset({"fork_prs", "debug_hold"}),
    "policy": frozenset({"network"}),
    "untrusted": frozenset(),
    "max": frozenset({"price", "cost"}),
}
"""Keys of the planned schema that this version does not act on, by the place where they stand."""


class Kind(NamedTuple):
    """What a job of this kind gets where it says nothing itself."""

    max_duration_s: int
    attempts: int


KINDS: Mapping[str, Kind] = {
    "verify": Kind(max_duration_s=30 * 60, attempts=2),
    "batch": Kind(max_duration_s=6 * 3600, attempts=3),
    "train": Kind(max_duration_s=24 * 3600, attempts=3),
}
DEFAULT_KIND = "verify"


class ModelKeys(Part, place="model", hint="Write `{id: organisation/name}`."):
    """One model or data set of the hub. `.gpurun.lock` pins what the file does not."""

    id: str = key(MODEL_ID, examples=["org/name"])
    """Its name on the hub."""
    revision: Revision | HubRef | None = key(
        MODEL_REVISION, default=None, examples=["main", "v1.0", "2f1a0b9c8d7e6f5a4b3c2d1e0f0d5f9f0f2a0f4d"]
    )
    """Its full commit id; or a branch, a tag or the first 7 or more digits of a commit id, which `.gpurun.lock` pins.
    Without it: `main`."""
    target: str | None = key(TARGET, default=None, examples=["/weights"])
    """A folder in the container that gets the plain files. They are always in the hub cache, where `from_pretrained`
    finds them by id."""
    include: tuple[str, ...] = key(
        Many(FILES_PATTERN, at_most=MAX_PATTERNS), default=(), examples=['["*.json", "*.safetensors"]']
    )
    """Only files that match one of these patterns; `*` stands for anything, `/` too, and `folder/` for all below it. As
    `allow_patterns` of `snapshot_download`. Without it: all files."""
    exclude: tuple[str, ...] = key(Many(FILES_PATTERN, at_most=MAX_PATTERNS), default=(), examples=['["*.bin"]'])
    """None of the files that match one of these patterns. As `ignore_patterns`."""

    @property
    def ref(self) -> Revision | HubRef:
        """What is to be pinned."""
        return self.revision or MAIN


class ResourceKeys(Part, place="resources"):
    """What the job needs. A single number means: at least. On the local engine memory, CPUs and disk are limits too."""

    gpu: GpuNeed | None = key(GPU, default=None, examples=["1", "24GB", "24GB..80GB:2"])
    """How many GPUs (`1`), how much memory each (`24GB..80GB`), or both (`24GB..80GB:2`). Without it: none."""
    cpu: float | None = key(CPUS, default=None, examples=["8", "8.."])
    """CPU cores."""
    memory: int | None = key(LEAST_SIZE, default=None, examples=["32GB"])
    """Main memory. 1GB is 1024MB."""
    disk: int | None = key(LEAST_SIZE, default=None, examples=["60GB"])
    """Disk that the job may fill: everything that it writes in its container, with the models and the commit. A job
    that uses more is ended. 1GB is 1024MB."""
    shm_size: int | None = key(SIZE, default=None, examples=["8GB"])
    """Size of `/dev/shm`; data loaders with workers need more than Docker's 64MB."""


class CheckoutKeys(Part, place="checkout"):
    """What lies in the work folder. A commit with submodules or files of git LFS is refused until the job says what to
    do with them.
    """

    git: bool | None = key(FLAG, default=None, examples=["true", "false"])
    """`true`: a `.git` in which `git describe`, `git rev-parse` and `git status` work: the newest 5,000 commits without
    their contents, this one with all of it, and the nearest 100 tags. Without it: none."""
    ref: str | None = key(SOURCE_REF, default=None, examples=["head", "merge"])
    """Which commit: `head`, the last one of the pull request, or `merge`, what GitHub makes of it and its base branch;
    the check is on the head. `gpurun run` runs the checkout in both cases. Without it: `head`."""
    lfs: str | None = key(FETCH_OR_SKIP, default=None, examples=["fetch", "skip"])
    """`fetch`: files of git LFS have their content, verified. `skip`: they stay the pointers that the commit holds."""
    submodules: str | None = key(FETCH_OR_SKIP, default=None, examples=["fetch", "skip"])
    """`fetch`: submodules, and theirs, are there at the commits that are written down. `skip`: they stay empty
    folders."""


class LimitKeys(Part, place="limits"):
    """What stops the job."""

    max_duration: int | None = key(DURATION, default=None, examples=["20m"])
    """The longest time from the start of `setup` to the end of `run`: `90s`, `30m` or `2h`. Without it: that of its
    `kind`. A command that does not end at SIGTERM gets 20 s more."""


class RegistryKeys(Part, place="registry"):
    """The login for the job's image, or for those of its `build`, at their registry. The job does not get it."""

    username: str = key(USERNAME, examples=["ci-bot", "$oauthtoken"])
    """Required. Of a person or robot. At nvcr.io it is `$oauthtoken`; ghcr.io takes any name with a token."""
    password: str = key(SECRET_NAME, examples=["REGISTRY_TOKEN"])
    """Required. The name of the secret with the password or token: `gpurun secret set` on the server, `.env` for
    `gpurun run` and `gpurun lock`, which take Docker's own login when it is not there."""
    server: str | None = key(REGISTRY_SERVER, default=None, examples=["ghcr.io"])
    """The registry that gets this login; images of others are pulled without. Needed when the images of a `build` are
    from several."""


class BuildKeys(Part, place="build", short="context", hint="Write `build: .`, or `build: {dockerfile: Dockerfile}`."):
    """A Dockerfile of the repository, built before the job where it runs. `build: .` means `build: {context: .}`. Every
    image that it names is pinned: by digest, or by a tag that `.gpurun.lock` pins.
    """

    dockerfile: str | None = key(CHECKOUT_PATH, default=None, examples=["docker/Dockerfile"])
    """The file, from the folder that holds this one. Without it: `Dockerfile` in the context."""
    context: str | None = key(CHECKOUT_PATH, default=None, examples=[".", "docker"])
    """What `COPY` and `ADD` see: a folder of the commit without what its `.dockerignore` names, from the folder that
    holds this file. Without it: `.`"""
    target: str | None = key(STAGE, default=None, examples=["gpu"])
    """The stage that is built. Without it: the last one."""
    args: Mapping[str, str] = key(
        Named(BUILD_ARG, ENV_VALUE), default=MappingProxyType({}), examples=['{CUDA: "12.4"}']
    )
    """Values for `ARG`. They are no place for secrets: an image keeps them."""


class TriggerKeys(Part, place="trigger"):
    """What starts the job."""

    comment: bool | None = key(FLAG, default=None, examples=["true", "false"])
    """`false`: `/gpurun <job>` does not start it. Without it: `true`."""


class RetryKeys(Part, place="retry"):
    """What happens when a machine is lost before the job's own commands ran there. Nothing of the job runs twice."""

    attempts: int | None = key(ATTEMPTS, default=None, examples=["3"])
    """How many machines are tried in all, 1 to 5."""


class JobKeys(Part, place="job"):
    """What may stand under a job, and under `defaults`."""

    kind: str | None = key(KIND_NAME, default=None, examples=["verify", "batch", "train"])
    """Presets for `limits` and `retry`: `verify` (30m, 2 attempts; the default), `batch` (6h, 3), `train` (24h, 3)."""
    trigger: TriggerKeys = key(TriggerKeys, default=TriggerKeys())
    """What starts the job."""
    image: ImageRef | ImageTag | None = key(
        IMAGE, default=None, examples=["ghcr.io/org/app:1.2", "ghcr.io/org/app@sha256:…"]
    )
    """Required, unless `build` stands there. The container image: by digest, or by a tag that `.gpurun.lock` pins."""
    build: BuildKeys | None = key(BuildKeys, default=None)
    """In the place of `image`: a Dockerfile of the repository."""
    registry: RegistryKeys | None = key(RegistryKeys, default=None)
    """The login for a private image. Without it: what the machine of the bot is logged in with."""
    setup: str = key(TEXT, default="", examples=["pip install -e ."])
    """Shell text that runs before `run`, timed apart."""
    setup_inputs: tuple[str, ...] = key(
        Many(SETUP_INPUT, at_most=MAX_PATTERNS), default=(), examples=["[requirements.txt, pyproject.toml]"]
    )
    """All files of the commit that `setup` reads: paths or patterns, relative to the folder of this file. What `setup`
    did is then kept on a Docker Engine, and the next run with the same image, `setup` and files has it without running
    it. Not for a job with `secrets` or `build`. Without it `setup` runs each time."""
    run: str | None = key(SHELL, default=None, examples=["python -m app.smoke --seed 0"])
    """Required. Shell text, run by `sh -c` in a checkout of the commit. Its exit code decides: 0 is passed."""
    workdir: str | None = key(WORKDIR, default=None, examples=["examples/demo"])
    """The folder in which `setup` and `run` start, relative to the one that holds this file. `artifacts` are relative
    to it."""
    env: Mapping[str, str] = key(Named(ENV_NAME, ENV_VALUE), default=MappingProxyType({}), examples=['{SEED: "0"}'])
    """Environment variables. Values stay exactly as written: `NO`, `3.10` and `1e-4` are text."""
    secrets: tuple[str, ...] = key(
        Many(
            SECRET_NAME, at_most=MAX_SECRETS, hint="Write the names only, `[NAME]`: values do not belong in this file."
        ),
        default=(),
        examples=["[HF_TOKEN]"],
    )
    """Names of secrets that the job gets as environment variables. Values are never in this file: `gpurun secret set`
    on the server, `.env` for `gpurun run`."""
    models: tuple[ModelKeys, ...] = key(Many(ModelKeys, at_most=MAX_MODELS), default=())
    """Models whose files are verified and laid out before `setup`."""
    datasets: tuple[ModelKeys, ...] = key(
        Many(ModelKeys, at_most=MAX_MODELS), default=(), examples=["[{id: org/name}]"]
    )
    """Data sets of the hub, with the same keys. `snapshot_download("org/name", repo_type="dataset")` finds them."""
    resources: ResourceKeys = key(ResourceKeys, default=ResourceKeys())
    """What the job needs. Without it no GPU is asked for."""
    providers: tuple[str, ...] = key(Many(PROVIDER_ID, at_most=10), default=(), examples=["[docker]"])
    """Where it may run, the first choice first. Without it: wherever the server can."""
    limits: LimitKeys = key(LimitKeys, default=LimitKeys())
    """What stops the job."""
    retry: RetryKeys = key(RetryKeys, default=RetryKeys())
    """What happens when a machine is lost."""
    checkout: CheckoutKeys = key(CheckoutKeys, default=CheckoutKeys())
    """What lies in the work folder."""
    artifacts: tuple[str, ...] = key(Many(ARTIFACT, at_most=MAX_ARTIFACTS), default=(), examples=['["out/**"]'])
    """Files to keep: patterns under the work folder. Only regular files; symbolic links are not followed."""
    required: bool | None = key(FLAG, default=None, examples=["true", "false"])
    """`true`: the check `gpurun/gate` is not green before this job has passed at the head of the pull request. What the
    base branch says counts: a pull request may add required jobs, and takes none away. Without it: `false`."""
    paths: tuple[str, ...] = key(
        Many(CHANGED_PATH, at_least=1, at_most=MAX_PATTERNS), default=(), examples=['["src/**", pyproject.toml]']
    )
    """`required` holds only for pull requests that change one of these: paths or patterns, relative to the folder of
    this file; a folder means all below it. That of the base branch counts. Without it: every pull request, in a
    sub-folder every one that changes something there."""

    def odd(self) -> tuple[str, str] | None:
        for name in self.secrets:
            if name in self.env:
                return "secrets", f"{name} stands under `env` too. Delete it in one of the two places"
        if self.image is not None and self.build is not None:
            return "build", "`image` stands there too. Delete one of the two"
        if len(set(self.secrets)) < len(self.secrets):
            return "secrets", "a name stands there twice. Delete one of them"
        return None


class MaxKeys(Part, place="max"):
    """The most that a job may ask for."""

    duration: int | None = key(DURATION, default=None, examples=["1h"])
    """Of `limits: {max_duration: …}`."""
    gpus: int | None = key(GPU_COUNT, default=None, examples=["2"])
    """Of `resources: {gpu: …}`."""


class SecretRule(Part, place="secret"):
    """Who may use a secret."""

    jobs: tuple[JobName, ...] = key(Many(NAME_IN_LIST, at_least=1), examples=["[smoke]"])
    """Required. Names of jobs."""


class UntrustedKeys(Part, place="untrusted"):
    """What code may have that runs because somebody approved it: that of forks, and of authors who may not push."""

    providers: tuple[str, ...] | None = key(Many(PROVIDER_ID, at_most=10), default=None, examples=["[docker]"])
    """Where it may run, within `policy: {providers: …}`. Without it: wherever other code may. The bot's own Docker
    Engine also needs `GPURUN_ALLOW_UNTRUSTED_LOCAL` on the server."""
    gated_models: bool | None = key(FLAG, default=None, examples=["true", "false"])
    """`true`: gated models and data sets of the hub, too, with the bot's token. Private ones never. Without it: what
    everybody may download."""


class PolicyKeys(Part, place="policy"):
    """What jobs may ask for. It is read from the default branch; in a pull request's copy it changes nothing."""

    images: tuple[str, ...] | None = key(Many(GLOB, at_most=100), default=None, examples=['["ghcr.io/org/*"]'])
    """Patterns, one of which the image's name must match; `*` stands for anything. Without it: every image."""
    providers: tuple[str, ...] | None = key(Many(PROVIDER_ID, at_most=10), default=None, examples=["[docker]"])
    """Where jobs may run. Without it: wherever the server can."""
    secrets: Mapping[str, SecretRule] | None = key(
        Named(SECRET_NAME, SecretRule), default=None, examples=["{HF_TOKEN: {jobs: [smoke]}}"]
    )
    """Which jobs may use which secrets; one that is not named here is for nobody. Without it: every job of this
    repository may use all of its secrets."""
    max: MaxKeys = key(MaxKeys, default=MaxKeys())
    """The most that a job may ask for."""
    bots: tuple[str, ...] = key(Many(BOT_LOGIN, at_most=100), default=(), examples=['["renovate[bot]"]'])
    """Bots whose branches of this repository count as those of people who may push. Their comments are no commands."""
    untrusted: UntrustedKeys = key(UntrustedKeys, default=UntrustedKeys())
    """What code may have that somebody had to approve."""


class PermissionKeys(Part, place="permissions"):
    """Who may do what. It is read from the default branch; in a pull request's copy it changes nothing."""

    run: Role | None = key(ROLE, default=None, examples=["write", "maintain"])
    """The least role for starting and cancelling runs. Without it: `write`."""
    approve: Role | None = key(ROLE, default=None, examples=["write", "maintain"])
    """The least role for approving code of forks and of authors who may not push. Without it: `maintain`."""
    admin: Role | None = key(ROLE, default=None, examples=["admin"])
    """The least role for what concerns the whole repository. Without it: `admin`."""
    users: Mapping[str, Right] = key(
        Named(LOGIN, RIGHT), default=MappingProxyType({}), examples=["{alice: run, bob: approve}"]
    )
    """People who may do something whatever their role. `approve` holds `run`, and `admin` both."""


class File(Part, place="file"):
    """The file `.gpurun.yml`."""

    version: int = key(VERSION)
    """Required. The version of this schema, `1`."""
    policy: PolicyKeys = key(PolicyKeys, default=PolicyKeys())
    """What jobs may ask for. Read from the default branch only."""
    permissions: PermissionKeys = key(PermissionKeys, default=PermissionKeys())
    """Who may do what. Read from the default branch only."""
    defaults: JobKeys = key(JobKeys, default=JobKeys())
    """Keys for every job. A job's own key wins; `env`, `resources`, `limits`, `retry`, `trigger` and `checkout` are
    merged key by key."""
    jobs: Mapping[JobName, JobKeys] = key(
        Named(
            NAME,
            JobKeys,
            at_least=1,
            empty="Write the keys of the job below it, `image` and `run` at least, or delete the line.",
        )
    )
    """Required. Jobs by name. `/gpurun <name>` runs one."""


class Job(JobKeys):
    """A job after `defaults` were merged into it."""

    run: str = key(SHELL)

    def odd(self) -> tuple[str, str] | None:
        if self.setup_inputs and not self.setup:
            return "setup_inputs", "there is no `setup` that could read them. Write one, or delete the key"
        return super().odd()

    def needs(self) -> Resources:
        """Zero where nothing is asked for."""
        from gpurun.domain.plan import Resources  # not needed to check a file

        gpu = self.resources.gpu or GpuNeed(count=0)
        return Resources(
            gpus=gpu.count,
            vram_min_mib=gpu.vram_min_mib,
            vram_max_mib=gpu.vram_max_mib,
            cpus=self.resources.cpu or 0.0,
            memory_mib=self.resources.memory or 0,
            disk_mib=self.resources.disk or 0,
            shm_mib=self.resources.shm_size or 0,
        )

    @property
    def from_hub(self) -> tuple[tuple[HubKind, ModelKeys], ...]:
        """Models, then data sets, in the order of the file."""
        return (*(("model", keys) for keys in self.models), *(("dataset", keys) for keys in self.datasets))

    @property
    def all_secrets(self) -> tuple[str, ...]:
        """Names of those that the job or its image needs, each once."""
        image = () if self.registry is None else (self.registry.password,)
        return tuple(dict.fromkeys((*self.secrets, *image)))

    def skipped(self) -> frozenset[Extra]:
        """What the commit points to and the job does without."""
        return self._answered("skip")

    def fetched(self) -> frozenset[Extra]:
        """What the commit points to and the job gets."""
        return self._answered("fetch")

    @property
    def wants_merge(self) -> bool:
        """Whether it runs the merge of the pull request with its base."""
        return self.checkout.ref == "merge"

    def _answered(self, answer: str) -> frozenset[Extra]:
        from gpurun.domain.forge import Extra  # not needed to check a file

        said = {Extra.LFS: self.checkout.lfs, Extra.SUBMODULES: self.checkout.submodules}
        return frozenset(what for what, word in said.items() if word == answer)

    @property
    def preset(self) -> Kind:
        """What applies where the job says nothing."""
        return KINDS[self.kind or DEFAULT_KIND]

    @property
    def max_duration_s(self) -> int:
        """Seconds from the start of `setup`."""
        return self.limits.max_duration or self.preset.max_duration_s

    @property
    def max_attempts(self) -> int:
        """Machines that are tried in all."""
        return self.retry.attempts or self.preset.attempts

    @property
    def by_comment(self) -> bool:
        """Whether `/gpurun <job>` starts it."""
        return self.trigger.comment is not False

    @property
    def is_required(self) -> bool:
        """Whether the gate waits for it."""
        return self.required is True

    @property
    def needs_lock(self) -> bool:
        """Whether the file itself names something that can move; a Dockerfile may, too."""
        return isinstance(self.image, ImageTag) or any(isinstance(keys.ref, HubRef) for _, keys in self.from_hub)


class Config(Part):
    """What the file means."""

    version: int
    policy: PolicyKeys
    permissions: PermissionKeys
    jobs: Mapping[JobName, Job]
