"""Who may have what run of whose code: {author right x commenter right x head x state x edited x command}.

Three outcomes: `run` (an engine may carry it out), `ask` (it waits for somebody's word), `refuse` (nothing was made).
What must come out is written down here once more, as sentences, and not taken from the code.
"""

from itertools import product

import pytest

from gpurun.run.trust import is_approved
from tests.fakes.github.state import ROLES
from tests.unit.flow.town import CONFIG, Town, open_town


@pytest.fixture
def store_url(tmp_path):
    """One database is enough: which rows are made does not depend on it."""
    return str(tmp_path / "gpurun.db")


@pytest.fixture
async def town(tmp_path, store, clock, chance):
    async with open_town(tmp_path, store, clock, chance) as town:
        yield town


HEADS = ("same", "fork", "gone")
COMMANDS = ("run", "approve", "approve other", "approve and run", "revoke and run")
CASES = [
    *((author, by, head, "open", "as written", command) for author, by, head, command in product(
        ("read", "write"), ROLES, HEADS, COMMANDS
    )),
    *(("read", "maintain", head, state, edited, command) for head, state, edited, command in product(
        ("same", "fork"), ("open", "draft", "closed", "locked"), ("as written", "edited"), COMMANDS
    )),
]  # fmt: skip


def expected(author, by, head, state, edited, command):
    """In sentences."""
    may_run, may_approve = by in ("write", "maintain", "admin"), by in ("maintain", "admin")
    if edited == "edited" or state == "closed" or not may_run or command in ("approve", "approve other"):
        return "refuse"
    if head == "same" and author == "write":
        return "run"
    return "run" if command == "approve and run" and may_approve else "ask"


@pytest.mark.parametrize(("author", "by", "head", "state", "edited", "command"), CASES)
async def test_the_table(town: Town, author, by, head, state, edited, command):
    town.repo.grant("ann", author)
    if by != "none":
        town.repo.grant("carol", by)
    ann = town.github.user("ann")
    files = {".gpurun.yml": CONFIG}
    pull = ann.open_pull_request(town.repo, branch="x", files=files, fork=head != "same", draft=state == "draft")
    if head == "gone":
        ann.delete_fork(pull)
    if state == "closed":
        ann.close(pull)
    pull.locked = state == "locked"
    typed = {
        "run": "/gpurun smoke",
        "approve": f"/gpurun approve sha={pull.head_sha}",
        "approve other": f"/gpurun approve sha={'d' * 40}",
        "approve and run": f"/gpurun approve sha={pull.head_sha}\n/gpurun smoke",
        "revoke and run": f"/gpurun approve sha={pull.head_sha}\n/gpurun revoke\n/gpurun smoke",
    }[command]
    comment = town.github.user("carol").comment(pull, typed)
    if edited == "edited":
        town.clock.advance(seconds=2)
        town.github.user("carol").edit_comment(comment, f"{typed}\nplease")
    await town.settle()
    runs = await town.runs()
    approval = await town.store.read(lambda tx: tx.approval(town.repo.ref, pull.number))
    assert all(run.sha == pull.head_sha for run in runs)
    outcome = "refuse" if not runs else "run" if all(is_approved(run, approval) for run in runs) else "ask"
    assert outcome == expected(author, by, head, state, edited, command)
    given = command in ("approve", "approve and run")
    may_approve = by in ("maintain", "admin") and state != "closed" and edited != "edited"
    assert (approval is not None) is (given and may_approve)
