"""`.gpurun.yml` becomes a Config, or an error that says where and what to do.

Four steps: readable text (`source`), a tree that knows positions (`nodes`), the parts of `domain.config` from it
(`read`), and `defaults` merged into each job. The parts decide what is allowed; `faults` says it in sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

from gpurun.domain.config import Config, File, Job, PermissionKeys, PolicyKeys
from gpurun.domain.errors import ConfigError
from gpurun.domain.ids import JobName
from gpurun.domain.part import Part
from gpurun.domain.project import REFERENCE_URL
from gpurun.plan.faults import Fault, fault_at, in_order, whole_sentence
from gpurun.plan.nodes import Items, Node, Table, Text, read_all, value_of
from gpurun.plan.read import Reader
from gpurun.plan.source import merge_mark, quote, readable

MAX_MERGED = 20_000
"""Keys and values of `defaults`, times the jobs that they are merged into: each is kept for each of them."""

_TOP = Text("", is_null=False, line=1, column=1)

_MERGED = ("env", "resources", "limits", "checkout", "retry", "trigger")


def load(file: str | bytes | None) -> Config:
    """The file's meaning; None stands for no file.

    Raises: ConfigError (NotInThisVersion) for the first fault in it, which has those below it in `others`.
    """
    found = check(file)
    if isinstance(found, Config):
        return found
    first, *others = found
    first.others = tuple(others)
    raise first


def check(file: str | bytes | None) -> Config | tuple[ConfigError, ...]:
    """The file's meaning, or the faults in it from top to bottom (one when it is not readable YAML).

    At most MAX_FAULTS, and then one that says how many more there are.
    """
    try:
        return _config(*_read(file))
    except ConfigError as exc:
        return (whole_sentence(exc),)
    except _Faults as exc:
        return tuple(whole_sentence(error) for error in exc.errors)


@lru_cache(maxsize=64)  # whoever waits is shown again and again, and YAML is slow
def find_job(file: str | None, name: JobName) -> Job | None:
    """None when the file has no such job, or is not there, or has a fault."""
    found = check(file)
    return found.jobs.get(name) if isinstance(found, Config) else None


def policy_of(file: str | bytes | None) -> PolicyKeys:
    """The policy of a file in which nothing else need be right: an old job must not lift it.

    Raises: ConfigError when the file cannot be read, or the policy has a fault.
    """
    return _alone(file, "policy", PolicyKeys)


def permissions_of(file: str | bytes | None) -> PermissionKeys:
    """The permissions, as `policy_of`."""
    return _alone(file, "permissions", PermissionKeys)


P = TypeVar("P", bound=Part)


def _alone(file: str | bytes | None, name: str, kind: type[P]) -> P:
    if file is None:
        return kind()
    try:
        root = _root(file)
    except ConfigError as exc:
        raise whole_sentence(exc) from None
    found = root.find(name)
    if found is None:
        return kind()
    reader = Reader()
    key, node = found
    part = reader.value(kind, node, key, (key.value,))
    if reader.faults:
        raise whole_sentence(in_order(reader.faults)[0])
    assert isinstance(part, kind)
    return part


def explain(error: ConfigError, file: str | bytes | None) -> str:
    """For a terminal: place and message, the line with a caret, what to do."""
    text = file.decode("utf-8", "replace") if isinstance(file, bytes) else file or ""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return "\n".join(part for part in (str(error), quote(text, error.line, error.column), error.hint) if part)


def tree(file: str | bytes | None) -> Table:
    """The file with its positions, whatever its keys. Raises ConfigError when it cannot be read."""
    return _root(file)


def job_names(config: Config) -> tuple[str, ...]:
    """In the order of the file."""
    return tuple(config.jobs)


class _Faults(Exception):
    def __init__(self, errors: tuple[ConfigError, ...]) -> None:
        super().__init__(errors)
        self.errors = errors


def _root(file: str | bytes | None) -> Table:
    """Raises ConfigError for the first thing that is refused in it."""
    try:
        root, refused = _read(file)
    except _Faults as exc:
        raise exc.errors[0] from None
    if refused:
        raise refused[0]
    return root


def _read(file: str | bytes | None) -> tuple[Table, tuple[ConfigError, ...]]:
    """With what is refused wherever it stands. Raises ConfigError, or _Faults when there is no table to go on with."""
    starter = f"Start with `version: 1` and `jobs:`; {REFERENCE_URL} has an example."
    if file is None:
        raise ConfigError(
            "there is no file `.gpurun.yml` at this commit",
            hint=f"`gpurun init` writes a first one; {REFERENCE_URL} has all keys.",
        )
    text = readable(file)
    if not text.strip():
        raise ConfigError("the file is empty", hint=starter)
    root, refused = read_all(text)
    if refused and (mark := merge_mark(text)):  # whatever else is wrong, it comes from them
        raise ConfigError(
            "the file has marks of a merge that was not finished",
            line=mark,
            hint="Keep what should stay of both sides, and delete the lines with `<<<<<<<`, `=======` and `>>>>>>>`.",
        )
    if refused and not isinstance(root, Table):
        raise _Faults(in_order(map(_placed, refused)))
    if root is None or (isinstance(root, Text) and root.is_null and not root.value):
        raise ConfigError("the file holds only comments", hint=starter)
    if not isinstance(root, Table):
        raise ConfigError("the file must hold keys and values", line=root.line, column=root.column, hint=starter)
    return root, refused


def _config(root: Table, refused: tuple[ConfigError, ...]) -> Config:
    reader = Reader()
    reader.faults += [_placed(fault) for fault in refused]
    file = reader.part(File, root, _TOP, ())
    if not reader.faults:
        _check_merged(root)
        jobs = _merged_jobs(file, root, reader)
    if reader.faults:
        raise _Faults(in_order(reader.faults))
    return Config(version=file.version, policy=file.policy, permissions=file.permissions, jobs=jobs)


def _placed(fault: ConfigError) -> Fault:
    return Text("", is_null=False, line=fault.line, column=fault.column), lambda _: fault


def _check_merged(root: Table) -> None:
    defaults, jobs = root.find("defaults"), root.find("jobs")
    if defaults is None or jobs is None or not isinstance(jobs[1], Table):
        return
    n_values = _size(defaults[1])
    if n_values * len(jobs[1].entries) > MAX_MERGED:
        raise fault_at(
            defaults[0],
            f"`defaults` has {n_values:,} keys and values, too many for {len(jobs[1].entries):,} jobs",
            "Move some into the jobs that need them.",
        )


def _size(node: Node) -> int:
    match node:
        case Table(entries):
            return 1 + sum(1 + _size(value) for _, value in entries)
        case Items(items):
            return 1 + sum(_size(item) for item in items)
        case _:
            return 1


def _merged_jobs(file: File, root: Table, reader: Reader) -> dict[JobName, Job]:
    """`defaults` under each job. Values are those that were read; what is new is which of them stand together."""
    table = value_of(root, "jobs")
    assert isinstance(table, Table)
    jobs = {}
    for (key, node), (name, own) in zip(table.entries, file.jobs.items(), strict=True):
        written, path = merged(vars(file.defaults), vars(own)), ("jobs", key.value)
        jobs[name] = Job(**written)
        reader.require_keys(Job.REQUIRED if "build" in written else ("image", *Job.REQUIRED), written, key, path)
        reader.require_even(jobs[name], node, path)
    return jobs


def merged(defaults: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a job with those of `defaults` under them: the job's key wins, and some are merged one level deep.

    Whatever stands behind the keys goes along; of those that are merged `|` makes one.
    """
    both = {**defaults, **job}
    for key, other in (("image", "build"), ("build", "image")):
        if key in job and other not in job:  # one of the two
            both.pop(other, None)
    for key in _MERGED:
        if key in defaults and key in job:
            both[key] = defaults[key] | job[key]
    return both
