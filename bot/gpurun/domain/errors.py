"""The one error tree.

GpurunError
  UserError              the message is what the person sees: what happened, where, what to type next
    CommandError         a comment line that cannot be understood
    ConfigError          `.gpurun.yml`, with line and column
      NotInThisVersion   a planned key whose behaviour is not built yet
    NotAllowed           who asked may not
    NotByPolicy          the default branch's `policy` forbids what a job asks for
    PinNotFound          a commit, image or model revision that does not exist or does not match
      NoSuchInput        a pattern of `setup_inputs` means no file of the commit
      NothingIncluded    `include` and `exclude` of a model leave none of its files
    SecretRefused        a value that could not be kept out of logs, and so is not taken
    SecretUnavailable    a secret that a job names is not set, or cannot be read any more
    WrongPlatform        the image is for other machines than those that would run it
  Transient              try again; `retry_after_s` when the other side said so
    ForgeUnavailable  HubUnavailable  RegistryUnavailable  ProviderUnavailable  SourceUnavailable  ServerUnavailable
      HubSilent RegistrySilent   nobody answered at all
      BuildUnavailable (of the provider) in the middle of a build; carries its `output`
      ForgeLimited       the forge did nothing, and wants to be left alone for a while
      NoGit              (of the source) git is not installed; at a terminal it is the person's to mend
  Refused                permanent; an operator must act
    ForgeRefused         `status` tells 401, 403, 404, 410, 422, 451
      ForgeSuspended     the owner suspended the App; a person can lift that
    ProviderRefused      `kind`: capacity, quota, auth, invalid
      BuildRefused       a build; carries its `output`
  CreateUnknown          the one create call may or may not have made an instance
  NotYetDestroyed        call again
  WrongOffset            a stream append at another offset than the stream's end; carries `next`
  UnknownToken           a token of an agent that opens nothing
  Revoked                the attempt may not talk any more; the agent must end itself
  NewerRow               a row holds what only a later version knows; it is left as it is
  StoreBusy              the database belongs to another process or another host
  Bug                    an invariant broke; the reply is generic, details only in logs
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from gpurun.domain.build import BuildOutput


class GpurunError(Exception):
    """Root. `str(error)` is one or more full sentences."""


class UserError(GpurunError):
    """Shown as it is to the person who asked."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        """What to type next; empty when the message already says it."""


class CommandError(UserError):
    """A line of a comment that starts like a command and is none."""


class ConfigError(UserError):
    """`.gpurun.yml` or `.gpurun.lock` cannot be used. Lines and columns count from 1."""

    def __init__(
        self, message: str, *, line: int = 1, column: int = 1, hint: str = "", file: str = ".gpurun.yml"
    ) -> None:
        super().__init__(message, hint=hint)
        self.line = line
        self.column = column
        self.file = file
        self.others: tuple[ConfigError, ...] = ()
        """Further faults of the same file, below this one."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class NotInThisVersion(ConfigError):
    """A key of the planned schema that this version does not act on."""


class NotAllowed(UserError):
    """The person has no right to this; says who has."""


class TooWide(UserError):
    """What was asked of one run is more than its file allows."""


class NotByPolicy(UserError):
    """The `policy` of the default branch does not allow what the job asks for."""


