"""What a job's container can reach, tried from inside a real one, with a bot, a cloud and a private network around it.

The engine is the test's own, in a network of its own (`tests/services/neighbourhood.py`).
"""

from __future__ import annotations

import json
import secrets

import pytest

from gpurun.domain.errors import ProviderRefused
from gpurun.domain.ids import BuiltImage
from gpurun.domain.offer import Isolation
from gpurun.providers.docker import DockerConfig, DockerProvider, fence
from gpurun.providers.docker.network import bridge_of, network_of
from ops.local_services import Missing
from tests.docker.launching import Bench
from tests.services.engine import missing
from tests.services.neighbourhood import (
    HOST,
    METADATA,
    OPEN_PORT,
    PORTS,
    PRIVATE,
    PUBLIC,
    RESOLVER,
    Neighbourhood,
    inside,
    neighbourhood,
)
from tests.services.private_engine import private_engine_running

pytestmark = pytest.mark.docker

PROBE = """
import concurrent.futures, json, socket, sys
def tcp(at):
    try:
        with socket.create_connection(tuple(at), 4) as line: return line.recv(10) == b'here'
    except OSError: return False
def udp(at):
    family = socket.AF_INET6 if ':' in at[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as line:
        line.settimeout(4)
        try:
            line.connect(tuple(at)); line.send(b'?'); return line.recv(10) == b'?'
        except OSError: return False
def ask(what): return (udp if what[0] == 'udp' else tcp)(what[1:])
asked = json.loads(sys.argv[1])
with concurrent.futures.ThreadPoolExecutor(32) as pool:
    print(json.dumps([what for what, there in zip(asked, pool.map(ask, asked)) if there]))
"""


def everything(*addresses):
    """Each port of each address, TCP, and UDP of one port."""
    return [("tcp", at, port) for at in addresses for port in PORTS] + [("udp", at, 53) for at in addresses]


def script(asked) -> str:
    return f"exec python3 -c '{PROBE.replace(chr(39), chr(34))}' '{json.dumps(asked)}'"


@pytest.fixture(scope="module")
def around():
    try:
        with neighbourhood() as here:
            yield here
    except Missing as exc:
        missing(str(exc))


@pytest.fixture(scope="module")
def private_engine(around: Neighbourhood):
    with private_engine_running(around.machine, dns=RESOLVER) as engine:
        yield engine


@pytest.fixture(scope="module")
def python(engine, private_engine, base_images):
    """The image, without a registry: 127.0.0.1 is another one in there."""
    engine.pull(base_images.python)
    api, image = private_engine.client(), engine.inspect_image(base_images.python)["Id"]
    api.load_image(engine.get_image(image))
    inputs = secrets.token_hex(32)
    api.tag(image, "gpurun-build", inputs)
    return BuiltImage(f"gpurun-build:{inputs}")


@pytest.fixture
async def bench(private_engine):
    config = DockerConfig(docker_host=private_engine.host, allow_untrusted=True, host_ports=(OPEN_PORT,))
    provider = DockerProvider(config)
    yield Bench(provider, private_engine.client())
    await provider.close()


@pytest.fixture
def seen(bench, launches, python):
    """What of `asked` a job reaches."""

    async def seen(asked, isolation):
        launch = launches(python, script(asked), isolation=isolation)
        return {tuple(what) for what in json.loads(await bench.output(launch))}

    return seen


async def test_everything_is_there_for_a_container_that_is_not_ours(bench, python):
    """Else the others say nothing."""
    api = bench.engine
    network = api.create_network(
        "open", enable_ipv6=True, ipam={"Config": [{"Subnet": "172.29.0.0/16"}, {"Subnet": "fd77::/64"}]}
    )
    asked = everything(*METADATA, *PRIVATE, *PUBLIC, *HOST, RESOLVER)
    made = api.create_container(
        python, ["sh", "-c", script(asked)], host_config=api.create_host_config(network_mode="open")
    )
    api.start(made)
    api.wait(made)
    said = api.logs(made).decode()
    api.remove_container(made, force=True)
    api.remove_network(network["Id"])
    assert {tuple(what) for what in json.loads(said)} == set(asked)


async def test_a_job_reaches_the_internet_and_private_networks(seen):
    asked = everything(*PUBLIC, *[at for at in PRIVATE if ":" not in at])
    assert await seen(asked, Isolation.STANDARD) == set(asked)


@pytest.mark.parametrize("isolation", Isolation)
async def test_compromised_pod_reaches_neither_the_metadata_address_nor_a_port_of_the_machine(seen, isolation):
    """Names are another matter: on some clouds the metadata address is also the name server."""
    found = await seen(everything(*METADATA, *HOST, "172.17.0.1", "172.18.0.1", "fe80::1"), isolation)
    assert {at for at in found if at[2] != 53} == set()
    assert found == set() or isolation is Isolation.STANDARD


