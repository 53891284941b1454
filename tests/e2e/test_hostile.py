"""What a job can see of the bot, and what a page does with what a job says. The bot, git, hub and engine are real."""

from __future__ import annotations

import re
import sqlite3
import stat
import threading
from contextlib import closing, contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gpurun.run import tokens
from tests.world import World, open_world
from tests.world.world import CANARY

pytestmark = pytest.mark.docker

HUB_CANARY = "hf_canary_9b1c77d24a5f0e9b1c77d24a"

LOOK_AROUND = """\
env; tr '\\0' '\\n' < /proc/1/environ; cat /proc/mounts; ls -la /gpurun /gpurun/s; cat .git/config
python3 - <<'PROBE'
import http.client, os, socket

class Uplink(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("/gpurun/s/bot.sock")

def ask(method, path, token=""):
    line = Uplink("bot")
    line.request(method, path, headers={"Authorization": "Bearer " + token, "Content-Length": "0"})
    answer = line.getresponse()
    print("asked", method, path, answer.status, answer.read(2000))

claim = dict(item.split("=", 1) for item in open("/proc/1/environ").read().split("\\0") if item)["GPURUN_CLAIM"]
for path in ("/", "/github", "/healthz", "/runs/x?key=", "/agent/v1/../../healthz", "/agent/v1/%2e%2e/x",
             "//agent/v1/source"):
    ask("GET", path)
for path in ("/agent/v1/source", "/agent/v1/models/0/config.json"):
    ask("GET", path, claim)
ask("POST", "/agent/v1/claim", claim)
ask("POST", "/agent/v1/finish", "a" * 26 + "." + claim.partition(".")[2])
PROBE
while [ ! -e go ]; do sleep 0.05; done
"""


async def test_nothing_of_the_bot_reaches_a_job(tmp_path, base_images):
    """Nor a row, a log, a comment, a page, an image, a file that others may read, or a command line."""
    async with open_world(tmp_path, image=base_images.python, hub_token=HUB_CANARY) as world:
        with watched_command_lines() as command_lines:
            world.jobs(smoke={"run": LOOK_AROUND})
            world.comment("/gpurun smoke")
            container = await world.expect_container()
            await world.until(lambda: True if "finish" in kept_log(world) else None, "the job looked around")
            engine = world._engine
            inspected = engine.inspect_container(container)
            image = inspected["Image"]
            world.in_container(container, "touch", "/gpurun/work/go")
            await world.expect_check("gpurun / smoke", "success")
            body = await world.expect_comment("✅ passed")
        pages = [await world.page(body, suffix) for suffix in ("", "log", "log.raw", "facts", "live")]
        log, read_key = kept_log(world), re.search(r"\?key=([\w-]+)", body)[1]
        secrets = secrets_of(world)
        claim = claim_token(world)
        places = {
            "container": repr(inspected).replace(claim, ""),  # its own token is how it gets in
            "image": repr(engine.inspect_image(image)) + repr(engine.history(image)),
            "log": log,
            "pages": "".join(page.text for page in pages),
            "comments": body,
            "command lines": "\n".join(command_lines),
            "bot's log": world.bot.output(),
            "rows": rows(world),
        }
        for where, text in places.items():
            assert text
            found = [secret for secret in (*secrets, claim, claim.partition(".")[2]) if secret in text]
            assert not found, f"{found} in {where}"
        assert any(" fetch " in line for line in command_lines), "nobody saw git"
        for where in ("container", "image", "log", "command lines", "bot's log"):
            assert read_key not in places[where], where
        assert answers(log) == {
            "/": 404, "/github": 404, "/healthz": 404, "/runs/x?key=": 404, "/agent/v1/../../healthz": 404,
            "/agent/v1/%2e%2e/x": 404, "//agent/v1/source": 404, "/agent/v1/source": 401,
            "/agent/v1/models/0/config.json": 401, "/agent/v1/claim": 400, "/agent/v1/finish": 401,
        }  # fmt: skip
        assert open_to_others(tmp_path / "state") == []


MISCHIEF = "<script>alert(1)</script><img src=x onerror=alert(2)>'\"</pre></title></details>"

