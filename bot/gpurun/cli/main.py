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


PATH_HELP = (
    "Take the .gpurun.yml of FOLDER, named from the top of the checkout as in a comment. Default: the one at the top."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(gpurun.__version__, prog_name="gpurun")
def cli() -> None:
    """Run the pinned command of a job on a GPU, the same way each time.

    A job is an entry of .gpurun.yml: an image by digest, models by revision, a command.
    """


@cli.command(epilog=EXIT_CODES)
@click.argument("job")
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
def run(job: str, checkout: Path, artifacts: Path | None, as_json: bool) -> None:  # noqa: FBT001 (click passes flags like this)
    """Run JOB of this checkout in a container, without GitHub."""
    try:
        from gpurun.cli.run import Output, Wish, run_job

        wish = Wish(job=job, checkout=checkout, artifacts_dir=artifacts)
        sys.exit(run_job(wish, Output.JSON if as_json else Output.PEOPLE))
    except KeyboardInterrupt:  # while it was still loading
        sys.exit(130)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), required=False)
def validate(file: Path | None) -> None:
    """Check FILE (default: .gpurun.yml at the top of the checkout; `-` for stdin) and say where it is wrong."""
    from gpurun.cli.validate import default_file, validate_file

    sys.exit(validate_file(file or default_file()))


@cli.command(
    epilog="Exit codes: 0 planned, 2 usage, config or a name that nothing pins, 3 the hub was needed and is silent."
)
@click.argument("job")
@click.option(
    "--commit",
    metavar="SHA|REF",
    help="Plan this commit, branch or tag. Default: the checkout as it is, with what is not committed.",
)
@click.option("--path", metavar="FOLDER", help=PATH_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(job: str, commit: str | None, path: str | None, as_json: bool) -> None:  # noqa: FBT001 (click passes flags like this)
    """Show what a run of JOB would be: commit, image, model files, command and digest. Runs nothing.

    Names are pinned by .gpurun.lock. The hub is asked only for what neither the lock nor an earlier
    run has said: the files of a model that the file pins itself, and the SHA-256 of small files.
    """
    try:
        from gpurun.cli.plan import Wish, plan_json, plan_people

        wish = Wish(job=job, commit=commit, path=path)
        sys.exit(plan_json(wish) if as_json else plan_people(wish))
    except KeyboardInterrupt:
        sys.exit(130)


@cli.command(epilog="Exit codes: 0 no plan differs, 1 one does, 2 usage, config or a name that nothing pins.")
@click.argument("a")
@click.argument("b")
@click.argument("job", required=False)
@click.option("--path", metavar="FOLDER", help=PATH_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def diff(a: str, b: str, job: str | None, path: str | None, as_json: bool) -> None:  # noqa: FBT001 (click passes flags like this)
    """Compare the plans of two commits A and B, branches or tags, for JOB or for all jobs.

    Told are image, models and their files, commands, variables, secrets, resources, limits and artifacts.
    The other files of the commits are git's business: `git diff A B`.
    """
    try:
        from gpurun.cli.diff import Wish, diff_json, diff_people

        wish = Wish(a=a, b=b, job=job, path=path)
        sys.exit(diff_json(wish) if as_json else diff_people(wish))
    except KeyboardInterrupt:
        sys.exit(130)


@cli.group()
def config() -> None:
    """What the file means."""


@config.command("show")
@click.argument("job")
@click.option("--path", metavar="FOLDER", help=PATH_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def config_show(job: str, path: str | None, as_json: bool) -> None:  # noqa: FBT001 (click passes flags like this)
    """Show every key of JOB: what applies, and where that was written.

    A value comes from the job, from `defaults`, from the preset of its kind, or is built in.
    """
    from gpurun.cli.config_show import show_json, show_people

    sys.exit(show_json(job, path) if as_json else show_people(job, path))


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
