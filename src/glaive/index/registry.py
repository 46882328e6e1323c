"""Find a kind of index by the type of its details message.

Each module in ``glaive.index.scalar``, ``.text`` and ``.vector`` may define a class decorated
with ``@index_kind``. Importing the folders' modules fills the table, so adding a kind is
adding a file.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

from glaive.format.pb import table_pb2
from glaive.index.protocol import IndexKind
from glaive.table.indices import kind_name

__all__ = ["index_kind", "index_kinds", "kind_of"]

_FOUND: dict[str, type[IndexKind]] = {}
_FOLDERS = ("scalar", "text", "vector")

K = TypeVar("K", bound=type[IndexKind])


def index_kind(cls: K) -> K:
    """Class decorator: make a kind known under its ``name``."""
    if _FOUND.setdefault(cls.name, cls) is not cls:
        raise TypeError(f"two kinds of index claim the name {cls.name!r}")
    return cls


@cache
def index_kinds() -> dict[str, IndexKind]:
    """Return all kinds by name."""
    import glaive.index as package

    for found in iter_modules(package.__path__, f"{package.__name__}."):
        if found.ispkg and found.name.rpartition(".")[2] in _FOLDERS:
            folder = import_module(found.name)
            for module in iter_modules(folder.__path__, f"{folder.__name__}."):
                import_module(module.name)
    return {name: cls() for name, cls in sorted(_FOUND.items())}


def kind_of(entry: table_pb2.IndexMetadata) -> IndexKind | None:
    """The kind of an entry; ``None`` if this version of glaive does not know it."""
    return index_kinds().get(kind_name(entry.index_details.type_url))
