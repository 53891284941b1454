"""What jobs can reach: rules in the packet filter of the engine's machine.

The bot may use the engine and need not be root, so the engine puts them there: a container of a few seconds, in the
engine's own network, with the iptables that the engine uses itself (docs/decisions/0032). Jobs have no capability that
could change them, and the agent needs no network: it speaks through a mounted socket.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import secrets
import tarfile
import time
from collections.abc import Callable, Mapping
from importlib.resources import files
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpurun.domain.offer import Isolation
from gpurun.providers.docker.engine import status_of, vendor_errors, words
from gpurun.providers.docker.network import bridge_of
from gpurun.providers.docker.ready_image import is_there

if TYPE_CHECKING:
    from docker.api.client import APIClient

METADATA = (
    "169.254.0.0/16",  # link-local: 169.254.169.254 of most clouds, 169.254.170.2 of ECS
    "100.100.100.200/32",  # Alibaba Cloud
    "168.63.129.16/32",  # Azure
    "192.0.0.192/32",  # Oracle Cloud
)
"""Addresses at which clouds tell a machine its secrets. Its IPv6 kin needs no rule: jobs have no IPv6."""
PRIVATE = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "168.63.129.16/32",
)
"""What `ipaddress` does not call global, multicast, and Azure's own, which is public and answers only inside."""
NOTE_S = 600.0
"""How long rules that were put there are taken to be there still, also by the next process. Somebody may flush them."""
FAILED_S = 60.0
"""How soon it is tried again."""
LIMIT_S = 15
IMAGE = "gpurun-fence"
LABEL_FENCE = "gpurun.fence"
ABANDONED_S = 120

_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives")
"""Of the engine's machine, read-only: its shell and its iptables."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REJECT = "REJECT --reject-with icmp-admin-prohibited"
_MISSING = re.compile(r"bind source path does not exist: (/[a-z0-9/]+)")


class NotFenced(Exception):
    """The rules are not there; the text says why, in a clause."""


def rules(
    isolation: Isolation, *, host_ports: tuple[int, ...] = (), resolvers: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Of packets that come from a network of jobs, in the words of iptables; the first that fits decides.

    `host_ports`: TCP ports of the engine's machine that STANDARD jobs may reach. `resolvers`: name servers of the
    engine, which often have a private address.
    """
    closed: tuple[str, ...] = PRIVATE
    if isolation is Isolation.STANDARD:
        allowed = [f"-p {protocol} --dport 53 -j RETURN" for protocol in ("udp", "tcp")]  # of a cloud, of the host
        allowed += [f"-p tcp --dport {port} -m addrtype --dst-type LOCAL -j RETURN" for port in host_ports]
        closed = METADATA
    else:
        allowed = [f"-d {at}/32 -p {how} --dport 53 -j RETURN" for at in resolvers for how in ("udp", "tcp")]
    return (
        "-m conntrack --ctstate INVALID -j DROP",
        "-m conntrack --ctstate ESTABLISHED -j RETURN",
        *allowed,
        f"-m conntrack --ctstate DNAT -j {_REJECT}",  # a port that another container has published
        *(f"-d {network} -j {_REJECT}" for network in closed),
        f"-m addrtype --dst-type LOCAL -j {_REJECT}",  # the machine itself: the bot, the engine, whatever runs there
    )


class Fence:
    """Of one engine. For threads."""

    def __init__(self, monotonic: Callable[[], float], *, host_ports: tuple[int, ...], notes: Path | None) -> None:
        self._monotonic = monotonic
        self._host_ports = host_ports
        self._notes = notes
        """Where processes leave each other word, so that not every `gpurun run` waits for it. None: nowhere."""
        self._put_at: dict[tuple[str, tuple[str, ...]], float] = {}
        self._failed: dict[str, tuple[float, str]] = {}

    def ensure(self, api: APIClient, network: Mapping[str, Any], isolation: Isolation) -> None:
        """The rules of the network are there. For UNTRUSTED it looks each time, else now and then.

        Raises: NotFenced.
        """
        key, bridge = str(network["Id"]), bridge_of(network)
        now = self._monotonic()
        at, why = self._failed.get(key, (0.0, ""))
        if why and now - at < FAILED_S and isolation is Isolation.STANDARD:
            raise NotFenced(why)
        resolvers = _resolvers(api) if isolation is Isolation.UNTRUSTED else ()
        lines = rules(isolation, host_ports=self._host_ports, resolvers=resolvers)
        note = self._note(key, lines)
        put_at = self._put_at.get((key, lines))
        mine = put_at is not None and now - put_at < NOTE_S
        if isolation is Isolation.STANDARD and (mine or _is_fresh(note)):
            return
        try:
            _put(api, bridge, lines)
        except NotFenced as exc:
            self._failed[key] = (now, str(exc))
            raise
        self._failed.pop(key, None)
        self._put_at[key, lines] = now
        if note is not None:
            with contextlib.suppress(OSError):
                note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                note.touch()

    def _note(self, network_id: str, lines: tuple[str, ...]) -> Path | None:
        """Another one after a reboot, which forgets all rules, for other rules, and for a network made anew."""
        if self._notes is None:
            return None
        what = "\n".join((network_id, _boot_id(), *lines))
        return self._notes / f"fence-{hashlib.sha256(what.encode()).hexdigest()[:16]}"


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
    except OSError:
        return ""


