"""What must hold after every fault, told from outside: rows, GitHub, the Docker Engine. Numbers are the laws'.

    await assert_laws(world)                        # waits until the story has come to rest, then looks at everything
    assert_log(world, "smoke", b"line 1\\nline 2\\n")  # and byte for byte, where the test knows what the job said

1 At most one attempt of a run can claim, and the next one is made only when the one before can never start.
2 Nothing is left at the provider. 3 Every accepted command has one end and one answer. 5 Every delivery that was
acknowledged is a row, and none acts twice. 6 No byte of a stream is lost or doubled. 7 The audit chain verifies.
8 No secret in any output. 9 An end is an end. 10 Nothing is green that did not run. 11 No code that needs an approval
was sent to a provider without one of its commit that was in force.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gpurun.adapters.store import verify_audit
from gpurun.http.webhook import ACTIONS
from gpurun.report.comment import marker
from gpurun.run import tokens
from tests.fakes.github import CheckRun
from tests.world.rows import Row, select, undone

if TYPE_CHECKING:
    from tests.world.world import World

OVER = ("gone", "void")
CONCLUSIONS = {"passed": "success", "timeout": "timed_out", "cancelled": "cancelled"}
"""Of a check, by verdict; `failure` for the rest."""
WORDS = {"passed": "✅ passed", "timeout": "timed out", "lost": "lost (our side)"}
"""In a comment, by verdict; the verdict itself for the rest."""
USER_CODE = ("setup", "running")
"""Phases in which code of the job runs."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """All rows at one moment."""

    inbox: list[Row]
    commands: list[Row]
    runs: list[Row]
    attempts: list[Row]
    strays: list[Row]
    publications: list[Row]
    streams: list[Row]
    chunks: list[Row]
    audit: list[Row]
    approvals: list[Row]
    secret: bytes = field(repr=False)

    @classmethod
    def of(cls, database: str) -> Record:
        """Read table by table: nothing changes any more when laws are looked at."""
        ((secret,),) = (row.values() for row in select(database, "SELECT install_secret FROM meta"))
        return cls(
            inbox=select(database, "SELECT * FROM inbox ORDER BY id"),
            commands=select(database, "SELECT * FROM command_row"),
            runs=select(database, "SELECT * FROM run ORDER BY created_at, id"),
            attempts=select(database, "SELECT * FROM attempt ORDER BY run_id, number"),
            strays=select(database, "SELECT * FROM stray"),
            publications=select(database, "SELECT * FROM publication"),
            streams=select(database, "SELECT * FROM stream"),
            chunks=select(database, 'SELECT * FROM chunk ORDER BY attempt_id, name, "offset"'),
            audit=select(database, "SELECT * FROM audit ORDER BY id"),
            approvals=select(database, "SELECT * FROM approval ORDER BY at, id"),
            secret=bytes(secret),
        )

    def attempts_of(self, run: Row) -> list[Row]:
        """In the order in which they were made."""
        return [attempt for attempt in self.attempts if attempt["run_id"] == run["id"]]

    def entries(self, subject: str) -> list[str]:
        """Kinds of audit rows, oldest first."""
        return [entry["kind"] for entry in self.audit if entry["subject"] == subject]

    def run(self, id: str) -> Row:
        return next(run for run in self.runs if run["id"] == id)

    def stream(self, attempt_id: str, name: str = "log") -> bytes:
        """As it was stored."""
        return b"".join(
            bytes(chunk["data"]) for chunk in self.chunks if (chunk["attempt_id"], chunk["name"]) == (attempt_id, name)
        )


async def assert_laws(world: World) -> Record:
    """All that can be told without knowing the story. What it looked at, for further questions."""
    await world.until(lambda: None if undone(world.database) else True, "nothing undone")
    await world.expect_no_container()  # law 2
    if world.bot.alive:
        await world.until(lambda: None if verify_audit(world.database).unsealed else True, "every audit row sealed")
    record = Record.of(world.database)
    assert_one_claim(record)
    assert_one_instance_each(world, record)
    assert_one_end_each(record)
    assert_one_answer_each(world, record)
    assert_deliveries(world, record)
    assert_streams_whole(record)
    assert_audit(world)
    assert_no_secret(world, record)
    assert_green_ran(world, record)
    assert_approved(record)
    return record


def assert_one_claim(record: Record) -> None:
    """Law 1, from the rows."""
    for run in record.runs:
        attempts = record.attempts_of(run)
        assert [attempt["number"] for attempt in attempts] == list(range(1, len(attempts) + 1)), run["id"]
        for before, after in pairwise(attempts):
            over_at = min((at for at in _can_never_start(before)), default=None)
            assert over_at is not None, f"attempt {after['number']} of {run['id']} was made beside the one before"
            assert over_at <= after["created_at"], f"attempt {after['number']} of {run['id']} was made too early"
        ran = [attempt["number"] for attempt in attempts if set(USER_CODE) & set(json.loads(attempt["phase_times"]))]
        assert len(ran) <= 1, f"attempts {ran} of {run['id']} ran code of the job"
        for attempt in attempts:
            if attempt["claimed_at"] and attempt["claim_revoked_at"]:
                assert attempt["claimed_at"] <= attempt["claim_revoked_at"], attempt["id"]


def _can_never_start(attempt: Row) -> Iterator[int]:
    if attempt["gone_at"]:
        yield attempt["gone_at"]
    if attempt["claim_revoked_at"]:
        yield attempt["claim_revoked_at"]
    if attempt["state"] == "void":
        yield attempt["state_since"]


def assert_one_instance_each(world: World, record: Record) -> None:
    """Law 1, from the Docker Engine: create came through at most once for each attempt, and for nobody else."""
    made = Counter(world.made_containers())
    assert not [name for name, count in made.items() if count > 1], f"made twice: {made}"
    known = {attempt["name"] for attempt in record.attempts} | {stray["name"] for stray in record.strays}
    assert made.keys() <= known, f"made without a row: {made.keys() - known}"


def assert_one_end_each(record: Record) -> None:
    """Laws 2, 3 and 9: one end, and nothing after it."""
    for run in record.runs:
        assert run["state"] == "ended", (run["id"], run["state"])
        assert run["verdict"], run["id"]
        states = [kind for kind in record.entries(f"run:{run['id']}") if kind in _RUN_STATES]
        assert states.count("run_ended") == 1, (run["id"], states)
        assert states[-1] == "run_ended", (run["id"], states)
        (told,) = [
            json.loads(entry["data"])["verdict"]
            for entry in record.audit
            if (entry["subject"], entry["kind"]) == (f"run:{run['id']}", "run_ended")
        ]
        assert told == run["verdict"], f"{run['id']} ended {told} and says {run['verdict']} now"
    for attempt in record.attempts:
        assert attempt["state"] in OVER, (attempt["id"], attempt["state"])
        states = [kind for kind in record.entries(f"attempt:{attempt['id']}") if kind in _ATTEMPT_STATES]
        over = [kind for kind in states if kind in _ATTEMPT_ENDS]
        assert over == [f"attempt_{attempt['state']}"], (attempt["id"], states)
        assert states[-1] in _ATTEMPT_ENDS, (attempt["id"], states)
    for stray in record.strays:
        assert stray["state"] == "gone", stray["ref"]


_RUN_STATES = ("run_planning", "run_waiting_approval", "run_queued", "run_active", "run_ended")
_ATTEMPT_ENDS = tuple(f"attempt_{state}" for state in OVER)
_ATTEMPT_STATES = (
    *(f"attempt_{state}" for state in ("creating", "looking", "unsure", "booting", "live", "destroying")),
    *_ATTEMPT_ENDS,
)


def assert_one_answer_each(world: World, record: Record) -> None:
    """Law 3: what GitHub shows in the world's repository is what the rows say, each once."""
    assert len(record.commands) == sum(entry["kind"] == "command_taken" for entry in record.audit)
    checks = defaultdict(list)
    for check in world.github.checks(world.repo):
        checks[check.external_id].append(check)
    comments = [comment for pull in world.repo.pulls.values() for comment in world.bot_comments(pull)]
    owned: Counter[int] = Counter()
    for row in record.publications:
        if row["state"] == "dead" or row["repo_id"] != world.repo.id:
            continue
        match row["kind"]:
            case "check":
                run = record.run(row["run_id"])
                # one that was completed stays so: what waited for a person and went on has a new one
                *before, check = sorted(checks[run["id"]], key=lambda one: one.id)
                assert {one.conclusion for one in before} <= {"action_required"}, run["id"]
                assert (check.status, check.conclusion) == ("completed", _conclusion(run)), run["id"]
            case "comment" | "reply":
                mine = [comment for comment in comments if marker(row["nonce"]) in comment.body]
                assert len(mine) == 1, f"{len(mine)} comments for the {row['kind']} of {row['run_id'] or row['text']}"
                owned[mine[0].id] += 1
                if row["kind"] == "comment":
                    verdict = record.run(row["run_id"])["verdict"]
                    assert WORDS.get(verdict, verdict) in mine[0].body, (verdict, mine[0].body)
            case "react":
                _assert_one_reaction(world, row)
    strangers = [comment.body for comment in comments if not owned[comment.id]]
    assert not strangers, f"comments without a row: {strangers}"
    for run in record.runs:
        if run["pr"] is not None and run["repo_id"] == world.repo.id:
            assert checks.pop(run["id"]), f"checks of {run['id']}"
    gates = {row["gate_id"] for row in record.publications if row["gate_id"]}
    strange = [one for one in checks if one.partition(":")[2].partition(":")[0] not in gates]
    assert not strange, f"checks without a run or a gate: {sorted(strange)}"


