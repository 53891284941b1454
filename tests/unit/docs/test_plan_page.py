"""What `docs/guides/plan.md` shows is what the commands say."""

from __future__ import annotations

from tests.unit.docs.plan_story import COMMANDS, PAGE, shown, told


def test_each_output_of_the_page_is_that_of_the_command(tmp_path):
    page = PAGE.read_text(encoding="utf-8")
    assert set(shown(page)) == set(COMMANDS)
    assert shown(page) == dict(told(page, tmp_path)), "run `python -m tests.unit.docs.plan_story`"
