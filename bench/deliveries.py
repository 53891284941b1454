"""Signed deliveries as GitHub sends them, and a client that costs less than any server it is pointed at."""

from __future__ import annotations

import json
import secrets
import select
import socket
import time
from dataclasses import dataclass

from gpurun.http.webhook import sign

SECRET = "bench-webhook-secret"
BODY_BYTES = 14_176
"""As the `issue_comment` example of @octokit/webhooks-examples."""

_USER_URLS = (
    "avatar_url url html_url followers_url following_url gists_url starred_url subscriptions_url organizations_url "
    "repos_url events_url received_events_url"
)
_REPOSITORY_URLS = (
    "html_url url forks_url keys_url collaborators_url teams_url hooks_url issue_events_url events_url assignees_url "
    "branches_url tags_url blobs_url git_tags_url git_refs_url trees_url statuses_url languages_url stargazers_url "
    "contributors_url subscribers_url subscription_url commits_url git_commits_url comments_url issue_comment_url "
    "contents_url compare_url merges_url archive_url downloads_url issues_url pulls_url milestones_url "
    "notifications_url labels_url releases_url deployments_url git_url ssh_url clone_url svn_url homepage"
)


def comment_body(
    text: str = "looks good to me", *, number: int = 5, repository: str = "octo/app", pad_to: int = BODY_BYTES
) -> bytes:
    """An `issue_comment` with the fields of a real one, filled up to `pad_to` bytes with a field that nobody reads."""
    user = {"login": "octocat", "id": 583231, "node_id": "MDQ6VXNlcjU4MzIzMQ==", "type": "User", "site_admin": False}
    user |= {name: f"https://api.github.com/users/octocat/{name}{{/other}}" for name in _USER_URLS.split()}
    repo = {"id": 1296269 + number, "name": "app", "full_name": repository, "private": False, "owner": user}
    repo |= {name: f"https://api.github.com/repos/octo/app/{name}{{/sha}}" for name in _REPOSITORY_URLS.split()}
    issue = {"number": number, "title": "Faster", "user": user, "labels": [], "state": "open", "assignees": [user]}
    issue |= {"pull_request": {"url": f"https://api.github.com/repos/octo/app/pulls/{number}"}, "body": ""}
    event: dict[str, object] = {
        "action": "created",
        "issue": issue,
        "comment": {"id": number, "user": user, "body": text},
        "repository": repo,
        "sender": user,
        "installation": {"id": number, "node_id": "MDIz"},
    }
    missing = max(0, pad_to - len(json.dumps(event | {"enterprise": ""})))
    return json.dumps(event | {"enterprise": "." * missing}).encode()


def head_of(body: bytes, guid: str) -> bytes:
    """Everything before the body."""
    lines = [
        "POST /github HTTP/1.1",
        "Host: 127.0.0.1",
        "User-Agent: GitHub-Hookshot/044aadd",
        "Accept: */*",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "X-GitHub-Event: issue_comment",
        f"X-GitHub-Delivery: {guid}",
        "X-GitHub-Hook-ID: 292430182",
        "X-GitHub-Hook-Installation-Target-ID: 79929171",
        "X-GitHub-Hook-Installation-Target-Type: integration",
        f"X-Hub-Signature-256: {sign(SECRET.encode(), body).decode()}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode()


@dataclass(frozen=True, slots=True)
class Load:
    """What one round came to."""

    answers: int
    took_s: float


class LoadClient:
    """`sockets` keep-alive connections, a request under way on each. One thread, one epoll, prebuilt bytes."""

    def __init__(self, port: int, *, sockets: int = 16) -> None:
        self._port = port
        self._n_sockets = sockets
        self._body = comment_body()
        guid = "0" * 32
        self._before, self._after = (part.encode() for part in head_of(self._body, guid).decode().split(guid))
        self._sent = secrets.randbits(64) << 32  # no delivery id twice, in any round

    def run(self, for_s: float) -> Load:
        """Requests for so long. An answer that is no 202 is an error."""
        poll = select.epoll()
        sockets = [socket.create_connection(("127.0.0.1", self._port)) for _ in range(self._n_sockets)]
        by_fd = {one.fileno(): one for one in sockets}
        parts = dict.fromkeys(by_fd, b"")
        for one in sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            poll.register(one, select.EPOLLIN)
        start = time.perf_counter()
        end, answers, busy = start + for_s, 0, len(sockets)
        for one in sockets:
            self._send(one)
        while busy:
            for fd, _ in poll.poll(5):
                piece = by_fd[fd].recv(4096)
                answer = parts[fd] + piece
                if piece and not _whole(answer):
                    parts[fd] = answer
                    continue
                assert answer.startswith(b"HTTP/1.1 202 "), answer
                parts[fd] = b""
                answers += 1
                if time.perf_counter() < end:
                    self._send(by_fd[fd])
                else:
                    busy -= 1
        took_s = time.perf_counter() - start
        for one in sockets:
            one.close()
        poll.close()
        return Load(answers, took_s)

    def _send(self, to: socket.socket) -> None:
        self._sent += 1
        head = b"%b%032x%b" % (self._before, self._sent, self._after)
        sent = to.sendmsg((head, self._body))
        assert sent == len(head) + len(self._body)


def _whole(answer: bytes) -> bool:
    """Both servers answer with one line."""
    return answer.endswith(b"\n") and not answer.endswith(b"\r\n")
