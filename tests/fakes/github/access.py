"""Who calls: JSON web tokens of the App, installation tokens, and what they may."""

from __future__ import annotations

import base64
import string
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import jwt
from starlette.requests import Request

from tests.fakes.github import payloads
from tests.fakes.github.answers import Json, Refusal, forbidden, not_found, read_json
from tests.fakes.github.state import Installation, Repo, Token

if TYPE_CHECKING:
    from tests.fakes.github.fake import FakeGitHub

LEVELS = ("none", "read", "write", "admin")
JWT_MAX = timedelta(minutes=10)
TOKEN_LIFE = timedelta(hours=1)

Need = tuple[str, str]
"""Permission and level, such as `("checks", "write")`."""


def check_app(github: FakeGitHub, request: Request) -> None:
    """The caller is the App itself."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise Refusal(401, "A JSON web token could not be decoded")
    try:
        claims = jwt.decode(
            token,
            github.app.key.public_key(),
            algorithms=["RS256"],
            # times are compared by the injected clock below
            options={"require": ["iss", "iat", "exp"], "verify_exp": False, "verify_iat": False},
        )
    except jwt.PyJWTError as exc:
        raise Refusal(401, "A JSON web token could not be decoded") from exc
    now = github.clock.now()
    expires, issued = (datetime.fromtimestamp(claims[name], UTC) for name in ("exp", "iat"))
    if claims["iss"] != str(github.app.id):
        raise Refusal(401, "'Issuer' claim ('iss') must be the App's id")
    if expires <= now or issued > now:
        raise Refusal(401, "'Expiration time' claim ('exp') must be a numeric value representing the future time")
    if expires > now + JWT_MAX:
        raise Refusal(401, "'Expiration time' claim ('exp') is too far in the future")


async def make_token(github: FakeGitHub, request: Request) -> Json:
    """`POST /app/installations/{id}/access_tokens`."""
    check_app(github, request)
    installation = github.installations.get(int(request.path_params["id"]))
    if installation is None:
        raise not_found()
    if installation.suspended:
        raise Refusal(403, "This installation has been suspended")
    body = await read_json(request)
    permissions = dict(body.get("permissions") or installation.permissions)
    for name, level in permissions.items():
        if LEVELS.index(level) > LEVELS.index(installation.permissions.get(name, "none")):
            raise Refusal(422, f"The permissions requested are not granted to this installation: {name}")
    repos = _narrowed(github, installation, body)
    value = "ghs_" + "".join(github.random.choices(string.ascii_letters + string.digits, k=36))
    expires_at = (github.clock.now() + TOKEN_LIFE).replace(microsecond=0)
    names = frozenset(repo.name.lower() for repo in repos) if repos is not None else None
    github.tokens[value] = Token(value, installation.id, permissions | {"metadata": "read"}, names, expires_at)
    answer: Json = {
        "token": value,
        "expires_at": payloads.time(expires_at),
        "permissions": permissions,
        "repository_selection": "selected",
    }
    if repos is not None:
        answer["repositories"] = [payloads.repo(github, repo) for repo in repos]
    return answer


def _narrowed(github: FakeGitHub, installation: Installation, body: Json) -> list[Repo] | None:
    names = [f"{installation.account.login}/{name}".lower() for name in body.get("repositories") or []]
    ids = body.get("repository_ids") or []
    if not names and not ids:
        return None
    seen = [repo for name, repo in github.repos.items() if name in installation.repos]
    chosen = [repo for repo in seen if repo.name.lower() in names or repo.id in ids]
    if len(chosen) < len(names) + len(ids):
        raise Refusal(422, "There is at least one repository that does not exist or is not accessible")
    return chosen


class Caller:
    """An installation token at work on one request."""

    def __init__(self, github: FakeGitHub, token: Token) -> None:
        self._github = github
        self._token = token

    def repo(self, request: Request, *any_of: Need) -> Repo:
        """The repository in the path, when the token may do one of `any_of` there.

        A private repository outside the token's reach does not exist; a public one can only be read.
        """
        name = "{owner}/{repo}".format(**request.path_params).lower()
        repo = self._github.repos.get(name)
        reach = self._reach()
        if repo is None or (repo.private and name not in reach):
            raise not_found()
        reads = request.method == "GET" or request.url.path.endswith(("/git-upload-pack", "/info/lfs/objects/batch"))
        if name not in reach and not reads:
            raise forbidden()
        if not any(self.has(need) for need in any_of):
            raise forbidden()
        return repo

    def has(self, need: Need) -> bool:
        """The token's permission reaches that level."""
        what, level = need
        return LEVELS.index(self._token.permissions.get(what, "none")) >= LEVELS.index(level)

    def _reach(self) -> frozenset[str]:
        mine = frozenset(self._github.installations[self._token.installation_id].repos)
        return mine if self._token.repos is None else self._token.repos & mine


def check_installation(github: FakeGitHub, request: Request) -> Caller:
    """The caller holds an installation token that is alive, and is within its rate limit."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() not in ("bearer", "token"):
        raise Refusal(401, "Requires authentication")
    token = live_token(github, value)
    request.scope["installation"] = token.installation_id
    github.limits.spend(token.installation_id, request.method)
    return Caller(github, token)


def live_token(github: FakeGitHub, value: str) -> Token:
    """Known, not expired, and its installation is not suspended."""
    token = github.tokens.get(value)
    if token is None or token.expires_at <= github.clock.now():
        raise Refusal(401, "Bad credentials")
    if github.installations[token.installation_id].suspended:
        raise Refusal(403, "This installation has been suspended")
    return token


def may_fetch(github: FakeGitHub, request: Request, name: str) -> Repo:
    """Git over http: everybody fetches a public repository, a token with `contents` one within its reach."""
    repo = github.repos.get(name.lower())
    header = request.headers.get("authorization", "")
    if not header:
        if repo is None or repo.private:
            raise Refusal(401, "Repository not found.", headers={"www-authenticate": 'Basic realm="GitHub"'})
        return repo
    scheme, _, value = header.partition(" ")
    login, _, password = base64.b64decode(value).decode().partition(":") if scheme.lower() == "basic" else ("", "", "")
    if login != "x-access-token":
        raise Refusal(401, "Bad credentials", headers={"www-authenticate": 'Basic realm="GitHub"'})
    token = live_token(github, password)
    return Caller(github, token).repo(request, ("contents", "read"))
