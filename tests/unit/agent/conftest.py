"""A bot, and the built agent."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from gpurun.provider_kit.agent_zip import agent_zip
from tests.unit.agent.fake_bot import Agent, FakeBot


@pytest.fixture(scope="session")
def agent_path(tmp_path_factory):
    return agent_zip(tmp_path_factory.mktemp("agent")).path


@pytest.fixture
def bot():
    bot = FakeBot()
    yield bot
    bot.down()
    shutil.rmtree(bot.folder)


@pytest.fixture
def start(bot, agent_path):
    """Starts agents against the bot; none outlives the test."""
    agents: list[Agent] = []

    def start(**options) -> Agent:
        agents.append(Agent(bot, agent_path, Path(tempfile.mkdtemp(prefix="gpurun-root-")), **options))
        return agents[-1]

    yield start
    for agent in agents:
        if agent.process.poll() is None:
            agent.process.kill()
            agent.process.wait()
        if agent.process.stdout is not None:
            agent.process.stdout.close()
        shutil.rmtree(agent.root, ignore_errors=True)


@pytest.fixture
def run(bot, start):
    """Runs one command to its end and returns the agent."""

    def run(text: str = "", **options) -> Agent:
        bot.run = text or bot.run
        agent = start(**options)
        assert agent.wait() == 0
        return agent

    return run
