"""`gpurun artifacts`: every byte verified, nothing outside the folder, nothing of others overwritten."""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from gpurun.adapters import run_page
from gpurun.adapters.run_page import RunPage
from gpurun.cli.download import Wish, download
from gpurun.domain.errors import UserError
from tests.fakes.run_page import ADDRESS, KEY, RUN, FakeRunPage

FILES = {"a.txt": b"1", "out/b.bin": bytes(range(256)) * 40, "out/deep/größe c": b"", "z": b"22"}


@pytest.fixture
def page(monkeypatch) -> FakeRunPage:
    page = FakeRunPage(files=dict(FILES))
    client = run_page.httpx.Client
    monkeypatch.setattr(run_page.httpx, "Client", lambda **options: client(**options | {"transport": page.transport}))
    return page


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def get(page, tmp_path, slept, capsys):
    """Runs the command; gives the code and the object that it printed."""

    def get(*patterns: str, **more):
        where = {"address": ADDRESS, "folder": tmp_path / "to"}
        wish = Wish(patterns=patterns, **where | more)
        code = download(wish, as_json=True, sleep=slept.append)
        told = capsys.readouterr()
        assert KEY not in told.out + told.err
        return code, json.loads(told.out), told.err

    return get


def there(folder) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def states(told) -> dict[str, str]:
    return {file["path"]: file["state"] for file in told["files"]}


def test_everything_arrives_and_a_second_time_nothing_is_asked_for(page, get, tmp_path):
    code, told, _ = get()
    assert (code, states(told)) == (0, dict.fromkeys(FILES, "downloaded"))
    assert there(tmp_path / "to") == FILES
    assert not (tmp_path / "to/.gpurun-part").exists()
    assert (told["run"], told["attempt"], told["complete"]) == (RUN, 2, True)
    page.requests.clear()
    code, told, _ = get()
    assert (code, states(told)) == (0, dict.fromkeys(FILES, "there"))
    assert page.requests == ["artifacts.json"]


def test_people_see_a_line_a_file(page, tmp_path, capsys):
    page.complete = False
    assert download(Wish(address=ADDRESS, folder=tmp_path / "to"), as_json=False) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[:2] == ["downloaded  a.txt  1 B", "downloaded  out/b.bin  10.2 kB"]
    assert f"4 of 4 files, 10.2 kB in {tmp_path / 'to'}, each verified by its sha256; manifest sha256:" in told.err
    assert told.err.endswith("The run has not ended: there may be more of it later.\n")


def test_the_folder_is_named_after_the_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert download(Wish(address=ADDRESS), as_json=False) == 0
    assert there(tmp_path / f"{RUN}-2") == FILES


def test_a_list_writes_nothing(page, get, tmp_path, capsys):
    code, told, _ = get(list_only=True)
    assert (code, list(states(told))) == (0, list(FILES))
    assert not (tmp_path / "to").exists()
    assert page.requests == ["artifacts.json"]


def test_patterns_choose(get, tmp_path):
    assert get("out/*.bin", "z")[0] == 0
    assert set(there(tmp_path / "to")) == {"out/b.bin", "z"}
    code, told, err = get("nothing*")
    assert (code, told["error"]) == (2, "No artifact is meant by nothing*.")
    assert "There is: a.txt, out/b.bin" in err


