"""`gpurun lock` against a registry and a hub that keep state."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from gpurun.cli.main import cli
from gpurun.cli.relock import PARALLEL, _look_up
from gpurun.domain.ids import ImageTag
from gpurun.domain.lock import ImagePin
from gpurun.plan.lock import read_lock, write_lock
from gpurun.wiring import Sources
from tests.fakes.hub import FakeHub
from tests.fakes.registry import FakeRegistry

TODAY = re.compile(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]")
FILES = {"config.json": b"{}", "weights.safetensors": b"x" * 5000}


@pytest.fixture
def registry():
    with FakeRegistry().serving() as serving:
        yield serving


@pytest.fixture(scope="module")
def served_hub():
    hub = FakeHub()
    with hub.serving():
        yield hub


@pytest.fixture
def hub(served_hub, monkeypatch):
    served_hub.clear()
    monkeypatch.setenv("GPURUN_HUB_URL", served_hub.url)
    return served_hub


@pytest.fixture
def place(tmp_path, monkeypatch, registry, hub):
    """`place(text)` writes `.gpurun.yml` into an empty current folder; {app} and {base} are names of the registry."""
    folder = tmp_path / "repo"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def write(text: str) -> Path:
        names = {name: registry.name(f"org/{name}") for name in ("app", "base")}
        (folder / ".gpurun.yml").write_text(text.format(**names))
        return folder / ".gpurun.lock"

    return write


def lock(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli(["lock", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


ONE = """\
version: 1
jobs:
  smoke:
    image: {app}:1.2
    run: "true"
    models: [{{id: acme/tiny}}]
"""
TWO = (
    ONE
    + """\
  other:
    image: {base}:9
    run: "true"
