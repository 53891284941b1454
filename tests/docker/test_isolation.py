"""What a job's container may do, seen from inside it and from the engine."""

from __future__ import annotations

import socket

import pytest

from gpurun.domain.offer import Isolation, Uplink
from gpurun.domain.plan import Resources
from gpurun.providers.docker.network import network_of
from tests.docker.launching import AGENT

pytestmark = pytest.mark.docker


@pytest.fixture
def bench(docker_bench):
    return docker_bench


async def test_b105_no_capability_no_new_privileges_and_limits(bench, launches, base_images):
    needs = Resources(memory_mib=200, cpus=1.5, shm_mib=96)
    launch = launches(base_images.python, "exec sleep 60", needs=needs)
    ref = await bench.up(launch)
    host = bench.engine.inspect_container(ref)["HostConfig"]
    inside = _exec(
        bench.engine,
        ref,
        "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; df -m /dev/shm | tail -1; ulimit -c",
    )
    await bench.provider.destroy(ref)
    status = dict(line.split() for line in inside.splitlines()[:4])
    assert status == {"CapEff:": "0" * 16, "CapBnd:": "0" * 16, "NoNewPrivs:": "1", "Seccomp:": "2"}
    assert " 96 " in inside
    assert inside.splitlines()[-1] == "0"  # no dump of memory to wherever the host writes those
    assert (host["CapDrop"], host["CapAdd"]) == (["ALL"], None)
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert (host["PidMode"], host["IpcMode"], host["UTSMode"], host["UsernsMode"]) == ("", "private", "", "")
    assert not host["Devices"]
    assert not host["VolumesFrom"]
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"]) == (200 << 20, 200 << 20, 1_500_000_000)
    assert (host["PidsLimit"], host["Privileged"], host["RestartPolicy"]["Name"]) == (4096, False, "no")
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "16m", "max-file": "2"}}


async def test_b105_a_job_that_says_nothing_shares_the_machine(bench, launches, base_images):
    ref = await bench.up(launches(base_images.busybox, "exec sleep 60", needs=Resources()))
    host = bench.engine.inspect_container(ref)["HostConfig"]
    await bench.provider.destroy(ref)
    total = bench.engine.info()["MemTotal"]
    assert 0.44 * total < host["Memory"] <= 0.45 * total  # two runs share 90 %
    assert host["ShmSize"] == pytest.approx(host["Memory"] / 2, abs=2 << 20)
    assert host["NanoCpus"] == 0


async def test_memory_is_really_limited(bench, launches, base_images):
    grab = 'python3 -c "b = bytearray(400 << 20)"; echo "python ended with $?"'
    said = await bench.output(launches(base_images.python, grab, needs=Resources(memory_mib=64)))
    assert "python ended with 137" in said


async def test_labels_name_install_attempt_and_deadline(bench, launches, base_images):
    launch = launches(base_images.busybox, "exec sleep 60")
    ref = await bench.up(launch)
    labels = bench.engine.inspect_container(ref)["Config"]["Labels"]
    await bench.provider.destroy(ref)
    assert labels["gpurun.install"] == launch.install
    assert labels["gpurun.attempt"] == launch.attempt_id
    assert labels["gpurun.name"] == launch.name
    assert labels["gpurun.deadline"] == str(int(launch.hard_deadline.timestamp()))
    assert labels["gpurun.image"] == launch.image


async def test_containers_do_not_reach_each_other(bench, launches, base_images):
    serve = "mkdir -p /tmp/www && echo found > /tmp/www/x && exec busybox httpd -f -p 8000 -h /tmp/www"
    server = await bench.up(launches(base_images.busybox, serve))
    address = next(iter(bench.engine.inspect_container(server)["NetworkSettings"]["Networks"].values()))["IPAddress"]
    ask = f"echo | nc -w 1 {address} 8000 2>/dev/null && echo reached; echo done"
    said = await bench.output(launches(base_images.busybox, ask))
    own = _exec(bench.engine, server, f"wget -q -O - http://{address}:8000/x")
    await bench.provider.destroy(server)
    assert own == "found\n"  # it did serve
    assert said == "done\n"


