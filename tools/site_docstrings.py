"""Convert docstrings to Markdown for the site; they are written for ``help``, too.

References such as ``:func:`read``` become plain names. Line drawings become code blocks.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

__all__ = ["PlainDocstrings", "plain"]

_ROLE = re.compile(r":(?:func|meth|class|mod|attr|data|exc):`~?([^`]+)`")
_DRAWING = re.compile(r"^\w+\n(?:[ │]*[├└]──[^\n]*\n)+", re.MULTILINE)


def plain(docstring: str) -> str:
    """Convert a docstring to Markdown."""
    named = _ROLE.sub(r"`\1`", docstring)
    return _DRAWING.sub(lambda found: f"```text\n{found[0]}```\n", named)


class PlainDocstrings(Extension):
    """An extension that converts docstrings to Markdown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Handle a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = plain(obj.docstring.value)
