"""Find a kind of index by the type of its details message.

Each module in ``glaive.index.scalar``, ``.text`` and ``.vector`` may define classes decorated
with ``@index_kind``. Importing a module registers its kinds: to add a kind, add a file. Where
those of this package are is listed, so that a process imports those that its datasets have.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Final, TypeVar

from glaive.format.fields import LanceSchema
from glaive.format.pb import table_pb2
from glaive.index.protocol import IndexKind
from glaive.table.index_coverage import kind_name

__all__ = ["index_kind", "index_kinds", "kind_by_files", "kind_by_name", "kind_of"]

_REGISTERED: dict[str, type[IndexKind]] = {}
_MADE: dict[str, IndexKind] = {}
_FOLDERS = ("scalar", "text", "vector")

_HOMES: Final = {
    "bitmap": "scalar.bitmap",
    "bloomfilter": "scalar.bloomfilter",
    "btree": "scalar.btree",
    "fm": "scalar.fm",
    "inverted": "text.inverted",
    "json": "scalar.json_path",
    "labellist": "scalar.bitmap",
    "minhashlsh": "scalar.minhash",
    "ngram": "scalar.ngram",
    "rtree": "scalar.rtree",
    "vector": "vector.vector_index",
    "zonemap": "scalar.zonemap",
}
"""Modules by kind. One that is not listed is found after all modules were imported."""

K = TypeVar("K", bound=type[IndexKind])


def index_kind(cls: K) -> K:
    """Class decorator: register a kind under its ``name``."""
    if _REGISTERED.setdefault(cls.name, cls) is not cls:
        raise TypeError(f"two kinds of index claim the name {cls.name!r}")
    return cls


@cache
def index_kinds() -> dict[str, IndexKind]:
    """Return all kinds by name."""
    import glaive.index as package

    for folder_info in iter_modules(package.__path__, f"{package.__name__}."):
        if folder_info.ispkg and folder_info.name.rpartition(".")[2] in _FOLDERS:
            folder = import_module(folder_info.name)
            for module in iter_modules(folder.__path__, f"{folder.__name__}."):
                import_module(module.name)
    return {name: _MADE.setdefault(name, cls()) for name, cls in sorted(_REGISTERED.items())}


def kind_by_name(name: str) -> IndexKind | None:
    """The kind of a name, whose module is imported if need be; None if there is none."""
    known = _MADE.get(name)
    if known is not None:
        return known
    home = _HOMES.get(name)
    if home is None:
        return index_kinds().get(name)
    import_module(f"glaive.index.{home}")
    return _MADE.setdefault(name, _REGISTERED[name]())


def kind_of(
    entry: table_pb2.IndexMetadata, files: Iterable[str] = (), schema: LanceSchema | None = None
) -> IndexKind | None:
    """The kind of an entry; ``None`` if the kind, or its format version, is not known.

    Entries by old writers have no details: ``files`` and the type of the column, which is in
    ``schema``, then determine the kind.
    """
    name = kind_name(entry.index_details.type_url)
    kind = kind_by_name(name) if name else kind_by_files(files)
    if not name and schema is not None and kind is not None and kind.name == "bitmap":
        of_lists = any(schema.field_by_id(field).logical_type == "list" for field in entry.fields)
        kind = kind_by_name("labellist") if of_lists else kind
    return kind if kind is not None and entry.index_version <= kind.newest else None


def kind_by_files(names: Iterable[str]) -> IndexKind | None:
    """The kind that has one of its ``markers`` among these files."""
    present = frozenset(names)
    kinds = index_kinds().values()
    return next((kind for kind in kinds if not present.isdisjoint(kind.markers)), None)
