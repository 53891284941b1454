"""Faults that people met with bots, containers and GPU hosts of this kind, one line each, with the right behaviour.

A test that holds a case has its id in its name: `test_b014_…` or `test_b014_b016_…`. `tests/unit/test_field_cases.py`
fails for a case that has neither a test nor a reason here why there is none yet.
"""

from __future__ import annotations

CASES = {
    # webhooks and comments
    "B001": "A delivery that arrives twice acts once.",
    "B003": "The answer to a delivery waits for nobody: GitHub gives up after 10 s.",
    "B004": "A comment and a close at the same moment make one comment of ours.",
    "B005": "Editing an old command runs nothing.",
    "B007": "An edit is taken whatever its `changes` hold, and turns no text into a command.",
    "B009": "Deliveries that GitHub could not hand over while the bot was down are asked for later.",
    "B010": "The signature is over raw bytes: an emoji changes nothing.",
    "B011": "What is not signed is refused before anything reads it, with one answer.",
    "B012": "The bot answers no bot, and writes nothing that calls it.",
    "B014": "A command before a carriage return is a command.",
    "B015": "Several commands in one comment: each once, in order, up to a number, one answer.",
    "B016": "A prefix is a whole word; unknown jobs, odd spaces and invisible characters never end in silence.",
    "B017": "A command in a quotation is somebody else's.",
    "B019": "A comment on an issue is not one on a pull request.",
    "B020": "A fork that was deleted is a fork without a source.",
    "B021": "Closed, merged and draft pull requests have a rule; a deleted branch is not missed.",
    "B022": "The commit is the one of the moment of the command, everywhere.",
    "B024": "An approval is for one commit and does not move to the next.",
    "B027": "A suspended installation holds nobody else up.",
    "B029": "A ping and events that nobody asked for are answered with 2xx.",
    "B030": "Bodies up to GitHub's own limit are taken, larger ones refused while they come.",
    # GitHub's limits
    "B031": "A comment fits, and the last line of the log is in it.",
    "B033": "Each text of a check fits; a refused report never changes the result.",
    "B034": "Annotations go out fifty at a time.",
    "B035": "Every field of a check is cut by itself, in bytes.",
    # the configuration file
    "B045": "`NO`, `on` and `off` stay what was written.",
    "B046": "`3.10` keeps its zero.",
    "B048": "`1e-4` and `1.0e-4` stay as written.",
    "B050": "A key that stands twice is told with both lines.",
    "B051": "An unknown key is told, with what was probably meant.",
    "B052": "One byte order mark is fine; another encoding is named.",
    "B053": "Aliases mean nothing, so that they cannot explode.",
    "B055": "`on:` and `1:` are keys of text, or refused.",
    "B057": "No file, one that cannot be read, and one that is wrong are three things.",
    # Hugging Face
    "B082": "A commit is what it was, whatever became of `main` since.",
    "B084": "A short commit id is pinned as the whole one, or refused; upper case means the same.",
    "B085": "A 401 names the three things that it may mean, and whether a token was sent.",
    "B086": "A gated model is refused before anything is paid for, with the page to go to.",
    "B089": "A lock that a killed process left holds nobody up.",
    "B091": "An LFS pointer in the place of weights is told as one.",
    "B092": "There is room for all files before the first comes; a wrong or short one is replaced, once.",
    "B094": "Folders of ours are writable for the image's user, who is named with the path where one is not.",
    "B088": "Nobody asks the hub again before the time that it named.",
    # container, log, source
    "B096": "No header of a frame is in the text of a log, with a terminal or without.",
    "B098": "Bytes that are no text are kept, shown with replacements, and end nothing.",
    "B100": "A bar of progress is one line in the report and untouched in the log.",
    "B102": "An image is its digest; a tag can move.",
    "B103": "The command is run as it is written, whatever the image's entrypoint.",
    "B105": "`/dev/shm` is generous and can be set; a wrong size says how to write one.",
    "B106": "git in the job works on the checkout, whoever owns it.",
    "B107": "A cancel reaches the whole session with TERM, and leaves time before KILL.",
    "B108": "A job never runs on LFS pointers or empty submodules without having said so.",
    "B109": "The last line arrives, without its end, and right before the exit.",
    # GPU metrics
    "B111": "`[N/A]` and its kin are null, and the other figures stay.",
    "B112": "`ERR!`, `[Unknown Error]` and a lost GPU are null, counted and told.",
    "B116": "A driver that does not fit its libraries is the host's fault, not the job's.",
    "B117": "A field that the driver does not know costs that field; no `nvidia-smi` is one note.",
    "B118": "What vanishes between two looks costs nothing; nothing is measured after the end.",
    "B119": "A `nvidia-smi` that hangs holds nothing up and is killed alone.",
    # secrets and foreign text
    "B120": "A secret of many lines or of JSON is hidden line by line and escaped, too.",
    "B122": "A secret is hidden in its usual encodings.",
    "B124": "The name of a branch is never code.",
    "B125": "The text of a comment or a title is never code.",
    "B127": "Foreign text mentions nobody, closes nothing and links to nothing, in check titles, too.",
    "B128": "A line of the job's log is no command to the workflow that shows it.",
}

WITHOUT_TEST = {
    "B009": "The bot does not ask GitHub for deliveries that failed yet.",
}
"""Why, for each case that no test holds."""
