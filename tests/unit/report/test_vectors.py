"""Every text of others in every place where it is shown, looked at with GitHub's own rules."""

# ruff: noqa: E501 - what is shown is not broken into lines

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from gpurun.command.parse import parse
from gpurun.domain.errors import ConfigError
from gpurun.domain.gate import Pause
from gpurun.domain.ids import JobName
from gpurun.domain.run import Fault, ResultKind, Verdict
from gpurun.domain.text import clean
from gpurun.report import reply
from gpurun.report.check import minimal_check, render_check
from gpurun.report.comment import marker, minimal_comment, render_comment
from gpurun.report.facts import Queue, RunFacts
from gpurun.report.limits import CHECK_BYTES, COMMENT_BYTES, TITLE_BYTES
from gpurun.report.overview import JobLine, jobs_text, log_text, status_text
from gpurun.report.terminal import Places, render_terminal
from gpurun.report.text import code, fenced, plain, prose
from tests.unit.report.situations import (
    ARTIFACTS,
    DONE,
    FULL,
    OFFER,
    PLANNING,
    QUEUED,
    SITUATIONS,
    ended,
    with_result,
)
from tests.unit.report.vectors import INVISIBLE, VECTORS, faults, html, text_faults

OURS = ("https://gpurun.example/", "https://github.com/", "https://huggingface.co/")


def everywhere(text: str) -> dict[str, RunFacts]:
    """A run whose every foreign text is this one, a place at a time."""
    data = text.encode("utf-8", "replace")
    failed = replace(FULL, run=ended(Verdict.FAILED, reason="exit"))
    told = with_result(ResultKind.FAILED, exit_code=1, reason="exit", detail=f"GPU trouble: {text} (once).")
    refused = ended(Verdict.REFUSED, reason="config", run=PLANNING, error_line=2)
    model = replace(FULL.run.plan.models[0], id=text or "x")
    plan = replace(FULL.run.plan, models=(model,))
    return {
        "why it was lost": replace(FULL, run=ended(Verdict.LOST, detail=text)),
        "why it was refused": replace(FULL, run=ended(Verdict.REFUSED, detail=text)),
        "log": replace(failed, log_tail=data, log_size=len(data)),
        "the line that says most": replace(
            failed, attempts=(told,), log_tail=b"Traceback (most recent call last):\nError: " + data, log_size=10**6
        ),
        "what the agent said": replace(failed, attempts=(replace(told, number=1), told)),
        "offer": replace(FULL, attempts=(replace(DONE, offer=replace(OFFER, label=text)),)),
        "artifact": replace(FULL, artifacts=(replace(ARTIFACTS[0], path=clean(text) or "x"),)),
        "not kept": replace(FULL, attempts=(replace(DONE, result=replace(DONE.result, left_out=text)),)),
        "who": replace(FULL, run=replace(FULL.run, who=text, also_asked=(text, text))),
        "who cancelled": replace(FULL, run=ended(Verdict.CANCELLED, cancel_by=text)),
        "who cancels": replace(
            SITUATIONS["stopping"], run=replace(SITUATIONS["stopping"].run, cancel_by=text)
        ),
        "preparing": replace(
            SITUATIONS["preparing"], attempts=(replace(SITUATIONS["preparing"].attempts[0], preparing=text),)
        ),
        "queued": replace(SITUATIONS["queued"], run=replace(QUEUED, detail=text)),
        "trying again": replace(SITUATIONS["planning"], run=replace(PLANNING, tries=1, last_error=text)),
        "notes": replace(FULL, run=replace(FULL.run, notes=(text,))),
        "faults of the file": replace(
            SITUATIONS["refused for its file"],
            run=replace(
                refused,
                detail=text,
                config_text=f"version: 1\n{text}",
                faults=tuple(Fault(file=".gpurun.yml", line=n, text=text) for n in (2, 3)),
            ),
        ),
        "starter": replace(
            SITUATIONS["planning"], run=ended(Verdict.REFUSED, reason="config", run=replace(
                PLANNING, pins=replace(PLANNING.pins, starter=text)))
        ),
        "model": replace(FULL, run=replace(FULL.run, plan=plan)),
        "instance": replace(
            FULL,
            run=ended(Verdict.LOST),
            attempts=(replace(DONE, gone_at=None, unconfirmed_at=DONE.gone_at, name=text),),
        ),
    }  # fmt: skip


