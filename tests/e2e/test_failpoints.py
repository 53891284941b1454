"""A real process is killed at every failpoint, on both databases; each story comes to its end and all laws hold.

`STORIES` says where the processes of each story die. A failpoint in none of them fails the test, so a new one needs a
story. The table of all deaths stands at the end of the test session.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import subprocess
from pathlib import Path

import anyio
import pytest

from gpurun.domain.ids import HubRef, Revision
from gpurun.domain.lock import Lock, LockedFile, LockedModel
from gpurun.flow import failpoints
from gpurun.plan.lock import write_lock
from tests.docker.built import remove_built
from tests.e2e.test_artifacts import ended_comment
from tests.e2e.test_secrets import set_secret
from tests.fakes.github import Submodule
from tests.fakes.github.lfs_http import keep
from tests.fakes.hub.state import object_id
from tests.services.death_table import tell
from tests.world import World, open_world
from tests.world.bot import dying_at
from tests.world.deaths import Deaths
from tests.world.engine_proxy import EngineProxy
from tests.world.laws import (
    Record,
    assert_audit_of,
    assert_log,
    assert_one_claim,
    assert_one_end_each,
    assert_streams_whole,
)
from tests.world.nursery import Child, Nursery
from tests.world.rows import select, undone
from tests.world.shifted import ShiftedClock, shift_postgres

WITHIN_S = 45.0
CLEARED_WITHIN_S = 120.0
"""How long runs that were killed may take to be cleared up, each `gpurun run` with a job of its own and some seconds
after it. One round of 2.4 s does it on a quiet machine of two cores.
"""
PATH = os.getenv("PATH", "")

pytestmark = [pytest.mark.docker, pytest.mark.timeout(400)]


def both(*edges: str) -> tuple[str, ...]:
    """Before and after each."""
    return tuple(f"{edge}.{side}" for edge in edges for side in ("before", "after"))


IDLE = both(
    *("observe.accounts", "observe.list", "observe.settle", "worker.claim", "audit.seal", "secrets.forget"),
    *("cache.users", "cache.tidy", "artifacts.delete", "artifacts.forget", "builds.tidy"),
    *("layers.users", "layers.shelf", "layers.list", "layers.tidy", "layers.remove"),
)
"""What a bot does that nobody asks for anything."""

STORIES: dict[str, tuple[str, ...]] = {
    "way": (
        *IDLE,
        *both("intake.comment", "intake.pull_request", "intake.permission", "intake.config", "intake.policy"),
        *both("intake.changed_files", "intake.files", "intake.commit"),
        *both(
            "run.merge",
            "run.git_source",
            "run.git_fetch",
            "run.lock",
            "run.image",
            "run.login",
            "run.platform",
            "run.model",
            "run.inputs",
        ),
        *both("run.history_source", "run.history_fetch"),
        *both("run.submodule_source", "run.submodule_fetch", "run.lfs_source", "run.lfs_fetch"),
        *both("run.pin", "run.offers", "run.settle"),
        *both("attempt.uplink_open", "attempt.login", "attempt.prepare", "attempt.weights", "attempt.settle"),
        *both("attempt.layer"),
        *both("attempt.destroy", "attempt.uplink_close", "attempt.let_go", "attempt.layer_let_go"),
        "attempt.send_create.before",
        *both("publish.turn", "publish.announce", "publish.commit", "publish.react"),
        *both("publish.create_check", "publish.create_comment"),
        *both("publish.update_check", "publish.update_comment", "publish.find_check", "publish.find_comment"),
    ),
    "no file": both("run.look"),
    "approval": both("intake.author", "intake.pull", "run.base", "run.base_lock", "run.model_open"),
    "build": both("run.build", "attempt.build", "attempt.build_log"),
    "a volume that nobody needs": both("attempt.layer_remove"),
    "doubt": ("attempt.send_create.after", *both("attempt.look", "attempt.create")),
    "provider": both(
        *("attempt.last_words", "attempt.last_log", "run.why_never", "observe.broken"),
        *("stray.describe", "stray.destroy", "stray.settle"),
    ),
    "github": both(
        *("intake.settle", "intake.distrust", "intake.poison", "intake.later", "intake.resume", "worker.failed"),
        *("publish.delay", "publish.release", "publish.forbidden", "publish.suspended"),
    ),
    "a gate": both(
        *("gate.changed_files", "gate.pull_request", "gate.base_files", "gate.head_files", "gate.commit"),
        *("gate.later", "gate.unknown"),
    ),
    "button": both("press.check", "press.sent", "press.commit", "press.distrust"),
    "leases": both("worker.renew", "worker.leave"),
    "request": both("request.run", "request.cancel", "request.end"),
}


def test_every_failpoint_has_a_story():
    told = list(itertools.chain(*STORIES.values()))
    assert sorted(told) == sorted(failpoints.names())


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request):
    """Empty for SQLite."""
    if request.param == "sqlite":
        return ""
    url = request.getfixturevalue("postgres_url")
    shift_postgres(url)
    return url


@pytest.fixture
def clock(tmp_path):
    return ShiftedClock(tmp_path / "shift")


@pytest.fixture
async def proxy(tmp_path):
    """In front of the Docker Engine."""
    proxy = EngineProxy()
    async with proxy.serving(tmp_path) as proxy.address:
        yield proxy


@pytest.fixture
async def world(tmp_path, base_images, nursery, clock, database_url, proxy):
    async with open_world(
        tmp_path,
        image=base_images.python,
        database_url=database_url,
        clock=clock,
        nursery=nursery,
        docker_host=proxy.address,
        docker_max_runs="5",  # an attempt that may show up yet keeps its place
        allow_untrusted_local="true",
        environment={"SHIFTED_CLOCK": str(tmp_path / "shift")},
    ) as world:
        yield world


@pytest.fixture
def deaths(request, world, clock, database_url):
    return Deaths(world, clock, "postgres" if database_url else "sqlite", story_of(request))


def story_of(request):
    """The name of the test."""
    return request.function.__name__.removeprefix("test_").replace("_", " ")


async def test_the_whole_way_of_a_run(world: World, deaths: Deaths):
    """One run, a new death at every edge between the comment and the verdict.

    Its file lies in a folder that has to be found, and names its model by a branch, which the lock beside it pins. Its
    commit has a submodule and a file of git LFS.
    """
    lib = world.github.create_repo("acme/lib")
    source = {
        ".gitmodules": '[submodule "lib"]\n\tpath = lib\n\turl = ../lib\n',
        "lib": Submodule(lib.git.resolve("main") or ""),
        ".gitattributes": "*.bin filter=lfs\n",
        "data.bin": keep(world.repo, b"content of data"),
    }
    revision = world.hub.add_model("acme/tiny", {"config.json": b"{}", "model.safetensors": b"w" * 5000})
    files = (
        LockedFile(path="config.json", size=2, blob=object_id("blob", b"{}").hex()),
        LockedFile(path="model.safetensors", size=5000, sha256=hashlib.sha256(b"w" * 5000).hexdigest()),
    )
    say = r"for i in $(seq 300); do printf 'line %s \351\r' $i; echo; sleep 0.01; done"
    there = "grep -q content ../data.bin && grep -q acme/lib ../lib/README.md"
    locked = LockedModel(
        id="acme/tiny", ref=HubRef("main"), revision=Revision(str(revision)), locked_on="2026-12-01", files=files
    )
    login = {"username": "ci", "password": "APP_KEY"}
    job = {"image": world.image, "registry": login, "run": f"{there} && {say}", "models": [{"id": "acme/tiny"}]}
    job |= {"setup": "cp .gpurun.lock kept", "setup_inputs": [".gpurun.lock"]}
    job |= {"checkout": {"submodules": "fetch", "lfs": "fetch", "git": "true", "ref": "merge"}}
    set_secret(world)
    world.files(
        {
            **source,
            "pkg/.gpurun.yml": json.dumps({"version": 1, "jobs": {"smoke": job}}),
            "pkg/.gpurun.lock": write_lock(Lock(models=(locked,))),
        }
    )
    await world.bot.stop()
    # one step at a time: else a death at one edge loses the answer of a POST, and nobody passes its edge any more
    world.bot.environment = {**world.bot.environment, "GPURUN_WORKERS": "1"}
    await deaths.at(*IDLE)
    await deaths.at(
        *(name for name in STORIES["way"] if name not in IDLE), after=lambda: world.comment("/gpurun smoke")
    )
    await world.bot.start()
    await world.expect_check("gpurun / smoke (pkg)", "success")
    await world.expect_comment("gpurun smoke (pkg): ✅ passed")
    record = await deaths.assert_laws()
    assert [len(rows) for rows in (record.commands, record.runs, record.attempts)] == [1, 1, 1]
    assert_log(world, "smoke", b"".join(b"line %d \xe9\r\n" % i for i in range(1, 301)))
    deaths.all_is_well(STORIES["way"])


async def test_a_commit_without_a_file(world: World, deaths: Deaths):
    """The look at its tree is taken again; what it shows is told once."""
    world.files({"requirements.txt": "numpy\n", "demo.py": "print(1)\n"})
    await world.bot.stop()
    await deaths.at(*both("run.look"), after=lambda: world.comment("/gpurun smoke"))
    await world.bot.start()
    await world.expect_check("gpurun / smoke", "failure")
    comment = await world.expect_comment("no file `.gpurun.yml`")
    assert "    setup: pip install -r requirements.txt\n    run: python3 demo.py\n" in comment
    assert len(world.bot_comments()) == 1
    await deaths.assert_laws()
    deaths.all_is_well(STORIES["no file"])


async def test_code_that_needs_an_approval(world: World, deaths: Deaths):
    """A reader's branch: whose code it is, and what the base has, is asked again; the push that ends it acts once."""
    revision = Revision(world.hub.add_model("acme/tiny", {"config.json": b"{}"}))
    files = (LockedFile(path="config.json", size=2, blob=object_id("blob", b"{}").hex()),)
    locked = LockedModel(id="acme/tiny", ref=HubRef("main"), revision=revision, locked_on="2026-12-01", files=files)

    def tree(run: str) -> dict[str, str]:
        job = {"image": world.image, "run": run, "models": [{"id": "acme/tiny"}]}
        config = json.dumps({"version": 1, "jobs": {"smoke": job}}, indent=2)
        return {".gpurun.yml": config, ".gpurun.lock": write_lock(Lock(models=(locked,)))}

    world.alice.push(world.repo, tree("echo base"), branch="main")
    bob = world.github.user("bob")
    world.pull = pull = bob.open_pull_request(world.repo, branch="x", files=tree("echo head; sleep 600"))
    await world.bot.stop()
    names = STORIES["approval"]
    asked = [name for name in names if not name.startswith("intake.pull.")]
    await deaths.at(*asked, after=lambda: world.comment("/gpurun smoke"))
    await world.bot.start()
    await world.expect_check("gpurun / smoke", "action_required")
    request = await world.expect_comment(f"/gpurun approve sha={pull.head_sha}")
    assert "+run: echo head; sleep 600" in request
    assert not world.made_containers()
    world.comment(f"/gpurun approve sha={pull.head_sha} max-cost=1", by="carol")
    await world.expect_container()
    await world.bot.stop()
    await deaths.at(*both("intake.pull"), after=lambda: bob.push(pull, {"more": "1"}))
    await world.bot.start()
    await world.expect_comment("Cancelled by a push")
    record = await deaths.assert_laws()
    (approval,) = record.approvals
    assert (approval["end"], approval["ended_by"]) == ("pushed", pull.head_sha)
    assert [run["untrusted"] for run in record.runs] == ["author"]
    deaths.all_is_well(names)


