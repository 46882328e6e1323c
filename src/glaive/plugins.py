"""Find what installed packages add to glaive.

A package names its additions as entry points, for example in its ``pyproject.toml``::

    [project.entry-points."glaive.functions"]
    twice = "my_package:twice"

The groups are ``glaive.encodings``, ``glaive.indices``, ``glaive.functions``, ``glaive.stores``
and ``glaive.formats``. glaive looks for entry points where it does not know a name itself, so that
they cost nothing else. Source: "Extensions" in ``docs/guide/extensions.md``.
"""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def added(group: str) -> dict[str, Any]:
    """Load the entry points of a group, such as ``"stores"``.

    Returns
    -------
    dict
        The objects by the names of the entry points.

    Raises
    ------
    Exception
        An entry point cannot be imported; a note names it.
    """
    from importlib.metadata import entry_points

    found = {}
    for entry in entry_points(group=f"glaive.{group}"):
        try:
            found[entry.name] = entry.load()
        except Exception as error:
            error.add_note(f"while loading {entry.name!r} = {entry.value} of glaive.{group}")
            raise
    return found
