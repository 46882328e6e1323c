"""What the site does to docstrings, which are written for ``help``, too.

References such as ``:func:`read``` become plain names, and a drawing of lines a block of its
own.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

__all__ = ["PlainDocstrings", "plain"]

_ROLE = re.compile(r":(?:func|meth|class|mod|attr|data|exc):`~?([^`]+)`")
_DRAWING = re.compile(r"^\w+\n(?:[ │]*[├└]──[^\n]*\n)+", re.MULTILINE)


def plain(docstring: str) -> str:
    """The docstring as Markdown."""
    named = _ROLE.sub(r"`\1`", docstring)
    return _DRAWING.sub(lambda found: f"```text\n{found[0]}```\n", named)


class PlainDocstrings(Extension):
    """Makes docstrings Markdown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """A module, a class, a function or an attribute was read."""
        if obj.docstring is not None:
            obj.docstring.value = plain(obj.docstring.value)