PLACES = tuple(everywhere("x"))
BY_PROVIDER = ("why it was lost", "offer", "preparing", "trying again", "instance", "queued")
BY_CONFIG = ("why it was refused", "faults of the file", "starter", "notes", "model")
BY_JOB = ("log", "the line that says most", "what the agent said", "artifact", "not kept")
BY_PEOPLE = ("who", "who cancelled", "who cancels")


def only_shown(facts: RunFacts) -> None:
    """In comment and check, in the short forms of both, and on a terminal."""
    for body in (render_comment(facts), minimal_comment(facts)):
        assert faults(body, links=OURS) == []
        assert parse(f"{body}\n\n{marker('n')}") == ()
        assert len(body.encode()) <= COMMENT_BYTES
    for check in (render_check(facts), minimal_check(facts)):
        assert faults(check.summary, links=OURS) == []
        assert faults(check.text, links=OURS) == []
        told = [check.title, *(note.message for note in check.annotations), *(n.title for n in check.annotations)]
        assert [fault for one in told for fault in text_faults(one)] == []
        assert not INVISIBLE.search("".join(told))
    report = render_terminal(facts, places=Places(folder=facts.run.who))
    assert not INVISIBLE.search(f"{report.headline}{report.because}{report.table}".replace("\n", ""))


def test_every_place_has_somebody_who_writes_there():
    assert sorted(BY_PROVIDER + BY_CONFIG + BY_JOB + BY_PEOPLE) == sorted(PLACES)


@pytest.mark.parametrize("vector", VECTORS)
def test_malicious_provider_response_is_only_shown(vector):
    for place in BY_PROVIDER:
        only_shown(everywhere(VECTORS[vector])[place])


@pytest.mark.parametrize("vector", VECTORS)
def test_malicious_config_is_only_shown(vector):
    for place in BY_CONFIG:
        only_shown(everywhere(VECTORS[vector])[place])


@pytest.mark.parametrize("vector", VECTORS)
def test_malicious_log_is_only_shown(vector):
    for place in BY_JOB:
        only_shown(everywhere(VECTORS[vector])[place])


@pytest.mark.parametrize("vector", VECTORS)
def test_malicious_name_is_only_shown(vector):
    for place in BY_PEOPLE:
        only_shown(everywhere(VECTORS[vector])[place])


@pytest.mark.parametrize("vector", VECTORS)
def test_what_is_told_to_who_asks_is_only_shown(vector):
    text = VECTORS[vector]
    repo = FULL.run.repo
    pause = Pause(id="p", repo=repo, reason=text or "x", by=text, at=FULL.now)
    foreign = everywhere(text)
    for place in ("queued", "preparing", "trying again", "who cancels", "offer", "log"):
        facts = foreign[place]
        line = JobLine(command=f"/gpurun smoke path={clean(text)}", gpu=None, required=True, last=facts)
        held = replace(facts, pause=pause, queue=Queue(before=2, gives_up_at=FULL.now))
        said = (
            jobs_text([line] * 3, has_fault=False),
            status_text([facts, held], pause=pause, now=FULL.now),
            log_text(facts),
            log_text(held),
        )
        for one in said:
            assert faults(one, links=OURS) == [], place
            assert parse(one) == (), place
            assert len(reply.join([one]).encode()) <= COMMENT_BYTES, place


