"""Folders of a repository that hold a file of ours, which can be typed, and paths that stay below their folder."""

from __future__ import annotations

from gpurun.domain.errors import UserError

CONFIG_NAME = ".gpurun.yml"
MAX_CHARS = 120
"""Of a folder: it stands in the name of a check, in comments and in commands."""
MAX_DEPTH = 10
"""GitHub is asked once for each level."""
MAX_PATH_BYTES = 1024
"""Of a file of a model, below the model's folder."""
ENDS_A_SENTENCE = ".,:;!?"
"""A command may stand at the end of one, so no folder that is typed ends like this."""
A_LINK = "a symbolic link"
A_FOLDER = "a folder"
_MODES = {"120000": A_LINK, "040000": A_FOLDER, "160000": "a submodule"}
"""Of git's trees, for what is no plain file."""
_SPECIAL = frozenset(" \\`|\"'<>")


def typed_folder(text: str) -> str:
    """The folder as git spells it: `./a/b/` is `a/b`. Raises ValueError, to stand behind its name."""
    parts = [part for part in text.removesuffix("/").split("/") if part != "."]
    if text.startswith(("/", "~")) or ".." in parts or "" in parts or not parts:
        raise ValueError("is no folder inside the repository. Write one such as examples/demo, without '..'")
    folder = "/".join(parts)
    if len(folder) > MAX_CHARS or len(parts) > MAX_DEPTH:
        raise ValueError(f"is too long: at most {MAX_CHARS} characters and {MAX_DEPTH} levels")
    if not _is_typable(folder):
        raise ValueError("has a character that cannot be typed in a command. Rename the folder")
    return folder


def config_path(folder: str) -> str:
    """`.gpurun.yml` in that folder, from the top of the repository; an empty folder is the top."""
    return beside(folder, CONFIG_NAME)


def beside(folder: str, name: str) -> str:
    """A file of that folder, from the top of the repository."""
    return f"{folder}/{name}" if folder else name


def job_in(job: str, folder: str) -> str:
    """How people read it: `smoke`, or `smoke (sub)` for the job of a file in a sub-folder."""
    return f"{job} ({folder})" if folder else job


def not_a_file(path: object, what: str) -> UserError:
    """Something else stands where a file of ours belongs: `what` as above, or a mode of git's trees."""
    what = _MODES.get(what, what)
    if what == A_LINK:
        return UserError(
            f"{path} is a symbolic link; put the file itself there.",
            hint="Links are not followed: what they lead to need not be in the commit.",
        )
    return UserError(f"{path} is {what}; a file belongs there.", hint=f"Move the {what.split()[-1]} away.")


def is_safe_path(path: str) -> bool:
    """Relative, below its folder on every system, and printable."""
    if len(path.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES or "\\" in path or not path.isprintable():
        return False
    return all(part not in {"", ".", ".."} for part in path.split("/"))


def _is_typable(folder: str) -> bool:
    return folder.isprintable() and not (set(folder) & _SPECIAL) and folder[-1] not in ENDS_A_SENTENCE
