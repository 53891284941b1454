"""The reference page of the commands, from the table."""

from __future__ import annotations

from gpurun.command.grammar import PLANNED, TABLE, WHO_TEXT
from gpurun.command.parse import MAX_COMMANDS
from gpurun.domain.command_words import ARGUMENTS_PLANNED

_MORE = """\
## Arguments of a run

- `gpu=<size>`: as under `resources: {gpu: …}`, and within it: `gpu=40GB` of a job that asks for `24GB..80GB`.
  It goes into the plan.
- `provider=<id>`: one of those that the job and the policy allow.
- `sha=<commit>`: the first 7 to 40 digits. When that is not the head as the command is read, nothing starts.
- `max-cost=<usd>`: dearer offers are left out, by what they cost at the worst. When all are dearer, the run
  is refused, and its check says `action_required` with the price.
- `repeat=<2..5>`: so many runs, each with its own check (`gpurun / smoke (2 of 3)`) and comment.

Who asks for the same job, commit and arguments while such a run is live joins it, and gets a link to it.
Arguments narrow what the file and the policy allow. What would widen it is refused, and nothing starts.

## `retry`

The newest run of each job at the head that failed, timed out or was lost, with its folder and arguments; of a
`repeat` all of its runs. `retry all` takes those too that passed, were refused or cancelled. The author of a
pull request may write it without write access while an approval of exactly the head is in force.

## `list`, `status` and `logs`

Anyone may ask. `status` says of each live run where it is, since when, what it has cost, and why it waits:
which limit holds it, how many runs are before it, and when it gives up. `logs` shows the last 50 lines of the
newest run, of the newest run of a job, or of the run with that id; one log a comment. All of it is as it was
when the command was read.

## `pause`, `resume` and `stop-all`

For the whole repository ([how and when](../guides/stop.md)). `reason=` stands in quotation marks, straight or
curly; without them it is the rest of the line. At most 300 characters, and everybody can read them.

## `override`

The job counts as passed at the head, until the next push; its own check stays as it is. `override cancel`
takes it back.
"""


def commands_page() -> str:
    """Text of `docs/reference/commands.md`."""
    rows = [
        f"| {' or '.join(f'`{usage}`' for usage in entry.usage())} | {entry.help} | {WHO_TEXT[entry.who]} |"
        for entry in TABLE
    ]
    planned = ", ".join(f"`{word}`" for word in PLANNED)
    return "\n".join(
        [
            "# Commands",
            "",
            "<!-- Generated from bot/gpurun/command/grammar.py. Write it anew with `make docs`. -->",
            "",
            "Write a command as a line of a new comment on a pull request.",
            "",
            "| Comment | What it does | Who |",
            "|---|---|---|",
            *rows,
            "",
            "Not in this version, and answered so: "
            + planned
            + "; several jobs in one line; arguments such as "
            + ", ".join(f"`{key}=…`" for key in ARGUMENTS_PLANNED)
            + ".",
            "",
            "`path=<folder>` may stand anywhere behind `/gpurun`. It is a folder of the repository, from its top, and",
            "its `.gpurun.yml` counts. Without it the file at the top counts; when that one has no such job, the",
            "folders that the pull request touches are looked through ([monorepos](../guides/monorepo.md)).",
            "`cancel <job>` stops the run of the top; where none goes on, that of the only folder in which it runs.",
            "`cancel <run id>` stops that run alone.",
            "",
            "## Which lines count",
            "",
            "- A line that starts with `/gpurun`, also inside a list item; up to three spaces may stand before it.",
            f"- At most {MAX_COMMANDS} lines of a comment. A repeated command counts once. One reply covers them all.",
            "- Not lines in quotes, in code (fenced, indented or inline), or in HTML comments, and not `- /gpurun …`.",
            "  To show a command without running it, put it in backquotes.",
            "- Inside an HTML block such as `<details>`, put an empty line before the command.",
            "- A full stop, comma or exclamation mark at the end of the line is not part of the name.",
            "- Only new comments count: an edit starts nothing. Comments by bots never count.",
            "",
            "## On which pull requests",
            "",
            "Open ones, drafts too. A close or merge cancels everything of the pull request; on a closed one nothing",
            "starts.",
            "The commit is the newest when the command is read: a later push, a force-push or a deleted",
            "branch changes nothing of the run, unless its code had to be approved.",
            "",
            "## Who may",
            "",
            "The role is asked from GitHub for every command; being a member or an author gives nothing by itself.",
            "`permissions` in the default branch's `.gpurun.yml` says otherwise which role, or who, may do what",
            "([reference](gpurun-yml.md)).",
            "",
            "Code of a fork, or of an author who may not push, waits until somebody approves its commit",
            "([trust](../concepts/trust.md)). Bots' comments never count.",
            "",
            "## Buttons of checks",
            "",
            "A check has up to three buttons, and GitHub puts its own **Re-run** beside them. Each does what a command",
            "does, for the same people, and what it starts, stops or allows says who pressed it.",
            "",
            "| Button | What it does |",
            "|---|---|",
            "| Run, on a required job that nobody has started | `/gpurun <job>` |",
            "| Re-run, on a job | the same job again, at the head of the pull request |",
            "| Cancel | stops that run, and no other |",
            "| Approve, with a price | allows the commit that the check stands on, up to that price |",
            "| Re-run, on `gpurun/gate` | looks again at what is required, and starts nothing |",
            "| Re-run all checks | every job whose newest run there failed, timed out, was lost or cancelled |",
            "",
            "Run and Re-run start nothing when the check's commit is not the head of an open pull request any more; a",
            "reply says so. Presses by one person of one button count once a second. Presses by bots never count.",
            "Somebody who may not is told so in a reply.",
            "",
            *_MORE.splitlines(),
            "",
            "## `approve` and `revoke`",
            "",
            "`sha` is the commit that you have looked at, all 40 digits of it. It must be the head of the pull request",
            "when the command is read: a push in between is answered with the new head, and nothing is approved.",
            "`max-cost` is what a run may cost in US dollars: where the worst case is dearer, it goes on waiting.",
            "Without it there is no such limit.",
            "A push, a close, another base branch or becoming a draft ends the approval and stops what runs under it.",
            "",
        ]
    )
