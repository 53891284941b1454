"""The GitHub that keeps state is as strict as GitHub, so that a bot which works with it has met the limits."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import uuid
from datetime import timedelta

import httpx
import jwt
import pytest

from tests.fakes.github import FakeGitHub, serving
from tests.fakes.github.keys import app_key
from tests.fakes.github.markdown import to_html
from tests.fakes.github.record import take


@pytest.fixture
def github(tmp_path, clock):
    return FakeGitHub(tmp_path, clock=clock)


@pytest.fixture
def repo(github):
    made = github.create_repo("acme/train")
    made.grant("alice", "write")
    return made


@pytest.fixture
def pull(github, repo):
    return github.user("alice").open_pull_request(repo, branch="smoke", files={"x": "1"})


class Caller:
    """A bare client with the App's key, no adapter in between."""

    def __init__(self, github):
        self.github = github
        self.http = httpx.AsyncClient(transport=github.transport, base_url=github.api_url)

    def json_web_token(self, *, life=timedelta(minutes=9), issued_ago=timedelta(0), **change):
        now = self.github.clock.now()
        claims = {"iss": str(self.github.app.id), "iat": now - issued_ago, "exp": now + life}
        return jwt.encode(claims | change, app_key(), algorithm="RS256")

    async def token(self, repo, **body):
        headers = {"authorization": f"Bearer {self.json_web_token()}"}
        url = f"/app/installations/{repo.installation_id}/access_tokens"
        return (await self.http.post(url, headers=headers, json=body)).json()["token"]

    async def call(self, method, path, token, body=None):
        return await self.http.request(method, path, headers={"authorization": f"token {token}"}, json=body)


@pytest.fixture
def caller(github):
    return Caller(github)


# who calls


@pytest.mark.parametrize(
    "change",
    [
        {"life": timedelta(minutes=10, seconds=1)},
        {"life": timedelta(seconds=0)},
        {"issued_ago": timedelta(seconds=-1)},
        {"iss": "7"},
    ],
    ids=["too-far", "expired", "issued-later", "another-app"],
)
async def test_the_app_proves_itself_with_a_short_lived_token_of_its_own(caller, change):
    good = await caller.http.get("/app", headers={"authorization": f"Bearer {caller.json_web_token()}"})
    bad = await caller.http.get("/app", headers={"authorization": f"Bearer {caller.json_web_token(**change)}"})

    assert (good.status_code, bad.status_code) == (200, 401)
    assert good.json()["slug"] == "gpurun"


async def test_a_token_signed_with_another_algorithm_or_key_is_refused(caller):
    claims = {"iss": str(caller.github.app.id), "iat": caller.github.clock.now(), "exp": caller.github.clock.now()}
    for forged in (
        jwt.encode(claims, "x" * 32, algorithm="HS256"),
        jwt.encode(claims, app_key(1), algorithm="RS256"),
        jwt.encode(claims, None, algorithm="none"),
    ):
        assert (await caller.http.get("/app", headers={"authorization": f"Bearer {forged}"})).status_code == 401


async def test_installation_tokens_are_known_and_end_after_an_hour(caller, repo, pull, clock):
    token = await caller.token(repo)
    path = "/repos/acme/train/pulls/1"

    assert (await caller.call("GET", path, token)).status_code == 200
    assert (await caller.call("GET", path, "ghs_unknown")).status_code == 401
    assert (await caller.http.get(path)).status_code == 401
    clock.advance(hours=1)
    assert (await caller.call("GET", path, token)).status_code == 401


async def test_a_token_can_do_less_than_the_app_and_never_more(caller, repo, pull):
    narrow = await caller.token(repo, permissions={"pull_requests": "read"})
    comments = "/repos/acme/train/issues/1/comments"

    assert (await caller.call("GET", comments, narrow)).status_code == 200
    assert (await caller.call("POST", comments, narrow, {"body": "x"})).status_code == 403
    headers = {"authorization": f"Bearer {caller.json_web_token()}"}
    url = f"/app/installations/{repo.installation_id}/access_tokens"
    wide = await caller.http.post(url, headers=headers, json={"permissions": {"contents": "write"}})
    assert wide.status_code == 422


async def test_talk_on_a_pull_request_is_not_talk_on_an_issue(caller, github, repo, pull):
    issue = github.user("alice").open_issue(repo, "an issue")
    github.installations[repo.installation_id].permissions = {"issues": "write", "pull_requests": "read"}
    token = await caller.token(repo)

    async def say(number):
        return (
            await caller.call("POST", f"/repos/acme/train/issues/{number}/comments", token, {"body": "x"})
        ).status_code

    assert (await say(issue.number), await say(pull.number)) == (201, 403)


