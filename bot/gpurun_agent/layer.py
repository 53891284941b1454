"""What `setup` changed in the container's files: found by looking before and after, packed into one tar, put in place
again in another container of the same image.

The tar is as an image has it: paths from `/`, parents before what is in them, `.wh.<name>` for what is gone. `tarfile`
is missing from small images.
"""

from __future__ import annotations

import hashlib
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from typing import BinaryIO

    State = tuple[int, int, int, int, int, int]
    """Inode, change, modification, size, mode, owner."""

GONE = b".wh."
MOST_FILES = 500_000
"""Each takes 400 bytes of the job's memory while `setup` runs, and 140 more behind it; a large image has 100,000."""
_XATTR = b"SCHILY.xattr."
_BLOCK = 512
_PIECE = 1024 * 1024
_NO_NUMBER = 8**7
"""From here on a number has no room in its field."""
_NO_SIZE = 8**11
_OF_OTHERS = 0b1011
"""CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER."""


class NotKept(Exception):
    """No layer can be made of this. The message is for people."""


class NotTaken(Exception):
    """The layer does not fit here; nothing was written."""


class Broken(Exception):
    """Some of the layer was written, and the rest cannot be."""


class Place:
    """The files that count: everything below `root` but what is in `skip`, paths from there. In `work`, the folder of
    the commit, only what is new counts; what is there before must stay as it is, but for `inputs`.
    """

    def __init__(
        self, root: bytes, work: bytes, *, skip: Collection[bytes] = (), inputs: Collection[bytes] = ()
    ) -> None:
        self.root = root.rstrip(b"/") + b"/"
        self.work = work
        self.skip = frozenset(skip)
        self.inputs = frozenset(work + b"/" + path for path in inputs)

    def look(self, pause: Callable[[], None], known: dict[bytes, State] | None = None) -> dict[bytes, State]:
        """All of them. `pause` is called once a folder. What is `known` and has not changed is remembered once.

        Raises NotKept when there are too many.
        """
        known = known or {}
        seen: dict[bytes, State] = {}
        waiting = [b""]
        while waiting:
            folder = waiting.pop()
            pause()
            try:
                entries = os.scandir(self.root + folder)
            except OSError:
                continue  # who may not read it cannot change it either
            prefix = folder + b"/" if folder else b""
            with entries:
                for entry in entries:
                    path = prefix + entry.name
                    if path in self.skip:
                        continue
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    state = (
                        found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_mode, found.st_uid,
                    )  # fmt: skip
                    before = known.get(path)
                    seen[path] = before if before is not None and before == state else state
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(path)
                    if len(seen) > MOST_FILES:
                        raise NotKept("there are more than %d files" % MOST_FILES)
        return seen

    def is_work(self, path: bytes) -> bool:
        """Of the commit's folder, or that itself."""
        return path == self.work or path.startswith(self.work + b"/")


def changes(place: Place, before: dict[bytes, State], after: dict[bytes, State]) -> tuple[list[bytes], list[bytes]]:
    """What is gone, only the uppermost, and what is to be packed, in order. Raises NotKept."""
    gone = [path for path in before if path not in after and _is_folder(after, path.rpartition(b"/")[0])]
    changed = {path for path, state in after.items() if before.get(path) != state}
    for path in (*gone, *sorted(changed)):
        if path in before and place.is_work(path) and path not in place.inputs and not _is_folder(after, path):
            what = "changed" if path in after else "removed"
            raise NotKept("setup %s %s, which is of the commit and not in setup_inputs" % (what, _shown(place, path)))
    for path in (*gone, *changed):
        parent = path.rpartition(b"/")[0]
        if parent:
            changed.add(parent)  # whatever is done in it, its times are as they were
    kept = (path for path in changed if not (place.is_work(path) and path in before and _is_folder(before, path)))
    return sorted(gone), sorted(kept)


