"""What people do at GitHub. Every act changes the state at once and queues the deliveries it causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.github import payloads
from tests.fakes.github.gitrepo import Files
from tests.fakes.github.state import Account, CheckRun, Comment, Issue, Pull, Repo

if TYPE_CHECKING:
    from tests.fakes.github.fake import FakeGitHub


class Person:
    """Somebody at a keyboard."""

    def __init__(self, github: FakeGitHub, account: Account) -> None:
        self.github = github
        self.account = account

    @property
    def login(self) -> str:
        return self.account.login

    # comments

    def comment(self, on: Issue, body: str) -> Comment:
        """On a pull request or an issue."""
        return write_comment(self.github, on, self.account, body)

    def edit_comment(self, comment: Comment, body: str) -> None:
        edit_comment(self.github, comment, self.account, body)

    def delete_comment(self, comment: Comment) -> None:
        del comment.on.comments[comment.id]
        self._comment_hook("deleted", comment)

    def _comment_hook(self, action: str, comment: Comment) -> None:
        hook_comment(self.github, action, comment, self.account)

    # pull requests

    def open_pull_request(
        self,
        repo: Repo,
        *,
        branch: str = "change",
        files: Files,
        title: str = "A change",
        base: str | None = None,
        fork: bool = False,
        draft: bool = False,
    ) -> Pull:
        """One commit on a new branch of the repository, or of this person's fork of it."""
        base_branch = base or repo.default_branch
        base_sha = repo.git.resolve(base_branch)
        assert base_sha, f"{repo.name} has no branch {base_branch}"
        source = self._fork_of(repo) if fork else repo
        sha = self._commit(source, branch, files, message=title, parent=base_sha)
        repo.number += 1
        pull = Pull(
            id=self.github.new_id(),
            repo=repo,
            number=repo.number,
            title=title,
            author=self.account,
            created_at=self.github.clock.now(),
            head_repo=source,
            head_label=f"{source.owner.login}:{branch}",
            head_branch=branch,
            head_sha=sha,
            base_branch=base_branch,
            base_sha=base_sha,
            draft=draft,
        )
        repo.pulls[pull.number] = repo.issues[pull.number] = pull
        _publish_head(pull)
        self._pull_hook("opened", pull)
        return pull

    def push(self, to: Pull | Repo, files: Files, *, branch: str = "", force: bool = False) -> str:
        """A commit on the head of a pull request, or on a branch of a repository; returns its id.

        `force`: it replaces the branch, on top of the pull request's base.
        """
        repo = to.head_repo if isinstance(to, Pull) else to
        assert repo, "the fork is gone"
        name = to.head_branch if isinstance(to, Pull) else branch or repo.default_branch
        parent = to.base_sha if isinstance(to, Pull) and force else repo.git.resolve(name)
        sha = self._commit(repo, name, files, message="Change it", parent=parent)
        for pull in _pulls_from(self.github, repo, name):
            before, pull.head_sha = pull.head_sha, sha
            _publish_head(pull)
            self._pull_hook("synchronize", pull, before=before, after=sha)
        return sha

    def close(self, pull: Pull) -> None:
        pull.state = "closed"
        self._pull_hook("closed", pull)

    def reopen(self, pull: Pull) -> None:
        pull.state = "open"
        self._pull_hook("reopened", pull)

    def merge(self, pull: Pull) -> None:
        """The base branch moves to the head, the head branch stays."""
        if pull.head_repo is not None:
            pull.repo.git.fetch(pull.head_repo.git, pull.head_sha)
        pull.repo.git.set_ref(f"refs/heads/{pull.base_branch}", pull.head_sha)
        pull.merged_at = self.github.clock.now()
        self.close(pull)

    def convert_to_draft(self, pull: Pull) -> None:
        pull.draft = True
        self._pull_hook("converted_to_draft", pull)

    def mark_ready(self, pull: Pull) -> None:
        pull.draft = False
        self._pull_hook("ready_for_review", pull)

    def change_base(self, pull: Pull, branch: str) -> None:
        """The pull request goes to another branch."""
        sha = pull.repo.git.resolve(branch)
        assert sha, f"{pull.repo.name} has no branch {branch}"
        changes = {"base": {"ref": {"from": pull.base_branch}, "sha": {"from": pull.base_sha}}}
        pull.base_branch, pull.base_sha = branch, sha
        self._pull_hook("edited", pull, changes=changes)

    def retitle(self, pull: Pull, title: str) -> None:
        before, pull.title = pull.title, title
        self._pull_hook("edited", pull, changes={"title": {"from": before}})

    def delete_fork(self, pull: Pull) -> None:
        """The head repository is gone; GitHub then says `head.repo: null`."""
        assert pull.head_repo
        assert pull.head_repo is not pull.repo, "not a fork"
        del self.github.repos[pull.head_repo.name.lower()]
        pull.head_repo = None
        self.github.touch()

    def open_issue(self, repo: Repo, title: str) -> Issue:
        """No pull request."""
        repo.number += 1
        issue = Issue(
            id=self.github.new_id(),
            repo=repo,
            number=repo.number,
            title=title,
            author=self.account,
            created_at=self.github.clock.now(),
        )
        repo.issues[issue.number] = issue
        return issue

    # buttons of a check

    def rerun(self, check: CheckRun) -> None:
        """GitHub's own Re-run button."""
        self._check_hook("rerequested", check)

    def rerun_all(self, pull: Pull) -> None:
        """Re-run all checks, at the head of a pull request."""
        payload = payloads.suite_event(self.github, "rerequested", pull, sender=self.account)
        self.github.queue("check_suite", "rerequested", pull.repo, payload)

    def press(self, check: CheckRun, identifier: str) -> None:
        """A button that the check shows."""
        assert identifier in [action.identifier for action in check.actions], f"no button {identifier}: {check.actions}"
        self._check_hook("requested_action", check, identifier=identifier)

    def _check_hook(self, action: str, check: CheckRun, *, identifier: str = "") -> None:
        payload = payloads.check_event(self.github, action, check, sender=self.account, identifier=identifier)
        self.github.queue("check_run", action, check.repo, payload)

    def _pull_hook(self, action: str, pull: Pull, **extra: object) -> None:
        pull.updated_at = self.github.clock.now()
        self.github.touch()
        payload = payloads.pull_event(self.github, action, pull, sender=self.account) | extra
        self.github.queue("pull_request", action, pull.repo, payload)

    def _commit(self, repo: Repo, branch: str, files: Files, *, message: str, parent: str | None) -> str:
        at = self.github.clock.now()
        return repo.git.commit(branch, files, message=message, author=self.login, at=at, parent=parent)

    def _fork_of(self, repo: Repo) -> Repo:
        name = f"{self.login}/{repo.name.split('/')[1]}"
        known = self.github.repos.get(name.lower())
        if known:
            return known
        git = repo.git.fork(self.github.folder / f"{name}.git")
        made = self.github.add_repo(name, git, private=repo.private, installed=False)
        made.parent = repo
        return made


