"""Every side effect of `flow` passes `edges`, and every edge has one name of its own."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest

import gpurun.flow
from gpurun.domain.errors import Transient
from gpurun.flow import edges, failpoints
from gpurun.ports import bytes as byte_ports
from gpurun.ports.forge import Forge
from gpurun.ports.provider import Builds, Prepares, Provider, SaysWhyNot
from gpurun.ports.uplink import Uplinks

MODULES = sorted(Path(gpurun.flow.__file__).parent.glob("*.py"))
PORTS = (
    *(Forge, Provider, Prepares, Builds, SaysWhyNot, Uplinks),
    *(byte_ports.Git, byte_ports.Hub, byte_ports.Images, byte_ports.Blobs),
)
OUTSIDE = {name for port in PORTS for name in vars(port) if not name.startswith("_")} | {"write", "accept"}
"""Names of methods that leave the process or commit."""


@pytest.fixture(autouse=True)
def disarmed():
    yield
    failpoints.disarm()


def calls(tree):
    """Calls of methods that reach outside, with whether an `edges` call holds them."""
    found = []

    def walk(node, inside, awaited):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            through = isinstance(node.func.value, ast.Name) and node.func.value.id == "edges"
            if node.func.attr in OUTSIDE and not through and (awaited or reaches_out(node.func)):
                found.append((node.lineno, node.func.attr, inside))
            inside = inside or through
        for child in ast.iter_child_nodes(node):
            walk(child, inside, isinstance(node, ast.Await))

    walk(tree, False, False)
    return found


def reaches_out(method):
    """`tx.…`, lists and our own values have methods of the same names, none of which is awaited."""
    return method.attr != "append" and ast.unparse(method.value) not in ("tx", "self")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_nothing_leaves_flow_but_through_edges(path):
    if path.stem == "edges":
        return
    outside = [call for call in calls(ast.parse(path.read_text())) if not call[2]]
    assert not outside, f"{path.name}: call these through edges.call or edges.commit: {outside}"


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("async def f(self): await self._s.store.write(g)", True),
        ("async def f(provider): await provider.create(launch)", True),
        ("async def f(self): await edges.commit(self._s.store, failpoints.X, g)", False),
        ("async def f(p): await edges.call(failpoints.X, lambda: p.create(launch), timeout_s=1)", False),
        ("async def f(blobs): await blobs.append(key, 0, data)", True),
        ("def f(tx): tx.describe(1, 2); names.append(3)", False),
    ],
)
def test_the_search_finds_what_it_should(text, caught):
    assert bool([call for call in calls(ast.parse(text)) if not call[2]]) is caught


def used_names():
    used = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("edges.call", "edges.commit"):
                position = 0 if ast.unparse(node.func) == "edges.call" else 1
                used.append(ast.unparse(node.args[position]))
    return used


def test_every_edge_has_a_declared_name_of_its_own():
    constants = {f"failpoints.{name}" for name, value in vars(failpoints).items() if value in failpoints.EDGES}
    used = Counter(used_names())
    assert set(used) == constants
    assert [name for name, count in used.items() if count > 1] == []
    assert len(set(failpoints.EDGES)) == len(failpoints.EDGES)


async def test_an_armed_failpoint_acts_once_on_its_side():
    seen = []

    async def answer():
        seen.append("call")
        return 3

    failpoints.arm("run.image.before", lambda: seen.append("before"))
    failpoints.arm("run.image.after", lambda: seen.append("after"))
    for _ in range(2):
        assert await edges.call(failpoints.RUN_IMAGE, answer, timeout_s=1) == 3
    assert seen == ["before", "call", "after", "call"]


async def test_raise_looks_like_the_end_of_the_process():
    async def never():
        raise AssertionError("it was called")

    failpoints.arm("run.image.before", "raise")
    with pytest.raises(failpoints.Crash):
        await edges.call(failpoints.RUN_IMAGE, never, timeout_s=1)
    assert not issubclass(failpoints.Crash, Exception)


def test_a_failpoint_that_does_not_exist_cannot_be_armed():
    with pytest.raises(ValueError, match=r"no failpoint 'run\.imagine\.before'"):
        failpoints.arm("run.imagine.before", "raise")


async def test_a_call_that_takes_too_long_is_transient():
    with pytest.raises(Transient, match=r"run\.image did not answer in 0\.01 s"):
        await edges.call(failpoints.RUN_IMAGE, anyio.sleep_forever, timeout_s=0.01)


PASSES = """
import sys
from gpurun.flow import failpoints
failpoints.arm_written(sys.argv[1])
for side in ("before", "after"):
    failpoints.passing(failpoints.RUN_IMAGE, side)
    print(side, flush=True)
"""


def passing_process(armed):
    """A process that passes both sides of one edge and says so."""
    return subprocess.Popen([sys.executable, "-c", PASSES, armed], stdout=subprocess.PIPE, text=True)


def test_a_process_kills_itself_at_the_first_of_several():
    with passing_process("run.pin.before, run.image.after, run.image.before:kill") as process:
        said, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert "failpoint_reached" in said
    assert "run.image.before" in said, "whoever restarts it must know where it died"
    assert "before" not in said.splitlines()


def test_a_process_halts_and_goes_on():
    with passing_process("run.image.after:stop") as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        said, _ = process.communicate()
    assert process.returncode == 0
    assert [line for line in said.splitlines() if line in ("before", "after")] == ["before", "after"]


@pytest.mark.parametrize("text", ["run.imagine.before", "run.image", "run.image.before:halt", "", "run.image.before,"])
def test_what_is_written_wrongly_is_refused(text):
    with pytest.raises(ValueError, match="failpoint"):
        failpoints.arm_written(text)
