"""What `make docs` changes about pages: the marks of code blocks are for the tests only."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["on_page_markdown"]

_MARKED = re.compile(r"^```(\w+) [^\n]*$", re.MULTILINE)
"""The first line of a code block with a mark, such as ``python spark``; see ``tests/docs``."""


def on_page_markdown(markdown: str, **_page: Any) -> str:
    """Leave only the language in the first lines of code blocks."""
    return _MARKED.sub(r"```\1", markdown)