async def test_a_dockerfile_that_is_built(world: World, deaths: Deaths, engine):
    """The engine ends the build of a bot that died; the next one begins again, with the layers that are there."""
    text = f"FROM {world.image}\nRUN echo {world.install}; sleep 1; echo one > /made\nRUN sleep 1; echo two >> /made\n"
    config = json.dumps({"version": 1, "jobs": {"smoke": {"build": ".", "run": "cat /made"}}})
    world.files({".gpurun.yml": config, "Dockerfile": text})
    await world.bot.stop()
    await deaths.at(*STORIES["build"], after=lambda: world.comment("/gpurun smoke"))
    await world.bot.start()
    await world.expect_check("gpurun / smoke", "success")
    await world.expect_comment("✅ passed")
    record = await deaths.assert_laws()
    assert [len(rows) for rows in (record.runs, record.attempts)] == [1, 1]
    assert_log(world, "smoke", b"one\ntwo\n")
    remove_built(engine, [json.loads(record.runs[0]["plan"])["build"]["inputs_sha256"]])
    deaths.all_is_well(STORIES["build"])


async def test_a_volume_that_nobody_needs(world: World, deaths: Deaths, engine, tmp_path):
    """What `setup` did cannot be kept, so its volume goes with the container; at the latest when somebody looks."""
    world.jobs({"other": "x"}, smoke={"setup": "echo >> other", "setup_inputs": [".gpurun.yml"], "run": "true"})
    await world.bot.stop()
    seen: set[str] = set()
    for failpoint in STORIES["a volume that nobody needs"]:
        await deaths.at(failpoint, after=lambda: world.comment("/gpurun smoke"))
        await world.bot.start()
        assert "✅ passed" in await ended_comment(world, seen)
        await world.bot.stop()
    await world.bot.start()
    mark = f"gpurun.layers={(tmp_path / 'state/layers/id').read_text()}"
    await world.until(lambda: None if engine.volumes(filters={"label": mark})["Volumes"] else True, "no volume")
    await deaths.assert_laws()
    deaths.all_is_well(STORIES["a volume that nobody needs"])


