# ruff: noqa: E501 - snapshots hold lines as they are

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from markdown_it import MarkdownIt

from gpurun.command.parse import parse
from gpurun.domain.errors import CommandError, ConfigError
from gpurun.domain.run import Verdict
from gpurun.domain.stream import Artifact
from gpurun.report import reply
from gpurun.report.check import render_check
from gpurun.report.comment import marker, minimal_comment, render_comment
from gpurun.report.facts import RunFacts
from gpurun.report.limits import COMMENT_BYTES
from gpurun.report.pieces import LOG_BYTES
from gpurun.report.reply import Place
from gpurun.report.terminal import render_terminal
from tests.unit.report.situations import ARTIFACTS, BASE, FULL, MODEL, OFFER, SITUATIONS, ended

GITHUB_LIMIT = 65_536


def opening(name):
    """What stands above the first table."""
    return render_comment(SITUATIONS[name]).split("\n\n|")[0]


def test_passed():
    assert render_comment(SITUATIONS["passed"]) == snapshot("""\
### gpurun smoke: ✅ passed · 41 s · $0.00 (declared) · local Docker

| pinned |  |
| --- | --- |
| commit | [`4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c`](https://github.com/org/app/commit/4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c), tree `9b1d9b1d9b1d` |
| image | `ghcr.io/org/app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef` |
| model | [`minishlab/potion-base-8M@0123456789012345678901234567890123456789`](https://huggingface.co/minishlab/potion-base-8M/tree/0123456789012345678901234567890123456789), 2 files, 16.0 MB |
| plan | `sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210` |

| plan and queue | boot | source | models | setup | run | collect | clear up |
| --- | --- | --- | --- | --- | --- | --- | --- |
| 1.6 s | 4.4 s | 0.3 s | 1.6 s | 12 s | 20 s | 0.6 s | 0.7 s |

**Cost** $0.00 = 36 s × $0.00/h; the declared price of local Docker, time by our clock.

**Metrics** (33 samples; low / mean / high)

- GPU 0: use 0 / 57 / 98 %, VRAM peak 11.0 GiB of 24.0 GiB, power 22 / 180 / 310 W
- machine: CPU 3 / 37 / 99 %, RAM peak 1.3 GiB of 32.0 GiB

**Artifacts** ([all](https://gpurun.example/runs/01kebgx0000000000000000001/artifacts/1.tar?key=k), 214 B): [`out/metrics.json`](https://gpurun.example/runs/01kebgx0000000000000000001/artifacts/1/out/metrics.json?key=k) 214 B

Manifest `sha256:fd43b869ac19a87781cf2f2c3ef4ceaf860f5cc4075aa5ee2a060a4e509dcbf9`

<details><summary>Log</summary>

```text
loading weights
ready
checksum 8d5c6a12
```

</details>

To run it again, write `/gpurun smoke`.

[Run page: full log, metrics, artifacts](https://gpurun.example/runs/01kebgx0000000000000000001?key=k) · run `01kebgx0000000000000000001` · asked by `alice`\
""")