def test_the_address_may_come_from_stdin(get, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{ADDRESS}&attempt=2\n"))
    assert get(address="-")[0] == 0


def test_a_download_that_broke_off_goes_on_where_it_was(page, get, tmp_path, slept):
    page.cut_after = [1, 3000, 0, 0, 2000]
    code, _, _ = get()
    assert code == 0
    assert there(tmp_path / "to") == FILES
    ranges = [request for request in page.requests if request.startswith("artifacts/2/out/b.bin")]
    assert ranges == [f"artifacts/2/out/b.bin{place}" for place in (
        "", " bytes=3000-", " bytes=3000-", " bytes=3000-", " bytes=5000-",
    )]  # fmt: skip
    assert slept == [0.5, 1.0, 2.0, 0.5]


def test_and_so_does_the_next_command(page, get, tmp_path):
    page.cut_after = [1, 3000, 0, 0, 0, 0, 0]
    code, told, _ = get()
    assert (code, told["error"]) == (3, "gpurun.example cannot be reached (ReadError).")
    assert set(there(tmp_path / "to")) == {"a.txt", f".gpurun-part/{told_sha(page, 'out/b.bin')}"}
    page.requests.clear()
    page.no_ranges = True  # and a server that cannot resume is taken from the start
    code, told, _ = get()
    assert (code, states(told)["a.txt"]) == (0, "there")
    assert "artifacts/2/out/b.bin bytes=3000-" in page.requests
    assert there(tmp_path / "to") == FILES


def told_sha(page: FakeRunPage, path: str) -> str:
    return run_page.read_manifest(RunPage(ADDRESS, transport=page.transport)._client.get(
        ADDRESS.replace("?", "/artifacts.json?")).text)[list(page.files).index(path)].sha256  # fmt: skip


def test_a_server_that_is_away_is_asked_again_and_then_told(page, get, slept):
    page.statuses = [0, 503, 429]
    assert get("a.txt")[0] == 0
    assert slept == [0.5, 1.0, 2.0]
    page.statuses = [0] * 5
    code, told, err = get("z")
    assert (code, told["error"]) == (3, "gpurun.example cannot be reached (ConnectError).")
    assert "gpurun artifacts: gpurun.example cannot be reached" in err


@pytest.mark.parametrize("bad", [b"x" * 10_240, bytes(range(256)) * 39, bytes(range(256)) * 41, b""])
def test_bytes_that_are_not_what_their_hash_says_are_never_put_there(page, get, tmp_path, bad):
    page.served = {"out/b.bin": bad}
    code, told, _ = get()
    assert (code, states(told)["out/b.bin"], states(told)["z"]) == (1, "failed", "downloaded")
    assert there(tmp_path / "to") == {path: data for path, data in FILES.items() if path != "out/b.bin"}


def test_a_draft_that_was_spoilt_is_taken_from_the_start(page, get, tmp_path):
    parts = tmp_path / "to/.gpurun-part"
    parts.mkdir(parents=True)
    (parts / told_sha(page, "out/b.bin")).write_bytes(b"spoilt")
    assert get()[0] == 0
    assert there(tmp_path / "to") == FILES


def test_what_the_server_does_not_keep_any_more_is_told(page, get):
    page.gone = {"z"}
    code, told, _ = get()
    assert (code, states(told)["z"], told["files"][-1]["detail"]) == (
        1, "failed", "the server does not keep its bytes any more",
    )  # fmt: skip


def test_files_that_differ_are_not_overwritten(page, get, tmp_path):
    (tmp_path / "to").mkdir()
    (tmp_path / "to/z").write_bytes(b"mine")
    code, told, err = get()
    assert (code, told["error"]) == (2, f"z in {tmp_path / 'to'} would be replaced by other bytes.")
    assert "--force" in err
    assert there(tmp_path / "to") == {"z": b"mine"}
    code, told, _ = get(force=True)
    assert (code, states(told)["z"]) == (0, "replaced")
    assert there(tmp_path / "to") == FILES


def test_a_file_that_comes_there_meanwhile_is_not_overwritten(page, get, tmp_path):
    body = page._body

    def write_first(data):
        (tmp_path / "to/a.txt").write_bytes(b"mine")
        return body(data)

    page._body = write_first
    code, told, _ = get("a.txt")
    assert (code, told["error"]) == (2, f"{tmp_path / 'to/a.txt'} would be replaced by other bytes.")
    assert (tmp_path / "to/a.txt").read_bytes() == b"mine"


@pytest.mark.parametrize("path", ["../up", "/etc/cron.d/x", "a/../../up", "a\\b", "a\x1b[2J", ".."])
def test_a_server_that_names_paths_outside_is_refused(page, get, tmp_path, path):
    page.manifest = f'{{"gpurun_artifacts": 1}}\n{json.dumps({"path": path, "size": 1, "sha256": "a" * 64})}\n'
    assert get()[0] == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("link", ["out", "z", "out/deep", ".gpurun-part"])
def test_a_link_in_the_folder_is_not_followed(get, tmp_path, link):
    """Whatever put it there, `force` too: it leads elsewhere."""
    (tmp_path / "else").mkdir()
    place = tmp_path / "to" / link
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "else")
    code, told, _ = get(force=True)
    assert (code, told["error"].startswith(f"{place} is in the way")) == (2, True)
    assert list((tmp_path / "else").iterdir()) == []


