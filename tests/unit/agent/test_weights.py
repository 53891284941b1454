"""Weights are complete, right to the last bit, and where huggingface_hub looks for them."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from gpurun_agent import spec
from gpurun_agent.ending import Ended
from gpurun_agent.spec import File
from gpurun_agent.target import make_folders
from tests.unit.agent.fake_bot import Model, with_code

REVISION = "a" * 40


@pytest.fixture
def model(bot):
    content = random.Random(1).randbytes
    model = Model(
        "org/small",
        REVISION,
        {
            "config.json": b'{"a": 1}',
            "model.safetensors": content(3_000_000),
            "sub/dir/x y.txt": b"",
            "more.bin": content(9),
        },
        etags={"config.json": "0" * 40},
    )
    bot.models = [model]
    return model


def test_files_lie_as_in_a_hugging_face_cache(bot, run, model):
    agent = run("cat $HF_HOME/hub/models--org--small/snapshots/*/config.json")
    folder = agent.root / "hub" / "hub" / "models--org--small"
    assert bot.end["result"] == "passed"
    assert bot.output == b'{"a": 1}'
    for path, content in model.files.items():
        link = folder / "snapshots" / REVISION / path
        assert link.is_symlink()
        assert not link.readlink().is_absolute()
        assert link.read_bytes() == content
    assert (folder / "blobs" / ("0" * 40)).exists()
    assert not list(folder.glob("blobs/*.incomplete"))
    assert b"::gpurun:: weights 2 of 3 MiB (100 %)\n" in bot.log
    assert bot.phases == ["weights", "running"]


def test_huggingface_hub_finds_them_offline(bot, run, model, monkeypatch):
    from huggingface_hub import hf_hub_download, snapshot_download

    agent = run("true")
    cache = agent.root / "hub" / "hub"
    snapshot = snapshot_download("org/small", revision=REVISION, local_files_only=True, cache_dir=cache)
    assert snapshot == str(cache / "models--org--small" / "snapshots" / REVISION)
    found = hf_hub_download("org/small", "sub/dir/x y.txt", revision=REVISION, local_files_only=True, cache_dir=cache)
    assert found == f"{snapshot}/sub/dir/x y.txt"


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_every_name_of_the_plan_works_offline_and_no_other(bot, run, model, kind):
    model.kind, model.refs = kind, ["main", "refs/pr/3"]
    agent = run("true")
    hub = agent.root / "hub"
    (hub / "hub" / ".locks").write_bytes(b"")  # who wants a lock gets an error; modes would not stop root
    program = f"""
from huggingface_hub import hf_hub_download, snapshot_download
for names in ({{}}, {{"revision": "main"}}, {{"revision": "refs/pr/3"}}, {{"revision": "{REVISION}"}}):
    print(snapshot_download("org/small", repo_type="{kind}", **names))
    hf_hub_download("org/small", "config.json", repo_type="{kind}", **names)
try:
    snapshot_download("org/small", repo_type="{kind}", revision="v2")
except Exception as error:
    print(type(error).__name__)
"""
    env = {"HF_HOME": str(hub), "HF_HUB_OFFLINE": "1", "PATH": os.defpath}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    snapshot = f"{hub}/hub/{kind}s--org--small/snapshots/{REVISION}"
    assert done.stdout.splitlines() == [*[snapshot] * 4, "LocalEntryNotFoundError"]


def test_a_target_gets_plain_files(bot, run, model, tmp_path):
    model.target = str(tmp_path / "weights")
    run("true")
    placed = tmp_path / "weights" / "model.safetensors"
    assert not placed.is_symlink()
    assert placed.read_bytes() == model.files["model.safetensors"]


ONLY_READ = """
def _is_read_only(folder):
    return True