def test_failed():
    assert render_comment(SITUATIONS["failed"]) == snapshot("""\
### gpurun smoke: ❌ failed · 41 s · $0.00 (declared) · local Docker

`run` ended with exit code 1.

`ValueError: loss is nan, see @acme/all fixes #1`

| pinned |  |
| --- | --- |
| commit | [`4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c`](https://github.com/org/app/commit/4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c), tree `9b1d9b1d9b1d` |
| image | `ghcr.io/org/app@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef` |
| model | [`minishlab/potion-base-8M@0123456789012345678901234567890123456789`](https://huggingface.co/minishlab/potion-base-8M/tree/0123456789012345678901234567890123456789), 2 files, 16.0 MB |
| plan | `sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210` |

| plan and queue | boot | source | models | setup | run | collect | clear up |
| --- | --- | --- | --- | --- | --- | --- | --- |
| 1.6 s | 4.4 s | 0.3 s | 1.6 s | 12 s | 20 s | 0.6 s | 0.7 s |

**Cost** $0.00 = 36 s × $0.00/h; the declared price of local Docker, time by our clock.

**Metrics** (33 samples; low / mean / high)

- GPU 0: use 0 / 57 / 98 %, VRAM peak 11.0 GiB of 24.0 GiB, power 22 / 180 / 310 W
- machine: CPU 3 / 37 / 99 %, RAM peak 1.3 GiB of 32.0 GiB

**Artifacts** ([all](https://gpurun.example/runs/01kebgx0000000000000000001/artifacts/1.tar?key=k), 214 B): [`out/metrics.json`](https://gpurun.example/runs/01kebgx0000000000000000001/artifacts/1/out/metrics.json?key=k) 214 B

Manifest `sha256:fd43b869ac19a87781cf2f2c3ef4ceaf860f5cc4075aa5ee2a060a4e509dcbf9`

<details open><summary>Log, last 5 lines of 4.5 MB</summary>

The whole log is on the [run page](https://gpurun.example/runs/01kebgx0000000000000000001?key=k).

```text
step 1
Traceback (most recent call last):
  File "smoke.py", line 3, in <module>
    check(loss)
ValueError: loss is nan, see @acme/all fixes #1
```

</details>

To try again, write `/gpurun smoke`. `/gpurun help` shows all commands.

[Run page: full log, metrics, artifacts](https://gpurun.example/runs/01kebgx0000000000000000001?key=k) · run `01kebgx0000000000000000001` · asked by `alice`\
""")


def test_refused_for_its_file():
    assert render_comment(SITUATIONS["refused for its file"]) == snapshot("""\
### gpurun smoke: ⛔ refused · 41 s

`jobs.smoke.image`: 'python:3.12' names an image by tag, and a tag can move. Write it with its digest, name@sha256:…

.gpurun.yml, line 4:

```yaml
4 |     image: python:3.12
```

| pinned |  |
| --- | --- |
| commit | [`4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c`](https://github.com/org/app/commit/4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c) |

Correct the file, push, then write `/gpurun smoke`.

[Run page: full log, metrics, artifacts](https://gpurun.example/runs/01kebgx0000000000000000001?key=k) · run `01kebgx0000000000000000001` · asked by `alice`\
""")


STARTER = (
    "version: 1\njobs:\n  smoke:\n    image: docker.io/library/python:3.12-slim\n    run: python3 -m pytest -q tests"
)


def without_a_file(starter=STARTER):
    run = ended(Verdict.REFUSED, reason="config", detail="There is no file.", run=replace(BASE.run, config_text=None))
    return replace(BASE, run=replace(run, pins=replace(run.pins, starter=starter)))


def test_a_file_to_begin_with():
    assert render_comment(without_a_file()).split("\n\n|")[0] == snapshot("""\
### gpurun smoke: ⛔ refused · 41 s

There is no file.

To begin with, write this into `.gpurun.yml`, let `gpurun lock` pin what it names, and commit both files. `gpurun init` writes a longer one, with the reasons.

```yaml
version: 1
jobs:
  smoke:
    image: docker.io/library/python:3.12-slim
    run: python3 -m pytest -q tests
```

[All keys](https://github.com/gpurun/gpurun/blob/main/docs/reference/gpurun-yml.md)\
""")
    assert "\n\nAdd the file, push, then write `/gpurun smoke`.\n\n" in render_comment(without_a_file())


def test_a_file_to_begin_with_stays_in_its_block():
    foreign = "version: 1\n```\n/gpurun cancel\n@acme/all fixes #1 </details>\n" + "x" * 100_000 + "\n" * 100
    comment = render_comment(without_a_file(foreign))
    blocks = [token.content for token in MarkdownIt().parse(comment) if token.type == "fence"]
    assert any("/gpurun cancel" in block and "@acme/all" in block for block in blocks)
    assert len(comment.encode()) <= COMMENT_BYTES


