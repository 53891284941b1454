"""Without an engine: what the provider says when nobody answers, or when somebody answers oddly."""

from __future__ import annotations

import socket
import threading

import pytest
from pydantic import ValidationError

from gpurun.domain.errors import CreateUnknown, NotYetDestroyed, ProviderRefused, ProviderUnavailable
from gpurun.domain.plan import Resources
from gpurun.provider_kit.registry import open_provider
from gpurun.providers.docker import DockerConfig, DockerProvider

IMAGE = "python@sha256:" + "ab" * 32


@pytest.fixture
async def nobody(tmp_path):
    provider = DockerProvider(DockerConfig(docker_host=f"unix://{tmp_path}/nobody.sock"))
    yield provider
    await provider.close()


async def test_create_without_an_engine_made_nothing(nobody, launches):
    with pytest.raises(ProviderRefused, match="no Docker Engine answers") as caught:
        await nobody.create(launches(IMAGE, "true"))
    assert caught.value.kind == "capacity"
    assert "claim-me" not in str(caught.value)


async def test_calls_that_may_be_repeated_say_so(nobody, launches):
    for ask in (
        nobody.list_owned("gpurun-"),
        nobody.describe("abc"),
        nobody.destroy("abc"),
        nobody.logs("abc", max_bytes=10),
        nobody.offers(Resources()),
        nobody.why_never(Resources()),
        nobody.prepare(launches(IMAGE, "true"), wait_s=1),
    ):
        with pytest.raises(ProviderUnavailable, match="no Docker Engine answers"):
            await ask


@pytest.mark.parametrize("host", ["ssh://gpu-host", "tcp://10.0.0.2:2375", "https://gpu-host:2376"])
async def test_an_engine_on_another_machine_is_refused(launches, host):
    provider = DockerProvider(DockerConfig(docker_host=host))
    with pytest.raises(ProviderRefused, match="not in this version"):
        await provider.create(launches(IMAGE, "true"))
    with pytest.raises(ProviderRefused, match="not in this version"):
        await provider.list_owned("gpurun-")


def test_it_is_found_by_entry_point_and_checks_its_settings():
    assert isinstance(open_provider("docker", {"usd_per_hour": "0.5"}), DockerProvider)
    with pytest.raises(ValidationError):
        DockerConfig(usd_per_hour=-1)


class OddEngine:
    """Speaks enough HTTP to accept a client, then answers each method and path as told; "" hangs up."""

    def __init__(self, path: str, answers: dict[str, tuple[int, str] | str]) -> None:
        self._answers = {"GET /version": (200, '{"ApiVersion": "1.41"}'), **answers}
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen(8)
        self.host = f"unix://{path}"
        self.asked: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client, client.makefile("rb") as lines:
                self._one(client, lines)

    def _one(self, client, lines) -> None:
        first = lines.readline().decode()
        if not first:
            return  # only looked whether somebody listens
        method, path = first.split()[:2]
        length = 0
        while line := lines.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        lines.read(length)
        asked = f"{method} {path.removeprefix('/v1.41')}".split("?")[0]
        self.asked.append(asked)
        answer = self._answers.get(asked, (404, '{"message": "page not found"}'))
        if answer:
            head = f"HTTP/1.1 {answer[0]} X\r\nContent-Type: application/json\r\nConnection: close\r\n"
            client.sendall(f"{head}Content-Length: {len(answer[1])}\r\n\r\n{answer[1]}".encode())


class Fenced:
    """The packet filter is as it should be."""

    def ensure(self, api, network, isolation):
        pass


@pytest.fixture
async def odd(tmp_path):
    made = []

    def start(answers):
        engine = OddEngine(f"{tmp_path}/odd.sock", answers)
        provider = DockerProvider(DockerConfig(docker_host=engine.host))
        provider._fence = Fenced()
        made.append((engine, provider))
        return provider, engine

    yield start
    for engine, provider in made:
        await provider.close()
        engine.close()


GONE = (404, '{"message": "No such container: abc"}')


async def test_only_the_engines_own_words_mean_gone(odd):
    provider, _ = odd({"GET /containers/gone/json": GONE, "DELETE /containers/gone": GONE})
    assert await provider.describe("gone") is None
    await provider.destroy("gone")
    with pytest.raises(ProviderRefused):  # a proxy's 404
        await provider.describe("abc")
    with pytest.raises(NotYetDestroyed):
        await provider.destroy("abc")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((500, '{"message": "driver failed to remove root filesystem"}'), NotYetDestroyed),
        ((409, '{"message": "removal of container abc is already in progress"}'), NotYetDestroyed),
        ((403, '{"message": "authorization denied by plugin"}'), ProviderRefused),
        ("", ProviderUnavailable),
    ],
)
async def test_destroy_is_done_only_when_the_engine_says_so(odd, answer, error):
    provider, _ = odd({"DELETE /containers/abc": answer})
    with pytest.raises(error):
        await provider.destroy("abc")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((500, '{"message": "boom"}'), ProviderUnavailable),
        ((403, '{"message": "denied"}'), ProviderRefused),
        ("", ProviderUnavailable),
    ],
)
async def test_a_list_is_whole_or_an_error(odd, answer, error):
    provider, _ = odd({"GET /containers/json": answer})
    with pytest.raises(error):
        await provider.list_owned("gpurun-")


