import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.command.arguments import DOUBLE_QUOTES
from gpurun.command.grammar import TABLE, help_text, render
from gpurun.command.lines import INVISIBLE
from gpurun.command.parse import parse, suggest
from gpurun.domain.command import (
    Approve,
    Cancel,
    CancelOverride,
    Command,
    Help,
    ListJobs,
    Logs,
    OverrideJob,
    PauseRepo,
    ResumeRepo,
    Retry,
    Revoke,
    RunJob,
    Status,
    StopAll,
)
from gpurun.domain.command_words import RESERVED_WORDS, WORDS_NOW
from gpurun.domain.errors import CommandError
from gpurun.domain.folder import typed_folder
from gpurun.domain.ids import CommitSha

SMOKE = RunJob("smoke")


def told(body):
    """Commands as they are, errors as their text."""
    return [f"{i.message} {i.hint}".strip() if isinstance(i, CommandError) else i for i in parse(body)]


def the_error(body):
    (item,) = parse(body)
    assert isinstance(item, CommandError), item
    return f"{item.message} {item.hint}".strip()


@pytest.mark.parametrize(
    ("body", "command"),
    [
        ("/gpurun smoke", SMOKE),
        ("/gpurun run smoke", SMOKE),
        ("/gpurun smoke-test.v2", RunJob("smoke-test.v2")),
        ("/gpurun snake_case_name", RunJob("snake_case_name")),
        ("/gpurun run 2fast", RunJob("2fast")),
        ("/gpurun cancel", Cancel()),
        ("/gpurun cancel smoke", Cancel("smoke")),
        ("/gpurun", Help()),
        ("/gpurun help", Help()),
        ("/gpurun help me please", Help()),
        ("/gpurun ?", Help()),
        ("/gpurun Help", Help()),
        ("/GPURUN smoke", SMOKE),
        ("/gpurun path=sub smoke", RunJob("smoke", "sub")),
        ("/gpurun smoke path=sub", RunJob("smoke", "sub")),
        ("/gpurun run smoke path=sub", RunJob("smoke", "sub")),
        ("/gpurun run path=sub smoke", RunJob("smoke", "sub")),
        ("/gpurun path=sub run smoke", RunJob("smoke", "sub")),
        ("/gpurun smoke path=./a/b_c.d/", RunJob("smoke", "a/b_c.d")),
        ("/gpurun smoke PATH=Sub.", RunJob("smoke", "Sub")),
        ("/gpurun cancel smoke path=sub", Cancel("smoke", "sub")),
        ("/gpurun path=sub cancel", Cancel(None, "sub")),
        ("/gpurun help path=sub", Help()),
        ("/gpurun path=sub help", Help()),
        ("/gpurun help gpu=a100", Help()),
    ],
)
def test_commands(body, command):
    assert parse(body) == (command,)