CONTROLS = "\x1b]0;title\x07\x1b[31m@acme/all fixes #1 ``` ````` \u202eevil"


async def test_b127_what_a_job_says_stays_text(tmp_path, base_images):
    name = "<img src=x onerror=alert(3)>.html"
    async with open_world(tmp_path, image=base_images.python) as world:
        world.jobs(
            {"say.txt": f"{MISCHIEF}\n{CONTROLS}\n```\n/gpurun smoke\n", name: MISCHIEF},
            smoke={
                "run": f"cat say.txt\necho '{MISCHIEF.replace(chr(39), '')}' >&2",
                "env": {"A": MISCHIEF},
                "setup": f": <<'END'\n{MISCHIEF}\nEND",
                "artifacts": ["*.html"],
            },
        )
        world.comment("/gpurun smoke")
        await world.expect_check("gpurun / smoke", "success")
        body = await world.expect_comment("✅ passed")
        page = await world.page(body)
        found = Elements.of(page.text)
        assert found.names.count("script") == 1  # ours
        assert "img" not in found.names
        assert not [name for name, _ in found.attributes if name.startswith("on")]
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "unsafe-inline" not in page.headers["content-security-policy"]
        links = [value for name, value in found.attributes if name == "href" and value and "/artifacts/1/" in value]
        (link,) = [value for value in links if not value.partition("?")[0].endswith("/gpurun/installed.txt")]
        artifact = await world.page(f"]({world.url}{link})")
        assert artifact.text == MISCHIEF
        assert artifact.headers["content-type"] == "application/octet-stream"
        assert artifact.headers["content-disposition"].startswith("attachment;")
        assert "sandbox" in artifact.headers["content-security-policy"]
        for suffix in ("log", "log.raw", "live"):
            answer = await world.page(body, suffix)
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-type"].partition(";")[0] in {"text/plain", "application/json"}
            assert "sandbox" in answer.headers["content-security-policy"]
        assert not re.search(r"(?m)^/gpurun", body.split("```")[0])


class Elements(HTMLParser):
    """What a browser makes of a page, but for what stands inside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    @classmethod
    def of(cls, html: str) -> Elements:
        found = cls()
        found.feed(html)
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs


@contextmanager
def watched_command_lines():
    """Those of every process of this machine that lives long enough to be seen."""
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
                except OSError:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def secrets_of(world: World) -> list[str]:
    """The bot's own, and what it got for them."""
    app = world.github.app
    key = [line for line in app.private_key.get_secret_value().splitlines() if len(line) > 40]
    return [CANARY, HUB_CANARY, app.webhook_secret.get_secret_value(), *world.github.tokens, *key]


def ask(world: World, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"file:{world.database}?mode=ro", uri=True)) as database:
        return list(database.execute(question))


def claim_token(world: World) -> str:
    ((secret,),) = ask(world, "SELECT install_secret FROM meta")
    ((attempt,),) = ask(world, "SELECT id FROM attempt")
    return tokens.claim_token(bytes(secret), str(attempt))


def kept_log(world: World) -> str:
    chunks = ask(world, "SELECT data FROM chunk WHERE name = 'log' ORDER BY \"offset\"")
    return b"".join(bytes(data) for (data,) in chunks).decode("utf-8", "replace")


def rows(world: World) -> str:
    """Everything that is stored."""
    tables = ask(world, "SELECT name FROM sqlite_master WHERE type = 'table'")
    cells = [cell for (table,) in tables for row in ask(world, f'SELECT * FROM "{table}"') for cell in row]
    return "\n".join(cell.decode("latin-1") if isinstance(cell, bytes) else str(cell) for cell in cells)


def answers(log: str) -> dict[str, int]:
    """Status by path, of what the job asked through its socket."""
    return {path: int(status) for path, status in re.findall(r"asked \w+ (\S+) (\d+)", log)}


def open_to_others(folder: Path) -> list[str]:
    """Files with a mode that lets other users in, but for what stands in a folder that does not."""
    found = []
    for path in sorted(folder.iterdir()):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode) and not mode & 0o077:
            continue
        if path.name == "agent":  # the same for everybody, and no secret
            continue
        if mode & 0o077:
            found.append(f"{path.name} {stat.S_IMODE(mode):o}")
    return found
