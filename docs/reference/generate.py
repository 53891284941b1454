"""Writes the generated pages of this folder; `make docs` calls it, a test compares.

python docs/reference/generate.py
"""

from pathlib import Path

from gpurun.cli.reference import cli_page, settings_page
from gpurun.command.reference import commands_page
from gpurun.plan.reference import gpurun_yml_page, json_schema

PAGES = {
    "commands.md": commands_page,
    "gpurun-yml.md": gpurun_yml_page,
    "gpurun-yml.schema.json": json_schema,
    "cli.md": cli_page,
    "settings.md": settings_page,
}


def main() -> None:
    """Writes every page beside this file."""
    for name, text in PAGES.items():
        Path(__file__).with_name(name).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
