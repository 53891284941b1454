"""`python -m gpurun` and the `gpurun` command."""

from gpurun.cli.main import main

if __name__ == "__main__":
    main()