def pack(
    place: Place, before: dict[bytes, State], out: BinaryIO, most: int, pause: Callable[[], None]
) -> tuple[str, int]:
    """Hash and size of what was written. Raises NotKept, OSError."""
    after = place.look(pause, before)
    gone, changed = changes(place, before, after)
    takes_all = _may_give_away()
    if not takes_all:
        _require_removable(place, before, after)
    tar = _Tar(out, most, pause)
    for path in gone:
        folder, _, name = path.rpartition(b"/")
        tar.add(b"%s/%s%s" % (folder, GONE, name) if folder else GONE + name, None, b"0", 0)
    links: dict[tuple[int, int], bytes] = {}
    for path in changed:
        if path.rpartition(b"/")[2].startswith(GONE):
            raise NotKept("setup made %s, a name that layers need" % _shown(place, path))
        pause()
        found = os.lstat(place.root + path)
        if stat.S_ISDIR(found.st_mode) and not os.access(place.root + path, os.R_OK | os.X_OK):
            raise NotKept("setup closed %s, so that nobody knows what is in it" % _shown(place, path))
        if not (takes_all or _is_as_before(before.get(path), found)):
            _require_ours(place, path, found)
        _pack_one(tar, place.root + path, path, found, links)
    tar.close()
    return tar.sha256.hexdigest(), tar.size


def _may_give_away() -> bool:
    """Whoever takes the layer has the rights that we have: jobs on Docker have none of these, even as root."""
    with open("/proc/self/status", "rb") as file:
        words = [line.split() for line in file if line.startswith(b"CapEff:")]
    return bool(words) and int(words[0][1], 16) & _OF_OTHERS == _OF_OTHERS


def _is_as_before(before: State | None, found: os.stat_result) -> bool:
    """A folder of the image: nobody has to make it."""
    return before is not None and stat.S_ISDIR(before[4]) and before[0] == found.st_ino


def _require_ours(place: Place, path: bytes, found: os.stat_result) -> None:
    """Who takes the layer makes this anew, and can give nothing away. Raises NotKept."""
    folder = os.path.dirname(place.root + path)
    around = os.lstat(folder)
    inherited = around.st_mode & stat.S_ISGID and around.st_gid == found.st_gid
    if found.st_uid != os.geteuid() or not (inherited or found.st_gid in {os.getegid(), *os.getgroups()}):
        raise NotKept("%s, which setup made or changed, is of another user or group" % _shown(place, path))
    if around.st_uid != os.geteuid() and not os.access(folder, os.W_OK | os.X_OK):
        raise NotKept("setup changed %s, in a folder in which it can make nothing" % _shown(place, path))


def _require_removable(place: Place, before: dict[bytes, State], after: dict[bytes, State]) -> None:
    """A folder of somebody else can be moved away with what is in it, and not removed. Raises NotKept."""
    for path, state in before.items():
        if path not in after and stat.S_ISDIR(state[4]) and state[5] != os.geteuid():
            raise NotKept("setup removed %s, a folder of another user" % _shown(place, path))