@pytest.mark.parametrize(
    "body",
    [
        "/gpurun smoke\r\nplease, on the new weights\r\n",
        "/gpurun smoke\rplease",
        "first\n\n/gpurun smoke\n\nlast",
        "first\n/gpurun smoke\nlast",
        "text\n    /gpurun smoke",
        "   /gpurun   smoke  ",
        "/gpurun smoke.",
        "/gpurun smoke!",
        "/gpurun smoke ?",
        "/gpurun\u00a0smoke",
        "\u00a0/gpurun smoke",
        "/gpurun\u3000smoke",
        "\u200b/gpurun smoke",
        "\ufeff/gpurun smoke",
        "\u200d/gpurun smoke",
        "/gpurun\u200bsmoke",
        "/gpurun smo\u200bke",
        "/gpurun smoke\ufeff",
        "/gpurun\tsmoke",
        "- done\n- also done\n/gpurun smoke",
        "1. done\n   /gpurun smoke",
        "/gpurun smoke\n---\nunderlined like a heading",
        "> quoted\n\n/gpurun smoke",
        "```\ncode\n```\n/gpurun smoke",
        "<!-- note -->\n\n/gpurun smoke",
        "<details>\n\n/gpurun smoke\n\n</details>",
        "<blockquote>said</blockquote>\n\n/gpurun smoke",
        "*stars\n/gpurun smoke\nstars*",
    ],
)
def test_b014_b016_forms_that_are_one_smoke(body):
    assert parse(body) == (SMOKE,)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "hello",
        "/gpurunner smoke",
        "/gpurun-stg smoke",
        "/gpurun2 smoke",
        "/gpurun/smoke",
        "/gpurun.yml is the file",
        "/gрurun smoke",
        "please /gpurun smoke",
        "- /gpurun smoke",
        "`/gpurun smoke`",
        "\\/gpurun smoke",
        "> /gpurun full\n\nwhy so expensive?",
        "> > /gpurun full",
        "> said\n/gpurun smoke",
        ">said\u2028\u2028/gpurun smoke",
        "- > said\n/gpurun smoke",
        "```\n/gpurun smoke\n```",
        "```\n/gpurun smoke",
        "~~~sh\n/gpurun smoke\n~~~",
        "- list\n  ```\n  /gpurun smoke\n  ```",
        "    /gpurun smoke",
        "\t/gpurun smoke",
        "code `spans\n/gpurun smoke\nlines` too",
        "<!--\n/gpurun smoke\n-->",
        "<!-- open\n\n/gpurun smoke",
        "text <!--\n/gpurun smoke\n--> text",
        "<pre>\n/gpurun smoke\n</pre>",
        "<blockquote>\n/gpurun smoke\n</blockquote>",
        "<blockquote>\n\n/gpurun smoke\n\n</blockquote>",
        "text <code>\n/gpurun smoke\n</code>",
        '[a](http://x.test "title\n/gpurun smoke\nend")',
        "![text\n/gpurun smoke\nend](http://x.test)",
        "[ref]:\n/gpurun",
        "Usage: `/gpurun smoke`",
    ],
)
def test_b016_b017_lines_that_are_not_ours(body):
    assert parse(body) == ()


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("/gpurun run", "needs the name of a job"),
        ("/gpurun smoke gpu=a100", "`/gpurun smoke`: 'a100' is no GPU need. Write a count (1), memory (24GB..80GB)"),
        ("/gpurun gpu=24GB", "needs the name of a job"),
        ("/gpurun smoke spot=yes", "Arguments such as `spot=…` are not in this version. `path=<folder>`, `gpu=<size>`"),
        ("/gpurun smoke provider=runpod", "the provider runpod is not in this version"),
        ("/gpurun smoke provider=nowhere", "'nowhere' is no provider. Known here: docker."),
        ("/gpurun smoke sha=abcdef", "`sha=` needs the first 7 to 40 hex digits"),
        ("/gpurun smoke sha=" + "a" * 41, "`sha=` needs the first 7 to 40 hex digits"),
        ("/gpurun smoke sha=ghijklm", "`sha=` needs the first 7 to 40 hex digits"),
        ("/gpurun smoke repeat=1", "`repeat=` needs a number from 2 to 5. Write `repeat=3` for three runs."),
        ("/gpurun smoke repeat=6", "`repeat=` needs a number from 2 to 5"),
        ("/gpurun smoke repeat=", "`repeat=` needs a number from 2 to 5"),
        ("/gpurun smoke max-cost=much", "is no amount. Write dollars such as `max-cost=0.50`"),
        ('/gpurun smoke reason="x"', "`reason=…` is no argument of this command. It knows `path=<folder>`, "),
        ("/gpurun pause", 'needs a reason that everybody can read. Write `reason="…"` behind it.'),
        ('/gpurun pause reason=" "', "needs a reason that everybody can read"),
        ('/gpurun pause reason="open', 'the quotation mark behind `reason=` is not closed. Write `reason="…"`.'),
        ("/gpurun pause reason=" + "x" * 301, "is longer than 300 characters"),
        ("/gpurun pause maintenance", "`maintenance` is not understood here"),
        ("/gpurun override smoke", "`/gpurun override`: it needs a reason"),
        ('/gpurun override reason="x"', "needs the name of a job"),
        ("/gpurun override cancel smoke full", "`full` is not understood here"),
        ("/gpurun retry all smoke", "`smoke` is not understood here"),
        ("/gpurun retry smoke gpu=1", "`gpu=…` is no argument of this command. It knows `path=<folder>`."),
        ("/gpurun status smoke", "`smoke` is not understood here"),
        ("/gpurun stop-all please", "`please` is not understood here"),
        ("/gpurun stopall now", "`stopall` is no command. Did you mean `/gpurun stop-all`?"),
        ("/gpurun overide smoke", "`overide` is no command. Did you mean `/gpurun override`?"),
        ('/gpurun smoke --env "A=$(id)"', "Options such as `--env` are not in this version."),
        ("/gpurun smoke paht=sub", "There is no argument `paht=…`. Did you mean `path=…`?"),
        ("/gpurun smoke colour=red", "Arguments such as `colour=…` are not in this version. `path=<folder>`, "),
        ("/gpurun path=sub", "needs the name of a job"),
        ("/gpurun smoke path=", "`path=` needs a folder. The top needs no `path=`."),
        ("/gpurun smoke path=.", "`path=` needs a folder."),
        ("/gpurun smoke path=/", "`path=` needs a folder."),
        ("/gpurun smoke path=../other", "`path=../other` is no folder inside the repository. Write one such as"),
        ("/gpurun smoke path=a/../b", "is no folder inside the repository"),
        ("/gpurun smoke path=/etc", "`path=/etc` is no folder inside the repository"),
        ("/gpurun smoke path=a//b", "is no folder inside the repository"),
        ("/gpurun smoke path=a\\b", "cannot be typed in a command. Rename the folder."),
        ("/gpurun smoke path=" + "a" * 121, "is too long: at most 120 characters and 10 levels."),
        ("/gpurun smoke path=" + "a/" * 10 + "a", "is too long"),
        ("/gpurun smoke path=a path=b", "`path=…` stands in the line twice."),
        ("/gpurun smoke please", "`please` is not understood here. Write other text on another line."),
        ("/gpurun smoke; rm -rf", "nothing around it: `/gpurun smoke`."),
        ("/gpurun smoke; curl x", "nothing around it: `/gpurun smoke`."),
        ("/gpurun $(id)", "cannot be the name of a job"),
        ("/gpurun `smoke`", "nothing around it: `/gpurun smoke`."),
        ("/gpurun Smoke", "Job names are lower case: `/gpurun smoke`."),
        ("/gpurun smoke,eval", "several jobs in one line are not in this version"),
        ("/gpurun ev*", "several jobs in one line are not in this version"),
        ("/gpurun <job>", "Write the name of a job in place of `<job>`."),
        ("/gpurun rnu smoke", "`rnu` is no command. Did you mean `/gpurun run`?"),
        ("/gpurun smoke\u2028/gpurun full", "Write each command on a line of its own."),
        ("/gpurun smoke /gpurun full", "Write each command on a line of its own."),
        ("/gpurun \u202eekoms", "change the direction of text"),
        ("/gpurun cancel a b", "`b` is not understood here."),
        ("/gpurun " + "x" * 64, "cannot be the name of a job"),
        ("/gpurun " + "x" * 3_000, "cannot be the name of a job"),
        ("<details>\n/gpurun smoke\n</details>", "put an empty line before it"),
        ("/gpurun smoke\n" + "x" * 20_000, "its paragraph is very long"),
    ],
)
def test_b016_b125_lines_that_cannot_be_understood_say_why(body, part):
    assert part in the_error(body)


