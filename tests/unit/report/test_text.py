from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gpurun.domain.run import ResultKind, Verdict
from gpurun.domain.text import clean
from gpurun.report.facts import RunFacts
from gpurun.report.text import code, cut, duration, fenced, plain, prose, size, usd
from gpurun.report.why import why
from tests.unit.report.situations import FULL, MODEL, PLAN, ended, with_result


@pytest.mark.parametrize(
    ("micro", "shown"),
    [
        (0, "$0.00"),
        (31, "< $0.0001"),
        (100, "$0.0001"),
        (7_859, "$0.0079"),
        (110_000, "$0.11"),
        (123_456, "$0.1235"),
        (999_999, "$1.00"),
        (2_491_825, "$2.49"),
        (1_234_500_000, "$1,234.50"),
        (-110_000, "-$0.11"),
    ],
)
def test_money(micro, shown):
    assert usd(micro) == shown


@given(st.integers(1, 10**12))
def test_what_was_spent_never_reads_as_nothing(micro):
    assert usd(micro) not in ("$0.00", "$0.0000")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0 s"), (0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 m 00 s"),
     (400, "6 m 40 s"), (3599.9, "1 h 00 m"), (3720, "1 h 02 m"), (90_000, "25 h 00 m")],
)  # fmt: skip
def test_durations(seconds, shown):
    assert duration(seconds) == shown


@pytest.mark.parametrize(("n", "shown"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (16_000_000, "16.0 MB"),
                                          (999_950, "1.0 MB"), (3e12, "3.0 TB")])  # fmt: skip
def test_sizes(n, shown):
    assert size(n) == shown


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"10%\r50%\r100%\n", "100%\n"),
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"\x1b]0;title\x07text", "text"),
        (b"\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\xff\xfe bad", "\ufffd\ufffd bad"),
        ("\u202eabc\u2069\u200b", "abc"),
        (b"bell\x07\x00\x08", "bell"),
        ("a\u2028b", "ab"),
    ],
)
def test_clean(raw, shown):
    assert clean(raw) == shown


@given(st.text(), st.integers(3, 50))
def test_cut_keeps_within_bytes_and_says_so(text, room):
    short = cut(text, room) if text.isprintable() else ""
    assert len(short.encode()) <= room
    assert short == text or short.endswith("…") or not text.isprintable()


@given(st.text(min_size=1))
def test_a_fence_is_never_closed_by_its_text(text):
    body = clean(text)
    (token,) = MarkdownIt("commonmark").parse(fenced(body))
    assert token.type == "fence"
    assert token.content.rstrip("\n") == body.replace("\x00", "\ufffd").rstrip("\n")


@given(st.text())
def test_inline_code_is_one_code_span(text):
    shown = code(text)
    if shown:
        (token,) = MarkdownIt("commonmark").parseInline(shown)
        assert [child.type for child in token.children] == ["code_inline"]
        assert "|" not in shown


@given(st.text(alphabet=st.sampled_from("`*_[]()<>&#!~|\\ ab@/:.-+$1\n")))
def test_prose_is_text_and_code_only(text):
    (token,) = MarkdownIt("commonmark").enable("strikethrough").parseInline(prose(text))
    assert {child.type for child in token.children} <= {"text", "text_special", "code_inline"}


@pytest.mark.parametrize("text", ["@acme/all", "see @acme", "(@acme)", "fixes #1", "acme/other#2", "GH-3", "gh-3",
                                  "https://github.com/acme/net/pull/9", "www.evil.test"])  # fmt: skip
@pytest.mark.parametrize("shown_by", [plain, prose])
def test_b127_references_are_broken(text, shown_by):
    assert text not in shown_by(f"x {text} y").replace("\\", "")
    assert "\u200b" in shown_by(f"x {text} y")


def test_an_image_by_digest_can_be_copied_from_prose():
    assert prose("ghcr.io/org/app@sha256:00") == "ghcr.io/org/app@sha256:00"