async def test_a_create_that_nobody_knows_the_outcome_of(world: World, deaths: Deaths):
    """Announced and not called, called and not written down: a second attempt only when there is no first one."""
    world.jobs(smoke={"run": "echo went"})
    await world.bot.stop()
    await deaths.at("attempt.send_create.after", after=lambda: world.comment("/gpurun smoke"))
    async with deaths.hurried(3):
        await deaths.at(*both("attempt.look"))
        await world.bot.start()
        await second_attempt(world, runs=1)
    await passed(world, runs=1)
    await world.bot.stop()
    await deaths.at("attempt.create.before", after=lambda: world.comment("/gpurun smoke"))
    await world.bot.start()
    async with deaths.hurried(3):
        await second_attempt(world, runs=2)
    await passed(world, runs=2)
    await world.bot.stop()
    await deaths.at("attempt.create.after", after=lambda: world.comment("/gpurun smoke"))
    await world.bot.start()
    await passed(world, runs=3)
    async with deaths.hurried(120):  # for half an hour an instance of the first ones could show up
        await world.until(lambda: None if undone(world.database) else True, "nothing undone")
    found_and_used = [("gone", "passed")]
    assert attempts(world) == [("void", "lost"), ("gone", "passed")] * 2 + found_and_used
    await world.expect_comment("✅ passed")
    await deaths.assert_laws()
    deaths.all_is_well(STORIES["doubt"])


