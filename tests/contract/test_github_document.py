"""GitHub's own OpenAPI document, and what happens to a test whose bot does not keep to it."""

from __future__ import annotations

import json

import httpx
import pytest

from ops import github_contract
from tests.fakes.github import FakeGitHub
from tests.fakes.github.contract import DOCUMENT, Asked, Told, contract, pattern
from tests.fakes.github.record import assert_clean, take

RUNS = "/repos/acme/train/check-runs"
COMMENTS = "/repos/acme/train/issues/7/comments"
NOTE = {"path": "a", "start_line": 1, "end_line": 1, "annotation_level": "failure", "message": "m"}
BUTTON = {"label": "Stop", "description": "Stop it", "identifier": "stop"}
CHECK = {"name": "n", "head_sha": "c" * 40}


def of_output(**more):
    return {"output": {"title": "t", "summary": "s", **more}}


GOOD = {
    "least check": ("POST", RUNS, CHECK),
    "whole check": ("POST", RUNS, CHECK | {"status": "completed", "conclusion": "timed_out", "actions": [BUTTON] * 3}),
    "50 annotations": ("POST", RUNS, CHECK | of_output(annotations=[NOTE] * 50)),
    "edit": ("PATCH", f"{RUNS}/48000000001", {"status": "in_progress"}),
    "comment": ("POST", COMMENTS, {"body": "hi"}),
    "reaction": ("POST", "/repos/acme/train/issues/comments/2900000001/reactions", {"content": "eyes"}),
    "page": ("GET", f"{COMMENTS}?since=2026-01-05T12:00:00Z&per_page=100&page=2", None),
    "token": (
        "POST",
        "/app/installations/7/access_tokens",
        {"repository_ids": [1], "permissions": {"contents": "read"}},
    ),
    "deliveries": ("GET", "/app/hook/deliveries?per_page=100&cursor=v1_2900000001", None),
    "a delivery": ("GET", "/app/hook/deliveries/2900000001", None),
    "token of everything": ("POST", "/app/installations/7/access_tokens", None),
}
BAD = {
    "a field is missing": ("POST", RUNS, {"name": "n"}),
    "a status that does not exist": ("POST", RUNS, CHECK | {"status": "done"}),
    "a conclusion that does not exist": ("POST", RUNS, CHECK | {"conclusion": "passed"}),
    "51 annotations": ("POST", RUNS, CHECK | of_output(annotations=[NOTE] * 51)),
    "a summary that is too long": ("POST", RUNS, CHECK | of_output(summary="x" * 65_536)),
    "a label that is too long": ("POST", RUNS, CHECK | {"actions": [BUTTON | {"label": "x" * 21}]}),
    "four buttons": ("POST", RUNS, CHECK | {"actions": [BUTTON] * 4}),
    "a time that is none": ("POST", RUNS, CHECK | {"started_at": "today"}),
    "a reaction that does not exist": (
        "POST",
        "/repos/acme/train/issues/comments/29/reactions",
        {"content": "thumbsup"},
    ),
    "a delivery by its GUID": ("GET", "/app/hook/deliveries/7b1e0000-0000-4000-8000-000000000001", None),
    "a page size that is no number": ("GET", f"{COMMENTS}?per_page=abc", None),
    "no body": ("POST", COMMENTS, None),
    "a body that is no object": ("POST", COMMENTS, ["hi"]),
    "a permission that does not exist": (
        "POST",
        "/app/installations/7/access_tokens",
        {"permissions": {"checks": "all"}},
    ),
    "an unknown path": ("GET", "/repos/acme/train/branches", None),
    "an unknown method": ("PUT", COMMENTS, {"body": "hi"}),
    "a number that is none": ("GET", "/repos/acme/train/pulls/seven", None),
}
STRICTER = {
    "a field that GitHub would ignore": ("POST", RUNS, CHECK | {"detail_url": "https://x/"}),
    "a parameter that GitHub would ignore": ("GET", f"{COMMENTS}?sinse=2026-01-05T12:00:00Z", None),
}