"""


@pytest.fixture(params=["fetched", "mounted"])
def first(request, bot, model, tmp_path):
    """Code for the agent, so that it has weights in one of the two ways; and where they are mounted."""
    if request.param == "fetched":
        return ""
    bot.weights = "mounted"
    snapshot = tmp_path / "hub" / "models--org--small" / "snapshots" / REVISION
    for path, content in model.files.items():
        (snapshot / path).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / path).write_bytes(content)
    code = f"import os\n{ONLY_READ}\ndef _link(run, models, hub, use=use):\n"
    code += f"    os.symlink({str(tmp_path / 'hub')!r}, hub + '/hub')\n    return use(run, models, hub)\nuse = _link\n"
    return with_code("mounted", code)


def test_a_target_has_all_files_either_way(bot, run, model, tmp_path, first):
    model.target = str(tmp_path / "a" / "weights")
    old = tmp_path / "a" / "weights" / "config.json"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"of the image")
    run("true", first=first)
    assert bot.end["result"] == "passed"
    assert {path: (old.parent / path).read_bytes() for path in model.files} == model.files


@pytest.mark.parametrize("target", ["/proc/gpurun/data", "{}/file", "{}/file/data", "{}/taken"])
def test_a_target_that_cannot_be_made_fails_the_run_and_says_what_to_do(bot, run, model, tmp_path, first, target):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "taken" / "model.safetensors").mkdir(parents=True)
    model.target = target.format(tmp_path)
    run("echo never", first=first)
    assert (bot.end["result"], bot.end["reason"]) == ("failed", "weights")
    detail = bot.end["detail"]
    assert detail.startswith(
        f"The `target` {model.target} of org/small cannot be filled: uid {os.getuid()} of the image"
    )
    assert "such as /tmp" in detail
    assert b"never" not in bot.log


def test_a_target_that_cannot_be_made_is_told_before_anything_is_fetched(bot, run, model):
    model.target = "/proc/gpurun/data"
    run("echo never")
    assert "cannot write to /proc/gpurun" in bot.end["detail"]
    assert not [request for request in bot.requests if "models/" in request]


def test_a_target_that_the_user_may_only_read_fails_the_run(monkeypatch, tmp_path):
    files = [File(1, "", "", "a/b")]
    model = spec.Model(0, "org/small", REVISION, str(tmp_path))
    model.files = files
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as modes would stop everybody but root
    with pytest.raises(Ended, match=r"cannot write to .*/a \(Permission denied\)"):
        make_folders([model])


def test_one_flipped_bit_fails_the_run_and_names_the_file(bot, run, model):
    content = bytearray(model.files["model.safetensors"])
    content[1_000_000] ^= 1
    model.served = {"model.safetensors": bytes(content)}
    bot.setup = "echo never"
    agent = run("echo never")
    assert (bot.end["result"], bot.end["reason"]) == ("failed", "weights_mismatch")
    assert "model.safetensors of org/small" in bot.end["detail"]
    assert b"never" not in bot.log
    assert not list((agent.root / "hub" / "hub" / "models--org--small" / "snapshots").glob("*/*.safetensors"))


@pytest.mark.parametrize("served", [b"", b"x" * 5_000_000])
def test_a_file_of_another_size_is_a_mismatch(bot, run, model, served):
    model.served = {"model.safetensors": served}
    run("echo never")
    assert bot.end["reason"] == "weights_mismatch"
    assert f"has {len(served)} bytes, expected 3000000" in bot.end["detail"]


def test_a_file_that_the_bot_cannot_get_fails_the_run_with_its_words(bot, run, model):
    bot.models = [Model("org/gone", REVISION, {"a": b"x"})]
    promised = bot.spec()
    bot.models[0].files = {}
    bot.spec = lambda: promised
    run("echo never")
    assert (bot.end["result"], bot.end["reason"]) == ("failed", "weights_mismatch")
    assert bot.end["detail"] == "a of org/gone: no such file on the hub"


@pytest.mark.parametrize("cut", [0, 1, 1_500_000])
def test_a_broken_download_goes_on_where_it_stopped(bot, run, model, cut):
    bot.cut_download_after = cut
    run("sha256sum $HF_HOME/hub/models--org--small/snapshots/*/model.safetensors")
    assert bot.end["result"] == "passed"


def test_a_path_that_leads_out_is_refused(bot, run, model):
    model.files = {"../../evil": b"x"}
    run("echo never")
    assert bot.end["reason"] == "weights"
    assert bot.output == b""


def test_a_cancel_during_the_download_ends_it(bot, start, model):
    bot.slow_s = 0.2
    bot.run = "echo never"
    agent = start()
    bot.wait(lambda: any("models/" in request for request in bot.requests))
    bot.cancel = True
    assert agent.wait() == 0
    assert bot.end["result"] == "cancelled"
    assert bot.output == b""


def test_a_mount_that_can_be_written_to_counts_for_nothing(bot, start, model):
    """Whatever the bot or the image says: only what nobody can write to needs no hashing."""
    bot.weights, bot.run = "mounted", "cat $HF_HOME/hub/models--org--small/snapshots/*/config.json"
    agent = start()
    planted = agent.root / "hub/hub/models--org--small/snapshots" / REVISION / "config.json"
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_bytes(b'{"a": 2}')
    assert agent.wait() == 0
    assert bot.end["result"] == "passed"
    assert bot.output == b'{"a": 1}'
