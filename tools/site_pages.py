"""What `make docs` changes about pages.

Marks of code blocks are for the tests only; the search finds pages of the guide first. The page of
pylance's names gets its table.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Final

__all__ = ["on_page_markdown"]

_MARKED = re.compile(r"^```(\w+) [^\n]*$", re.MULTILINE)
"""The first line of a code block with a mark, such as ``python spark``; see ``tests/docs``."""

_BOOSTS: Final = {"guide": 2.0, "reference": 1.5, "adr": 0.5}
"""How much sooner than others the search finds the pages of a folder."""


def on_page_markdown(markdown: str, page: Any, **_site: Any) -> str:
    """Leave only the language in the first lines of code blocks, and rank the page."""
    if page.file.src_uri == "guide/names.md":
        markdown += "\n" + _names()
    folder = page.file.src_uri.partition("/")[0]
    page.meta.setdefault("search", {"boost": _BOOSTS.get(folder, 1.0)})
    return _MARKED.sub(r"```\1", markdown)


def _names() -> str:
    """Return the names of pylance and their states, from both libraries as installed."""
    # mkdocs has the folder of its script on the path, and not the root of the repository.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests.interop.pylance_names import table

    return table()