def _conclusion(run: Row) -> str:
    return CONCLUSIONS.get(run["verdict"], "failure")


def _assert_one_reaction(world: World, row: Row) -> None:
    for pull in world.repo.pulls.values():
        comment = pull.comments.get(row["comment_id"])
        if comment is not None:
            eyes = [reaction for reaction in comment.reactions if reaction.author is world.github.bot]
            assert len(eyes) == 1, f"{len(eyes)} reactions on {comment.body!r}"


def assert_deliveries(world: World, record: Record) -> None:
    """Law 5."""
    rows = Counter(row["guid"] for row in record.inbox)
    for hook in world.github.sent:
        if 202 in hook.statuses and hook.action in ACTIONS.get(hook.event, frozenset()):
            assert rows[hook.guid] == 1, f"{rows[hook.guid]} rows for an accepted {hook.event}.{hook.action}"
    assert {row["state"] for row in record.inbox} <= {"done", "ignored", "poison"}
    lines = Counter(row["comment_id"] for row in record.commands)
    runs = Counter(run["comment_id"] for run in record.runs if run["comment_id"])
    doubled = {comment: count for comment, count in runs.items() if count > lines[comment]}
    assert not doubled, f"more runs than commands, by comment: {doubled}"


def assert_approved(record: Record) -> None:
    """Law 11."""
    for run in record.runs:
        if run["untrusted"] is None:
            continue
        for attempt in record.attempts_of(run):
            sent = attempt["create_sent_at"]
            held = [one for one in record.approvals if sent and _covers(one, run, sent)]
            assert held or not sent, f"attempt {attempt['number']} of {run['id']} was created without an approval"
            assert not json.loads(run["plan"]).get("secrets"), f"{run['id']} names secrets"


