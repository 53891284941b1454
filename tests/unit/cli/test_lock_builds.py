"""`gpurun lock` for jobs with a `build`: what their Dockerfiles name is pinned like an image."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpurun.cli.validate import validate_file
from gpurun.plan.build import no_dockerfile
from gpurun.plan.lock import read_lock
from tests.fakes.registry import FakeRegistry
from tests.unit.cli.test_lock import lock

BUILD = """\
version: 1
jobs:
  smoke: {build: {dockerfile: docker/Dockerfile, args: {V: "9"}}, run: x}
  other: {build: ./sub, run: x}
"""


@pytest.fixture
def registry():
    with FakeRegistry().serving() as serving:
        yield serving


@pytest.fixture
def place(tmp_path, monkeypatch, registry):
    """A checkout with Dockerfiles that name `app:9` and `base:1`."""
    top = tmp_path / "repo"
    for folder in (".git", "docker", "sub"):
        (top / folder).mkdir(parents=True)
    monkeypatch.chdir(top)
    app, base = registry.name("org/app"), registry.name("org/base")
    (top / "docker/Dockerfile").write_text(f"ARG V=1\nFROM {app}:$V\nCOPY --from={base}:1 /x /x\n")
    (top / "sub/Dockerfile").write_text(f"FROM {base}:1\n")
    (top / ".gpurun.yml").write_text(BUILD)
    return top


def test_every_image_of_every_dockerfile_is_pinned(place: Path, registry: FakeRegistry, capsys):
    digests = {name: registry.push(f"org/{name}", tag) for name, tag in (("app", "9"), ("base", "1"))}
    assert lock("--check") == 1
    told = capsys.readouterr().err
    assert f".gpurun.lock does not pin {registry.name('org/base')}:1, which smoke and other needs." in told
    assert lock() == 0
    pinned = {image.ref.name: image.pin.digest for image in read_lock((place / ".gpurun.lock").read_bytes()).images}
    assert pinned == {registry.name(f"org/{name}"): digest for name, digest in digests.items()}
    assert lock("--check") == 0
    (place / "docker/Dockerfile").write_text("FROM scratch\n")
    capsys.readouterr()
    assert lock() == 0
    assert "dropped: no job needs it" in capsys.readouterr().out


def test_a_dockerfile_that_cannot_be_pinned_is_shown_with_its_line(place: Path, capsys):
    (place / "sub/Dockerfile").write_text("FROM base:1\n\nADD https://e.org/x /\n")
    assert lock() == 2
    told = capsys.readouterr().err
    assert (
        "sub/Dockerfile:3:1: `ADD https://e.org/x` may bring in what nobody pinned\n3 | ADD https://e.org/x /" in told
    )


def test_an_image_that_is_not_there_is_looked_for_in_the_dockerfile(place: Path, registry: FakeRegistry, capsys):
    registry.push("org/app", "8")
    registry.push("org/base", "1")
    assert lock() == 2
    told = capsys.readouterr().err
    assert "Check the name and the tag in line 2 of `docker/Dockerfile`." in told
    assert "`image:`" not in told


NO_FILE = (
    ".gpurun.yml:4:11: there is no file 'sub/Dockerfile' in the repository\n"
    "4 |   other: {build: ./sub, run: x}\n  |           ^\n"
    "`build: {dockerfile: …}` names it from the folder that holds this file. A link is none.\n"
)


@pytest.mark.parametrize("what", ["nothing", "link", "link to a folder", "folder", "pipe"])
def test_what_no_commit_would_have_as_a_dockerfile_is_refused_as_a_run_does(place: Path, capsys, what):
    outside = place.parent / "outside"
    outside.mkdir()
    (outside / "Dockerfile").write_text("FROM read-me:1\n")
    file = place / "sub/Dockerfile"
    file.unlink()
    match what:
        case "link":
            file.symlink_to("../../outside/Dockerfile")
        case "link to a folder":
            file.parent.rmdir()
            file.parent.symlink_to(outside)
        case "folder":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
    (place / "docker/Dockerfile").write_text("FROM scratch\n")
    assert lock() == 2
    assert capsys.readouterr().err == NO_FILE
    assert not (place / ".gpurun.lock").exists()
    assert validate_file(Path(".gpurun.yml")) == 2
    assert capsys.readouterr() == ("", NO_FILE)
    told = no_dockerfile("sub/Dockerfile")
    assert told.message in NO_FILE
    assert told.hint in NO_FILE


def test_a_context_that_no_commit_would_have_is_refused(place: Path, capsys):
    (place / ".gpurun.yml").write_text(BUILD.replace("./sub", "{dockerfile: sub/Dockerfile, context: none}"))
    assert lock() == 2
    assert "there is no folder 'none' in the repository" in capsys.readouterr().err


def test_a_file_without_a_checkout_or_under_another_name_is_checked_by_itself(place: Path, capsys):
    (place / "sub/Dockerfile").unlink()
    (place / "other.yml").write_text(BUILD)
    assert validate_file(Path("other.yml")) == 0
    (place / ".git").rmdir()
    assert validate_file(Path(".gpurun.yml")) == 0


def test_a_dockerfile_of_a_submodule_that_is_not_here_is_not_missed(place: Path, capsys):
    (place / "sub/Dockerfile").unlink()
    (place / ".gitmodules").write_text("")
    (place / ".gpurun.yml").write_text(BUILD.replace("./sub,", "./sub, checkout: {submodules: fetch},"))
    assert validate_file(Path(".gpurun.yml")) == 0


def test_a_path_out_of_the_checkout_is_shown_with_its_line(place: Path, capsys):
    (place / ".gpurun.yml").write_text("version: 1\njobs:\n  smoke:\n    build: ../other\n    run: x\n")
    assert lock() == 2
    told = capsys.readouterr().err
    assert ".gpurun.yml:4:5: '../other' leads out of the repository\n4 |     build: ../other\n  |     ^\n" in told


def test_a_login_without_a_server_is_for_one_registry(place: Path, capsys):
    (place / "sub/Dockerfile").write_text("FROM base:1\nCOPY --from=ghcr.io/a/b:1 /x /\n")
    config = "version: 1\njobs:\n  smoke:\n    build: sub\n    run: x\n    registry: {username: a, password: B}\n"
    (place / ".gpurun.yml").write_text(config)
    assert lock() == 2
    assert "6:5: `registry` does not say for which of docker.io, ghcr.io the login is" in capsys.readouterr().err
