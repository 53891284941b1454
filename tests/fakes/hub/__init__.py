"""A Hugging Face Hub that keeps state: models by commit, LFS on another host, gates, tokens, trouble.

It runs on loopback, and huggingface_hub itself downloads from it (a test compares the bytes). `make demo` uses it too.

    hub = FakeHub()
    revision = hub.add_model("acme/tiny", {"config.json": b"{}", "model.safetensors": Path("...")})   # 40 hex digits
    with hub.serving() as endpoint:            # a thread; hub.url and hub.cdn_url while it is served
        ...

A commit id is the one that git would give those files, so equal files give an equal revision. What the hub's own
`.gitattributes` sends to LFS (`*.safetensors`, `*.bin`, ...) is served as LFS: by a redirect to a signed address.

    hub.corrupt("acme/tiny", "model.safetensors")      # one bit wrong, same size and hashes; repair() undoes it
    hub.cut("acme/tiny", "model.safetensors", after=1000)        # the next answer breaks off
    hub.stall("acme/tiny", "model.safetensors", after=1000)      # answers fall silent
    hub.models["acme/tiny"].pointers.add("model.safetensors")    # served as an LFS pointer
    hub.fail_next(429, part="/tree/", headers={"RateLimit": '"api";r=0;t=90'})
    hub.add_model("acme/secret", {...}, gated="manual")          # or private=True
    hub.add_token("hf_abc", "acme/secret")             # a valid token, let in by those models
    hub.models["acme/tiny"].refs["v1"] = revision      # a branch or tag beside main
    hub.models["acme/tiny"].disabled = True            # also answers_as, extra_tree: attributes of state.Model
    hub.requests, hub.seen("/tree/")                   # what came in, with tokens and ranges
"""

from tests.fakes.hub.hub import FakeHub
from tests.fakes.hub.state import Model, SeenRequest, StoredFile

__all__ = ["FakeHub", "Model", "SeenRequest", "StoredFile"]