"""
)


def test_tags_and_branches_are_pinned_with_platforms_and_files(place, registry, hub, capsys):
    digest = registry.push("org/app", "1.2", platforms=("linux/arm64", "linux/amd64"))
    revision = hub.add_model("acme/tiny", FILES)
    file = place(ONE)
    before = today()
    assert lock() == 0
    told = capsys.readouterr()
    assert told.err == ""
    name = registry.name("org/app")
    assert told.out.splitlines() == [
        f"{name}:1.2  {digest[:19]}  new: linux/amd64, linux/arm64",
        f"{'acme/tiny at main':<{len(name) + 4}}  {revision[:12]}  new: 2 files, 5.0 kB",
        ".gpurun.lock: 2 pins, written; commit it beside the file.",
    ]
    written = read_lock(file.read_bytes())
    assert file.read_text() == write_lock(written)
    assert written.images[0].pin.digest == digest
    assert [platform for platform, _ in written.images[0].pin.platforms] == ["linux/amd64", "linux/arm64"]
    assert written.models[0].revision == revision
    assert {(f.path, f.size, bool(f.sha256), bool(f.blob)) for f in written.models[0].files} == {
        ("config.json", 2, False, True),
        ("weights.safetensors", 5000, True, False),
    }
    assert before <= written.images[0].locked_on <= today()


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def test_what_is_locked_is_not_asked_for_again_and_not_written(place, registry, hub, capsys):
    registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", FILES)
    file = place(ONE)
    assert lock() == 0
    before, state = file.read_bytes(), file.stat()
    registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", {"new.txt": b"1"})
    registry.requests.clear()
    hub.requests.clear()
    capsys.readouterr()
    assert lock() == 0
    assert (registry.requests, hub.requests) == ([], [])
    assert file.read_bytes() == before
    assert file.stat() == state
    assert "2 pins, as it was." in capsys.readouterr().out


def test_upgrade_moves_what_moved_and_leaves_the_rest_as_it_was(place, registry, hub, capsys):
    old = registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", FILES)
    file = place(ONE)
    assert lock() == 0
    file.write_text(TODAY.sub("2026-01-02", file.read_text()))
    model_lines = file.read_text().splitlines()[2:]
    new = registry.push("org/app", "1.2")
    capsys.readouterr()
    assert lock("--upgrade") == 0
    out = capsys.readouterr().out
    assert f"{old[:19]} → {new[:19]}  linux/amd64" in out
    assert "as of 2026-01-02" in out
    assert file.read_text().splitlines()[2:] == model_lines
    assert read_lock(file.read_bytes()).images[0].locked_on != "2026-01-02"


def test_upgrade_takes_the_file_before_the_option_as_refusals_write_it(place, registry, hub):
    registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", FILES)
    file = place(ONE)
    assert lock() == 0
    new = registry.push("org/app", "1.2")
    assert lock("./.gpurun.yml", "--upgrade") == 0
    assert read_lock(file.read_bytes()).images[0].pin.digest == new


@pytest.mark.parametrize("file", [".gpurun.yml", "sub/.gpurun.yml", ".gpurun.lock", "./x"])
def test_upgrade_takes_no_file(place, capsys, file):
    place(ONE)
    assert lock("--upgrade", file) == 2
    assert f"The file stands before it: `gpurun lock {file} --upgrade`.\n" in capsys.readouterr().err


def test_upgrade_of_one_job_leaves_the_others(place, registry, hub, capsys):
    registry.push("org/app", "1.2")
    base = registry.push("org/base", "9")
    hub.add_model("acme/tiny", FILES)
    file = place(TWO)
    assert lock() == 0
    app = registry.push("org/app", "1.2")
    registry.push("org/base", "9")
    assert lock("--upgrade", "smoke") == 0
    assert [entry.pin.digest for entry in read_lock(file.read_bytes()).images] == [app, base]
    capsys.readouterr()
    assert lock("--upgrade", "smok") == 2
    assert "There is no job 'smok' in .gpurun.yml. Did you mean 'smoke'?" in capsys.readouterr().err


def test_what_no_job_needs_is_dropped(place, registry, hub, capsys):
    registry.push("org/app", "1.2")
    registry.push("org/base", "9")
    hub.add_model("acme/tiny", FILES)
    file = place(TWO)
    assert lock() == 0
    place(ONE)
    registry.requests.clear()
    capsys.readouterr()
    assert lock() == 0
    assert "dropped: no job needs it" in capsys.readouterr().out
    assert [entry.ref for entry in read_lock(file.read_bytes()).images] == [registry.name("org/app") + ":1.2"]
    assert registry.requests == []


def test_one_name_that_is_not_there_does_not_stop_the_others(place, registry, hub, capsys):
    registry.push("org/base", "8")
    registry.push("org/app", "1.2")
    file = place(TWO)
    assert lock() == 2
    told = capsys.readouterr()
    base = registry.name("org/base")
    assert f"gpurun lock: The registry has no image {base}:9 (it answered 404).\n" in told.err
    assert "gpurun lock: The hub does not show acme/tiny: it does not exist" in told.err
    assert "It was there" not in told.err
    assert told.out.count("not pinned") == 2
    assert "2 of 3 names could not be pinned. .gpurun.lock: 1 pin, written; commit it beside the file." in told.out
    assert "(it answered 404).\nCheck the name and the tag in `image:`.\n" in told.err
    assert len(read_lock(file.read_bytes()).images) == 1


@pytest.mark.parametrize(
    ("rot", "says"),
    [
        (
            lambda registry, hub: registry.delete("org/app", "1.2"),
            "The registry has no image {app}:1.2 (it answered 404).",
        ),
        (lambda registry, hub: hub.models.clear(), "The hub does not show acme/tiny:"),
        (
            lambda registry, hub: setattr(hub.models["acme/tiny"], "gated", "manual"),
            "acme/tiny is gated, and no token was sent",
        ),
        (lambda registry, hub: setattr(hub.models["acme/tiny"], "disabled", True), "The hub has disabled acme/tiny"),
    ],
    ids=["tag deleted", "model deleted", "gated since", "disabled since"],
)
def test_rot_is_told_with_the_day_when_it_was_there(place, registry, hub, capsys, rot, says):
    registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", FILES)
    file = place(ONE)
    assert lock() == 0
    file.write_text(TODAY.sub("2026-01-02", file.read_text()))
    before = file.read_bytes()
    rot(registry, hub)
    capsys.readouterr()
    assert lock("--upgrade") == 2
    told = capsys.readouterr()
    assert says.format(app=registry.name("org/app")) in told.err
    assert "It was there on 2026-01-02, when `.gpurun.lock` pinned it.\n" in told.err
    assert "--upgrade" not in told.err  # that is what was typed
    assert "kept as of 2026-01-02" in told.out
    assert "1 of 2 names could not be pinned anew." in told.out
    assert file.read_bytes() == before


@pytest.mark.parametrize("down", ["registry", "hub"])
def test_no_answer_is_no_rot(place, registry, hub, capsys, down):
    registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", FILES)
    place(ONE)
    assert lock() == 0
    if down == "registry":
        registry.status = 503
    else:
        hub.fail_next(503)
    capsys.readouterr()
    assert lock("--upgrade") == 3
    told = capsys.readouterr().err
    assert "503" in told
    assert "It was there" not in told


def test_check_asks_nobody_and_writes_nothing(place, registry, hub, capsys):
    file = place(TWO)
    assert lock("--check") == 1
    app, base = registry.name("org/app"), registry.name("org/base")
    assert capsys.readouterr().err.splitlines() == [
        *(
            f".gpurun.lock does not pin {image}, which {job} needs."
            for image, job in sorted([(f"{app}:1.2", "smoke"), (f"{base}:9", "other")])
        ),
        ".gpurun.lock does not pin acme/tiny at main, which smoke needs.",
        "Run `gpurun lock` and commit the file.",
    ]
    assert not file.exists()
    registry.push("org/app", "1.2")
    registry.push("org/base", "9")
    hub.add_model("acme/tiny", FILES)
    assert lock() == 0
    before = file.read_bytes()
    registry.status = 503
    registry.requests.clear()
    hub.requests.clear()
    capsys.readouterr()
    assert lock("--check") == 0
    assert capsys.readouterr().out == ".gpurun.lock pins everything that .gpurun.yml does not.\n"
    place(ONE)
    assert lock("--check") == 1
    assert f".gpurun.lock pins {base}:9, which no job needs.\n" in capsys.readouterr().err
    assert (registry.requests, hub.requests, file.read_bytes()) == ([], [], before)


def test_check_imports_nothing_that_could_reach_a_network():
    program = "import sys, gpurun.cli.lock; print({'httpx', 'httpx2', 'docker', 'gpurun.wiring'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "set()"


def test_check_and_upgrade_together_are_a_mistake(capsys):
    assert lock("--check", "--upgrade") == 2
    assert "Use one of them." in capsys.readouterr().err


ALL_PINNED = f"version: 1\njobs:\n  smoke: {{{{image: 'x@sha256:{'a' * 64}', run: 'true'}}}}\n"


def test_a_file_that_pins_everything_needs_no_lock(place, capsys):
    file = place(ALL_PINNED)
    assert lock("--check") == 0
    assert lock() == 0
    assert "Nothing to lock: .gpurun.yml pins everything itself." in capsys.readouterr().out
    assert not file.exists()


def test_a_lock_that_nobody_needs_any_more_is_emptied(place, registry, hub):
    registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", FILES)
    file = place(ONE)
    assert lock() == 0
    place(ALL_PINNED)
    assert lock("--check") == 1
    assert lock() == 0
    assert file.read_text().splitlines() == ['{"gpurun_lock": 1}']
    assert lock("--check") == 0


def test_a_broken_file_or_lock_is_told_with_its_place(place, capsys):
    file = place("version: 1\njobs: {{smoke: {{imag: x}}}}\n")
    assert lock() == 2
    assert ".gpurun.yml:2:" in capsys.readouterr().err
    place(ALL_PINNED)
    file.write_text('{"gpurun_lock": 1}\nrubbish\n')
    for words in ([], ["--check"]):
        assert lock(*words) == 2
        assert ".gpurun.lock:2: " in capsys.readouterr().err
    assert file.read_text() == '{"gpurun_lock": 1}\nrubbish\n'


def test_no_file(place, capsys, tmp_path):
    assert lock() == 2
    assert "gpurun lock: .gpurun.yml cannot be read: No such file or directory." in capsys.readouterr().err


def test_files_are_named_by_themselves_or_by_their_lock(place, registry, hub, tmp_path, monkeypatch, capsys):
    """As pre-commit hands them over."""
    place(ALL_PINNED)
    registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", FILES)
    sub = Path("sub")
    sub.mkdir()
    (sub / ".gpurun.yml").write_text(ONE.format(app=registry.name("org/app")))
    assert lock("sub/.gpurun.yml", "sub/.gpurun.lock", ".gpurun.yml") == 0
    assert (sub / ".gpurun.lock").exists()
    assert not Path(".gpurun.lock").exists()
    capsys.readouterr()
    assert lock("--check", "sub/.gpurun.lock", ".gpurun.yml") == 0
    assert capsys.readouterr().out.count("pins everything") == 2


def test_a_file_of_another_name_takes_no_pins_away(place, registry, hub, capsys):
    registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", FILES)
    file = place(ONE)
    assert lock() == 0
    before = file.read_bytes()
    Path("b.yml").write_text(ALL_PINNED.format())
    for words in (["b.yml"], [".gpurun.yml", "b.yml"], ["--check", "b.yml"]):
        assert lock(*words) == 2
        assert "b.yml is not called .gpurun.yml" in capsys.readouterr().err
    assert file.read_bytes() == before


@pytest.mark.parametrize("leads_to", ["real.lock", "nowhere", ".gpurun.lock"])
def test_no_lock_is_written_through_a_link(place, registry, hub, tmp_path, capsys, leads_to):
    registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", FILES)
    file = place(ONE)
    real = tmp_path / "real.lock"
    real.write_text('{"gpurun_lock": 1}\n')
    file.symlink_to(leads_to if leads_to == file.name else tmp_path / leads_to)
    for words in ((), ("--check",), ("--upgrade",)):
        assert lock(*words) == 2
        assert capsys.readouterr().err == (
            "gpurun lock: .gpurun.lock is a symbolic link; put the file itself there.\n"
            "Links are not followed: what they lead to need not be in the commit.\n"
        )
    assert file.is_symlink()
    assert not (tmp_path / "nowhere").exists()
    assert real.read_text() == '{"gpurun_lock": 1}\n'


def test_permissions_stay(place, registry, hub, tmp_path):
    registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", FILES)
    file = place(ONE)
    file.write_text('{"gpurun_lock": 1}\n')
    file.chmod(0o640)
    assert lock() == 0
    assert "acme/tiny" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in file.parent.iterdir()) == [".gpurun.lock", ".gpurun.yml"]


def test_a_lock_that_cannot_be_read(place, registry, hub, monkeypatch, capsys):
    registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", FILES)
    place(ONE)
    Path(".gpurun.lock").mkdir()
    said = "gpurun lock: .gpurun.lock is a folder; a file belongs there.\nMove the folder away.\n"
    for words in ((), ("--check",)):
        assert lock(*words) == 2
        assert capsys.readouterr().err == said


def test_a_folder_that_cannot_be_written_to(place, registry, hub, monkeypatch, capsys):
    """As on a disk that is full; root, which these tests may run as, writes whatever the permissions say."""
    registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", FILES)
    file = place(ONE)

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert lock() == 2
    told = capsys.readouterr().err
    assert ".gpurun.lock cannot be written: No space left on device.\n`ls -ld .` shows who may write there" in told
    assert sorted(path.name for path in file.parent.iterdir()) == [".gpurun.yml"]


class Registry:
    """How many ask it at the same time."""

    def __init__(self) -> None:
        self.now = self.most = self.asked = 0

    async def pin(self, name: str, tag: str, *, login: object = None) -> ImagePin:
        self.now, self.asked = self.now + 1, self.asked + 1
        self.most = max(self.most, self.now)
        for _ in range(50):  # turns for everybody who may ask meanwhile
            await anyio.lowlevel.checkpoint()
        self.now -= 1
        return ImagePin(digest=f"sha256:{'a' * 64}")


async def test_names_are_looked_up_some_at_a_time(clock):
    registry = Registry()
    names = [ImageTag(f"localhost/org/n{number}:1") for number in range(3 * PARALLEL)]
    answers = await _look_up(names, {}, Sources(hub=None, images=registry, git=None, clock=clock))
    assert (registry.most, registry.asked) == (PARALLEL, len(names))
    assert 1 < PARALLEL < len(names)
    assert (list(map(str, sorted(answers.found))), answers.failed) == (sorted(map(str, names)), {})


def test_the_order_of_answers_does_not_show(place, registry, hub):
    for number in range(20):
        registry.push(f"org/n{number}", "1")
    jobs = "".join(f"  j{n}: {{image: {registry.name(f'org/n{n}')}:1, run: 'true'}}\n" for n in range(20))
    file = place("")
    Path(".gpurun.yml").write_text(f"version: 1\njobs:\n{jobs}")
    assert lock() == 0
    first = file.read_bytes()
    file.unlink()
    assert lock() == 0
    assert file.read_bytes() == first


def test_b084_a_short_id_is_locked_as_the_whole_one(place, registry, hub, capsys):
    registry.push("org/app", "1.2")
    revision = hub.add_model("acme/tiny", FILES)
    hub.add_model("acme/tiny", {"config.json": b"newer"})
    path = place(ONE.replace("id: acme/tiny", f"id: acme/tiny, revision: '{revision[:8].upper()}'"))
    assert lock() == 0
    (entry,) = read_lock(path.read_text()).models
    assert (entry.ref, entry.revision) == (revision[:8], revision)
    assert f"acme/tiny at {revision[:8]}" in capsys.readouterr().out


def test_b084_a_short_id_that_the_hub_does_not_know_is_refused(place, registry, hub, capsys):
    registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", FILES)
    place(ONE.replace("id: acme/tiny", "id: acme/tiny, revision: 9c41ab07"))
    assert lock() == 2
    assert "acme/tiny has no commit that starts with 9c41ab07, or more than one." in capsys.readouterr().err


PRIVATE = """\
version: 1
jobs:
  other: {{image: "{app}:1.2", run: "true"}}
  smoke: {{image: "{app}:1.2", run: "true", registry: {{username: ci, password: REGISTRY_TOKEN}}}}
