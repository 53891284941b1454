from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import socket

import httpx
import pytest
import respx

from gpurun.adapters.images import RegistryImages
from gpurun.domain.errors import PinNotFound, RegistrySilent, RegistryUnavailable
from gpurun.domain.ids import ImageRef, ImageTag
from gpurun.domain.lock import ImagePin, LockedImage

BODY = b'{"schemaVersion": 2, "config": {}}'
DIGEST = "sha256:" + hashlib.sha256(BODY).hexdigest()
IMAGE = ImageRef(f"ghcr.io/org/app:v1@{DIGEST}")
MANIFEST = f"https://ghcr.io/v2/org/app/manifests/{DIGEST}"
REALM = "https://ghcr.io/token"
BEARER = {"WWW-Authenticate": f'Bearer realm="{REALM}",service="ghcr.io",scope="repository:org/app:pull"'}
OK = httpx.Response(200, headers={"Docker-Content-Digest": DIGEST})
SENT = httpx.Response(200, content=BODY)


@pytest.fixture
def web():
    with respx.mock(assert_all_called=True) as router:
        yield router


@pytest.fixture
async def images(tmp_path):
    async with RegistryImages(tmp_path / "config.json") as opened:
        yield opened


def log_in(tmp_path, key="ghcr.io", pair="me:secret-pw"):
    auth = base64.b64encode(pair.encode()).decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {key: {"auth": auth, "email": "x"}}, "credsStore": "x"}))


async def test_the_digest_is_there(web, images):
    route = web.head(MANIFEST).mock(return_value=OK)
    web.get(MANIFEST).mock(return_value=SENT)
    await images.confirm(IMAGE)
    accepted = route.calls.last.request.headers.get_list("Accept")
    assert len(accepted) == 4
    assert all("json" in one for one in accepted)


async def test_a_public_registry_wants_an_anonymous_token(web, images):
    web.head(MANIFEST, headers={"Authorization": "Bearer t0k"}).mock(return_value=OK)
    web.get(MANIFEST, headers={"Authorization": "Bearer t0k"}).mock(return_value=SENT)
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers=BEARER))
    token = web.get(REALM, params={"scope": "repository:org/app:pull", "service": "ghcr.io"}).mock(
        return_value=httpx.Response(200, json={"token": "t0k", "expires_in": 300})
    )
    await images.confirm(IMAGE)
    assert "Authorization" not in token.calls.last.request.headers


async def test_a_login_of_this_machine_is_used_for_the_token(web, images, tmp_path):
    log_in(tmp_path)
    web.head(MANIFEST, headers={"Authorization": "Bearer t0k"}).mock(return_value=OK)
    web.get(MANIFEST, headers={"Authorization": "Bearer t0k"}).mock(return_value=SENT)
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers=BEARER))
    token = web.get(url__startswith=REALM).mock(return_value=httpx.Response(200, json={"access_token": "t0k"}))
    await images.confirm(IMAGE)
    sent = token.calls.last.request.headers["Authorization"]
    assert base64.b64decode(sent.removeprefix("Basic ")) == b"me:secret-pw"


async def test_basic_auth(web, images, tmp_path):
    log_in(tmp_path, key="https://ghcr.io/v2/")
    sent = "Basic " + base64.b64encode(b"me:secret-pw").decode()
    web.head(MANIFEST, headers={"Authorization": sent}).mock(return_value=OK)
    web.get(MANIFEST, headers={"Authorization": sent}).mock(return_value=SENT)
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers={"WWW-Authenticate": 'Basic realm="r"'}))
    await images.confirm(IMAGE)


@pytest.mark.parametrize("header", [{"WWW-Authenticate": 'Basic realm="r"'}, {"WWW-Authenticate": "Negotiate"}, {}])
async def test_no_login_is_told_to_the_person(web, images, header):
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers=header))
    with pytest.raises(PinNotFound, match="without a login") as caught:
        await images.confirm(IMAGE)
    assert "docker login" in caught.value.hint


