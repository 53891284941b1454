"""The `gpurun` command. Only click is imported here: everything heavy is imported by the command that needs it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

import gpurun

EXIT_CODES = """
\b
Exit codes: 0 passed, 1 failed or timeout, 2 usage, config or refused,
3 lost (no Docker Engine answers, or it failed), 130 cancelled.

\b
Ctrl-C asks the job to stop, a second one removes its container, a third one
leaves at once. What a killed `gpurun run` left is removed by the next one.
"""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(gpurun.__version__, prog_name="gpurun")
def cli() -> None:
    """Run the pinned command of a job on a GPU, the same way each time.

    A job is an entry of .gpurun.yml: an image by digest, models by revision, a command.
    """


@cli.command(epilog=EXIT_CODES)
@click.argument("job")
@click.option(
    "--path",
    metavar="FOLDER",
    help="Take the .gpurun.yml of FOLDER, named from the top of the checkout as in a comment; `.` is the top. "
    "Default: the nearest one above the current folder.",
)
@click.option(
    "--checkout",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="A folder inside the git checkout to run from. Default: the current folder.",
)
@click.option(
    "--artifacts",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write artifacts into this folder. Default: one of the run's own, which is named at the end.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object; the log goes to stderr.")
def run(job: str, path: str | None, checkout: Path, artifacts: Path | None, as_json: bool) -> None:  # noqa: FBT001 (click passes flags like this)
    """Run JOB of this checkout in a container, without GitHub."""
    try:
        from gpurun.cli.run import Output, Wish, run_job

        wish = Wish(job=job, path=path, checkout=checkout, artifacts_dir=artifacts)
        sys.exit(run_job(wish, Output.JSON if as_json else Output.PEOPLE))
    except KeyboardInterrupt:  # while it was still loading
        sys.exit(130)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), required=False)
def validate(file: Path | None) -> None:
    """Check FILE (default: the nearest .gpurun.yml above this folder; `-` for stdin) and say where it is wrong."""
    from gpurun.cli.validate import default_file, validate_file

    sys.exit(validate_file(file or default_file()))


@cli.command()
def serve() -> None:
    """Serve webhooks, agents and pages, and carry out runs. Settings: GPURUN_* environment variables."""
    from gpurun.cli.serve import serve as serve_forever

    sys.exit(serve_forever())


@cli.group()
def db() -> None:
    """The database."""


@db.command("upgrade")
def db_upgrade() -> None:
    """Bring the tables to this version."""
    from gpurun.cli.database import upgrade

    sys.exit(upgrade())


@db.command("check")
def db_check() -> None:
    """Say whether the tables are those of this version. Exit 1 when not."""
    from gpurun.cli.database import check

    sys.exit(check())


@db.command("adopt")
def db_adopt() -> None:
    """Use a database that was copied from another host. Stop the other server first."""
    from gpurun.cli.database import adopt

    sys.exit(adopt())


@cli.group()
def audit() -> None:
    """The audit log."""


@audit.command("verify")
def audit_verify() -> None:
    """Walk the whole hash chain. Exit 1 and the first bad position when it does not hold."""
    from gpurun.cli.database import verify_audit

    sys.exit(verify_audit())


def main() -> None:
    """Entry point."""
    cli(prog_name="gpurun")