@pytest.mark.parametrize("word", sorted(RESERVED_WORDS - {entry.word for entry in TABLE}))
def test_planned_commands_say_not_in_this_version(word):
    assert the_error(f"/gpurun {word} x sha=1") == (
        f"`/gpurun {word}` is not in this version. `/gpurun help` shows what can be typed."
    )


def test_the_table_and_the_reserved_words_agree():
    assert {entry.word.split()[0] for entry in TABLE} == set(WORDS_NOW)
    assert set(WORDS_NOW) <= RESERVED_WORDS


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("smoke gpu=24GB..80GB:2", RunJob("smoke", gpu="24GB..80GB:2")),
        ("smoke provider=Docker", RunJob("smoke", provider="docker")),
        ("sha=ABCDEF0 smoke.", RunJob("smoke", sha="abcdef0")),
        ("run smoke repeat=5 max-cost=$0.50", RunJob("smoke", repeat=5, max_usd_micro=500_000)),
        ("list", ListJobs()),
        ("Status!", Status()),
        ("logs", Logs()),
        ("logs smoke path=sub", Logs("smoke", "sub")),
        ("logs 01kdrun0000000000000000001", Logs("01kdrun0000000000000000001")),
        ("cancel 01kdrun0000000000000000001", Cancel("01kdrun0000000000000000001")),
        ("retry", Retry()),
        ("retry smoke path=sub", Retry("smoke", "sub")),
        ("Retry All", Retry(every=True)),
        ('override smoke reason="flaky host"', OverrideJob("smoke", "flaky host")),
        ('override reason="flaky host" smoke path=sub', OverrideJob("smoke", "flaky host", "sub")),
        ("override smoke reason=“flaky host”.", OverrideJob("smoke", "flaky host")),
        ("override smoke reason=„flaky host“ path=sub", OverrideJob("smoke", "flaky host", "sub")),
        ("override smoke reason='it's flaky' path=sub", OverrideJob("smoke", "it's flaky", "sub")),
        (
            "override smoke path=sub reason=flaky host, see path=x.",
            OverrideJob("smoke", "flaky host, see path=x.", "sub"),
        ),
        ("override smoke REASON=he said “no” twice", OverrideJob("smoke", "he said 'no' twice")),
        ('override smoke reason="/gpurun full"', OverrideJob("smoke", "/gpurun full")),
        ("override cancel", CancelOverride()),
        ("override cancel smoke path=sub", CancelOverride("smoke", "sub")),
        ('pause reason="moving  the\u200b rack"', PauseRepo("moving the rack")),
        ("resume", ResumeRepo()),
        ("stop-all", StopAll()),
    ],
)
def test_words_and_arguments(typed, command):
    assert parse(f"/gpurun {typed}") == (command,)