async def test_a_wrong_login_is_not_tried_for_ever_and_never_shown(web, images, tmp_path):
    log_in(tmp_path)
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers=BEARER))
    web.get(url__startswith=REALM).mock(return_value=httpx.Response(401))
    with pytest.raises(PinNotFound) as caught:
        await images.confirm(IMAGE)
    assert "secret-pw" not in str(caught.value)
    assert len(web.calls) == 2


async def test_credentials_do_not_go_to_a_realm_in_plain_text(web, images, tmp_path):
    log_in(tmp_path)
    challenge = {"WWW-Authenticate": 'Bearer realm="http://ghcr.io/token"'}
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers=challenge))
    with pytest.raises(PinNotFound, match="not https"):
        await images.confirm(IMAGE)


@pytest.mark.parametrize("status", [403, 400, 405])
async def test_no_such_image(web, images, status):
    web.head(MANIFEST).mock(return_value=httpx.Response(status))
    with pytest.raises(PinNotFound, match=DIGEST) as caught:
        await images.confirm(IMAGE)
    assert caught.value.pin == IMAGE


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"errors": [{"code": "MANIFEST_UNKNOWN", "detail": {}}]}', f"has no image {IMAGE} "),
        (b'{"errors": [{"code": "NAME_UNKNOWN"}]}', f"has no repository org/app, which {IMAGE} is in"),
        (b"<html>", f"has no image {IMAGE} "),
        (b"", f"has no image {IMAGE} "),
    ],
)
async def test_what_is_gone_the_image_or_its_repository(web, images, body, says):
    web.head(MANIFEST).mock(return_value=httpx.Response(404))
    web.get(MANIFEST).mock(return_value=httpx.Response(404, content=body))
    with pytest.raises(PinNotFound, match=re.escape(says)) as caught:
        await images.confirm(IMAGE)
    assert caught.value.pin == IMAGE
    held = caught.value.last_held("on 2026-11-01, when `.gpurun.lock` pinned it")
    assert held.message.endswith(" It was there on 2026-11-01, when `.gpurun.lock` pinned it.")
    assert (held.pin, held.hint) == (IMAGE, caught.value.hint)


@pytest.mark.parametrize(
    ("status", "headers", "retry_after_s"),
    [
        (429, {"Retry-After": "17"}, 17.0),
        (503, {"Retry-After": "Mon, 05 Jan 2026 12:01:30 GMT", "Date": "Mon, 05 Jan 2026 12:00:00 GMT"}, 90.0),
        (500, {}, None),
        (502, {"Retry-After": "soon"}, None),
        (503, {"Retry-After": "Mon, 05 Jan 2026 12:01:30 -0000", "Date": "Mon, 05 Jan 2026 12:00:00 GMT"}, None),
        (503, {"Retry-After": "Mon, 05 Jan 2026 12:01:30 GMT", "Date": "Mon, 05 Jan 2026 12:00:00 -0000"}, None),
    ],
)
async def test_a_busy_registry_is_asked_again_later(web, images, status, headers, retry_after_s):
    web.head(MANIFEST).mock(return_value=httpx.Response(status, headers=headers))
    with pytest.raises(RegistryUnavailable, match=str(status)) as caught:
        await images.confirm(IMAGE)
    assert caught.value.retry_after_s == retry_after_s


@pytest.mark.parametrize("error", [httpx.ConnectError("x"), httpx.ReadTimeout("x"), httpx.RemoteProtocolError("x")])
async def test_a_registry_that_does_not_answer(web, images, error):
    web.head(MANIFEST).mock(side_effect=error)
    with pytest.raises(RegistryUnavailable, match=type(error).__name__):
        await images.confirm(IMAGE)


async def test_a_registry_that_names_another_digest(web, images):
    other = "sha256:" + "0" * 64
    web.head(MANIFEST).mock(return_value=httpx.Response(200, headers={"Docker-Content-Digest": other}))
    with pytest.raises(PinNotFound, match=other):
        await images.confirm(IMAGE)


async def test_without_the_header_the_manifest_itself_is_hashed(web, images):
    web.head(MANIFEST).mock(return_value=httpx.Response(200))
    web.get(MANIFEST).mock(return_value=httpx.Response(200, content=BODY))
    assert (await images.confirm(IMAGE)).platforms == ()
    web.get(MANIFEST).mock(return_value=httpx.Response(200, content=BODY + b" "))
    with pytest.raises(PinNotFound, match="answers sha256:"):
        await images.confirm(IMAGE)


