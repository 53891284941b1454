"""The checkout that `docs/guides/plan.md` tells of, and what the commands say in it.

python -m tests.unit.docs.plan_story    # writes the outputs into the page
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpurun.domain.ids import HubRef, ImageTag, Revision
from gpurun.domain.lock import ImagePin, Lock, LockedFile, LockedImage, LockedModel
from gpurun.plan.lock import write_lock
from tests.fakes.hub import FakeHub
from tests.unit.docs.pages import ROOT

PAGE = ROOT / "docs" / "guides" / "plan.md"
COMMANDS = ("gpurun config show smoke", "gpurun plan smoke", "gpurun diff HEAD~1 HEAD")
_BLOCK = re.compile(r"^```\n\$ (gpurun [^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WEIGHTS = b"w" * 2_000_000
_CONFIG = b'{"model_type": "gpt2"}\n'
_NEW_CONFIG = b'{"model_type": "gpt2", "dtype": "bfloat16"}\n'


def told(page: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Each command of the page, and what it says."""
    (file,) = _YAML.findall(page)
    hub = FakeHub()
    old = hub.add_model("org/model", {"config.json": _CONFIG, "model.safetensors": _WEIGHTS})
    new = hub.add_model("org/model", {"config.json": _NEW_CONFIG, "model.safetensors": _WEIGHTS})
    checkout = folder / "app"
    checkout.mkdir()
    _git(checkout, "init", "-q")
    _commit(checkout, file.replace("--seed 0", "--seed 1"), _lock("1", old, _CONFIG), "2026-12-01T10:00:00Z")
    _commit(checkout, file, _lock("2", new, _NEW_CONFIG), "2026-12-02T10:00:00Z")
    with hub.serving() as endpoint:
        for command in COMMANDS:
            yield command, _run(checkout, command, endpoint, folder / "state")


def shown(page: str) -> dict[str, str]:
    """What the page says of each command."""
    return dict(_BLOCK.findall(page))


def written(page: str, outputs: dict[str, str]) -> str:
    """The page with those outputs."""
    return _BLOCK.sub(lambda block: f"```\n$ {block[1]}\n{outputs[block[1]]}```", page)


def _lock(digit: str, revision: str, config: bytes) -> str:
    import hashlib

    blob = hashlib.sha1(b"blob %d\0" % len(config) + config, usedforsecurity=False).hexdigest()
    day = f"2026-12-0{digit}"
    pin = ImagePin(digest="sha256:" + f"{digit}f9c0e7a5b" * 6 + "abcd")
    files = (
        LockedFile(path="config.json", size=len(config), blob=blob),
        LockedFile(path="model.safetensors", size=len(_WEIGHTS), sha256=hashlib.sha256(_WEIGHTS).hexdigest()),
    )
    model = LockedModel(id="org/model", ref=HubRef("main"), revision=Revision(revision), locked_on=day, files=files)
    image = LockedImage(ref=ImageTag("ghcr.io/org/app:1.2"), pin=pin, locked_on=day)
    return write_lock(Lock(images=(image,), models=(model,)))


def _commit(checkout: Path, file: str, lock: str, date: str) -> None:
    (checkout / ".gpurun.yml").write_text(file)
    (checkout / ".gpurun.lock").write_text(lock)
    _git(checkout, "add", "-A")
    _git(checkout, "commit", "-q", "-m", "smoke", date=date)


def _git(checkout: Path, *words: str, date: str = "") -> None:
    who = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in
           (("NAME", "alice"), ("EMAIL", "alice@localhost"), ("DATE", date or "2026-12-01T10:00:00Z"))}  # fmt: skip
    env = {**who, "PATH": os.environ["PATH"], "HOME": str(checkout.parent), "GIT_CONFIG_NOSYSTEM": "1"}  # noqa: TID251
    argv = ["git", "-c", "init.defaultBranch=main", "-c", "core.autocrlf=false", *words]
    subprocess.run(argv, cwd=checkout, env=env, check=True, capture_output=True, timeout=30)


def _run(checkout: Path, command: str, endpoint: str, state: Path) -> str:
    env = {
        **os.environ,  # noqa: TID251
        "HOME": str(checkout.parent),
        "GPURUN_HUB_URL": endpoint,
        "GPURUN_STATE_DIR": str(state),
        "PYTHONIOENCODING": "utf-8",
    }
    argv = [sys.executable, "-m", *command.split()]
    done = subprocess.run(argv, cwd=checkout, env=env, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(written(text, dict(told(text, Path(place)))), encoding="utf-8")
