"""GitHub's JSON, shared by the API and the deliveries."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tests.fakes.github.gitrepo import Change
from tests.fakes.github.state import ROLES, Account, CheckRun, Comment, HookRecord, Issue, Pull, Reaction, Repo

if TYPE_CHECKING:
    from tests.fakes.github.fake import FakeGitHub

Json = dict[str, Any]

_REPO_URLS = {
    "archive": "{archive_format}{/ref}",
    "assignees": "assignees{/user}",
    "blobs": "git/blobs{/sha}",
    "branches": "branches{/branch}",
    "collaborators": "collaborators{/collaborator}",
    "comments": "comments{/number}",
    "commits": "commits{/sha}",
    "compare": "compare/{base}...{head}",
    "contents": "contents/{+path}",
    "git_commits": "git/commits{/sha}",
    "git_refs": "git/refs{/sha}",
    "git_tags": "git/tags{/sha}",
    "issue_comment": "issues/comments{/number}",
    "issue_events": "issues/events{/number}",
    "issues": "issues{/number}",
    "keys": "keys{/key_id}",
    "labels": "labels{/name}",
    "milestones": "milestones{/number}",
    "notifications": "notifications{?since,all,participating}",
    "pulls": "pulls{/number}",
    "releases": "releases{/id}",
    "statuses": "statuses/{sha}",
    "trees": "git/trees{/sha}",
    **{
        name: name
        for name in (
            *("contributors", "deployments", "downloads", "events", "forks", "hooks", "languages", "merges"),
            *("stargazers", "subscribers", "subscription", "tags", "teams"),
        )
    },
}
"""The addresses that every repository carries, as `<name>_url`."""


def time(at: datetime | None) -> str | None:
    """Whole seconds, as GitHub writes them."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else None


def user(github: FakeGitHub, account: Account) -> Json:
    url = f"{github.api_url}/users/{account.login}"
    return {
        "login": account.login,
        "id": account.id,
        "node_id": f"U_{account.id}",
        "avatar_url": f"{github.git_url}/avatars/{account.id}",
        "gravatar_id": "",
        "url": url,
        "html_url": f"{github.git_url}/{account.login}",
        "followers_url": f"{url}/followers",
        "following_url": f"{url}/following{{/other_user}}",
        "gists_url": f"{url}/gists{{/gist_id}}",
        "starred_url": f"{url}/starred{{/owner}}{{/repo}}",
        "subscriptions_url": f"{url}/subscriptions",
        "organizations_url": f"{url}/orgs",
        "repos_url": f"{url}/repos",
        "events_url": f"{url}/events{{/privacy}}",
        "received_events_url": f"{url}/received_events",
        "type": account.kind,
        "site_admin": False,
    }


def app(github: FakeGitHub) -> Json:
    return {
        "id": github.app.id,
        "slug": github.app.slug,
        "node_id": f"A_{github.app.id}",
        "owner": user(github, github.account("gpurun-owner")),
        "name": github.app.slug,
        "description": "",
        "external_url": "https://example.com",
        "html_url": f"{github.git_url}/apps/{github.app.slug}",
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "permissions": dict(github.app.permissions),
        "events": sorted(github.app.events),
    }


def repo(github: FakeGitHub, it: Repo) -> Json:
    url = f"{github.api_url}/repos/{it.name}"
    host = github.git_url.partition("://")[2]
    return {
        **{f"{name}_url": f"{url}/{end}" for name, end in _REPO_URLS.items()},
        **dict.fromkeys(("forks", "forks_count", "open_issues", "open_issues_count", "size"), 0),
        **dict.fromkeys(("stargazers_count", "watchers", "watchers_count"), 0),
        **dict.fromkeys(("homepage", "language", "license", "mirror_url"), None),
        **dict.fromkeys(("archived", "disabled", "has_pages"), False),
        **dict.fromkeys(("has_downloads", "has_issues", "has_projects", "has_wiki"), True),
        **dict.fromkeys(("created_at", "pushed_at", "updated_at"), "2026-01-01T00:00:00Z"),
        "git_url": f"git://{host}/{it.name}.git",
        "ssh_url": f"git@{host}:{it.name}.git",
        "svn_url": f"{github.git_url}/{it.name}",
        "id": it.id,
        "node_id": f"R_{it.id}",
        "name": it.name.split("/")[1],
        "full_name": it.name,
        "private": it.private,
        "owner": user(github, it.owner),
        "html_url": f"{github.git_url}/{it.name}",
        "url": url,
        "clone_url": f"{github.git_url}/{it.name}.git",
        "description": None,
        "fork": it.parent is not None,
        "default_branch": it.default_branch,
        "visibility": "private" if it.private else "public",
    }