@pytest.fixture
def of_nobody():
    """A folder of somebody who is not root, as whom the test goes on: root reads everything."""
    with tempfile.TemporaryDirectory(prefix="gpurun-test-") as name:
        if os.geteuid():
            yield Path(name)
            return
        os.chown(name, 1000, 1000)
        os.seteuid(1000)
        try:
            yield Path(name)
        finally:
            os.seteuid(0)


def test_a_file_that_may_not_be_read_is_told(get, of_nobody):
    place = of_nobody / "z"
    place.write_bytes(FILES["z"])
    place.chmod(0)
    assert get("z", folder=of_nobody)[1]["error"] == f"{place} cannot be read: Permission denied."
    (of_nobody / "out/deep").mkdir(parents=True)
    (of_nobody / "out").chmod(0)
    told = get("out/deep/*", folder=of_nobody)[1]
    (of_nobody / "out").chmod(0o700)
    assert told["error"] == f"{of_nobody / 'out/deep'} cannot be read: Permission denied."


def test_a_folder_that_leads_to_itself_is_told(get, tmp_path):
    (tmp_path / "to").symlink_to("to")
    code, told, _ = get("z")
    assert (code, "Too many levels of symbolic links" in told["error"]) == (2, True)


def test_a_folder_where_a_file_belongs_is_told(get, tmp_path):
    (tmp_path / "to/z").mkdir(parents=True)
    assert get(force=True)[1]["error"] == f"{tmp_path / 'to/z'} is in the way: no file, or a link."
    (tmp_path / "to/z").rmdir()
    (tmp_path / "to/out").write_text("x")
    assert "is in the way: no folder" in get(force=True)[1]["error"]


@pytest.mark.parametrize("status", [404, 302, 400, 500])
def test_an_answer_that_no_repetition_changes_is_told_at_once(page, get, slept, status):
    page.statuses = [status]
    assert get()[0] == 2
    assert slept == []


@pytest.mark.parametrize(
    "address",
    [
        "", "x", "https://gpurun.example/", f"https://gpurun.example/runs/{RUN}", f"ftp://h/runs/{RUN}?key=k",
        f"https:///runs/{RUN}?key=k", f"https://h:x/runs/{RUN}?key=k", f"https://h/runs/../x?key={KEY}", "-x",
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_run_is_refused(address):
    with pytest.raises(UserError, match="no address of a run's page") as refused:
        RunPage(address)
    assert KEY not in f"{refused.value}{refused.value.hint}"


@pytest.mark.parametrize("host", ["x" * 64, "a..b", "xn--a", "\udcff"])
def test_a_host_that_cannot_be_is_told(get, host):
    code, told, _ = get(address=f"https://{host}.example/runs/{RUN}?key={KEY}")
    assert (code, told["error"]) == (2, "This is no address of a run's page.")


def test_a_key_that_no_address_has_room_for_is_told(get):
    assert get(address=f"https://h/runs/{RUN}?key={KEY * 4000}")[1]["error"] == "This is no address of a run's page."


SIZE = '{"gpurun_artifacts": 1}\n{"path": "a", "size": %s, "sha256": "' + "a" * 64 + '"}'


@pytest.mark.parametrize(
    "manifest",
    [
        "<html>",
        "[" * 100_000,
        "{" * 5,
        '{"gpurun_artifacts": 1}\n[]',
        SIZE % "1e400",
        SIZE % 10**400,
        SIZE % ("9" * 5000),
    ],
)
def test_what_is_no_gpurun_server_is_told(page, get, manifest):
    page.manifest = manifest
    assert get(list_only=True)[1]["error"] == "What came is no list of artifacts."


@pytest.mark.parametrize("number", ["", "two", "²", "9" * 5000])
def test_a_list_of_no_attempt_is_told(page, get, number):
    page.number = number
    assert get()[1]["error"] == "gpurun.example is no gpurun server that this version knows."


def test_a_list_that_breaks_off_is_asked_for_again(page, get, slept):
    page.cut_lists_after = [10]
    assert get()[0] == 0
    assert slept == [0.5]


@pytest.mark.parametrize("cuts", [[0] * 5, [3000, 0, 0, 0, 0]])
def test_the_pauses_of_a_server_that_is_away_are_7_5_s(page, get, slept, cuts):
    page.cut_after = list(cuts)
    assert get("out/*.bin")[0] == 3
    assert (slept, page.cut_after) == ([0.5, 1.0, 2.0, 4.0], [])
