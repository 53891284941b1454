"""A layer put onto a copy of what was before gives what was after; one that does not fit changes nothing."""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpurun_agent.layer import Broken, NotKept, NotTaken, Place, pack, require_fits, unpack, verify

MOST = 1 << 30


def nothing() -> None:
    """No pause."""


def place_of(folder: Path, **changes) -> Place:
    return Place(os.fsencode(folder), b"gpurun/work", **changes)


def tree(folder: Path) -> dict[str, tuple]:
    """All that a layer has to bring back."""
    found: dict[str, tuple] = {}
    groups: dict[int, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        state, name = path.lstat(), str(path.relative_to(folder))
        kind = stat.S_IFMT(state.st_mode)
        content: object = ""
        if kind == stat.S_IFREG:
            content = (path.read_bytes(), {key: os.getxattr(path, key) for key in os.listxattr(path)})
            groups.setdefault(state.st_ino, []).append(name)
        elif kind == stat.S_IFLNK:
            content = str(path.readlink())
        found[name] = (state.st_mode, state.st_uid, state.st_gid, state.st_mtime_ns, content)
    links = {tuple(names) for names in groups.values() if len(names) > 1}
    return {**found, "links": tuple(sorted(links))}


def copied(folder: Path, to: Path) -> None:
    subprocess.run(["cp", "-a", str(folder), str(to)], check=True)


def layer_of(folder: Path, change, **place) -> bytes:
    """What `change` did to the folder, as a layer."""
    at = place_of(folder, **place)
    before = at.look(nothing)
    change()
    out = io.BytesIO()
    sha256, size = pack(at, before, out, MOST, nothing)
    assert (hashlib.sha256(out.getvalue()).hexdigest(), len(out.getvalue())) == (sha256, size)
    verify(out, sha256, size, nothing)
    return out.getvalue()


NAMES = ["a", "b", "c", "n" * 120, "ä\n"]
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
STEPS = st.one_of(
    st.tuples(st.just("write"), PATHS, st.binary(max_size=1500)),
    st.tuples(st.just("append"), PATHS, st.binary(min_size=1, max_size=5)),
    st.tuples(st.just("folder"), PATHS, st.none()),
    st.tuples(st.just("symlink"), PATHS, st.sampled_from(["a", "/nowhere", "x" * 150])),
    st.tuples(st.just("hardlink"), PATHS, PATHS),
    st.tuples(st.just("remove"), PATHS, st.none()),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("mode"), PATHS, st.sampled_from([0o600, 0o644, 0o755, 0o4755, 0o700, 0o1777])),
    st.tuples(st.just("time"), PATHS, st.integers(min_value=0, max_value=2**62)),
    st.tuples(st.just("pipe"), PATHS, st.none()),
    st.tuples(st.just("owner"), PATHS, st.sampled_from([0, 1000, 3_000_000])),
)


def take(folder: Path, step) -> None:
    """A step that cannot be taken is none."""
    what, name, more = step
    path = folder / name
    try:
        if path.is_fifo() and what in ("write", "append"):
            return  # it would wait for a reader
        if what == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(more)
        elif what == "append":
            with path.open("ab") as file:
                file.write(more)
        elif what == "folder":
            path.mkdir(parents=True)
        elif what == "symlink":
            path.symlink_to(more)
        elif what == "hardlink":
            os.link(folder / more, path, follow_symlinks=False)
        elif what == "remove":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        elif what == "rename":
            path.rename(folder / more)
        elif what == "mode" and not path.is_symlink():
            path.chmod(more)
        elif what == "time":
            os.utime(path, ns=(more, more), follow_symlinks=False)
        elif what == "pipe":
            os.mkfifo(path)
        elif what == "owner" and os.geteuid() == 0:
            os.chown(path, more, more, follow_symlinks=False)
    except (OSError, shutil.Error):
        pass


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(before=st.lists(STEPS, max_size=12), setup=st.lists(STEPS, max_size=12))
def test_a_layer_brings_back_what_setup_did(before, setup):
    with tempfile.TemporaryDirectory() as made:
        folder, other = Path(made) / "one", Path(made) / "two"
        folder.mkdir()
        for step in before:
            take(folder, step)
        copied(folder, other)
        layer = layer_of(folder, lambda: [take(folder, step) for step in setup])
        require_fits(place_of(other), io.BytesIO(layer))
        unpack(place_of(other), io.BytesIO(layer), nothing)
        assert tree(other) == tree(folder)


