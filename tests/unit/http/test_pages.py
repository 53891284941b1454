from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from datetime import timedelta
from html.parser import HTMLParser

import httpx
import pytest
from pydantic import SecretStr

from gpurun.domain.run import AttemptState, Phase, Result, ResultKind, RunState, Verdict
from gpurun.domain.stream import Artifact
from gpurun.http.log_view import FOLLOW_EVERY_S
from gpurun.http.server import build_app
from tests.unit.http.world import ATTEMPT_ID, NOW, RUN_ID, a_run, an_attempt

pytestmark = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)

LIVE = {"phase": Phase.RUNNING, "claimed_at": NOW, "state": AttemptState.LIVE, "phase_times": {"claimed": NOW}}


class Text(HTMLParser):
    """What a reader sees, and every tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.shown = ""
        self._hidden = ""
        self.inline: dict[str, str] = {}
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._hidden = tag if tag in {"script", "style"} else ""

    def handle_endtag(self, tag):
        self._hidden = ""

    def handle_data(self, data):
        if self._hidden:
            self.inline[self._hidden] = self.inline.get(self._hidden, "") + data
        else:
            self.shown += data


async def log_is(world, data, *, offset=0, name="log"):
    await world.store.write(lambda tx: tx.append(ATTEMPT_ID, name, offset, data))


async def test_the_page_of_a_live_run(world, clock):
    await world.add(attempt=an_attempt(**LIVE, landed={"python": "3.11.2"}))
    await log_is(world, b"step 1 loss 0.5\n")
    await log_is(world, b'{"t":1,"cpu_pct":50,"gpus":[{"index":0,"util_pct":97}]}\n', name="metrics")
    clock.advance(seconds=90)
    page = await world.page()
    assert page.status_code == 200
    text = Text(page.text).shown
    for part in (
        "smoke · octo/app #5", "running", "1 min 30 s", "$0.00 (declared price $0.00/h × 90 s)", "local Docker",
        "@alice", "a" * 40, "b" * 40, "sha256:" + "c" * 64, "octo/tiny@" + "d" * 40, "sub/model.safetensors",
        "SEED=0", "python -m app.smoke", "GPU 0 busy", "97.0 %", "1 sample.", "python: 3.11.2", "step 1 loss 0.5",
    ):  # fmt: skip
        assert part in text, part
    assert "None" not in text


async def test_the_page_of_a_run_that_ended(world):
    result = Result(kind=ResultKind.FAILED, exit_code=3, reason="exit")
    await world.add(
        run=a_run(state=RunState.ENDED, verdict=Verdict.FAILED, detail="exit code 3", ended_at=NOW),
        attempt=an_attempt(result=result, result_at=NOW, state=AttemptState.GONE, gone_at=NOW),
    )
    text = Text((await world.page()).text).shown
    assert "failed, exit 3" in text
    assert "exit code 3" in text


@pytest.mark.parametrize("state", list(RunState))
async def test_a_run_without_an_attempt_or_a_plan_has_a_page(world, state):
    await world.store.write(lambda tx: tx.add_run(a_run(state=state, plan=None, attempts=0)))
    page = await world.page()
    assert page.status_code == 200
    assert "a" * 40 in page.text
    for rest in ("/facts", "/live", "/log", "/log.raw"):
        assert (await world.page(rest)).status_code == 200


# who may look


@pytest.mark.parametrize("rest", ["", "/facts", "/live", "/log", "/log.raw", "/artifacts/1/a"])
async def test_only_the_key_opens_it(world, rest):
    await world.add()
    await world.store.write(
        lambda tx: tx.add_artifact(ATTEMPT_ID, Artifact(path="a", size=0, sha256="0" * 64, blob="a"))
    )
    answers = [await world.page(rest, key=key) for key in ("", "wrong", "read-key-of-the-ru", "é", "%00")]
    answers.append(await world.client.get(f"/runs/{RUN_ID}{rest}"))
    answers.append(await world.client.get(f"/runs/{'0' * 26}{rest}?key=wrong"))
    assert {(answer.status_code, answer.text) for answer in answers} == {(404, '{"detail":"Not Found"}')}
    assert (await world.page(rest)).status_code == 200


@pytest.mark.parametrize("rest", ["", "/facts", "/live", "/log", "/log.raw"])
async def test_headers_of_everything(world, rest):
    await world.add()
    headers = (await world.page(rest)).headers
    assert headers["x-robots-tag"] == "noindex"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["content-security-policy"].startswith("default-src 'none'")


async def test_the_policy_names_exactly_the_page_s_own_style_and_script(world):
    await world.add()
    page = await world.page()
    read = Text(page.text)
    policy = page.headers["content-security-policy"]
    for kind in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(read.inline[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in policy
    assert "unsafe" not in policy
    for tag, attributes in read.tags:
        assert not any(name.startswith("on") or name == "style" for name in attributes), tag
        assert not str(attributes.get("src") or attributes.get("href") or "/").startswith(("http", "//"))


# untrusted text

VECTORS = [
    "</pre></details><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"><svg onload='alert(1)'>",
    "{{ 7 * 7 }}",
    "&lt;b&gt;",
    "\u202eevil\u2066",
    "\x1b]52;c;cm0gLXJmIH4=\x07",
    "\x1b[2J\x1b[31mred",
]


@pytest.mark.parametrize("vector", VECTORS)
async def test_text_of_others_stays_text(world, vector):
    plain_page = await _page_with(world, "harmless", number=1)
    world_page = await _page_with(world, vector, number=2)
    assert [tag for tag, _ in Text(world_page).tags] == [tag for tag, _ in Text(plain_page).tags]
    shown = Text(world_page).shown
    for letter in "\x1b\x07\u202e\u2066":
        assert letter not in world_page
    if vector[0] in '<{&"':
        assert shown.count(vector) >= 4  # detail, command, artifact, log


async def _page_with(world, text, *, number):
    """A page whose every foreign text is `text`."""
    run_id, attempt_id = RUN_ID[:-1] + str(number), ATTEMPT_ID[:-1] + str(number)
    plan = a_run().plan
    assert plan is not None
    changed = {"run": text, "setup": text, "env": (("A", text),)}
    run = a_run(id=run_id, detail=text, who=text, plan=type(plan)(**{**_fields(plan), **changed}), also_asked=(text,))
    attempt = an_attempt(id=attempt_id, run_id=run_id, name=attempt_id, preparing=text, landed={"gpu": text}, **LIVE)

    def write(tx):
        tx.add_run(run)
        tx.add_attempt(attempt)
        tx.append(attempt_id, "log", 0, text.encode() + b"\n")
        tx.add_artifact(attempt_id, Artifact(path=text, size=1, sha256="0" * 64, blob="a"))

    await world.store.write(write)
    page = await world.client.get(f"/runs/{run_id}?key=read-key-of-the-run")
    assert page.status_code == 200
    return page.text


def _fields(plan):
    return {name: getattr(plan, name) for name in plan.__dataclass_fields__}


# the log


async def test_the_log_is_cleaned_and_the_raw_one_is_not(world):
    await world.add()
    raw = b"\x1b[31mred\x1b[0m\n 10%\r100%\n\xff\n"
    await log_is(world, raw)
    cleaned = await world.page("/log")
    assert cleaned.text == "red\n100%\n\ufffd\n"
    assert cleaned.headers["content-type"] == "text/plain; charset=utf-8"
    assert (await world.page("/log.raw")).content == raw
    assert (await world.page("/log", query="&offset=13")).text == "100%\n\ufffd\n"
    assert (await world.page("/log.raw", query="&offset=13")).content == raw[13:]
    assert (await world.page("/log", query="&offset=99")).text == ""


@pytest.mark.parametrize("offset", ["-1", "x", "9" * 30, "1.5", "²"])
async def test_bad_offsets(world, offset):
    await world.add()
    assert (await world.page("/log", query=f"&offset={offset}")).status_code == 400


async def test_a_token_that_escapes_held_apart_is_masked_where_they_are_dropped(world):
    """What is stored was masked as it came; the view's own cleaning puts such a token together."""
    await world.add()
    parts = (b"ghs_Ab3dEf6hIj9L", b"mN2pQr5tUv8xYz1aBc4dEf7gHi")
    await log_is(world, b"token=" + b"\x1b[1m".join(parts) + b"\n" + b"\x00".join(parts))
    token = b"".join(parts).decode()
    for path, query in (("", ""), ("/log", ""), ("/live", "&offset=0")):
        body = (await world.page(path, query=query)).text
        assert "token=" in body
        assert token not in body
        assert "*" * len(token) in body


