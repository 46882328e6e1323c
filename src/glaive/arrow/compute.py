"""Arrow's functions: those of ``pyarrow.compute``, which is loaded when the first one is used.

It describes all of them to Python while it loads: 30 ms, a tenth of a first search that an index
answers. For modules that such a process loads, but of which it then uses no function of Arrow.
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