async def test_an_endless_manifest_is_not_read(web, images):
    web.head(MANIFEST).mock(return_value=httpx.Response(200))
    web.get(MANIFEST).mock(return_value=httpx.Response(200, content=b" " * (4 * 2**20 + 1)))
    with pytest.raises(PinNotFound, match="more than 4096 KiB"):
        await images.confirm(IMAGE)


@pytest.mark.parametrize(
    "content", ["not json", '{"auths": {"ghcr.io": {"auth": "%%%"}}}', '{"auths": {"ghcr.io": {}}}']
)
async def test_an_odd_docker_config_is_no_login(web, images, tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers={"WWW-Authenticate": "Basic"}))
    with pytest.raises(PinNotFound, match="without a login"):
        await images.confirm(IMAGE)


@pytest.mark.parametrize(
    "realm",
    [
        "http://127.0.0.1:8080/github",
        "http://localhost/token",
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1:80@evil.example/token",
        "http://[::1]:80/token",
        "ftp://evil.example/",
        "",
    ],
)
async def test_a_registry_elsewhere_cannot_send_our_login_or_us_to_plain_http(web, images, tmp_path, realm):
    log_in(tmp_path)
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers={"WWW-Authenticate": f'Bearer realm="{realm}"'}))
    with pytest.raises(PinNotFound, match="not https"):
        await images.confirm(IMAGE)
    assert len(web.calls) == 1


async def test_a_local_registry_cannot_hide_another_host_behind_a_loopback_user(web, images):
    local = ImageRef(f"127.0.0.1:5000/org/app@{DIGEST}")
    header = {"WWW-Authenticate": 'Bearer realm="http://127.0.0.1:80@evil.example/token"'}
    web.head(f"http://127.0.0.1:5000/v2/org/app/manifests/{DIGEST}").mock(
        return_value=httpx.Response(401, headers=header)
    )
    with pytest.raises(PinNotFound, match="not https"):
        await images.confirm(local)


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/", "http://127.0.0.1:8080/", "http://ghcr.io/v2/"])
async def test_redirects_stay_on_https(web, images, target):
    web.head(MANIFEST).mock(return_value=httpx.Response(307, headers={"Location": target}))
    with pytest.raises(PinNotFound, match="not https"):
        await images.confirm(IMAGE)
    assert len(web.calls) == 1


async def test_a_login_does_not_follow_a_redirect_to_another_host(web, images, tmp_path):
    log_in(tmp_path)
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers=BEARER))
    moved = httpx.Response(302, headers={"Location": "https://evil.example/token"})
    web.get(url__startswith=REALM).mock(return_value=moved)
    elsewhere = web.get(url__startswith="https://evil.example").mock(return_value=httpx.Response(403))
    with pytest.raises(PinNotFound):
        await images.confirm(IMAGE)
    assert "Authorization" not in elsewhere.calls.last.request.headers


async def test_an_endless_token_is_not_read(web, images):
    taken = []

    async def endless():
        for number in range(1_000_000):
            taken.append(number)
            yield bytes(16 * 1024)

    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers=BEARER))
    web.get(url__startswith=REALM).mock(side_effect=lambda request: httpx.Response(200, content=endless()))
    with pytest.raises(PinNotFound, match="more than 64 KiB"):
        await images.confirm(IMAGE)
    assert len(taken) < 10


async def test_a_compressed_answer_is_neither_asked_for_nor_unpacked(web, images):
    bomb = gzip.compress(bytes(10 * 1024 * 1024))
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers=BEARER))
    token = web.get(url__startswith=REALM).mock(
        return_value=httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(bomb))
    )
    with pytest.raises(RegistryUnavailable, match="without a token"):
        await images.confirm(IMAGE)
    assert token.calls.last.request.headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("token", ["é", "a\r\nHost: evil", "\u2028"])
async def test_a_token_that_cannot_be_sent(web, images, token):
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers=BEARER))
    web.get(url__startswith=REALM).mock(return_value=httpx.Response(200, json={"token": token}))
    with pytest.raises(RegistryUnavailable, match="something that is no token"):
        await images.confirm(IMAGE)