async def test_a_long_log_is_whole(world):
    await world.add()
    line = b"x" * 99 + b"\n"
    await log_is(world, line * 20_000)
    assert (await world.page("/log")).content == line * 20_000
    page = await world.page()
    assert len(page.content) < 50_000
    assert Text(page.text).shown.count("x" * 99 + "\n") > 300


async def test_the_script_reads_on_from_the_page(world):
    await world.add(attempt=an_attempt(**LIVE))
    await log_is(world, b"one\ntwo\nhal")
    page = await world.page()
    assert "two" in page.text
    assert "hal" not in Text(page.text).shown
    offset = int(re.search(r'data-next="(\d+)"', page.text)[1])
    assert offset == 8
    live = (await world.page("/live", query=f"&offset={offset}")).json()
    assert (live["text"], live["partial"], live["next"], live["ended"]) == ("", "hal", 8, False)
    await log_is(world, b"f\nthree\n", offset=11)
    live = (await world.page("/live", query=f"&offset={offset}")).json()
    assert (live["text"], live["partial"], live["next"], live["more"]) == ("half\nthree\n", "", 19, False)


async def test_a_phase_makes_the_page_draw_its_facts_anew(world):
    await world.add(attempt=an_attempt(**LIVE))
    before = (await world.page("/live")).json()["rev"]
    assert (await world.page("/live")).json()["rev"] == before
    await world.store.write(lambda tx: tx.saw(ATTEMPT_ID, phase=Phase.COLLECTING))
    assert (await world.page("/live")).json()["rev"] != before
    assert "collecting" in (await world.page("/facts")).text


