"""Whom gpurun defends itself against at GitHub and in the file of the config, and the tests that hold it.

`tests/unit/test_threats.py` fails for a threat without tests, and for a test that is named here and is not there.
"""

from __future__ import annotations

THREATS: dict[str, tuple[str, ...]] = {
    "somebody from a fork wants minutes, secrets and caches": (
        "unit/flow/test_trust_table.py::test_the_table",
        "unit/flow/test_untrusted.py::test_it_waits_is_allowed_and_runs",
        "unit/flow/test_untrusted.py::test_only_providers_that_the_policy_names_for_it",
        "unit/flow/test_untrusted.py::test_a_private_submodule_is_not_lent_by_whoever_asks",
        "unit/flow/test_races.py::test_after_every_order_the_same_holds",
    ),
    "somebody without rights writes comments to start, to stop or to flood": (
        "unit/flow/test_intake.py::test_who_may_not_write_starts_nothing",
        "unit/flow/test_intake.py::test_a_reader_may_not_cancel_for_others",
        "unit/flow/test_intake.py::test_b005_b007_an_edited_comment_starts_nothing",
        "unit/flow/test_limits.py::test_a_reader_gets_five_answers_an_hour_then_one_thumb_and_then_nothing",
        "unit/flow/test_limits.py::test_many_strangers_with_many_comments_hold_no_verdict_up",
        "unit/report/test_refusals.py::test_it_says_why_and_who_can_help",
    ),
    "the author of a pull request changes code or config after the approval": (
        "unit/flow/test_approvals.py::test_b024_what_ends_it_stops_what_runs_under_it",
        "unit/flow/test_approvals.py::test_b022_a_push_between_the_look_and_the_word_is_refused",
        "unit/flow/test_approvals.py::test_permissions_of_the_default_branch_count_and_those_of_the_head_do_not",
        "unit/flow/test_untrusted.py::test_an_approval_that_ends_right_before_create_makes_no_instance",
        "unit/flow/test_races.py::test_after_every_order_the_same_holds",
    ),
    "a config wants to run on the server, to reach what is inside, or to cost": (
        "unit/plan/test_load.py::test_anything_loads_or_is_a_config_error_inside_the_file",
        "unit/plan/test_load.py::test_b053_a_hostile_file_is_cheap",
        "unit/plan/test_load.py::test_b053_an_alias_is_refused_before_it_means_anything",
        "unit/plan/test_load.py::test_b050_a_key_that_stands_twice_is_told_with_both_lines",
        "unit/plan/test_load.py::test_reserved_variables",
        "unit/report/test_vectors.py::test_malicious_config_is_only_shown",
    ),
    "a log, title, branch or message holds markup, mentions or commands": (
        "unit/report/test_vectors.py::test_malicious_log_is_only_shown",
        "unit/report/test_vectors.py::test_malicious_name_is_only_shown",
        "unit/report/test_vectors.py::test_a_report_only_shows_text_and_is_never_too_long",
        "unit/report/test_vectors.py::test_a_reply_only_shows_text_and_is_never_too_long",
        "unit/flow/test_field_comments.py::test_b124_a_branch_name_is_never_code",
        "unit/flow/test_field_comments.py::test_b125_a_title_reaches_nobody",
    ),
    "somebody stole the secret of the webhook": (
        "unit/flow/test_intake.py::test_a_forged_delivery_of_a_comment_that_is_not_there_starts_nothing",
        "unit/flow/test_intake.py::test_a_delivery_that_names_another_author_starts_nothing",
        "unit/flow/test_intake.py::test_a_delivery_with_another_text_starts_nothing_and_is_on_record",
        "unit/flow/test_approvals.py::test_a_delivery_that_somebody_made_up_can_only_end_something",
        "unit/http/test_webhook.py::test_both_secrets_are_good_while_one_is_changed",
    ),
    "somebody stole the key of the App, or a token made with it": (
        "contract/test_forge.py::test_the_credential_of_a_source_reaches_one_repository_and_reads_only",
        "contract/test_manifest.py::test_no_token_asks_for_more_than_was_granted",
    ),
    "one tenant starves the others": (
        "unit/flow/test_limits.py::test_b027_one_suspended_installation_does_not_disturb_another",
        "unit/flow/test_limits.py::test_many_strangers_with_many_comments_hold_no_verdict_up",
    ),
}
