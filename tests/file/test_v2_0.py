"""Files of format 2.0: columns, views, stores without a map, damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import any_pb2
from tests.damage import rewritten
from tests.file_messages import BOTH, buffers_of, column_messages, layout_of, write_with
from tests.interop.cases import COLUMNS, table
from tests.interop.nested20 import SPECIAL, filled

from glaive.errors import CorruptFileError, GlaiveError, NotLanceError, OptionError, RowIndexError
from glaive.file.open import create_writer, open_reader
from glaive.file.v2.arrays import ArraysWriter
from glaive.file.versions import V2_0
from glaive.format.fields import LanceSchema
from glaive.format.pb import encodings20_pb2
from glaive.io.access import open_store
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore

ROWS = 1100
DAMAGED = [
    *("int64_small", "bool", "float32", "string", "string_few", "large_binary", "fixed_binary_3"),
    *("vector_f32_100", "vector_holes", "list_int32", "list_string", "list_list", "struct"),
    *("list_struct_list", "struct_list", "all_null", "dictionary", "packed", "zstd", "fsl_fsl"),
]


def sample(name: str, rows: int) -> pa.Table:
    if name in SPECIAL:
        make, metadata = SPECIAL[name]
        array = make(rows)
        field = pa.field("c", array.type, metadata=metadata)
        return pa.Table.from_arrays([array], schema=pa.schema([field]))
    arrays = [filled(column.combine_chunks()) for column in table(name, rows).columns[:2]]
    return pa.table(dict(zip(("plain", "holes"), arrays, strict=True)))


def write(store: ObjectStore, written: pa.Table, page_bytes: int = 8 << 20) -> Any:
    schema = LanceSchema.from_arrow(written.schema)
    writer = ArraysWriter(store, "file.lance", schema, V2_0, page_bytes=page_bytes)
    for batch in written.to_batches(max_chunksize=400):
        writer.write(batch)
    return writer.finish()


@pytest.mark.spec("owner-1", "owner-2", "owner-3", "owner-4", "version-1")
def test_structs_and_lists_own_columns(tmp_path: Path) -> None:
    items = pa.list_(pa.struct([("x", pa.int8()), ("v", pa.list_(pa.float32(), 2))]))
    packed = pa.field("p", pa.struct([("a", pa.int8())]), metadata={"packed": "true"})
    schema = pa.schema([("s", pa.struct([("l", items), ("t", pa.string())])), packed])
    value = {"s": {"l": [{"x": 1, "v": [1.0, 2.0]}], "t": "a"}, "p": {"a": 1}}
    done = write(LocalStore(str(tmp_path)), pa.Table.from_pylist([value], schema=schema))
    assert done.fields == [0, 1, 2, 3, 4, 5, 6]
    assert done.column_indices == [0, 1, 2, 3, 4, 5, 6]
    assert str(done.version) == "2.0"
    content = (tmp_path / "file.lance").read_bytes()
    assert content[-8:] == b"\x00\x00\x03\x00LANC"
    reader = open_reader(LocalStore(str(tmp_path)), "file.lance")
    assert reader.num_columns == 7
    assert pa.table(reader.bind(reader.schema.fields).read(0, 1), ["s", "p"]).to_pylist() == [value]


@pytest.mark.spec("arr-flat-1", "arr-4")
@pytest.mark.parametrize("name", ["int64_full", "float32", "bool", "vector_f32_100", "decimal128"])
def test_plain_values_are_views_of_the_file(tmp_path: Path, name: str) -> None:
    store = LocalStore(str(tmp_path))
    write(store, sample(name, ROWS).select([0]))
    reader = open_reader(store, "file.lance")
    columns = reader.bind(reader.schema.fields)
    before = pa.total_allocated_bytes()
    (whole,) = columns.read(0, ROWS)
    (part,) = columns.read(13, 700)
    assert pa.total_allocated_bytes() == before
    assert str(part.to_pylist()) == str(whole.slice(13, 687).to_pylist())
    values: list[Any] = [
        array.values if name.startswith("vector") else array for array in (whole, part)
    ]
    start, later = (array.buffers()[1].address for array in values)
    assert 0 < later - start < 13 * 400 + 1


@pytest.mark.sampled(every=10)
@pytest.mark.spec("arr-4")
@pytest.mark.parametrize("name", [*COLUMNS, *SPECIAL])
def test_stores_without_a_map_give_the_same(name: str) -> None:
    store = open_store("memory://" + name)
    written = sample(name, ROWS)
    write(store, written, page_bytes=3000)
    reader = open_reader(store, "file.lance")
    columns = reader.bind(reader.schema.fields)
    assert not reader.reader.mapped
    for start, stop in ((0, ROWS), (399, 402), (17, 17), (ROWS - 1, ROWS)):
        table = pa.table(columns.read(start, stop), schema=columns.schema)
        table.validate(full=True)
        assert str(table.to_pylist()) == str(written.slice(start, stop - start).to_pylist())
    rows = np.random.default_rng(3).integers(0, ROWS, 50)
    taken = pa.table(columns.take(rows), schema=columns.schema)
    everything = written.to_pylist()
    assert str(taken.to_pylist()) == str([everything[row] for row in rows.tolist()])


def test_parts_of_structs_are_read_alone(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    written = sample("struct", 50)
    write(store, written)
    reader = open_reader(store, "file.lance")
    only = reader.schema.project(["holes.b"])
    columns = reader.bind(only.fields, {2 + 3: 6, 4: 4, 6: 6})
    (values,) = columns.read(10, 20)
    assert values.type.num_fields == 1


def test_rows_beyond_the_file_are_refused(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    write(store, sample("int64_small", 10))
    reader = open_reader(store, "file.lance")
    columns = reader.bind(reader.schema.fields)
    with pytest.raises(RowIndexError, match="10 rows"):
        columns.read(5, 11)
    with pytest.raises(RowIndexError, match="10 rows"):
        columns.take(np.array([3, 10]))


@pytest.mark.spec("arr-blob-1", "arr-blob-3")
def test_blobs_outside_of_the_file_are_damage(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    field = pa.field("c", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    written = pa.table({"c": [b"x" * 100, None, b""]}, schema=pa.schema([field]))
    write(store, written)
    whole = (tmp_path / "file.lance").read_bytes()
    reader = open_reader(store, "file.lance")
    assert pa.table(reader.bind(reader.schema.fields).read(0, 3), ["c"]).to_pylist() == (
        written.to_pylist()
    )
    description = (0).to_bytes(8, "little") + (100).to_bytes(8, "little")
    for position, size in ((0, 1 << 40), (1 << 63, 100), (2**64 - 1, 100), (0, 2**64 - 1)):
        other = position.to_bytes(8, "little") + size.to_bytes(8, "little")
        (tmp_path / "file.lance").write_bytes(whole.replace(description, other))
        reader = open_reader(store, "file.lance")
        with pytest.raises(CorruptFileError, match="blob: expected bytes within"):
            reader.bind(reader.schema.fields).read(0, 3)


@pytest.mark.spec("rel-42", "arr-blob-1")
def test_descriptions_of_blobs_that_are_null_are_nulls(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    schema = pa.schema([pa.field("c", pa.large_binary(), metadata={"lance-encoding:blob": "true"})])
    write(store, pa.table({"c": [b"x" * 100, None, b""]}, schema=schema))

    def change(_: Any, columns: list[Any]) -> None:
        encoding = encodings20_pb2.ArrayEncoding()
        encoding.nullable.all_nulls.SetInParent()
        wrapped = any_pb2.Any()
        wrapped.Pack(encoding, type_url_prefix="/")
        (page,) = columns[0].pages
        page.encoding.direct.encoding = wrapped.SerializeToString()

    path = tmp_path / "file.lance"
    path.write_bytes(rewritten(path.read_bytes(), change))
    reader = open_reader(store, "file.lance")
    columns = reader.bind(reader.schema.fields)
    assert pa.table(columns.read(0, 3), ["c"])["c"].to_pylist() == [None] * 3
    assert pa.table(columns.take(np.array([2, 0, 2])), ["c"])["c"].to_pylist() == [None] * 3


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("kind", ["string", "binary", "large_string"])
def test_blobs_of_other_types_are_damage(tmp_path: Path, kind: str) -> None:
    store = LocalStore(str(tmp_path))
    schema = pa.schema([pa.field("c", pa.large_binary(), metadata={"lance-encoding:blob": "true"})])
    write(store, pa.table({"c": [b"\xff" * 100]}, schema=schema))
    reader = open_reader(store, "file.lance")
    (field,) = reader.schema.fields
    with pytest.raises(CorruptFileError, match=f"expected values of type {kind}, found blobs"):
        reader.bind([replace(field, logical_type=kind)]).read(0, 1)


def test_a_file_without_rows(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    written = sample("list_struct", 3).slice(0, 0)
    write(store, written)
    reader = open_reader(store, "file.lance")
    columns = reader.bind(reader.schema.fields)
    assert [len(array) for array in columns.read(0, 0)] == [0, 0]
    assert [len(array) for array in columns.take(np.empty(0, np.int64))] == [0, 0]


def test_an_unknown_compression_names_those_known(tmp_path: Path) -> None:
    field = pa.field("c", pa.string(), metadata={"lance-encoding:compression": "brotli"})
    written = pa.table({"c": ["a"]}, schema=pa.schema([field]))
    with pytest.raises(OptionError, match=r"'c'.*zstd.*'brotli'"):
        write(LocalStore(str(tmp_path)), written)


@pytest.mark.parametrize(("key", "value"), [("compression", "x" * 9000), ("y" * 9000, "zstd")])
def test_an_error_of_an_encoding_shows_the_beginning_of_long_metadata(
    tmp_path: Path, key: str, value: str
) -> None:
    field = pa.field("c", pa.string(), metadata={f"lance-encoding:{key}": value})
    written = pa.table({"c": ["a"]}, schema=pa.schema([field]))
    with pytest.raises(OptionError) as refused:
        write(LocalStore(str(tmp_path)), written)
    assert len(str(refused.value)) < 1500


def test_the_alias_is_the_version(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    schema = LanceSchema.from_arrow(pa.schema([("a", pa.int8())]))
    create_writer(store, "a.lance", schema, "0.3").finish()
    assert str(open_reader(store, "a.lance").version) == "2.0"


# --- what writers choose ----------------------------------------------------------------


def layouts(raw: bytes) -> list[list[Any]]:
    return [[layout_of(page) for page in column.pages] for column in column_messages(raw)]


@pytest.mark.spec("arr-choice-1", "arr-dict-4", "arr-binary-2")
@pytest.mark.parametrize(
    ("kind", "rows", "items", "chosen"),
    [
        (pa.string(), 100, 99, "dictionary"),
        (pa.string(), 300, 2, "dictionary"),
        (pa.string(), 99, 2, "binary"),
        (pa.string(), 100, 100, "binary"),
        (pa.large_string(), 300, 2, "binary"),
        (pa.binary(), 300, 2, "binary"),
    ],
)
@BOTH
def test_few_strings_of_many_get_a_dictionary_with_indices_of_a_byte(
    tmp_path: Path, kind: pa.DataType, rows: int, items: int, chosen: str, library: str
) -> None:
    written = pa.table({"c": pa.array([f"{at % items:02}" for at in range(rows)]).cast(kind)})
    raw = write_with(library, tmp_path / "a.lance", "2.0", [written])
    ((layout,),) = layouts(raw)
    assert layout.WhichOneof("array_encoding") == chosen
    strings = layout.dictionary.items.binary if chosen == "dictionary" else layout.binary
    assert strings.indices.nullable.no_nulls.values.flat.bits_per_value == 64
    if chosen == "dictionary":
        assert layout.dictionary.indices.nullable.no_nulls.values.flat.bits_per_value == 8
        assert layout.dictionary.num_dictionary_items == items
    ((page,),) = (column.pages for column in column_messages(raw))
    ends = buffers_of(raw, page)[1 if chosen == "dictionary" else 0]
    assert len(ends) == 8 * (items if chosen == "dictionary" else rows)


@pytest.mark.spec("arr-choice-1", "arr-flat-4")
@BOTH
def test_only_bytes_of_strings_are_compressed(tmp_path: Path, library: str) -> None:
    wish = {"lance-encoding:compression": "zstd"}
    fields = [pa.field("n", pa.int64(), metadata=wish), pa.field("t", pa.string(), metadata=wish)]
    numbers = list(range(2000))
    written = pa.table([numbers, [f"text {at}" for at in numbers]], schema=pa.schema(fields))
    raw = write_with(library, tmp_path / "a.lance", "2.0", [written])
    (number,), (text,) = layouts(raw)
    flat = number.nullable.no_nulls.values.flat
    assert flat.bits_per_value == 64
    assert not flat.HasField("compression")
    assert text.binary.bytes.flat.compression.scheme == "zstd"
    _, packed = buffers_of(raw, column_messages(raw)[1].pages[0])
    plain = "".join(written["t"].to_pylist()).encode()
    assert int.from_bytes(packed[:8], "little") == len(plain)
    assert pa.Codec("zstd").decompress(packed[8:], len(plain), asbytes=True) == plain


@pytest.mark.spec("arr-choice-2", "owner-5")
@BOTH
def test_rows_of_a_struct_are_one_page_and_items_pages_of_their_own(
    tmp_path: Path, library: str
) -> None:
    values = [{"a": at, "l": [at] * 3} for at in range(2000)]
    batches = [pa.table({"s": values[at : at + 500]}) for at in range(0, 2000, 500)]
    raw = write_with(library, tmp_path / "a.lance", "2.0", batches, data_cache_bytes=8000)
    header, member, ends, items = (
        [page.length for page in column.pages] for column in column_messages(raw)
    )
    assert header == [2000]
    assert len(member) > 1
    assert (sum(member), sum(ends), sum(items)) == (2000, 2000, 6000)
    assert layouts(raw)[0][0].WhichOneof("array_encoding") == "struct"
    assert not column_messages(raw)[0].pages[0].buffer_sizes


# --- damage -----------------------------------------------------------------------------


def read_everything(folder: Path, content: bytes) -> None:
    """Open and read in every way; damage may only show as a GlaiveError."""
    (folder / "damaged.lance").write_bytes(content)
    try:
        reader = open_reader(LocalStore(str(folder)), "damaged.lance")
        columns = reader.bind(reader.schema.fields)
        for array in columns.read(0, columns.num_rows):
            array.validate(full=False)
        if columns.num_rows > 10:
            columns.read(3, 9)
            columns.take(np.array([7, 0, 7, columns.num_rows - 1]))
    except GlaiveError:
        pass


@pytest.mark.sampled(every=20)
@pytest.mark.parametrize("name", DAMAGED)
def test_flipped_bytes_never_crash(tmp_path: Path, name: str) -> None:
    write(LocalStore(str(tmp_path)), sample(name, ROWS), page_bytes=3000)
    whole = (tmp_path / "file.lance").read_bytes()
    rng = np.random.default_rng([1, *name.encode()])
    tail = len(whole) - min(len(whole), 3000)
    positions = [rng.integers(0, len(whole), 30), rng.integers(tail, len(whole), 60)]
    for at in np.concatenate(positions).tolist():
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(0, 8)) if rng.random() < 0.5 else 0xFF
        read_everything(tmp_path, bytes(damaged))


@pytest.mark.parametrize("name", ["int64_small", "string", "list_struct"])
def test_truncated_files_are_refused(tmp_path: Path, name: str) -> None:
    write(LocalStore(str(tmp_path)), sample(name, ROWS))
    whole = (tmp_path / "file.lance").read_bytes()
    for size in [0, 1, 39, 40, 100, len(whole) // 2, len(whole) - 41, len(whole) - 1]:
        (tmp_path / "damaged.lance").write_bytes(whole[:size])
        with pytest.raises(NotLanceError, match="not a Lance file"):
            open_reader(LocalStore(str(tmp_path)), "damaged.lance")


def test_columns_of_other_lengths_are_damage(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    write(store, sample("int64_small", 10))
    reader = open_reader(store, "file.lance")
    with pytest.raises(CorruptFileError, match=r"expected 11 in all.*found 10"):
        reader.bind(reader.schema.fields, rows=11)


def test_lists_of_lists_are_no_texts_in_two_columns(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    written = pa.table({"c": pa.array([[[1], [2, 3]], []], pa.list_(pa.list_(pa.int8())))})
    write(store, written)

    def as_text(descriptor: Any, _: list[Any]) -> None:
        del descriptor.schema.fields[1:]
        descriptor.schema.fields[0].logical_type = "string"

    (tmp_path / "file.lance").write_bytes(
        rewritten((tmp_path / "file.lance").read_bytes(), as_text)
    )
    reader = open_reader(store, "file.lance")
    with pytest.raises(CorruptFileError, match=r"expected values of type uint8, found list"):
        reader.bind(reader.schema.fields).read(0, 2)


def test_fields_of_one_column_are_not_taken_for_one_type_by_their_text(tmp_path: Path) -> None:
    """Types whose texts are equal: a name of a member looks like the border of two members."""
    one = pa.struct([("a: int32, b", pa.int64())])
    store = LocalStore(str(tmp_path))
    field = pa.field("c", one, metadata={"packed": "true"})
    rows = [{"a: int32, b": 1}, {"a: int32, b": 3}]
    write(store, pa.Table.from_arrays([pa.array(rows, one)], schema=pa.schema([field])))
    two = pa.field("d", pa.struct([("a", pa.int32()), ("b", pa.int64())]), metadata=field.metadata)
    assert str(two.type) == str(one)
    fields = LanceSchema.from_arrow(pa.schema([field, two])).fields
    reader = open_reader(store, "file.lance")
    kept = reader.bind(fields[:1], {fields[0].id: 0})
    with pytest.raises(CorruptFileError, match=r"found a packed struct of 1 member"):
        reader.bind(fields, {fields[0].id: 0, fields[1].id: 0})
    assert kept.read(0, 2)[0].to_pylist() == rows