def _pack_one(tar: _Tar, full: bytes, path: bytes, found: os.stat_result, links: dict[tuple[int, int], bytes]) -> None:
    mode = found.st_mode
    if stat.S_ISDIR(mode):
        tar.add(path, found, b"5", 0)
    elif stat.S_ISLNK(mode):
        tar.add(path, found, b"2", 0, os.readlink(full))
    elif found.st_nlink > 1 and (found.st_dev, found.st_ino) in links:
        tar.add(path, found, b"1", 0, links[found.st_dev, found.st_ino])
    elif stat.S_ISREG(mode):
        links[found.st_dev, found.st_ino] = path
        with open(os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", 0) as file:
            tar.add(path, found, b"0", found.st_size, xattrs=_xattrs(file.fileno()))
            tar.copy(file, found.st_size)
    elif stat.S_ISFIFO(mode):
        tar.add(path, found, b"6", 0)
    elif not stat.S_ISSOCK(mode):  # a socket without its process is nothing
        raise NotKept("setup made a device")


def _xattrs(fd: int) -> list[tuple[bytes, bytes]]:
    """Those of users; the others need a privilege."""
    try:
        return [(os.fsencode(name), os.getxattr(fd, name)) for name in os.listxattr(fd) if name.startswith("user.")]
    except OSError:
        return []


class _Tar:
    """Writes, counts and hashes."""

    def __init__(self, out: BinaryIO, most: int, pause: Callable[[], None]) -> None:
        self.sha256 = hashlib.sha256()
        self.size = 0
        self._out = out
        self._most = most
        self._pause = pause

    def add(
        self,
        path: bytes,
        found: os.stat_result | None,
        kind: bytes,
        size: int,
        link: bytes = b"",
        xattrs: Collection[tuple[bytes, bytes]] = (),
    ) -> None:
        """A header, with another before it for what has no room in it."""
        mode, uid, gid = (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) if found else (0, 0, 0)
        at = found.st_mtime_ns if found else 0
        # A keyword ends at the first `=`; GNU tar writes it so, too.
        pax = [(_XATTR + name.replace(b"%", b"%25").replace(b"=", b"%3D"), value) for name, value in xattrs]
        pax += [(b"path", path)] if len(path) > 100 else []
        pax += [(b"linkpath", link)] if len(link) > 100 else []
        pax += [(b"size", b"%d" % size)] if size >= _NO_SIZE else []
        pax += [(b"uid", b"%d" % uid), (b"gid", b"%d" % gid)] if max(uid, gid) >= _NO_NUMBER else []
        pax += [(b"mtime", _seconds(at))] if at % 10**9 or not 0 <= at // 10**9 < _NO_SIZE else []
        if pax:
            body = b"".join(_record(key, value) for key, value in pax)
            self._put(_head(b"pax", 0, 0, 0, len(body), 0, b"x", b""))
            self._put(body + bytes(-len(body) % _BLOCK))
        whole = at // 10**9 if 0 <= at // 10**9 < _NO_SIZE else 0
        self._put(_head(path, mode, uid % _NO_NUMBER, gid % _NO_NUMBER, size % _NO_SIZE, whole, kind, link))

    def copy(self, file: BinaryIO, size: int) -> None:
        """Exactly so many bytes. Raises NotKept when the file has less."""
        left = size
        while left:
            data = file.read(min(left, _PIECE))
            if not data:
                raise NotKept("a file changed while it was read")
            self._put(data)
            self._pause()
            left -= len(data)
        self._put(bytes(-size % _BLOCK))

    def close(self) -> None:
        """The end of the archive."""
        self._put(bytes(2 * _BLOCK))

    def _put(self, data: bytes) -> None:
        self.size += len(data)
        if self.size > self._most:
            raise NotKept("it would have more than %d MiB" % (self._most >> 20))
        self.sha256.update(data)
        self._out.write(data)


def _seconds(ns: int) -> bytes:
    sign, ns = (b"-", -ns) if ns < 0 else (b"", ns)
    return b"%s%d.%09d" % (sign, ns // 10**9, ns % 10**9)


def _record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    total = length + len(str(length))
    total = length + len(str(total))
    return b"%d %s=%s\n" % (total, key, value)


def _head(path: bytes, mode: int, uid: int, gid: int, size: int, at: int, kind: bytes, link: bytes) -> bytes:
    front = path[:100].ljust(100, b"\0") + b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, uid, gid, size, at)
    back = kind + link[:100].ljust(100, b"\0") + b"ustar\x0000" + bytes(247)
    return front + b"%06o\0 " % (sum(front) + sum(back) + 8 * 32) + back


# the other way


class Entry:
    """A member of the tar."""

    __slots__ = ("at", "gid", "kind", "link", "mode", "path", "size", "uid", "xattrs")

    def __init__(self, block: bytes, pax: dict[bytes, bytes]) -> None:
        self.path = pax.get(b"path", block[:100].rstrip(b"\0"))
        self.link = pax.get(b"linkpath", block[157:257].rstrip(b"\0"))
        self.kind = block[156:157]
        self.mode = int(block[100:107], 8)
        self.uid = int(pax.get(b"uid", b"%d" % int(block[108:115], 8)))
        self.gid = int(pax.get(b"gid", b"%d" % int(block[116:123], 8)))
        self.size = int(pax.get(b"size", b"%d" % int(block[124:135], 8)))
        self.at = _nanoseconds(pax[b"mtime"]) if b"mtime" in pax else int(block[136:147], 8) * 10**9
        self.xattrs = [
            (key[len(_XATTR) :].replace(b"%3D", b"=").replace(b"%25", b"%"), value)
            for key, value in pax.items()
            if key.startswith(_XATTR)
        ]


def _nanoseconds(text: bytes) -> int:
    whole, _, rest = text.lstrip(b"-").partition(b".")
    ns = int(whole) * 10**9 + int(rest.ljust(9, b"0"))
    return -ns if text.startswith(b"-") else ns


def verify(file: BinaryIO, sha256: str, size: int, pause: Callable[[], None]) -> None:
    """Every byte, before the first is used. Raises NotTaken, OSError."""
    digest, total = hashlib.sha256(), 0
    file.seek(0)
    while True:
        data = file.read(_PIECE)
        if not data:
            break
        digest.update(data)
        total += len(data)
        pause()
    if total != size or digest.hexdigest() != sha256:
        raise NotTaken("its bytes are not those that were recorded")


def require_fits(place: Place, file: BinaryIO) -> None:
    """Nothing of the commit would be replaced, and every folder of it that is needed is there. Raises NotTaken."""
    made = {place.work}
    for entry in _entries(file):
        if not place.is_work(entry.path):
            continue
        folder, _, name = entry.path.rpartition(b"/")
        if folder not in made and not _is_real_folder(place.root + folder):
            raise NotTaken("the commit has no folder %s" % _shown(place, folder))
        gone = name.startswith(GONE)
        if entry.kind == b"5":
            made.add(entry.path)
        own = folder + b"/" + name[len(GONE) :] if gone else entry.path
        there = os.path.lexists(place.root + own)
        if own not in place.inputs and there and not (entry.kind == b"5" and _is_real_folder(place.root + own)):
            raise NotTaken("the commit has %s" % _shown(place, own))


def unpack(place: Place, file: BinaryIO, pause: Callable[[], None]) -> None:
    """Puts everything in its place. Raises Broken."""
    folders: list[Entry] = []
    try:
        for entry in _entries(file):
            pause()
            folder, _, name = entry.path.rpartition(b"/")
            if name.startswith(GONE):
                _remove(place.root + (folder + b"/" if folder else b"") + name[len(GONE) :])
            elif entry.kind == b"5":
                _make_folder(place.root + entry.path, entry.mode)
                folders.append(entry)
            else:
                _make_one(place, entry, file, pause)
        for entry in reversed(folders):
            _finish_folder(place.root + entry.path, entry)
    except OSError as exc:
        where = os.fsencode(exc.filename or b"").decode("utf-8", "replace")
        raise Broken("%s %s" % (where, exc.strerror or exc)) from exc


def _entries(file: BinaryIO) -> Iterator[Entry]:
    """What is behind each may be read by whoever iterates, or is left out."""
    file.seek(0)
    pax: dict[bytes, bytes] = {}
    while True:
        block = file.read(_BLOCK)
        if len(block) < _BLOCK or block == bytes(_BLOCK):
            return
        entry = Entry(block, pax)
        end = file.tell() + entry.size + -entry.size % _BLOCK
        if entry.kind == b"x":
            pax = _records(file.read(entry.size))
        else:
            pax = {}
            yield entry
        file.seek(end)


def _records(body: bytes) -> dict[bytes, bytes]:
    found = {}
    while body:
        length = int(body[: body.index(b" ")])
        key, _, value = body[body.index(b" ") + 1 : length - 1].partition(b"=")
        found[key] = value
        body = body[length:]
    return found


def _make_one(place: Place, entry: Entry, file: BinaryIO, pause: Callable[[], None]) -> None:
    full = place.root + entry.path
    _remove(full)
    if entry.kind == b"1":
        os.link(place.root + entry.link, full, follow_symlinks=False)
    elif entry.kind == b"2":
        os.symlink(entry.link, full)
        _own(full, entry)
        os.utime(full, ns=(entry.at, entry.at), follow_symlinks=False)
    elif entry.kind == b"6":
        os.mkfifo(full, 0o600)
        _own(full, entry)
        os.chmod(full, entry.mode)
        os.utime(full, ns=(entry.at, entry.at))
    else:
        _make_file(full, entry, file, pause)


def _make_file(full: bytes, entry: Entry, file: BinaryIO, pause: Callable[[], None]) -> None:
    fd = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        left = entry.size
        while left:
            view = memoryview(file.read(min(left, _PIECE)))
            if not view:
                raise OSError("the layer ends too early")
            left -= len(view)
            while view:
                view = view[os.write(fd, view) :]
            pause()
        for name, value in entry.xattrs:
            os.setxattr(fd, name, value)
        _own(full, entry)
        os.fchmod(fd, entry.mode)
        os.utime(fd, ns=(entry.at, entry.at))
    finally:
        os.close(fd)


def _make_folder(full: bytes, mode: int) -> None:
    """Open for us until everything in it is there."""
    if not _is_real_folder(full):
        _remove(full)
        before = os.umask(0)
        try:
            # At once as it will be: to change the mode of a folder takes an inherited S_ISGID from it.
            os.mkdir(full, mode & 0o777 | 0o700)
        finally:
            os.umask(before)
        return
    _open(full)


def _open(full: bytes) -> None:
    mode = stat.S_IMODE(os.lstat(full).st_mode)
    if mode & 0o300 != 0o300 and os.lstat(full).st_uid == os.geteuid():
        os.chmod(full, mode | 0o700)


def _finish_folder(full: bytes, entry: Entry) -> None:
    _own(full, entry)
    found = os.lstat(full)
    if stat.S_IMODE(found.st_mode) != entry.mode:
        os.chmod(full, entry.mode)
    try:
        os.utime(full, ns=(entry.at, entry.at))
    except PermissionError:
        if found.st_uid == os.geteuid():
            raise  # else it is open to all, as /tmp, and its times are its owner's


def _own(full: bytes, entry: Entry) -> None:
    """A folder may give its group to what is made in it; who has no privilege cannot give anything away."""
    found = os.lstat(full)
    if (found.st_uid, found.st_gid) != (entry.uid, entry.gid):
        os.chown(full, entry.uid, entry.gid, follow_symlinks=False)


def _remove(full: bytes) -> None:
    """Whatever it is; silent when there is nothing."""
    if _is_real_folder(full):
        _open(full)
        for name in os.listdir(full):
            _remove(full + b"/" + name)
        os.rmdir(full)
        return
    try:
        os.unlink(full)
    except FileNotFoundError:
        pass


def _is_real_folder(full: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(full).st_mode)
    except OSError:
        return False


def _is_folder(seen: dict[bytes, State], path: bytes) -> bool:
    return not path or (path in seen and stat.S_ISDIR(seen[path][4]))


def _shown(place: Place, path: bytes) -> str:
    """From the top of the commit, where it is of it."""
    own = path[len(place.work) + 1 :] if place.is_work(path) else b"/" + path
    return ascii(own.decode("utf-8", "replace"))[1:-1][:200]