def _covers(approval: Row, run: Row, at: int) -> bool:
    same = all(approval[key] == run[key] for key in ("repo_id", "pr", "sha"))
    return same and approval["at"] <= at and (approval["ended_at"] is None or at <= approval["ended_at"])


def assert_streams_whole(record: Record) -> None:
    """Law 6, as far as rows tell: each chunk begins where the one before ended, and the stream ends with the last."""
    ends: dict[tuple[str, str], int] = defaultdict(int)
    for chunk in record.chunks:
        stream = (chunk["attempt_id"], chunk["name"])
        assert chunk["offset"] == ends[stream], f"{stream} has a hole or a double at {chunk['offset']}"
        ends[stream] += len(chunk["data"])
    for row in record.streams:
        assert row["next"] == ends[row["attempt_id"], row["name"]], (row["attempt_id"], row["name"])


def assert_log(world: World, job: str, expected: bytes) -> None:
    """Law 6: what `run` of the newest run of `job` said, byte for byte; `expected` ends where the command did."""
    record = Record.of(world.database)
    run = [run for run in record.runs if run["job"] == job][-1]
    claimed = [attempt for attempt in record.attempts_of(run) if attempt["claimed_at"]]
    assert claimed, f"{job} never ran"
    log = record.stream(claimed[-1]["id"]).partition(b"::gpurun:: run\n")[2]
    assert log == expected, _difference(log, expected)


