"""Weights in a container: whoever the user is, they are read as a hub cache, and nothing in there can change them."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import SecretStr

from gpurun.adapters.clock import SystemClock
from gpurun.adapters.hub import HuggingFaceHub
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelSpec
from tests.fakes.hub import FakeHub

pytestmark = pytest.mark.docker

FILES = {"config.json": b"{}", "model.safetensors": b"w" * 5000, "sub/vocab.bin": b"v" * 100}


@pytest.fixture
def bench(docker_bench):
    return docker_bench


@pytest.fixture
async def weights(tmp_path):
    """A view of `acme/tiny`, laid out by the bot's adapter below folders that only its user may enter."""
    fake = FakeHub()
    revision = Revision(fake.add_model("acme/tiny", FILES))
    with fake.serving() as url:
        hub = HuggingFaceHub(url, SecretStr(""), tmp_path / "hub", SystemClock())
        pin = await hub.resolve(ModelSpec(id="acme/tiny", revision=revision))
        until = datetime(2040, 1, 1, tzinfo=UTC)
        done = await hub.lay_out([pin], user="0" * 26, until=until, wait_s=30)
        await hub.close()
    tmp_path.chmod(0o700)
    return done.folder


def hashes(folder: str) -> dict[str, str]:
    return {
        str(path): f"{path.lstat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in Path(folder).rglob("*")
        if path.is_file()
    }


ATTACKS = """
cd /gpurun/hub/hub
blob=$(ls models--acme--tiny/blobs/* | head -1)
try() { if "$@" >/dev/null 2>&1; then echo "DONE: $*"; fi; }
try touch /gpurun/hub/control
try sh -c "echo x >> $blob"
try sh -c "echo x > new"
try chmod 666 $blob
try chmod 777 .
try chown 1:1 $blob
try touch $blob
try rm -f $blob
try rm -rf models--acme--tiny
try mv models--acme--tiny/blobs models--acme--tiny/b
try ln -sf /etc/passwd models--acme--tiny/snapshots/x
try ln $blob /gpurun/hub/hard
try ln $blob models--acme--tiny/hard
try mknod new p
try mount -o remount,rw /gpurun/hub/hub
try mount -o remount,rw,bind /gpurun/hub/hub
try mount -t tmpfs none /gpurun/hub/hub
try umount /gpurun/hub/hub
try umount -l /gpurun/hub/hub
try unshare -m mount -o remount,rw,bind /gpurun/hub/hub
try unshare -Urm mount -o remount,rw,bind /gpurun/hub/hub
try unshare -Urm umount /gpurun/hub/hub
try sh -c "echo x | dd of=/proc/self/root/gpurun/hub/hub/$blob conv=notrunc"
echo end
"""


@pytest.mark.parametrize("image", ["python", "user_1000"])
async def test_nobody_in_the_container_can_change_them(bench, launches, base_images, weights, image):
    before = hashes(weights)
    said = await bench.output(launches(getattr(base_images, image), ATTACKS, weights=weights))
    assert said == "DONE: touch /gpurun/hub/control\nend\n"  # what works is told
    assert hashes(weights) == before


async def test_a_program_without_a_shell_in_between_cannot_either(bench, launches, base_images, weights):
    """System calls that have no command: memory that is shared with the file, and a descriptor opened again."""
    program = """
import ctypes, glob, os
libc = ctypes.CDLL(None, use_errno=True)
blob = glob.glob("/gpurun/hub/hub/*/blobs/*")[0]
def tried(name, act):
    try:
        act()
    except OSError as error:
        print(name, os.strerror(error.errno))
    else:
        print(name, "DONE")
fd = os.open(blob, os.O_RDONLY)
tried("again", lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDWR))
tried("truncate", lambda: os.truncate(blob, 0))
tried("utime", lambda: os.utime(blob))
tried("xattr", lambda: os.setxattr(blob, "user.x", b"1"))
tried("link", lambda: os.link(blob, "/gpurun/hub/hard"))
print("flags", bool(os.statvfs("/gpurun/hub/hub").f_flag & os.ST_RDONLY))
"""
    script = f"cat > /tmp/x.py <<'END'\n{program}\nEND\npython3 /tmp/x.py"
    before = hashes(weights)
    said = await bench.output(launches(base_images.python, script, weights=weights))
    assert "DONE" not in said
    assert said.count("\n") == 6
    assert "flags True" in said
    assert hashes(weights) == before


READS = """
import os
from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download, try_to_load_from_cache
folder = snapshot_download("acme/tiny", local_files_only=True)
print(sorted(os.listdir(folder)), os.getuid(), os.environ.get("HOME"))
print(hf_hub_download("acme/tiny", "sub/vocab.bin", local_files_only=True) == folder + "/sub/vocab.bin")
print(open(hf_hub_download("acme/tiny", "config.json")).read())
print(try_to_load_from_cache("acme/tiny", "model.safetensors") == folder + "/model.safetensors")
try:
    hf_hub_download("acme/tiny", "none.json")
except Exception as error:
    print(type(error).__name__)
print([(repo.repo_id, repo.size_on_disk) for repo in scan_cache_dir().repos])
os.makedirs(os.environ["HF_HOME"] + "/datasets/x")
print("HF_HOME is writable")
"""


async def test_b094_huggingface_hub_reads_them_as_a_user_without_a_home(bench, launches, base_images, weights):
    script = (
        "unset HOME; export HF_HOME=/gpurun/hub HF_HUB_OFFLINE=1\n"
        f"cat > /tmp/x.py <<'END'\n{READS}\nEND\npython3 -W ignore /tmp/x.py 2>&1"
    )
    said = await bench.output(launches(base_images.hub_client, script, weights=weights))
    assert said.splitlines() == [
        "['config.json', 'model.safetensors', 'sub'] 1000 None",
        "True",
        "{}",
        "True",
        "LocalEntryNotFoundError",
        "[('acme/tiny', 5102)]",
        "HF_HOME is writable",
    ]


async def test_without_weights_nothing_is_mounted(bench, launches, base_images):
    said = await bench.output(launches(base_images.busybox, "grep -c /gpurun/hub /proc/mounts; ls /gpurun/hub; true"))
    assert said == "0\n"