class PinNotFound(UserError):
    """What should be pinned does not exist, or is not what the pin says."""

    def __init__(self, message: str, *, hint: str = "", pin: str = "", closed: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.pin = pin
        """`ghcr.io/org/app@sha256:…` or `org/model at 2f1a…`, when it may have held before: it was deleted, renamed,
        closed to us or replaced. Empty when it never can have, because nothing could be written so."""
        self.closed = closed
        """We may not look: another pin of the same name would not help."""

    def last_held(self, when: str, *, hint: str = "") -> PinNotFound:
        """The same, with when it last held (`on 2026-11-01, when `.gpurun.lock` pinned it`) and one more way out."""
        hint = self.hint if self.closed else f"{self.hint} {hint}".strip()
        return PinNotFound(f"{self.message} It was there {when}.", hint=hint, pin=self.pin, closed=self.closed)


class NothingIncluded(PinNotFound):
    """No file of a model is left by `include` and `exclude`."""


class NoSuchInput(PinNotFound):
    """`pattern` of `setup_inputs` means no file of the commit."""

    def __init__(self, message: str, *, pattern: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.pattern = pattern


class SecretRefused(UserError):
    """A value that could not be kept out of logs is not taken as a secret."""


class SecretUnavailable(UserError):
    """A run does not get a secret that its job names; the message names it and its repository."""


class WrongPlatform(UserError):
    """The image is for other machines than those where the job may run."""


class CannotBuild(UserError):
    """No provider that the job may use builds images."""


class Transient(GpurunError):
    """Worth another try later."""

    def __init__(self, message: str, *, retry_after_s: float | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.hint = hint
        """What a person at a terminal can do, who does not wait as a run does."""


class ForgeUnavailable(Transient):
    """The forge timed out, answered 5xx, or asked to slow down."""


class ForgeLimited(ForgeUnavailable):
    """The whole installation asked too much, and nothing was done. `told`: the forge named the time itself."""

    def __init__(self, message: str, *, retry_after_s: float, told: bool) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.pause_s = retry_after_s
        self.told = told


class HubUnavailable(Transient):
    """The model hub timed out, answered 5xx or 429."""


class HubSilent(HubUnavailable):
    """Nobody answered at all: the network or the hub is away."""


class RegistryUnavailable(Transient):
    """The image registry timed out, answered 5xx or 429."""


class RegistrySilent(RegistryUnavailable):
    """Nobody answered at all: the network or the registry is away."""


class ProviderUnavailable(Transient):
    """The provider timed out or answered 5xx to a call that is safe to repeat."""


class BuildUnavailable(ProviderUnavailable):
    """A build ended so. `output`: all that it said."""

    def __init__(self, message: str, *, output: BuildOutput) -> None:
        super().__init__(message)
        self.output = output


class ServerUnavailable(Transient):
    """A gpurun server, asked for a run's page, could not be reached, timed out, or answered 429, 502, 503 or 504."""


class SourceUnavailable(Transient):
    """The git remote could not be reached."""


class NoGit(SourceUnavailable):
    """There is no git on this machine."""


class Refused(GpurunError):
    """Repeating the call will not help."""


class ForgeRefused(Refused):
    """The forge said no."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class ForgeSuspended(ForgeRefused):
    """The App is suspended in this account, for all its repositories."""


class ProviderRefused(Refused):
    """The provider said no before making anything."""

    def __init__(self, message: str, *, kind: Literal["capacity", "quota", "auth", "invalid"]) -> None:
        super().__init__(message)
        self.kind = kind


class BuildRefused(ProviderRefused):
    """A build ended so. `output`: all that it said."""

    def __init__(
        self, message: str, *, kind: Literal["capacity", "quota", "auth", "invalid"], output: BuildOutput
    ) -> None:
        super().__init__(message, kind=kind)
        self.output = output


class CreateUnknown(GpurunError):
    """No clear answer to create. Never call it again: look by name."""

    def __init__(self, message: str, *, ref: str | None = None) -> None:
        super().__init__(message)
        self.ref = ref
        """An id that stood inside the error, if any."""


class NotYetDestroyed(GpurunError):
    """The provider accepted or ignored the request; the instance may still be there."""


class WrongOffset(GpurunError):
    """A stream append did not start at the stream's end."""

    def __init__(self, next_offset: int) -> None:
        super().__init__(f"the stream continues at {next_offset}")
        self.next = next_offset


class UnknownToken(GpurunError):
    """The token is of no attempt, or not of this one."""


class Revoked(GpurunError):
    """The attempt is over or was never this one."""


class NewerRow(GpurunError):
    """A row holds a state or a value that this version does not know. Whoever knows it will work on it."""


class StoreBusy(GpurunError):
    """Another process holds the database, or it was copied from another host."""


class Bug(GpurunError):
    """Ours."""
