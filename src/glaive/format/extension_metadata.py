"""Parameters of Arrow's own extension types in the metadata of fields, checked before Arrow.

Arrow makes types of them wherever a schema comes in: here, in workers of Spark, in other libraries.
Some of the versions that are supported end the process over axes that there are not, and over JSON
that is nested deeply, so that such entries are never given to it. Nor is what DuckDB would believe
of types that it knows: where values are stored in another way, it reads memory that is not there.
Names that are right, but that others should not act on, are withheld: read under other keys, which
become the name again in what is written.

Types of other packages get their parameters only as text or JSON: Arrow calls the class that was
registered under a name with the bytes of the file, and some classes unpickle them, which runs what
the bytes say. Names of types whose values are pickles are withheld: their packages unpickle these
where somebody looks at them. So are those by which Polars has objects of Python: it takes what a
file says for an address in its memory, and ends the process over that of another one. And so is
Arrow's own type of other systems over dictionaries and times with a zone: pyarrow ends the process
where such a column, of which any schema may tell, becomes one of pandas.

So are the categories of an ``Enum`` of Polars, which are those of a column's first writer: all
other values, as of later writers, Polars reads as null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

import pyarrow as pa

from glaive.arrow.validation import without_json_strings
from glaive.format.logical_types import CATEGORIES, EXTENSION_METADATA, EXTENSION_NAME, WITHHELD

_LONGEST: Final = 1 << 20
_MOST_BRACKETS: Final = 64
"""Of JSON, which has three of them: nothing is nested deeper than there are brackets."""


def without_unfit(metadata: Mapping[str, bytes], data_type: pa.DataType) -> dict[str, bytes]:
    """The entries, less those of an extension type of Arrow whose parameters do not fit.

    Those of variants, pickles and objects, and of types that pyarrow cannot give to pandas, are
    withheld, and so are those of other types that are neither text nor JSON, and categories of
    Polars.

    Parameters
    ----------
    metadata
        Of a field.
    data_type
        Its storage type.
    """
    metadata = {CATEGORIES.get(key, key): value for key, value in metadata.items()}
    name, said = metadata.get(EXTENSION_NAME, b""), metadata.get(EXTENSION_METADATA, b"")
    check = _CHECKS.get(name)
    if check is not None:
        if not check(_parameters(said), data_type):
            return _without(metadata, EXTENSION_NAME, EXTENSION_METADATA)
        return withheld(metadata) if _is_unshown(data_type) else metadata
    if name.startswith(b"lance.") and not _is_text(said):
        return _without(metadata, EXTENSION_METADATA)  # no type of Lance has such parameters
    if _is_acted_on(name, said) or not (_is_printable(name) and _is_text(said)):
        return withheld(metadata)
    return metadata


def _is_acted_on(name: bytes, said: bytes) -> bool:
    """Whether a library does with the values of a type what nobody should do with a stranger's."""
    if name == _OF_DAFT:  # marks may also be written as escapes
        return b"Python" in said or b"\\" in said
    return name in (_VARIANT, _OF_RAY, *_OF_POLARS)


def _is_unshown(data_type: pa.DataType) -> bool:
    """Whether pyarrow ends the process where an extension type of these values goes to pandas."""
    types = pa.types
    zoned = types.is_timestamp(data_type) and bool(data_type.tz)
    return zoned or types.is_dictionary(data_type)


def _without(metadata: Mapping[str, bytes], *keys: str) -> dict[str, bytes]:
    return {key: value for key, value in metadata.items() if key not in keys}


def _is_text(said: bytes) -> bool:
    """Whether parameters are JSON, or printable ASCII in one line.

    No pickle begins as JSON does. One that names a function, to be called, has line breaks or bytes
    that are no ASCII.
    """
    if not said.startswith((b"{", b"[", b'"')):
        return _is_printable(said)
    try:
        said.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_printable(said: bytes) -> bool:
    return said.isascii() and said.decode("ascii").isprintable()


def withheld(metadata: Mapping[str, bytes]) -> dict[str, bytes]:
    """The entries, with those of an extension type under keys that no other library knows."""
    return {WITHHELD.get(key, key): value for key, value in metadata.items()}


