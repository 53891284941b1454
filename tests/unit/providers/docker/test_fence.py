"""The rules by which jobs are fenced. What they do to packets: tests/docker/test_reach.py."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from gpurun.domain.errors import Bug, ProviderRefused
from gpurun.domain.image import RegistryLogin
from gpurun.domain.layer import LayerUse
from gpurun.domain.offer import Isolation
from gpurun.providers.docker import DockerConfig, DockerProvider, fence
from gpurun.providers.docker.fence import METADATA, PRIVATE, Fence, NotFenced, nameservers, rules
from gpurun.providers.docker.network import BRIDGE, network_of

IMAGE = "registry.example/app@sha256:" + "0" * 64
NETWORK = {"Id": "f" * 64, "Options": {}}


def is_in(address: IPv4Address, networks) -> bool:
    return any(address in IPv4Network(one) for one in networks)


@given(st.ip_addresses(v=4))
def test_an_address_that_is_not_of_the_internet_is_closed_to_untrusted_code(address):
    if not address.is_global or address.is_multicast:
        assert is_in(address, PRIVATE)


@pytest.mark.parametrize(
    ("address", "closed"),
    [
        ("169.254.169.254", True),
        ("169.254.170.2", True),
        ("100.100.100.200", True),
        ("168.63.129.16", True),
        ("192.0.0.192", True),
        ("10.0.0.1", False),
        ("8.8.8.8", False),
    ],
)
def test_metadata_addresses(address, closed):
    assert is_in(IPv4Address(address), METADATA) is closed
    assert is_in(IPv4Address(address), PRIVATE) is (address != "8.8.8.8")


def test_the_first_rules_let_answers_pass_and_names_resolve_and_the_last_closes_the_machine():
    standard = rules(Isolation.STANDARD, host_ports=(5000,))
    assert standard[:2] == ("-m conntrack --ctstate INVALID -j DROP", "-m conntrack --ctstate ESTABLISHED -j RETURN")
    assert "-p udp --dport 53 -j RETURN" in standard
    assert "-p tcp --dport 5000 -m addrtype --dst-type LOCAL -j RETURN" in standard
    assert "--dst-type LOCAL -j REJECT" in standard[-1]
    untrusted = rules(Isolation.UNTRUSTED, host_ports=(5000,), resolvers=("10.0.0.2",))
    opened = [rule for rule in untrusted if rule.endswith("RETURN")]
    assert opened == [
        "-m conntrack --ctstate ESTABLISHED -j RETURN",
        "-d 10.0.0.2/32 -p udp --dport 53 -j RETURN",
        "-d 10.0.0.2/32 -p tcp --dport 53 -j RETURN",
    ]


def test_name_servers_are_addresses_and_none_of_the_containers_own():
    said = "# x\nnameserver 10.0.0.2\nnameserver 127.0.0.11\nnameserver fd00::1\nnameserver\nnameserver -j x\n"
    assert nameservers(said) == ("10.0.0.2",)


@pytest.fixture
def put(monkeypatch, tmp_path):
    """What was put up, by rules that work or do not."""
    made, trouble = [], []

    def put(api, bridge, lines):
        made.append((bridge, lines))
        if trouble:
            raise NotFenced(trouble[0])

    monkeypatch.setattr(fence, "_put", put)
    monkeypatch.setattr(fence, "_resolvers", lambda api: ("10.0.0.2",))
    put.made, put.trouble = made, trouble
    return put


def test_jobs_wait_for_it_once_in_ten_minutes_and_untrusted_code_each_time(put, tmp_path):
    now = [0.0]
    one = Fence(lambda: now[0], host_ports=(), notes=tmp_path / "notes")
    for _ in range(3):
        one.ensure(None, NETWORK, Isolation.STANDARD)
    assert len(put.made) == 1
    Fence(lambda: 0.0, host_ports=(), notes=tmp_path / "notes").ensure(None, NETWORK, Isolation.STANDARD)
    assert len(put.made) == 1  # the next process knows it
    Fence(lambda: 0.0, host_ports=(5000,), notes=tmp_path / "notes").ensure(None, NETWORK, Isolation.STANDARD)
    assert len(put.made) == 2  # other rules
    for _ in range(3):
        one.ensure(None, NETWORK, Isolation.UNTRUSTED)
    assert len(put.made) == 5
    nowhere = Fence(lambda: now[0], host_ports=(), notes=None)
    for now[0] in (0.0, 599.0, 601.0):
        nowhere.ensure(None, NETWORK, Isolation.STANDARD)
    assert len(put.made) == 7


def test_a_network_that_was_made_anew_has_no_rules_yet_though_its_bridge_has_the_same_name(put, tmp_path):
    one = Fence(lambda: 0.0, host_ports=(), notes=tmp_path)
    for network in ("a" * 64, "b" * 64, "a" * 64):
        one.ensure(None, {"Id": network, "Options": {BRIDGE: "gpurun-12345678"}}, Isolation.STANDARD)
    assert len(put.made) == 2


def test_where_it_failed_it_is_tried_again_after_a_minute(put):
    now = [0.0]
    one = Fence(lambda: now[0], host_ports=(), notes=None)
    put.trouble.append("there is no iptables")
    for now[0] in (0.0, 30.0, 61.0):
        with pytest.raises(NotFenced, match="no iptables"):
            one.ensure(None, NETWORK, Isolation.STANDARD)
    assert len(put.made) == 2


async def test_untrusted_code_does_not_run_on_the_bots_own_engine_unless_that_is_allowed(launches):
    provider = DockerProvider(DockerConfig(docker_host="unix:///nowhere"))
    launch = launches(IMAGE, "true", isolation=Isolation.UNTRUSTED)
    for call in (
        provider.prepare(launch, wait_s=0),
        provider.create(launch),
        provider.build(launch, None, None, wait_s=0),
    ):
        with pytest.raises(ProviderRefused, match="GPURUN_ALLOW_UNTRUSTED_LOCAL") as caught:
            await call
        assert caught.value.kind == "invalid"


@pytest.mark.parametrize(
    "more",
    [
        {"login": RegistryLogin(server="registry.example", username="x", password=SecretStr("secret-of-x"))},
        {"layer": LayerUse(volume="gpurun-layer-x", shelf="x", layer=None)},
    ],
)
async def test_untrusted_code_gets_no_login_and_no_layer_that_it_could_write(launches, more):
    provider = DockerProvider(DockerConfig(docker_host="unix:///nowhere", allow_untrusted=True))
    with pytest.raises(Bug):
        await provider.create(launches(IMAGE, "true", isolation=Isolation.UNTRUSTED, **more))


def test_untrusted_code_has_a_network_of_its_own():
    assert network_of("gpurun-jobs", Isolation.STANDARD) == "gpurun-jobs"
    assert network_of("gpurun-jobs", Isolation.UNTRUSTED) == "gpurun-jobs-untrusted"


def test_a_launch_is_standard_unless_it_is_said(launches):
    assert launches(IMAGE, "true").isolation is Isolation.STANDARD
