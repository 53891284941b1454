"""The `gpurun` command. Only click is imported here: the command that needs more imports it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

import gpurun
from gpurun.cli.commands import Commands, Commit, Job

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

EXIT_CODES = """
\b
Exit codes: 0 passed, 1 failed or timeout, 2 usage, config or refused,
3 lost (no Docker Engine answers, or it failed), 4 passed, but artifacts could not be
written where they were wanted, 130 cancelled.

\b
Ctrl-C asks the job to stop, a second one removes its container, a third one
leaves at once. What a killed `gpurun run` left is removed by the next one.
"""


def jobs_at_tab(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For every argument JOB: the names that a shell offers."""
    from gpurun.cli.completion import complete_job

    return complete_job(context, parameter, incomplete)


PATH_HELP = (
    "Take the .gpurun.yml of FOLDER, named from the top of the checkout as in a comment; `.` is the top. "
    "Default: the nearest one above the current folder."
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(gpurun.__version__, prog_name="gpurun")
def cli() -> None:
    """Run the pinned command of a job on a GPU, the same way each time.

    A job is an entry of .gpurun.yml: an image by digest, models by revision, a command.
    """


@cli.command(epilog=EXIT_CODES)
@click.argument("job", cls=Job, shell_complete=jobs_at_tab)
@click.option("--path", metavar="FOLDER", help=PATH_HELP)
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
@click.option(
    "--env-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Values of the job's secrets, NAME=value a line. Default: .env at the top of the checkout.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object; the log goes to stderr.")
def run(
    job: str,
    path: str | None,
    checkout: Path,
    artifacts: Path | None,
    env_file: Path | None,
    as_json: bool,  # noqa: FBT001 (click passes flags like this)
) -> None:
    """Run JOB of this checkout in a container, without GitHub."""
    from gpurun.cli.run import Output, Wish, run_job

    wish = Wish(job=job, path=path, checkout=checkout, artifacts_dir=artifacts, env_file=env_file)
    sys.exit(run_job(wish, Output.JSON if as_json else Output.PEOPLE))


@cli.command()
@click.option(
    "--path",
    metavar="FOLDER",
    help="Write the file of FOLDER, named from the top of the checkout; `.` is the top. Default: the current folder.",
)
@click.option("--print", "print_only", is_flag=True, help="Print the file and write nothing.")
def init(path: str | None, print_only: bool) -> None:  # noqa: FBT001 (click passes flags like this)
    """Write a first .gpurun.yml for a folder of this checkout, from the files in it.

    Reads Dockerfile, requirements, pyproject.toml, notebooks and the calls in Python code that load models. Runs
    nothing, asks nobody, and leaves a file that is there as it is.
    """
    from gpurun.cli.init import show_starter, write_starter

    sys.exit((show_starter if print_only else write_starter)(Path(), path))


@cli.command()
@click.argument("files", type=click.Path(path_type=Path, allow_dash=True), nargs=-1)
@click.option("--path", metavar="FOLDER", help=PATH_HELP)
def validate(files: tuple[Path, ...], path: str | None) -> None:
    """Check FILES (default: the nearest .gpurun.yml above this folder; `-` for stdin) and say where they are wrong.

    A folder stands for its .gpurun.yml.
    """
    from gpurun.cli.validate import validate_files

    sys.exit(validate_files(files, path))


@cli.command(
    epilog="Exit codes: 0 pinned, 1 `--check` found a pin that is missing or not needed, 2 usage, config or a pin that "
    "does not exist, 3 a registry or the hub is silent."
)
@click.argument("files", type=click.Path(path_type=Path), nargs=-1)
@click.option("--path", metavar="FOLDER", help=PATH_HELP)
@click.option("--check", is_flag=True, help="Write nothing and ask nobody; exit 1 when a pin is missing or not needed.")
@click.option(
    "--upgrade",
    metavar="[JOB]",
    is_flag=False,
    flag_value="",
    help="Look up again what is pinned already, for all jobs or for JOB, and show old → new.",
)
def lock(
    files: tuple[Path, ...],
    path: str | None,
    check: bool,  # noqa: FBT001 (click passes flags like this)
    upgrade: str | None,
) -> None:
    """Pin what .gpurun.yml names by tag or branch, in .gpurun.lock beside it.

    A name that is pinned stays as it is. FILES: default the nearest .gpurun.yml above this folder. A folder
    stands for its .gpurun.yml.
    """
    from gpurun.cli.lock import check_locks
    from gpurun.cli.lock import lock as write_locks

    if check and upgrade is not None:
        raise click.UsageError("--check looks nothing up, and --upgrade does. Use one of them.")
    sys.exit(check_locks(files, path) if check else write_locks(files, path, upgrade=upgrade))


@cli.command(
    epilog="Exit codes: 0 planned, 2 usage, config or a name that nothing pins, 3 git failed, or the hub was needed "
    "and is silent."
)
@click.argument("job", cls=Job, shell_complete=jobs_at_tab)
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
    from gpurun.cli.plan import Wish, plan_json, plan_people

    wish = Wish(job=job, commit=commit, path=path)
    sys.exit(plan_json(wish) if as_json else plan_people(wish))


@cli.command(
    epilog="Exit codes: 0 no plan differs, 1 one does or a job is only in one commit, 2 usage, config or a name that "
    "nothing pins, 3 git failed."
)
@click.argument("a", cls=Commit)
@click.argument("b", cls=Commit)
@click.argument("job", required=False, shell_complete=jobs_at_tab)
@click.option("--path", metavar="FOLDER", help=PATH_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def diff(a: str, b: str, job: str | None, path: str | None, as_json: bool) -> None:  # noqa: FBT001 (click passes flags like this)
    """Compare the plans of two commits A and B, branches or tags, for JOB or for all jobs.

    Told are image, models and their files, commands, variables, secrets, resources, limits and artifacts.
    The other files of the commits are git's business: `git diff A B`.
    """
    from gpurun.cli.diff import Wish, diff_json, diff_people

    wish = Wish(a=a, b=b, job=job, path=path)
    sys.exit(diff_json(wish) if as_json else diff_people(wish))


@cli.group()
def config() -> None:
    """What the file means."""


@config.command("show")
@click.argument("job", cls=Job, shell_complete=jobs_at_tab)
@click.option("--path", metavar="FOLDER", help=PATH_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def config_show(job: str, path: str | None, as_json: bool) -> None:  # noqa: FBT001 (click passes flags like this)
    """Show every key of JOB: what applies, and where that was written.

    A value comes from the job, from `defaults`, from the preset of its kind, or is built in.
    """
    from gpurun.cli.config_show import show_json, show_people

    sys.exit(show_json(job, path) if as_json else show_people(job, path))


@cli.command(
    epilog="Exit codes: 0 all there and verified, 1 a file could not be got or verified, 2 usage, an address that "
    "opens nothing, or a file in the way, 3 the server cannot be reached, 130 interrupted."
)
@click.argument("address", metavar="RUN-URL")
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write into this folder. Default: one that is named after the run, in the current folder.",
)
@click.option("--list", "list_only", is_flag=True, help="Show what there is, and write nothing.")
@click.option("--force", is_flag=True, help="Replace files that are there and differ.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def artifacts(
    address: str,
    patterns: tuple[str, ...],
    folder: Path | None,
    list_only: bool,  # noqa: FBT001 (click passes flags like this)
    force: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> None:
    """Download the artifacts of the run whose page is RUN-URL, all of them or those that a PATTERN means.

    RUN-URL is the link in the comment, with its key and in quotes; `-` reads it from stdin, so that the key stays
    out of the shell's history. Every file is verified by its sha256. A download that broke off goes on where it was
    when the command is repeated, and what is there already is left as it is. Patterns are those of `artifacts` in
    .gpurun.yml.
    """
    from gpurun.cli.download import Wish, download

    wish = Wish(address=address, patterns=patterns, folder=folder, list_only=list_only, force=force)
    sys.exit(download(wish, as_json=as_json))


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


@cli.group()
def cache() -> None:
    """Verified models and data sets on this machine's disk. Works while a server and runs use them."""


@cache.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def cache_list(as_json: bool) -> None:  # noqa: FBT001 (click passes flags like this)
    """What is there, how large it is, when it was last used, and by how many live runs now."""
    from gpurun.cli.cache import Output, list_cache

    sys.exit(list_cache(Output.JSON if as_json else Output.PEOPLE))


@cache.command(
    "prune",
    epilog="Exit codes: 0 all of it is gone, 1 some of it is used by live runs and stays, 2 usage, or a folder that "
    "cannot be written to.",
)
@click.option("--all", "everything", is_flag=True, help="Everything that no live run uses.")
@click.option("--older-than", metavar="AGE", default="", help="What was not used for so long, such as 12h or 7d.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def cache_prune(everything: bool, older_than: str, as_json: bool) -> None:  # noqa: FBT001 (click passes flags like this)
    """Remove the least recently used, down to GPURUN_WEIGHTS_CACHE_MIB, and old unfinished downloads.

    What a live run uses stays, whatever is asked for.
    """
    from gpurun.cli.cache import Output, Prune, prune_cache

    if everything and older_than:
        raise click.UsageError("--all is more than --older-than. Use one of them.")
    wish = Prune(everything=everything, older_than=older_than)
    sys.exit(prune_cache(wish, Output.JSON if as_json else Output.PEOPLE))


@cli.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print what SHELL needs to complete commands, options and jobs at the tab key.

    \b
    bash: eval "$(gpurun completion bash)"                in ~/.bashrc
    zsh:  eval "$(gpurun completion zsh)"                 in ~/.zshrc, behind compinit
    fish: gpurun completion fish > ~/.config/fish/completions/gpurun.fish
    """  # noqa: D301 - click wants the character
    from gpurun.cli.completion import script

    click.echo(script(shell), nl=False)


@cli.group()
def secret() -> None:
    """Secrets of repositories, for jobs that name them. Works while the server runs."""


_REPO = click.option("--repo", required=True, metavar="OWNER/NAME", help="The repository whose jobs get it.")


@secret.command("set")
@click.argument("name")
@_REPO
def secret_set(name: str, repo: str) -> None:
    """Keep a value under NAME: asked for without showing it, or read from stdin when that is no terminal."""
    from gpurun.cli.secret import set_secret

    sys.exit(set_secret(name, repo))


@secret.command("list")
@_REPO
def secret_list(repo: str) -> None:
    """Names, when and by whom they were set, never values. Exit 1 when one cannot be read any more."""
    from gpurun.cli.secret import list_secrets

    sys.exit(list_secrets(repo))


@secret.command("rm")
@click.argument("name")
@_REPO
def secret_rm(name: str, repo: str) -> None:
    """Remove NAME. Runs that have it keep it until they end."""
    from gpurun.cli.secret import remove_secret

    sys.exit(remove_secret(name, repo))


@secret.command("rotate")
def secret_rotate() -> None:
    """Make a new key and seal every secret with it. May be stopped at any time and done again."""
    from gpurun.cli.secret import rotate

    sys.exit(rotate())


def main() -> None:
    """Entry point."""
    from gpurun.cli.output import exit_code

    sys.exit(exit_code(lambda: cli(prog_name="gpurun")))