def restored(metadata: dict[str, bytes]) -> dict[str, bytes]:
    """The entries, with those that were withheld under their own keys.

    Names that decide how Lance stores values stay withheld: the column is stored in another way.
    """
    own = {other: key for key, other in CATEGORIES.items() if key not in metadata}
    name = metadata.get(WITHHELD[EXTENSION_NAME])
    if name is not None and EXTENSION_NAME not in metadata and not name.startswith(_OF_LANCE):
        own |= {other: key for key, other in WITHHELD.items()}
    return {own.get(key, key): value for key, value in metadata.items()}


def _parameters(said: bytes) -> dict[str, Any]:
    """The members of a JSON object; none if it is something else."""
    import json

    marks = without_json_strings(said[: _LONGEST + 1])
    if len(said) > _LONGEST or marks.count(b"[") + marks.count(b"{") > _MOST_BRACKETS:
        return {}
    try:
        given = json.loads(said.decode(), object_pairs_hook=_members)
    except (ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object; of those with one name, readers take the first or the last."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name is repeated")
    return members


def _is_fixed(given: Mapping[str, Any], data_type: Any) -> bool:
    shape: Any = given.get("shape")
    return (
        isinstance(data_type, pa.FixedSizeListType)
        and _are_sizes(shape)
        and prod(shape) == data_type.list_size
        and _has_axes(given, len(shape))
    )


def _is_variable(given: Mapping[str, Any], data_type: Any) -> bool:
    at = data_type.get_field_index("shape") if pa.types.is_struct(data_type) else -1
    if at < 0 or not isinstance(data_type.field(at).type, pa.FixedSizeListType):
        return False
    axes, uniform = data_type.field(at).type.list_size, given.get("uniform_shape")
    known = [] if uniform is None else uniform
    if not isinstance(known, list) or not _are_sizes([size for size in known if size is not None]):
        return False
    return len(known) in (0, axes) and _has_axes(given, axes)


def _is_opaque(given: Mapping[str, Any], data_type: Any) -> bool:
    name, vendor = given.get("type_name"), given.get("vendor_name")
    if not isinstance(name, str) or not isinstance(vendor, str):
        return False
    if vendor.lower() != "duckdb" or name.lower() not in _OF_DUCKDB:
        return True
    stored = _OF_DUCKDB[name.lower()]
    return stored is not None and bool(data_type.equals(stored))


def _is_uuid(_given: Mapping[str, Any], data_type: Any) -> bool:
    return bool(data_type.equals(pa.binary(16)))


def _is_bool8(_given: Mapping[str, Any], data_type: Any) -> bool:
    return bool(data_type.equals(pa.int8()))


def _are_sizes(shape: Any) -> bool:
    return isinstance(shape, list) and all(type(one) is int and 0 <= one < 2**31 for one in shape)


def _has_axes(given: Mapping[str, Any], axes: int) -> bool:
    """Whether the order and the names of axes, if they are given, are those of so many."""
    if "permutation" in given:
        order: Any = given["permutation"]
        if not _are_sizes(order) or len(order) != axes or sorted(order) != [*range(len(order))]:
            return False
    if "dim_names" in given:
        names: Any = given["dim_names"]
        if not isinstance(names, list) or len(names) != axes:
            return False
        return all(isinstance(name, str) for name in names)
    return True


_VARIANT: Final = b"arrow.parquet.variant"
"""Arrow has no such type in Python. DuckDB decodes its values, to any depth of its stack."""

_OF_RAY: Final = b"ray.data.arrow_pickled_object"
_OF_DAFT: Final = b"daft.super_extension"
"""Any type of Daft, of which objects of Python are pickles; parameters name the type, as JSON."""

_OF_POLARS: Final = (b"_POLARS_PYTHON_OBJECT", b"POLARS_EXTENSION_TYPE")
"""The second one is that of older versions."""

_OF_LANCE: Final = (b"lance.", b"arrow.json")

_OF_DUCKDB: Final[dict[str, pa.DataType | None]] = {
    "hugeint": pa.binary(16),
    "uhugeint": pa.binary(16),
    "time_tz": pa.binary(8),
    "bit": None,
    "bignum": None,
    "varint": None,
}
"""Types whose values DuckDB reads without a look at how they are stored; None: nor at the bytes of
each, of which the first ones say how many bits or digits there are. ``varint`` is an older name."""

_CHECKS: Final[dict[bytes, Callable[[Mapping[str, Any], Any], bool]]] = {
    b"arrow.fixed_shape_tensor": _is_fixed,
    b"arrow.variable_shape_tensor": _is_variable,
    b"arrow.opaque": _is_opaque,
    b"arrow.uuid": _is_uuid,
    b"arrow.bool8": _is_bool8,
}
