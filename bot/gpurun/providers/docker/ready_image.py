"""The user's image plus one small layer: boot script, agent and the folders that every user may write to.

Putting the files into each container costs 60 ms of a 360 ms run on Engine 20.10, which starts another process to
unpack. As a layer they cost 0.2 s once per image and agent, work for any user of the image and for a remote engine,
and nothing stays in a container's own layer. The image's entrypoint, user and environment are kept as they are.
"""

from __future__ import annotations

import hashlib
import io
import secrets
import tarfile
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from gpurun.domain.errors import Bug
from gpurun.domain.ids import BuiltImage, ImageRef
from gpurun.domain.offer import Launch
from gpurun.domain.platform import platform_of_machine

if TYPE_CHECKING:
    from docker.api.client import APIClient

ROOT = "gpurun"
BOOT_PATH = f"/{ROOT}/boot.sh"
AGENT_PATH = f"/{ROOT}/agent.pyz"
UPLINK_PATH = f"/{ROOT}/s"
WORK_PATH = f"/{ROOT}/work"
HUB_PATH = f"/{ROOT}/hub/hub"
"""Below `HF_HOME`, which every user may write to; this is where huggingface_hub looks for repositories."""
LAYER_PATH = f"/{ROOT}/layer"
"""A volume that is new gets its owner and mode from here."""
OPEN_FOLDERS = ("work", "home", "hub", "tmp", "layer")

REPOSITORY = "gpurun-ready"
KEEP = timedelta(days=7)
"""A ready image that nobody made anew for so long goes; making it again costs 0.2 s."""
ABANDONED = timedelta(minutes=10)


def name_on_engine(image: ImageRef | BuiltImage) -> str:
    """`repository@sha256:…` without a tag: what the digest names, whatever the tag became meanwhile."""
    return image.without_tag if isinstance(image, ImageRef) else str(image)


def ready_name(launch: Launch) -> str:
    """The same for every attempt with the same image, boot script and agent."""
    parts = (name_on_engine(launch.image), launch.agent_sha256, launch.boot_script)
    return f"{REPOSITORY}:{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}"


def is_there(api: APIClient, image: str) -> bool:
    """Whether the engine has that image; vendor errors other than "no such image" pass."""
    return platform_of_image(api, image) is not None


def platform_of_image(api: APIClient, image: str) -> str | None:
    """Of an image that the engine has, `linux/arm64/v8`; None when it has it not. Other vendor errors pass."""
    import docker.errors

    try:
        found = api.inspect_image(image)  # type: ignore[no-untyped-call]  # a gap of types-docker
    except docker.errors.NotFound:
        return None
    platform = platform_of_machine(found.get("Os", ""), found.get("Architecture", ""))
    variant = found.get("Variant", "")
    return f"{platform}/{variant}" if platform and variant else platform


def make_ready(api: APIClient, launch: Launch) -> None:
    """Commits the layer on top of the image, which must be on the engine. Idempotent; two at a time do no harm."""
    files = layer(launch.boot_script, _agent(launch))
    name = f"{ready_name(launch).replace(':', '-')}-{secrets.token_hex(4)}"
    never_run = ["/gpurun/never-run"]
    made = api.create_container(name_on_engine(launch.image), entrypoint=never_run, name=name, network_disabled=True)
    try:
        api.put_archive(made["Id"], "/", files)
        repository, tag = ready_name(launch).split(":")
        api.commit(made["Id"], repository=repository, tag=tag, pause=False)
    finally:
        api.remove_container(made["Id"], v=True, force=True)
    _sweep(api, keep=ready_name(launch))


def _agent(launch: Launch) -> bytes:
    """The agent's bytes. Checked here, because a wrong layer would be used again and again."""
    try:
        agent = Path(launch.agent_path).read_bytes()
    except OSError as exc:
        raise Bug(f"the agent cannot be read: {exc}") from exc
    if hashlib.sha256(agent).hexdigest() != launch.agent_sha256:
        raise Bug(f"{launch.agent_path} is not the agent whose hash was announced")
    return agent


def layer(boot_script: str, agent: bytes) -> bytes:
    """A tar of `/gpurun`. Owner root, times 0, so that equal content makes an equal layer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        _add_folder(tar, ROOT, 0o755)
        _add_folder(tar, f"{ROOT}/s", 0o755)
        for name in OPEN_FOLDERS:
            _add_folder(tar, f"{ROOT}/{name}", 0o1777)
        _add_file(tar, BOOT_PATH.lstrip("/"), boot_script.encode(), 0o755)
        _add_file(tar, AGENT_PATH.lstrip("/"), agent, 0o644)
    return out.getvalue()


def _add_folder(tar: tarfile.TarFile, name: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    tar.addfile(entry)


def _add_file(tar: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    tar.addfile(entry, io.BytesIO(data))


def _sweep(api: APIClient, *, keep: str) -> None:
    """Old ready images, and containers of a `make_ready` that died. One in use, or gone already, is left alone."""
    import docker.errors

    now = datetime.now(UTC).timestamp()
    for image in api.images(name=REPOSITORY):
        if now - image["Created"] > KEEP.total_seconds():
            for tag in set(image.get("RepoTags") or ()) - {keep}:
                with suppress(docker.errors.APIError):
                    api.remove_image(tag)
    for container in api.containers(all=True, filters={"name": f"^/{REPOSITORY}-", "status": "created"}):
        if now - container["Created"] > ABANDONED.total_seconds():
            with suppress(docker.errors.APIError):
                api.remove_container(container["Id"], v=True)