def test_what_a_reader_sees_of_each_vector():
    short = {name: text for name, text in VECTORS.items() if len(text) < 200}
    assert {name: html(prose(text)) for name, text in short.items()} == snapshot(
        {
            "mention": "<p>@\u200bacme/all and (@\u200bacme) _@\u200bacme_ 'x'@\u200bacme é@\u200bacme</p>",
            "mention behind code": "<p><code>x</code>@\u200bacme <code>y</code> @\u200bacme</p>",
            "mention in an entity": "<p>&amp;#\u200b64;acme &amp;commat;acme \\@\u200bacme</p>",
            "closing": "<p>fixes #\u200b1, Closes acme/other#\u200b2, resolved: GH\u200b-3, fixes gh\u200b-4</p>",
            "closing by address": "<p>fixes https:\u200b//github.com/acme/net/issues/9</p>",
            "closing around Markdown": "<p>fixes *#\u200b1* [#\u200b2] #&lt;b&gt;3&lt;/b&gt; #\u200d4</p>",
            "autolink": "<p>http:\u200b//evil.test www\u200b.evil.test ftp:\u200b//evil.test HTTP:\u200b//EVIL.TEST</p>",
            "autolink in brackets": "<p>&lt;http:\u200b//evil.test&gt; &lt;a@\u200bevil.test&gt;</p>",
            "mail": "<p>someone@\u200bevil.test mailto:a@\u200bevil.test xmpp:a@\u200bevil.test/x</p>",
            "link": "<p>[x](http:\u200b//evil.test) [y](//evil.test) [z][z] [z]: //evil.test</p>",
            "image": "<p>![x](//evil.test/x.png) ![y][y] [y]: //evil.test/y.png</p>",
            "HTML": "<p>&lt;img src=//evil.test/x onerror=y&gt; &lt;/details&gt;&lt;script&gt;x&lt;/script&gt; &lt;!-- x --&gt;</p>",
            "marker": "<p>&lt;!-- {&quot;gpurun&quot;:&quot;abc&quot;} --&gt;</p>",
            "fence": "<p>````<code>~~~~</code> `` x</p>",
            "end of a block": "<p>text &lt;/summary&gt;&lt;/details&gt; # heading --- ===</p>",
            "list and quote": "<p>- a + b 1. c 2) d &gt; e * f</p>",
            "table": "<p>| a | b | | - | - | <code>c ｜ d</code></p>",
            "command": "<p>/gpurun smoke /gpurun smoke</p>",
            "bidi": "<p>evil x</p>",
            "invisible": "<p>abcdefghij</p>",
            "ANSI": "<p>red x</p>",
            "OSC": "<p>here</p>",
            "controls": "<p>abcdefghi</p>",
            "mathematics": "<p>$\\ce{x}$ $$y$$ $<code>z</code>$</p>",
            "emphasis": "<p>**x** __x__ ~~x~~ *x* _x_ \\*x\\*</p>",
            "workflow command": "<p>::error::x ::set-output name=a::b ##[error]x</p>",
            "log line of ours": "<p>::gpurun:: run: passed</p>",
            "halves": "<p>ab</p>",
        }
    )
    assert {name: code(text, 60) for name, text in short.items()} == snapshot(
        {
            "mention": "`@acme/all and (@acme) _@acme_ 'x'@acme é@acme`",
            "mention behind code": "`` `x`@acme `y` @acme ``",
            "mention in an entity": "`&#64;acme &commat;acme \\@acme`",
            "closing": "`fixes #1, Closes acme/other#2, resolved: GH-3, fixes gh-4`",
            "closing by address": "`fixes https://github.com/acme/net/issues/9`",
            "closing around Markdown": "`fixes *#1* [#2] #<b>3</b> #\u200d4`",
            "autolink": "`http://evil.test www.evil.test ftp://evil.test HTTP://EVI…`",
            "autolink in brackets": "`<http://evil.test> <a@evil.test>`",
            "mail": "`someone@evil.test mailto:a@evil.test xmpp:a@evil.test/x`",
            "link": "`[x](http://evil.test) [y](//evil.test) [z][z] [z]: //evil…`",
            "image": "`![x](//evil.test/x.png) ![y][y] [y]: //evil.test/y.png`",
            "HTML": "`<img src=//evil.test/x onerror=y> </details><script>x</sc…`",
            "marker": '`<!-- {"gpurun":"abc"} -->`',
            "fence": "````` ``` ```` ~~~~ ` `` x `````",
            "end of a block": "`text </summary></details> # heading --- ===`",
            "list and quote": "`- a + b 1. c 2) d > e * f`",
            "table": "`` ｜ a ｜ b ｜ ｜ - ｜ - ｜ `c ｜ d` ``",
            "command": "`/gpurun smoke /gpurun smoke`",
            "bidi": "`evil x`",
            "invisible": "`abcdefghij`",
            "ANSI": "`red x`",
            "OSC": "`here`",
            "controls": "`abcdefghi`",
            "mathematics": "``$\\ce{x}$ $$y$$ $`z`$``",
            "emphasis": "`**x** __x__ ~~x~~ *x* _x_ \\*x\\*`",
            "workflow command": "`::error::x ::set-output name=a::b ##[error]x`",
            "log line of ours": "`::gpurun:: run: passed`",
            "halves": "`ab`",
        }
    )
    assert {name: plain(text, 60) for name, text in short.items()} == snapshot(
        {
            "mention": "@\u200bacme/all and (@\u200bacme) _@\u200bacme_ 'x'@\u200bacme é@\u200b…",
            "mention behind code": "'x'@\u200bacme 'y' @\u200bacme",
            "mention in an entity": "&#\u200b64;acme &commat;acme \\@\u200bacme",
            "closing": "fixes #\u200b1, Closes acme/other#\u200b2, resolved: GH\u200b-3, f…",
            "closing by address": "fixes https:\u200b//github.com/acme/net/issues/9",
            "closing around Markdown": "fixes *#\u200b1* [#\u200b2] #<b>3</b> #\u200d4",
            "autolink": "http:\u200b//evil.test www\u200b.evil.test ftp:\u200b//evil.test H…",
            "autolink in brackets": "<http:\u200b//evil.test> <a@\u200bevil.test>",
            "mail": "someone@\u200bevil.test mailto:a@\u200bevil.test xmpp:a@\u200bevil…",
            "link": "[x](http:\u200b//evil.test) [y](//evil.test) [z][z] [z]: //e…",
            "image": "![x](//evil.test/x.png) ![y][y] [y]: //evil.test/y.png",
            "HTML": "<img src=//evil.test/x onerror=y> </details><script>x</sc…",
            "marker": '<!-- {"gpurun":"abc"} -->',
            "fence": "''' '''' ~~~~ ' '' x",
            "end of a block": "text </summary></details> # heading --- ===",
            "list and quote": "- a + b 1. c 2) d > e * f",
            "table": "| a | b | | - | - | 'c | d'",
            "command": "/gpurun smoke /gpurun smoke",
            "bidi": "evil x",
            "invisible": "abcdefghij",
            "ANSI": "red x",
            "OSC": "here",
            "controls": "abcdefghi",
            "mathematics": "$\\ce{x}$ $$y$$ $'z'$",
            "emphasis": "**x** __x__ ~~x~~ *x* _x_ \\*x\\*",
            "workflow command": "::error::x ::set-output name=a::b ##[error]x",
            "log line of ours": "::gpurun:: run: passed",
            "halves": "ab",
        }
    )