def _is_fresh(note: Path | None) -> bool:
    try:
        return note is not None and 0 <= time.time() - note.stat().st_mtime < NOTE_S
    except OSError:
        return False


def _put(api: APIClient, bridge: str, lines: tuple[str, ...]) -> None:
    chain = f"-A GPURUN-{bridge} "
    script = files(__package__).joinpath("fence.sh").read_text("ascii")
    asked = ["/bin/sh", "-c", script, "fence", bridge, "\n".join(chain + line for line in lines), f"{chain}-j DROP"]
    try:
        code, said = _run(api, asked, network="host", capabilities=("NET_ADMIN", "NET_RAW"))
    except vendor_errors() as exc:
        raise NotFenced(words(exc)) from exc
    if code != 0:
        raise NotFenced(said or f"its shell ended with {code}")


def _resolvers(api: APIClient) -> tuple[str, ...]:
    """Name servers that containers are sent to, as the engine writes them for its default network; empty: unknown."""
    with contextlib.suppress(*vendor_errors()):
        _, said = _run(api, ["/bin/cat", "/etc/resolv.conf"], network="bridge", capabilities=())
        return nameservers(said)
    return ()


def nameservers(resolv_conf: str) -> tuple[str, ...]:
    """IPv4 addresses in a resolv.conf; of this machine's own loopback none is meant."""
    found = []
    for line in resolv_conf.splitlines():
        parts = line.split()
        if len(parts) > 1 and parts[0] == "nameserver":
            with contextlib.suppress(AddressValueError):
                at = IPv4Address(parts[1])
                found += [] if at.is_loopback else [str(at)]
    return tuple(found)


def _run(api: APIClient, command: list[str], *, network: str, capabilities: tuple[str, ...]) -> tuple[int, str]:
    """Exit code and output of programs of the engine's machine. Vendor errors pass."""
    image = _image(api)
    made = _create(api, image, command, network, capabilities)
    try:
        api.start(made)
        code = int(api.wait(made, timeout=LIMIT_S)["StatusCode"])
        said = api.logs(made, stdout=True, stderr=True, tail=20)
        return code, bytes(said).decode("utf-8", "replace").strip()
    finally:
        with contextlib.suppress(*vendor_errors()):
            api.remove_container(made, force=True, v=True)
        _sweep(api)


def _create(api: APIClient, image: str, command: list[str], network: str, capabilities: tuple[str, ...]) -> str:
    """Folders that the machine does not have are left out."""
    from docker.types import Mount

    folders = list(_FOLDERS)
    while True:
        host_config = api.create_host_config(
            network_mode=network,
            mounts=[Mount(folder, folder, type="bind", read_only=True) for folder in folders],
            cap_drop=["ALL"],
            cap_add=list(capabilities),
            security_opt=["no-new-privileges"],
            read_only=True,
            tmpfs={"/run": "size=64k"},
            userns_mode="host",
            pids_limit=64,
            mem_limit=256 * 1024 * 1024,
            restart_policy={"Name": "no"},
        )
        try:
            made = api.create_container(
                image,
                command,
                name=f"{IMAGE}-{secrets.token_hex(6)}",
                environment={"PATH": _PATH},
                labels={LABEL_FENCE: "1"},
                host_config=host_config,
            )
        except vendor_errors() as exc:
            missing = _MISSING.search(words(exc))
            if status_of(exc) != 400 or missing is None or missing[1] not in folders:
                raise
            folders.remove(missing[1])
        else:
            return str(made["Id"])


def _image(api: APIClient) -> str:
    """Nothing but folders to mount on."""
    content = _empty()
    tag = hashlib.sha256(content).hexdigest()[:16]
    name = f"{IMAGE}:{tag}"
    if not is_there(api, name):
        api.import_image_from_data(content, repository=IMAGE, tag=tag)
    return name


def _empty() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for folder in ("etc", "run", *(folder.lstrip("/") for folder in _FOLDERS)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
    return out.getvalue()


def _sweep(api: APIClient) -> None:
    """Containers of a process that died."""
    with contextlib.suppress(*vendor_errors()):
        for one in api.containers(all=True, filters={"label": LABEL_FENCE}):
            if time.time() - one["Created"] > ABANDONED_S:
                api.remove_container(one["Id"], force=True, v=True)
