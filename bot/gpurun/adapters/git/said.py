"""What git said, in our words and without a credential."""

from __future__ import annotations

import base64
import re

from gpurun.adapters.git.process import Ended
from gpurun.domain.errors import PinNotFound, SourceUnavailable
from gpurun.domain.forge import GitSource
from gpurun.domain.ids import CommitSha, RepoName
from gpurun.domain.source import ModuleUrl

_NO_SUCH_COMMIT = ("not our ref", "unadvertised object", "couldn't find remote ref", "no such remote ref")
_CLOSED = ("not found", "Authentication failed", "could not read Username", "returned error: 403")
"""What git and GitHub say of a repository that this credential does not open."""
_REFUSED_OBJECTS = ("fsck error", "in packed object")


def fetch_error(
    done: Ended, source: GitSource, repo: RepoName | ModuleUrl, sha: CommitSha
) -> PinNotFound | SourceUnavailable:
    """Of a git that asked a remote and failed."""
    said = done.stderr
    if any(words in said for words in _NO_SUCH_COMMIT):
        return PinNotFound(f"{repo} has no commit {sha}. It may have been force-pushed away; push and ask again.")
    words = last_words(without_secrets(said, source))
    if isinstance(repo, ModuleUrl) and any(phrase in said for phrase in _CLOSED):
        return PinNotFound(
            f"The submodule {repo} is not there, or not open to this App.",
            hint="For a private repository of the same owner, install the App there; or write "
            "`checkout: {submodules: skip}`.",
        )
    if any(phrase in said for phrase in _REFUSED_OBJECTS):
        return PinNotFound(f"commit {sha} of {repo} holds objects that git refuses: {words}")
    return SourceUnavailable(f"{repo} cannot be fetched: {words}")


def without_secrets(text: str, source: GitSource) -> str:
    """`text` without the credential in any form that git or curl could print."""
    text = re.sub(r"//[^/@\s]+@", "//***@", text)
    if source.authorization is None:
        return text
    for word in source.authorization.get_secret_value().split():
        for form in (word, *_decoded(word)):
            text = text.replace(form, "***") if len(form) >= 6 else text
    return text


def _decoded(word: str) -> tuple[str, ...]:
    """User and password of a basic credential."""
    try:
        plain = base64.b64decode(word, validate=True).decode()
    except ValueError:
        return ()
    return (plain, *plain.split(":", 1))


def last_words(said: str) -> str:
    """The last lines of stderr as one short line."""
    return " ".join(said.split())[-300:] or "git said nothing"