async def test_a_nested_token_and_a_nested_error(web, images):
    deep = b'{"x": ' + b"[" * 50_000
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers=BEARER))
    web.get(url__startswith=REALM).mock(return_value=httpx.Response(200, content=deep))
    with pytest.raises(RegistryUnavailable, match="without a token"):
        await images.confirm(IMAGE)
    web.head(MANIFEST).mock(return_value=httpx.Response(404))
    web.get(MANIFEST).mock(return_value=httpx.Response(404, content=deep))
    with pytest.raises(PinNotFound, match="has no image"):
        await images.confirm(IMAGE)


async def test_a_port_that_there_is_not(tmp_path):
    async with RegistryImages(tmp_path / "config.json") as images:  # connecting is what would fail
        with pytest.raises(PinNotFound, match="localhost has no port 99999"):
            await images.pin("localhost:99999/x", "1")


@pytest.mark.parametrize(
    ("address", "says"),
    [("https://ghcr.io:99999/token", "ghcr.io has no port 99999"), ("https://[x/token", "which is no address")],
)
async def test_a_login_at_no_address(web, images, address, says):
    header = {"WWW-Authenticate": f'Bearer realm="{address}"'}
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers=header))
    with pytest.raises(PinNotFound, match=says):
        await images.confirm(IMAGE)


async def test_a_redirect_to_a_port_that_there_is_not(web, images):
    web.head(MANIFEST).mock(return_value=httpx.Response(307, headers={"Location": "https://ghcr.io:99999/"}))
    with pytest.raises(PinNotFound, match=r"ghcr\.io has no port 99999"):
        await images.confirm(IMAGE)


@pytest.mark.parametrize("after", ["9" * 400, "99999999999", "Fri, 31 Dec 9999 23:59:59 GMT"])
async def test_a_registry_cannot_put_a_run_to_sleep_for_years(web, images, after):
    headers = {"Retry-After": after, "Date": "Mon, 05 Jan 2026 12:00:00 GMT"}
    web.head(MANIFEST).mock(return_value=httpx.Response(429, headers=headers))
    with pytest.raises(RegistryUnavailable) as caught:
        await images.confirm(IMAGE)
    assert caught.value.retry_after_s == 600.0


# --- tags

TAGGED = "https://ghcr.io/v2/org/app/manifests/1.2"
CONFIG = b'{"os": "linux", "architecture": "arm64", "variant": "v8", "rootfs": {}}'
CONFIG_DIGEST = "sha256:" + hashlib.sha256(CONFIG).hexdigest()
BLOB = f"https://ghcr.io/v2/org/app/blobs/{CONFIG_DIGEST}"


def described(digit, **platform):
    entry = {"mediaType": "x", "size": 7, "digest": f"sha256:{digit * 64}"}
    return entry | ({"platform": platform} if platform else {})


def index(*manifests):
    return json.dumps({"schemaVersion": 2, "mediaType": "index", "manifests": manifests}).encode()


def single(digest=CONFIG_DIGEST):
    layers = [{"mediaType": "x", "size": 1, "digest": "sha256:" + "9" * 64}]
    return json.dumps({"schemaVersion": 2, "config": {"size": 1, "digest": digest}, "layers": layers}).encode()


def digest_of(body):
    return "sha256:" + hashlib.sha256(body).hexdigest()


def serve(web, body, *, said=None, head=None):
    headers = {"Docker-Content-Digest": said or digest_of(body)}
    web.head(TAGGED).mock(return_value=head or httpx.Response(200, headers=headers))
    return web.get(TAGGED).mock(return_value=httpx.Response(200, content=body, headers=headers))


async def test_an_index_is_pinned_by_its_digest_with_each_platform(web, images):
    body = index(
        described("1", os="linux", architecture="amd64"),
        described("2", os="linux", architecture="arm", variant="v7"),
        described("3", os="unknown", architecture="unknown"),
        described("4"),
        described("5", os="linux", architecture="amd64"),
        described("6", os="windows", architecture="amd64"),
        described("7", os="li nux\n", architecture="amd64"),
    )
    serve(web, body)
    assert await images.pin("ghcr.io/org/app", "1.2") == ImagePin(
        digest=digest_of(body),
        platforms=(
            ("linux/amd64", f"sha256:{'1' * 64}"),
            ("linux/arm/v7", f"sha256:{'2' * 64}"),
            ("windows/amd64", f"sha256:{'6' * 64}"),
        ),
    )


