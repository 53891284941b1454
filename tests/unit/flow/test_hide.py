"""What the bot writes at the forge and into its own log holds no secret that it knows by then."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
import structlog
from pydantic import SecretStr

from gpurun.adapters.secrets import MemorySecrets
from gpurun.cli import logs
from gpurun.domain.errors import UserError
from gpurun.domain.forge import Annotation, Check, CheckStatus
from gpurun.flow.facts import Links
from gpurun.flow.publish import Publisher
from gpurun.ports.store import Kind
from gpurun.settings import Settings
from gpurun.telemetry import shown
from gpurun.telemetry.forms import forms
from gpurun.telemetry.shown import Hide
from gpurun.wiring import keep_secret
from tests.unit.flow.town import Town, open_town

LATER = "later-secret-value"


@pytest.fixture
def store_url(tmp_path):
    """SQLite: nothing here depends on the database."""
    return str(tmp_path / "gpurun.sqlite")


@pytest.fixture
def secrets():
    return MemorySecrets()


class HidingTown(Town):
    """Its publisher knows secrets."""

    secrets: MemorySecrets

    def handlers(self):
        handlers = dict(super().handlers())
        handlers[Kind.PUBLICATION] = replace(handlers[Kind.PUBLICATION], hide=Hide(self.secrets))
        return handlers


@pytest.fixture
async def town(tmp_path, store, clock, chance, secrets, monkeypatch):
    HidingTown.secrets = secrets
    monkeypatch.setattr("tests.unit.flow.town.Town", HidingTown)
    async with open_town(tmp_path, store, clock, chance) as town:
        yield town


async def test_a_comment_that_quotes_a_secret_shows_stars(town, secrets):
    secrets.register(SecretStr(LATER), attempt_id="01kdxq4c00000000000000000a")
    await town.says(f"/gpurun {LATER}")
    (comment,) = town.comments()
    assert LATER not in comment.body
    assert "*" * len(LATER) in comment.body


def test_every_text_of_a_check_passes():
    secrets = MemorySecrets()
    secrets.register(SecretStr(LATER))
    note = Annotation(path="a.py", line=1, message=f"m {LATER}", title=f"t {LATER}")
    check = Check(
        name="gpurun / smoke",
        external_id="run",
        status=CheckStatus.COMPLETED,
        conclusion="failure",
        title=f"a {LATER}",
        summary=f"b {LATER}",
        text=f"c {LATER}",
        annotations=(note,),
    )

    publisher = Publisher(store=None, forge=None, links=Links(), hide=Hide(secrets))
    shown = publisher._check(check)
    assert LATER not in repr(shown)
    assert (shown.title, shown.annotations[0].path) == ("a " + "*" * len(LATER), "a.py")


def test_a_new_secret_counts_at_once():
    secrets = MemorySecrets()
    hide = Hide(secrets)
    assert hide(f"so {LATER}") == f"so {LATER}"
    secrets.register(SecretStr(LATER))
    assert hide(f"so {LATER}") == "so " + "*" * len(LATER)
    assert hide("ghs_" + "a" * 36) == "*" * 40


def test_a_secret_that_comes_or_goes_leaves_the_others_as_they_are(monkeypatch):
    counted = []
    monkeypatch.setattr(shown, "forms", lambda secret: counted.append(secret) or forms(secret))
    secrets = MemorySecrets()
    hide = Hide(secrets)
    secrets.register(SecretStr(LATER), attempt_id="a")
    hide("x")
    secrets.register(SecretStr("another-value-7"), attempt_id="b")
    stars = "*" * len(LATER)
    assert hide(f"{LATER} another-value-7") == f"{stars} {'*' * 15}"
    secrets.forget("b")
    assert hide(f"{LATER} another-value-7") == f"{stars} another-value-7"
    assert len(counted) == 2


@pytest.fixture
def own_log(capsys, monkeypatch):
    """The program's log as a server writes it, and no trace of it afterwards."""
    before = structlog.get_config()
    for name in ("uvicorn", "uvicorn.error"):  # a uvicorn that another test set up in its own way
        theirs = logging.getLogger(name)
        monkeypatch.setattr(theirs, "handlers", [])
        monkeypatch.setattr(theirs, "propagate", True)
        monkeypatch.setattr(theirs, "disabled", False)
        theirs.setLevel(logging.NOTSET)
    yield capsys
    structlog.configure(**before)
    logs.keep_out_of_log(str)
    logging.getLogger().removeHandler(logs._of_others)


def test_the_bots_own_log_passes_the_same_door(own_log):
    secrets = MemorySecrets()
    logs.log_as_json()
    logs.keep_out_of_log(Hide(secrets))
    secrets.register(SecretStr('quo"ted-\nsecret'))
    log = structlog.get_logger()
    log.warning("failed", error='it said quo"ted-\nsecret', again=b'quo"ted-\nsecret')
    try:
        raise ValueError('quo"ted-\nsecret')
    except ValueError:
        log.exception("broke")
    printed = own_log.readouterr().err
    first, second = printed.splitlines()
    assert "ted-" not in printed
    assert json.loads(first)["event"] == "failed"
    assert json.loads(second)["event"] == "broke"


def test_what_libraries_log_passes_it_too(own_log):
    secrets = MemorySecrets()
    logs.log_as_json()
    logs.log_as_json()
    logs.keep_out_of_log(Hide(secrets))
    secrets.register(SecretStr(LATER))
    theirs = logging.getLogger("uvicorn.error")
    theirs.info("nobody needs %s", LATER)
    theirs.warning("odd %s", LATER)
    logs._of_others.handle(logging.LogRecord("theirs", 35, "a.py", 1, "odd %d", (LATER,), None))
    try:
        raise ValueError(LATER)
    except ValueError:
        theirs.exception("Exception in ASGI application")
    printed = own_log.readouterr().err
    assert LATER not in printed
    odd, misfit, broke = map(json.loads, printed.splitlines())
    assert (odd["event"], odd["logger"], odd["level"]) == (f"odd {'*' * len(LATER)}", "uvicorn.error", "warning")
    assert misfit["event"] == "odd %d"
    assert "ValueError" in broke["exception"]


def test_the_settings_that_are_secrets_are_known_from_the_start():
    settings = Settings(
        webhook_secret="the webhook's secret", hub_token="hub-token-value",
        database_url="postgresql://gpurun:pass%20word-value@db/gpurun",
    )  # fmt: skip
    hide = Hide(keep_secret(MemorySecrets(), settings))
    for secret in ("the webhook's secret", "hub-token-value", "pass%20word-value", "pass word-value"):
        assert hide(f"<{secret}>") == f"<{'*' * len(secret)}>"


@pytest.mark.parametrize("url", ["gpurun:gpurun@db/x", "models:models@db/x", "x:models@db/models"])
def test_a_database_password_like_the_names_beside_it_does_not_eat_what_the_bot_says(url):
    hide = Hide(keep_secret(MemorySecrets(), Settings(database_url=f"postgresql://{url}")))
    assert hide("Comment `/gpurun models` to run it.") == "Comment `/gpurun models` to run it."


def test_a_setting_that_is_too_short_to_be_hidden_is_refused_by_name():
    with pytest.raises(UserError, match="GPURUN_WEBHOOK_SECRET: A secret of fewer than 6") as caught:
        keep_secret(MemorySecrets(), Settings(webhook_secret="abcde"))
    assert "abcde" not in str(caught.value)
