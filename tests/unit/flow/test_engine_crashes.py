"""A worker dies at every edge of the engine, on both databases: one verdict, at most one instance, none in the end."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from gpurun.adapters.secrets import MemorySecrets
from gpurun.adapters.vault import GivenVault
from gpurun.domain.approval import Approval
from gpurun.domain.build import Building, BuildOutput
from gpurun.domain.ids import CommitSha, HubRef, Revision
from gpurun.domain.lock import Lock, LockedFile, LockedModel
from gpurun.domain.plan import ModelFile
from gpurun.domain.run import Phase, Untrusted, Verdict
from gpurun.domain.source import Gitlink
from gpurun.flow import failpoints
from gpurun.plan.lock import write_lock
from tests.fakes.cloud import BuildingCloud, KeepingCloud, Machines, MountingCloud, SlowCloud, SmallCloud
from tests.fakes.parts import Script
from tests.fakes.rows import IMAGE, REPO, SHA, TREE, a_pull
from tests.fakes.world import CONFIG, World
from tests.unit.plan.test_context import archive

NEVER_CLAIMS = Script(claims=False)
REVISION = Revision("d" * 40)
WITH_MODEL = CONFIG.replace("    limits:", f"    models:\n      - {{id: org/a, revision: {REVISION}}}\n    limits:")
MERGE, MODULE = CommitSha("e" * 40), CommitSha("f" * 40)
MERGEABLE = a_pull(merge_sha=MERGE)
VENDOR = Gitlink(path="vendor", name="octo/vendor", url="../vendor.git", commit=MODULE)
BUILT = Building(ready=True, output=BuildOutput(id="1", said=b"built\n", took_s=1.0))
ENGINE_EDGES = [
    name for name in failpoints.names() if name.split(".")[0] in ("worker", "run", "attempt", "observe", "stray")
]


@pytest.fixture
def world(store, clock, chance):
    yield World(store, clock, chance)
    failpoints.disarm()


@pytest.mark.parametrize("name", ENGINE_EDGES)
async def test_a_worker_may_die_at_every_edge(world, name):
    fired = []

    def die():
        fired.append(name)
        raise failpoints.Crash(name)

    await lead_past(world, name)
    failpoints.arm(name, die)
    await world.start(config_text=file_for(name), **whose(name))
    await world.run_until_over()
    if name.startswith("stray"):
        await world.run_for(minutes=10)
    assert fired or name in NOT_IN_STEPS, "the edge was not passed"
    run = await world.the_run()
    assert run.verdict in ((Verdict.REFUSED,) if name.startswith("run.look") else (Verdict.PASSED, Verdict.LOST))
    await world.expect(run.verdict)
    assert world.cloud.most_at_once <= (2 if name.startswith("stray.describe") else 1)


NOT_IN_STEPS = {f"worker.{edge}.{side}" for edge in ("renew", "leave") for side in ("before", "after")}
"""`renew` runs beside the steps, `leave` needs a row of a later version."""


def whose(name):
    """Some edges are for code alone that somebody has approved."""
    untrusted = name.startswith(("run.base", "run.model_open"))
    return {"untrusted": Untrusted.FORK, "base_ref": "main"} if untrusted else {}


def file_for(name):
    """What the run's commit has: a look at the tree is taken where there is none, and the lock read for a name."""
    if name.startswith("run.look"):
        return None
    match name.split(".")[:2]:
        case ["run", "lock"]:
            return WITH_MODEL.replace(REVISION, "main")
        case [_, edge] if edge.partition("_")[0] == "build":
            return WITH_MODEL.replace(f"image: {IMAGE}", "build: .")
        case ["attempt", "layer" | "layer_let_go" | "layer_remove"] | ["run", "inputs"]:
            return WITH_MODEL.replace("    run:", "    setup: make\n    setup_inputs: [r.txt]\n    run:")
        case [_, "login"]:
            return WITH_MODEL.replace("    run:", "    registry: {username: ci, password: REGISTRY_TOKEN}\n    run:")
        case ["run", edge] if edge.partition("_")[0] in ("merge", "submodule", "history", "lfs"):
            wanted = "{ref: merge, submodules: fetch, lfs: fetch, git: true}"
            return WITH_MODEL.replace("    run:", f"    checkout: {wanted}\n    run:")
        case _:
            return WITH_MODEL


async def lead_past(world, name):
    """Makes the world so that the run passes the edge."""
    world.cloud.boots_after_s = 200  # what a dead worker leased is free again before the agent speaks
    world.cloud.observe_every_s = 60
    world.hub.models = {("org/a", REVISION): (ModelFile(path="a", size=1, sha256="c" * 64, etag="b" * 40),)}
    match name.split(".")[:2]:
        case ["attempt", "prepare"]:
            world.use(SlowCloud(world.clock, boots_after_s=200))
        case [_, edge] if edge.partition("_")[0] == "build":
            world.use(BuildingCloud(world.clock, boots_after_s=200, answers=[BUILT]))
            world.git.archives = {SHA: archive(("Dockerfile", b"FROM scratch\n"))}
        case ["attempt", "layer" | "layer_let_go" | "layer_remove"]:
            world.use(KeepingCloud(world.clock, boots_after_s=200))
        case ["attempt", "weights"]:
            world.use(MountingCloud(world.clock, boots_after_s=200))
        case ["run", "base" | "base_lock" | "model_open"]:
            at = world.clock.now()
            given = Approval(id="a", repo=REPO, pr=1, sha=SHA, max_usd_micro=None, by="carol", at=at, asked_at=at)
            await world.store.write(lambda tx: tx.approve(given))
            world.forge.at_branch[".gpurun.yml"] = WITH_MODEL.replace(REVISION, "main").encode()
        case ["run", "lock"]:
            files = (LockedFile(path="a", size=1, blob="b" * 40),)
            entry = LockedModel(id="org/a", ref=HubRef("main"), revision=REVISION, locked_on="2026-12-01", files=files)
            world.forge.files[".gpurun.lock"] = write_lock(Lock(models=(entry,))).encode()
        case ["run", edge] if edge.partition("_")[0] in ("merge", "submodule", "history", "lfs"):
            world.forge.pull = MERGEABLE
            world.git.trees |= {MERGE: TREE, MODULE: TREE}
            world.git.links = {MERGE: (VENDOR,)}
            world.git.n_lfs = {MERGE: 1}
            world.git.parents = {MERGE: (MERGEABLE.base_sha, SHA)}
        case [_, "login"]:
            world.vault = GivenVault({"REGISTRY_TOKEN": SecretStr("s3cret-of-the-registry")}, MemorySecrets())
            world.restart()
        case ["run", "platform"]:
            world.use(Machines(world.clock, boots_after_s=200))
        case ["run", "why_never"]:
            world.use(SmallCloud(world.clock, stock=0))  # nothing today, and it does not say never
        case ["attempt", "look"]:
            world.cloud.fail("create", "lost_unmade")
        case ["attempt", "last_words"]:
            world.agents.scripts = [NEVER_CLAIMS]
        case ["attempt", "last_log"]:
            world.agents.scripts = [Script(dies_in=Phase.RUNNING)]
        case ["stray", "describe"]:
            await world.start("01kdrun0000000000000000000")
            await world.run_until_over()
            world.cloud.make(world.cloud.book[0].launch)
            world.agents.user_code.clear()
        case ["stray", _]:
            world.cloud.fail("create", "id_in_error")
        case ["observe", "broken"]:
            world.cloud.fail("list", "auth")
        case ["worker", "failed"]:
            world.cloud.fail("list", "unavailable")
