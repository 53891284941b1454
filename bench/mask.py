"""The bot's mask with 50 secrets in all their forms: MB/s of one core, and beside an alternation of `re`.

The text is a training log without secrets, in appends of 256 KiB, as an agent sends it.
"""

from __future__ import annotations

import base64
import random
import re
import time
from collections.abc import Callable

from pydantic import SecretStr

from bench.harness import Figure, at_least, compare
from gpurun.telemetry.redact import Masker
from gpurun_agent.mask import Masker as AgentMasker

SECRETS = 50
GOAL_MB_S = 100
GOAL_BESIDE_RE = 0.02
GOAL_AGENT_MB_S = 50
APPEND_BYTES = 256 * 1024

Mask = Callable[[bytes], bytes]


def main() -> list[Figure]:
    """Two figures, and the agent's."""
    masker = Masker([SecretStr(value) for value in secrets(SECRETS)])
    print(f"{SECRETS} secrets, {len(masker.needles)} needles")
    appends = blocks(training_log(100_000))
    alternation = re.compile(b"|".join(re.escape(needle) for needle in sorted(masker.needles, reverse=True)))
    one = appends[:1]
    agent = AgentMasker(masker.needles)
    return [
        at_least("bot's mask, 50 secrets, all forms, MB/s", rate(masker.take, appends), GOAL_MB_S),
        compare(
            "bot's mask vs re alternation",
            subject=lambda: cpu_seconds(masker.take, one),
            anchor=lambda: cpu_seconds(lambda text: alternation.sub(b"", text), one),
            goal=GOAL_BESIDE_RE,
            rounds=5,
        ),
        at_least("agent's mask, 50 secrets, all forms, MB/s", rate(agent.feed, appends), GOAL_AGENT_MB_S),
    ]


def rate(mask: Mask, appends: list[bytes]) -> float:
    """MB per second of CPU, best of five."""
    return sum(map(len, appends)) / min(cpu_seconds(mask, appends) for _ in range(5)) / 1e6


def cpu_seconds(mask: Mask, appends: list[bytes]) -> float:
    """Of this process: others on the machine do not count."""
    start = time.process_time()
    for append in appends:
        mask(append)
    return time.process_time() - start


def secrets(n: int, seed: int = 50) -> list[str]:
    """Tokens of 20 to 40 random bytes, as services make them."""
    chance = random.Random(seed)
    return [base64.urlsafe_b64encode(chance.randbytes(chance.randint(20, 40))).decode().rstrip("=") for _ in range(n)]


def training_log(n_lines: int) -> bytes:
    """Lines of 100 bytes."""
    chance = random.Random(1)
    lines = (
        f"step {at:06d} loss {chance.random():.6f} lr {chance.random():.3e} tokens/s {chance.random() * 1e5:.1f} "
        f"grad_norm {chance.random():.4f}".ljust(99, ".")
        for at in range(n_lines)
    )
    return "".join(f"{line}\n" for line in lines).encode()


def blocks(text: bytes) -> list[bytes]:
    """As appends."""
    return [text[at : at + APPEND_BYTES] for at in range(0, len(text), APPEND_BYTES)]
