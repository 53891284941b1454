"""Named places before and after every side effect of `flow`, where a test can make the process fail.

The names are declared here and used once each by `flow.edges`; every one exists as `<name>.before` and `<name>.after`.
Nothing is armed in a running bot: wiring arms one on request of the environment, and only where failpoints are allowed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Literal

import structlog

Action = Literal["kill", "stop", "raise"] | Callable[[], None]
"""`kill` and `stop`: SIGKILL or SIGSTOP of this process. `raise`: Crash. A callable may raise what it likes."""

log = structlog.get_logger()

# worker
WORKER_CLAIM = "worker.claim"
WORKER_RENEW = "worker.renew"
WORKER_FAILED = "worker.failed"
WORKER_LEAVE = "worker.leave"
# inbox
INTAKE_COMMENT = "intake.comment"
INTAKE_PULL_REQUEST = "intake.pull_request"
INTAKE_PERMISSION = "intake.permission"
INTAKE_AUTHOR = "intake.author"
INTAKE_CONFIG = "intake.config"
INTAKE_POLICY = "intake.policy"
INTAKE_CHANGED_FILES = "intake.changed_files"
INTAKE_FILES = "intake.files"
INTAKE_LATER = "intake.later"
INTAKE_RESUME = "intake.resume"
INTAKE_COMMIT = "intake.commit"
INTAKE_SETTLE = "intake.settle"
INTAKE_DISTRUST = "intake.distrust"
INTAKE_POISON = "intake.poison"
INTAKE_PULL = "intake.pull"
# a button
PRESS_CHECK = "press.check"
PRESS_SENT = "press.sent"
PRESS_DISTRUST = "press.distrust"
PRESS_COMMIT = "press.commit"
# a request without a comment
REQUEST_RUN = "request.run"
REQUEST_CANCEL = "request.cancel"
REQUEST_END = "request.end"
# run
RUN_MERGE = "run.merge"
RUN_GIT_SOURCE = "run.git_source"
RUN_GIT_FETCH = "run.git_fetch"
RUN_SUBMODULE_SOURCE = "run.submodule_source"
RUN_SUBMODULE_FETCH = "run.submodule_fetch"
RUN_HISTORY_SOURCE = "run.history_source"
RUN_HISTORY_FETCH = "run.history_fetch"
RUN_LFS_SOURCE = "run.lfs_source"
RUN_LFS_FETCH = "run.lfs_fetch"
RUN_INPUTS = "run.inputs"
RUN_LOOK = "run.look"
RUN_BUILD = "run.build"
RUN_IMAGE = "run.image"
RUN_LOGIN = "run.login"
RUN_PLATFORM = "run.platform"
RUN_LOCK = "run.lock"
RUN_MODEL = "run.model"
RUN_MODEL_OPEN = "run.model_open"
RUN_BASE = "run.base"
RUN_BASE_LOCK = "run.base_lock"
RUN_PIN = "run.pin"
RUN_OFFERS = "run.offers"
RUN_WHY_NEVER = "run.why_never"
RUN_SETTLE = "run.settle"
# attempt
ATTEMPT_UPLINK_OPEN = "attempt.uplink_open"
ATTEMPT_LOGIN = "attempt.login"
ATTEMPT_BUILD = "attempt.build"
ATTEMPT_BUILD_LOG = "attempt.build_log"
ATTEMPT_PREPARE = "attempt.prepare"
ATTEMPT_WEIGHTS = "attempt.weights"
ATTEMPT_LAYER = "attempt.layer"
ATTEMPT_SEND_CREATE = "attempt.send_create"
ATTEMPT_CREATE = "attempt.create"
ATTEMPT_LOOK = "attempt.look"
ATTEMPT_LAST_WORDS = "attempt.last_words"
ATTEMPT_LAST_LOG = "attempt.last_log"
ATTEMPT_DESTROY = "attempt.destroy"
ATTEMPT_UPLINK_CLOSE = "attempt.uplink_close"
ATTEMPT_LET_GO = "attempt.let_go"
ATTEMPT_LAYER_LET_GO = "attempt.layer_let_go"
ATTEMPT_LAYER_REMOVE = "attempt.layer_remove"
ATTEMPT_SETTLE = "attempt.settle"
# provider account and strays
OBSERVE_ACCOUNTS = "observe.accounts"
OBSERVE_LIST = "observe.list"
OBSERVE_BROKEN = "observe.broken"
OBSERVE_SETTLE = "observe.settle"
STRAY_DESCRIBE = "stray.describe"
STRAY_DESTROY = "stray.destroy"
STRAY_SETTLE = "stray.settle"
# publication
PUBLISH_TURN = "publish.turn"
PUBLISH_REACT = "publish.react"
PUBLISH_ANNOUNCE = "publish.announce"
PUBLISH_CREATE_CHECK = "publish.create_check"
PUBLISH_CREATE_COMMENT = "publish.create_comment"
PUBLISH_UPDATE_CHECK = "publish.update_check"
PUBLISH_UPDATE_COMMENT = "publish.update_comment"
PUBLISH_FIND_CHECK = "publish.find_check"
PUBLISH_FIND_COMMENT = "publish.find_comment"
PUBLISH_DELAY = "publish.delay"
PUBLISH_FORBIDDEN = "publish.forbidden"
PUBLISH_SUSPENDED = "publish.suspended"
PUBLISH_COMMIT = "publish.commit"
PUBLISH_RELEASE = "publish.release"
# gate
GATE_CHANGED_FILES = "gate.changed_files"
GATE_PULL_REQUEST = "gate.pull_request"
GATE_BASE_FILES = "gate.base_files"
GATE_HEAD_FILES = "gate.head_files"
GATE_COMMIT = "gate.commit"
GATE_LATER = "gate.later"
GATE_UNKNOWN = "gate.unknown"
# images that were built
BUILDS_TIDY = "builds.tidy"
# artifacts
ARTIFACTS_DELETE = "artifacts.delete"
ARTIFACTS_FORGET = "artifacts.forget"
# secrets
SECRETS_FORGET = "secrets.forget"
# cache of weights
CACHE_USERS = "cache.users"
CACHE_TIDY = "cache.tidy"
# layers of setup
LAYERS_USERS = "layers.users"
LAYERS_SHELF = "layers.shelf"
LAYERS_LIST = "layers.list"
LAYERS_TIDY = "layers.tidy"
LAYERS_REMOVE = "layers.remove"
# audit
SEAL = "audit.seal"

EDGES: tuple[str, ...] = tuple(
    value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str)
)

_armed: dict[str, Action] = {}


class Crash(BaseException):
    """Stands for the death of the process: nothing in `flow` catches it."""


def names() -> tuple[str, ...]:
    """Every failpoint."""
    return tuple(f"{edge}.{side}" for edge in EDGES for side in ("before", "after"))


def arm(name: str, action: Action) -> None:
    """The next pass over `name` acts, once. Raises ValueError for a name that does not exist."""
    if name not in names():
        raise ValueError(f"there is no failpoint {name!r}")
    _armed[name] = action


def arm_written(text: str) -> None:
    """Failpoints as an operator of tests writes them: `run.pin.before`, `attempt.create.before:stop`, or several with
    commas. The action is `kill` unless one is named; each acts once.

    Raises ValueError for a name or an action that does not exist.
    """
    for item in text.split(","):
        name, _, action = item.strip().partition(":")
        match action or "kill":
            case "kill":
                arm(name, "kill")
            case "stop":
                arm(name, "stop")
            case _:
                raise ValueError(f"a failpoint cannot {action!r}")


def disarm() -> None:
    """Nothing fails any more."""
    _armed.clear()


def passing(edge: str, side: Literal["before", "after"]) -> None:
    """Called by `flow.edges` alone."""
    if _armed:
        name = f"{edge}.{side}"
        _act(_armed.pop(name, None), name)


def _act(action: Action | None, name: str) -> None:
    match action:
        case None:
            return
        case "kill":
            log.warning("failpoint_reached", failpoint=name)
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            log.warning("failpoint_reached", failpoint=name)
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raise":
            raise Crash(name)
        case _:
            action()