def write_comment(github: FakeGitHub, on: Issue, author: Account, body: str, *, app_id: int | None = None) -> Comment:
    """By a person or by an App."""
    now = github.clock.now()
    comment = Comment(
        id=github.new_id(), on=on, author=author, body=body, created_at=now, updated_at=now, app_id=app_id
    )
    on.comments[comment.id] = comment
    on.updated_at = now
    hook_comment(github, "created", comment, author)
    return comment


def edit_comment(github: FakeGitHub, comment: Comment, by: Account, body: str) -> None:
    """By whoever may."""
    before, comment.body = comment.body, body
    comment.history.append(before)
    comment.updated_at = github.clock.now()
    hook_comment(github, "edited", comment, by, before=before)


def hook_comment(github: FakeGitHub, action: str, comment: Comment, sender: Account, *, before: str = "") -> None:
    """Queues an `issue_comment` delivery."""
    github.touch()
    payload = payloads.comment_event(github, action, comment, sender=sender, before=before)
    github.queue("issue_comment", action, comment.on.repo, payload)


def _publish_head(pull: Pull) -> None:
    if pull.head_repo is not pull.repo and pull.head_repo is not None:
        pull.repo.git.fetch(pull.head_repo.git, pull.head_sha)
    pull.repo.git.set_ref(f"refs/pull/{pull.number}/head", pull.head_sha)


def _pulls_from(github: FakeGitHub, repo: Repo, branch: str) -> list[Pull]:
    return [
        pull
        for base in github.repos.values()
        for pull in base.pulls.values()
        if pull.head_repo is repo and pull.head_branch == branch and pull.state == "open"
    ]