def test_tar_reads_a_layer(tmp_path):
    def setup() -> None:
        (tmp_path / "root/usr").mkdir()
        (tmp_path / f"root/usr/{'l' * 200}").write_bytes(b"x" * 600)
        (tmp_path / "root/old").unlink()

    (tmp_path / "root").mkdir()
    (tmp_path / "root/old").touch()
    (tmp_path / "layer.tar").write_bytes(layer_of(tmp_path / "root", setup))
    told = subprocess.run(["tar", "tf", tmp_path / "layer.tar"], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [".wh.old", "usr", f"usr/{'l' * 200}"]


def test_attributes_of_users_are_kept(tmp_path):
    folder = tmp_path / "one"
    folder.mkdir()
    try:
        os.setxattr(folder, "user.probe", b"1")
    except OSError:
        pytest.skip("this file system keeps no attributes")

    def setup() -> None:
        (folder / "a").write_text("a")
        for name in names:
            os.setxattr(folder / "a", name, b"\0\xff=\n")

    names = ["user.mine", "user.a=b", "user.%3D%25=", "user.="]
    (tmp_path / "two").mkdir()
    unpack(place_of(tmp_path / "two"), io.BytesIO(layer_of(folder, setup)), nothing)
    assert {name: os.getxattr(tmp_path / "two/a", name) for name in os.listxattr(tmp_path / "two/a")} == dict.fromkeys(
        names, b"\0\xff=\n"
    )


def test_what_is_left_out_is_neither_packed_nor_removed(tmp_path):
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp/gone").touch()

    def setup() -> None:
        (tmp_path / "tmp/gone").unlink()
        (tmp_path / "tmp/new").touch()
        (tmp_path / "kept").touch()

    assert b"tmp" not in layer_of(tmp_path, setup, skip=[b"tmp"])


@pytest.fixture
def work(tmp_path):
    work = tmp_path / "root/gpurun/work"
    (work / "src").mkdir(parents=True)
    for name in ("lock.json", "src/a.py"):
        (work / name).write_text(name)
    return work


def test_new_files_in_the_folder_of_the_commit_go_with_it_and_nothing_of_the_commit(work, tmp_path):
    def setup() -> None:
        (work / "app.egg-info").mkdir()
        (work / "app.egg-info/PKG-INFO").write_text("app")
        (work / "src/a.so").write_bytes(b"so")
        (work / "lock.json").write_text("new")

    layer = layer_of(tmp_path / "root", setup, inputs=[b"lock.json"])
    two = tmp_path / "two/gpurun/work"
    (two / "src").mkdir(parents=True)
    (two / "src/a.py").write_text("another commit")
    (two / "lock.json").write_text("lock.json")
    at = place_of(tmp_path / "two", inputs=[b"lock.json"])
    require_fits(at, io.BytesIO(layer))
    unpack(at, io.BytesIO(layer), nothing)
    assert {str(path.relative_to(two)): path.read_text() for path in two.rglob("*") if path.is_file()} == {
        "app.egg-info/PKG-INFO": "app", "src/a.so": "so", "src/a.py": "another commit", "lock.json": "new",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda work: (work / "src/a.py").write_text("x"), "setup changed src/a.py, which is of the commit and not in"),
        (lambda work: (work / "src/a.py").unlink(), "setup removed src/a.py, which is of the commit"),
        (lambda work: shutil.rmtree(work / "src"), "setup removed src"),
        (lambda work: (work / "src/.wh.x").touch(), "setup made src/.wh.x, a name that layers need"),
    ],
)
def test_what_setup_does_to_the_commit_is_no_layer(work, tmp_path, change, told):
    at = place_of(tmp_path / "root")
    before = at.look(nothing)
    change(work)
    with pytest.raises(NotKept) as no:
        pack(at, before, io.BytesIO(), MOST, nothing)
    assert told in str(no.value)