def test_b015_several_commands_with_crlf_are_each_read_once():
    assert told("/gpurun smoke\r\n/gpurun eval\r\n/gpurun smoke") == [
        SMOKE,
        RunJob("eval"),
        "`/gpurun smoke` is written more than once; it counts once.",
    ]


def test_run_and_its_short_form_are_the_same_command():
    assert parse("/gpurun smoke\n/gpurun run smoke")[0] == SMOKE
    assert isinstance(parse("/gpurun smoke\n/gpurun run smoke")[1], CommandError)


def test_b015_a_sixth_command_is_refused_and_the_first_five_stand():
    body = "\n".join(f"/gpurun job{n}" for n in range(7))
    assert told(body) == [
        *(RunJob(f"job{n}") for n in range(5)),
        "A comment holds at most 5 commands; the last 2 of this one were not read. Write them in another comment.",
    ]


def test_another_prefix_is_another_bot():
    assert parse("/gpurun-stg smoke\n/gpurun eval", prefix="/gpurun-stg") == (SMOKE,)


def test_the_marks_of_the_parser_cannot_be_forged():
    assert parse("\ue0001\ue001 text\n> /gpurun full\n/gpurunner") == ()


def test_b012_no_output_of_ours_is_a_command():
    assert parse(help_text(("smoke",))) == ()


