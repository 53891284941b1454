"""What everybody may download is asked without the bot's token, whatever the token may read."""

import pytest

from gpurun.domain.errors import PinNotFound
from gpurun.domain.ids import Revision
from gpurun.domain.plan import ModelSpec

TOKEN = "hf_0123456789SECRET"
FILES = {"weights.safetensors": b"w" * 100, "config.json": b"{}"}


def spec(revision):
    return ModelSpec(id="acme/tiny", revision=Revision(revision))


@pytest.mark.parametrize(
    ("made", "gated_too", "open_"),
    [
        ({}, False, True),
        ({}, True, True),
        ({"gated": "auto"}, False, False),
        ({"gated": "manual"}, True, True),
        ({"private": True}, False, False),
        ({"private": True}, True, False),
    ],
)
async def test_what_everybody_may_have(fake, make_hub, made, gated_too, open_):
    revision = fake.add_model("acme/tiny", FILES, **made)
    fake.add_token(TOKEN, "acme/tiny")
    hub = make_hub(TOKEN)
    assert (await hub.resolve(spec(revision))).files  # the bot itself may have it
    if open_:
        await hub.require_open(spec(revision), gated_too=gated_too)
    else:
        with pytest.raises(PinNotFound):
            await hub.require_open(spec(revision), gated_too=gated_too)


async def test_no_request_of_it_holds_the_token(fake, make_hub):
    revision = fake.add_model("acme/tiny", FILES)
    await make_hub(TOKEN).require_open(spec(revision), gated_too=False)
    assert fake.requests
    assert not any(one.token for one in fake.requests)
