"""Print the oldest dependencies that pyproject.toml allows, pinned, for ``make oldest``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def main() -> None:
    """Turn every ``name>=version`` into ``name==version``."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    for requirement in (*project["dependencies"], *project["optional-dependencies"]["jit"]):
        name, version = re.match(r"([\w-]+)>=([\w.]+)", requirement).groups()  # type: ignore[union-attr]  # all have a lower bound
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