async def test_a_token_for_one_repository_does_not_reach_another(caller, github, repo):
    other = github.create_repo("acme/other", private=True)
    public = github.create_repo("acme/public")
    issue = github.user("alice").open_issue(public, "an issue")
    token = await caller.token(repo, repository_ids=[repo.id])

    assert (await caller.call("GET", f"/repos/{other.name}/collaborators/acme/permission", token)).status_code == 404
    assert (await caller.call("GET", f"/repos/{public.name}/collaborators/acme/permission", token)).status_code == 200
    said = await caller.call("POST", f"/repos/{public.name}/issues/{issue.number}/comments", token, {"body": "x"})
    assert said.status_code == 403
    strange = await caller.http.post(
        f"/app/installations/{repo.installation_id}/access_tokens",
        headers={"authorization": f"Bearer {caller.json_web_token()}"},
        json={"repository_ids": [1]},
    )
    assert strange.status_code == 422


# limits

OUTPUT = {"title": "t", "summary": "s"}
NOTE = {"path": "a", "start_line": 1, "end_line": 1, "annotation_level": "failure", "message": "m"}
BUTTON = {"label": "Stop", "description": "Stop it", "identifier": "stop"}


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ({"status": "queued"}, {"status": "done"}),
        ({"status": "completed", "conclusion": "success"}, {"status": "completed"}),
        ({"conclusion": "timed_out"}, {"conclusion": "passed"}),
        ({"output": OUTPUT}, {"output": {"title": "t"}}),
        ({"output": OUTPUT | {"summary": "é" * 65_535}}, {"output": OUTPUT | {"summary": "x" * 65_536}}),
        ({"output": OUTPUT | {"text": "x" * 65_535}}, {"output": OUTPUT | {"text": "x" * 65_536}}),
        ({"output": OUTPUT | {"annotations": [NOTE] * 50}}, {"output": OUTPUT | {"annotations": [NOTE] * 51}}),
        (
            {"output": OUTPUT | {"annotations": [NOTE | {"message": "x" * 65_536}]}},
            {"output": OUTPUT | {"annotations": [NOTE | {"message": "é" * 65_535}]}},
        ),
        (
            {"output": OUTPUT | {"annotations": [NOTE]}},
            {"output": OUTPUT | {"annotations": [NOTE | {"start_line": 0}]}},
        ),
        ({"actions": [BUTTON] * 3}, {"actions": [BUTTON] * 4}),
        ({"actions": [BUTTON | {"label": "x" * 20}]}, {"actions": [BUTTON | {"label": "x" * 21}]}),
        ({"actions": [BUTTON | {"description": "x" * 40}]}, {"actions": [BUTTON | {"description": "x" * 41}]}),
        ({"actions": [BUTTON | {"identifier": "x" * 20}]}, {"actions": [BUTTON | {"identifier": "x" * 21}]}),
        ({"details_url": "https://x/"}, {"details_url": "javascript:alert(1)"}),
        ({"started_at": "2026-01-05T12:00:00Z"}, {"started_at": "today"}),
    ],
)
async def test_a_check_is_validated(caller, repo, pull, good, bad):
    token = await caller.token(repo)
    base = {"name": "n", "head_sha": pull.head_sha}

    assert (await caller.call("POST", "/repos/acme/train/check-runs", token, base | good)).status_code == 201
    assert (await caller.call("POST", "/repos/acme/train/check-runs", token, base | bad)).status_code == 422
    assert len(repo.checks) == 1


async def test_a_bad_update_changes_nothing(caller, repo, pull):
    token = await caller.token(repo)
    base = {"name": "n", "head_sha": pull.head_sha, "output": OUTPUT}
    made = (await caller.call("POST", "/repos/acme/train/check-runs", token, base)).json()
    bad = {"name": "other", "output": {"title": "x"}}

    assert (await caller.call("PATCH", f"/repos/acme/train/check-runs/{made['id']}", token, bad)).status_code == 422
    assert (repo.checks[made["id"]].name, repo.checks[made["id"]].title) == ("n", "t")


@pytest.mark.parametrize("body", [{}, {"body": ""}, {"body": "  \n"}, {"body": 7}, {"body": "x" * 65_537}])
async def test_a_comment_is_validated(caller, repo, pull, body):
    token = await caller.token(repo)

    assert (await caller.call("POST", "/repos/acme/train/issues/1/comments", token, body)).status_code == 422
    assert not pull.comments