async def test_the_last_line_without_an_end_is_shown_when_the_run_is_over(world):
    await world.add()
    await log_is(world, b"no newline")
    await world.store.write(lambda tx: tx.set_result(ATTEMPT_ID, Result(kind=ResultKind.PASSED, exit_code=0)))
    live = (await world.page("/live")).json()
    assert (live["text"], live["ended"]) == ("no newline", True)


async def follow(world, hear):
    """httpx would give the whole at its end."""

    async def send(message):
        if message.get("body"):
            hear(message["body"].decode())

    async def receive():
        await asyncio.Event().wait()

    scope = {
        "type": "http", "method": "GET", "path": f"/runs/{RUN_ID}/log", "headers": [],
        "query_string": b"key=read-key-of-the-run&follow=1", "asgi": {"spec_version": "2.3"},
    }  # fmt: skip
    await build_app(world.services)(scope, receive, send)


async def test_following_gives_each_line_within_a_second_and_ends_with_the_result(world, clock):
    await world.add(attempt=an_attempt(**LIVE))
    await log_is(world, b"first\n")
    seen: list[tuple[float, str]] = []
    printed = {}

    async def pass_time(seconds):
        for _ in range(round(seconds / FOLLOW_EVERY_S)):
            clock.advance(seconds=FOLLOW_EVERY_S)
            for _ in range(20):
                await asyncio.sleep(0.001)

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow(world, lambda text: seen.append((clock.monotonic(), text))))
        await pass_time(0.5)
        offset = 6
        for line in (b"second\n", b"third\n"):
            printed[line.decode()] = clock.monotonic()
            await log_is(world, line, offset=offset)
            offset += len(line)
            await pass_time(1)
        await log_is(world, b"last", offset=offset)
        await world.store.write(lambda tx: tx.set_result(ATTEMPT_ID, Result(kind=ResultKind.PASSED, exit_code=0)))
        while not following.done():
            await pass_time(0.25)
    assert [text for _, text in seen] == ["first\n", "second\n", "third\n", "last"]
    for at, text in seen[1:3]:
        assert at - printed[text] <= 1


