"""Where the boot script enters."""

from __future__ import annotations

import os


def main() -> None:
    """Runs the attempt and exits: 0 told, 75 could not tell, 1 broken before there was anything to tell."""
    try:
        from gpurun_agent.loop import Loop
        from gpurun_agent.run import Run
        from gpurun_agent.surroundings import Surroundings, environment

        env = environment(dict(os.environ))  # noqa: TID251  # another program than the bot
        code = Run(Loop(), Surroundings(env)).go()
    except ImportError as exc:
        code = _give_up("missing-module %s" % (exc.name or exc))
    except Exception as exc:  # the border of the process: nothing above could say more than this
        code = _give_up("agent %s: %s" % (type(exc).__name__, exc))
    os._exit(code)


def _give_up(words: str) -> int:
    """The boot script's kind of line: until the claim it is trusted. Texts of errors hold no secrets."""
    attempt = os.environ.get("GPURUN_ATTEMPT", "?")  # noqa: TID251  # as above
    print("::gpurun-boot 1 %s error %s" % (attempt, words), flush=True)  # noqa: T201  # nothing else is left
    return 1
