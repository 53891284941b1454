"""The REST API over the state, under /api/v3, and git and pages beside it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.fakes.github import access, checks_api, git_http, page, payloads
from tests.fakes.github.answers import Json, Refusal, forbidden, invalid, not_found, not_in_schema, read_json, refuse
from tests.fakes.github.front import Front
from tests.fakes.github.people import edit_comment, write_comment
from tests.fakes.github.state import CheckRun, Comment, HookRecord, Issue, Pull, Reaction, Repo

if TYPE_CHECKING:
    from tests.fakes.github.fake import FakeGitHub

COMMENT_MAX = 65_536
REACTIONS = ("+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes")
PER_PAGE_MAX = 100
FILES_MAX = 3_000
"""Of a pull request that are listed. Source: https://docs.github.com/en/rest/pulls/pulls, read 2026-12-01."""

Endpoint = Callable[[Request], Awaitable[Response]]
METADATA = ("metadata", "read")
CONTENTS = ("contents", "read")
CHECKS_READ, CHECKS_WRITE = ("checks", "read"), ("checks", "write")
TALK_READ = (("issues", "read"), ("pull_requests", "read"))
PULLS_READ = ("pull_requests", "read")


def make(github: FakeGitHub) -> ASGIApp:
    """The whole site as one ASGI app."""
    rest = Rest(github)
    repo = "/repos/{owner}/{repo}"
    api = Starlette(
        routes=[
            Route("/app", rest.app, methods=["GET"]),
            Route("/app/hook/deliveries", rest.deliveries, methods=["GET"]),
            Route("/app/hook/deliveries/{id:int}", rest.delivery, methods=["GET"]),
            Route("/app/installations/{id:int}/access_tokens", rest.token, methods=["POST"]),
            Route(f"{repo}/installation", rest.installation, methods=["GET"]),
            Route(f"{repo}/pulls/{{number:int}}", rest.pull, methods=["GET"]),
            Route(f"{repo}/pulls/{{number:int}}/files", rest.pull_files, methods=["GET"]),
            Route(f"{repo}/collaborators/{{login}}/permission", rest.permission, methods=["GET"]),
            Route(f"{repo}/git/ref/{{ref:path}}", rest.ref, methods=["GET"]),
            Route(f"{repo}/git/trees/{{sha}}", rest.tree, methods=["GET"]),
            Route(f"{repo}/git/blobs/{{sha}}", rest.blob, methods=["GET"]),
            Route(f"{repo}/issues/{{number:int}}/comments", rest.list_comments, methods=["GET"]),
            Route(f"{repo}/issues/{{number:int}}/comments", rest.create_comment, methods=["POST"]),
            Route(f"{repo}/issues/comments/{{id:int}}", rest.comment, methods=["GET"]),
            Route(f"{repo}/issues/comments/{{id:int}}", rest.update_comment, methods=["PATCH"]),
            Route(f"{repo}/issues/comments/{{id:int}}", rest.delete_comment, methods=["DELETE"]),
            Route(f"{repo}/issues/comments/{{id:int}}/reactions", rest.react, methods=["POST"]),
            Route(f"{repo}/check-runs", rest.create_check, methods=["POST"]),
            Route(f"{repo}/check-runs/{{id:int}}", rest.check, methods=["GET"]),
            Route(f"{repo}/check-runs/{{id:int}}", rest.update_check, methods=["PATCH"]),
            Route(f"{repo}/commits/{{ref}}/check-runs", rest.list_checks, methods=["GET"]),
        ],
        exception_handlers={Refusal: refuse, 404: _unknown_path},
    )
    site = Starlette(
        routes=[*git_http.routes(github), *page.routes(github)],
        exception_handlers={Refusal: refuse},
    )
    return Front(github, api=api, site=site)


async def _unknown_path(_request: Request, _exc: Exception) -> Response:
    return JSONResponse({"message": "Not Found"}, status_code=404)