def test_how_every_situation_opens():
    assert {name: opening(name) for name in SITUATIONS} == snapshot(
        {
            "planning": """\
### gpurun smoke: ⏳ pinning

**pinning** since 12:00:00 UTC: the commit\
""",
            "queued": """\
### gpurun smoke: ⏳ queued

**queued** since 12:00:01 UTC: Waiting for a free place on local Docker.\
""",
            "preparing": """\
### gpurun smoke: ⏳ preparing · local Docker

**preparing** since 12:00:01 UTC: pulling image 43 %\
""",
            "booting": """\
### gpurun smoke: ⏳ booting · $0.00 (declared) · local Docker

**booting** since 12:00:05 UTC\
""",
            "running": """\
### gpurun smoke: ⏳ running · $0.00 (declared) · local Docker

**running** since 12:00:20 UTC\
""",
            "quiet": """\
### gpurun smoke: ⏳ running · $0.00 (declared) · local Docker

**running** since 12:00:20 UTC: quiet for 1 m 15 s\
""",
            "stopping": """\
### gpurun smoke: ⏳ stopping · $0.00 (declared) · local Docker

**stopping** since 12:00:20 UTC: cancelled by bob\
""",
            "waiting for approval": """\
### gpurun smoke: ✋ waiting for approval

**waiting for approval** since 12:00:01 UTC\
""",
            "paused": """\
### gpurun smoke: ⏸️ paused

**paused** since 12:00:00 UTC\
""",
            "passed": "### gpurun smoke: ✅ passed · 41 s · $0.00 (declared) · local Docker",
            "passed at the second try": "### gpurun smoke: ✅ passed · 41 s · $0.0079 · RTX 4090 (RunPod, secure)",
            "failed": """\
### gpurun smoke: ❌ failed · 41 s · $0.00 (declared) · local Docker

`run` ended with exit code 1.

`ValueError: loss is nan, see @acme/all fixes #1`\
""",
            "killed": """\
### gpurun smoke: ❌ failed · 41 s · $0.00 (declared) · local Docker

`run` ended with exit code 137: killed (SIGKILL), most often because memory ran out.\
""",
            "setup failed": """\
### gpurun smoke: ❌ failed · 41 s · $0.00 (declared) · local Docker

`setup` ended with exit code 127: a command was not found; install it in `setup` or in the image, or correct its name.

`sh: pipp: not found`\
""",
            "weights mismatch": """\
### gpurun smoke: ❌ failed · 41 s · $0.00 (declared) · local Docker

model.safetensors of minishlab/potion-base-8M is not what its hash says.\
""",
            "timed out": """\
### gpurun smoke: ⌛ timed out · 41 s · $0.00 (declared) · local Docker

Stopped: it ran longer than `max_duration` (20 m 00 s).\
""",
            "lost": """\
### gpurun smoke: ⚠️ lost (our side) · 41 s · $0.00 (declared) · local Docker

The instance ended while the job ran.\
""",
            "no capacity": """\
### gpurun smoke: ⚠️ lost (our side) · 41 s

No provider offers 2 GPUs.\
""",
            "cancelled": """\
### gpurun smoke: 🚫 cancelled · 41 s · $0.00 (declared) · local Docker

Cancelled by bob.\
""",
            "superseded": """\
### gpurun smoke: 🚫 cancelled · 41 s · $0.00 (declared) · local Docker

A newer run of this job took its place.\
""",
            "refused for its file": """\
### gpurun smoke: ⛔ refused · 41 s

`jobs.smoke.image`: 'python:3.12' names an image by tag, and a tag can move. Write it with its digest, name@sha256:…

.gpurun.yml, line 4:

```yaml
4 |     image: python:3.12
```\
""",
            "refused for a pin": """\
### gpurun smoke: ⛔ refused · 41 s

The registry has no such manifest.\
""",
            "approval expired": """\
### gpurun smoke: ⛔ refused · 41 s

Nobody approved the run in 13 days.\
""",
        }
    )


