"""Fuzzing of pages: data files in which one layout or encoding occurs, for each of them.

A file belongs to the target of each layout and encoding that its pages name, at any depth. It is
opened whole by its bytes: the mistake may be in the values, in the messages or in the footer.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from tests.damage import damaged, page_message, parts_of, rewritten
from tests.kit.simulated_bucket import Bucket
from tests.kit.simulated_store import SimulatedStore
from tests.kit.simulation import Faults, Simulation
from tests.proof.few_bytes.files import few_bytes

import glaive
from glaive.errors import GlaiveError
from glaive.file.open import open_reader
from glaive.file.protocol import FileReader
from glaive.format.paths import DATA
from glaive.format.pb import encodings20_pb2, encodings21_pb2, encodings23_pb2, file2_pb2
from glaive.kernels.fsst import encode_strings, train_symbols
from glaive.kernels.strings import Strings

__all__ = ["PAGE_TARGETS", "damaged_file", "open_data_file", "page_seeds", "read_data_file"]

_KINDS = {
    "array": encodings20_pb2.ArrayEncoding,
    "page": encodings21_pb2.PageLayout,
    "structure": encodings23_pb2.StructuralPlane,
    "plane": encodings23_pb2.ValuePlane,
    "value": encodings21_pb2.CompressiveEncoding,
}
"""Messages of which one field is set, by what names of targets begin with."""

_NEVER = {
    "array-inline-bitpacking",
    "array-out-of-line-bitpacking",
    "array-variable",
    "array-packed-struct-fixed-width-mini-block",
    "array-block",
    "array-rle",
    "array-general-mini-block",
    "array-byte-stream-split",
    "page-sparse-layout",
    "value-extension",
}
"""What no file has: 2.0 ends before them, 2.3 has planes instead of sparse layouts, and extensions
are encodings of other packages.
"""

_MADE, _EACH, _ROWS, _BYTES = 400, 8, 5_000, 16_384


def open_data_file(data: bytes) -> FileReader:
    """Footer, schema and global buffers, and the metadata of all columns."""
    bucket = Bucket("memory://fuzz")
    bucket.put("file.lance", data, "overwrite", 0.0)
    store = SimulatedStore(Simulation(0, bucket, Faults()).observer())
    reader = open_reader(store, "file.lance")
    reader.bind(reader.schema.fields)
    return reader


def read_data_file(data: bytes) -> None:
    """The same, and page layouts and values of all columns, each as Arrow says it has to be."""
    reader = open_data_file(data)
    columns = reader.bind(reader.schema.fields)
    rows = min(columns.num_rows, 1_000)
    _look_at(columns.read(0, rows))
    if rows:
        _look_at(columns.take(np.array([0, rows - 1, 0])))
        _look_at(columns.read(rows // 2, rows // 2 + 1))


def _look_at(arrays: Iterable[pa.Array]) -> None:
    """Meet values one by one: Arrow ends the process over some that it calls valid in an array.

    Texts are handed on as the bytes that a file has.
    """
    for array in arrays:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):
                raise
        for at in range(min(len(array), 20)):
            assert array[at].type == array.type


def _name(field: FieldDescriptor) -> str:
    """The target of a layout or an encoding, by the field that has it."""
    kinds = {kind.DESCRIPTOR.full_name: name for name, kind in _KINDS.items()}
    return f"{kinds[field.containing_type.full_name]}-{field.name}".replace("_", "-")


def _targets() -> Iterator[str]:
    yield "pages-legacy"
    for kind in _KINDS.values():
        for oneof in kind.DESCRIPTOR.oneofs:
            for field in oneof.fields:
                if (name := _name(field)) not in _NEVER:
                    yield name


PAGE_TARGETS = [*_targets()]
"""One of each layout of pages, and of each encoding of values, in any version."""


def damaged_file(data: bytes, rng: random.Random) -> bytes:
    """A data file with something wrong, mostly in messages that can still be parsed."""
    try:
        if _is_legacy(data) or int.from_bytes(data[-40:-32], "little") <= len(data):
            return damaged(data, np.random.default_rng(rng.getrandbits(32)))
    except (DecodeError, IndexError, KeyError, OverflowError, ValueError, struct.error):
        pass  # it is damaged so that it has no parts
    return data[: rng.randrange(len(data) + 1)]


def _is_legacy(data: bytes) -> bool:
    return data[-8:-4] == bytes([0, 0, 2, 0])


@cache
def _files() -> dict[str, list[bytes]]:
    """The smallest files of each target, half of them written and half made from the grammar."""
    found: dict[str, list[bytes]] = {name: [] for name in PAGE_TARGETS}
    for files in (_written(), _made()):
        of_target: dict[str, list[bytes]] = {}
        for data in sorted(set(files), key=len):
            for name in _named(data):
                of_target.setdefault(name, []).append(data)
        for name, each in of_target.items():
            found[name] += each[:_EACH]
    return found


def page_seeds(target: str) -> list[bytes]:
    """Valid files in which a layout or an encoding occurs."""
    return _files()[target]


def _made() -> Iterator[bytes]:
    for at in range(_MADE):
        made = few_bytes(0, at)
        if made.rows <= _ROWS and len(made.raw) <= _BYTES:
            with suppress(GlaiveError):  # some take more memory than is allowed
                read_data_file(made.raw)
                yield made.raw


def _named(data: bytes) -> set[str]:
    """The targets of a file."""
    if _is_legacy(data):
        return {"pages-legacy"}
    found: set[str] = set()
    for column in parts_of(data)[1]:
        for page in file2_pb2.ColumnMetadata.FromString(column).pages:
            page_message(page, lambda message: found.update(_fields(message)))
    return found & set(PAGE_TARGETS)


def _fields(message: Any) -> Iterator[str]:
    kinds = {kind.DESCRIPTOR.full_name for kind in _KINDS.values()}
    for field, value in message.ListFields():
        if field.containing_type.full_name in kinds and field.containing_oneof is not None:
            yield _name(field)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for one in value if field.is_repeated else [value]:
                yield from _fields(one)


# ------------------------------------------------------------------ files of writers


def _column(values: Any, kind: pa.DataType | None = None, **options: str) -> tuple[Any, Any]:
    metadata = {f"lance-encoding:{key.replace('_', '-')}": text for key, text in options.items()}
    array = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return pa.field("c", array.type, metadata=metadata), array


def _columns() -> Iterator[tuple[Any, Any]]:
    rng = np.random.default_rng(5)
    count = 1_100
    numbers = rng.integers(0, 900, count)
    yield _column(numbers.astype(np.int64))
    yield _column(pa.array(numbers.astype(np.int32), mask=numbers % 5 == 0))
    yield _column(np.arange(count) * 3 + 2)
    yield _column(np.cumsum(numbers).astype(np.int64))
    yield _column(np.sort(numbers).repeat(3).astype(np.int32))
    yield _column(np.repeat(numbers[:40], 30).astype(np.int64))
    yield _column(rng.random(300))
    yield _column(rng.random(1_024).astype(np.float32), bss="on", compression="zstd")
    yield _column(rng.integers(0, 2, 300).astype(bool))
    yield _column([None] * 50, pa.int32())
    yield _column([7] * 200, pa.int64())
    texts = [f"https://example.org/{at % 13}/page/{at}" for at in range(1_500)]
    yield _column(texts)
    yield _column(texts[:40], compression="none")
    yield _column(texts, compression="fsst")
    yield _column(texts, compression="zstd")
    yield _column(texts[:60], compression="lz4")
    yield _column([texts[at % 5] if at % 7 else None for at in range(900)])
    yield _column(pa.array([texts[at % 5] for at in range(90)]).dictionary_encode())
    yield _column([text.encode() * 200 for text in texts[:6]], pa.large_binary())
    yield _column([text * 30 for text in texts[:20]], structural_encoding="fullzip")
    yield _column([b"%16d" % at for at in range(70)], pa.binary(16))
    lists = [[*range(at % 4)] if at % 6 else None for at in range(80)]
    yield _column(lists, pa.list_(pa.int64()))
    yield _column([[one, [], None] for one in lists], pa.list_(pa.list_(pa.int32())))
    yield _column([texts[: at % 3] for at in range(40)], pa.list_(pa.string()))
    vectors = pa.FixedSizeListArray.from_arrays(rng.random(400).astype(np.float32), 8)
    yield _column(vectors)
    yield _column(vectors, structural_encoding="fullzip")
    yield _column([[1, None, at] for at in range(40)], pa.list_(pa.int16(), 3))
    wide = pa.FixedSizeListArray.from_arrays(rng.random(2_048).astype(np.float32), 512)
    yield _column(wide)
    rows = [{"a": at, "b": at / 2} if at % 9 else None for at in range(60)]
    yield _column(rows, pa.struct({"a": pa.int32(), "b": pa.float64()}))
    full = [{"a": at, "b": at / 2} for at in range(60)]
    yield _column(full, pa.struct({"a": pa.int32(), "b": pa.float64()}), packed="true")
    mixed = [{"a": at, "b": texts[at]} for at in range(60)]
    yield _column(mixed, pa.struct({"a": pa.int32(), "b": pa.string()}), packed="true")
    yield _column(mixed, pa.struct({"a": pa.int32(), "b": pa.string()}))


def _written() -> Iterator[bytes]:
    blob = pa.field("c", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    columns = [*_columns(), (blob, pa.array([b"x" * 90, None, b""], pa.large_binary()))]
    for version in ("legacy", "2.0", "2.1", "2.2", "2.3"):
        for at, (field, array) in enumerate(columns):
            table = pa.Table.from_arrays([array], schema=pa.schema([field]))
            place = f"memory://fuzz-pages-{version}-{at}/t"
            try:
                made = glaive.write_dataset(table, place, data_storage_version=version)
            except GlaiveError:
                continue  # a type or an option that this version does not have
            for meta in made.store.walk(DATA):
                if meta.path.endswith(".lance"):
                    yield made.store.get(meta.path).to_pybytes()
    yield _with_symbols()


def _with_symbols() -> bytes:
    """A file of 2.0 with texts in symbols of FSST, which no writer of today makes."""
    texts = pa.array([f"https://example.org/page/{at}" for at in range(60)], pa.large_string())
    strings = Strings(texts.buffers()[1], 64, texts.buffers()[2])
    table = train_symbols(strings)
    codes = encode_strings(table, strings, len(texts))
    offsets = np.frombuffer(codes.offsets, np.int64)
    coded = [codes.data.to_pybytes()[a:b] for a, b in pairwise(offsets.tolist())]
    rows = pa.table({"c": pa.array(coded, pa.binary())})
    made = glaive.write_dataset(rows, "memory://fuzz-pages-fsst/t", data_storage_version="2.0")
    (meta,) = made.store.list(DATA)

    def wrap(descriptor: Any, columns: list[Any]) -> None:
        descriptor.schema.fields[0].logical_type = "string"

        def change(message: Any) -> None:
            whole = type(message)()
            whole.CopyFrom(message)
            message.fsst.binary.CopyFrom(whole)
            message.fsst.symbol_table = table.to_bytes()

        page_message(columns[0].pages[0], change)

    return rewritten(made.store.get(meta.path).to_pybytes(), wrap)
