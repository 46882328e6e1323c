"""Avro: blocks of records become tables; read by the package fastavro."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from decimal import Context
from functools import partial
from io import BytesIO
from itertools import islice
from typing import Any, ClassVar, Final
from uuid import UUID

import pyarrow as pa

from glaive.arrow.widths import total_width, width_of
from glaive.config import USUAL_RATIO, settings
from glaive.errors import FormatError, GlaiveError, MissingDependencyError, UnsupportedFeatureError
from glaive.ingestion.formats.options import known_options
from glaive.ingestion.sources import (
    Piece,
    Rejects,
    Rows,
    SourceFile,
    SourceFormat,
    open_source,
    refuse_failure,
)

# --- What blocks of an Avro file say: how much they decode to, before that, and their records
# fastavro decodes each as a whole, however much that is: 400 bytes of bzip2 stand for 300 MB.

_PART: Final = 1 << 20

_DEFLATE_RATIO: Final = 1032
"""The most that deflate can do: smaller blocks need no look at all."""

_SHARE_WITH_LISTS: Final = 256
"""Each item becomes an object of Python, of a hundred times its bytes or more, and all those of a
record are there at once: what may be so is limited to this part of what bytes may be."""

_DAMAGE: Final = (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError)


def check_block(codec: str, data: bytes, *, has_lists: bool = False) -> None:
    """Refuse a block that decodes to far more than it is, and than a page may.

    Parameters
    ----------
    codec
        As the header of the file names it.
    data
        The compressed block. Damage is for its reader to find.
    has_lists
        Its records have lists or maps.

    Raises
    ------
    EOFError
        It does.
    """
    allowed = settings.max_decoded_bytes_per_page // (_SHARE_WITH_LISTS if has_lists else 1)
    most = max(allowed, USUAL_RATIO * len(data))
    if codec in _STATED:
        stated, ratio = _STATED[codec]
        size = stated(data)
        if size > min(most, ratio * len(data)):
            raise EOFError(
                f"a block of {len(data)} bytes says that it decodes to {size}. Where it may be so, "
                "set GLAIVE_MAX_DECODED_BYTES_PER_PAGE"
            )
    if codec not in _PARTS or (codec == "deflate" and _DEFLATE_RATIO * len(data) <= most):
        return
    total, parts = 0, _PARTS[codec](data)
    while total <= most:
        try:
            size = next(parts, 0)
        except _DAMAGE:
            return
        if not size:
            return
        total += size
    raise EOFError(
        f"a block of {len(data)} bytes decodes to more than {most}. To allow more, set "
        "GLAIVE_MAX_DECODED_BYTES_PER_PAGE"
    )


def check_end(block: Any) -> None:
    """Refuse a block that has bytes behind its records: their number is a claim of the file.

    Parameters
    ----------
    block
        Of fastavro, whose records were read; None: there is none.

    Raises
    ------
    ValueError
        It has.
    """
    if block is not None and block.bytes_.read(1):
        raise ValueError(f"bytes behind the {block.num_records} records that it states")


def _deflated(data: bytes) -> Iterator[int]:
    decoder = zlib.decompressobj(-zlib.MAX_WBITS)
    while data:
        yield len(decoder.decompress(data, _PART))
        data = decoder.unconsumed_tail


def _read(kind: Callable[[BytesIO], Any], data: bytes) -> Iterator[int]:
    with kind(BytesIO(data)) as opened:
        while size := len(opened.read(_PART)):
            yield size


def _zstd(source: BytesIO) -> Any:
    return pa.CompressedInputStream(source, "zstd")


def _snappy_size(data: bytes) -> int:
    size = 0
    for at, byte in enumerate(data[:5]):
        size |= (byte & 127) << 7 * at
        if byte < 128:
            break
    return size


def _lz4_size(data: bytes) -> int:
    return int.from_bytes(data[:4], "little")


_STATED: Final[dict[str, tuple[Callable[[bytes], int], int]]] = {
    "lz4": (_lz4_size, 255),
    "snappy": (_snappy_size, 22),
}
"""The size that a block says, for which its decoder takes memory at once, and the most times its
own size that it can be.
"""

_PARTS: Final[dict[str, Callable[[bytes], Iterator[int]]]] = {
    "bzip2": partial(_read, bz2.BZ2File),
    "deflate": _deflated,
    "xz": partial(_read, lzma.LZMAFile),
    "zstandard": partial(_read, _zstd),
}
"""Sizes of the parts that a block decodes to, one after the other."""


_PLAIN: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}

_LOGICAL: Final[dict[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}
"""Types by the one that is stored and the logical one. On other types a logical one means nothing,
as Avro has it: a null that is said to be a date takes no bytes still."""

_MOST_TYPES: Final = 100_000
"""Types of a schema, each counted where it is named: records of two of the one before are 2^n."""

_BATCH_ROWS: Final = 64 * 1024
"""Records that are objects of Python at a time: each takes a hundred times its bytes, or more."""

_BATCH_BYTES: Final = 64 << 20
"""Bytes of their values of a fixed width in Arrow, which nulls take as well, of a byte each."""

_MOST_FIXED: Final = 1024
"""Bytes of a ``fixed`` that its column has as such: a null takes as many. Others are ``binary``."""

_MOST_SYMBOL: Final = 256
"""Letters of a symbol of an enum, which becomes a text in each row: in the file it is a number."""

_WIDE_ITEM: Final = 256
"""Bytes of an item from which nulls in lists are counted before Arrow makes room for them."""

_DECIMAL_BYTES: Final = 32
"""Of the widest decimal. The time that a number takes grows with the square of its bytes."""

_DECIMALS: Final = Context(prec=77)  # digits that 32 bytes have at most

_WIDER: Final = ("int", "long", "float", "double")
"""Numbers of a union become the last of these that it has."""


class Avro(SourceFormat):
    """Avro files. No options. A file is one task."""

    name = "avro"
    suffixes: ClassVar[tuple[str, ...]] = (".avro",)

    def __init__(self, options: Mapping[str, object]) -> None:
        known_options(self.name, options, ())

    def schema(self, file: SourceFile) -> pa.Schema:
        """Columns from the header."""
        with open_source(file) as source:
            return _columns(_blocks(Bounded(source, file), file), file)

    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Batches of at most 65,536 rows, fewer where rows are wide; memory for these, and for the
        bytes of a block.
        """
        file = piece.file
        with open_source(file) as source:
            bounded = Bounded(source, file)
            blocks = _blocks(bounded, file)
            columns = _columns(blocks, file)
            bounded.has_lists = any(map(_has_lists, columns.types))
            given = set(columns.names)
            names = [name for name in schema.names if name in given]
            has_uuids = "uuid" in str(blocks.writer_schema)
            width = total_width(columns.types).known
            rows = max(1, min(_BATCH_ROWS, int(_BATCH_BYTES // max(width, 1))))
            number, block, records = -1, None, iter(())
            while True:
                try:
                    part = list(islice(records, rows))
                    if not part:
                        check_end(block)
                        number += 1
                        block = next(blocks, None)
                        if block is None:
                            return
                        records = iter(block)
                        continue
                    batch = _batch(part, columns, names, has_uuids=has_uuids)
                except Exception as error:  # fastavro has no errors of its own
                    _refuse_codec(error, file)
                    # Where the next block begins is not known.
                    rejects.add_damaged(file, f"block {number}", error)
                    return
                yield batch


_MARK_BYTES: Final = 16
"""Of the mark behind each block."""


class _Known(dict[str, Any]):
    """Definitions by name, those of decimals, and how many types there may still be."""

    left = _MOST_TYPES

    def __init__(self) -> None:
        self.decimals: list[dict[str, Any]] = []


class Bounded:
    """A file of which no more is asked for than there is: lengths in it may be anything.

    ``codec`` is set once the header was read: that of the blocks, which are checked as well;
    ``has_lists``, whether their records have lists or maps.
    """

    def __init__(self, source: Any, file: SourceFile) -> None:
        self._source, self._at, self.codec, self.has_lists = source, 0, "null", False
        self._after_long = False
        self._most = max(file.size, 1) if file.compression is None else 1 << 30

    def read(self, size: int) -> bytes:
        """So many bytes, or those that are left."""
        if not 0 <= size <= self._most:
            raise EOFError(f"{size} bytes are said to follow")
        found: bytes = self._source.read(size)
        self._at += len(found)
        is_block = size > _MARK_BYTES or (size > 1 and self._after_long)
        if self.codec != "null" and is_block:
            check_block(self.codec, found, has_lists=self.has_lists)
        self._after_long = size == 1  # its bytes are read one by one; a block follows its length
        return found

    def tell(self) -> int:
        """How many bytes were read."""
        return self._at


def _blocks(source: Bounded, file: SourceFile) -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise MissingDependencyError(
            "Avro files need the package fastavro: pip install 'glaive[avro]'"
        ) from error
    try:
        file_like: Any = source  # has the methods that are called
        blocks: Any = fastavro.block_reader(file_like)
    except Exception as error:
        refuse_failure(file, error)
        raise FormatError(f"{file.uri} is not an Avro file: {error!r}") from error
    source.codec = f"{blocks.codec}"
    return blocks


def _refuse_codec(error: Exception, file: SourceFile) -> None:
    """Refuse a sound file with blocks that fastavro cannot decode: its records are not bad.

    Raises
    ------
    MissingDependencyError, UnsupportedFeatureError
        The error says so.
    """
    text = str(error)
    if not isinstance(error, ValueError):
        return
    if text.startswith("Unrecognized codec: "):
        raise UnsupportedFeatureError(f"{file.uri}: {text}. Write the file with deflate") from error
    if "codec is supported but you need to install" in text:
        raise MissingDependencyError(f"{file.uri}: its {text}") from error


def _columns(blocks: Any, file: SourceFile) -> pa.Schema:
    written: Any = blocks.writer_schema
    if not isinstance(written, dict) or written.get("type") != "record":
        raise UnsupportedFeatureError(f"{file.uri}: Avro values that are no records")
    known = _Known()
    try:
        columns = pa.schema(_type_of(written, file.uri, known, ()))
    except GlaiveError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FormatError(f"{file.uri}: its Avro schema is damaged: {error!r}") from error
    for decimal in known.decimals:
        # fastavro is to give their bytes: how many there are is looked at first.
        decimal.pop("logicalType", None)
    return columns


def _type_of(written: Any, where: str, known: _Known, within: tuple[str, ...]) -> Any:
    """The Arrow type of an Avro type.

    Parameters
    ----------
    known
        Types by name: where one is named again, its definition is not repeated.
    within
        Names of the records around it.
    """
    known.left -= 1
    if known.left < 0:
        raise UnsupportedFeatureError(
            f"{where}: its Avro schema stands for more than {_MOST_TYPES:,} types. Write the file "
            "with a schema of fewer columns"
        )
    if isinstance(written, list):
        return _type_of_union(written, where, known, within)
    if not isinstance(written, dict):
        return _PLAIN.get(written) or _type_of_name(written, where, known, within)
    kind = written["type"]
    if isinstance(kind, dict | list):
        return _type_of(kind, where, known, within)
    if "name" in written:
        known[written["name"]] = written
    logical = _logical_type(written)
    if logical is not None:
        if pa.types.is_decimal(logical):
            known.decimals.append(written)
        return logical
    if kind == "fixed":
        sized = pa.binary(written["size"])
        return sized if written["size"] <= _MOST_FIXED else pa.binary()
    if kind == "enum" and any(len(symbol) > _MOST_SYMBOL for symbol in written["symbols"]):
        raise UnsupportedFeatureError(
            f"{where}: the Avro enum {written['name']!r:.80} has a symbol of more than "
            f"{_MOST_SYMBOL} letters. Write the file with strings"
        )
    if kind == "array":
        return pa.list_(_sized(_type_of(written["items"], where, known, within), where))
    if kind == "map":
        return pa.map_(pa.string(), _type_of(written["values"], where, known, within))
    if kind in ("record", "error"):
        inner = (*within, written["name"])
        fields = [
            pa.field(field["name"], _type_of(field["type"], where, known, inner))
            for field in written["fields"]
        ]
        return _sized(pa.struct(fields), where)
    return _PLAIN[kind]


def _type_of_name(name: Any, where: str, known: _Known, within: tuple[str, ...]) -> Any:
    """The type of a definition. A name of Avro's own types is never one, as for fastavro."""
    if name in within:
        raise UnsupportedFeatureError(f"{where}: the Avro record {name} contains itself")
    return _type_of(known[name], where, known, within)


def _logical_type(written: Mapping[str, Any]) -> Any:
    """The type that values of a logical type become; None: those of the type below."""
    kind, logical = written["type"], str(written.get("logicalType"))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        wide = written["precision"] > 38
        decimal = pa.decimal256 if wide else pa.decimal128
        return decimal(written["precision"], written.get("scale", 0))
    return _LOGICAL.get((kind, logical))


def _type_of_union(parts: list[Any], where: str, known: _Known, within: Any) -> Any:
    kinds = [part for part in parts if part != "null"]
    if len(kinds) > 1 and all(kind in _WIDER for kind in kinds):
        kinds = [max(kinds, key=_WIDER.index)]
        if kinds == ["float"]:  # with integers, which it cannot hold
            kinds = ["double"]
    if not kinds:
        return pa.null()
    if len(kinds) > 1:
        raise UnsupportedFeatureError(
            f"{where}: an Avro union of {kinds}; write the file with one type and null"
        )
    return _type_of(kinds[0], where, known, within)


def _sized(kind: Any, where: str) -> Any:
    """The type, unless its values take no bytes: a file could claim any number of them."""
    if _takes_no_bytes(kind):
        raise UnsupportedFeatureError(f"{where}: Avro values that take no bytes ({kind})")
    return kind


def _takes_no_bytes(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return all(_takes_no_bytes(field.type) for field in kind)
    return pa.types.is_null(kind) or kind == pa.binary(0)


def _has_lists(kind: Any) -> bool:
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return True
    return any(_has_lists(kind.field(number).type) for number in range(kind.num_fields))


def _has_wide_items(kind: Any) -> bool:
    if pa.types.is_list(kind) and width_of(kind.value_type).known > _WIDE_ITEM:
        return True
    if pa.types.is_map(kind) and width_of(kind.item_type).known > _WIDE_ITEM:
        return True
    return any(_has_wide_items(kind.field(number).type) for number in range(kind.num_fields))


def _bytes_of_nulls(values: list[Any], kind: Any) -> float:
    """Bytes in Arrow of nulls in lists and maps: as many as those of other items."""
    there = [value for value in values if value is not None]
    if pa.types.is_struct(kind):
        return sum(
            _bytes_of_nulls([value[field.name] for value in there], field.type) for field in kind
        )
    if pa.types.is_map(kind):
        items, inner = [item for value in there for item in value.values()], kind.item_type
    elif pa.types.is_list(kind):
        items, inner = [item for value in there for item in value], kind.value_type
    else:
        return 0
    return items.count(None) * width_of(inner).known + _bytes_of_nulls(items, inner)


def _batch(
    records: list[Any], columns: pa.Schema, names: list[str], *, has_uuids: bool
) -> pa.RecordBatch:
    arrays: list[Any] = []
    for name in names:
        kind: Any = columns.field(name).type
        values = [record[name] for record in records]
        if _has_wide_items(kind):
            size, most = _bytes_of_nulls(values, kind), settings.max_decoded_bytes_per_page // 4
            if size > most:
                raise ValueError(
                    f"nulls in lists of column {name!r:.80} take {size:.0f} bytes in memory, at "
                    f"most {most}. To allow more, set GLAIVE_MAX_DECODED_BYTES_PER_PAGE"
                )
        if has_uuids or _is_other_for_arrow(kind):
            values = [_for_arrow(value, kind) for value in values]
        arrays.append(pa.array(values, kind))
    return pa.record_batch(arrays, names)


def _is_other_for_arrow(kind: Any) -> bool:
    """Whether fastavro gives values, or some within them, in another form than Arrow takes."""
    if pa.types.is_map(kind) or pa.types.is_decimal(kind):
        return True
    return any(_is_other_for_arrow(kind.field(number).type) for number in range(kind.num_fields))


def _for_arrow(value: Any, kind: Any) -> Any:
    """A value whose maps are lists of pairs, decimals numbers, and UUIDs texts."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(key, _for_arrow(one, kind.item_type)) for key, one in value.items()]
    if pa.types.is_list(kind):
        return [_for_arrow(one, kind.value_type) for one in value]
    if pa.types.is_struct(kind):
        return {field.name: _for_arrow(value[field.name], field.type) for field in kind}
    if pa.types.is_decimal(kind):
        wider = len(value) - _DECIMAL_BYTES
        if wider > 0 and value[:wider] not in (bytes(wider), b"\xff" * wider):
            raise ValueError(f"a decimal of {len(value)} bytes; at most {_DECIMAL_BYTES} count")
        unscaled = _DECIMALS.create_decimal(int.from_bytes(value, "big", signed=True))
        return unscaled.scaleb(-kind.scale, _DECIMALS)
    if isinstance(value, UUID):
        return value.bytes if pa.types.is_fixed_size_binary(kind) else str(value)
    return value