READY = {
    "GET /networks/gpurun-jobs": (200, '{"Options": {"com.docker.network.bridge.enable_icc": "false"}}'),
    "GET /info": (200, '{"NCPU": 2, "MemTotal": 8589934592}'),
}


@pytest.fixture
def create(odd, launches):
    async def create(answers, *, after=None):
        from gpurun.providers.docker.ready_image import ready_name

        launch = launches(IMAGE, "true")
        by_name = {f"GET /containers/{launch.name}/json": after} if after is not None else {}
        provider, engine = odd({**READY, f"GET /images/{ready_name(launch)}/json": (200, "{}"), **answers, **by_name})
        try:
            return await provider.create(launch)
        finally:
            assert engine.asked.count("POST /containers/create") == 1

    return create


async def test_an_answered_5xx_to_create_is_cleared_by_a_look(create):
    with pytest.raises(ProviderRefused, match="boom") as caught:
        await create({"POST /containers/create": (500, '{"message": "boom"}')}, after=GONE)
    assert caught.value.kind == "capacity"


async def test_an_answered_5xx_and_no_clear_look_is_a_doubt(create):
    with pytest.raises(CreateUnknown):
        await create({"POST /containers/create": (500, '{"message": "boom"}')}, after=(500, "{}"))


async def test_no_answer_to_create_is_a_doubt_and_create_is_not_repeated(create):
    with pytest.raises(CreateUnknown):
        await create({"POST /containers/create": ""})


async def test_a_container_that_neither_starts_nor_goes_is_a_doubt_with_its_id(create):
    made = (201, '{"Id": "abc", "Warnings": []}')
    with pytest.raises(CreateUnknown) as caught:
        await create(
            {
                "POST /containers/create": made,
                "POST /containers/abc/start": (500, '{"message": "boom"}'),
                "DELETE /containers/abc": (500, '{"message": "busy"}'),
            }
        )
    assert caught.value.ref == "abc"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8", "capacity"),
        ("nvml error: driver/library version mismatch: unknown", "capacity"),
        ("initialization error: nvml error: driver/library version mismatch: unknown", "capacity"),
        ('exec: \\"/bin/sh\\": stat /bin/sh: no such file or directory', "invalid"),
    ],
)
async def test_b116_a_sick_host_is_not_the_images_fault(create, said, kind):
    with pytest.raises(ProviderRefused) as caught:
        await create(
            {
                "POST /containers/create": (201, '{"Id": "abc"}'),
                "POST /containers/abc/start": (400, f'{{"message": "{said}"}}'),
                "DELETE /containers/abc": (204, ""),
            }
        )
    assert caught.value.kind == kind


async def test_a_network_that_is_not_ours_is_refused(odd, launches):
    provider, _ = odd({"GET /networks/gpurun-jobs": (200, '{"Options": {}}')})
    with pytest.raises(ProviderRefused, match="docker network rm"):
        await provider.create(launches(IMAGE, "true"))


FRAMES = "\x01\0\0\0\0\0\0\x03ab\n\x02\0\0\0\0\0\0\x02c\n\x01\0\0\0\0\0\0\x05d end"


@pytest.mark.parametrize(
    ("tty", "said", "logs"),
    [
        ("false", FRAMES, b"ab\nc\nd end"),
        ("true", "ab\r\nc\r\nd end", b"ab\r\nc\r\nd end"),
        ("true", FRAMES, FRAMES.encode()),  # a job that prints what looks like frames
        ("false", "", b""),
    ],
)
async def test_b096_frames_are_taken_apart_only_where_the_container_has_no_terminal(odd, tty, said, logs):
    provider, _ = odd(
        {
            "GET /containers/abc/json": (200, f'{{"Id": "abc", "Config": {{"Tty": {tty}}}}}'),
            "GET /containers/abc/logs": (200, said),
        }
    )
    assert await provider.logs("abc", max_bytes=1000) == logs


class ListingEngine:
    """Has three containers, one of them of another install."""

    def info(self):
        return {"NCPU": 2, "MemTotal": 2**30, "Runtimes": {}, "DockerRootDir": "/nowhere"}

    def containers(self, *, all, filters):
        owners = {"gpurun-1-a": "one", "gpurun-1-b": "one", "gpurun-2-a": "two"}
        return [
            {"Id": name, "Names": [f"/{name}"], "State": "running", "Created": 0, "Labels": {"gpurun.install": install}}
            for name, install in owners.items()
        ]


def test_a_look_for_one_name_forgets_no_measure_of_the_others_and_takes_in_nobody_elses(monkeypatch):
    provider = DockerProvider(DockerConfig())
    measured = []
    monkeypatch.setattr(provider._disks, "look", lambda items, _: measured.append([one["Id"] for one in items]) or {})
    assert [one.name for one in provider._list(ListingEngine(), "gpurun-1-b")] == ["gpurun-1-b"]
    assert measured == [["gpurun-1-a", "gpurun-1-b"]]
