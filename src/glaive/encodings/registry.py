"""Find a value encoding, a page layout or an array encoding by the name it has on the wire.

A decorator registers each class: ``@value_encoding`` in ``glaive.encodings.values``,
``@page_layout`` in ``pages``, ``@array_encoding`` in ``array_encodings`` and
``compressed_arrays``, ``@structural_plane`` and ``@value_plane`` in ``plane_encodings``. Importing
a module registers its classes. The registry first imports the module with the name on the wire,
then all modules of the folder.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from glaive.encodings.protocol import PageBytes, PageReader, ValueEncoding
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.types import Where

if TYPE_CHECKING:
    from glaive.encodings.protocol import StructuralPlane, ValuePlane


VALUES: dict[str, type[ValueEncoding]] = {}
PAGES: dict[str, type[PageReader]] = {}
STRUCTURES: dict[str, type[StructuralPlane]] = {}
PLANES: dict[str, type[ValuePlane]] = {}

C = TypeVar("C", bound=type[Any])
K = TypeVar("K")


def register(classes: dict[str, Any], plural: str, cls: C) -> C:
    """Put a class into a table under its ``wire_name``."""
    if classes.setdefault(cls.wire_name, cls) is not cls:
        raise TypeError(f"two {plural} claim the wire name {cls.wire_name!r}")
    return cls


def value_encoding(cls: C) -> C:
    """Register a value encoding under its ``wire_name``; a class decorator."""
    return register(VALUES, "encodings", cls)


def page_layout(cls: C) -> C:
    """Register a page layout under its ``wire_name``; a class decorator."""
    return register(PAGES, "page layouts", cls)


def structural_plane(cls: C) -> C:
    """Register a structural plane under its ``wire_name``; a class decorator."""
    return register(STRUCTURES, "structural planes", cls)


def value_plane(cls: C) -> C:
    """Register a value plane under its ``wire_name``; a class decorator."""
    return register(PLANES, "value planes", cls)


@cache
def value_encodings() -> dict[str, type[ValueEncoding]]:
    """Return all value encodings by wire name."""
    return all_classes(VALUES, "values")


def all_classes(classes: dict[str, type[K]], folder: str) -> dict[str, type[K]]:
    """Import all modules of a folder, or a module; return the classes of one of its tables."""
    from pkgutil import iter_modules

    package = import_module(f"glaive.encodings.{folder}")
    for module in iter_modules(getattr(package, "__path__", ()), f"{package.__name__}."):
        import_module(module.name)
    return dict(sorted(classes.items()))


_NESTED = ("fixed_size_list", "variable_packed_struct")


def read_encoding(message: Any, where: Where) -> ValueEncoding:
    """Turn a wire ``CompressiveEncoding`` into the encoding it describes.

    Raises
    ------
    CorruptFileError
        The name of the encoding is missing, or its configuration contradicts itself.
    UnsupportedFeatureError
        The encoding is unknown; the error lists the known encodings. Or it is within an encoding of
        its own kind.
    """
    name = message.WhichOneof("compression")
    cls = VALUES.get(name) or known_class(VALUES, "values", name, "value encoding", where)
    encoding = cls.from_wire(getattr(message, name), where)
    # Each encoding of a chain takes few bytes, but could multiply the values of the inner-most one
    # and the time to decode them. Lists and structs follow the type.
    if encoding.parts and name not in _NESTED and _holds(encoding, name):
        raise UnsupportedFeatureError(
            f"value encoding {name!r} within another {name!r} (in {where}): Lance writes none. "
            "A few bytes of them would stand for any amount of memory and time"
        )
    return encoding


def _holds(encoding: ValueEncoding, name: str) -> bool:
    """Return whether an encoding of a kind is within another one, which Lance never writes.

    Lance compresses runs whose values or lengths are compressed already.
    """
    own = (encoding.wire_name, name) != ("rle", "general")
    return any((own and part.wire_name == name) or _holds(part, name) for part in encoding.parts)


def open_page(message: Any, page: PageBytes) -> PageReader:
    """Turn a wire ``PageLayout``, or ``PlanarLayout``, into a reader of that page."""
    if message.DESCRIPTOR.name == "PlanarLayout":
        structure = message.structure.WhichOneof("structure")
        values = message.values.WhichOneof("values")
        if structure is None or values is None:
            raise CorruptFileError(
                "planes of a page",
                expected="a structural plane and a value plane",
                found=f"structure {structure}, values {values}",
                where=page.where,
            )
        if not PLANES:
            import_module("glaive.encodings.plane_encodings")  # registers both kinds
        plane, described = PLANES[values], getattr(message.values, values)
        own = getattr(message.structure, structure)
        return STRUCTURES[structure].open_page(own, plane, described, page)
    name = message.WhichOneof("layout")
    cls = PAGES.get(name) or known_class(PAGES, "pages", name, "page layout", page.where)
    return cls.from_wire(getattr(message, name), page)


# Modules that have another name than the wire name of their class.
_MODULES = {
    "inline_bitpacking": "bitpack",
    "out_of_line_bitpacking": "bitpack",
    "byte_stream_split": "flat",
    "constant": "sequences",
    "delta": "sequences",
    "dictionary": "sequences",
    "range": "sequences",
    "variable_packed_struct": "packed_struct",
    "blob_layout": "blob",
    "constant_layout": "constant",
    "full_zip_layout": "full_zip",
    "mini_block_layout": "miniblock",
}


def known_class(
    classes: dict[str, type[K]], folder: str, name: str | None, kind: str, where: Where
) -> type[K]:
    """Import the class that a message names."""
    if name is None:
        expected = f"one of the known {kind.split()[1]}s"
        raise CorruptFileError(kind, expected=expected, found="none", where=where)
    # The name is trusted: it is in the definition of the message.
    parent = import_module(f"glaive.encodings.{folder}")
    home = f"{parent.__name__}.{_MODULES.get(name, name)}"
    if hasattr(parent, "__path__") and find_spec(home) is not None:
        import_module(home)
    known = classes if name in classes else all_classes(classes, folder)
    try:
        return known[name]
    except KeyError:
        raise UnsupportedFeatureError(
            f"unknown {kind} {name!r} (in {where}); this reader knows {', '.join(known)}. "
            "The file was probably written by a newer Lance: upgrade glaive."
        ) from None
