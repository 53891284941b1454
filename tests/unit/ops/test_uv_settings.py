"""pip's settings as uv's variables."""

from __future__ import annotations

from ops.uv_settings import uv_settings


def settings(*lines: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in uv_settings(lines))


def test_nothing_set_up():
    assert settings() == {"UV_INDEX_STRATEGY": "unsafe-best-match"}


def test_a_mirror_further_indexes_and_a_certificate():
    assert settings(
        "global.index-url='https://u:p=w@mirror.example/simple'\n",
        "global.extra-index-url='file:///a/simple file:///b/simple'\n",
        "global.find-links='/wheels\\n/more'\n",
        "global.cert='/etc/ca.crt'\n",
        "global.trusted-host='mirror.example'\n",
        "global.constraint='/etc/c.txt'\n",
        "install.no-index='true'\n",
    ) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_DEFAULT_INDEX": "https://u:p=w@mirror.example/simple",
        "UV_INDEX": "file:///a/simple file:///b/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "SSL_CERT_FILE": "/etc/ca.crt",
        "UV_INSECURE_HOST": "mirror.example",
        "UV_NO_INDEX": "1",
    }


def test_the_environment_wins_over_files_and_a_command_over_all_commands():
    assert settings(":env:.cert='/env'", "global.cert='/global'")["SSL_CERT_FILE"] == "/env"
    assert settings("install.cert='/install'", "global.cert='/global'")["SSL_CERT_FILE"] == "/install"
    assert "UV_NO_INDEX" not in settings("global.no-index='true'", ":env:.no-index='0'")
