"""The context of a build: what `.dockerignore` leaves, its digest, and the tar for the engine."""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import replace
from itertools import pairwise

import pytest
from docker.utils.build import PatternMatcher
from hypothesis import given, settings
from hypothesis import strategies as st

from gpurun.domain.build import DOCKERFILE, BuildPlan
from gpurun.domain.errors import ConfigError
from gpurun.plan import dockerignore
from gpurun.plan.build import build_inputs
from gpurun.plan.context import Contents, ContextReader, ContextTar
from gpurun.plan.dockerignore import Ignored

File = tuple[str, bytes]


def archive(*members: File | tuple[str, bytes, int] | tuple[str, str], mtime: int = 1) -> bytes:
    """As git makes them: a file, a program, or with a text behind the path a link. A last slash is a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "c" * 40}) as tar:
        for path, what, *mode in members:
            info = tarfile.TarInfo(path)
            info.mtime, info.mode = mtime, (mode or [0o644])[0]
            if isinstance(what, str):
                info.type, info.linkname = tarfile.SYMTYPE, what
                tar.addfile(info)
            elif path.endswith("/"):
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                info.size = len(what)
                tar.addfile(info, io.BytesIO(what))
    return out.getvalue()


def contents(data: bytes, *, dockerfile: str = "Dockerfile", context: str = "", cuts: tuple[int, ...] = ()) -> Contents:
    reader = ContextReader(dockerfile=dockerfile, context=context)
    for start, end in pairwise((0, *sorted(cuts), len(data))):
        reader.feed(data[start:end])
    return reader.contents()


def tar_for_engine(data: bytes, build: BuildPlan, piece: int = 999_999) -> dict[str, tarfile.TarInfo | bytes]:
    made = ContextTar(build)
    whole = b"".join(made.feed(data[at : at + piece]) for at in range(0, len(data), piece)) + made.end()
    found: dict[str, tarfile.TarInfo | bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        for info in tar:
            opened = tar.extractfile(info) if info.isreg() else None
            assert (info.mtime, info.uid, info.gid) == (946_684_800, 0, 0)
            found[info.name] = opened.read() if opened else info
    return found


def plan(**more: str) -> BuildPlan:
    values = {"inputs_sha256": "", "dockerfile": "Dockerfile", "context": "", "text": "FROM a\n", "context_sha256": ""}
    return BuildPlan(**{**values, **more})


FILES = archive(
    ("Dockerfile", b"FROM a\n"),
    ("docker/", b""),
    ("docker/.dockerignore", b"*.md\n!keep.md\n"),
    ("docker/a.md", b"no"),
    ("docker/keep.md", b"yes"),
    ("docker/run.sh", b"#!/bin/sh\n", 0o755),
    ("docker/link", "../elsewhere"),
    ("docker/empty", b""),
    ("docker/" + "l" * 150 + "/größe.txt", b"x" * 5000),
    ("other.txt", b"o"),
)


def test_the_engine_gets_the_folder_without_what_is_ignored_and_the_pinned_dockerfile():
    found = contents(FILES, context="docker")
    assert (found.dockerfile, found.ignore, found.is_there) == (b"FROM a\n", b"*.md\n!keep.md\n", True)
    for piece in (100, 512, 999_999):
        tar = tar_for_engine(FILES, plan(context="docker", ignore="*.md\n!keep.md\n", text="FROM b\n"), piece)
        assert sorted(tar) == sorted(
            [".dockerignore", DOCKERFILE, "empty", "keep.md", "l" * 150 + "/größe.txt", "link", "run.sh"]
        )
        assert tar[DOCKERFILE] == b"FROM b\n"
        assert tar[".dockerignore"] == f".dockerignore\n{DOCKERFILE}\n".encode()
        assert tar["l" * 150 + "/größe.txt"] == b"x" * 5000
        assert tar["link"].linkname == "../elsewhere"


def test_an_ignore_file_of_the_dockerfile_itself_comes_first():
    data = archive((".dockerignore", b"a"), ("Dockerfile.dockerignore", b"b"), ("Dockerfile", b""))
    assert contents(data).ignore == b"b"
    assert contents(data, dockerfile="x").ignore == b"a"
    assert contents(data, dockerfile="x").dockerfile is None


def test_a_link_is_no_dockerfile_and_a_missing_folder_is_told():
    assert contents(archive(("Dockerfile", "elsewhere"))).dockerfile is None
    assert not contents(FILES, context="dock").is_there
    assert contents(FILES, context="docker").is_there


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("content", archive(("a", b"2"), ("l", "t"))),
        ("path", archive(("b", b"1"), ("l", "t"))),
        ("mode", archive(("a", b"1", 0o755), ("l", "t"))),
        ("target of a link", archive(("a", b"1"), ("l", "u"))),
        ("kind", archive(("a", b"1"), ("l", b"t"))),
        ("one more", archive(("a", b"1"), ("l", "t"), ("m", b""))),
        ("one less", archive(("a", b"1"))),
    ],
)
def test_whatever_is_in_the_context_is_in_its_digest(name, other):
    assert contents(other).context_sha256 != contents(archive(("a", b"1"), ("l", "t"))).context_sha256, name


def test_time_order_and_what_is_ignored_are_not():
    ignore = (".dockerignore", b"*.md\nb/")
    one = contents(archive(("a", b"1"), ("l", "t"), ("x.md", b"1"), ("b/c", b"1"), ignore, mtime=5))
    other = contents(archive(ignore, ("l", "t"), ("a", b"1"), mtime=9))
    assert one.context_sha256 == other.context_sha256


@given(
    st.lists(st.tuples(st.text("abÖ", min_size=1, max_size=120), st.binary(max_size=1500)), unique_by=lambda f: f[0]),
    st.data(),
)
@settings(max_examples=40)
def test_the_digest_does_not_depend_on_how_the_archive_is_cut(files, data):
    whole = archive(*files)
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=6))
    assert contents(whole, cuts=tuple(cuts)) == contents(whole)
    tar = tar_for_engine(whole, plan(), data.draw(st.integers(1, 2000)))
    assert {name: body for name, body in tar.items() if name not in {".dockerignore", DOCKERFILE}} == dict(files)


def test_a_later_member_takes_the_place_of_an_earlier_one():
    """The content of an LFS file stands behind its pointer."""
    assert contents(archive(("a", b"pointer"), ("a", b"content"))) == contents(archive(("a", b"content")))
    assert contents(archive(("Dockerfile", b"pointer"), ("Dockerfile", b"content"))).dockerfile == b"content"


def test_an_archive_of_git_is_read(tmp_path):
    def git(*argv: str) -> bytes:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        return subprocess.run(["git", *who, *argv], cwd=tmp_path, check=True, capture_output=True).stdout

    long = tmp_path / ("d" * 90) / ("e" * 90)
    long.mkdir(parents=True)
    (long / "größe").write_bytes(b"1" * 700)
    (tmp_path / "Dockerfile").write_bytes(b"FROM a\n")
    (tmp_path / "link").symlink_to("x" * 150)
    (tmp_path / "run").write_bytes(b"")
    (tmp_path / "run").chmod(0o755)
    for argv in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x")):
        git(*argv)
    data = git("archive", "--format=tar", "HEAD")
    assert contents(data).dockerfile == b"FROM a\n"
    tar = tar_for_engine(data, plan())
    assert tar["link"].linkname == "x" * 150
    assert tar["d" * 90 + "/" + "e" * 90 + "/größe"] == b"1" * 700


IDENTITY = plan(context_sha256="1", args=(("A", "1"),), platform="linux/amd64")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other",
    [
        {"text": "FROM b\n"},
        {"context_sha256": "2"},
        {"args": (("A", "2"),)},
        {"platform": "linux/arm64"},
        {"target": "a"},
    ],
)
def test_every_input_is_in_the_identity(other):
    assert build_inputs(replace(IDENTITY, **other)) != build_inputs(IDENTITY)
    assert build_inputs(replace(IDENTITY, ignore="x", context="c", dockerfile="d")) == build_inputs(IDENTITY)


@pytest.mark.parametrize(
    ("text", "out", "left"),
    [
        ("*.md", ["a.md"], ["d/a.md", "md"]),
        ("**/*.md", ["a.md", "d/e/a.md"], ["md"]),
        ("d", ["d", "d/a", "d/e/f"], ["dd", "e/d"]),
        ("/d/", ["d/a"], ["e/d"]),
        ("d/*\n!d/keep", ["d/a"], ["d/keep", "d/keep/x", "d"]),
        ("*\n!a\n!b/c", ["x", "b/d"], ["a", "b/c"]),
        ("!a\na", ["a"], ["b"]),
        ("# c\n\n  a  \n", ["a"], ["# c", "c"]),
        ("a?c", ["abc"], ["a/c", "ac"]),
        ("[ab].txt", ["a.txt"], ["c.txt"]),
        ("[^a].txt", ["b.txt"], ["a.txt"]),
        ("a\\*b", ["a*b"], ["axb"]),
        ("./a/../b", ["b"], ["a"]),
        ("**/x/**", ["x/y", "a/x/b/c"], ["y"]),
        ("?\n**/?", ["a", "b/c"], ["aa", "b.c"]),
        ("a**/b", ["a/b", "ax/b", "ax/y/b"], ["axb/c", "b"]),
        ("**a", ["a", "xa", "x/ya"], ["ab"]),
        ("***/a", ["x/a", "x/y/a"], ["a"]),
        ("a[\\]-]b", ["a]b", "a-b"], ["ab"]),
        ("[b-a]\n[]\n[^]", [], ["a", "b", "[]"]),
        ("[a-c-]", ["b", "-"], ["d"]),
        ("[^a]b", ["cb", "c/b/d"][:1], ["ab"]),
        ("[", ["["], ["a"]),
        ("", [], ["a"]),
    ],
)
def test_dockerignore(text, out, left):
    ignored = Ignored(text)
    assert [path for path in (*out, *left) if ignored(path)] == out


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "pattern", ["a*" * 30_000 + "b", "**/" * 20_000 + "b", "**/a*a*a*a*a*b\n" * 4_000, "[a]" * 21_000]
)
def test_no_pattern_makes_it_try_again(pattern):
    ignored = Ignored(pattern)
    assert not any(ignored("a" * 250 + f"/{number}/" + "a" * 250) for number in range(20))


def test_many_patterns_for_many_paths_are_refused_before_they_take_long(monkeypatch):
    monkeypatch.setattr(dockerignore, "MAX_WORK", 100_000)
    data = archive((".dockerignore", b"*.md\n" * 100), *((f"folder/{number}", b"") for number in range(500)))
    with pytest.raises(ConfigError, match=r"`\.dockerignore` has too many patterns for so many paths"):
        contents(data)


@given(
    st.lists(st.from_regex(r"!?(\*\*/)?[ab*?]{1,3}(/[ab*]{1,2})?", fullmatch=True), max_size=4),
    st.from_regex(r"[ab]{1,2}(/[ab]{1,2}){0,2}", fullmatch=True),
)
def test_dockerignore_agrees_with_the_docker_sdk(patterns, path):
    """Pattern by pattern: its rule for the folders above a path looks at some of them only. Its `***` is its own."""
    if any("***" in one or "**" in one.replace("**/", "", 1) for one in patterns):
        return
    parts = path.split("/")
    out = False
    for one in patterns:
        matcher = PatternMatcher([one.removeprefix("!")])
        if any(matcher.matches("/".join(parts[:length])) for length in range(1, len(parts) + 1)):
            out = not one.startswith("!")
    assert Ignored("\n".join(patterns))(path) == out
