"""The login of a private image: from the repository's secrets to registry and provider, and nowhere else."""

from __future__ import annotations

import json

import pytest
from pydantic import SecretStr

from gpurun.adapters.secrets import MemorySecrets
from gpurun.adapters.store.codec import dump
from gpurun.adapters.vault import GivenVault
from gpurun.domain.errors import SecretUnavailable
from gpurun.domain.image import RegistryLogin
from gpurun.domain.run import Untrusted, Verdict
from gpurun.plan.digest import canonical
from gpurun.report.comment import render_comment
from gpurun.report.facts import RunFacts
from tests.fakes.rows import IMAGE
from tests.fakes.world import World

WORD = "s3cret-of-the-registry"
CONFIG = f"""\
version: 1
jobs:
  smoke:
    image: {IMAGE}
    registry: {{username: ci-bot, password: REGISTRY_TOKEN}}
    run: python smoke.py
"""


@pytest.fixture
def store_url(tmp_path):
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
def world(store, clock, chance):
    return World(store, clock, chance)


class Vault(GivenVault):
    """As a server's: what is not set is told."""

    uses = 0
    most_uses = 1000

    async def own_use(self, repo, name):
        self.uses += 1
        value = await super().own_use(repo, name)
        if value is None or self.uses > self.most_uses:
            raise SecretUnavailable(f"The secret {name} is not set for {repo.name}.")
        return value


def having(world: World, **values: str) -> Vault:
    world.vault = Vault({name: SecretStr(value) for name, value in values.items()}, MemorySecrets())
    world.restart()
    return world.vault


async def ran(world: World, **more: object) -> None:
    await world.start(config_text=CONFIG, **more)
    await world.run_for(seconds=40)


async def test_registry_and_provider_get_it_and_the_job_does_not(world):
    having(world, REGISTRY_TOKEN=WORD)
    await ran(world)
    run = await world.expect(Verdict.PASSED)
    login = RegistryLogin(username="ci-bot", password=SecretStr(WORD))
    (instance,) = world.cloud.book
    assert (world.images.logins, instance.launch.login) == ([login], login)
    assert run.plan.secrets == ()
    shown = f"{instance.launch}{instance.launch.env}{dump(run)}{canonical(run.plan)}"
    assert WORD not in shown + render_comment(RunFacts(run=run, now=world.clock.now()))
    assert "REGISTRY_TOKEN" not in json.dumps(dict(instance.launch.env)) + canonical(run.plan).decode()


async def test_b071_a_login_that_is_missing_is_told_before_anything_is_made(world):
    having(world)
    await ran(world)
    run = await world.expect(Verdict.REFUSED, "secret")
    assert run.detail == "The secret REGISTRY_TOKEN is not set for octo/app."
    assert not world.cloud.book
    assert world.images.logins == []


async def test_a_login_that_is_removed_after_planning_ends_what_was_never_made(world):
    having(world, REGISTRY_TOKEN=WORD).most_uses = 1
    await ran(world)
    run = await world.expect(Verdict.LOST, "auth")
    assert "is not set" in run.detail
    assert not world.cloud.book
    assert not world.uplinks.open_now


async def test_code_that_somebody_had_to_approve_gets_no_private_image(world):
    having(world, REGISTRY_TOKEN=WORD)
    await ran(world, untrusted=Untrusted.FORK)
    run = await world.expect(Verdict.REFUSED, "secret")
    assert "gets no secrets" in run.detail
    assert world.images.logins == []


async def test_the_policy_of_the_default_branch_says_which_jobs_may_use_it(world):
    having(world, REGISTRY_TOKEN=WORD)
    policy = "version: 1\npolicy: {secrets: {REGISTRY_TOKEN: {jobs: [other]}}}\n"
    await ran(world, policy_text=policy)
    run = await world.expect(Verdict.REFUSED, "policy")
    assert "may not use the secret REGISTRY_TOKEN" in run.detail


async def test_without_a_value_at_a_terminal_the_machine_is_asked_as_it_is(world):
    """`gpurun run` without it in `.env`: Docker's own login."""
    await ran(world)
    await world.expect(Verdict.PASSED)
    assert world.images.logins == [None]
