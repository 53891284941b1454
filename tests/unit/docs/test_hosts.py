"""The repository names no host that packages come from: that is the business of whoever installs."""

from __future__ import annotations

from tests.unit.docs.pages import name_of, tracked

# In pieces, so that this file is clean too.
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("security", "ubuntu", "com"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("rubygems", "org"),
        ("anaconda", "org"),
        ("anaconda", "com"),
        ("dl-cdn", "alpinelinux", "org"),
    )
]


def test_no_file_names_a_package_registry():
    found = {
        (name_of(path), host)
        for path in tracked()
        for content in [path.read_bytes()]
        for host in HOSTS
        if host.encode() in content
    }
    assert found == set()
