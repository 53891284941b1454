"""What a GitHub, or something between us and it, may answer that no API should."""

from __future__ import annotations

import anyio
import httpx
import pytest
from pydantic import SecretStr

from gpurun.adapters.github import GitHubForge, client
from gpurun.domain.errors import ForgeRefused, ForgeUnavailable
from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import RepoName
from tests.fakes.github.keys import app_key, pem
from tests.fakes.github.record import Checked

REPO = RepoRef(installation_id=7, name=RepoName("acme/train"), id=11)
API = "https://ghe.example.test/api/v3"


def forge_that_hears(clock, answer):
    """A forge whose calls, apart from those for a token, are answered by `answer`."""

    def handle(request):
        assert request.url.host == "ghe.example.test", "a request left the configured host"
        if request.url.path.endswith("/access_tokens"):
            return httpx.Response(201, json={"token": "ghs_x", "expires_at": "2026-01-05T13:00:00.123Z"})
        return answer(request)

    return GitHubForge(
        app_id=1,
        private_key=SecretStr(pem(app_key())),
        api_url=API,
        git_url="https://ghe.example.test/",
        clock=clock,
        transport=Checked(httpx.MockTransport(handle)),
    )


async def refused(clock, response):
    forge = forge_that_hears(clock, lambda _request: response)
    with pytest.raises((ForgeRefused, ForgeUnavailable)) as caught:
        await forge.pull_request(REPO, 1)
    return caught.value


@pytest.mark.parametrize(
    "location", ["https://github.com/login", "http://ghe.example.test/api/v3/x", "https://ghe.example.test:8443/x"]
)
async def test_a_redirect_to_elsewhere_is_not_followed(clock, location):
    error = await refused(clock, httpx.Response(302, headers={"location": location}, html="<a href=x>moved</a>"))

    assert isinstance(error, ForgeRefused)
    assert error.status == 302
    assert "GPURUN_GITHUB_API_URL" in str(error)


async def test_a_redirect_in_circles_ends(clock):
    here = f"{API}/repos/acme/train/pulls/1"

    assert isinstance(await refused(clock, httpx.Response(301, headers={"location": here})), ForgeRefused)


async def test_a_write_is_not_redirected_into_a_read(clock):
    seen = []

    def answer(request):
        seen.append(request.method)
        return httpx.Response(302, headers={"location": f"{API}/elsewhere"})

    with pytest.raises(ForgeRefused):
        await forge_that_hears(clock, answer).create_comment(REPO, 1, "hi")
    assert seen == ["POST"]


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(200, html="<html>Sign in</html>"),
        httpx.Response(200, content=b'{"number": 1, "sta'),
        httpx.Response(200, content=b""),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"number": "one"}),
        httpx.Response(200, json={"number": 1, "state": "open", "title": "t", "head": {"sha": None}, "base": {}}),
        httpx.Response(302, html="<html>no location</html>"),
        httpx.Response(200, content=b"\xff\xfe\x00"),
    ],
    ids=["html", "cut", "empty", "list", "type", "null", "302-without-location", "bytes"],
)
async def test_an_answer_that_is_not_the_promised_json_is_worth_another_try(clock, response):
    error = await refused(clock, response)

    assert isinstance(error, ForgeUnavailable)
    assert "GPURUN_GITHUB_API_URL" in str(error)


async def test_an_error_page_in_html_keeps_its_status(clock):
    assert isinstance(await refused(clock, httpx.Response(502, html="<h1>Unicorn!</h1>")), ForgeUnavailable)
    error = await refused(clock, httpx.Response(404, html="<h1>404</h1>"))
    assert (error.status, "no JSON" in str(error)) == (404, True)


@pytest.mark.parametrize(
    ("headers", "pause_s"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0"}, 1),
        ({"retry-after": "Mon, 05 Jan 2026 12:01:00 GMT"}, 60),
        ({"retry-after": "-5"}, 60),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1767614700"}, 300),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}, 1),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"}, 60),
        ({"x-ratelimit-remaining": "0"}, 60),
    ],
)
async def test_a_limit_names_a_pause_whatever_its_headers_say(clock, headers, pause_s):
    error = await refused(clock, httpx.Response(403, headers=headers, json={"message": "no"}))

    assert isinstance(error, ForgeUnavailable)
    assert error.retry_after_s == pause_s


async def test_a_long_message_is_cut(clock):
    error = await refused(clock, httpx.Response(422, json={"message": "x" * 100_000}))

    assert len(str(error)) < 500


async def test_a_network_error_does_not_show_its_details(clock):
    def answer(request):
        raise httpx.ConnectError("to 10.0.0.7 through proxy user:password", request=request)

    with pytest.raises(ForgeUnavailable, match="ConnectError") as caught:
        await forge_that_hears(clock, answer).pull_request(REPO, 1)
    assert "password" not in str(caught.value)


async def test_a_call_that_trickles_is_ended_by_the_limit(clock, monkeypatch):
    monkeypatch.setattr(client, "CALL_LIMIT_S", 0.05)

    class Silent(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request):
            await anyio.sleep_forever()

    forge = GitHubForge(
        app_id=1,
        private_key=SecretStr(pem(app_key())),
        api_url=API,
        git_url="https://ghe.example.test",
        clock=clock,
        transport=Checked(Silent()),
    )
    with pytest.raises(ForgeUnavailable, match="in time"):
        await forge.pull_request(REPO, 1)


async def test_an_author_who_is_gone_is_a_ghost_and_rights_not_named_are_none(clock):
    comment = {"id": 5, "created_at": "2026-01-05T12:00:00Z", "updated_at": "2026-01-05T12:00:00Z", "user": None}
    answers = {"comments/5": comment, "permission": {"permission": "admin", "user": {"login": "x"}}}
    forge = forge_that_hears(
        clock,
        lambda request: httpx.Response(
            200, json=next(body for end, body in answers.items() if request.url.path.endswith(end))
        ),
    )

    found = await forge.comment(REPO, 5)

    assert (found.author, found.body) == ("ghost", "")
    assert not (await forge.permission(REPO, "x")).push


async def test_a_bug_of_ours_in_the_middle_of_a_call_stays_a_bug(clock):
    def answer(_request):
        raise KeyError("ours")

    with pytest.raises(KeyError) as caught:
        await forge_that_hears(clock, answer).pull_request(REPO, 1)
    assert caught.value.__cause__ is None