def _difference(found: bytes, expected: bytes) -> str:
    at = next(
        (i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), min(map(len, (found, expected)))
    )
    return f"{len(found)} bytes, not {len(expected)}; at {at}: {found[at : at + 80]!r}, not {expected[at : at + 80]!r}"


def assert_audit(world: World) -> None:
    """Law 7, as `gpurun audit verify` does it."""
    assert_audit_of(world.database)
    if world.bot.alive:
        assert verify_audit(world.database).unsealed == 0


def assert_audit_of(database: str) -> None:
    """Law 7, of any database."""
    report = verify_audit(database)
    assert report.first_bad is None, report


def assert_no_secret(world: World, record: Record) -> None:
    """Law 8: neither the bot's own secrets nor those that open its agent API are in anything that it wrote."""
    world.assert_no_secret()
    secrets = {*world.secrets(), *_agent_tokens(record), record.secret.hex()}
    places = {
        "comments": "\n".join(c.body for pull in world.repo.pulls.values() for c in world.bot_comments(pull)),
        "checks": "\n".join(f"{c.title} {c.summary} {c.text}" for c in world.github.checks(world.repo)),
        "bot's log": world.bot.output(),
        "streams": b"".join(bytes(chunk["data"]) for chunk in record.chunks).decode("latin-1"),
        **{
            table: "\n".join(str(value) for row in getattr(record, table) for value in row.values())
            for table in ("commands", "runs", "attempts", "strays", "publications", "audit")
        },
    }
    for where, text in places.items():
        found = [secret for secret in secrets if secret in text]
        assert not found, f"{len(found)} secrets in the {where}"


def _agent_tokens(record: Record) -> Iterator[str]:
    for attempt in record.attempts:
        for token in (
            tokens.claim_token(record.secret, attempt["id"]),
            tokens.run_token(record.secret, attempt["id"], attempt["boot_id"]),
        ):
            yield token.partition(".")[2]


def assert_green_ran(world: World, record: Record) -> None:
    """Law 10: a green check or word has an attempt behind it that claimed, ran and came to exit code 0."""
    for check in world.github.checks(world.repo):
        assert check.conclusion not in ("neutral", "skipped"), check.name
        if check.conclusion == "success" and check.external_id.startswith("gate:"):
            _assert_somebody_said_so(record, check)
        elif check.conclusion == "success":
            _assert_ran(record, record.run(check.external_id))
    for run in record.runs:
        if run["verdict"] == "passed":
            _assert_ran(record, run)
    passed = {row["nonce"] for row in record.publications if _passed(record, row)}
    for pull in world.repo.pulls.values():
        for comment in world.bot_comments(pull):
            if re.search(r"^#+ .*✅", comment.body, re.MULTILINE):
                assert any(marker(nonce) in comment.body for nonce in passed), comment.body


def _assert_somebody_said_so(record: Record, check: CheckRun) -> None:
    """A green gate: something has passed at its commit, or its title names who let it, or that nothing is meant."""
    passed = [run for run in record.runs if run["sha"] == check.head_sha and run["verdict"] == "passed"]
    named = ("overridden by", "removed, approved by", "n/a by paths")
    assert passed or any(word in check.title for word in named), check.title


def _passed(record: Record, row: Row) -> bool:
    return bool(row["run_id"]) and record.run(row["run_id"])["verdict"] == "passed"


def _assert_ran(record: Record, run: Row) -> None:
    results: list[tuple[Row, Mapping[str, Any]]] = [
        (attempt, json.loads(attempt["result"])) for attempt in record.attempts_of(run) if attempt["result"]
    ]
    good = [attempt for attempt, result in results if (result["kind"], result["exit_code"]) == ("passed", 0)]
    assert len(good) == 1, f"{run['id']} passed and {len(good)} of its attempts did"
    (attempt,) = good
    assert attempt["instance_ref"], f"{run['id']} passed without an instance"
    assert attempt["claimed_at"], f"{run['id']} passed without an agent"
    assert "running" in json.loads(attempt["phase_times"]), f"{run['id']} passed and did not run"