def test_a_layer_that_grows_too_large_is_none(tmp_path):
    at = place_of(tmp_path)
    before = at.look(nothing)
    (tmp_path / "large").write_bytes(bytes(3 << 20))
    with pytest.raises(NotKept, match="more than 2 MiB"):
        pack(at, before, io.BytesIO(), 2 << 20, nothing)


def test_another_commit_that_has_what_setup_made_does_not_take_it(work, tmp_path):
    layer = layer_of(tmp_path / "root", lambda: (work / "src/made.py").write_text("made"))
    two = tmp_path / "two/gpurun/work"
    two.mkdir(parents=True)
    with pytest.raises(NotTaken, match="the commit has no folder src"):
        require_fits(place_of(tmp_path / "two"), io.BytesIO(layer))
    (two / "src").mkdir()
    (two / "src/made.py").write_text("of the commit")
    with pytest.raises(NotTaken, match=r"the commit has src/made\.py"):
        require_fits(place_of(tmp_path / "two"), io.BytesIO(layer))
    assert (two / "src/made.py").read_text() == "of the commit"


@pytest.mark.parametrize("at", [0, 700, -1])
def test_one_changed_byte_is_found(tmp_path, at):
    layer = bytearray(layer_of(tmp_path, lambda: (tmp_path / "a").write_bytes(b"a" * 900)))
    sha256 = hashlib.sha256(layer).hexdigest()
    layer[at] ^= 1
    with pytest.raises(NotTaken, match="its bytes are not those that were recorded"):
        verify(io.BytesIO(layer), sha256, len(layer), nothing)
    layer[at] ^= 1
    with pytest.raises(NotTaken):
        verify(io.BytesIO(layer + b"x"), sha256, len(layer), nothing)
    verify(io.BytesIO(layer), sha256, len(layer), nothing)


def test_what_cannot_be_written_is_told(tmp_path):
    (tmp_path / "one").mkdir()
    layer = layer_of(tmp_path / "one", lambda: (tmp_path / "one/a").write_text("a"))
    with pytest.raises(Broken, match="No such file"):
        unpack(place_of(tmp_path / "none"), io.BytesIO(layer), nothing)


