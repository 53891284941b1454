"""What stands around a Docker Engine in a data centre: a machine with an engine, and everybody else.

Two network namespaces, so that neither this machine's packet filter nor its routes are touched. Needs root.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ops.local_services import Missing

METADATA = ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254")
PRIVATE = ("10.20.30.40", "172.16.5.5", "192.168.77.7", "100.64.9.9", "198.18.0.9", "192.0.2.77", "fd12:3456::1")
PUBLIC = ("9.9.9.9", "93.184.216.34")
"""Of the internet, if it were there."""
RESOLVER = "10.20.30.53"
HOST = ("10.231.0.2", "93.184.216.99")
"""The engine's machine, which has a public address too."""
PORTS = (22, 53, 80, 8080)
OPEN_PORT = 5000
"""Of the engine's machine only."""

_LISTEN = """
import json, socket, sys, threading
def serve(line):
    while True:
        with line.accept()[0] as one: one.sendall(b'here')
def echo(line):
    while True:
        said, who = line.recvfrom(100); line.sendto(said, who)
ports, addresses = json.loads(sys.argv[1])
def listen(kind, at, port):
    family = socket.AF_INET6 if ':' in at else socket.AF_INET
    line = socket.socket(family, kind)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    line.bind((at, port))
    kind == socket.SOCK_STREAM and line.listen(100)
    threading.Thread(target=serve if kind == socket.SOCK_STREAM else echo, args=(line,), daemon=True).start()
for port in ports:
    for at in addresses: listen(socket.SOCK_STREAM, at, port)
for at in addresses: listen(socket.SOCK_DGRAM, at, 53)  # each by itself, for an answer from the same address
print('listening', flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Neighbourhood:
    """Names of the two."""

    machine: str
    """Where the engine is to run."""
    others: str


@contextlib.contextmanager
def neighbourhood() -> Iterator[Neighbourhood]:
    """Everybody listens on every port of PORTS."""
    if os.geteuid() != 0:
        raise Missing("networks of the test's own need root")
    here = Neighbourhood(f"gpurun-m{os.getpid()}", f"gpurun-o{os.getpid()}")
    with contextlib.ExitStack() as stack:
        for name in (here.machine, here.others):
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "delete", name)
            inside(name, "ip", "link", "set", "lo", "up")
        _ip("link", "add", "eth0", "netns", here.machine, "type", "veth", "peer", "name", "eth0", "netns", here.others)
        for name, number in ((here.others, 1), (here.machine, 2)):
            inside(name, "ip", "addr", "add", f"10.231.0.{number}/24", "dev", "eth0")
            inside(name, "ip", "addr", "add", f"fd99::{number}/64", "dev", "eth0", "nodad")
            inside(name, "ip", "link", "set", "eth0", "up")
        for address in (*METADATA, *PRIVATE, *PUBLIC, RESOLVER):
            inside(here.others, "ip", "addr", "add", address, "dev", "lo", *(["nodad"] if ":" in address else []))
        inside(here.machine, "ip", "addr", "add", HOST[1], "dev", "lo")
        inside(here.machine, "ip", "route", "add", "default", "via", "10.231.0.1")
        inside(here.machine, "ip", "-6", "route", "add", "default", "via", "fd99::1")
        inside(here.others, "ip", "-6", "route", "add", "fd77::/64", "via", "fd99::2")
        inside(here.machine, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
        stack.enter_context(_listening(here.machine, (*PORTS, OPEN_PORT), HOST))
        stack.enter_context(_listening(here.others, PORTS, (*METADATA, *PRIVATE, *PUBLIC, RESOLVER)))
        yield here


@contextlib.contextmanager
def _listening(name: str, ports: tuple[int, ...], addresses: tuple[str, ...]) -> Iterator[None]:
    command = ["ip", "netns", "exec", name, sys.executable, "-c", _LISTEN, json.dumps([ports, addresses])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
        assert listener.stdin is not None
        assert listener.stdout is not None
        assert listener.stdout.readline() == b"listening\n"
        yield
        listener.stdin.close()


def inside(name: str, *words: str) -> str:
    """What a command says in one of the two."""
    return _ip("netns", "exec", name, *words)


def _ip(*words: str) -> str:
    return subprocess.run(("ip", *words), check=True, timeout=30, capture_output=True, text=True).stdout