@pytest.mark.parametrize(("word", "meant"), [("smok", "smoke"), ("cancl", "cancel"), ("zzz", None), ("EVAL", "eval")])
def test_suggest(word, meant):
    assert suggest(word, ("smoke", "eval")) == meant


def is_typed_folder(text):
    try:
        return typed_folder(text) == text
    except ValueError:
        return False


jobs = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,40}", fullmatch=True).filter(
    lambda name: not name.endswith(".") and name not in RESERVED_WORDS
)
folders = st.just("") | st.lists(
    st.from_regex(r"[\w@+~#%=,()\[\]-][\w.=é-]{0,8}", fullmatch=True), min_size=1, max_size=5
).map("/".join).filter(is_typed_folder)
commits = st.from_regex(r"[0-9a-f]{40}", fullmatch=True).map(CommitSha)
amounts = st.none() | st.integers(0, 999_999_999_999)


def as_reason(text):
    """As a person may have written it: what nobody sees and what turns text around is another test's."""
    shown = "".join("'" if char in DOUBLE_QUOTES else char for char in text if char not in INVISIBLE)
    return " ".join(shown.split())[:300].strip()


reasons = (
    st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Co"]), min_size=1, max_size=320)
    .map(as_reason)
    .filter(bool)
)
commands = st.one_of(
    st.builds(
        RunJob,
        jobs,
        folders,
        gpu=st.sampled_from(["", "0", "2", "24GB", "24GB..80GB", "24GB..80GB:2", "..80GB"]),
        provider=st.sampled_from(["", "docker"]),
        sha=st.just("") | st.from_regex(r"[0-9a-f]{7,40}", fullmatch=True),
        repeat=st.integers(1, 5),
        max_usd_micro=amounts,
    ),
    st.builds(Cancel, st.none() | jobs, folders),
    st.builds(Logs, st.none() | jobs, folders),
    st.builds(Retry, st.none() | jobs.filter(lambda name: name != "all"), folders),
    st.builds(CancelOverride, st.none() | jobs, folders),
    st.builds(OverrideJob, jobs, reasons, folders),
    st.builds(PauseRepo, reasons),
    st.builds(Approve, commits, amounts),
    st.sampled_from([Revoke(), Help(), ListJobs(), Status(), Retry(every=True), ResumeRepo(), StopAll()]),
)


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        (f"approve sha={'a' * 40}", Approve(CommitSha("a" * 40))),
        (f"Approve SHA={'A' * 40}", Approve(CommitSha("a" * 40))),
        (f"approve max-cost=$0.5 sha={'a' * 40}.", Approve(CommitSha("a" * 40), 500_000)),
        (f"approve sha={'a' * 40} max-cost=2.", Approve(CommitSha("a" * 40), 2_000_000)),
        (f"approve sha={'a' * 40} max-cost=0.000001", Approve(CommitSha("a" * 40), 1)),
        ("revoke", Revoke()),
        ("revoke!", Revoke()),
    ],
)
def test_approvals(typed, command):
    assert parse(f"/gpurun {typed}") == (command,)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("approve", "an approval is for one commit"),
        ("approve sha=", "needs all 40 hex digits"),
        (f"approve sha={'a' * 39}", "needs all 40 hex digits"),
        (f"approve sha={'a' * 41}", "needs all 40 hex digits"),
        (f"approve sha={'g' * 40}", "needs all 40 hex digits"),
        (f"approve {'a' * 40}", "Write `sha=` before the commit"),
        ("approve smoke", "`smoke` is not understood here"),
        (f"approve sha={'a' * 40} sha={'b' * 40}", "stands in the line twice"),
        (f"approve sha={'a' * 40} max-cost=1,5", "is no amount"),
        (f"approve sha={'a' * 40} max-cost=-1", "is no amount"),
        (f"approve sha={'a' * 40} max-cost=1e9", "is no amount"),
        (f"approve sha={'a' * 40} path=sub", "is no argument of this command"),
        (f"approve sha={'a' * 40} maxcost=1", "Did you mean `max-cost=…`?"),
        (f"approve sha={'a' * 40} gpu=A100", "`gpu=…` is no argument of this command"),
        ("revoke smoke", "is not understood here"),
        (f"revoke sha={'a' * 40}", "has no arguments"),
    ],
)
def test_what_is_no_approval_is_told(typed, told):
    (error,) = parse(f"/gpurun {typed}")
    assert isinstance(error, CommandError)
    assert told in f"{error} {error.hint}"


