"""Where the agent finds itself."""

from __future__ import annotations

import os
import time

from gpurun_agent import protocol
from gpurun_agent.ending import End, Ended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpurun_agent.spec import Spec


def environment(current: dict[str, str]) -> dict[str, str]:
    """The environment that the boot script passed. `current` may hold more: in the C locale Python adds LC_CTYPE to its
    own (PEP 538), which the job would inherit.
    """
    try:
        with open("/proc/self/environ", "rb") as file:
            passed = file.read().split(b"\0")
    except OSError:
        return dict(current)
    names = {os.fsdecode(item.partition(b"=")[0]) for item in passed}
    return {name: value for name, value in current.items() if name in names}


class Surroundings:
    """What the boot script passes, and where things are."""

    def __init__(self, env: dict[str, str]) -> None:
        self.root = root = env.get("GPURUN_ROOT", "/gpurun")
        self.files = env.get("GPURUN_FILES", "/")
        """Both are changed by tests only."""
        self.work, self.home, self.hub, self.tmp = (os.path.join(root, name) for name in ("work", "home", "hub", "tmp"))
        self.layer = os.path.join(root, "layer")
        self.cgroup = "/sys/fs/cgroup"
        self.attempt = env.get("GPURUN_ATTEMPT", "?")
        self.uplink = env.get("GPURUN_UPLINK", "")
        self.claim = env.get("GPURUN_CLAIM", "")
        self.deadline = float(env.get("GPURUN_DEADLINE") or time.time() + float(env.get("GPURUN_TTL") or 86400))
        self.image_env = {name: value for name, value in env.items() if not name.startswith("GPURUN_")}

    def make_folders(self) -> None:
        """Those that the provider did not make. Raises Ended where the image's user cannot write: each command would
        fail in its own words, or cache nothing and say nothing.
        """
        for folder in (self.work, self.home, self.hub, self.tmp):
            try:
                os.makedirs(folder, exist_ok=True)
                probe = os.path.join(folder, ".gpurun-probe-%d" % os.getpid())
                os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                os.unlink(probe)
            except OSError as exc:
                detail = "uid %d of the image cannot write to %s: %s." % (os.getuid(), folder, exc.strerror)
                raise Ended(End(protocol.LOST, protocol.AGENT, detail)) from exc

    def job_env(self, spec: Spec) -> dict[str, str]:
        """The image's environment, our defaults where it is silent, the plan's own, its secrets, and our promises."""
        env = dict(self.image_env)
        home = env.get("HOME", "")
        if not (home and os.path.isdir(home) and os.access(home, os.W_OK)):
            env["HOME"] = self.home
        env.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        env["HF_HOME"] = self.hub
        env["HF_HUB_OFFLINE"] = "1"
        env.update(spec.env)
        env.update(spec.secrets)
        if spec.git:
            _trust(env, self.work)
        env["GPURUN"] = "1"
        env["GPURUN_ATTEMPT"] = str(spec.number)
        return env


def _trust(env: dict[str, str], folder: str) -> None:
    """Git works there, whoever owns the folder; one more to what the job configures by variables itself."""
    count = env.get("GIT_CONFIG_COUNT", "0")
    if count.isdigit():
        env["GIT_CONFIG_KEY_" + count] = "safe.directory"
        env["GIT_CONFIG_VALUE_" + count] = folder
        env["GIT_CONFIG_COUNT"] = str(int(count) + 1)
