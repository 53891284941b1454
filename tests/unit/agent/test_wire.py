"""The same agent over TCP and TLS."""

from __future__ import annotations

import datetime as dt
import ipaddress
import shutil
import ssl
import tempfile
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gpurun_agent.wire import Address, WireError, quote
from tests.unit.agent.fake_bot import Agent, FakeBot, Model, with_code


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A PEM file with a key and a certificate for 127.0.0.1 that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bot")])
    now = dt.datetime.now(dt.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "bot.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + built.public_bytes(serialization.Encoding.PEM))
    return path


def run_over(bot: FakeBot, agent_path: Path, **options) -> tuple[int, Agent]:
    root = Path(tempfile.mkdtemp(prefix="gpurun-root-"))
    try:
        agent = Agent(bot, agent_path, root, **options)
        return agent.wait(), agent
    finally:
        bot.down()
        shutil.rmtree(root)
        shutil.rmtree(bot.folder)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_everything_works_over_tcp(agent_path, certificate, scheme):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    bot = FakeBot(scheme, tls if scheme == "https" else None)
    bot.set_source({"x": b"from the source\n"})
    bot.models = [Model("org/m", "a" * 40, {"f": b"w" * 3_000_000})]
    bot.artifact_globs = ["big"]
    bot.run = "cat x; yes abcdefgh | head -c 5000000 | tee big"
    code, _ = run_over(bot, agent_path, env={"SSL_CERT_FILE": str(certificate)})
    assert code == 0
    assert bot.end["result"] == "passed"
    expected = b"from the source\n" + (b"abcdefgh\n" * 555_556)[:5_000_000]
    assert bot.log.endswith(expected)
    assert bot.artifacts["big"] == expected[16:]


def test_a_bot_that_cannot_prove_who_it_is_gets_nothing(agent_path, certificate):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    bot = FakeBot("https", tls)
    bot.deadline = int(dt.datetime.now().timestamp()) + 1  # noqa: DTZ005  # only its unix time is used
    code, _ = run_over(bot, agent_path, first=with_code("run", "REPORT_S = 0.1"))
    assert code == 75
    assert bot.requests == []


@pytest.mark.parametrize(
    ("text", "scheme", "host", "port", "base"),
    [
        ("unix:/gpurun/s/bot.sock", "unix", "localhost", 0, ""),
        ("https://bot.example.org", "https", "bot.example.org", 443, ""),
        ("http://bot.example.org/a/b/", "http", "bot.example.org", 80, "/a/b"),
        ("https://10.0.0.1:8443/x", "https", "10.0.0.1", 8443, "/x"),
        ("http://[::1]:80", "http", "::1", 80, ""),
        ("http://[::1]", "http", "::1", 80, ""),
    ],
)
def test_addresses(text, scheme, host, port, base):
    address = Address(text)
    assert (address.scheme, address.host, address.port, address.base) == (scheme, host, port, base)


@pytest.mark.parametrize("text", ["", "ftp://x", "https:x", "bot.example.org"])
def test_what_is_no_address(text):
    with pytest.raises(WireError):
        Address(text)


def test_quoting():
    assert quote(b"a/b c%\xff~", b"/") == b"a/b%20c%25%FF~"
