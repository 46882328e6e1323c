"""Arrow's functions from ``pyarrow.compute``, which is loaded when the first one is used.

It describes all of them to Python while it loads: 30 ms, a tenth of a first search that an index
answers. This module is for modules that such a process loads, though it may call few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow.compute import *  # noqa: F403  # all of them, under their names


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import pyarrow.compute

    found = globals()[name] = getattr(pyarrow.compute, name)
    return found
