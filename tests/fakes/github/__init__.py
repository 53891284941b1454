"""A GitHub that keeps state: real git, people with rights, pull requests, checks, tokens, signed deliveries.

It answers as GitHub does, limits and refusals included, so that a bot which works here has met them. It is also
what `make demo` starts.

    github = FakeGitHub(folder, clock=clock)              # `folder`: where the bare repositories go
    repo = github.create_repo("acme/train", files={"README.md": "hi"})     # public, the App is installed
    repo.grant("alice", "write")                          # none read triage write maintain admin
    alice = github.user("alice")
    pull = alice.open_pull_request(repo, branch="smoke", files={".gpurun.yml": "..."})

What a bot needs to know (its settings):

    github.app.id, github.app.private_key (PEM), github.app.webhook_secret
    github.api_url, github.git_url                        # in process, or of the server while it serves
    github.transport                                      # an httpx transport into it; None while it serves
    github.hook_url, github.hook_transport                # where deliveries go; set both, or only the URL
    repo.ref, pull.head_sha                               # RepoRef and commit, as the bot names them

People act at once, and each act queues the deliveries that GitHub would send:

    comment = alice.comment(pull, "/gpurun smoke")
    alice.edit_comment(comment, "..."); alice.delete_comment(comment)
    sha = alice.push(pull, {"train.py": "..."})           # moves the head: `synchronize`; force=True rewrites it
    alice.open_pull_request(repo, ..., fork=True)         # from alice's fork; alice.delete_fork(pull)
    alice.close(pull); alice.reopen(pull); alice.merge(pull)
    alice.press(check, "cancel"); alice.rerun(check)      # the buttons of a check
    alice.rerun_all(pull)                                 # Re-run all checks
    issue = alice.open_issue(repo, "title")               # comments on it have no `issue.pull_request`

Deliveries:

    sent = await github.deliver()                         # sends everything queued, in order; returns it
    await github.redeliver(sent[0])                       # the same GUID and bytes again
    github.queued, github.sent                            # lists; reorder or drop queued ones as you like
    github.replace_hook_secret("...")                     # later deliveries are signed with it
    github.records                                        # every try, as the App reads it; `records_lag_s` late

Look at the outcome (plain attributes, newest state):

    github.comments(pull)  -> list[Comment]               # .author.login .body .reactions .history .id
    github.checks(repo, sha=None, name=None) -> list[CheckRun]     # .status .conclusion .title .summary .text ...
    github.requests                                       # list[SeenRequest]: method, path, status
    await github.changed(timeout_s=5)                     # waits until the bot changed something; False: nothing

Trouble is state:

    github.fail_next("POST", "/repos/{}/{}/issues/{}/comments", status=502, after_doing=True)   # `{}`: one segment
    github.fail_next("GET", "/repos/{}/{}/pulls/{}", status=403, headers={"retry-after": "30"}, body={...}, times=2)
    github.time_out_next("POST", "...", after_doing=True) # in process: httpx.ReadTimeout; served: 504
    github.slow("GET", "...", seconds=3)                  # by the injected clock
    github.exhaust_rate_limit(reset_in_s=600)             # until then by the clock
    github.rename(repo, "acme/new")                      # the old name redirects
    github.suspend(repo); github.unsuspend(repo)
    github.revoke_tokens()                                # every token answers 401
    github.hook_down = True                               # deliveries are recorded with status 0

Serve it on loopback (the API under /api/v3 as on GitHub Enterprise Server, git and pages at /owner/name):

    async with serving(github, port=0) as url:            # in the running loop; deliveries go out by themselves
        ...                                               # url + "/acme/train/pull/1" is a page to look at
"""

from tests.fakes.github.fake import FakeGitHub
from tests.fakes.github.gitrepo import Link, Submodule
from tests.fakes.github.people import Person
from tests.fakes.github.server import serving
from tests.fakes.github.state import CheckRun, Comment, Issue, Pull, Repo, SeenRequest, SentHook

__all__ = [
    "CheckRun",
    "Comment",
    "FakeGitHub",
    "Issue",
    "Link",
    "Person",
    "Pull",
    "Repo",
    "SeenRequest",
    "SentHook",
    "Submodule",
    "serving",
]