async def test_a_single_manifest_has_the_platform_of_its_configuration(web, images):
    body = single()
    serve(web, body)
    web.get(BLOB).mock(return_value=httpx.Response(200, content=CONFIG))
    pin = await images.pin("ghcr.io/org/app", "1.2")
    assert pin == ImagePin(digest=digest_of(body), platforms=(("linux/arm64/v8", digest_of(body)),))


@pytest.mark.parametrize("config", [b"{}", b"helm", b'{"os": "linux"}', b'{"os": 5}'])
async def test_a_configuration_that_names_no_platform(web, images, config):
    serve(web, single(digest_of(config)))
    web.get(f"https://ghcr.io/v2/org/app/blobs/{digest_of(config)}").mock(
        return_value=httpx.Response(200, content=config)
    )
    assert (await images.pin("ghcr.io/org/app", "1.2")).platforms == ()


async def test_a_configuration_at_another_place_is_not_asked_for(web, images):
    serve(web, single("../../../../etc"))
    assert (await images.pin("ghcr.io/org/app", "1.2")).platforms == ()


async def test_a_configuration_with_other_bytes_than_its_name(web, images):
    serve(web, single())
    web.get(BLOB).mock(return_value=httpx.Response(200, content=CONFIG + b" "))
    with pytest.raises(PinNotFound, match="other bytes"):
        await images.pin("ghcr.io/org/app", "1.2")


async def test_the_login_of_a_tag_does_not_follow_its_configuration_elsewhere(web, images, tmp_path):
    log_in(tmp_path)
    web.head(TAGGED, headers={"Authorization": "Bearer t0k"}).mock(return_value=httpx.Response(200))
    web.head(TAGGED).mock(return_value=httpx.Response(401, headers=BEARER))
    web.get(url__startswith=REALM).mock(return_value=httpx.Response(200, json={"token": "t0k"}))
    web.get(TAGGED, headers={"Authorization": "Bearer t0k"}).mock(return_value=httpx.Response(200, content=single()))
    moved = httpx.Response(307, headers={"Location": "https://cdn.example/blob"})
    web.get(BLOB, headers={"Authorization": "Bearer t0k"}).mock(return_value=moved)
    elsewhere = web.get("https://cdn.example/blob").mock(return_value=httpx.Response(200, content=CONFIG))
    assert (await images.pin("ghcr.io/org/app", "1.2")).platforms
    assert "Authorization" not in elsewhere.calls.last.request.headers


async def test_what_is_sent_is_hashed_and_not_believed(web, images):
    serve(web, single(), said="sha256:" + "0" * 64)
    with pytest.raises(PinNotFound, match=f"is 'sha256:{'0' * 64}', but it sends {digest_of(single())}"):
        await images.pin("ghcr.io/org/app", "1.2")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"schemaVersion": 1, "fsLayers": []}', "no image in a format"),
        (b'{"schemaVersion": 2}', "no image in a format"),
        (b"<html>log in</html>", "no manifest"),
        (b'{"schemaVersion": 2, "manifests": 5}', "no manifest"),
        (b"\xff", "no manifest"),
        (b'{"x": ' + b"[" * 100_000, "no manifest"),
        (b" " * (4 * 2**20 + 1), "more than 4096 KiB"),
    ],
)
async def test_what_is_no_image(web, images, body, says):
    serve(web, body)
    with pytest.raises(PinNotFound, match=says):
        await images.pin("ghcr.io/org/app", "1.2")


@pytest.mark.parametrize(
    ("code", "says"),
    [("MANIFEST_UNKNOWN", "has no image ghcr.io/org/app:1.2 "), ("NAME_UNKNOWN", "has no repository org/app")],
)
async def test_no_such_tag_or_repository(web, images, code, says):
    web.head(TAGGED).mock(return_value=httpx.Response(404))
    web.get(TAGGED).mock(return_value=httpx.Response(404, json={"errors": [{"code": code}]}))
    with pytest.raises(PinNotFound, match=says) as caught:
        await images.pin("ghcr.io/org/app", "1.2")
    assert caught.value.pin == "ghcr.io/org/app:1.2"


