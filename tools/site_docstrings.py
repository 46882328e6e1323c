"""Convert docstrings to Markdown for the site; they are written for ``help``, too.

References such as ``:func:`read``` become plain names. Line drawings become code blocks. The
options that the decorators ``shows…`` add at run time join the docstrings in the source.
"""

from __future__ import annotations

import inspect
import pydoc
import re
from typing import Any

from griffe import Extension, Function, Object

__all__ = ["PlainDocstrings", "plain", "with_options"]

_ROLE = re.compile(r":(?:func|meth|class|mod|attr|data|exc):`~?([^`]+)`")
_DRAWING = re.compile(r"^\w+\n(?:[ │]*[├└]──[^\n]*\n)+", re.MULTILINE)

_OPEN = "glaive.dataset.open.dataset"
_SCANNER = "glaive.dataset.dataset.LanceDataset.scanner"
_SCAN = re.compile(r"shows_options\(|shows\(.*\bScanOptions\b")
_SEE = "[`LanceDataset.scanner`][glaive.LanceDataset.scanner] describes the options."


def plain(docstring: str) -> str:
    """Convert a docstring to Markdown."""
    named = _ROLE.sub(r"`\1`", docstring).replace(f"`{_OPEN}`", f"[`glaive.dataset`][{_OPEN}]")
    return _DRAWING.sub(lambda found: f"```text\n{found[0]}```\n", named)


class PlainDocstrings(Extension):
    """An extension that converts docstrings to Markdown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Handle a module, class, function or attribute."""
        if obj.docstring is not None:
            written = obj.docstring.value
            whole = with_options(obj, written) if isinstance(obj, Function) else written
            obj.docstring.value = plain(whole)


def with_options(function: Function, written: str) -> str:
    """Return the docstring with the options of the decorators; describe options of scans once."""
    decorators = [str(decorator.value) for decorator in function.decorators]
    if not any(decorator.startswith("shows") for decorator in decorators):
        return written
    if function.path != _SCANNER and any(map(_SCAN.match, decorators)):
        summary, _, rest = written.partition("\n\n")
        return f"{summary}\n\n{_SEE}\n\n{rest}"
    return inspect.getdoc(pydoc.locate(function.path)) or written