def pull(github: FakeGitHub, it: Pull) -> Json:
    head_owner = it.head_repo.owner if it.head_repo else None
    url = f"{github.api_url}/repos/{it.repo.name}/pulls/{it.number}"
    page = f"{github.git_url}/{it.repo.name}/pull/{it.number}"
    links = {
        "self": url,
        "html": page,
        "issue": url.replace("/pulls/", "/issues/"),
        "comments": f"{url.replace('/pulls/', '/issues/')}/comments",
        "review_comments": f"{url}/comments",
        "review_comment": f"{url.rpartition('/')[0]}/comments{{/number}}",
        "commits": f"{url}/commits",
        "statuses": f"{github.api_url}/repos/{it.repo.name}/statuses/{it.head_sha}",
    }
    return {
        "_links": {name: {"href": target} for name, target in links.items()},
        **{f"{name}_url": target for name, target in links.items() if name not in ("self", "html")},
        **dict.fromkeys(("additions", "changed_files", "deletions", "review_comments"), 1),
        **dict.fromkeys(("assignee", "auto_merge", "merge_commit_sha", "merged_by", "milestone"), None),
        "comments": len(it.comments),
        "commits": 1,
        "labels": [],
        "maintainer_can_modify": False,
        "mergeable_state": "unknown",
        "url": url,
        "id": it.id,
        "node_id": f"PR_{it.id}",
        "html_url": page,
        "diff_url": f"{page}.diff",
        "patch_url": f"{page}.patch",
        "number": it.number,
        "state": it.state,
        "locked": it.locked,
        "title": it.title,
        "user": user(github, it.author),
        "body": it.body or None,
        "created_at": time(it.created_at),
        "updated_at": time(it.updated_at or it.created_at),
        "closed_at": None,
        "merged_at": time(it.merged_at),
        "merged": it.merged_at is not None,
        "mergeable": None,
        "draft": it.draft,
        "author_association": "CONTRIBUTOR",
        "head": {
            "label": it.head_label,
            "ref": it.head_branch,
            "sha": it.head_sha,
            "user": user(github, head_owner) if head_owner else None,
            "repo": repo(github, it.head_repo) if it.head_repo else None,
        },
        "base": {
            "label": f"{it.repo.owner.login}:{it.base_branch}",
            "ref": it.base_branch,
            "sha": it.base_sha,
            "user": user(github, it.repo.owner),
            "repo": repo(github, it.repo),
        },
    }


def file(github: FakeGitHub, it: Pull, change: Change) -> Json:
    """One changed file of a pull request. How many lines changed is not told."""
    where = f"{it.repo.name}/{{}}/{it.head_sha}/{quote(change.path)}"
    counts = dict.fromkeys(("additions", "deletions", "changes"), 1)
    moved = {"previous_filename": change.before} if change.before else {}
    return {
        **counts,
        **moved,
        "sha": change.blob,
        "filename": change.path,
        "status": change.status,
        "blob_url": f"{github.git_url}/{where.format('blob')}",
        "raw_url": f"{github.git_url}/{where.format('raw')}",
        "contents_url": f"{github.api_url}/repos/{it.repo.name}/contents/{quote(change.path)}?ref={it.head_sha}",
        "patch": "@@ -0,0 +1 @@",
    }


def issue(github: FakeGitHub, it: Issue) -> Json:
    page = f"{github.git_url}/{it.repo.name}"
    url = f"{github.api_url}/repos/{it.repo.name}/issues/{it.number}"
    kind = "pull" if isinstance(it, Pull) else "issues"
    body: Json = {
        "url": url,
        "comments_url": f"{url}/comments",
        "html_url": f"{page}/{kind}/{it.number}",
        "id": it.id,
        "node_id": f"I_{it.id}",
        "number": it.number,
        "title": it.title,
        "user": user(github, it.author),
        "labels": [],
        "state": it.state,
        "locked": it.locked,
        "comments": len(it.comments),
        "created_at": time(it.created_at),
        "updated_at": time(it.updated_at or it.created_at),
        "author_association": "CONTRIBUTOR",
        "body": it.body or None,
    }
    if isinstance(it, Pull):
        page = f"{page}/pull/{it.number}"
        body["draft"] = it.draft
        body["pull_request"] = {
            "url": f"{github.api_url}/repos/{it.repo.name}/pulls/{it.number}",
            "html_url": page,
            "diff_url": f"{page}.diff",
            "patch_url": f"{page}.patch",
            "merged_at": time(it.merged_at),
        }
    return body


def comment(github: FakeGitHub, it: Comment) -> Json:
    kind = "pull" if isinstance(it.on, Pull) else "issues"
    issue_url = f"{github.api_url}/repos/{it.on.repo.name}/issues"
    return {
        "url": f"{issue_url}/comments/{it.id}",
        "html_url": f"{github.git_url}/{it.on.repo.name}/{kind}/{it.on.number}#issuecomment-{it.id}",
        "issue_url": f"{issue_url}/{it.on.number}",
        "id": it.id,
        "node_id": f"IC_{it.id}",
        "user": user(github, it.author),
        "created_at": time(it.created_at),
        "updated_at": time(it.updated_at),
        "author_association": "NONE" if it.app_id else "CONTRIBUTOR",
        "body": it.body,
        "performed_via_github_app": app(github) if it.app_id else None,
    }