class Rest:
    """One method per call."""

    def __init__(self, github: FakeGitHub) -> None:
        self._github = github

    def _repo(self, request: Request, *any_of: access.Need) -> Repo:
        return access.check_installation(self._github, request).repo(request, *any_of)

    # the App

    async def app(self, request: Request) -> Response:
        access.check_app(self._github, request)
        return JSONResponse(payloads.app(self._github))

    def _records(self) -> list[HookRecord]:
        """Newest first; what is too new is not there yet."""
        last = self._github.clock.now() - timedelta(seconds=self._github.records_lag_s)
        return [record for record in reversed(self._github.records) if record.at <= last]

    async def deliveries(self, request: Request) -> Response:
        """The cursor names the record that the next page begins with."""
        access.check_app(self._github, request)
        records, query = self._records(), request.query_params
        if cursor := query.get("cursor"):
            if not cursor.startswith("v1_"):
                raise Refusal(400, "Invalid cursor parameter")
            records = [record for record in records if record.id <= int(cursor.removeprefix("v1_"))]
        size = min(int(query.get("per_page", 30)), PER_PAGE_MAX)
        headers = {}
        if len(records) > size:
            following = request.url.include_query_params(cursor=f"v1_{records[size].id}")
            headers["link"] = f'<{following}>; rel="next"'
        return JSONResponse([payloads.hook_item(record) for record in records[:size]], headers=headers)

    async def delivery(self, request: Request) -> Response:
        access.check_app(self._github, request)
        found = [record for record in self._records() if record.id == request.path_params["id"]]
        if not found:
            raise not_found()
        return JSONResponse(payloads.hook_delivery(self._github, found[0]))

    async def token(self, request: Request) -> Response:
        return JSONResponse(await access.make_token(self._github, request), status_code=201)

    async def installation(self, request: Request) -> Response:
        access.check_app(self._github, request)
        repo = self._github.repos.get("{owner}/{repo}".format(**request.path_params).lower())
        if repo is None or not repo.installation_id:
            raise not_found()
        account = payloads.user(self._github, repo.owner)
        return JSONResponse({"id": repo.installation_id, "app_id": self._github.app.id, "account": account})

    # pull requests and people

    async def pull(self, request: Request) -> Response:
        repo = self._repo(request, PULLS_READ)
        pull = repo.pulls.get(request.path_params["number"])
        if pull is None:
            raise not_found()
        answer = payloads.pull(self._github, pull)
        if pull.state == "open" and pull.merges:
            base = repo.git.resolve(f"refs/heads/{pull.base_branch}")
            merge = await asyncio.to_thread(repo.git.merged, base, pull.head_sha, at=pull.created_at)
            answer |= {"mergeable": merge is not None, "merge_commit_sha": merge}
            if merge:
                repo.git.set_ref(f"refs/pull/{pull.number}/merge", merge)
        return JSONResponse(answer)

    async def pull_files(self, request: Request) -> Response:
        repo = self._repo(request, PULLS_READ)
        pull = repo.pulls.get(request.path_params["number"])
        if pull is None:
            raise not_found()
        git = (pull.head_repo or repo).git
        changes = await asyncio.to_thread(git.changes, pull.base_sha, pull.head_sha)
        listed = changes[:FILES_MAX]
        return _page(request, [payloads.file(self._github, pull, one) for one in listed])

    async def permission(self, request: Request) -> Response:
        repo = self._repo(request, METADATA)
        login = request.path_params["login"]
        account = self._github.accounts.get(login.lower())
        if account is None:
            raise Refusal(404, f"{login} is not a user")
        return JSONResponse(payloads.permission(self._github, repo, account))

    # git objects

    async def ref(self, request: Request) -> Response:
        repo = self._repo(request, CONTENTS)
        name = f"refs/{request.path_params['ref']}"
        sha = await asyncio.to_thread(repo.git.resolve, name)
        if sha is None:
            raise not_found()
        target = {"type": "commit", "sha": sha, "url": f"{request.url}/commit"}
        return JSONResponse({"ref": name, "node_id": "REF", "url": str(request.url), "object": target})

    async def tree(self, request: Request) -> Response:
        repo = self._repo(request, CONTENTS)
        sha = request.path_params["sha"]
        entries = await asyncio.to_thread(repo.git.tree, sha)
        if entries is None:
            raise not_found()
        return JSONResponse({"sha": sha, "url": str(request.url), "tree": entries, "truncated": False})

    async def blob(self, request: Request) -> Response:
        repo = self._repo(request, CONTENTS)
        sha = request.path_params["sha"]
        content = await asyncio.to_thread(repo.git.blob, sha)
        if content is None:
            raise not_found()
        # GitHub breaks the text into lines
        body = base64.encodebytes(content).decode()
        known = {"url": str(request.url), "node_id": f"B_{sha}"}
        return JSONResponse({**known, "sha": sha, "size": len(content), "encoding": "base64", "content": body})

    # comments

    def _issue(self, request: Request, level: str) -> Issue:
        caller = access.check_installation(self._github, request)
        issue = caller.repo(request, *TALK_READ).issues.get(request.path_params["number"])
        return _allowed(caller, issue, level)

    def _comment(self, request: Request, level: str) -> Comment:
        caller = access.check_installation(self._github, request)
        for issue in caller.repo(request, *TALK_READ).issues.values():
            if found := issue.comments.get(request.path_params["id"]):
                _allowed(caller, issue, level)
                return found
        raise not_found()

    async def list_comments(self, request: Request) -> Response:
        comments = list(self._issue(request, "read").comments.values())
        if since := request.query_params.get("since"):
            first = datetime.fromisoformat(since)
            comments = [one for one in comments if one.updated_at.replace(microsecond=0) >= first]
        return _page(request, [payloads.comment(self._github, one) for one in comments])

    async def create_comment(self, request: Request) -> Response:
        issue = self._issue(request, "write")
        body = _body(await read_json(request))
        app = self._github.app
        comment = write_comment(self._github, issue, self._github.bot, body, app_id=app.id)
        return JSONResponse(payloads.comment(self._github, comment), status_code=201)

    async def comment(self, request: Request) -> Response:
        return JSONResponse(payloads.comment(self._github, self._comment(request, "read")))

    async def update_comment(self, request: Request) -> Response:
        comment = self._comment(request, "write")
        edit_comment(self._github, comment, self._github.bot, _body(await read_json(request)))
        return JSONResponse(payloads.comment(self._github, comment))

    async def delete_comment(self, request: Request) -> Response:
        comment = self._comment(request, "write")
        self._github.user(self._github.bot.login).delete_comment(comment)
        return Response(status_code=204)

    async def react(self, request: Request) -> Response:
        comment = self._comment(request, "write")
        content = (await read_json(request)).get("content")
        if content not in REACTIONS:
            raise invalid("Reaction", "content", "is not a reaction")
        for known in comment.reactions:
            if known.author is self._github.bot and known.content == content:
                return JSONResponse(payloads.reaction(self._github, known))
        made = Reaction(id=self._github.new_id(), author=self._github.bot, content=str(content))
        comment.reactions.append(made)
        self._github.touch()
        return JSONResponse(payloads.reaction(self._github, made), status_code=201)

    # checks

    async def create_check(self, request: Request) -> Response:
        repo = self._repo(request, CHECKS_WRITE)
        check = checks_api.create(self._github, repo, await read_json(request))
        return JSONResponse(payloads.check(self._github, check), status_code=201)

    def _check(self, request: Request, *any_of: access.Need) -> CheckRun:
        check = self._repo(request, *any_of).checks.get(request.path_params["id"])
        if check is None:
            raise not_found()
        return check

    async def check(self, request: Request) -> Response:
        return JSONResponse(payloads.check(self._github, self._check(request, CHECKS_READ)))

    async def update_check(self, request: Request) -> Response:
        check = self._check(request, CHECKS_WRITE)
        checks_api.update(self._github, check, await read_json(request))
        return JSONResponse(payloads.check(self._github, check))

    async def list_checks(self, request: Request) -> Response:
        repo = self._repo(request, CHECKS_READ)
        query = request.query_params
        sha = await asyncio.to_thread(repo.git.resolve, request.path_params["ref"])
        if sha is None:
            raise Refusal(422, f"No commit found for SHA: {request.path_params['ref']}")
        found = [one for one in reversed(repo.checks.values()) if one.head_sha == sha]
        found = [one for one in found if query.get("check_name", one.name) == one.name]
        if query.get("filter", "latest") == "latest":
            found = list({one.name: one for one in reversed(found)}.values())
        return _page(request, [payloads.check(self._github, one) for one in found], under="check_runs")


