from __future__ import annotations

import pytest

from gpurun.domain.platform import platform_of_machine, runs_one_of


@pytest.mark.parametrize(
    ("os", "architecture", "platform"),
    [
        ("linux", "x86_64", "linux/amd64"),
        ("linux", "aarch64", "linux/arm64"),
        ("linux", "armv7l", "linux/arm/v7"),
        ("Linux", "AMD64", "linux/amd64"),
        ("linux", "ppc64le", "linux/ppc64le"),
        ("windows", "x86_64", "windows/amd64"),
        ("", "x86_64", ""),
        ("linux", "", ""),
    ],
)
def test_a_machine_in_the_words_of_registries(os, architecture, platform):
    assert platform_of_machine(os, architecture) == platform


@pytest.mark.parametrize(
    ("machine", "platform"),
    [
        ("linux/amd64", "linux/amd64"),
        ("linux/amd64", "linux/amd64/v3"),
        ("linux/amd64", "linux/386"),
        ("linux/arm64", "linux/arm64/v8"),
        ("linux/arm64", "linux/arm/v7"),
        ("linux/arm64", "linux/arm"),
        ("linux/arm/v7", "linux/arm"),
        ("linux/arm/v7", "linux/arm/v6"),
        ("linux/riscv64", "linux/riscv64"),
    ],
)
def test_what_a_machine_runs(machine, platform):
    assert runs_one_of(machine, ["plan9/mips", platform])


@pytest.mark.parametrize(
    ("machine", "platforms"),
    [
        ("linux/amd64", ["linux/arm64", "linux/arm/v7"]),
        ("linux/amd64", ["windows/amd64"]),
        ("linux/arm64", ["linux/amd64"]),
        ("linux/arm/v6", ["linux/arm/v7", "linux/arm"]),
        ("linux/386", ["linux/amd64"]),
        ("linux/amd64", []),
    ],
)
def test_what_it_does_not_run(machine, platforms):
    assert not runs_one_of(machine, platforms)