async def test_what_a_provider_does_to_a_dying_bot(world: World, deaths: Deaths, proxy, engine, base_images):
    """An image without Python, a container that somebody kills, a machine that will never do, a forbidden list, and an
    instance of nobody's.
    """
    world.jobs(
        bare={"image": base_images.busybox, "run": "true"},
        killed={"run": "echo said; sleep 600"},
        big={"run": "true", "resources": {"gpu": "80GB:1"}},
    )
    await world.bot.stop()
    await deaths.at(*both("attempt.last_words"), after=lambda: world.comment("/gpurun bare"))
    await deaths.at(*both("run.why_never"), after=lambda: world.comment("/gpurun big"))
    await world.bot.start()
    await world.expect_no_container()
    world.comment("/gpurun killed")
    container = await world.expect_container()
    said = "SELECT 1 FROM chunk WHERE name = 'log'"
    await world.until(lambda: select(world.database, said) or None, "the first line")
    await world.bot.stop()
    engine.kill(container)
    await deaths.at(*both("attempt.last_log"))
    proxy.forbids_lists = True
    await deaths.at(*both("observe.broken"))
    proxy.forbids_lists = False
    stray = world.make_stray()
    async with deaths.hurried(20):
        await deaths.at(*both("stray.describe", "stray.settle", "stray.destroy"))
        assert stray not in [one["Id"] for one in world.containers()]
        await world.bot.start()
        for job in ("bare", "killed", "big"):
            await world.expect_check(f"gpurun / {job}", "failure")
    await world.expect_comment("no python3 in the image")
    await world.expect_comment("NVIDIA")
    await world.expect_comment("gpurun killed: ⚠️ lost")
    record = await deaths.assert_laws()
    (log,) = [record.stream(attempt["id"]) for attempt in record.attempts if attempt["phase"] == "running"]
    assert log.count(b"said\n") == 1
    deaths.all_is_well(STORIES["provider"])