"""


def test_a_private_image_is_asked_for_with_the_login_of_a_job_that_names_one(place, registry, capsys):
    registry.push("org/app", "1.2")
    registry.login = "ci:s3cret-word"
    lock_file = place(PRIVATE)
    assert lock() == 2
    assert "without a login" in capsys.readouterr().err
    lock_file.with_name(".env").write_text("OTHER=x\nREGISTRY_TOKEN=wrong-word\n")
    assert lock() == 2
    told = capsys.readouterr().err
    assert "or the login of 'ci' may not read it" in told
    assert "wrong-word" not in told
    lock_file.with_name(".env").write_text("REGISTRY_TOKEN=s3cret-word\n")
    assert lock() == 0
    assert "s3cret-word" not in lock_file.read_text() + capsys.readouterr().out


def test_while_a_name_cannot_be_pinned_what_no_job_needs_stays(place, registry, hub, capsys):
    """Whoever mistypes a new tag goes back to the old one."""
    registry.push("org/app", "1.2")
    hub.add_model("acme/tiny", FILES)
    file = place(ONE)
    assert lock() == 0
    before = file.read_bytes()
    place(ONE.replace(":1.2", ":1.33"))
    capsys.readouterr()
    assert lock() == 2
    told = capsys.readouterr().out
    assert "kept until all names are pinned: no job needs it\n" in told
    assert "1 of 2 names could not be pinned. .gpurun.lock: 2 pins, as it was." in told
    assert file.read_bytes() == before
    registry.push("org/app", "1.33")
    assert lock() == 0
    assert "dropped: no job needs it" in capsys.readouterr().out


def test_without_a_pin_nothing_is_written_and_said_so(place, registry, hub, capsys):
    file = place(ONE)
    assert lock() == 2
    assert "2 of 2 names could not be pinned. .gpurun.lock: 0 pins, not written." in capsys.readouterr().out
    assert not file.exists()


def test_names_of_any_length_stand_in_one_column(place, registry, hub, capsys):
    registry.push("org/app", "1.2")
    name = f"organisation-with-a-long-name/{'model-' * 12}instruct"
    hub.add_model(name, FILES)
    hub.add_model("acme/tiny", FILES)
    place(ONE.replace("[{{id: acme/tiny}}]", f"[{{{{id: acme/tiny}}}}, {{{{id: {name}}}}}]"))
    assert lock() == 0
    *rows, _ = capsys.readouterr().out.splitlines()
    values = [row.partition("  new: ")[0].rpartition("  ")[2] for row in rows]
    assert len({row.index(value) for row, value in zip(rows, values, strict=True)}) == 1
