"""`gpurun plan`: what it says, what it asks, and what it does without a network."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest

from gpurun.cli.main import cli
from gpurun.domain.ids import CommitSha, HubRef, ImageTag, JobName, RepoName, Revision, TreeSha
from gpurun.domain.lock import ImagePin, Lock, LockedFile, LockedImage, LockedModel
from gpurun.domain.run import Pins
from gpurun.plan.digest import digest, result_key
from gpurun.plan.load import load
from gpurun.plan.lock import write_lock
from gpurun.plan.resolve import build
from tests.fakes.hub import FakeHub
from tests.fakes.lfs import pointer_of

IMAGE = f"registry.example/app@sha256:{'a' * 64}"
NOWHERE = "http://127.0.0.1:9"
PINNED = f"version: 1\njobs:\n  smoke:\n    image: {IMAGE}\n    run: echo hi\n"
NAMES = (
    "version: 1\njobs:\n  smoke:\n    image: registry.example/app:1.2\n    models: [{id: acme/tiny}]\n"
    "    run: |\n      python a.py\n      python b.py\n    env: {SEED: '0', TEXT: \"a\\nb\"}\n    secrets: [HF_TOKEN]\n"
    "    resources: {gpu: '24GB..80GB:2', cpu: 0.5, memory: 32GB, disk: 60GB, shm_size: 512MB}\n"
    "    limits: {max_duration: 2h}\n    artifacts: ['out/**']\n"
)
WEIGHTS = b"w" * 2000


@pytest.fixture
def here(checkout, monkeypatch):
    def with_files(files: dict[str, str]):
        folder = checkout(files)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("GPURUN_HUB_URL", NOWHERE)
        return folder

    return with_files


@pytest.fixture
def hub():
    return FakeHub()


def plan(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli(["plan", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def git(folder, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def lock_of(revision: str) -> str:
    image = LockedImage(
        ref=ImageTag("registry.example/app:1.2"), pin=ImagePin(digest=f"sha256:{'a' * 64}"), locked_on="2026-11-30"
    )
    files = (
        LockedFile(path="config.json", size=2, blob="9e26dfeeb6e641a33dae4961196235bdb965b21b"),  # git's id of `{}`
        LockedFile(path="model.safetensors", size=len(WEIGHTS), sha256=sha256(WEIGHTS)),
    )
    model = LockedModel(
        id="acme/tiny", ref=HubRef("main"), revision=Revision(revision), locked_on="2026-11-30", files=files
    )
    return write_lock(Lock(images=(image,), models=(model,)))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def add_tiny(hub: FakeHub) -> str:
    return hub.add_model("acme/tiny", {"config.json": b"{}", "model.safetensors": WEIGHTS})


def test_a_job_that_the_file_pins_needs_no_network_and_no_lock(here, capsys):
    folder = here({".gpurun.yml": PINNED})
    assert plan("smoke", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    sha, tree = git(folder, "rev-parse", "HEAD"), git(folder, "rev-parse", "HEAD^{tree}")
    expected = build(
        repo=RepoName("local/train"),
        sha=CommitSha(sha),
        job_name=JobName("smoke"),
        job=load(PINNED).jobs["smoke"],
        pins=Pins(tree=TreeSha(tree), image_confirmed=True),
    )
    assert told == {
        "plan": {"plan": 1, "repo": "local/train", "job": "smoke", "image": IMAGE, "run": "echo hi", "commit": sha},
        "tree": tree,
        "digest": digest(expected),
        "result_key": result_key(expected),
        "notes": [],
    }


def test_uncommitted_changes_are_planned_as_a_run_runs_them_and_said(here, capsys):
    folder = here({".gpurun.yml": PINNED})
    (folder / "new.py").write_text("pass\n")
    head = git(folder, "rev-parse", "HEAD")
    assert plan("smoke", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["plan"]["commit"] != head
    assert told["notes"] == [f"Uncommitted changes are part of this plan (new.py): a snapshot, not {head[:12]}."]
    assert plan("smoke", "--json", "--commit", "HEAD") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["plan"]["commit"], told["notes"]) == (head, [])


def test_names_without_a_lock_end_with_what_to_type(here, capsys):
    here({".gpurun.yml": NAMES})
    assert plan("smoke") == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == (
        "gpurun plan: The image registry.example/app:1.2 and the model acme/tiny at main are not pinned, and can "
        "move.\n"
        "Run `gpurun lock` and commit `.gpurun.lock`.\n"
        "Or write in `.gpurun.yml` what cannot move: `image: registry.example/app@sha256:<digest>` (`docker buildx "
        "imagetools inspect registry.example/app:1.2` prints the digest) and `revision: <commit>` for acme/tiny "
        "(40 hex digits, from the hub).\n"
    )


def test_with_lock_and_hub_the_plan_is_whole_and_the_second_one_asks_nobody(here, capsys, hub, monkeypatch):
    revision = add_tiny(hub)
    here({".gpurun.yml": NAMES, ".gpurun.lock": lock_of(revision)})
    with hub.serving() as endpoint:
        monkeypatch.setenv("GPURUN_HUB_URL", endpoint)
        assert plan("smoke", "--json") == 0
        first = json.loads(capsys.readouterr().out)
        assert hub.seen("/tree/")
    monkeypatch.setenv("GPURUN_HUB_URL", NOWHERE)
    assert plan("smoke", "--json") == 0
    assert json.loads(capsys.readouterr().out) == first
    (model,) = first["plan"]["models"]
    assert [file["path"] for file in model["files"]] == ["config.json", "model.safetensors"]
    assert [file["sha256"] for file in model["files"]] == [sha256(b"{}"), sha256(WEIGHTS)]
    assert first["digest"].startswith("sha256:")


def test_without_the_hub_everything_but_the_digest_is_told_and_why(here, capsys, hub):
    revision = add_tiny(hub)
    here({".gpurun.yml": NAMES, ".gpurun.lock": lock_of(revision)})
    assert plan("smoke") == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("smoke · local/train at ")
    assert lines[1].startswith(
        "No digest: the SHA-256 of config.json of acme/tiny is not known, and the hub does not answer. acme/tiny at "
    )
    assert "127.0.0.1 cannot be reached" in lines[1]
    rows = [re.sub(r" +", " ", line.strip()) for line in lines[2:]]
    assert rows[2:] == [
        f"image registry.example/app:1.2@sha256:{'a' * 64}",
        "as of 2026-11-30",
        f"model acme/tiny@{revision}",
        "main as of 2026-11-30 · 2 files, 2.0 kB",
        "config.json 2 B",
        "model.safetensors 2.0 kB",
        "run python a.py",
        "python b.py",
        "env SEED=0",
        "TEXT=a b",
        "secrets HF_TOKEN",
        "needs 2 GPUs of 24GB..80GB · 0.5 CPUs · 32GB memory · 60GB disk · 512MB /dev/shm",
        "limits 2h · 2 attempts",
        "artifacts out/**",
        "digest not known: see above",
    ]
    assert plan("smoke", "--json") == 3
    told = json.loads(capsys.readouterr().out)
    assert (told["digest"], told["result_key"]) == (None, None)
    assert [file["sha256"] for file in told["plan"]["models"][0]["files"]] == ["", sha256(WEIGHTS)]
    assert told["notes"][0] == lines[1]


def test_a_model_that_the_file_pins_needs_the_hub(here, capsys, hub, monkeypatch):
    revision = add_tiny(hub)
    here({".gpurun.yml": PINNED + f"    models: [{{id: acme/tiny, revision: '{revision}', target: /w}}]\n"})
    assert plan("smoke") == 3
    told = capsys.readouterr().out
    assert "No digest: the files of acme/tiny are not known, and the hub does not answer." in told
    assert "its files are not known → /w" in told
    with hub.serving() as endpoint:
        monkeypatch.setenv("GPURUN_HUB_URL", endpoint)
        assert plan("smoke") == 0
    told = capsys.readouterr().out
    assert "2 files, 2.0 kB → /w" in told
    assert re.search(r"^  digest     sha256:[0-9a-f]{64}\n  result key sha256:[0-9a-f]{64}$", told, re.MULTILINE)


def test_a_lock_that_the_hub_contradicts(here, capsys, hub, monkeypatch):
    lock = lock_of(add_tiny(hub)).replace('"size": 2000', '"size": 2001')
    here({".gpurun.yml": NAMES, ".gpurun.lock": lock})
    with hub.serving() as endpoint:
        monkeypatch.setenv("GPURUN_HUB_URL", endpoint)
        assert plan("smoke") == 2
    assert "The hub lists 'model.safetensors' of acme/tiny" in capsys.readouterr().err


def test_a_lock_with_a_fault_is_told_by_line(here, capsys):
    here({".gpurun.yml": NAMES, ".gpurun.lock": '{"gpurun_lock": 1}\n{"imag": 1}\n'})
    assert plan("smoke") == 2
    assert "gpurun plan: .gpurun.lock:2:1: " in capsys.readouterr().err


def test_another_folder_is_a_part_of_the_plan(here, capsys):
    here({"sub/.gpurun.yml": PINNED + "    workdir: deep\n"})
    assert plan("smoke", "--path", "sub", "--json") == 0
    assert json.loads(capsys.readouterr().out)["plan"]["workdir"] == "sub/deep"
    assert plan("smoke") == 2
    assert "there is no file `.gpurun.yml`" in capsys.readouterr().err
    assert plan("smoke", "--path", "nothing") == 2
    assert "nothing/.gpurun.yml: there is no file" in capsys.readouterr().err
    assert plan("smoke", "--path", "../sub") == 2
    assert "--path ../sub is no folder inside the repository." in capsys.readouterr().err


def test_what_is_said_of_another_folder_names_it(here, capsys, monkeypatch):
    here({"sub/.gpurun.yml": NAMES})
    assert plan("smoke", "--path", "sub") == 2
    assert "Run `gpurun lock sub/.gpurun.yml` and commit `sub/.gpurun.lock`.\n" in capsys.readouterr().err
    monkeypatch.chdir("sub")
    assert plan("smoke") == 2
    assert "Run `gpurun lock` and commit `.gpurun.lock`.\n" in capsys.readouterr().err
    Path("../other").mkdir()
    monkeypatch.chdir("../other")
    assert plan("smoke", "--path", "sub") == 2
    assert "Run `gpurun lock ../sub/.gpurun.yml` and commit `../sub/.gpurun.lock`.\n" in capsys.readouterr().err
    here({"sub/.gpurun.yml": NAMES, "sub/.gpurun.lock": "{"})
    assert plan("smoke", "--path", "sub") == 2
    assert "gpurun plan: sub/.gpurun.lock:1:1: this line is no JSON object" in capsys.readouterr().err


def test_a_lock_that_is_a_folder(here, capsys):
    here({".gpurun.yml": NAMES, ".gpurun.lock/x": ""})
    assert plan("smoke") == 2
    told = "gpurun plan: .gpurun.lock is a folder; a file belongs there.\nMove the folder away.\n"
    assert capsys.readouterr().err == told


def test_a_commit_that_a_run_would_refuse_is_refused(here, capsys):
    pointer = pointer_of("a" * 64, 12345678).decode()
    here({".gpurun.yml": PINNED, ".gitattributes": "*.bin filter=lfs\n", "w.bin": pointer})
    assert plan("smoke") == 2
    assert "holds files of git LFS ('w.bin'), and the job does not say what to do" in capsys.readouterr().err
    here({".gpurun.yml": PINNED + "    checkout: {lfs: skip}\n"})
    assert plan("smoke") == 0


def test_what_is_fetched_beside_the_commit_is_shown(here, capsys, tmp_path):
    lib = tmp_path / "lib"
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    subprocess.run(["git", "init", "-q", lib], check=True)
    git(lib, *who, "commit", "-q", "--allow-empty", "-m", "one")
    commit = git(lib, "rev-parse", "HEAD")
    content = b"w" * 2000
    pointer = pointer_of(sha256(content), len(content)).decode()
    files = {".gitattributes": "*.bin filter=lfs\n", "w.bin": pointer}
    folder = here({".gpurun.yml": PINNED + "    checkout: {submodules: fetch, lfs: fetch, git: true}\n", **files})
    kept = folder / ".git/lfs/objects" / sha256(content)[:2] / sha256(content)[2:4] / sha256(content)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(content)
    git(folder, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lib), "vendor/lib")
    git(folder, *who, "commit", "-q", "-m", "lib")
    git(folder, "tag", "v1")
    assert plan("smoke") == 0
    assert (
        f"  submodule  vendor/lib@{commit}\n"
        f"               from {folder}/vendor/lib\n"
        "  lfs        fetched: its files have their content, which the commit binds\n"
        "  .git       there, with the tag v1\n"
        "  image      "
    ) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("smok",), "There is no job 'smok' in .gpurun.yml. Did you mean 'smoke'?\nJobs: smoke.\n"),
        (("smoke", "--commit", "nothing"), "'nothing' is no commit, branch or tag of this checkout."),
        (("smoke", "--commit", "--help-me"), "'--help-me' is no commit, branch or tag of this checkout."),
    ],
)
def test_wrong_words(here, capsys, words, said):
    here({".gpurun.yml": PINNED})
    assert plan(*words) == 2
    assert said in capsys.readouterr().err


def test_what_only_a_local_run_may_do_is_said(here, capsys):
    here({".gpurun.yml": PINNED + "policy: {images: ['ghcr.io/org/*']}\n"})
    assert plan("smoke") == 0
    assert "Only `gpurun run` would run this: the `policy` of this file does not allow it" in capsys.readouterr().out


def test_a_broken_file_shows_the_place(here, capsys):
    here({".gpurun.yml": PINNED + "    imag: x\n"})
    assert plan("smoke") == 2
    assert ".gpurun.yml:6:5: unknown key `imag`" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("init",), ("plan", "smoke"), ("diff", "HEAD", "HEAD"), ("run", "smoke")])
def test_without_git_every_command_ends_alike(here, capsys, monkeypatch, words):
    here({".gpurun.yml": PINNED})
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit) as ended:
        cli(list(words))
    assert ended.value.code == 2
    assert (
        f"gpurun {words[0]}: git is not installed on this machine; install it and try again.\n"
        in capsys.readouterr().err
    )