@pytest.mark.parametrize("job", ["gh-1", "a._b_", "www.evil.test", "closes"])
def test_a_jobs_name_is_text_too(job):
    for name, facts in SITUATIONS.items():
        run = replace(facts.run, job=JobName(job))
        assert faults(render_comment(replace(facts, run=run)), links=OURS) == [], name
        assert faults(render_check(replace(facts, run=run)).summary, links=OURS) == [], name


@pytest.mark.parametrize("folder", ["@acme/all", "x/#1", "gh-1", "acme/other#2", "*a*", "[x](//evil.test)"])
def test_a_folders_name_is_text_too(folder):
    places = [reply.Place(folder=folder, jobs=()), reply.Place(folder="", jobs=("smoke",))]
    for said in (
        reply.unknown_job("smok", places, None, all_seen=True),
        reply.no_file(folder),
        reply.nothing_to_cancel("smoke", folder),
        reply.not_by_comment("smoke", folder),
        reply.which_folder([f"/gpurun smoke path={folder}"]),
    ):
        assert faults(said) == []
    for facts in SITUATIONS.values():
        body = render_comment(replace(facts, run=replace(facts.run, folder=folder)))
        assert faults(body, links=OURS) == []


text_of_others = st.text(max_size=120) | st.sampled_from(sorted(VECTORS.values())) | st.text(
    alphabet=st.sampled_from("@#`*_[]()<>!|~$&\\/:.-+1gh \n\r\tfixesw\u200b\u202e\x1b"), max_size=60
)  # fmt: skip


@given(text_of_others)
def test_each_way_to_show_text_only_shows_it(text):
    for shown in (prose(text), code(text), fenced(clean(text))):
        assert faults(shown) == []
    assert text_faults(plain(text)) == []
    assert faults(f"| {prose(text)} | {code(text)} |\n| --- | --- |\n| {code(text)} | {prose(text)} |") == []


@settings(max_examples=60)
@given(text_of_others, st.sampled_from(PLACES), st.integers(1, 400))
def test_a_report_only_shows_text_and_is_never_too_long(text, place, times):
    facts = everywhere(text * times)[place]
    check = render_check(facts)
    assert len(render_comment(facts).encode()) <= COMMENT_BYTES
    assert len(check.title.encode()) <= TITLE_BYTES
    assert max(len(check.summary.encode()), len(check.text.encode())) <= CHECK_BYTES
    assert faults(render_comment(facts), links=OURS) == []
    assert faults(check.summary, links=OURS) == []
    assert [parse(shown) for shown in (render_comment(facts), check.title, check.summary)] == [(), (), ()]


@settings(max_examples=60)
@given(st.lists(text_of_others, max_size=80), st.integers(1, 60))
def test_a_reply_only_shows_text_and_is_never_too_long(texts, times):
    said = reply.join([reply.error(ConfigError(text * times)) for text in texts] or ["nothing"])
    assert len(said.encode()) <= COMMENT_BYTES
    assert faults(said) == []
    assert parse(said) == ()
