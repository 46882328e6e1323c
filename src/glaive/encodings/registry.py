"""Find a value encoding, a page layout or an array encoding by the name it has on the wire.

Each module in ``glaive.encodings.values`` defines one class decorated with
``@value_encoding``, each module in ``glaive.encodings.pages`` one decorated with
``@page_layout``, each module in ``glaive.encodings.arrays`` one decorated with
``@array_encoding``. Importing the folder's modules fills the tables, so adding an encoding is
adding a file: no list to extend, no switch to grow.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

import pyarrow as pa

from glaive.encodings.array_protocol import ArrayEncoding
from glaive.encodings.protocol import PageBytes, PageReader, ValueEncoding
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.types import Where

__all__ = [
    "array_encoding",
    "array_encodings",
    "open_page",
    "page_layout",
    "page_layouts",
    "read_array",
    "read_encoding",
    "value_encoding",
    "value_encodings",
]

_VALUES: dict[str, type[ValueEncoding]] = {}
_PAGES: dict[str, type[PageReader]] = {}
_ARRAYS: dict[str, type[ArrayEncoding]] = {}

V = TypeVar("V", bound=type[ValueEncoding])
P = TypeVar("P", bound=type[PageReader])
A = TypeVar("A", bound=type[ArrayEncoding])


def value_encoding(cls: V) -> V:
    """Class decorator: make an encoding known under its ``wire_name``."""
    if _VALUES.setdefault(cls.wire_name, cls) is not cls:
        raise TypeError(f"two encodings claim the wire name {cls.wire_name!r}")
    return cls


def page_layout(cls: P) -> P:
    """Class decorator: make a page layout known under its ``wire_name``."""
    if _PAGES.setdefault(cls.wire_name, cls) is not cls:
        raise TypeError(f"two page layouts claim the wire name {cls.wire_name!r}")
    return cls


def array_encoding(cls: A) -> A:
    """Class decorator: make an array encoding known under its ``wire_name``."""
    if _ARRAYS.setdefault(cls.wire_name, cls) is not cls:
        raise TypeError(f"two array encodings claim the wire name {cls.wire_name!r}")
    return cls


@cache
def value_encodings() -> dict[str, type[ValueEncoding]]:
    """Return all value encodings by wire name."""
    from glaive.encodings import values

    _import_all(values)
    return dict(sorted(_VALUES.items()))


@cache
def page_layouts() -> dict[str, type[PageReader]]:
    """Return all page layouts by wire name."""
    from glaive.encodings import pages

    _import_all(pages)
    return dict(sorted(_PAGES.items()))


@cache
def array_encodings() -> dict[str, type[ArrayEncoding]]:
    """Return all array encodings by wire name."""
    from glaive.encodings import arrays

    _import_all(arrays)
    return dict(sorted(_ARRAYS.items()))


def _import_all(package: Any) -> None:
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)


def read_encoding(message: Any, where: Where) -> ValueEncoding:
    """Turn a wire ``CompressiveEncoding`` into the encoding it describes.

    Raises
    ------
    CorruptFileError
        The message names no encoding, or its configuration contradicts itself.
    UnsupportedFeatureError
        The encoding is one this reader does not know; the message lists those it knows.
    """
    name = message.WhichOneof("compression")
    if name is None:
        raise CorruptFileError(
            "value encoding", expected="one of the known encodings", found="none", where=where
        )
    try:
        cls = value_encodings()[name]
    except KeyError:
        raise _unknown("value encoding", name, value_encodings(), where) from None
    return cls.from_wire(getattr(message, name), where)


def open_page(message: Any, page: PageBytes) -> PageReader:
    """Turn a wire ``PageLayout`` into a reader of that page. Reads nothing."""
    name = message.WhichOneof("layout")
    if name is None:
        raise CorruptFileError(
            "page layout", expected="one of the known layouts", found="none", where=page.where
        )
    try:
        cls = page_layouts()[name]
    except KeyError:
        raise _unknown("page layout", name, page_layouts(), page.where) from None
    return cls.from_wire(getattr(message, name), page)


def read_array(
    message: Any, kind: pa.DataType, count: int | None, page: PageBytes, *, top: bool = False
) -> ArrayEncoding:
    """Turn a wire ``ArrayEncoding`` into the encoding of ``count`` values of ``kind``.

    Encodings that give the shape of nested columns, not values, stand at the ``top`` only.

    Raises
    ------
    CorruptFileError
        The message names no encoding, or one that cannot give such values.
    UnsupportedFeatureError
        The encoding is one this reader does not know; the message lists those it knows.
    """
    name = message.WhichOneof("array_encoding")
    if name is None:
        raise CorruptFileError(
            "array encoding", expected="one of the known encodings", found="none", where=page.where
        )
    try:
        cls = array_encodings()[name]
    except KeyError:
        raise _unknown("array encoding", name, array_encodings(), page.where) from None
    if cls.structural and not top:
        raise CorruptFileError(
            "array encoding", expected=f"values of type {kind}", found=name, where=page.where
        )
    return cls.from_wire(getattr(message, name), kind, count, page)


def _unknown(kind: str, name: str, known: dict[str, Any], where: Where) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"unknown {kind} {name!r} (in {where}); this reader knows {', '.join(known)}. "
        "The file was probably written by a newer Lance: upgrade glaive."
    )
