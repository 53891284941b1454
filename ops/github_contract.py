"""Makes `tests/data/github` from GitHub's own OpenAPI document and from recorded webhook payloads.

    python -m ops.github_contract          # needs npm and a package index; tests need neither

Both come as npm packages under the MIT licence, of a fixed version and hash. The same packages give the same text. A
call that the bot does not make is left out of the document, and so is what no validator reads (descriptions, examples).
"""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "data" / "github"
DOCUMENT = FOLDER / "openapi.json"
WEBHOOKS = FOLDER / "webhooks.json.xz"
TIMEOUT_S = 300

Json = dict[str, Any]


@dataclass(frozen=True)
class Package:
    """An npm package of one version."""

    name: str
    version: str
    sha512: str
    """Base64, as npm writes it."""


OPENAPI = Package(
    "@octokit/openapi",
    "23.0.2",
    "pV8M7L9GY23AybNvTmo2nyjmpmnt6+2sRE/tqr0ZLQcPS4lnw7u5eZGNmwRNkBC3D7gZXbFx5AHzLUVRBXGDhg==",
)
EXAMPLES = Package(
    "@octokit/webhooks-examples",
    "7.6.1",
    "De6U3XB6O3DtCa7bKgCMzTHdeopqqZ6SNivMYJnK65ierKL1AnNIA0tkRYCRS7lwGT792d+Ps1WbfHlso6MynQ==",
)

REPO = "/repos/{owner}/{repo}"
CALLED: dict[str, tuple[str, ...]] = {
    "/app": ("get",),
    "/app/hook/deliveries": ("get",),
    "/app/hook/deliveries/{delivery_id}": ("get",),
    "/app/installations/{installation_id}/access_tokens": ("post",),
    f"{REPO}/installation": ("get",),
    f"{REPO}/pulls/{{pull_number}}": ("get",),
    f"{REPO}/pulls/{{pull_number}}/files": ("get",),
    f"{REPO}/collaborators/{{username}}/permission": ("get",),
    f"{REPO}/git/ref/{{ref}}": ("get",),
    f"{REPO}/git/trees/{{tree_sha}}": ("get",),
    f"{REPO}/git/blobs/{{file_sha}}": ("get",),
    f"{REPO}/issues/{{issue_number}}/comments": ("get", "post"),
    f"{REPO}/issues/comments/{{comment_id}}": ("get", "patch", "delete"),
    f"{REPO}/issues/comments/{{comment_id}}/reactions": ("post",),
    f"{REPO}/check-runs": ("post",),
    f"{REPO}/check-runs/{{check_run_id}}": ("get", "patch"),
    f"{REPO}/commits/{{ref}}/check-runs": ("get",),
}
"""What the bot asks of GitHub. A request to anything else fails the test that made it: add it here."""

UNREAD = frozenset({"description", "summary", "examples", "example", "externalDocs", "x-github", "tags", "operationId"})


def main() -> int:
    """Writes the two files."""
    with tempfile.TemporaryDirectory() as folder:
        whole = json.loads(member(OPENAPI, "generated/api.github.com.json", Path(folder)))
        payloads = json.loads(member(EXAMPLES, "api.github.com/index.json", Path(folder)))
    write(DOCUMENT, trimmed(whole))
    write(WEBHOOKS, payloads)
    return 0


def write(path: Path, value: object) -> None:
    """The same value gives the same text."""
    text = json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"
    path.write_bytes(lzma.compress(text) if path.suffix == ".xz" else text)
    print(f"{path.name}: {path.stat().st_size:,} bytes, sha256 of its text {digest(path)}")


def text_of(path: Path) -> bytes:
    """The JSON, uncompressed."""
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def digest(path: Path) -> str:
    """SHA-256 of the uncompressed JSON: another version of the compressor may make other bytes of it."""
    return hashlib.sha256(text_of(path)).hexdigest()


def member(package: Package, name: str, folder: Path) -> bytes:
    """One file of the package. Raises ValueError when it is not the package that was meant."""
    argv = ["npm", "pack", "--silent", "--pack-destination", str(folder), f"{package.name}@{package.version}"]
    packed = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    archive = folder / packed.stdout.split()[-1]
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if found != package.sha512:
        raise ValueError(f"{package.name} {package.version} has sha512 {found}, not {package.sha512}")
    with tarfile.open(archive) as tar:
        file = tar.extractfile(f"package/{name}")
        assert file is not None
        return file.read()


def trimmed(whole: Json) -> Json:
    """The calls of `CALLED` with every schema that they need, and nothing that is only for readers."""
    paths = {path: {one: whole["paths"][path][one] for one in methods} for path, methods in CALLED.items()}
    shared = {path: whole["paths"][path].get("parameters") for path in CALLED}
    for path, parameters in shared.items():
        if parameters:
            paths[path]["parameters"] = parameters
    bare = without_unread(paths)
    return {
        "openapi": whole["openapi"],
        "info": {"title": whole["info"]["title"], "version": whole["info"]["version"], "license": {"name": "MIT"}},
        "servers": [{"url": "https://api.github.com"}],
        "paths": bare,
        "components": components(whole, bare),
    }


def components(whole: Json, paths: Json) -> Json:
    """Everything that `$ref` reaches from `paths`."""
    made: Json = {}
    wanted, seen = list(references(paths)), set[str]()
    while wanted:
        reference = wanted.pop()
        if reference in seen:
            continue
        seen.add(reference)
        _, section, kind, name = reference.split("/", 3)
        part = without_unread(whole[section][kind][name])
        made.setdefault(kind, {})[name] = part
        wanted += references(part)
    return made


def references(part: object) -> Iterator[str]:
    """Every `$ref` in it."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


def without_unread(part: Any, *, names: bool = False) -> Any:
    """`names`: the keys are a user's words (properties, schemas), none of which is left out."""
    if isinstance(part, dict):
        kept = part if names else {key: value for key, value in part.items() if key not in UNREAD}
        return {
            key: without_unread(value, names=not names and key in ("properties", "patternProperties"))
            for key, value in kept.items()
        }
    if isinstance(part, list):
        return [without_unread(value) for value in part]
    return part


if __name__ == "__main__":
    sys.exit(main())
