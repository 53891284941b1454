"""Dockerfiles: which images they name, how they are pinned, and what is refused with its line."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpurun.domain.build import BuildPlan, predefined_args
from gpurun.domain.errors import ConfigError
from gpurun.domain.ids import ImageRef, ImageTag
from gpurun.plan.dockerfile import Dockerfile, read_dockerfile

BY_DIGEST = "ghcr.io/org/app:1@sha256:" + "0" * 64
PINNED = ImageRef("python:3.12@sha256:" + "1" * 64)
DIGESTS = {ImageTag("python:3.12"): PINNED, ImageTag("busybox"): ImageRef("busybox@sha256:" + "2" * 64)}


def read(text: str | bytes, *, target: str = "", platform: str = "linux/amd64", **args: str) -> Dockerfile:
    return read_dockerfile(text, file="Dockerfile", target=target, args=args, predefined=predefined_args(platform))


def refusal(text: str | bytes, **more: str) -> tuple[int, str, str]:
    with pytest.raises(ConfigError) as caught:
        read(text, **more)
    assert caught.value.file == "Dockerfile"
    return caught.value.line, caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    ("text", "images"),
    [
        (f"FROM {BY_DIGEST}\n", [BY_DIGEST]),
        ("from python:3.12 as a\nFROM a\nFROM scratch\n", ["python:3.12"]),
        ("FROM busybox\nFROM python:3.12 AS busybox\nFROM busybox\n", ["busybox", "python:3.12"]),
        ("ARG V=3.12\nARG BASE=python:$V\nFROM ${BASE}\n", ["python:3.12"]),
        ("ARG V\nFROM python:${V:-3.12}\n", ["python:3.12"]),
        ("ARG V=1\nFROM python:3${V:+.12}\n", ["python:3.12"]),
        ("ARG A=1 B='3.12'\nFROM python:$B\n", ["python:3.12"]),
        (
            "FROM busybox AS a\nFROM a\nCOPY --from=a /x /\nCOPY --chown=1:1 --from=python:3.12 /x /\n",
            ["busybox", "python:3.12"],
        ),
        ("FROM busybox\nFROM busybox\nCOPY --from=0 /x /\n", ["busybox"]),
        ("# escape=`\nFROM busybox\nRUN a `\n  b\n", ["busybox"]),
        ("\n# a comment\n  # another\nFROM \\\n  # inside\n\n  busybox\n", ["busybox"]),
        ("FROM --platform=linux/amd64 busybox\n", ["busybox"]),
        ("FROM --platform=$BUILDPLATFORM busybox\n", ["busybox"]),
        ("FROM busybox:$TARGETARCH\n", ["busybox:amd64"]),
        ("FROM busybox\r\nRUN a\r\n", ["busybox"]),
    ],
)
def test_every_image_is_found(text, images):
    assert list(read(text).images) == images


def test_args_of_the_job_are_taken_only_where_the_file_has_an_arg():
    assert read("ARG V=1\nFROM python:$V\n", V="3.12").images == ("python:3.12",)
    assert "needs a value for V" in refusal("FROM python:$V\n", V="3.12")[1]


def test_pinning_replaces_images_and_moves_no_line():
    text = (
        "# syntax=docker/dockerfile:1\nARG V=3.12\nFROM \\\n  python:$V \\\n  AS a\nRUN a \\\n  && b\n"
        'COPY --from=busybox \\\n /x /y\nFROM a\nENTRYPOINT ["x"]\n'
    )
    found = read(text)
    assert found.pinned(DIGESTS) == (
        f"# syntax=docker/dockerfile:1\nARG V=3.12\nFROM {PINNED.without_tag} AS a\n\n\nRUN a \\\n  && b\n"
        f'COPY --from={DIGESTS[ImageTag("busybox")]} /x /y\n\nFROM a\nENTRYPOINT ["x"]\n'
    )
    assert found.syntax == 1
    assert [found.step(number).line for number in range(1, 7)] == [2, 3, 6, 8, 10, 11]
    assert found.step(0) is found.step(7) is None


def test_a_target_ends_the_file_and_what_comes_behind_is_not_pinned():
    text = "FROM busybox AS one\nRUN a\n# for two\nFROM python:3.12 AS two\n"
    found = read(text, target="ONE")
    assert (found.images, found.pinned(DIGESTS)) == (
        ("busybox",),
        f"FROM {DIGESTS[ImageTag('busybox')]} AS one\nRUN a\n",
    )
    assert read(text, target="1").images == ("busybox", "python:3.12")
    assert refusal(text, target="gpu")[2] == "`target` is one of the stages: one, two."


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "there is no `FROM`"),
        ("RUN a\nFROM busybox\n", 1, "`RUN` stands before the first `FROM`"),
        ("FROM busybox\nFOO x\n", 2, "'FOO' is no instruction"),
        ("FROM busybox as\n", 1, "`FROM` takes an image, and a name behind `AS`"),
        ("FROM Nope\n", 1, "'Nope' is neither an image nor an earlier stage"),
        ("FROM a@sha256:12\n", 1, "'a@sha256:12' is neither an image nor an earlier stage"),
        ("\nFROM ${BASE}\n", 2, "`FROM ${BASE}` needs a value for BASE"),
        ("FROM busybox${A%x}\n", 1, "`FROM busybox${A%x}` has a variable that cannot be read"),
        ("FROM busybox\nRUN --mount=type=cache,target=/x a\n", 2, "`RUN --mount` needs BuildKit"),
        ("FROM busybox\nRUN --network=none a\n", 2, "`RUN --network` needs BuildKit"),
        ("FROM busybox\nRUN a && \\\n  cat <<EOF\nx\nEOF\n", 2, "`RUN <<…` needs BuildKit"),
        ("FROM busybox\nCOPY <<'A' /x\nx\nA\n", 2, "`COPY <<…` needs BuildKit"),
        ("FROM busybox\nCOPY --link a /\n", 2, "`COPY --link` needs BuildKit"),
        ("FROM busybox\nCOPY --chmod=755 a /\n", 2, "`COPY --chmod` needs BuildKit"),
        ("FROM busybox AS a\nFROM busybox\nCOPY --from=5 a /\n", 3, "there is no stage 5 before this line"),
        ("FROM busybox\nCOPY --from=0 a /\n", 2, "there is no stage 0 before this line"),
        ("FROM busybox\nCOPY --from=$X a /\n", 2, "`COPY --from=$X` has a variable"),
        ("FROM busybox\nADD https://e.org/x /\n", 2, "`ADD https://e.org/x` may bring in what nobody pinned"),
        ("FROM busybox\nADD a HTTP://e.org/x /\n", 2, "`ADD HTTP://e.org/x` may bring"),
        ('FROM busybox\nADD ["https://e.org/x", "/"]\n', 2, "`ADD https://e.org/x` may bring"),
        ("FROM busybox\nADD git@github.com:a/b.git /\n", 2, "`ADD git@github.com:a/b.git` may bring"),
        ("FROM busybox\nADD $URL /\n", 2, "`ADD $URL` may bring"),
        ("FROM busybox\nADD --checksum=sha256:1 https://e.org/x /\n", 2, "`ADD --checksum` needs BuildKit"),
        ("FROM busybox\nONBUILD COPY --from=python:3 a /\n", 2, "`ONBUILD COPY --from` is not built here"),
        ("FROM busybox\nONBUILD ADD https://e.org/x /\n", 2, "`ADD https://e.org/x` may bring"),
        ('FROM busybox\nADD "https://e.org/x" /\n', 2, '`ADD "https://e.org/x"` may bring'),
        ("FROM busybox\nENV S=tps\nADD ht$S://e.org/x /\n", 3, "`ADD ht$S://e.org/x` may bring"),
        ("FROM busybox\nADD a${S} /\n", 2, "`ADD a${S}` may bring"),
        ("FROM busybox\nADD \\https://e.org/x /\n", 2, "`ADD \\https://e.org/x` may bring"),
        ("FROM busybox\nADD ht\\tps:\\//e.org/x /\n", 2, "`ADD ht\\tps:\\//e.org/x` may bring"),
        ('FROM busybox\nADD ["https:\\/\\/e.org/x", "/"]\n', 2, "`ADD https://e.org/x` may bring"),
        ('FROM busybox\nADD ["\\"https://e.org/x\\"", "/"]\n', 2, '`ADD "https://e.org/x"` may bring'),
        ('FROM busybox\nADD ["https://e.org/x", "/"] ignored\n', 2, '`ADD ["https://e.org/x",` may bring'),
        ("# escape=`\nFROM busybox\nADD ht`tps://e.org/x /\n", 3, "`ADD ht`tps://e.org/x` may bring"),
        ("FROM busybox\nONBUILD ADD 'https://e.org/x' /\n", 2, "`ADD 'https://e.org/x'` may bring"),
        ('FROM busybox\nCOPY --"from"=x a /\n', 2, '`COPY --"from"=x` is no flag that can be read'),
        ("FROM busybox\nCOPY --fr\\om=x a /\n", 2, "`COPY --fr\\om=x` is no flag"),
        ("FROM busybox\nCOPY --from='x' a /\n", 2, "`COPY --from='x'` is no flag"),
        ("FROM busybox\nCOPY --from=x\\  a /\n", 2, "`COPY --from=x\\` is no flag"),
        ("FROM busybox\nCOPY --chown=1 -- --from=x a /\n", 2, "`COPY --` is no flag"),
        ("FROM busybox\nCOPY --FROM=x a /\n", 2, "`COPY --FROM=x` is no flag"),
        ("FROM busybox\nCOPY --from=xà a /\n", 2, "`COPY --from=xà` is no flag"),
        ('FROM busybox\nONBUILD COPY --"from"=x a /\n', 2, '`COPY --"from"=x` is no flag'),
        ("FROM busybox\nONBUILD --x COPY --from=x a /\n", 2, "`ONBUILD --x` is no flag"),
        ("FROM busybox\nONBUILD FOO x\n", 2, "'FOO' is no instruction"),
        (
            "FROM busybox\nRUN a \\\\\nADD https://e.org/x /\n",
            2,
            "engines do not agree how to read a line that ends with",
        ),
        ("FROM busybox\nRUN a \\\\ \t\nRUN b\n", 2, "engines do not agree how to read a line that ends with"),
        ("# syntax=x\n# escape=`\nFROM busybox\n", 2, "engines do not agree how to read `# escape=`"),
        ("# x\n# escape=`\nFROM busybox\n", 2, "engines do not agree how to read `# escape=`"),
        ("# escape=`x\nFROM busybox\n", 1, "engines do not agree how to read `# escape=`"),
        ("FROM busybox\nRUN a \\\n\x1c# b\nADD https://e.org/x /\n", 3, "there is a control character, '\\x1c'"),
        ("FROM busybox\nRUN a \\\r\r\nADD https://e.org/x /\n", 2, "there is a control character, '\\r'"),
        ("FROM --platform=linux/arm64 busybox\n", 1, "`FROM --platform=linux/arm64` is not the machine's own platform"),
        (b"FROM busybox\n# \xff\n", 2, "the Dockerfile is not UTF-8"),
        ("FROM busybox\n" + "RUN a\n" * 20_000, 1, "the Dockerfile has more than the 64 KiB"),
    ],
)
def test_what_cannot_be_pinned_or_built_is_refused_with_its_line(text, line, message):
    told = refusal(text)
    assert told[0] == line
    assert told[1].startswith(message)
    assert told[2]


def test_the_stages_that_there_are_stand_beside_one_that_is_none():
    text = "FROM busybox AS a\nFROM busybox\nFROM busybox\nCOPY --from=2 a /\n"
    assert refusal(text)[2] == "`--from` takes one of these: 0 (a), 1."


@pytest.mark.parametrize(
    "text", ["RUN cat <<< x", "RUN echo $((1<<2)) '<<' a<<b", "ADD a.tar /x", "HEALTHCHECK --interval=1s CMD a"]
)
def test_what_only_looks_like_it_is_not_refused(text):
    assert read(f"FROM busybox\n{text}\n").images == ("busybox",)


@given(st.text(alphabet='FROMCPYADRUNfrom \t\\\n#=$-{}:<>"[]ab1', max_size=200))
def test_any_text_is_read_or_refused(text):
    try:
        found = read(f"FROM busybox\n{text}")
    except ConfigError:
        return
    pinned = found.pinned(dict.fromkeys((one for one in found.images if isinstance(one, ImageTag)), PINNED))
    assert pinned.count("\n") == found.text.count("\n")
    assert all(isinstance(one, ImageRef) for one in read(pinned).images)


def test_predefined_arguments_are_given_where_they_are_asked_for():
    plan = BuildPlan(
        inputs_sha256="", dockerfile="", context="", context_sha256="", platform="linux/arm64/v8", args=(("X", "1"),),
        text="FROM a\narg TARGETARCH\nRUN echo $TARGETOS\n",
    )  # fmt: skip
    assert plan.all_args == {"TARGETARCH": "arm64", "X": "1"}
    assert predefined_args("") == {}


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("ARG A \\\n TARGETARCH\n", {"TARGETARCH": "amd64"}),
        ("arg\tA=1 TARGETOS\n", {"TARGETOS": "linux"}),
        ("ARG A='x TARGETARCH'\n", {}),
        ("RUN echo \\\n  ARG TARGETARCH\n", {}),
        ("# \\\nARG TARGETARCH\n", {"TARGETARCH": "amd64"}),
        ("ARG TARGETARCH=x\n", {}),
        ("ARG X-TARGETARCH\n", {}),
    ],
)
def test_an_arg_is_read_as_the_rest_of_the_file(text, given):
    plan = BuildPlan(
        inputs_sha256="", dockerfile="", context="", context_sha256="", platform="linux/amd64", text=f"FROM a\n{text}"
    )
    assert plan.all_args == given


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "line", ["#escape=a" + " " * 60_000 + "b", "ARG " + "'\"" * 30_000, "RUN " + "\\ " * 30_000 + "x"]
)
def test_a_long_line_takes_no_longer_than_many_short_ones(line):
    with contextlib.suppress(ConfigError):
        read(f"FROM busybox\n{line}\n")
        read(f"{line}\nFROM busybox\n")


def test_a_quoted_default_and_one_with_other_names_around_it_are_values():
    assert read("ARG A=1 B='3.12' C\nFROM python:$B\n").images == ("python:3.12",)
    assert "needs a value for Y" in refusal("ARG X-Y=3.12\nFROM python:$Y\n")[1]
