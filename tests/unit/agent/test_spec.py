"""Secrets of the spec become environment, as they are, and win over nothing that is promised."""

from __future__ import annotations

from gpurun_agent import protocol
from gpurun_agent.spec import Spec
from gpurun_agent.surroundings import Surroundings


def test_secrets_are_environment_of_the_job_whatever_is_in_them():
    fields = [
        ("token", "t"),
        ("env", "SEED=0"),
        ("secret", "KEY=a=b\nsecond line\n"),
        ("secret", b"BYTES=\xff\xfe"),
        ("secret", "=nothing"),
    ]
    spec = Spec(protocol.decode(protocol.encode(fields)))
    assert spec.env == [("SEED", "0")]
    assert spec.secrets == [("KEY", "a=b\nsecond line\n"), ("BYTES", "\udcff\udcfe")]
    env = Surroundings({"PATH": "/bin", "KEY": "of the image", "HOME": "/"}).job_env(spec)
    assert (env["KEY"], env["SEED"], env["GPURUN"]) == ("a=b\nsecond line\n", "0", "1")
    assert env["BYTES"] == "\udcff\udcfe"