async def test_what_github_does_to_a_dying_bot(world: World, deaths: Deaths):
    """Nothing to do, a forgery, an outage that lasts, limits, a right that is missing, a suspension."""
    world.jobs(smoke={"run": "while [ ! -e go ]; do sleep 0.05; done"})
    await world.bot.stop()
    await deaths.at(*both("intake.settle"), after=lambda: world.comment("thanks"))

    forged: list[str] = []

    def forge() -> None:
        world.comment("/gpurun smoke", by="bob")
        hook = world.github.queued[-1]
        hook.body = hook.body.replace(b'"login": "bob"', b'"login": "alice"')
        forged.append(hook.guid)

    await deaths.at(*both("intake.distrust"), after=forge)

    world.github.fail_next("GET", "/repos/{}/{}/issues/comments/{}", status=502, times=100)
    async with deaths.hurried(5):
        await deaths.at(*both("worker.failed", "intake.poison"), after=lambda: world.comment("/gpurun smoke"))
        world.github.troubles.clear()
        await world.bot.start()
        await world.expect_comment("GitHub")
    await world.bot.stop()

    limit = {"retry-after": "60"}
    world.github.fail_next("GET", "/repos/{}/{}/issues/comments/{}", status=429, headers=limit, times=2)
    long = {"retry-after": "300"}  # the comment's next edit comes due meanwhile
    world.github.fail_next("POST", "/repos/{}/{}/check-runs", status=403, headers=long, times=2)
    async with deaths.hurried(3):
        at_limits = both("intake.later", "publish.delay", "publish.release")
        await deaths.at(*at_limits, after=lambda: world.comment("/gpurun smoke"))
        world.github.troubles.clear()
    await world.bot.start()
    async with deaths.hurried(3):  # the pause holds everything
        container = await world.expect_container()
    async with deaths.hurried(5):
        await world.expect_check("gpurun / smoke", None)
    await world.bot.stop()
    world.in_container(container, "touch", "/gpurun/work/go")
    world.github.fail_next("PATCH", "/repos/{}/{}/issues/comments/{}", status=403, times=2)
    async with deaths.hurried(2):
        await deaths.at(*both("publish.forbidden"))
        world.github.suspend(world.repo)
        await deaths.at(*both("publish.suspended"))
        await deaths.at(*both("intake.resume"), after=lambda: world.github.unsuspend(world.repo))
        await world.bot.start()
        await world.expect_check("gpurun / smoke", "success")
        await world.expect_comment("✅ passed")
    record = await deaths.assert_laws()
    (suspect,) = [row for row in record.inbox if row["guid"] == forged[0]]
    assert suspect["note"].startswith("forged_suspect")
    assert len(record.runs) == 1
    deaths.all_is_well(STORIES["github"])


