"""Says whether the generated pages are what the code says now. `make docs` writes them."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"


def main() -> int:
    """Prints each stale page; 1 when there is one."""
    pages = runpy.run_path(str(PAGES / "generate.py"), run_name="pages")["PAGES"]
    stale = [name for name, text in pages.items() if _written(PAGES / name) != text()]
    for name in stale:
        print(f"docs/reference/{name} is stale: `make docs`", file=sys.stderr)
    return int(bool(stale))


def _written(page: Path) -> str:
    return page.read_text(encoding="utf-8") if page.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