async def test_following_masks_what_was_given_after_it_began(world, clock):
    seen: list[str] = []
    await world.add(attempt=an_attempt(**LIVE))
    await log_is(world, b"first\n")
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow(world, seen.append))
        while not seen:
            await asyncio.sleep(0.001)
        world.services.maskers._secrets.register(SecretStr("hf_swordfish"), attempt_id=ATTEMPT_ID)
        await log_is(world, b"so hf_\x1b[0mswordfish\n", offset=6)
        await world.store.write(lambda tx: tx.set_result(ATTEMPT_ID, Result(kind=ResultKind.PASSED, exit_code=0)))
        while not following.done():
            clock.advance(seconds=FOLLOW_EVERY_S)
            await asyncio.sleep(0.001)
    assert seen == ["first\n", "so ************\n"]


async def test_an_older_attempt_can_be_read(world):
    await world.add(attempt=an_attempt(state=AttemptState.GONE))
    later = ATTEMPT_ID[:-1] + "b"
    await log_is(world, b"of the first\n")

    def write(tx):
        tx.add_attempt(an_attempt(id=later, name=later, number=2, create_sent_at=NOW + timedelta(minutes=1)))
        tx.append(later, "log", 0, b"of the second\n")

    await world.store.write(write)
    assert (await world.page("/log")).text == "of the second\n"
    assert (await world.page("/log", query="&attempt=1")).text == "of the first\n"
    assert (await world.page("/log", query="&attempt=7")).text == ""
    page = (await world.page(query="&attempt=1")).text
    assert "of the first" in page
    assert "2 attempts" in page


# files and the rest


async def test_an_artifact_is_downloaded_and_never_shown(world):
    await world.add()
    await world.services.blobs.append("artifacts/x/0", 0, b"<script>")
    name = 'out/ä "b".html'
    row = Artifact(path=name, size=8, sha256=hashlib.sha256(b"<script>").hexdigest(), blob="artifacts/x/0")
    await world.store.write(lambda tx: tx.add_artifact(ATTEMPT_ID, row))
    read = Text((await world.page()).text)
    links = [attributes["href"] for tag, attributes in read.tags if tag == "a" and "download" in attributes]
    link, archive, manifest = links
    assert "/artifacts/1.tar?key=" in archive
    assert "/artifacts/1.json?key=" in manifest
    answer = await world.client.get(link)
    assert answer.content == b"<script>"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''%C3%A4%20%22b%22.html"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert (await world.page("/artifacts/1/nothing")).status_code == 404
    assert (await world.page("/artifacts/2/" + name)).status_code == 404


async def test_health_and_home(world):
    assert (await world.client.get("/healthz")).text == "ok\n"
    home = await world.client.get("/")
    assert home.status_code == 200
    assert "/gpurun help" in home.text


async def test_health_says_when_the_store_cannot_be_read(world):
    class Closed:
        async def read(self, _):
            raise OSError("gone")

    services = type(world.services)(
        **{name: getattr(world.services, name) for name in world.services.__dataclass_fields__} | {"store": Closed()}
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(build_app(services)), base_url="http://x") as client:
        assert (await client.get("/healthz")).status_code == 503


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/agent/v1", "/agent/v1/", "/runs", "/github/x"])
async def test_nothing_else_is_served(world, path):
    assert (await world.client.get(path)).status_code in {401, 404, 405}