def test_how_every_situation_ends():
    assert {name: render_comment(facts).split("\n\n")[-2] for name, facts in SITUATIONS.items()} == snapshot(
        {
            "planning": "To stop it, write `/gpurun cancel smoke`.",
            "queued": "To stop it, write `/gpurun cancel smoke`.",
            "preparing": "To stop it, write `/gpurun cancel smoke`.",
            "booting": "To stop it, write `/gpurun cancel smoke`.",
            "running": "To stop it, write `/gpurun cancel smoke`.",
            "quiet": "To stop it, write `/gpurun cancel smoke`.",
            "stopping": "**Cost** $0.00 = 36 s × $0.00/h; the declared price of local Docker, time by our clock.",
            "waiting for approval": "To give it up, write `/gpurun cancel smoke`.",
            "paused": "To stop it, write `/gpurun cancel smoke`.",
            "passed": "To run it again, write `/gpurun smoke`.",
            "passed at the second try": "To run it again, write `/gpurun smoke`.",
            "failed": "To try again, write `/gpurun smoke`. `/gpurun help` shows all commands.",
            "killed": "To try again, write `/gpurun smoke`. `/gpurun help` shows all commands.",
            "setup failed": "To try again, write `/gpurun smoke`. `/gpurun help` shows all commands.",
            "weights mismatch": "To try again, write `/gpurun smoke`. `/gpurun help` shows all commands.",
            "timed out": "To try again, write `/gpurun smoke`. `/gpurun help` shows all commands.",
            "lost": "To try again, write `/gpurun smoke`. `/gpurun help` shows all commands.",
            "no capacity": "To try again, write `/gpurun smoke`. `/gpurun help` shows all commands.",
            "cancelled": "To try again, write `/gpurun smoke`. `/gpurun help` shows all commands.",
            "superseded": "To try again, write `/gpurun smoke`. `/gpurun help` shows all commands.",
            "refused for its file": "Correct the file, push, then write `/gpurun smoke`.",
            "refused for a pin": "To try again, write `/gpurun smoke`. `/gpurun help` shows all commands.",
            "approval expired": "To try again, write `/gpurun smoke`. `/gpurun help` shows all commands.",
        }
    )


def test_an_earlier_attempt_is_told():
    assert "| 1 | RTX 4090 (RunPod, secure) | lost: No RTX 4090 is free. |" in (
        render_comment(SITUATIONS["passed at the second try"])
    )


def test_an_instance_that_may_still_live_is_told():
    assert "**Not confirmed gone:** `gpurun-abcd1234-" in render_comment(SITUATIONS["lost"])


def test_without_a_run_page_and_forge_there_are_no_links():
    facts = replace(FULL, run_url="", forge_url="", hub_url="")
    assert "](" not in render_comment(facts)


@pytest.mark.parametrize("name", SITUATIONS)
def test_b012_no_comment_calls_the_bot(name):
    assert parse(render_comment(SITUATIONS[name])) == ()
    assert parse(minimal_comment(SITUATIONS[name])) == ()


def test_b031_the_end_of_a_long_log_stays_and_says_that_it_was_cut():
    log = b"x" * 200_000 + b"\nFINAL_LOSS=0.12\n"
    comment = render_comment(replace(FULL, log_tail=log[-65_536:], log_size=len(log)))
    assert "FINAL_LOSS=0.12" in comment
    assert "Log, last 2 lines of 200 kB" in comment
    assert "bytes cut" in comment
    assert "The whole log is on the [run page](https://" in comment


def test_a_log_of_many_lines_shows_the_last_fifty():
    log = b"".join(b"line %d\n" % n for n in range(1000))
    comment = render_comment(replace(FULL, log_tail=log, log_size=len(log)))
    assert "line 950\n" in comment
    assert "line 949\n" not in comment
    assert "Log, last 50 lines" in comment


