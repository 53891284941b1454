"""The reference page of the settings, from `gpurun.settings`."""

from __future__ import annotations

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from gpurun.settings import Settings

_PREFIX = "GPURUN_"
_ONLY_TESTS = frozenset({"failpoint", "allow_failpoints"})


def settings_page() -> str:
    """Text of `docs/reference/settings.md`."""
    return "\n".join(
        [
            "# Settings",
            "",
            "<!-- Generated from bot/gpurun/settings.py. Write it anew with `make docs`. -->",
            "",
            "`gpurun serve`, `gpurun db` and `gpurun audit` read environment variables and no file. `gpurun run` reads",
            "the same ones, but none of GitHub, the database and the web server. A value that cannot be used ends the",
            "command and names the setting. Another name that begins with `GPURUN_` is told and has no effect.",
            "",
            "| Variable | Default | Meaning |",
            "|---|---|---|",
            *(_row(name, field) for name, field in Settings.model_fields.items() if name not in _ONLY_TESTS),
            "",
            "Secrets are never logged and never given to a job.",
            "",
            "Docker's own variables (`DOCKER_HOST`, `DOCKER_TLS_VERIFY`, `DOCKER_CERT_PATH`) count when",
            "`GPURUN_DOCKER_HOST` is empty. Logins to image registries come from the `config.json` that `docker login`",
            "writes for the user that runs gpurun.",
            "",
        ]
    )


def _row(name: str, field: FieldInfo) -> str:
    meaning = " ".join((field.description or "").split())
    for other in Settings.model_fields:
        meaning = meaning.replace(f"`{other}`", f"`{_PREFIX}{other.upper()}`")
    return f"| `{_PREFIX}{name.upper()}` | {_default(field.default)} | {meaning} |"


def _default(value: object) -> str:
    if isinstance(value, SecretStr) or value is None or value == "":
        return ""
    return f"`{value}`"