async def test_an_unknown_reaction_is_refused(caller, github, repo, pull):
    comment = github.user("alice").comment(pull, "hi")
    token = await caller.token(repo)
    path = f"/repos/acme/train/issues/comments/{comment.id}/reactions"

    assert (await caller.call("POST", path, token, {"content": "eyes"})).status_code == 201
    assert (await caller.call("POST", path, token, {"content": "eyes"})).status_code == 200
    assert (await caller.call("POST", path, token, {"content": "thumbsup"})).status_code == 422


async def test_lists_come_in_pages(caller, github, repo, pull):
    for n in range(5):
        github.user("alice").comment(pull, str(n))
    token = await caller.token(repo)

    first = await caller.call("GET", "/repos/acme/train/issues/1/comments?per_page=3", token)
    rest = await caller.call("GET", first.links["next"]["url"], token)

    assert [one["body"] for one in first.json() + rest.json()] == list("01234")
    assert "next" not in rest.links


# deliveries


class Receiver:
    """Keeps what arrives."""

    def __init__(self):
        self.arrived = []
        self.status = 202

    async def __call__(self, scope, receive, send):
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.arrived.append(({name.decode(): value.decode() for name, value in scope["headers"]}, body))
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body"})


@pytest.fixture
def receiver(github):
    app = Receiver()
    github.hook_url = "http://bot.test/webhook"
    github.hook_transport = httpx.ASGITransport(app=app)
    return app


async def test_a_comment_arrives_signed_and_says_that_it_is_on_a_pull_request(github, receiver, repo, pull):
    comment = github.user("alice").comment(pull, "/gpurun smoke 🚀")
    *_, sent = await github.deliver()

    headers, body = receiver.arrived[-1]
    event = json.loads(body)
    secret = github.app.webhook_secret.get_secret_value().encode()
    assert headers["x-hub-signature-256"] == "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
    assert (headers["x-github-event"], uuid.UUID(headers["x-github-delivery"]).version) == ("issue_comment", 4)
    assert (event["action"], event["installation"]["id"]) == ("created", repo.installation_id)
    assert (event["comment"]["id"], event["comment"]["body"]) == (comment.id, "/gpurun smoke 🚀")
    assert (event["sender"]["login"], event["repository"]["full_name"]) == ("alice", "acme/train")
    assert event["issue"]["pull_request"]["url"].endswith("/repos/acme/train/pulls/1")
    assert sent.statuses == [202]


async def test_a_comment_on_an_issue_names_no_pull_request(github, receiver, repo):
    alice = github.user("alice")
    alice.comment(alice.open_issue(repo, "broken"), "/gpurun smoke")
    await github.deliver()

    assert "pull_request" not in json.loads(receiver.arrived[-1][1])["issue"]


async def test_a_push_moves_the_head_and_says_so(github, receiver, repo, pull):
    before = pull.head_sha
    after = github.user("alice").push(pull, {"x": "2"})
    await github.deliver()

    event = json.loads(receiver.arrived[-1][1])
    assert (event["action"], event["before"], event["after"]) == ("synchronize", before, after)
    assert event["pull_request"]["head"]["sha"] == pull.head_sha == after


async def test_a_force_push_replaces_the_branch(github, repo, pull):
    first = pull.head_sha
    second = github.user("alice").push(pull, {"y": "2"}, force=True)

    parents = repo.git.run("rev-list", second).decode().split()
    assert first not in parents
    assert pull.base_sha in parents


async def test_a_closed_pull_request_follows_no_branch(github, repo, pull):
    alice = github.user("alice")
    alice.close(pull)
    before = pull.head_sha
    alice.push(pull, {"x": "2"})

    assert pull.head_sha == before


async def test_what_the_bot_does_is_delivered_too(github, caller, receiver, repo, pull):
    token = await caller.token(repo)
    await caller.call("POST", "/repos/acme/train/issues/1/comments", token, {"body": "hi"})
    base = {"name": "n", "head_sha": pull.head_sha, "conclusion": "success"}
    await caller.call("POST", "/repos/acme/train/check-runs", token, base)

    sent = await github.deliver()

    assert [(hook.event, hook.action) for hook in sent] == [
        ("pull_request", "opened"),
        ("issue_comment", "created"),
        ("check_run", "created"),
        ("check_run", "completed"),
    ]
    assert json.loads(sent[1].body)["sender"] | {"id": 0} == json.loads(sent[1].body)["comment"]["user"] | {"id": 0}
    assert json.loads(sent[1].body)["comment"]["user"]["type"] == "Bot"


