"""Where a branch or tag points to, and how each refusal reads."""

from __future__ import annotations

import pytest

from gpurun.adapters.hub.listing import is_ref, read_revision
from gpurun.domain.errors import HubUnavailable, PinNotFound
from gpurun.domain.plan import ModelSpec

ID = "acme/tiny"
TOKEN = "hf_0123456789SECRET"
OLD = {"config.json": b"{}", "weights.safetensors": b"1"}
NEW = {"config.json": b"{}", "weights.safetensors": b"2"}


async def test_main_a_tag_a_branch_with_a_slash_and_a_commit(fake, hub):
    old, new = fake.add_model(ID, OLD), fake.add_model(ID, NEW)
    fake.models[ID].refs |= {"v1.0": old, "refs/pr/3": old}
    assert await hub.revision_of(ID, "main") == new
    assert await hub.revision_of(ID, "v1.0") == old
    assert await hub.revision_of(ID, "refs/pr/3") == old
    assert await hub.revision_of(ID, old) == old
    assert len(fake.requests) == 4


async def test_a_branch_moves(fake, hub):
    old = fake.add_model(ID, OLD)
    assert await hub.revision_of(ID, "main") == old
    assert await hub.revision_of(ID, "main") != fake.add_model(ID, NEW) == await hub.revision_of(ID, "main")


async def refusal(hub, ref: str, id: str = ID) -> PinNotFound:
    with pytest.raises(PinNotFound) as caught:
        await hub.revision_of(id, ref)
    assert TOKEN not in str(caught.value) + caught.value.hint
    return caught.value


async def test_a_branch_or_tag_that_does_not_exist(fake, hub):
    fake.add_model(ID, OLD)
    error = await refusal(hub, "v9")
    assert error.message == "acme/tiny has no branch or tag 'v9'."
    assert error.hint == f"{fake.url}/acme/tiny/tree/main shows which ones there are."
    assert error.pin == "acme/tiny at v9"


async def test_a_commit_that_does_not_exist_is_not_given_back(fake, hub):
    fake.add_model(ID, OLD)
    error = await refusal(hub, "1" * 40)
    assert error.message == f"acme/tiny has no commit {'1' * 40}."
    assert error.pin == f"acme/tiny at {'1' * 40}"


async def test_a_branch_that_is_named_like_a_commit(fake, hub):
    fake.add_model(ID, OLD)
    fake.models[ID].refs["2" * 40] = fake.models[ID].main
    assert f"Asked for acme/tiny at {'2' * 40}, the hub answered for commit" in (await refusal(hub, "2" * 40)).message


async def test_b084_the_start_of_a_commit_is_the_whole_one(fake, hub):
    revision = fake.add_model(ID, OLD)
    fake.add_model(ID, NEW)
    assert await hub.revision_of(ID, revision[:8]) == revision
    assert await hub.revision_of(ID, revision[:39]) == revision


async def test_b084_the_start_of_two_commits_is_none(fake, hub):
    fake.add_model(ID, OLD)
    commits = fake.models[ID].commits
    (files,) = commits.values()
    commits |= {"9c41ab0" + "1" * 33: files, "9c41ab0" + "2" * 33: files}
    error = await refusal(hub, "9c41ab0")
    assert error.message == "acme/tiny has no commit that starts with 9c41ab0, or more than one."
    assert error.hint.endswith("/acme/tiny/commits/main.")
    assert await hub.revision_of(ID, "9c41ab01") == "9c41ab0" + "1" * 33


async def test_b084_a_branch_that_is_named_like_the_start_of_a_commit(fake, hub):
    fake.add_model(ID, OLD)
    fake.models[ID].refs["decade1"] = fake.models[ID].main
    assert f"Asked for {ID} at decade1, the hub answered for commit" in (await refusal(hub, "decade1")).message


@pytest.mark.parametrize("token", ["", TOKEN])
async def test_a_model_that_is_not_shown(fake, make_hub, token):
    fake.add_model("acme/private", OLD, private=True)
    if token:
        fake.add_token(token)
    for hidden in ("acme/none", "acme/private"):
        assert f"does not show {hidden}" in (await refusal(make_hub(token), "main", hidden)).message


async def test_a_private_model_with_the_right_token(fake, make_hub):
    revision = fake.add_model(ID, OLD, private=True)
    fake.add_token(TOKEN, ID)
    assert await make_hub(TOKEN).revision_of(ID, "main") == revision


async def test_a_gated_model_shows_its_commits_to_everybody_and_its_files_to_nobody(fake, hub):
    revision = fake.add_model(ID, OLD, gated="manual")
    assert await hub.revision_of(ID, "main") == revision
    with pytest.raises(PinNotFound, match="is gated") as caught:
        await hub.resolve(ModelSpec(id=ID, revision=revision))
    assert caught.value.pin == f"{ID} at {revision}"


async def test_a_disabled_model(fake, hub):
    fake.add_model(ID, OLD)
    fake.models[ID].disabled = True
    assert "has disabled acme/tiny" in (await refusal(hub, "main")).message


async def test_a_token_that_the_hub_does_not_know_says_nothing_about_the_pin(fake, make_hub):
    fake.add_model(ID, OLD)
    error = await refusal(make_hub(TOKEN), "main")
    assert error.message == "The hub does not accept the bot's token."
    assert error.pin == ""


@pytest.mark.parametrize(("status", "says"), [(401, "does not show"), (403, "forbids"), (404, "does not show")])
async def test_bare_refusals(fake, hub, status, says):
    fake.add_model(ID, OLD)
    fake.fail_next(status)
    assert says in (await refusal(hub, "main")).message


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_trouble_of_the_hub_is_transient_and_one_try(fake, hub, status):
    fake.add_model(ID, OLD)
    fake.fail_next(status, headers={"Retry-After": "7"})
    with pytest.raises(HubUnavailable, match=str(status)) as caught:
        await hub.revision_of(ID, "main")
    assert caught.value.retry_after_s == 7.0
    assert len(fake.requests) == 1


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"sha": null}', b'{"sha": "main"}', b"\xff", b""])
def test_something_else_than_a_commit_is_transient(body):
    with pytest.raises(HubUnavailable, match="names no commit"):
        read_revision(body)


NO_REFS = [
    "",
    "..",
    "a/../b",
    "a//b",
    "/a",
    "a/",
    ".a",
    "a.lock",
    "a b",
    "a?b",
    "a:b",
    "a~1",
    "a\nb",
    "@",
    "-a",
    "a" * 251,
]


@pytest.mark.parametrize("ref", NO_REFS)
async def test_what_can_be_no_ref_never_leaves_the_machine(fake, hub, ref):
    assert "cannot be the name of a branch or tag" in (await refusal(hub, ref)).message
    assert fake.requests == []


@pytest.mark.parametrize("ref", ["main", "v1.0", "refs/pr/3", "user/fix-#3", "größer", "a%2Fb"])
def test_usual_refs(ref):
    assert is_ref(ref)


@pytest.mark.parametrize("ref", ["a#b", "a%2Fb", "a&b=c", "größer"])
async def test_a_ref_with_signs_of_addresses_is_one_name(fake, hub, ref):
    fake.add_model(ID, OLD)
    fake.models[ID].refs[ref] = fake.models[ID].main
    assert await hub.revision_of(ID, ref) == fake.models[ID].main
