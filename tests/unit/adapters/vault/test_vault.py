"""Secrets in the store, on both databases: set, handed out, changed, rotated, lost."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest
from pydantic import SecretStr

from gpurun.adapters.vault import KeyFile, SecretDesk
from gpurun.adapters.vault import desk as desk_module
from gpurun.domain.errors import SecretRefused, SecretUnavailable
from gpurun.domain.forge import RepoRef
from gpurun.domain.ids import RepoName
from gpurun.flow.keep_secrets import look_at_secrets
from gpurun.ports.secrets import Secrets
from tests.unit.adapters.vault.conftest import REPO

VALUE, NEWER = "first-value-of-it", "newer-value-of-it"


def setting(name, value=VALUE, repo="octo/app"):
    return lambda desk: desk.set(repo, name, SecretStr(value), who="ada")


def texts(registry: Secrets, attempt_id: str) -> list[str]:
    return [value.get_secret_value() for value in registry.of_attempt(attempt_id)]


async def test_what_was_set_is_handed_out_and_registered_first(town):
    assert await town.desk(setting("TOKEN")) is False
    assert await town.desk(setting("OTHER", "other-value", repo="Octo/App")) is False
    vault, registry = town.process()
    await vault.check(REPO, ["TOKEN", "OTHER"])
    given = await vault.values(REPO, ["TOKEN", "OTHER"], "a")
    assert texts(registry, "a") == [VALUE, "other-value"]
    assert [secret.name for secret in given] == ["TOKEN", "OTHER"]
    assert VALUE not in repr(given)


async def test_no_value_stands_in_a_row(town, store):
    await town.desk(setting("TOKEN"))
    (kept,) = await store.read(lambda tx: tx.secrets("octo/app"))
    assert VALUE.encode() not in kept.sealed.data
    audit = await store.read(lambda tx: tx.audit_of("repo:octo/app"))
    assert [(entry.kind, entry.data["name"], entry.data["by"]) for entry in audit] == [("secret_set", "TOKEN", "ada")]
    assert VALUE not in f"{kept}{audit}"


async def test_what_is_not_set_is_said_with_what_to_type(town):
    await town.desk(setting("TOKEN"))
    vault, _ = town.process()
    with pytest.raises(SecretUnavailable, match=r"The secrets ONE and TWO are not set for octo/app\.") as caught:
        await vault.check(REPO, ["ONE", "TOKEN", "TWO"])
    assert "`gpurun secret set ONE --repo octo/app`, `gpurun secret set TWO --repo octo/app`" in caught.value.hint
    other = RepoRef(installation_id=1, name=RepoName("octo/other"), id=8)
    with pytest.raises(SecretUnavailable, match="TOKEN is not set for octo/other"):
        await vault.check(other, ["TOKEN"])


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("TOKEN", "abcde", "fewer than 6"),
        ("TOKEN", "x" * (48 * 1024 + 1), "more than 48 KiB"),
        ("TOKEN", "x y\n" * 12000, "2.* KiB in all its spellings, more than 2048 KiB"),
        ("TOKEN", "abc\0def", "NUL"),
        ("token", VALUE, "cannot be the name"),
        ("1TOKEN", VALUE, "cannot be the name"),
        ("PATH", VALUE, "reserved"),
        ("GPURUN_X", VALUE, "reserved"),
        ("LD_PRELOAD", VALUE, "reserved"),
    ],
)
async def test_what_cannot_be_one_is_refused(town, name, value, told):
    with pytest.raises(SecretRefused, match=told) as caught:
        await town.desk(setting(name, value))
    assert value not in str(caught.value)


async def test_a_row_that_was_moved_or_changed_does_not_open(town, store):
    await town.desk(setting("TOKEN"))
    (kept,) = await store.read(lambda tx: tx.secrets("octo/app"))
    for stolen in (replace(kept, id="v2", name="MOVED"), replace(kept, id="v3", repo="octo/mine")):
        await store.write(lambda tx, stolen=stolen: tx.set_secret(stolen))
    vault, _ = town.process()
    mine = RepoRef(installation_id=1, name=RepoName("octo/mine"), id=9)
    for repo, name in ((REPO, "MOVED"), (mine, "TOKEN")):
        with pytest.raises(SecretUnavailable, match="its row was changed, or belongs elsewhere"):
            await vault.values(repo, [name], "a")
    await vault.check(REPO, ["TOKEN"])


async def test_another_repository_that_takes_the_name_gets_nothing(town):
    await town.desk(setting("TOKEN"))
    vault, _ = town.process()
    attempt = await town.attempt()
    await town.hand_out(vault, ["TOKEN"], attempt)
    squatter = replace(REPO, id=REPO.id + 1)
    with pytest.raises(SecretUnavailable, match="another repository that had this name"):
        await vault.check(squatter, ["TOKEN"])
    await town.desk(setting("TOKEN"))
    await vault.check(squatter, ["TOKEN"])


# several processes, and time


async def test_another_process_learns_what_an_attempt_was_given_once(town, store):
    await town.desk(setting("TOKEN"))
    claimed_here, _ = town.process()
    attempt = await town.attempt()
    await town.hand_out(claimed_here, ["TOKEN"], attempt)
    vault, registry = town.process()
    await vault.learn(attempt)
    assert texts(registry, attempt) == [VALUE]
    await store.__aexit__(None, None, None)
    try:
        await vault.learn(attempt)  # asks nobody again
    finally:
        await store.__aenter__()


async def test_what_was_learned_before_the_claim_is_not_final(town, store):
    await town.desk(setting("TOKEN"))
    attempt = await town.attempt(claimed=False)
    vault, registry = town.process()
    await vault.learn(attempt)
    assert texts(registry, attempt) == []
    claimed_here, _ = town.process()
    await town.hand_out(claimed_here, ["TOKEN"], attempt)
    await store.write(lambda tx: tx.set_claimed(attempt, boot_id="b", token_sha256="t", landed={}))
    await vault.learn(attempt)
    assert texts(registry, attempt) == [VALUE]


async def test_an_attempt_keeps_the_version_that_it_was_given(town, store, clock):
    await town.desk(setting("TOKEN"))
    vault, _ = town.process()
    attempt = await town.attempt()
    await town.hand_out(vault, ["TOKEN"], attempt)
    assert await town.desk(setting("TOKEN", NEWER)) is True
    later, registry = town.process()
    await later.learn(attempt)
    assert texts(registry, attempt) == [VALUE]
    # the same boot asks again; the next attempt gets the new one
    assert await town.hand_out(later, ["TOKEN"], attempt) == {"TOKEN": VALUE}
    assert await town.hand_out(later, ["TOKEN"], await town.attempt("01kdattempt000000000000002")) == {"TOKEN": NEWER}


async def test_a_removed_secret_goes_when_its_last_attempt_is_long_gone(town, store, clock):
    await town.desk(setting("TOKEN"))
    vault, _ = town.process()
    attempt = await town.attempt()
    await town.hand_out(vault, ["TOKEN"], attempt)
    assert await town.desk(lambda desk: desk.remove("octo/app", "TOKEN", who="ada"))
    assert not await town.desk(lambda desk: desk.remove("octo/app", "TOKEN", who="ada"))
    with pytest.raises(SecretUnavailable):
        await vault.check(REPO, ["TOKEN"])
    await look_at_secrets(store, vault)
    assert len(await store.read(lambda tx: tx.given(attempt))) == 1
    await town.end(attempt)
    clock.advance(minutes=59)
    await look_at_secrets(store, vault)
    assert len(await store.read(lambda tx: tx.given(attempt))) == 1
    clock.advance(minutes=1)
    await look_at_secrets(store, vault)
    assert await store.read(lambda tx: tx.given(attempt)) == ()
    assert await store.read(lambda tx: tx.secret_keys()) == frozenset()


async def test_a_secret_nobody_uses_is_removed_at_once(town, store):
    await town.desk(setting("TOKEN"))
    await town.desk(lambda desk: desk.remove("octo/app", "TOKEN", who="ada"))
    assert await store.read(lambda tx: tx.secret_keys()) == frozenset()


async def test_a_version_that_is_gone_for_good_is_not_handed_out(town, store):
    await town.desk(setting("TOKEN"))
    vault, _ = town.process()
    attempt = await town.attempt()
    given = await vault.values(REPO, ["TOKEN"], attempt)
    await town.desk(lambda desk: desk.remove("octo/app", "TOKEN", who="ada"))
    versions = [secret.version for secret in given]
    assert not await store.write(lambda tx: tx.hand_out(attempt, versions, repo_id=REPO.id))
    assert await store.read(lambda tx: tx.given(attempt)) == ()


async def test_values_are_forgotten_two_looks_after_the_attempt_is_gone(town, store):
    await town.desk(setting("TOKEN"))
    vault, registry = town.process()
    attempt = await town.attempt()
    await town.hand_out(vault, ["TOKEN"], attempt)
    await look_at_secrets(store, vault)
    await town.end(attempt)
    await look_at_secrets(store, vault)
    assert texts(registry, attempt) == [VALUE]
    total = registry.total()
    await look_at_secrets(store, vault)
    assert registry.everything() == ()
    assert registry.total() != total
    await vault.learn(attempt)  # somebody looks at its page
    assert texts(registry, attempt) == [VALUE]


# keys


async def many(town, count):
    for number in range(count):
        await town.desk(setting(f"S{number}", f"value-number-{number}"))


async def test_a_rotation_seals_everything_anew_and_drops_the_old_key(town, store, keys, monkeypatch):
    monkeypatch.setattr(desk_module, "AT_ONCE", 3)
    await many(town, 8)
    (old,) = keys.keys()
    before = await store.read(lambda tx: tx.secrets("octo/app"))
    done = await town.desk(lambda desk: desk.rotate(who="ada"))
    (new,) = keys.keys()
    assert (done.key_id, done.resealed, done.dropped, done.lost) == (new.id, 8, 1, ())
    assert new != old
    after = await store.read(lambda tx: tx.secrets("octo/app"))
    assert [(one.id, one.set_at) for one in after] == [(one.id, one.set_at) for one in before]
    assert not {one.sealed.data for one in after} & {one.sealed.data for one in before}
    vault, _ = town.process()
    values = await vault.values(REPO, [f"S{number}" for number in range(8)], "a")
    assert [one.value.get_secret_value() for one in values] == [f"value-number-{number}" for number in range(8)]


class Killed(BaseException):
    """The process is not there any more."""


@pytest.mark.parametrize("writes", range(6))
async def test_a_rotation_that_dies_anywhere_loses_nothing(town, store, keys, monkeypatch, writes):
    """6 rows in turns of two: it dies before its 1st … 6th transaction. The next one does the rest."""
    monkeypatch.setattr(desk_module, "AT_ONCE", 2)
    await many(town, 6)

    def dying(desk):
        run, left = desk._run, [writes]

        def write(fn):
            if not left[0]:
                raise Killed
            left[0] -= 1
            return run(fn)

        desk._run = write
        return desk.rotate(who="ada")

    with pytest.raises(Killed):
        await town.desk(dying)
    names = [f"S{number}" for number in range(6)]
    vault, _ = town.process()
    await vault.check(REPO, names)
    done = await town.desk(lambda desk: desk.rotate(who="ada"))
    assert len(keys.keys()) == 1
    assert done.resealed == 6
    await vault.check(REPO, names)


async def test_a_reader_that_the_end_of_a_rotation_overtakes_looks_again(town, store, keys):
    await town.desk(setting("TOKEN"))
    vault, _ = town.process()
    rotated = []

    async def rotate():
        rotated.append(await town.desk(lambda desk: desk.rotate(who="ada")))

    read = store.read

    async def read_then_rotate(fn):
        found = await read(fn)
        if not rotated:
            await rotate()
        return found

    vault._store = type("Slow", (), {"read": staticmethod(read_then_rotate)})
    (given,) = await vault.values(REPO, ["TOKEN"], "a")
    assert given.value.get_secret_value() == VALUE
    assert rotated


async def test_a_list_that_the_end_of_a_rotation_overtakes_looks_again(town):
    await town.desk(setting("TOKEN"))

    def overtaken(desk):
        run, rotated = desk._run, []

        def write(fn):
            run(fn)
            if not rotated:
                rotated.append(True)
                SecretDesk(run, KeyFile(town.keys.path), town.chance).rotate(who="ada")

        desk._run = write
        return desk.lines("octo/app")

    (line,) = await town.desk(overtaken)
    assert line.fault == ""


async def test_a_lost_key_is_told_by_name_and_ends_with_a_new_value(town, store, keys, caplog):
    await many(town, 2)
    vault, _ = town.process()
    attempt = await town.attempt()
    await town.hand_out(vault, ["S0"], attempt)
    keys.path.unlink()
    told = r"The secrets S0 and S1 of octo/app cannot be read any more: its key [0-9a-f]{8} is not in"
    later, unknowing = town.process()
    with pytest.raises(SecretUnavailable, match=told) as caught:
        await later.check(REPO, ["S0", "S1"])
    assert "gpurun secret set S0 --repo octo/app" in caught.value.hint
    await later.learn(attempt)
    assert unknowing.is_unknown(attempt)
    lines = await town.desk(lambda desk: desk.lines("octo/app"))
    assert ["is not in" in line.fault for line in lines] == [True, True]
    done = await town.desk(lambda desk: desk.rotate(who="ada"))
    assert done.lost == (("octo/app", "S0"), ("octo/app", "S1"))
    await town.desk(setting("S0", NEWER))
    await later.check(REPO, ["S0"])
    assert [bool(line.fault) for line in await town.desk(lambda desk: desk.lines("octo/app"))] == [False, True]


async def test_a_key_that_is_brought_back_opens_again(town, keys):
    await town.desk(setting("TOKEN"))
    vault, _ = town.process()
    attempt = await town.attempt()
    await town.hand_out(vault, ["TOKEN"], attempt)
    saved = keys.path.read_bytes()
    keys.path.write_text("damaged")
    later, registry = town.process()
    await later.learn(attempt)
    assert registry.is_unknown(attempt)
    with pytest.raises(SecretUnavailable, match="damaged in line 1"):
        await later.check(REPO, ["TOKEN"])
    keys.path.write_bytes(saved)
    await later.learn(attempt)
    assert not registry.is_unknown(attempt)
    assert texts(registry, attempt) == [VALUE]
    assert KeyFile(keys.path).keys()


async def test_what_a_failed_claim_looked_at_stays_and_what_was_given_is_learned_too(town):
    await town.desk(setting("TOKEN"))
    attempt = await town.attempt()
    vault, registry = town.process()
    await vault.values(REPO, ["TOKEN"], attempt)
    before = registry.version(attempt)
    await town.desk(setting("TOKEN", NEWER))
    claimed_there, _ = town.process()
    await town.hand_out(claimed_there, ["TOKEN"], attempt)
    await vault.learn(attempt)
    assert texts(registry, attempt) == [VALUE, NEWER]
    assert registry.version(attempt) > before


async def test_many_claims_at_once_each_get_it_and_one_repository_alone(town, store):
    await town.desk(setting("TOKEN"))
    vault, _ = town.process()
    ids = [f"01kdattempt00000000000001{number}" for number in range(6)]
    for attempt_id in ids:
        await town.attempt(attempt_id)
    (given,) = await vault.values(REPO, ["TOKEN"], ids[0])
    repos = [REPO.id, REPO.id + 1] * 3
    done = await asyncio.gather(
        *(
            store.write(
                lambda tx, attempt_id=attempt_id, repo=repo: tx.hand_out(attempt_id, [given.version], repo_id=repo)
            )
            for attempt_id, repo in zip(ids, repos, strict=True)
        )
    )
    (kept,) = await store.read(lambda tx: tx.secrets("octo/app"))
    assert done == [repo == kept.repo_id for repo in repos]


@pytest.mark.postgres
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_two_claims_that_bind_a_secret_never_wait_for_each_other(town, store):
    """The database would abort one of them, and the store try it again."""
    await many(town, 5)
    kept = await store.read(lambda tx: tx.secrets("octo/app"))
    ids = [await town.attempt(f"01kdattempt00000000000001{number}") for number in range(2)]
    tries = []
    for secret in kept:
        both, came = threading.Barrier(2), set()

        def claim(tx, attempt_id, secret=secret, both=both, came=came):
            tries.append(attempt_id)
            if attempt_id not in came:
                came.add(attempt_id)
                both.wait(5)
            return tx.hand_out(attempt_id, [secret.id], repo_id=REPO.id)

        assert await asyncio.gather(
            *(store.write(lambda tx, attempt_id=attempt_id: claim(tx, attempt_id)) for attempt_id in ids)
        ) == [True, True]
    assert len(tries) == 2 * len(kept)


async def test_a_secret_for_the_bots_own_use_belongs_to_its_repository_from_then_on(town, store):
    await town.desk(setting("REGISTRY_TOKEN"))
    vault, registry = town.process()
    for _ in range(2):
        value = await vault.own_use(REPO, "REGISTRY_TOKEN")
        assert value is not None
        assert value.get_secret_value() == VALUE
    assert [one.get_secret_value() for one in registry.everything()] == [VALUE]
    assert registry.attempts() == frozenset()
    (kept,) = await store.read(lambda tx: tx.secrets("octo/app"))
    assert kept.repo_id == REPO.id
    with pytest.raises(SecretUnavailable, match="another repository that had this name"):
        await vault.own_use(replace(REPO, id=REPO.id + 1), "REGISTRY_TOKEN")
    with pytest.raises(SecretUnavailable, match="NONE is not set for octo/app"):
        await vault.own_use(REPO, "NONE")
    await town.desk(setting("REGISTRY_TOKEN", NEWER))
    newer = await vault.own_use(REPO, "REGISTRY_TOKEN")
    assert newer is not None
    assert newer.get_secret_value() == NEWER


async def test_a_version_of_another_repository_cannot_be_claimed(town, store):
    await town.desk(setting("TOKEN"))
    (kept,) = await store.read(lambda tx: tx.secrets("octo/app"))
    claim = lambda repo_id: store.write(lambda tx: tx.claim_secret(kept.id, repo_id=repo_id))  # noqa: E731
    assert [await claim(7), await claim(8), await claim(7)] == [True, False, True]
    assert not await store.write(lambda tx: tx.claim_secret("gone", repo_id=7))