@pytest.fixture
def open_to_all():
    """A folder that everybody reaches; those of pytest are the user's alone."""
    with tempfile.TemporaryDirectory(prefix="gpurun-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def as_somebody(do, *, uid: int = 1000) -> str:
    """Without any privilege, also as root. What it raised."""
    told, tell = os.pipe()
    child = os.fork()
    if not child:  # whatever happens, it must not go on as this test
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            if uid:
                os.setresuid(uid, uid, uid)
            else:
                drop_capabilities()
            do()
        except BaseException as error:
            os.write(tell, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(tell)
    said = os.read(told, 4096)
    os.close(told)
    assert os.waitpid(child, 0)[1] == 0
    return said.decode()


def drop_capabilities() -> None:
    """All that counts here, as `cap_drop: ALL` does."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    assert libc.syscall(CAPSET[os.uname().machine], header, (ctypes.c_uint32 * 6)()) == 0


CAPSET = {"x86_64": 126, "aarch64": 91}

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@only_root
def test_somebody_without_a_name_puts_it_into_folders_of_others(open_to_all):
    """As a job that is no root does, in a folder that is open to all."""

    def setup() -> None:
        subprocess.run(
            ["sh", "-c", "mkdir open/mine; echo a > open/mine/a"], cwd=one, user=1000, group=1000, check=True
        )

    one, two = open_to_all / "one", open_to_all / "two"
    for folder in (one, two):
        (folder / "open").mkdir(parents=True)
        (folder / "open").chmod(0o1777)
    layer = layer_of(one, setup)
    assert as_somebody(lambda: unpack(place_of(two), io.BytesIO(layer), nothing)) == ""
    assert (two / "open/mine/a").read_text() == "a\n"


def shared_folder(folder: Path) -> None:
    """Things of root and of others, open to all."""
    for name in ("open", "others/deep"):
        (folder / name).mkdir(parents=True)
    for name in ("open/log", "others/deep/file", "group"):
        (folder / name).write_text("before\n")
        (folder / name).chmod(0o666)
    os.chown(folder / "group", 0, 42)
    for name in ("others", "others/deep", "others/deep/file"):
        os.chown(folder / name, 2000, 2000)
    for name in ("open", "others", "others/deep"):
        (folder / name).chmod(0o777)


@only_root
@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize(
    ("setup", "told"),
    [
        ("echo more >> open/log", "open/log, which setup made or changed, is of another user or group"),
        ("echo more >> others/deep/file", "others/deep/file, which setup made or changed, is of another user or group"),
        ("mv others/deep/file open/taken", "open/taken, which setup made or changed, is of another user or group"),
        ("mv others/deep open/taken", "setup removed /others/deep, a folder of another user"),
        ("mv others/deep skipped/taken", "setup removed /others/deep, a folder of another user"),
        ("echo more >> group", "group, which setup made or changed, is of another user or group"),
        ("mkdir open/shut; touch open/shut/a; chmod 0 open/shut", "setup closed /open/shut, so that nobody knows what"),
    ],
)
def test_what_nobody_could_put_there_again_is_not_kept(open_to_all, uid, setup, told):
    """`cap_drop: ALL` leaves root no more rights than its owner has: such a layer could only fail the next run."""
    one = open_to_all / "one"
    shared_folder(one)
    (one / "skipped").mkdir()
    (one / "skipped").chmod(0o777)
    at = place_of(one, skip=[b"skipped"])
    before = at.look(nothing)

    def carry_out() -> None:
        subprocess.run(["sh", "-c", setup], cwd=one, check=True)
        pack(at, before, io.BytesIO(), MOST, nothing)

    said = as_somebody(carry_out, uid=uid)
    if uid == 0 and setup.endswith("open/log"):
        assert said == ""  # its own
    else:
        assert said.startswith("NotKept: ")
        assert told in said


@only_root
@pytest.mark.parametrize("uid", [0, 1000])
def test_a_folder_that_gives_its_group_away_does_so_again(open_to_all, uid):
    """As `dist-packages` of Debian, into which pip installs."""
    one, two = open_to_all / "one", open_to_all / "two"
    for folder in (one, two):
        (folder / "staff").mkdir(parents=True)
        os.chown(folder / "staff", uid, 42)
        (folder / "staff").chmod(0o2775)
    layer = open_to_all / "layer"
    layer.touch()
    layer.chmod(0o666)

    def carry_out() -> None:
        at = place_of(one)
        before = at.look(nothing)
        subprocess.run(["sh", "-c", "umask 022; mkdir -p staff/pkg/sub; touch staff/pkg/sub/a"], cwd=one, check=True)
        with layer.open("wb") as file:
            pack(at, before, file, MOST, nothing)
        with layer.open("rb") as file:
            unpack(place_of(two), file, nothing)

    assert as_somebody(carry_out, uid=uid) == ""
    made = two / "staff/pkg/sub"
    assert (made.stat().st_gid, stat.S_IMODE(made.stat().st_mode)) == (42, 0o2755)
    assert tree(two) == tree(one)
