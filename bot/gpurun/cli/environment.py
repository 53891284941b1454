"""`GPURUN_*` variables become settings, or one sentence that says which of them is wrong."""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING

from pydantic import SecretStr, ValidationError

from gpurun.cli.output import say
from gpurun.domain.errors import UserError
from gpurun.settings import Settings

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

PREFIX = "GPURUN_"
_SHOWN = 80


def read_settings() -> Settings:
    """Raises UserError. Names that are no setting are told on stderr and have no effect.

    They are no error, because others may set them: Kubernetes does for a service that is called gpurun.
    """
    names = [name for name in os.environ if name.upper().startswith(PREFIX)]  # noqa: TID251
    if warning := unknown(names):
        say(warning, err=True)
    try:
        return Settings()
    except ValidationError as error:
        # the cause would show values, secrets among them
        raise UserError(" ".join(_sentence(fault) for fault in error.errors(include_url=False))) from None


def unknown(names: list[str]) -> str:
    """One line about those that are no setting; empty when all are."""
    known = [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]
    strange = sorted(name for name in names if name.upper() not in known)
    return f"No setting is called {', '.join(_guess(name, known) for name in strange)}." if strange else ""


def _guess(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.85)
    return f"{name} (did you mean {close[0]}?)" if close else name


def _sentence(fault: ErrorDetails) -> str:
    name = str(fault["loc"][0]) if fault["loc"] else ""
    field = Settings.model_fields.get(name)
    secret = field is None or field.annotation is SecretStr or "@" in str(fault["input"])  # a password in an address
    value = "" if secret else f" is {str(fault['input'])[:_SHOWN]!r}:"
    return f"{PREFIX}{name.upper()}{value} {fault['msg'][:1].lower()}{fault['msg'][1:]}."
