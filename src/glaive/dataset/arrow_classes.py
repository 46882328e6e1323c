"""Datasets, fragments and scanners are those of pyarrow for who asks with ``isinstance``.

pylance's classes derive from pyarrow's: DuckDB, LanceDB and others ask. Deriving from them would
load pyarrow.dataset, a quarter of a second, whenever a dataset is opened. So ``__class__`` says so
only once pyarrow.dataset is loaded, before which nobody can ask.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from functools import cache, partial
from typing import Any


class ArrowNamed:
    """Name pyarrow's module among the bases of a class, and offer nothing.

    DuckDB 2 looks there before it asks with ``isinstance``. Without it, DuckDB pushes no filter.
    """

    __module__ = "pyarrow._dataset"


@cache
def _derived(own_class: Hashable, name: str) -> type:
    from pyarrow import dataset

    cls: Any = own_class
    body = {"__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls, getattr(dataset, name)), body)


def _shown(name: str, self: Any) -> type:
    cls: Any = type(self)
    asked = "pyarrow._dataset" in sys.modules or "duckdb" in sys.modules
    return _derived(cls, name) if asked else cls


def class_for_arrow(name: str) -> Any:
    """``__class__`` of a class: itself; one of pyarrow.dataset, too, once that or DuckDB is loaded.

    DuckDB asks for pyarrow's class only if it is loaded; then it reads what a query needs. Datasets
    have no ``__arrow_c_stream__``, as pylance's: DuckDB would prefer it, and read all.

    Parameters
    ----------
    name
        Of the class in pyarrow.dataset. The class with this ``__class__`` has no slots.
    """
    return property(partial(_shown, name), doc="The class.")