async def test_a_port_of_the_machine_may_be_opened_to_jobs_of_people_with_write_access(seen):
    asked = [("tcp", at, OPEN_PORT) for at in HOST]
    assert await seen(asked, Isolation.STANDARD) == set(asked)
    assert await seen(asked, Isolation.UNTRUSTED) == set()


async def test_fork_contributor_reaches_the_internet_and_no_private_network(seen):
    asked = everything(*PUBLIC, *PRIVATE, *METADATA, *HOST)
    assert await seen(asked, Isolation.UNTRUSTED) == set(everything(*PUBLIC))


async def test_untrusted_code_asks_the_engines_name_server_for_names_and_nothing_else(seen):
    asked = everything(RESOLVER)
    assert await seen(asked, Isolation.UNTRUSTED) == {("tcp", RESOLVER, 53), ("udp", RESOLVER, 53)}


async def test_fork_contributor_reaches_no_other_container(bench, launches, python, seen):
    """Neither of its own network, nor of another one, nor by a port that is published."""
    serve = "exec python3 -m http.server 8080"
    own = await bench.up(launches(python, serve, isolation=Isolation.UNTRUSTED))
    jobs = await bench.up(launches(python, serve))
    api = bench.engine
    public = api.create_container(
        python, ["sh", "-c", serve], ports=[8080], host_config=api.create_host_config(port_bindings={8080: 8081})
    )
    api.start(public)
    addresses = [
        next(iter(api.inspect_container(ref)["NetworkSettings"]["Networks"].values()))["IPAddress"]
        for ref in (own, jobs, public["Id"])
    ]
    asked = [("tcp", at, 8080) for at in addresses] + [("tcp", at, 8081) for at in HOST]
    assert await seen(asked, Isolation.UNTRUSTED) == set()
    for ref in (own, jobs, public["Id"]):
        api.remove_container(ref, force=True)


async def test_rules_that_somebody_flushed_or_pushed_down_are_put_back_before_untrusted_code_runs(seen, around):
    asked = everything(*PRIVATE[:3], *HOST)
    assert await seen(asked, Isolation.UNTRUSTED) == set()
    for hook in ("INPUT", "DOCKER-USER"):
        inside(around.machine, "iptables", "-F", hook)
    assert await seen(asked, Isolation.UNTRUSTED) == set()
    for hook in ("INPUT", "DOCKER-USER"):
        inside(around.machine, "iptables", "-I", hook, "1", "-j", "ACCEPT")
    try:
        assert await seen(asked, Isolation.UNTRUSTED) == set()
    finally:
        for hook in ("INPUT", "DOCKER-USER"):
            inside(around.machine, "iptables", "-D", hook, "-j", "ACCEPT")


async def test_a_step_of_a_build_is_fenced_too(bench, launches, python, around):
    """Steps have the engine's default capabilities, raw sockets among them: IPv6 to the bridge has to be shut there."""
    await bench.output(launches(python, "true", isolation=Isolation.UNTRUSTED))
    api = bench.engine
    name = network_of("gpurun-jobs", Isolation.UNTRUSTED)
    bridge = bridge_of(api.inspect_network(name))
    said = inside(around.machine, "ip6tables", "-S")
    assert f"-A GPURUN-{bridge} -j DROP" in said
    assert f"-A INPUT -i {bridge} -j GPURUN-{bridge}" in said


async def test_rules_of_networks_that_are_gone_go(bench, launches, python, private_engine, around):
    provider = DockerProvider(DockerConfig(docker_host=private_engine.host, network="gone"))
    other = Bench(provider, bench.engine)
    await other.output(launches(python, "true"))
    await provider.close()
    network = bench.engine.inspect_network("gone")
    bench.engine.remove_network(network["Id"])
    await bench.output(launches(python, "true", isolation=Isolation.UNTRUSTED))
    from gpurun.providers.docker.fence import _run

    _, said = _run(
        bench.engine, ["/bin/sh", "-c", "iptables -S"], network="host", capabilities=("NET_ADMIN", "NET_RAW")
    )
    assert f"GPURUN-{bridge_of(network)}" not in said


async def test_where_it_cannot_be_fenced_untrusted_code_does_not_run_and_other_jobs_do(
    bench, launches, python, monkeypatch
):
    monkeypatch.setattr(fence, "_PATH", "/nowhere")
    with pytest.raises(ProviderRefused, match="private networks cannot be closed to it"):
        await bench.up(launches(python, "true", isolation=Isolation.UNTRUSTED))
    provider = DockerProvider(DockerConfig(docker_host=bench.provider._config.docker_host))
    await Bench(provider, bench.engine).output(launches(python, "true"))
    await provider.close()
    made = [one["Names"][0] for one in bench.engine.containers(all=True)]
    assert made == []
