"""The reference page of the commands, from the table."""

from __future__ import annotations

from gpurun.command.grammar import PLANNED, TABLE, WHO_TEXT
from gpurun.command.parse import MAX_COMMANDS
from gpurun.domain.command_words import ARGUMENTS_PLANNED


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
            "Open ones, drafts too. On a closed or merged one nothing starts, and `cancel` still works.",
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