def _allowed(caller: access.Caller, issue: Issue | None, level: str) -> Issue:
    """Talk on a pull request falls under its own permission, not under that of issues, whatever the URL says.

    Source: https://github.com/NOFireAI/ravel/pull/347, a 403 in spite of issues: write.
    """
    if issue is None:
        raise not_found()
    what = "pull_requests" if isinstance(issue, Pull) else "issues"
    if not caller.has((what, level)):
        raise forbidden()
    return issue


def _body(body: Json) -> str:
    value = body.get("body")
    if not isinstance(value, str):
        raise not_in_schema('"body" wasn\'t supplied.')
    if not value.strip():
        raise invalid("IssueComment", "body", "can't be blank")
    if len(value) > COMMENT_MAX:
        raise invalid("IssueComment", "body", f"is too long (maximum is {COMMENT_MAX} characters)")
    return value


def _page(request: Request, items: list[Json], *, under: str = "") -> Response:
    try:
        size = min(int(request.query_params.get("per_page", 30)), PER_PAGE_MAX)
        number = int(request.query_params.get("page", 1))
    except ValueError:
        raise Refusal(400, "per_page and page are numbers") from None
    part = items[(number - 1) * size : number * size]
    headers = {}
    if number * size < len(items):
        following = request.url.include_query_params(page=number + 1)
        headers["link"] = f'<{following}>; rel="next"'
    answer = {"total_count": len(items), under: part} if under else part
    return JSONResponse(answer, headers=headers)
