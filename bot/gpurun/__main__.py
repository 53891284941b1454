"""`python -m gpurun` and the `gpurun` command."""

import sys


def main() -> None:
    """Entry point. Ctrl-C while the program still loads is as much the end as later: 130, and no word."""
    try:
        from gpurun.cli.main import main as commands

        commands()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