async def test_a_button_that_is_pressed(world: World, deaths: Deaths):
    """It acts once, whenever the bot dies while it asks whether the press is true; one that is not acts never."""
    world.jobs(smoke={"run": "echo went; exit 3"})
    world.comment("/gpurun smoke")
    check = await world.expect_check("gpurun / smoke", "failure")
    await world.expect_comment("gpurun smoke: ❌ failed")
    await world.bot.stop()

    def forge() -> None:
        world.github.user("bob").rerun(check)
        hook = world.github.queued[-1]
        hook.body = hook.body.replace(b'"sender": {"login": "bob"', b'"sender": {"login": "carol"')

    await deaths.at(*both("press.distrust"), after=forge)
    asked = both("press.check", "press.sent", "press.commit")
    await deaths.at(*asked, after=lambda: world.github.user("erin").rerun(check))
    await world.bot.start()
    checks = lambda: [one.conclusion for one in world.github.checks(world.repo)]  # noqa: E731
    await world.until(lambda: True if checks() == ["failure", "failure"] else None, "a second run, and no third")
    await world.expect_comment("gpurun smoke: ❌ failed")
    record = await deaths.assert_laws()
    assert [(run["who"], run["why"]) for run in record.runs] == [("alice", "comment"), ("erin", "button")]
    assert [row["note"][:14] for row in record.inbox if row["event"] == "check_run"] == ["forged_suspect", ""]
    deaths.all_is_well(STORIES["button"])


async def test_a_gate(world: World, deaths: Deaths):
    """What must have passed is looked at again, and told once, whenever the bot dies over it."""
    job = {"image": world.image, "run": "echo went", "required": True}
    required = {".gpurun.yml": json.dumps({"version": 1, "jobs": {"smoke": job}})}
    world.alice.push(world.repo, required, branch="main")
    await world.bot.stop()
    looked = ("GET", "/repos/{}/{}/pulls/{}/files")
    asked = both("gate.changed_files", "gate.pull_request", "gate.base_files", "gate.head_files", "gate.commit")
    await deaths.at(*asked, after=lambda: world.files({"app.py": "1"}))
    world.github.fail_next(*looked, status=429, headers={"retry-after": "60"}, times=100)
    async with deaths.hurried(2):
        await deaths.at(*both("gate.later"), after=lambda: world.files({"app.py": "2"}))
        world.github.troubles.clear()
        await world.bot.start()
        await gate_says(world, "not started: smoke. Type /gpurun smoke")
    await world.bot.stop()
    world.github.fail_next(*looked, status=403, times=100)
    async with deaths.hurried(20):
        await deaths.at(*both("gate.unknown"), after=lambda: world.files({"app.py": "3"}))
        world.github.troubles.clear()
        await world.bot.start()
        await gate_says(world, "not started: smoke. Type /gpurun smoke")
    world.comment("/gpurun smoke")
    await gate_says(world, "passed: smoke")
    await world.expect_comment("✅ passed")
    await deaths.assert_laws()
    deaths.all_is_well(STORIES["a gate"])


async def gate_says(world: World, title: str) -> None:
    """At the head: earlier commits have a gate of their own."""

    def told() -> bool:
        gates = world.github.checks(world.repo, name="gpurun/gate")
        return [one.title for one in gates if one.head_sha == world.pull.head_sha][-1:] == [title]

    await world.until(lambda: told() or None, f"a gate at the head with {title!r}")


async def test_leases_that_are_renewed_and_given_back(world: World, deaths: Deaths, clock):
    """A step that takes long, and a step that a server which is told to stop does not go on with."""
    world.jobs(one={"run": "true"}, two={"run": "true"})
    await world.bot.stop()
    world.github.slow("GET", "/repos/{}/{}/issues/comments/{}", seconds=3600, times=2)
    async with deaths.hurried(5):
        await deaths.at(*both("worker.renew"), after=lambda: world.comment("/gpurun one"))
    for job, failpoint in zip(("one", "two"), both("worker.leave"), strict=True):
        world.github.slow("POST", "/app/installations/{}/access_tokens", seconds=10, times=100)
        await world.bot.start(**dying_at(failpoint))
        if job == "two":
            world.comment("/gpurun two")
        while not await held(world, f"SELECT lease_token FROM run WHERE job = '{job}' AND lease_token IS NOT NULL"):
            deaths.pass_time(1)  # until intake has its token; planning waits for another one
        world.bot.terminate()
        await world.until(lambda: True if '"stopping"' in world.bot.output() else None, "the bot stops")
        deaths.pass_time(10)
        deaths.note(await world.bot.death())
        assert failpoint == deaths.last
        world.github.troubles.clear()
    await world.bot.start()
    async with deaths.hurried(1):
        for job in ("one", "two"):
            await world.expect_check(f"gpurun / {job}", "success")
            await world.expect_comment(f"To run it again, write `/gpurun {job}`.")
    await deaths.assert_laws()
    deaths.all_is_well(STORIES["leases"])


