"""Secrets that show by their shape, and names that only look like it."""

from __future__ import annotations

import pytest

from gpurun_agent.mask import Masker

A36 = "aB3" * 12
PEM = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(["Q" * 64, "R" * 64, "s" * 12]) + "\n-----END PRIVATE KEY-----"


def masked(text: str) -> str:
    return Masker([]).whole(text.encode()).decode()


@pytest.mark.parametrize(
    "secret",
    [
        *(f"gh{kind}_{A36}" for kind in "pousr"),
        f"ghs_1234567_eyJ{A36}.eyJ{A36}.{A36}_-",
        "github_pat_" + "1" * 22 + "_" + "b" * 59,
        "hf_" + "a" * 34,
        "rpa_" + "Z9" * 20,
        "AKIAIOSFODNN7EXAMPLE",
        "ASIAIOSFODNN7EXAMPLE",
        PEM,
        PEM.replace(" PRIVATE", " OPENSSH PRIVATE"),
        PEM.replace("\n", "\\n"),
        PEM.replace("\n", "\r\n"),
        PEM.replace(" PRIVATE KEY", " PGP PRIVATE KEY BLOCK"),
        PEM.replace("KEY-----\nQ", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00FF\n\nQ"),
        PEM[:120],
    ],
)
@pytest.mark.parametrize(("before", "after"), [("", ""), ("token=", "\n"), ('"', '",'), ("https://x:", "@example.com")])
def test_a_secret_is_masked_whole(secret, before, after):
    assert masked(before + secret + after) == before + "*" * len(secret) + after


@pytest.mark.parametrize(
    "text",
    [
        "aws_secret_access_key = %s",
        "export AWS_SECRET_ACCESS_KEY='%s'",
        '"SecretAccessKey": "%s",',
        "<SecretAccessKey>%s</SecretAccessKey>",
        "aws configure set aws_secret_access_key %s",
    ],
)
def test_an_aws_secret_key_is_known_by_its_name(text):
    key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    assert key[:8] not in masked(text % key)
    assert key[-8:] not in masked(text % key)


@pytest.mark.parametrize(
    "text",
    [
        "from huggingface_hub import hf_hub_download, hf_hub_url",
        "hf_transfer_is_enabled_for_all_downloads_of_this_model_repository",
        "hf_" + "a" * 29,
        "ghs_short rpa_job_name_of_a_run github_pat_is_a_prefix",
        "ghp_" + "x" * 35,
        "AKIA is a prefix; AKIATOOSHORT; AKIAlowercase0000000",
        "AWS_SECRET_ACCESS_KEY is not set",
        "aws_secret_access_key=${{ secrets.AWS_SECRET_ACCESS_KEY }}",
        "-----BEGIN CERTIFICATE-----\n" + "Q" * 64 + "\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\n" + "Q" * 64 + "\n-----END PUBLIC KEY-----",
        "expected -----BEGIN PRIVATE KEY----- in the file, found something else",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        "-" * 200 + "\n----- BEGIN -----\n",
        "sha256:" + "0f" * 32,
        "/usr/local/lib/python3.11/site-packages/transformers/models/llama/modeling_llama.py:123",
    ],
)
def test_what_only_looks_like_one_stays_readable(text):
    assert masked(text) == text


def test_what_follows_a_key_stays_readable():
    assert masked(PEM + "\nstep 1 loss 0.5\nDone\n").endswith("*\nstep 1 loss 0.5\nDone\n")
    assert masked(PEM[:157] + "\nstep 1 of 20\n").endswith("*\nstep 1 of 20\n") is False  # one word: a last short line
    assert masked(PEM[:157] + "\nstep 1 of 20\n").endswith(" 1 of 20\n")


@pytest.mark.parametrize(
    "line", ["step 1 loss 0.5\n", "hf_hub_download(x)\n", "AKIA\n", "-----\n", "ghs_abc\n", "-----BEGIN X\n"]
)
def test_a_normal_line_is_not_delayed(line):
    assert Masker([]).feed(line.encode()) == line.encode()


def test_a_token_that_is_printed_slowly_is_held_back_until_it_is_clear():
    masker = Masker([])
    token = f"ghs_{A36}"
    out = [masker.feed(bytes([byte])) for byte in f"a {token} b".encode()]
    assert b"".join(out[:42]) == b"a "
    assert b"".join(out) + masker.flush() == b"a " + b"*" * 40 + b" b"


def test_a_text_of_beginnings_only_takes_linear_time():
    """Measured again from each prefix it would be a thousand times as much."""
    text = b"ghs_" * 250_000
    assert Masker([]).whole(text) == b"*" * len(text)