async def test_a_button_that_is_not_shown_cannot_be_pressed(github, caller, receiver, repo, pull):
    token = await caller.token(repo)
    base = {"name": "n", "head_sha": pull.head_sha, "actions": [BUTTON]}
    await caller.call("POST", "/repos/acme/train/check-runs", token, base)
    (check,) = github.checks(repo)

    with pytest.raises(AssertionError, match="no button"):
        github.user("alice").press(check, "approve")
    github.user("alice").press(check, "stop")
    await github.deliver()
    event = json.loads(receiver.arrived[-1][1])
    assert (event["action"], event["requested_action"]) == ("requested_action", {"identifier": "stop"})


async def test_a_redelivery_is_the_same_bytes_under_the_same_id(github, receiver, repo, pull):
    github.user("alice").comment(pull, "/gpurun smoke")
    receiver.status = 500
    *_, hook = await github.deliver()
    github.user("alice").edit_comment(next(iter(pull.comments.values())), "changed")
    receiver.status = 202

    await github.redeliver(hook)

    assert receiver.arrived[-1] == receiver.arrived[-2]
    assert hook.statuses == [500, 202]


async def test_a_delivery_to_nobody_is_lost(github, receiver, repo, pull):
    github.hook_down = True

    (hook,) = await github.deliver()

    assert hook.statuses == [0]
    assert not receiver.arrived


async def test_nothing_is_delivered_where_the_app_is_not(github, receiver, repo, pull):
    alice = github.user("alice")
    elsewhere = github.create_repo("globex/secret", installed=False)
    github.queued.clear()

    alice.open_pull_request(elsewhere, files={"x": "1"})
    github.suspend(repo, told=False)
    alice.comment(pull, "/gpurun smoke")

    assert github.queued == []


# trouble, and the served form


async def test_a_slow_answer_takes_as_long_as_the_clock_says(github, caller, repo, pull, clock):
    token = await caller.token(repo)
    github.slow("GET", "/repos/{}/{}/pulls/{}", seconds=30)
    call = asyncio.ensure_future(caller.call("GET", "/repos/acme/train/pulls/1", token))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not call.done()

    clock.advance(seconds=30)

    assert (await call).status_code == 200


async def test_every_answer_tells_the_rate_limit(github, caller, repo, pull, clock):
    token = await caller.token(repo)
    github.exhaust_rate_limit(reset_in_s=60)
    limited = await caller.call("GET", "/repos/acme/train/pulls/1", token)
    clock.advance(seconds=61)
    again = await caller.call("GET", "/repos/acme/train/pulls/1", token)

    assert (limited.status_code, limited.headers["x-ratelimit-remaining"]) == (403, "0")
    assert int(limited.headers["x-ratelimit-reset"]) == int(clock.now().timestamp()) - 1
    assert (again.status_code, int(again.headers["x-ratelimit-remaining"]) > 0) == (200, True)


async def test_half_a_request_of_somebody_who_died_is_none(github, repo, pull):
    async with serving(github) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        path = f"/api/v3/repos/acme/train/issues/{pull.number}/comments"
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\nuser-agent: gpurun/0\r\ncontent-length: 100\r\n\r\n"
        writer.write(head.encode() + b'{"body": "ha')
        await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    assert github.comments(pull) == []
    assert github.requests == []
    assert take() == []


async def test_served_it_delivers_by_itself_and_shows_pages(github, receiver, repo, pull):
    async with serving(github) as url, httpx.AsyncClient() as http:
        github.user("alice").comment(pull, "/gpurun smoke")
        while len(receiver.arrived) < 2:
            assert await github.changed()

        page = await http.get(f"{url}/acme/train/pull/1")
        assert "/gpurun smoke" in page.text
        github.time_out_next("GET", "/app")
        assert (await http.get(f"{url}/api/v3/app")).status_code == 504
        push = await http.get(f"{url}/acme/train.git/info/refs?service=git-receive-pack")
        assert push.status_code == 403
    assert github.git_url == "http://github.test"


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**bold** <!-- hidden -->", "<p><strong>bold</strong> </p>\n"),
        ("a<script>alert(1)</script>b", "<p>ab</p>\n"),
        ("<img src=x onerror=alert(1)>", "<img>"),
        ("[x](javascript:alert)", "<p>[x](javascript:alert)</p>\n"),
        ("</div></div><b>x", "<b>x</b>"),
        ("`a<b>`", "<p><code>a&lt;b&gt;</code></p>\n"),
    ],
)
def test_markdown_shows_only_what_github_lets_through(text, html):
    assert to_html(text).replace("\n", "") == html.replace("\n", "")