@pytest.mark.parametrize("status", [401, 403])
async def test_no_access_to_a_tag(web, images, status):
    web.head(TAGGED).mock(return_value=httpx.Response(status))
    with pytest.raises(PinNotFound, match="without a login"):
        await images.pin("ghcr.io/org/app", "1.2")


@pytest.mark.parametrize("answer", [httpx.Response(503), httpx.ConnectTimeout("x")])
async def test_a_registry_that_is_down_when_a_tag_is_asked_for(web, images, answer):
    web.head(TAGGED).mock(side_effect=[answer])
    with pytest.raises(RegistryUnavailable):
        await images.pin("ghcr.io/org/app", "1.2")


# --- platforms of a digest


def there(web, body):
    """The registry has it, and sends it; the image."""
    digest = digest_of(body)
    url = f"https://ghcr.io/v2/org/app/manifests/{digest}"
    web.head(url).mock(return_value=httpx.Response(200, headers={"Docker-Content-Digest": digest}))
    return ImageRef(f"ghcr.io/org/app@{digest}"), web.get(url).mock(return_value=httpx.Response(200, content=body))


async def test_a_digest_has_the_platforms_of_its_index_and_is_asked_for_them_once(web, images):
    image, route = there(web, index(described("1", os="linux", architecture="arm64"), described("2")))
    for _ in range(2):
        assert (await images.confirm(image)).platforms == ("linux/arm64",)
    assert route.call_count == 1


async def test_a_digest_of_a_single_image_has_the_platform_of_its_configuration(web, images):
    image, _ = there(web, single())
    web.get(BLOB).mock(return_value=httpx.Response(200, content=CONFIG))
    assert (await images.confirm(image)).platforms == ("linux/arm64/v8",)


async def test_what_the_lock_knows_is_not_asked_for(web, images):
    web.head(TAGGED).mock(return_value=httpx.Response(404))
    body = single()
    image = ImageRef(f"ghcr.io/org/app@{digest_of(body)}")
    web.head(url__regex=digest_of(body) + "$").mock(
        return_value=httpx.Response(200, headers={"Docker-Content-Digest": digest_of(body)})
    )
    pin = ImagePin(digest=digest_of(body), platforms=(("linux/s390x", digest_of(body)),))
    entry = LockedImage(ref=ImageTag("ghcr.io/org/app:1.2"), pin=pin, locked_on="2026-12-01")
    assert (await images.confirm(image, locked=entry)).platforms == ("linux/s390x",)


@pytest.mark.parametrize("answer", [httpx.Response(429), httpx.Response(404), httpx.ReadTimeout("x")])
async def test_platforms_that_nobody_tells_are_unknown_and_no_failure(web, images, answer):
    image, route = there(web, single())
    route.mock(side_effect=[answer])
    assert (await images.confirm(image)).platforms == ()
    route.mock(return_value=httpx.Response(200, content=single()))
    blob = web.get(BLOB).mock(side_effect=[answer])
    assert (await images.confirm(image)).platforms == ()
    blob.mock(return_value=httpx.Response(200, content=CONFIG))
    assert (await images.confirm(image)).platforms == ("linux/arm64/v8",)


async def test_a_digest_of_what_is_no_image_is_refused(web, images):
    image, _ = there(web, b'{"schemaVersion": 1, "fsLayers": []}')
    with pytest.raises(PinNotFound, match="no image in a format"):
        await images.confirm(image)


# --- where the tag of a locked image points to now


def locked(web):
    """An image with a platform, pinned by the lock."""
    image, _ = there_without_get(web)
    pin = ImagePin(digest=image.digest, platforms=(("linux/amd64", image.digest),))
    return LockedImage(ref=ImageTag("ghcr.io/org/app:1.2"), pin=pin, locked_on="2026-12-01")