HOSTILE = [
    "</details>",
    "```\n```` ``` `",
    "@acme/all fixes #1, closes acme/other#2, GH-3 https://github.com/acme/net/pull/9",
    "\u202eevil\u2066",
    "clip \x1b]52;c;ZXZpbA==\x07",
    "![x](http://evil.test/x.png) [a](javascript:alert(1)) <img src=x onerror=y> <!-- x",
    "| a | b |\n| - | - |",
    "/gpurun smoke",
    "\n/gpurun smoke\n",
    "# heading\n---\n* * *\n- /gpurun smoke\n> quote",
    "$\\ce{x}$ ~~x~~ **x** __x__ &lt;b&gt; \\`",
    "www.evil.test a@b.test",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("where", ["detail", "log", "label", "artifact", "who", "preparing", "cancelled by"])
def test_b127_foreign_text_stays_data(text, where):
    """The rendered page has the links, tags and lines of the same comment with harmless text, and nothing more."""

    def comment(foreign):
        run, attempt = FULL.run, FULL.attempts[0]
        facts = {
            "detail": replace(FULL, run=ended(Verdict.LOST, detail=foreign)),
            "log": replace(FULL, log_tail=foreign.encode(), log_size=len(foreign.encode())),
            "label": replace(FULL, attempts=(replace(attempt, offer=replace(OFFER, label=foreign)),)),
            "artifact": replace(FULL, artifacts=(replace(ARTIFACTS[0], path=foreign),)),
            "who": replace(FULL, run=replace(run, who=foreign, also_asked=(foreign,))),
            "preparing": replace(
                SITUATIONS["preparing"], attempts=(replace(SITUATIONS["preparing"].attempts[0], preparing=foreign),)
            ),
            "cancelled by": replace(FULL, run=ended(Verdict.CANCELLED, cancel_by=foreign)),
        }
        return render_comment(facts[where])

    assert parse(comment(text)) == ()
    assert shape(comment(text)) == shape(comment("harmless"))
    assert not set(comment(text)) & set("\x1b\x07\u202e\u2066")


def address(value):
    """An artifact's own path is part of its address: escaped, and always below the page of its run."""
    match = re.fullmatch(r"(https://gpurun\.example/runs/\w+/artifacts/1/)[\w.~%/-]*(\?key=k)", str(value), re.ASCII)
    return match[1] + match[2] if match else value


def shape(markdown):
    """Kinds and addresses of everything that is no text."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)
    found = []
    for token in tokens:
        assert "@acme" not in "".join(child.content for child in token.children or () if child.type == "text")
        assert "#1" not in "".join(child.content for child in token.children or () if child.type == "text")
        found.append(token.type)
        found += [
            (child.type, {name: address(value) for name, value in child.attrs.items()})
            for child in token.children or ()
            if child.type not in ("text", "code_inline")
        ]
        if token.type == "html_block":
            found.append(token.content)
    return found


any_text = st.text(max_size=300) | st.sampled_from(HOSTILE)
big = st.integers(0, 400)


@given(detail=any_text, log=st.binary(max_size=2000) | st.sampled_from(HOSTILE).map(str.encode), times=big, count=big)
def test_b031_no_comment_is_ever_too_long(detail, log, times, count):
    facts = replace(
        FULL,
        run=replace(
            ended(Verdict.FAILED, reason="x", detail=detail * times, error_line=1, config_text=detail * times),
            also_asked=(detail or "x",) * count,
        ),
        log_tail=log * times,
        log_size=len(log * times),
        artifacts=tuple(Artifact(path=detail * 10, size=n, sha256="e" * 64, blob="x") for n in range(count)),
        attempts=FULL.attempts * max(1, count),
        costs=FULL.costs * count,
    )
    for comment in (render_comment(facts), minimal_comment(facts)):
        whole = f"{comment}\n\n{marker('n' * 40)}"
        assert len(comment.encode()) <= COMMENT_BYTES
        assert len(whole.encode()) < GITHUB_LIMIT
        assert parse(whole) == ()


def test_many_models_are_counted_not_listed():
    plan = replace(FULL.run.plan, models=(MODEL,) * 500)
    comment = render_comment(replace(FULL, run=replace(FULL.run, plan=plan)))
    assert "and 480 more models" in comment
    assert len(comment.encode()) < LOG_BYTES


def test_the_marker_is_hidden_and_stable():
    assert marker("a--b") == '<!-- {"gpurun":"a\\u002d\\u002db"} -->'
    assert MarkdownIt("commonmark").parse(marker("x"))[0].type == "html_block"


def test_the_minimal_comment_holds_verdict_reason_and_page():
    assert minimal_comment(SITUATIONS["lost"]) == snapshot("""\
### gpurun smoke: ⚠️ lost (our side) · 41 s · $0.00 (declared) · local Docker

The instance ended while the job ran.

Everything else is on the [run page](https://gpurun.example/runs/01kebgx0000000000000000001?key=k).\
""")


def test_replies():
    fault = CommandError("`x` is no command.", hint="Try `/gpurun help`.")
    lines = [
        reply.error(fault),
        reply.error(ConfigError("unknown key `a`.", hint="See @acme/all <b>.")),
        reply.unknown_job("smok", [Place(folder="", jobs=("smoke", "eval"))], "/gpurun smoke", all_seen=True),
        reply.unknown_job("zzz", [Place(folder="", jobs=("smoke",))], None, all_seen=True),
        reply.nothing_to_cancel("smoke"),
        reply.nothing_to_cancel(None),
        reply.closed(),
        reply.gave_up(),
        reply.not_allowed_to_look(),
    ]
    assert reply.join(lines) == snapshot("""\
- `x` is no command. Try `/gpurun help`.
- unknown key `a`. See @\u200bacme/all \\<b\\>.
- There is no job `smok` in `.gpurun.yml`. Did you mean `/gpurun smoke`? Jobs: `smoke`, `eval`.
- There is no job `zzz` in `.gpurun.yml`. Jobs: `smoke`.
- No run of `smoke` is going on for this pull request, so there was nothing to cancel.
- No run is going on for this pull request, so there was nothing to cancel.
- This pull request is closed, so nothing was started. Its author, and people with write access, can reopen it when it was not merged; else write the command on an open one.
- This comment was not acted on: GitHub did not answer several times, or gpurun itself failed. Write the command again. When that fails, too, whoever runs gpurun finds the reason in its log.
- This comment was not acted on: GitHub did not let gpurun read what it needs for that. Perhaps an owner of this account has to accept new permissions of the App, or whoever runs gpurun finds the call in its log.\
""")
    assert parse(reply.join(lines)) == ()


FOLDER = "my_pkg/@acme/#1-é*[x]"


def in_a_folder(name: str) -> RunFacts:
    facts = SITUATIONS[name]
    return replace(facts, run=replace(facts.run, folder=FOLDER))


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_job_of_a_sub_folder_is_named_with_it_and_its_commands_carry_it(name):
    body = render_comment(in_a_folder(name))
    assert body.startswith("### gpurun smoke (my_pkg/@\u200bacme/\\#\u200b1-é\\*\\[x\\]): ")
    typed = [code for code in re.findall(r"`(/gpurun [^`]*)`", body) if code != "/gpurun help"]
    assert bool(typed) is (name != "stopping")  # which has been told to stop, so there is nothing to type
    for one in typed:
        (command,) = parse(one)
        assert command.path == FOLDER
    assert parse(body) == ()


def test_the_file_of_a_sub_folder_is_named_with_its_path():
    body = render_comment(in_a_folder("refused for its file"))
    assert "/.gpurun.yml, line 4:" in body
    check = render_check(in_a_folder("refused for its file"))
    assert check.name == f"gpurun / smoke ({FOLDER})"
    assert [note.path for note in check.annotations] == [f"{FOLDER}/.gpurun.yml"]
    assert render_terminal(in_a_folder("passed")).headline.startswith(f"gpurun smoke ({FOLDER}): ")


def test_one_reply_for_several_lines():
    assert reply.join(["one"]) == "one"
    assert reply.join(["one", "one"]) == "one"
    assert reply.join(["| a |\n|---|", "one", "two"]) == "- one\n- two\n\n| a |\n|---|"


@given(st.lists(any_text, max_size=60))
def test_no_reply_is_too_long_or_a_command(texts):
    said = reply.join([reply.error(CommandError(text * 200)) for text in texts] or ["nothing"])
    assert len(said.encode()) <= COMMENT_BYTES
    assert parse(said) == ()


def test_base_has_no_attempt_and_still_renders():
    assert BASE.attempt is None
    assert render_comment(BASE).startswith("### gpurun smoke: ⏳ pinning")
