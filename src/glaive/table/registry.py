"""The registry of operations by their wire name.

Each module in ``glaive.table.operations`` defines one class decorated with ``@operation``;
importing the modules of the folder registers them.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.transaction import Operation
from glaive.table.protocol import TableOperation

__all__ = ["operation", "operations", "read_operation"]

_FOUND: dict[str, type[TableOperation]] = {}

T = TypeVar("T", bound=type[TableOperation])


def operation(cls: T) -> T:
    """Class decorator: register an operation by its ``wire_name``."""
    if _FOUND.setdefault(cls.wire_name, cls) is not cls:
        raise TypeError(f"two operations have the wire name {cls.wire_name!r}")
    return cls


@cache
def operations() -> dict[str, type[TableOperation]]:
    """Return all operations by wire name."""
    from glaive.table import operations as package

    for module in iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    return dict(sorted(_FOUND.items()))


def read_operation(read: Operation) -> TableOperation:
    """Convert an operation that was read to a table operation; those are returned unchanged.

    Raises
    ------
    CorruptFileError
        Its message cannot be right.
    UnsupportedFeatureError
        This version of glaive does not support the operation.
    """
    name = read.wire_name
    known = operations()
    if name is None or name not in known:
        raise UnsupportedFeatureError(
            f"this version of glaive does not support the operation {name!r}; it supports "
            f"{', '.join(known)}. Use the library that created the transaction, or upgrade glaive."
        )
    cls = known[name]
    if isinstance(read, cls):
        return read
    try:
        return cls.from_wire(read.to_wire())
    except CorruptFileError as error:
        place = getattr(read, "where", None)
        if place is None:
            raise
        where = f"{place}, {error.where}"
        what, expected, found = error.what, error.expected, error.found
        raise CorruptFileError(what, expected=expected, found=found, where=where) from error
