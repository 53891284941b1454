from __future__ import annotations

import base64
import gzip
import hashlib
import json

import httpx
import pytest
import respx

from gpurun.adapters.images import RegistryImages
from gpurun.domain.errors import PinNotFound, RegistryUnavailable
from gpurun.domain.ids import ImageRef

BODY = b'{"schemaVersion": 2}'
DIGEST = "sha256:" + hashlib.sha256(BODY).hexdigest()
IMAGE = ImageRef(f"ghcr.io/org/app:v1@{DIGEST}")
MANIFEST = f"https://ghcr.io/v2/org/app/manifests/{DIGEST}"
REALM = "https://ghcr.io/token"
BEARER = {"WWW-Authenticate": f'Bearer realm="{REALM}",service="ghcr.io",scope="repository:org/app:pull"'}
OK = httpx.Response(200, headers={"Docker-Content-Digest": DIGEST})


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
    await images.confirm(IMAGE)
    accepted = route.calls.last.request.headers.get_list("Accept")
    assert len(accepted) == 4
    assert all("json" in one for one in accepted)


async def test_a_public_registry_wants_an_anonymous_token(web, images):
    web.head(MANIFEST, headers={"Authorization": "Bearer t0k"}).mock(return_value=OK)
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers=BEARER))
    token = web.get(REALM, params={"scope": "repository:org/app:pull", "service": "ghcr.io"}).mock(
        return_value=httpx.Response(200, json={"token": "t0k", "expires_in": 300})
    )
    await images.confirm(IMAGE)
    assert "Authorization" not in token.calls.last.request.headers


async def test_a_login_of_this_machine_is_used_for_the_token(web, images, tmp_path):
    log_in(tmp_path)
    web.head(MANIFEST, headers={"Authorization": "Bearer t0k"}).mock(return_value=OK)
    web.head(MANIFEST).mock(return_value=httpx.Response(401, headers=BEARER))
    token = web.get(url__startswith=REALM).mock(return_value=httpx.Response(200, json={"access_token": "t0k"}))
    await images.confirm(IMAGE)
    sent = token.calls.last.request.headers["Authorization"]
    assert base64.b64decode(sent.removeprefix("Basic ")) == b"me:secret-pw"


async def test_basic_auth(web, images, tmp_path):
    log_in(tmp_path, key="https://ghcr.io/v2/")
    sent = "Basic " + base64.b64encode(b"me:secret-pw").decode()
    web.head(MANIFEST, headers={"Authorization": sent}).mock(return_value=OK)
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


@pytest.mark.parametrize("status", [404, 403, 400, 405])
async def test_no_such_image(web, images, status):
    web.head(MANIFEST).mock(return_value=httpx.Response(status))
    with pytest.raises(PinNotFound, match=DIGEST):
        await images.confirm(IMAGE)


@pytest.mark.parametrize(
    ("status", "headers", "retry_after_s"),
    [
        (429, {"Retry-After": "17"}, 17.0),
        (503, {"Retry-After": "Mon, 05 Jan 2026 12:01:30 GMT", "Date": "Mon, 05 Jan 2026 12:00:00 GMT"}, 90.0),
        (500, {}, None),
        (502, {"Retry-After": "soon"}, None),
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
    await images.confirm(IMAGE)
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


@pytest.mark.parametrize("after", ["9" * 400, "99999999999", "Fri, 31 Dec 9999 23:59:59 GMT"])
async def test_a_registry_cannot_put_a_run_to_sleep_for_years(web, images, after):
    headers = {"Retry-After": after, "Date": "Mon, 05 Jan 2026 12:00:00 GMT"}
    web.head(MANIFEST).mock(return_value=httpx.Response(429, headers=headers))
    with pytest.raises(RegistryUnavailable) as caught:
        await images.confirm(IMAGE)
    assert caught.value.retry_after_s == 600.0