def asked(method, path, body, **more):
    path, _, query = path.partition("?")
    return Asked(method, path, query, b"" if body is None else json.dumps(body).encode(), **more)


@pytest.mark.parametrize("request_", GOOD.values(), ids=GOOD)
def test_what_the_document_allows_is_no_violation(request_):
    assert contract().wrong_in(asked(*request_)) == []


@pytest.mark.parametrize("request_", [*BAD.values(), *STRICTER.values()], ids=[*BAD, *STRICTER])
def test_what_the_document_does_not_allow_is_named(request_):
    assert contract().wrong_in(asked(*request_))


def test_our_quick_look_sees_what_openapi_core_sees():
    """It is thirty times as fast, and a test asks GitHub a hundred things."""
    from jsonschema_path import SchemaPath
    from openapi_core import V30RequestValidator
    from openapi_core.testing import MockRequest

    validator = V30RequestValidator(SchemaPath.from_dict(json.loads(DOCUMENT.read_text("utf-8"))))

    def faults(method, path, body):
        path, _, query = path.partition("?")
        args = dict(one.split("=") for one in query.split("&")) if query else {}
        data = None if body is None else json.dumps(body).encode()
        request = MockRequest("https://api.github.com", method, path, args=args, data=data)
        return list(validator.iter_errors(request))

    seen = {name for name, one in (GOOD | BAD).items() if faults(*one)}
    assert seen == set(BAD)


def test_the_document_is_what_the_script_makes_of_it():
    document = json.loads(DOCUMENT.read_text("utf-8"))
    assert github_contract.trimmed(document) == document
    assert github_contract.DOCUMENT == DOCUMENT
    assert {path.name: github_contract.digest(path) for path in (DOCUMENT, github_contract.WEBHOOKS)} == {
        "openapi.json": "1fcf6f06d001b4604392dc76717bdea1c6f1b32a08de72c7f815eda907bdd391",
        "webhooks.json.xz": "d0ddc9c72eab40bee7b38992e7e38b4336f2fa2cedc499e3a5371f156c71f30f",
    }


def test_only_the_path_of_a_file_holds_slashes():
    import re

    files = re.compile(pattern("/repos/{owner}/{repo}/contents/{path}"))
    assert files.fullmatch("/repos/a/b/contents/c/d.yml")["path"] == "c/d.yml"
    assert not re.compile(pattern("/repos/{owner}/{repo}")).fullmatch("/repos/a/b/c")


# what becomes of a violation


@pytest.fixture
def github(tmp_path, clock):
    return FakeGitHub(tmp_path / "github", clock=clock)


async def swallowing(github, *, agent="gpurun/0", **request):
    """Like a bot that does not look at the answer."""
    async with httpx.AsyncClient(transport=github.transport, base_url=github.api_url) as client:
        await client.request(**request, headers={"user-agent": agent})


async def test_a_bot_that_swallowed_the_answer_is_found_out(github):
    await swallowing(github, method="POST", url="/repos/acme/train/check-runs", json={"name": "n"})

    with pytest.raises(AssertionError, match=r"POST /repos/acme/train/check-runs: body: 'head_sha' is a required"):
        assert_clean()


async def test_a_person_with_curl_may_ask_what_they_like(github):
    await swallowing(github, method="POST", url="/repos/acme/train/check-runs", json={"name": "n"}, agent="curl/8")

    assert take() == []


async def test_a_request_in_trouble_is_looked_at_too(github):
    github.fail_next("GET", "/nonsense", status=502)
    await swallowing(github, method="GET", url="/nonsense")

    assert take() == [
        "the bot: GET /nonsense: no such call in tests/data/github/openapi.json; see ops/github_contract.py"
    ]


def test_an_answer_that_github_would_not_give_is_the_fakes_fault():
    comment = asked("GET", "/repos/acme/train/issues/comments/7", None)
    assert contract().wrong_with(Told(200, b'{"id": 7}'), comment)
    assert contract().wrong_with(Told(200, b"{"), comment)
    assert contract().wrong_with(Told(200, b"{}", "text/html"), comment)
    assert not contract().wrong_with(Told(502, b"<html>", "text/html"), comment)