def reaction(github: FakeGitHub, it: Reaction) -> Json:
    return {
        "id": it.id,
        "node_id": f"RE_{it.id}",
        "user": user(github, it.author),
        "content": it.content,
        "created_at": time(github.clock.now()),
    }


def permission(github: FakeGitHub, it: Repo, account: Account) -> Json:
    role = it.role_of(account.login)
    rank = ROLES.index(role)
    # the old field knows four words only
    coarse = {"triage": "read", "maintain": "write"}.get(role, role)
    names = ("pull", "triage", "push", "maintain", "admin")
    rights = {name: rank >= needed for needed, name in enumerate(names, start=1)}
    return {
        "permission": coarse,
        "role_name": role,
        "user": user(github, account) | {"permissions": rights, "role_name": role},
    }


def check(github: FakeGitHub, it: CheckRun) -> Json:
    url = f"{github.api_url}/repos/{it.repo.name}/check-runs/{it.id}"
    pulls = [one for one in it.repo.pulls.values() if one.head_sha == it.head_sha and one.head_repo is it.repo]
    return {
        "id": it.id,
        "node_id": f"CR_{it.id}",
        "name": it.name,
        "head_sha": it.head_sha,
        "external_id": it.external_id,
        "url": url,
        "html_url": f"{github.git_url}/{it.repo.name}/runs/{it.id}",
        "details_url": it.details_url,
        "status": it.status,
        "conclusion": it.conclusion,
        "started_at": time(it.started_at),
        "completed_at": time(it.completed_at),
        "output": {
            "title": it.title or None,
            "summary": it.summary or None,
            "text": it.text or None,
            "annotations_count": len(it.annotations),
            "annotations_url": f"{url}/annotations",
        },
        "check_suite": {"id": github.suite_id(it.repo, it.head_sha)},
        "app": app(github) | {"id": it.app_id},
        # GitHub names no pull request whose head is in a fork
        "pull_requests": [pull_of_check(github, one) for one in pulls],
    }


def pull_of_check(github: FakeGitHub, it: Pull) -> Json:
    """A pull request as a check names it."""
    url = f"{github.api_url}/repos/{it.repo.name}"
    where = {"id": it.repo.id, "name": it.repo.name.split("/")[1], "url": url}
    return {
        "id": it.id,
        "number": it.number,
        "url": f"{url}/pulls/{it.number}",
        "head": {"ref": it.head_branch, "sha": it.head_sha, "repo": where},
        "base": {"ref": it.base_branch, "sha": it.base_sha, "repo": where},
    }


def comment_event(github: FakeGitHub, action: str, it: Comment, *, sender: Account, before: str) -> Json:
    event: Json = {
        "action": action,
        "issue": issue(github, it.on),
        "comment": comment(github, it),
        "sender": user(github, sender),
    }
    if action == "edited":
        event["changes"] = {"body": {"from": before}}
    return event


def pull_event(github: FakeGitHub, action: str, it: Pull, *, sender: Account) -> Json:
    return {"action": action, "number": it.number, "pull_request": pull(github, it), "sender": user(github, sender)}


def check_event(github: FakeGitHub, action: str, it: CheckRun, *, sender: Account, identifier: str = "") -> Json:
    event: Json = {"action": action, "check_run": check(github, it), "sender": user(github, sender)}
    if identifier:
        event["requested_action"] = {"identifier": identifier}
    return event


def suite_event(github: FakeGitHub, action: str, it: Pull, *, sender: Account) -> Json:
    """Of all checks of the App at the head of a pull request."""
    suite = {
        "id": github.suite_id(it.repo, it.head_sha),
        "head_branch": it.head_branch if it.head_repo is it.repo else None,
        "head_sha": it.head_sha,
        "status": "completed",
        "app": app(github),
        "pull_requests": [pull_of_check(github, it)] if it.head_repo is it.repo else [],
    }
    return {"action": action, "check_suite": suite, "sender": user(github, sender)}


def hook_item(it: HookRecord) -> Json:
    """A delivery on the App's list."""
    known = {200: "OK", 202: "Accepted", 0: "timed out"}
    return {
        "id": it.id,
        "guid": it.hook.guid,
        "delivered_at": time(it.at),
        "redelivery": it.again,
        "duration": 0.03,
        "status": known.get(it.status, "Invalid HTTP Response"),
        "status_code": it.status,
        "event": it.hook.event,
        "action": it.hook.action,
        "installation_id": it.hook.installation_id,
        "repository_id": it.hook.repo_id,
        "throttled_at": None,
    }


def hook_delivery(github: FakeGitHub, it: HookRecord) -> Json:
    """The same, whole."""
    request = {"headers": dict(it.hook.headers), "payload": json.loads(it.hook.truth)}
    return hook_item(it) | {"url": github.hook_url, "request": request, "response": {"headers": {}, "payload": ""}}