def failed(log: bytes, *, code: int = 1) -> RunFacts:
    return replace(
        FULL,
        run=ended(Verdict.FAILED, reason="exit"),
        attempts=(with_result(ResultKind.FAILED, exit_code=code, reason="exit"),),
        log_tail=log,
        log_size=len(log),
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (1, "`run` ended with exit code 1."),
        (126, "cannot be executed"),
        (127, "a command was not found"),
        (137, "killed (SIGKILL), most often because memory ran out"),
        (139, "segmentation fault"),
        (143, "terminated (SIGTERM)"),
        (256, "`run` ended with exit code 256."),
        (-9, "`run` ended with exit code -9."),
    ],
)
def test_exit_codes_in_words(code, words):
    assert words in why(failed(b"", code=code)).sentence


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB", "The GPU's memory ran out."),
        (b"RuntimeError: DataLoader worker: unable to mmap 1024 bytes", "Shared memory ran out"),
        (b"huggingface_hub.errors.LocalEntryNotFoundError: x", "is not under `models:`"),
        (
            b"OfflineModeIsEnabled: Cannot reach https://huggingface.co/api/models/org/name/revision/main: no",
            "It asked the hub for org/name, which is not pinned: add `models: [{id: org/name}]` to the job.",
        ),
        (
            b"OfflineModeIsEnabled: Cannot reach https://huggingface.co/datasets/a/b.c/resolve/main/README.md: offline",
            "add `datasets: [{id: a/b.c}]` to the job",
        ),
        (
            b"OfflineModeIsEnabled: Cannot reach https://huggingface.co/api/models/`x`/@all/revision/main: offline",
            "is not under `models:` or `datasets:`",
        ),
        (
            b"ConnectionError: Couldn't reach 'org/words' on the Hub (OfflineModeIsEnabled)",
            "add `datasets: [{id: org/words}]` to the job",
        ),
        (b"OSError: [Errno 28] No space left on device", "The disk is full."),
        (b"fine", "exit code 1."),
    ],
)
def test_known_causes(log, cause):
    assert why(failed(log)).sentence.endswith(cause) or cause in why(failed(log)).sentence


HUB = "OfflineModeIsEnabled: Cannot reach https://huggingface.co/"
WORDS = replace(MODEL, id="org/words", kind="dataset", refs=("main", "v2"))
SOME = replace(WORDS, include=("*.json",))


@pytest.mark.parametrize(
    ("models", "asked", "cause"),
    [
        ((), "api/datasets/org/words/revision/v1: no", "add `datasets: [{id: org/words, revision: v1}]` to the job."),
        ((), "api/datasets/org/words/revision/v1.", "add `datasets: [{id: org/words, revision: v1}]` to the job."),
        ((), "org/words/resolve/1.0/a.txt: no", "add `models: [{id: org/words, revision: '1.0'}]` to the job."),
        ((), "org/words/resolve/yes/a.txt: no", "add `models: [{id: org/words, revision: 'yes'}]` to the job."),
        ((), "org/words/resolve/feat%2Fa/x: no", "add `models: [{id: org/words, revision: feat/a}]` to the job."),
        ((), "org/words/resolve/%27%5D%60@all/x: no", "add `models: [{id: org/words}]` to the job."),
        ((), "api/models/org/words: no", "add `models: [{id: org/words}]` to the job."),
        (
            (WORDS,),
            "api/datasets/org/words/revision/v1: no",
            "org/words at v1, which is not pinned: add `datasets: [{id: org/words, revision: v1}]` to the job, beside",
        ),
        ((WORDS,), "api/datasets/org/words/revision/v2: no", "a revision or a file of org/words that is not pinned."),
        (
            (SOME,),
            "datasets/org/words/resolve/main/a/b%20c.txt: no",
            "a/b c.txt of org/words, which `include` of the job leaves out: correct it.",
        ),
        (
            (replace(SOME, exclude=("a",)),),
            "datasets/org/words/resolve/main/a.txt: no",
            "which `include` or `exclude` of the job leaves out: correct them.",
        ),
        ((SOME,), "datasets/org/words/resolve/main/a.json: no", "a.json, which org/words does not have at that"),
        ((SOME,), "nothing", "or that its `include` or `exclude` leaves out; jobs see what is pinned."),
    ],
)
def test_what_was_asked_of_the_hub_becomes_the_line_that_is_missing(models, asked, cause):
    facts = failed(f"{HUB}{asked}".encode())
    facts = replace(facts, run=replace(facts.run, plan=replace(PLAN, models=models)))
    assert cause in why(facts).sentence


CHAINED = (
    b'Traceback (most recent call last):\n  File "x"\nKeyError: 1\n\nDuring handling of the above exception, '
    b'another exception occurred:\n\nTraceback (most recent call last):\n  File "x"\nValueError: 2\nbye\n'
)


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (b'Traceback (most recent call last):\n  File "x"\n    y\nKeyError: 3\n', "KeyError: 3"),
        (
            CHAINED,
            "ValueError: 2",
        ),
        (b"AssertionError: loss\nmore\n", "AssertionError: loss"),
        (b"\x1b[31mRuntimeError: red\x1b[0m\n", "RuntimeError: red"),
        (b"all is well\n", ""),
        (b'Traceback (most recent call last):\n  File "x"\n', ""),
        (b"", ""),
    ],
)
def test_the_line_that_says_most(log, line):
    assert why(failed(log)).evidence == line