@given(commands)
def test_parse_of_render_is_the_command(command: Command):
    assert parse(render(command)) == (command,)


@given(st.lists(commands, max_size=5, unique=True), st.sampled_from(["\n", "\r\n", "\n\n", "\ntext\n"]))
def test_commands_in_one_comment_keep_their_order(several, between):
    assert parse(between.join(map(render, several))) == tuple(several)


@given(st.text(alphabet=st.sampled_from("/gpurun smoke>`<!->\n\r\t\u00a0\u200b*_[]()#=.")))
def test_any_text_parses(body):
    for item in parse(body):
        assert isinstance(item, RunJob | Cancel | Help | CommandError)


@given(st.text(max_size=40).filter(lambda s: not set(s) & set("\r\n")))
def test_b016_a_plain_first_line_with_the_prefix_is_never_silence(rest):
    assert len(parse(f"/gpurun {rest}")) == 1


@given(st.text(max_size=200))
def test_b017_a_quoted_comment_commands_nothing(body):
    quoted = "\n".join("> " + line for line in (body + "\n/gpurun smoke").replace("\r", "\n").split("\n"))
    assert parse(quoted) == ()


@pytest.mark.parametrize(
    "filler", ["<!-- ", "`" * 3 + " ", "[", "*a ", "> ", "- ", "![", "<a ", "\\", "&amp;", "~~~\n", "[a]: b\n"]
)
def test_a_hostile_comment_of_full_size_is_read_in_time(filler):
    started = time.perf_counter()
    parse("/gpurun smoke\n\n" + filler * (65_000 // len(filler)))
    parse("/gpurun smoke\n" + filler * (15_000 // len(filler)))
    assert time.perf_counter() - started < 2


FULL = 65_536
"""The longest comment that GitHub takes."""


@pytest.mark.parametrize(
    "body",
    [
        "<div>\n" + "<code \n/gpurun smoke\n" * 3_000,
        "<div>\n" + "/gpurun smoke\n" * 100 + "<code " * 9_000,
        "<div>\n" + "<!-- x\n/gpurun smoke\n" * 3_000,
        ("/gpurun smoke\n" + "[" * 3_900 + "\n\n") * 16,
        ("/gpurun smoke\n" + "![[" * 1_300 + "\n\n") * 16,
        "/gpurun smoke\n\n" + "> - " * 16_000,
        "/gpurun smoke\n\n[" + "a\n" * 30_000,
    ],
    ids=["unclosed tags", "marks before tags", "comments", "brackets", "images", "nesting", "definition"],
)
def test_no_comment_keeps_the_parser_busy(body):
    """Anybody may write a comment on a public repository, and all of them pass through here."""
    began = time.process_time()
    parse(body[:FULL])
    assert time.process_time() - began < 5  # the first took minutes


def test_a_command_beside_quoting_tags_in_a_block_is_seen_only_outside_of_them():
    assert "put an empty line before it" in the_error("<div>\n<code>x</code>\n/gpurun smoke\n</div>")
    assert parse("<div>\n<code>\n/gpurun smoke\n</code>\n</div>") == ()
    assert parse("<div>\n<code\n/gpurun smoke\n>x</code>\n</div>") == ()