async def test_the_engine_socket_and_host_files_are_not_there(bench, launches, base_images):
    said = await bench.output(
        launches(base_images.busybox, "[ -e /var/run/docker.sock ] && echo there; cat /proc/mounts")
    )
    assert "there" not in said.splitlines()
    binds = [line.split()[1] for line in said.splitlines() if line.startswith("/dev/")]
    assert set(binds) <= {"/gpurun/s", "/etc/resolv.conf", "/etc/hostname", "/etc/hosts"}


@pytest.mark.parametrize("isolation", Isolation)
async def test_malicious_config_finds_no_other_mount_than_the_uplink(bench, launches, base_images, isolation):
    """Nothing of a plan names a mount, a device, a capability or a network."""
    bench.provider._config = bench.provider._config.model_copy(update={"allow_untrusted": True})
    launch = launches(base_images.busybox, "exec sleep 60", isolation=isolation)
    ref = await bench.up(launch)
    found = bench.engine.inspect_container(ref)
    await bench.provider.destroy(ref)
    assert [(one["Type"], one["Source"], one["Destination"], one["RW"]) for one in found["Mounts"]] == [
        ("bind", launch.uplink.address, "/gpurun/s", False)
    ]
    assert list(found["NetworkSettings"]["Networks"]) == [network_of(bench.provider._config.network, isolation)]
    assert not found["HostConfig"]["PortBindings"]


async def test_the_uplink_is_mounted_read_only_and_speaks(bench, launches, base_images, tmp_path):
    (tmp_path / "up").chmod(0o755)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "up" / "bot.sock"))
        (tmp_path / "up" / "bot.sock").chmod(0o666)
        server.listen(1)
        script = (
            "touch /gpurun/s/x 2>/dev/null && echo writable\n"
            'python3 -c "import socket; s = socket.socket(socket.AF_UNIX); '
            "s.connect('/gpurun/s/bot.sock'); print('connected')\""
        )
        said = await bench.output(launches(base_images.user_1000, script))
    assert said == "connected\n"


async def test_an_https_uplink_mounts_nothing(bench, launches, base_images):
    uplink = Uplink(kind="https", address="https://bot.example")
    said = await bench.output(launches(base_images.busybox, "echo $GPURUN_UPLINK; ls -A /gpurun/s", uplink=uplink))
    assert said == "https://bot.example\n"


async def test_the_environment_is_the_boot_scripts(bench, launches, base_images):
    launch = launches(base_images.user_1000, "env | grep -E 'GPURUN|COLOUR' | sort", env={"GPURUN_EXTRA": "1"})
    said = dict(line.split("=", 1) for line in (await bench.output(launch)).splitlines())
    assert said == {
        "COLOUR": "green",
        "GPURUN_AGENT": "/gpurun/agent.pyz",
        "GPURUN_ATTEMPT": launch.attempt_id,
        "GPURUN_CLAIM": "claim-me",
        "GPURUN_DEADLINE": "1893456000",
        "GPURUN_EXTRA": "1",
        "GPURUN_SHA256": launch.agent_sha256,
        "GPURUN_UPLINK": "unix:/gpurun/s/bot.sock",
    }


@pytest.mark.parametrize("image", ["python", "busybox", "entrypoint", "user_1000", "busybox_shell"])
async def test_every_kind_of_image_runs_the_boot_script_where_it_can_write(bench, launches, base_images, image):
    script = (
        "for f in work home hub tmp; do echo x > /gpurun/$f/probe || exit 1; done\n"
        "id -u; pwd; cat /gpurun/agent.pyz; echo; [ $$ -eq 1 ] && echo first"
    )
    said = await bench.output(launches(getattr(base_images, image), script))
    uid = "1000" if image == "user_1000" else "0"
    assert said.splitlines() == [uid, "/gpurun/work", AGENT.decode(), "first"]


async def test_an_image_without_python_says_so_in_the_logs(bench, launches, base_images):
    script = "command -v python3 || { echo '::gpurun-boot 1 a error no-python3'; exit 78; }"
    ref = await bench.up(launches(base_images.busybox, script))
    assert bench.engine.wait(ref)["StatusCode"] == 78
    assert await bench.provider.logs(ref, max_bytes=1000) == b"::gpurun-boot 1 a error no-python3\n"
    await bench.provider.destroy(ref)


def _exec(engine, ref: str, script: str) -> str:
    made = engine.exec_create(ref, ["/bin/sh", "-c", script])
    return engine.exec_start(made["Id"]).decode()
