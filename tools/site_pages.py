"""Change pages for `make docs`.

- Remove the marks of code blocks, which are for the tests.
- Rank pages of the guide first in the search.
- Turn the names of rules into links to the rules.
- Let long names in tables break on telephones. Keep options of commands and dates whole.
- Add the table to the page of pylance's names.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Final

__all__ = ["on_page_content", "on_page_markdown"]

_MARKED = re.compile(r"^```(\w+) [^\n]*$", re.MULTILINE)
"""First line of a code block with a mark, such as ``python spark``; see ``tests/docs``."""

_RULE: Final = re.compile(r"(?<=\s)\{#((?!rel-)[a-z0-9-]+)\}")
"""The name of a rule, after its text. Cells of reliability.md show the name before it."""

_CELL_CODE: Final = re.compile(r"(?<=<code>)[^<]+(?=</code>[^\n]*</td>)")

_BREAK: Final = re.compile(r"(?<=[\w)][_./(=,])(?=\w)|(?<=[a-z])(?=[A-Z])")

_WHOLE: Final = re.compile(r"<code>(?=--?[a-z][a-z-]*</code>)|<td>(?=\d{4}-\d\d-\d\d</td>)")
"""Browsers would break lines after a hyphen of ``--dry-run`` or 2026-11-21."""

_BOOSTS: Final = {"guide": 4.0, "adr": 0.5}
"""Factors for the rank of pages in the search, by folder."""


def on_page_markdown(markdown: str, page: Any, **_site: Any) -> str:
    """Leave only the language in the first lines of code blocks, and rank the page."""
    if page.file.src_uri == "guide/names.md":
        markdown += "\n" + _names()
    folder = page.file.src_uri.partition("/")[0]
    page.meta.setdefault("search", {"boost": _BOOSTS.get(folder, 1.0)})
    markdown = _RULE.sub(r'<a class="rule" id="\1" href="#\1">\1</a>', markdown)
    return _MARKED.sub(r"```\1", markdown)


def on_page_content(html: str, **_site: Any) -> str:
    """Mark where code in cells of tables may break on telephones, and what never breaks.

    ``docs/site.css`` says how the marks look.
    """
    broken = _CELL_CODE.sub(lambda code: _BREAK.sub("<wbr>", code[0]), html)
    return _WHOLE.sub(lambda tag: f'{tag[0][:-1]} class="whole">', broken)


def _names() -> str:
    """Return the names of pylance and their states, from both libraries as installed."""
    # mkdocs puts the folder of its script on the path, not the root of the repository.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests.interop.pylance_names import table

    return table()
