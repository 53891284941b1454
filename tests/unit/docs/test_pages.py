"""What the pages tell people to type, write and open is there."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
import yaml
from click.testing import CliRunner

from gpurun.cli.main import cli
from gpurun.command.parse import parse
from gpurun.domain.errors import CommandError
from gpurun.http.webhook import PATH
from gpurun.plan.load import load
from gpurun.provider_kit import boot
from gpurun.settings import Settings
from tests.unit.docs.pages import ROOT, fences, inline_code, links, name_of, pages, tracked

COMMAND = re.compile(r"(?:ExecStart=)?(?:sudo -u \S+ )?(?:\S+/)?gpurun ([a-z].*?)(?:\s+#.*)?")
SETTING = re.compile(r"\bGPURUN_[A-Z][A-Z_]*[A-Z]\b")

YAML_BLOCKS = [
    pytest.param(text, id=f"{name_of(page)}-{number}")
    for page in pages()
    for number, (language, text) in enumerate(fences(page))
    if language == "yaml" and re.match(r"(?:#.*\n)*version:", text)
]
COMMANDS = sorted(
    {
        found[1]
        for page in pages()
        for line in [*(line for _, text in fences(page) for line in text.splitlines()), *inline_code(page)]
        if (found := COMMAND.fullmatch(line.strip()))
    }
)
COMMENTS = sorted({code for page in pages() for code in inline_code(page) if f"{code} ".startswith("/gpurun ")})
READ = [
    *pages(),
    *(path for path in tracked() if path.name in {"app.yml", "Dockerfile"} or path.is_relative_to(ROOT / "bot/gpurun")),
]


@pytest.mark.parametrize("text", YAML_BLOCKS)
def test_each_file_that_is_shown_can_be_used(text):
    assert load(text.replace("sha256:…", "sha256:" + "0" * 64).replace("40 hex digits", "0" * 40)).jobs


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_line_exists(line):
    done = CliRunner().invoke(cli, [*line.replace("…", "").split(), "--help"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("line", COMMENTS)
def test_each_comment_that_is_shown_is_understood(line):
    # in a table of usage `<job>` stands for a name, and `[job]` for one that may be left out
    values = {
        "<commit>": "a" * 40,
        "<40 hex>": "a" * 40,
        "sha=…": f"sha={'a' * 40}",
        "max-cost=…": "max-cost=1",
        "<usd>": "1",
        "<2..5>": "3",
    }
    values |= {"<size>": "24GB", "<id>": "docker", "<run id>": "01kdrun0000000000000000001", "[job or run id]": "[job]"}
    typed = line
    for shown, value in values.items():
        typed = typed.replace(shown, value)
    plain = re.sub(r"\[([\w-]+=[^]]+)\]", r"\1", re.sub(r"<\w+>|\[\w+\]", "smoke", typed))
    (understood,) = parse(plain.replace("…", "x").strip())
    assert not isinstance(understood, CommandError) or "not in this version" in str(understood)


def test_the_pages_show_enough_to_be_worth_this_test():
    assert len(YAML_BLOCKS) >= 4
    assert {"run smoke", "serve", "validate", "audit verify", "db adopt", "db upgrade", "db check"} <= set(COMMANDS)
    assert "/gpurun cancel" in COMMENTS


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_each_relative_link_leads_somewhere(page):
    targets = [target for target in links(page) if not urlsplit(target).scheme and not target.startswith("#")]
    missing = [target for target in targets if not (page.parent / target.partition("#")[0]).exists()]
    assert missing == []


def test_each_variable_that_is_named_exists():
    known = {f"GPURUN_{name.upper()}" for name in Settings.model_fields}
    known |= {value for name, value in vars(boot).items() if name.startswith("ENV_")}
    known |= {"GPURUN_PAUSE"}  # of the boot script, for its tests
    unknown = {
        (name_of(path), name)
        for path in READ
        if path.suffix in {".md", ".yml", ".py", ".sh", ""}
        for name in SETTING.findall(path.read_text("utf-8"))
        if name not in known
    }
    assert unknown == set()


def test_deliveries_go_where_the_server_takes_them():
    manifest = yaml.safe_load((ROOT / "app.yml").read_text())
    path = urlsplit(manifest["hook_attributes"]["url"]).path
    assert path == PATH
    told = {
        urlsplit(url).path
        for page in pages()
        for url in re.findall(r"[Ww]ebhook URL: `([^`]+)`", page.read_text("utf-8"))
    }
    assert told == {path}


def test_events_to_watch_are_events_of_the_log():
    guide = (ROOT / "docs/guides/serve.md").read_text("utf-8").partition("## What to watch")[2]
    named = {name for row in re.findall(r"^\| (`.*?`) \|", guide, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "bot/gpurun").rglob("*.py"))
    assert len(named) > 5
    assert {name for name in named if f'"{name}"' not in sources} == set()
