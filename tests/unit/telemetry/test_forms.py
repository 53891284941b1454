"""Whatever a program usually makes of a secret is masked. Each form is made by the program itself where it is there."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
import shutil
import subprocess
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from gpurun.domain.errors import SecretRefused, UserError
from gpurun.telemetry import forms as spelled
from gpurun.telemetry.forms import MAX_PARTS, forms
from gpurun.telemetry.redact import Masker

PLAIN = "hunter2-hunter2"
HARD = "p\"a'ss/w&o<rd> +$é\\ `x`"
MANY = "first line of it\n  second line\tof it  \nshort\nlast line\n"
CHARSETS = {"plain": PLAIN, "hard": HARD, "many": MANY}


def shown(secret: str, printed: bytes | str) -> str:
    """What is left of a text that holds the secret in some form."""
    data = printed.encode() if isinstance(printed, str) else printed
    return Masker([SecretStr(secret)]).mask(data).replace(b"*", b"").decode("utf-8", "replace")


def unicode_escaped(text: str, more: str) -> str:
    """JSON as .NET and Go write it."""
    return "".join(
        f"\\u{ord(char):04X}" if char in more else json.dumps(char, ensure_ascii=False)[1:-1] for char in text
    )


@pytest.mark.parametrize("secret", CHARSETS.values(), ids=CHARSETS)
@pytest.mark.parametrize(
    "spelled",
    [
        lambda text: text,
        lambda text: text.encode().hex(),
        lambda text: text.encode().hex().upper(),
        quote,
        quote_plus,
        lambda text: quote(text, safe=""),
        lambda text: quote(text, safe="!*'()"),
        lambda text: re.sub("%..", lambda match: match[0].lower(), quote(text, safe="")),
        lambda text: json.dumps(text)[1:-1],
        lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
        lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
        lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1],
        lambda text: unicode_escaped(text, "<>&'+`\"é"),
        lambda text: unicode_escaped(text, "<>&"),
        lambda text: repr(text)[1:-1],
        lambda text: ascii(text)[1:-1],
        lambda text: repr(text.encode())[2:-1],
        shlex.quote,
        html.escape,
        lambda text: html.escape(text, quote=False),
        escape,
        lambda text: escape(text, {"'": "&apos;", '"': "&quot;"}),
        lambda text: escape(text, {"'": "&#39;", '"': "&#34;"}),
        lambda text: base64.b64encode(text.encode()).decode().rstrip("="),
        lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
        lambda text: base64.b64encode(f"x:{text}".encode()).decode().rstrip("="),
        lambda text: base64.b64encode(f"x-access-token:{text}".encode()).decode().rstrip("="),
    ],
)
def test_a_spelling_is_masked_whole(secret, spelled):
    assert shown(secret, f"<{spelled(secret)}>") == "<>"


@pytest.mark.parametrize("secret", CHARSETS.values(), ids=CHARSETS)
@pytest.mark.parametrize(
    ("argv", "left"),
    [
        (["base64"], {"", "=", "=="}),
        (["base64", "-w0"], {"", "=", "=="}),
        (["python3", "-c", "import sys, json; print(json.dumps(sys.stdin.read()))"], {'""'}),
        (["python3", "-c", "import sys; print(repr(sys.stdin.buffer.read()))"], {"b''", 'b""'}),
        (["bash", "-c", 'printf "%q" "$(cat)"'], {"", "$''"}),
        (["bash", "-c", 'x=$(cat); set -x; : "$x"'], {"+ :", "+ : ''", "+ : $''"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_real_programs_print(secret, argv, left):
    assert shutil.which(argv[0])
    done = subprocess.run(argv, input=secret.encode(), capture_output=True, check=True)
    assert shown(secret, done.stdout + done.stderr).strip() in left


@pytest.mark.parametrize("user", ["", "u", "me", "ci-bot"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_b122_basic_header_of_any_user(user, encode):
    header = encode(f"{user}:{PLAIN}".encode())
    rest = shown(PLAIN, b"Authorization: Basic " + header).removeprefix("Authorization: Basic ")
    assert len(rest.rstrip("=")) <= len(encode(f"{user}:".encode()).rstrip(b"=")) + 1
    assert PLAIN.encode() not in base64.b64decode(rest + "==", validate=False)


def test_b122_encoded_forms():
    token = "hf_abcDEF0123456789ghiJKL"  # too short to be known by its shape
    for printed in (
        base64.b64encode(f"x:{token}".encode()),
        repr(token.encode()),
        f"fatal: unable to access 'https://x:{token}@example.com/a.git/'",
        f"https://example.com/?q={quote(token)}",
    ):
        rest = shown(token, printed)
        assert token not in rest
        assert token[5:15] not in rest


SERVICE_ACCOUNT = json.dumps(
    {
        "k": 'abc"DEF/ghi',
        "deep": [{"value": "a string far inside"}, 7, None, True],
        "pem": "-----BEGIN FAKE-----\nMIIFAKE1\nMIIFAKE2\nx\n",
        "type": "key",
    }
)


@pytest.mark.parametrize(
    "printed",
    [
        SERVICE_ACCOUNT,
        json.dumps(json.loads(SERVICE_ACCOUNT), indent=2),
        json.dumps(json.loads(SERVICE_ACCOUNT), separators=(",", ":")),
        json.dumps(SERVICE_ACCOUNT),
        json.dumps(json.loads(SERVICE_ACCOUNT)).replace("/", "\\/"),
        json.loads(SERVICE_ACCOUNT)["pem"],
        repr(json.loads(SERVICE_ACCOUNT)),
        "\n".join(f"{line}  # copied" for line in json.loads(SERVICE_ACCOUNT)["pem"].splitlines()),
        'abc"DEF/ghi and a string far inside',
    ],
)
def test_b120_a_secret_of_many_lines_or_json_is_masked_piece_by_piece(printed):
    rest = shown(SERVICE_ACCOUNT, printed)
    for piece in ("abc", "DEF", "MIIFAKE1", "MIIFAKE2", "far inside"):
        assert piece not in rest


def test_b120_short_pieces_and_names_stay_readable():
    assert shown(SERVICE_ACCOUNT, "type of the pem key: x") == "type of the pem key: x"


def test_lines_of_six_characters_are_secrets_and_shorter_ones_are_not():
    assert shown("alpha1\nbeta\n  gamma2  \n", "alpha1 beta gamma2") == " beta "


def test_surrounding_quotes_and_space_may_be_missing():
    for secret in ('"quoted value"', "'quoted value'", "  quoted value\n"):
        assert shown(secret, "<quoted value>") == "<>"


def test_long_base64_is_wrapped_by_programs():
    secret = "".join(chr(97 + at % 26) for at in range(200))
    for text in (secret, secret + "\n"):
        for printed in (base64.encodebytes(text.encode()), *_wrapped(text, 64)):
            assert shown(secret, printed).strip("=\n") == "", printed


def _wrapped(text: str, width: int) -> list[str]:
    encoded = base64.b64encode(text.encode()).decode()
    return ["\n".join(encoded[at : at + width] for at in range(0, len(encoded), width))]


def test_attribute_values_of_xml():
    assert shown(HARD, f"<a b={quoteattr(HARD)}/>") in {'<a b=""/>', "<a b=''/>"}


def test_bytes_that_are_no_text_have_forms_too():
    secret = b"\xff\xfe binary \x00 key".decode("utf-8", "surrogateescape")
    raw = secret.encode("utf-8", "surrogateescape")
    for printed in (raw, raw.hex().encode(), repr(raw)[2:-1].encode(), base64.b64encode(raw).rstrip(b"=")):
        assert shown(secret, printed) == ""


@pytest.mark.parametrize("value", ["", "abcde", "  abc  ", "ééééé", "\n\n\n\n\n\n\n"])
def test_a_short_secret_is_refused_and_not_named(value):
    with pytest.raises(SecretRefused, match="fewer than 6 characters") as caught:
        forms(SecretStr(value))
    assert isinstance(caught.value, UserError)
    assert not value.strip() or value.strip() not in str(caught.value)


def test_a_huge_secret_is_refused():
    with pytest.raises(SecretRefused, match="more than 48 KiB"):
        forms(SecretStr("x" * (48 * 1024 + 1)))


def test_a_secret_of_very_many_lines_is_masked_whole_and_its_first_lines_alone():
    lines = [f"line number {number}" for number in range(MAX_PARTS + 10)]
    secret = "\n".join(lines)
    assert shown(secret, secret) == ""
    assert shown(secret, lines[5]) == ""


def test_every_form_is_at_least_six_bytes():
    assert all(len(form) >= 6 for secret in (*CHARSETS.values(), "abcdef") for form in forms(SecretStr(secret)))


def test_an_ordinary_token_has_few_forms():
    """The time for a log grows with them."""
    assert len(forms(SecretStr(PLAIN))) <= 10


@given(st.text("abcXYZ019_.-", min_size=6, max_size=40))
def test_a_plain_value_is_spelled_the_short_way_because_nothing_quotes_it(value):
    quoted = {form.decode() for form in spelled._url_forms(value.encode())}
    quoted |= {*spelled._json_forms(value), *spelled._shell_forms(value)}
    quoted |= {*spelled._python_forms(value), *spelled._markup_forms(value)}
    assert quoted == {value}