def there_without_get(web):
    digest = digest_of(single())
    route = web.head(f"https://ghcr.io/v2/org/app/manifests/{digest}").mock(
        return_value=httpx.Response(200, headers={"Docker-Content-Digest": digest})
    )
    return ImageRef(f"ghcr.io/org/app:1.2@{digest}"), route


async def test_b102_where_the_tag_of_a_locked_image_points_to_costs_one_request(web, images):
    entry = locked(web)
    other = "sha256:" + "b" * 64
    web.head(TAGGED).mock(return_value=httpx.Response(200, headers={"Docker-Content-Digest": other}))
    assert (await images.confirm(entry.image, locked=entry)).tag_points_to == other
    assert len(web.calls) == 2


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404),
        httpx.Response(401),
        httpx.Response(429),
        httpx.Response(200),
        httpx.Response(200, headers={"Docker-Content-Digest": "latest`\n# odd"}),
        httpx.ConnectTimeout("x"),
        httpx.Response(307, headers={"Location": "http://127.0.0.1:1/"}),
    ],
)
async def test_b102_a_registry_that_does_not_say_where_a_tag_points_to_is_no_failure(web, images, answer):
    entry = locked(web)
    web.head(TAGGED).mock(side_effect=[answer])
    assert (await images.confirm(entry.image, locked=entry)).tag_points_to == ""


class Nobody(httpx.AsyncBaseTransport):
    """As httpx has it when a name has no address."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        except OSError as error:
            raise httpx.ConnectError("[Errno -2] Name or service not known", request=request) from error


async def test_silence_is_told_with_host_and_cause(tmp_path):
    async with RegistryImages(tmp_path / "none.json", transport=Nobody()) as images:
        with pytest.raises(RegistrySilent) as caught:
            await images.pin("pytorch/pytorch", "2.4")
    told = "The registry of pytorch/pytorch does not answer (registry-1.docker.io: Name or service not known)."
    assert str(caught.value) == told
    assert (
        caught.value.hint == "Check the network, and the name in `image:`. A mirror of your own is written there, too."
    )


async def test_what_a_server_wrote_is_not_repeated(web, images):
    web.head(MANIFEST).mock(side_effect=httpx.RemoteProtocolError("illegal status line: @everybody"))
    with pytest.raises(RegistrySilent, match=r"does not answer \(ghcr.io: RemoteProtocolError\)\.$"):
        await images.confirm(IMAGE)


@pytest.mark.parametrize(("status", "hint"), [(429, "Wait a while, or use `docker login`"), (503, "Try again later.")])
async def test_a_refusal_that_passes_says_what_to_do(web, images, status, hint):
    web.head(MANIFEST).mock(return_value=httpx.Response(status))
    with pytest.raises(RegistryUnavailable, match=f"answered {status}") as caught:
        await images.confirm(IMAGE)
    assert hint in caught.value.hint


async def test_a_tag_that_is_not_there_says_what_to_check(web, images):
    web.head("https://ghcr.io/v2/org/app/manifests/9").mock(return_value=httpx.Response(404))
    web.get("https://ghcr.io/v2/org/app/manifests/9").mock(return_value=httpx.Response(404))
    with pytest.raises(PinNotFound, match=r"no image ghcr\.io/org/app:9") as caught:
        await images.pin("ghcr.io/org/app", "9")
    assert caught.value.hint == "Check the name and the tag in `image:`."


@pytest.mark.parametrize(("at_terminal", "where"), [(True, "on this machine"), (False, "where the bot is")])
async def test_docker_login_is_advised_where_it_helps(web, tmp_path, at_terminal, where):
    web.head(MANIFEST).mock(return_value=httpx.Response(401))
    async with RegistryImages(tmp_path / "none.json", at_terminal=at_terminal) as images:
        with pytest.raises(PinNotFound) as caught:
            await images.confirm(IMAGE)
    assert caught.value.hint.endswith(f"or use `docker login` {where}.")


async def test_nobody_listens(tmp_path):
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        name = f"127.0.0.1:{unheard.getsockname()[1]}/org/app"
        async with RegistryImages(tmp_path / "none.json") as images:
            with pytest.raises(RegistrySilent, match=r"does not answer \(127\.0\.0\.1: Connection refused\)\.$"):
                await images.pin(name, "1")
