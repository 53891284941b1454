"""What is installed, read from files of many kinds, and told beside the job."""

from __future__ import annotations

import json
import os

import pytest

from gpurun_agent.installed import CUT, Installed

STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10
Description: GNU C Library
 Version: of a line that goes on

Package: gone
Status: deinstall ok config-files
Version: 1

Package: bash
Status: install ok installed
Version: 5.2.15-2+b8
"""


def put(root, path: str, text: str = "") -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def python(root, path: str) -> None:
    """`python3` is a link to it."""
    put(root, path)
    (root / path.lstrip("/")).chmod(0o755)
    (root / path.lstrip("/")).with_name("python3").symlink_to(path.rpartition("/")[2])


def test_packages_of_python_conda_and_dpkg(tmp_path):
    python(tmp_path, "/opt/conda/bin/python3.12")
    site = "/opt/conda/lib/python3.12/site-packages"
    put(tmp_path, f"{site}/numpy-2.1.0.dist-info/METADATA")
    put(tmp_path, f"{site}/ruamel_yaml-0.18-py3.12.egg-info/PKG-INFO")
    put(tmp_path, f"{site}/numpy/__init__.py")
    local = {"url": "file:///gpurun/work", "dir_info": {"editable": True}}
    put(tmp_path, f"{site}/train-0.1.dist-info/direct_url.json", json.dumps(local))
    vcs = {"url": "https://me:pw@github.com/a/b", "vcs_info": {"vcs": "git", "commit_id": "c" * 40}}
    put(tmp_path, f"{site}/b-3.dist-info/direct_url.json", json.dumps(vcs))
    put(tmp_path, f"{site}/odd-1.dist-info/direct_url.json", "[")
    put(tmp_path, "/home/me/.local/lib/python3.12/site-packages/NumPy-9.dist-info/METADATA")
    put(tmp_path, "/opt/conda/conda-meta/ca-certificates-2024.9-h06a4308_0.json")
    put(tmp_path, "/opt/conda/conda-meta/history")
    put(tmp_path, "/var/lib/dpkg/status", STATUS)
    text = Installed({"PATH": "/usr/bin:/opt/conda/bin", "HOME": "/home/me"}, str(tmp_path)).text()
    assert text.splitlines() == [
        "# python 3.12 in /opt/conda",
        "b @ git+https://github.com/a/b@" + "c" * 40,
        "NumPy==9",
        "odd==1",
        "ruamel-yaml==0.18",
        "train @ file:///gpurun/work (editable)",
        "# conda in /opt/conda",
        "ca-certificates=2024.9=h06a4308_0",
        "# dpkg",
        "bash=5.2.15-2+b8",
        "libc6=2.36-9+deb12u10",
    ]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://me:pw@files.example/a-1.whl", " @ https://files.example/a-1.whl"),
        ("https://b.s3.example/a.whl?X-Amz-Signature=SECRET&X=1#sha256=ab", " @ https://b.s3.example/a.whl"),
        ("https://files.example?sig=SECRET", " @ https://files.example"),
        ("https://files.example#SECRET", " @ https://files.example"),
        ("https://files.example/@scope/a.whl", " @ https://files.example/@scope/a.whl"),
        ("https://me@files.example/a@1/b.whl?to=x@evil.example/", " @ https://files.example/a@1/b.whl"),
        ("https://files.example?a=/b@evil.example", " @ https://files.example"),
        ("file:///gpurun/work/a@b", " @ file:///gpurun/work/a@b"),
        ("ssh://git@github.com:22/a/b.git", " @ ssh://github.com:22/a/b.git"),
        ("me:SECRET@host/path", "==1"),
        ("[" * 100_000, "==1"),
    ],
)
def test_of_an_address_only_the_place_is_told(tmp_path, url, told):
    python(tmp_path, "/usr/bin/python3.12")
    record = json.dumps({"url": url}) if url[0] != "[" else url
    put(tmp_path, "/usr/lib/python3.12/site-packages/a-1.dist-info/direct_url.json", record)
    text = Installed({"PATH": "/usr/bin"}, str(tmp_path)).text()
    assert text == f"# python 3.12 in /usr\na{told}\n"


def test_a_virtual_environment_is_what_its_python_means(tmp_path):
    python(tmp_path, "/usr/bin/python3.11")
    put(tmp_path, "/venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.2\n")
    (tmp_path / "venv/bin").mkdir()
    (tmp_path / "venv/bin/python3").symlink_to("../../usr/bin/python3.11")
    put(tmp_path, "/venv/lib/python3.11/site-packages/a-1.dist-info/METADATA")
    put(tmp_path, "/usr/lib/python3/dist-packages/b-2.egg-info")
    assert Installed({"PATH": "/venv/bin"}, str(tmp_path)).text() == "# python 3.11 in /venv\na==1\n"
    assert Installed({"PATH": "/usr/bin"}, str(tmp_path)).text() == "# python 3.11 in /usr\nb==2\n"


def test_nothing_is_no_text_and_no_trouble(tmp_path):
    assert Installed({}, str(tmp_path)).text() == ""


def test_pipes_are_not_waited_for_and_time_and_size_are_bounded(tmp_path):
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    os.mkfifo(tmp_path / "var/lib/dpkg/status")
    python(tmp_path, "/bin/python3.9")
    for number in range(30):
        put(tmp_path, f"/lib/python3.9/site-packages/{'n' * 200}{number}-{'9' * 30}.dist-info/METADATA")
    env = {"PATH": "/bin"}
    assert len(Installed(env, str(tmp_path)).text().splitlines()) == 31
    assert Installed(env, str(tmp_path), longest_s=-1).text() == CUT


def test_it_is_told_after_setup_and_masked(bot, run, tmp_path):
    """A Python that setup makes is the one that is looked at."""
    bot.setup = (
        f"cd {tmp_path}; mkdir -p venv/bin venv/lib/python3.11/site-packages/secret_thing-1.dist-info; "
        "echo version = 3.11.0 > venv/pyvenv.cfg; cp /bin/true venv/bin/python3"
    )
    bot.mask = [b"secret"]
    bot.env = [f"PATH={tmp_path}/venv/bin:/usr/bin:/bin"]
    run("echo hi")
    assert bot.log == b"::gpurun:: setup\n::gpurun:: run\nhi\n"
    assert bot.installed is not None
    assert b"\n******-thing==1\n" in bot.installed


def test_a_bot_that_does_not_want_it_changes_nothing(bot, run):
    bot.no_installed = True
    run("echo hi")
    assert bot.end["result"] == "passed"
    assert bot.installed is None