async def held(world: World, lease: str) -> bool:
    """Somebody is at a step that does not end by itself."""
    before = select(world.database, lease)
    await anyio.sleep(0.3 if before else 0.05)
    return bool(before) and select(world.database, lease) == before


def attempts(world: World) -> list[tuple[str, str]]:
    """State and result, oldest first."""
    rows = select(world.database, "SELECT state, result FROM attempt ORDER BY created_at, id")
    return [(row["state"], json.loads(row["result"] or '{"kind": ""}')["kind"]) for row in rows]


async def second_attempt(world: World, *, runs: int) -> None:
    """The newest run has one; no time may be hurried from then on."""
    counted = "SELECT count(*) AS made FROM attempt WHERE number = 2 AND create_sent_at IS NOT NULL"
    await world.until(lambda: True if select(world.database, counted)[0]["made"] == runs else None, "another attempt")


async def passed(world: World, *, runs: int) -> None:
    """So many have, and no other check is there."""
    checks = lambda: [check.conclusion for check in world.github.checks(world.repo)]  # noqa: E731
    await world.until(lambda: True if checks() == ["success"] * runs else None, f"{runs} runs that passed")
    await world.expect_no_container()


@pytest.mark.parametrize("database_url", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True)
async def test_requests_to_a_server(world: World, deaths: Deaths, nursery: Nursery, tmp_path):
    """Processes that ask for a run, a cancel and an end, and die around it, while the bot works."""
    world.jobs(hold={"run": "echo went; sleep 600"})
    assert world.pull is not None
    config = world.repo.git.run("show", f"{world.pull.head_sha}:.gpurun.yml").decode()
    repo = {"installation": world.repo.installation_id, "repo": world.repo.name, "repo_id": world.repo.id}
    request = json.dumps({**repo, "job": "hold", "sha": world.pull.head_sha, "config": config})

    async def ask(what: str, about: str, failpoint: str = "") -> None:
        environment = {**world.bot.environment, "PATH": PATH, **(dying_at(failpoint) if failpoint else {})}
        child = nursery.spawn(["ask", what, about], environment, tmp_path / "ask.log")
        code = await ended(child)
        assert code == (-signal.SIGKILL if failpoint else 0), (tmp_path / "ask.log").read_text()
        if failpoint:
            died.append(failpoint)

    def runs() -> list[str]:
        return [row["id"] for row in select(world.database, "SELECT id FROM run ORDER BY created_at, id")]

    died: list[str] = []
    await ask("run", request, "request.run.before")
    assert runs() == []
    await ask("run", request, "request.run.after")
    (first,) = runs()
    await world.expect_container()
    await ask("cancel", first, "request.cancel.before")
    await ask("cancel", first, "request.cancel.after")
    await world.expect_no_container(within_s=40)
    await ask("run", request)
    _, second = runs()
    await world.expect_container()
    await ask("end", second, "request.end.before")
    await ask("end", second, "request.end.after")
    record = await deaths.assert_laws()
    assert [run["verdict"] for run in record.runs] == ["cancelled"] * 2
    assert tuple(died) == STORIES["request"]
    tell(died, "postgres", "requests to a server")


