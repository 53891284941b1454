from __future__ import annotations

import pytest

from gpurun.cli.environment import read_settings, unknown
from gpurun.domain.errors import UserError


def test_a_wrong_value_is_named_in_a_sentence(monkeypatch):
    monkeypatch.setenv("GPURUN_PORT", "tcp://10.0.0.1:8080")
    monkeypatch.setenv("GPURUN_DOCKER_MAX_RUNS", "0")
    with pytest.raises(UserError) as caught:
        read_settings()
    assert "GPURUN_PORT is 'tcp://10.0.0.1:8080': input should be a valid integer" in str(caught.value)
    assert "GPURUN_DOCKER_MAX_RUNS is '0': input should be greater than or equal to 1." in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_port_that_no_machine_has(monkeypatch):
    monkeypatch.setenv("GPURUN_PORT", "65536")
    with pytest.raises(UserError, match="GPURUN_PORT"):
        read_settings()


URLS = ("GPURUN_PUBLIC_URL", "GPURUN_GITHUB_API_URL", "GPURUN_GITHUB_URL", "GPURUN_HUB_URL")


@pytest.mark.parametrize("name", URLS)
@pytest.mark.parametrize(
    "value",
    [
        *("your.host", "not a url", "/runs", "//host", "ftp://host", "https://", "https:host", "https:///path"),
        *(
            "https://host:port",
            "https://host:99999",
            "https://host:0",
            "https://[::1",
            "https://a host",
            " https://host",
        ),
    ],
)
def test_half_an_address_is_named(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError) as caught:
        read_settings()
    assert str(caught.value) == f"{name} is {value!r}: input should be a whole address such as https://your.host."


@pytest.mark.parametrize("name", URLS)
@pytest.mark.parametrize("value", ["https://host", "HTTP://127.0.0.1:8080/", "https://host/api/v3", "http://[::1]:80"])
def test_whole_addresses_are_left_as_they_are(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert getattr(read_settings(), name.removeprefix("GPURUN_").lower()) == value


def test_only_the_public_address_may_be_empty(monkeypatch):
    monkeypatch.setenv("GPURUN_PUBLIC_URL", "")
    assert read_settings().public_url == ""
    monkeypatch.setenv("GPURUN_GITHUB_API_URL", "")
    with pytest.raises(UserError, match="GPURUN_GITHUB_API_URL is ''"):
        read_settings()


def test_no_password_in_an_address_is_shown(monkeypatch):
    monkeypatch.setenv("GPURUN_HUB_URL", "https//me:canary-71c2@host")
    with pytest.raises(UserError) as caught:
        read_settings()
    assert str(caught.value) == "GPURUN_HUB_URL input should be a whole address such as https://your.host."


def test_names_that_are_no_setting_are_told_and_have_no_effect(monkeypatch, capsys):
    monkeypatch.setenv("GPURUN_PORTT", "1")
    monkeypatch.setenv("GPURUN_SERVICE_HOST", "10.0.0.1")
    assert read_settings().port == 8080
    told = capsys.readouterr().err
    assert told == "No setting is called GPURUN_PORTT (did you mean GPURUN_PORT?), GPURUN_SERVICE_HOST.\n"


def test_nothing_is_told_about_settings(capsys):
    assert unknown(["GPURUN_PORT", "gpurun_host"]) == ""
    read_settings()
    assert capsys.readouterr().err == ""


def test_no_secret_is_shown(monkeypatch):
    for name in ("DATABASE_URL", "GITHUB_PRIVATE_KEY", "WEBHOOK_SECRET", "WEBHOOK_SECRET_OLD", "HUB_TOKEN"):
        monkeypatch.setenv(f"GPURUN_{name}", "canary-71c2")
    settings = read_settings()
    assert settings.hub_token.get_secret_value() == "canary-71c2"
    assert "canary" not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"