async def test_requests_at_a_terminal(tmp_path, engine, base_images, nursery: Nursery):
    """`gpurun run` is killed around its request, its cancel, and the end that it makes of what others left."""
    terminal = Terminal(tmp_path, nursery, base_images.python)
    for failpoint in ("request.run.before", "request.run.after", "request.end.before", "request.end.after"):
        await terminal.dies_at(failpoint)
    for failpoint in both("request.cancel"):
        await terminal.dies_at(failpoint, interrupted=True)
    with anyio.move_on_after(CLEARED_WITHIN_S):
        while terminal.unended() or not terminal.quick:
            assert await terminal.run("quick") == 0, terminal.log.read_text()
    assert terminal.unended() == [], f"{terminal.quick} rounds in {CLEARED_WITHIN_S:g} s"
    records = {folder: Record.of(str(folder / "gpurun.db")) for folder in terminal.runs()}
    for folder, record in records.items():
        assert_one_claim(record)
        assert_one_end_each(record)
        assert_streams_whole(record)
        assert_audit_of(str(folder / "gpurun.db"))
        for run in record.runs:
            assert run["verdict"] == ("passed" if run["job"] == "quick" else "cancelled")
    names = {attempt["name"] for record in records.values() for attempt in record.attempts}
    left = [one["Names"] for one in engine.containers(all=True) if names & {name[1:] for name in one["Names"]}]
    assert left == []
    assert sorted(terminal.died) == sorted(STORIES["request"])
    for folder in terminal.never_begun():
        assert {path.name for path in folder.rglob("*") if path.is_file()} <= {"gpurun.db.lock"}
    tell(terminal.died, "sqlite", f"requests at a terminal, cleared up in {terminal.quick} round(s)")


class Terminal:
    """`gpurun run` in a checkout, again and again."""

    def __init__(self, folder: Path, nursery: Nursery, image: str) -> None:
        self._nursery = nursery
        self._checkout = folder / "train"
        self._home = folder / "state"
        self._folder = folder
        self.log = folder / "terminal.log"
        self.died: list[str] = []
        self.quick = 0
        jobs = {"hold": {"image": image, "run": "echo holding; sleep 600"}, "quick": {"image": image, "run": "true"}}
        self._checkout.mkdir()
        (self._checkout / ".gpurun.yml").write_text(json.dumps({"version": 1, "jobs": jobs}))
        who = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "jobs"]):
            subprocess.run(["git", *who, *words], cwd=self._checkout, check=True)

    async def run(self, job: str) -> int:
        """Its exit code."""
        self.quick += 1
        return await ended(self._start(job))

    async def dies_at(self, failpoint: str, *, interrupted: bool = False) -> None:
        """`interrupted`: Ctrl-C, when the job has begun."""
        child = self._start("hold", **dying_at(failpoint))
        if interrupted:
            with anyio.fail_after(WITHIN_S):
                while "holding" not in self.log.read_text():
                    assert child.poll() is None, self.log.read_text()
                    await anyio.sleep(0.05)
            child.send_signal(signal.SIGINT)
        assert await ended(child) == -signal.SIGKILL, self.log.read_text()
        self.died.append(failpoint)

    def runs(self) -> list[Path]:
        """State folders of those that had a database, and so may have had more."""
        return sorted(folder for folder in (self._home / "runs").iterdir() if (folder / "gpurun.db").exists())

    def never_begun(self) -> list[Path]:
        """State folders of those that died before: while they cleared up after others, which goes on beside. They are
        removed after an hour, as that of a run which is just beginning looks the same.
        """
        return [folder for folder in (self._home / "runs").iterdir() if not (folder / "gpurun.db").exists()]

    def unended(self) -> list[Path]:
        """Of those of which something may be left."""
        return [folder for folder in self.runs() if not (folder / "ended").exists()]

    def _start(self, job: str, **more: str) -> Child:
        self.log.write_bytes(b"")
        environment = {"PATH": PATH, "HOME": str(self._folder), "GPURUN_STATE_DIR": str(self._home), **more}
        return self._nursery.spawn(["run", job], environment, self.log, cwd=self._checkout)


async def ended(child: Child) -> int:
    """Its exit code, negative for a signal."""
    with anyio.fail_after(WITHIN_S):
        while (code := child.poll()) is None:
            await anyio.sleep(0.02)
    return code
