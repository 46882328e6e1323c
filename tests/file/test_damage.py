"""Damaged files end in a GlaiveError or in right data: no crash, no hang, no other exception.

Memory is bounded by ``MOST_MEMORY`` and ``FACTOR`` times the bytes of a file, but for what a
file may well say with a few bytes: rows that are all null or all equal, runs, dictionaries.
These take what their rows take, 2 GiB for an array at most where no bytes stand for them.
"""

from __future__ import annotations

import gc
import os
import tracemalloc
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.damage import damaged, data_size, page_message, rewritten
from tests.interop.cases import COLUMNS, table
from tests.interop.more_cases import more_table
from tests.interop.nested20 import filled

from glaive.arrow.conditions import IsNull
from glaive.errors import (
    CorruptFileError,
    GlaiveError,
    NotLanceError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.file import LanceFileReader, LanceFileWriter
from glaive.file.open import create_writer, open_reader
from glaive.format.fields import LanceSchema
from glaive.io.access import open_store
from glaive.io.local import LocalStore

ROWS = 1100
ROWS_OF_LONG_LISTS = 110
MOST_MEMORY = 64 * 1024 * 1024
"""Bytes of memory that reading a damaged file may take at most, and on top of them …"""

FACTOR = 64
"""… so many for each byte of the file."""

VERSIONS = ["0.1", "2.0", "2.1", "2.2", "2.3", "2.3 sparse", "2.2 fullzip", "2.1 miniblock"]

SOME = [
    "bool", "int64_small", "int32_runs", "float64", "decimal256", "string", "string_few",
    "large_binary", "binary_long", "fixed_binary_3", "vector_f32_4", "vector_holes",
    "list_int32", "list_string", "list_list", "list_struct", "struct_list", "list_vector",
    "list_struct_list", "all_null", "all_null_list", "constant_string",
]  # fmt: skip
"""Columns that get every kind of page there is."""


def _write(folder: Path, name: str, version: str) -> bytes:
    version, _, structure = version.partition(" ")
    written = table(name, ROWS if name != "list_long" else ROWS_OF_LONG_LISTS)
    if version == "2.0":
        whole = [filled(column.combine_chunks()) for column in written.columns]
        written = pa.Table.from_arrays(whole, schema=written.schema)
    if structure:
        wish: Any = {"lance-encoding:structural-encoding": structure}
        fields = [field.with_metadata(wish) for field in written.schema]
        written = written.cast(pa.schema(fields))
    store = LocalStore(str(folder))
    writer = create_writer(store, "file.lance", LanceSchema.from_arrow(written.schema), version)
    writer.write(written)
    writer.finish()
    return (folder / "file.lance").read_bytes()


def _check(arrays: list[pa.Array], kinds: list[pa.DataType], rows: int) -> None:
    """Right shape, and memory that Arrow may walk; values may be wrong."""
    for array, kind in zip(arrays, kinds, strict=True):
        assert len(array) == rows
        assert array.type == kind
        array.validate()


def _read_everything(folder: Path, content: bytes, *, mapped: bool = True) -> None:
    """Open and read in every way; damage may only show as a GlaiveError."""
    if mapped:
        (folder / "damaged.lance").write_bytes(content)
        store: Any = LocalStore(str(folder))
    else:
        store = open_store(f"memory://damage-{folder.name}")
        store.put("damaged.lance", [content])
    try:
        reader = open_reader(store, "damaged.lance")
        columns = reader.bind(reader.schema.fields)
    except GlaiveError:
        return
    kinds, rows = columns.schema.types, columns.num_rows
    ways: list[Any] = [lambda: _check(columns.read(0, rows), kinds, rows)]
    if rows > 10:  # enough rows to pick some
        many = np.array([7, 0, 7, rows - 1])
        ways += [
            lambda: _check(columns.read(3, 9), kinds, 6),
            lambda: _check(columns.take(many), kinds, 4),
            lambda: _check(columns.take(many[:1]), kinds, 1),
        ]
    for way in ways:
        with suppress(GlaiveError):
            way()


def _damage(folder: Path, name: str, version: str, times: int, seed: int) -> None:
    whole = _write(folder, name, version)
    rng = np.random.default_rng([seed, zlib.crc32(f"{name} {version}".encode())])
    for _ in range(times):
        content = damaged(whole, rng)
        _read_everything(folder, content, mapped=rng.random() < 0.6)


@pytest.mark.sampled(every=25)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", SOME)
def test_damage_never_crashes(tmp_path: Path, name: str, version: str) -> None:
    _damage(tmp_path, name, version, times=15, seed=1)


NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"

NESTED = [
    "fsl_struct_lists_later", "fsl_struct_list_wide", "list_fsl_structs", "list_list_fsl_struct",
    "list_struct_uneven", "fsl_list_fsl_struct", "fsl_with_empty", "packed_packed_packed",
    "packed_packed_text",
]  # fmt: skip
"""Columns that only format 2.3 has, or no version before 2.2."""


def _damage_2_3(folder: Path, source: pa.Table, seed: int, times: int) -> None:
    store = LocalStore(str(folder))
    writer = create_writer(store, "file.lance", LanceSchema.from_arrow(source.schema), "2.3")
    writer.write(source)
    writer.finish()
    whole, rng = (folder / "file.lance").read_bytes(), np.random.default_rng(seed)
    for _ in range(times):
        content = damaged(whole, rng)
        _read_everything(folder, content, mapped=rng.random() < 0.6)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", NESTED)
def test_damage_of_lists_and_fixed_size_lists_never_crashes(tmp_path: Path, name: str) -> None:
    _damage_2_3(tmp_path, more_table(name, 150), seed=3, times=40)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("name", ["runs", "growing runs", "few", "repeating", "rare"])
def test_damage_of_number_sequences_never_crashes(tmp_path: Path, name: str) -> None:
    counts = {
        "runs": np.repeat(np.arange(1, 6), 100),
        "growing runs": np.repeat(np.arange(2, 30), np.arange(2, 30)),
        "few": np.random.default_rng(0).choice([1, 100], 500),
        "repeating": np.tile([1, 2, 3, 0], 1000),
        "rare": np.where(np.arange(70_000) % 997 == 5, 2, 0),
    }[name]
    ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    array = pa.ListArray.from_arrays(pa.array(ends), pa.array(np.arange(ends[-1]) % 7, pa.int8()))
    wish: Any = {"lance-encoding:structural-encoding": "sparse"}
    schema = pa.schema([pa.field("c", array.type, metadata=wish)])
    _damage_2_3(tmp_path, pa.table([array], schema=schema), seed=4, times=40)


@pytest.mark.sampled(every=100)
@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", COLUMNS)
def test_much_damage_never_crashes(tmp_path: Path, name: str, version: str) -> None:
    _damage(tmp_path, name, version, times=60 if NIGHTLY else 15, seed=2)


@pytest.mark.sampled(every=18)
@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2", "2.3", "2.3 sparse"])
@pytest.mark.parametrize("name", ["string", "list_list", "vector_holes"])
def test_memory_is_bounded_by_the_size_of_the_file(tmp_path: Path, name: str, version: str) -> None:
    whole = _write(tmp_path, name, version)
    rng = np.random.default_rng([3, zlib.crc32(f"{name} {version}".encode())])
    _read_everything(tmp_path, whole)  # what is loaded once is not counted
    pool = pa.default_memory_pool()
    for _ in range(40 if NIGHTLY else 4):
        content = damaged(whole, rng)
        watched = pa.proxy_memory_pool(pool)
        pa.set_memory_pool(watched)
        tracemalloc.start()
        try:
            _read_everything(tmp_path, content, mapped=False)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(pool)
        assert peak + (watched.max_memory() or 0) < MOST_MEMORY + FACTOR * len(content)
        gc.collect()


@pytest.mark.spec("rel-23")
def test_a_table_of_rows_that_take_no_memory_has_few_batches(tmp_path: Path) -> None:
    """Of 1,024 rows each there would be so many that their list ends the process."""
    with LanceFileWriter(tmp_path / "file.lance", version="2.2") as writer:
        writer.write_batch(pa.table({"nothing": pa.nulls(5)}))
    written, rows = (tmp_path / "file.lance").read_bytes(), 2**33

    def lie(descriptor: Any, columns: list[Any]) -> None:
        descriptor.length = columns[0].pages[0].length = rows

    (tmp_path / "file.lance").write_bytes(rewritten(written, lie))
    table = LanceFileReader(tmp_path / "file.lance").read_all().to_table()
    assert table.num_rows == rows
    assert table["nothing"].num_chunks <= 2**16


def test_rows_without_bytes_are_not_made_without_bound(tmp_path: Path) -> None:
    def lie(descriptor: Any, columns: list[Any]) -> None:
        descriptor.length = 2**40
        for column in columns:
            column.pages[0].length = 2**40

    for name in ("constant_int", "constant_date", "all_null", "all_null_string"):
        content = rewritten(_write(tmp_path, name, "2.2"), lie)
        (tmp_path / "damaged.lance").write_bytes(content)
        reader = open_reader(LocalStore(str(tmp_path)), "damaged.lance")
        columns = reader.bind(reader.schema.fields[:1])
        assert len(columns.take(np.array([2**39]))[0]) == 1
        with pytest.raises(SchemaError, match=r"one repeated value.* Read fewer rows"):
            columns.read(0, 2**40)


@pytest.mark.parametrize("rows", [2**48 + 1, 2**63, 2**64 - 1])
def test_more_rows_than_can_be_counted_are_refused(tmp_path: Path, rows: int) -> None:
    def lie(descriptor: Any, _columns: list[Any]) -> None:
        descriptor.length = rows

    def lie_in_a_page(_descriptor: Any, columns: list[Any]) -> None:
        columns[0].pages[0].length = rows

    whole = _write(tmp_path, "constant_int", "2.2")
    for change, message in ((lie, "rows of the file"), (lie_in_a_page, "page rows")):
        (tmp_path / "damaged.lance").write_bytes(rewritten(whole, change))
        reader = open_reader(LocalStore(str(tmp_path)), "damaged.lance")
        with pytest.raises(CorruptFileError, match=f"{message}: expected at most {2**48}"):
            reader.bind(reader.schema.fields)


def test_indices_of_2_0_may_be_null_as_well_as_items(tmp_path: Path) -> None:
    """Items with a null, and indices that a damaged message makes null."""

    def damage(message: Any) -> None:
        indices = message.dictionary.indices
        flat = indices.SerializeToString()
        indices.Clear()
        indices.nullable.some_nulls.values.ParseFromString(flat)
        validity = indices.nullable.some_nulls.validity.flat
        validity.bits_per_value = 1
        validity.buffer.buffer_index = 0

    keys = pa.array((np.arange(ROWS) % 3).astype(np.int8))
    items = pa.array(["p", None, "r"])
    written = pa.table({"k": pa.DictionaryArray.from_arrays(keys, items)})
    store = LocalStore(str(tmp_path))
    writer = create_writer(store, "file.lance", LanceSchema.from_arrow(written.schema), "2.0")
    writer.write(written)
    writer.finish()
    whole = (tmp_path / "file.lance").read_bytes()
    _read_everything(tmp_path, whole)
    changed = rewritten(whole, lambda _, columns: page_message(columns[0].pages[0], damage))
    _read_everything(tmp_path, changed)


def test_values_of_2_0_with_a_bitmap_around_their_dictionary_stay_in_order(tmp_path: Path) -> None:
    """The type says that the items are in order: it is that of arrays with nulls, too."""
    keys = pa.array([1, 0, 1, 0], pa.int8())
    written = pa.table({"k": pa.DictionaryArray.from_arrays(keys, pa.array(["p", "r"]))})
    store = LocalStore(str(tmp_path))
    writer = create_writer(store, "file.lance", LanceSchema.from_arrow(written.schema), "2.0")
    writer.write(written)
    writer.finish()

    def wrap(message: Any) -> None:
        values = message.SerializeToString()
        message.Clear()
        message.nullable.some_nulls.values.ParseFromString(values)
        message.nullable.some_nulls.validity.flat.bits_per_value = 1

    def change(descriptor: Any, columns: list[Any]) -> None:
        descriptor.schema.fields[0].logical_type = "dict:string:int8:true"
        page_message(columns[0].pages[0], wrap)

    _read_everything(tmp_path, rewritten((tmp_path / "file.lance").read_bytes(), change))
    (array,) = LanceFileReader(str(tmp_path / "damaged.lance")).read_all().to_table().columns
    assert array.type.ordered
    assert array.to_pylist() == ["r", None, None, None]  # the bits of the first index


def _with_null_numbers(folder: Path, written: pa.Table, numbers_of: Any) -> bytes:
    """A file of 2.0 in which every fourth number that a page has for its values is null."""
    store = LocalStore(str(folder))
    writer = create_writer(store, "file.lance", LanceSchema.from_arrow(written.schema), "2.0")
    writer.write(written)
    writer.finish()
    raw = bytearray((folder / "file.lance").read_bytes())
    at = data_size(raw)
    flags = np.packbits(np.arange(written.num_rows) % 4 > 0, bitorder="little").tobytes()

    def damage(message: Any) -> None:
        numbers = numbers_of(message)
        plain = numbers.nullable.no_nulls.values.SerializeToString()
        numbers.Clear()
        numbers.nullable.some_nulls.values.ParseFromString(plain)
        validity = numbers.nullable.some_nulls.validity.flat
        validity.bits_per_value = 1
        validity.buffer.buffer_index = 3

    def change(_: Any, columns: list[Any]) -> None:
        (page,) = columns[0].pages
        while len(page.buffer_sizes) < 3:
            page.buffer_offsets.append(0)
            page.buffer_sizes.append(0)
        page.buffer_offsets.append(at)
        page.buffer_sizes.append(len(flags))
        page_message(page, damage)

    whole = bytearray(rewritten(bytes(raw), change, copies=2))
    whole[at : at + len(flags)] = flags
    return bytes(whole)


@pytest.mark.spec("arr-dict-1")
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "fetched"])
def test_a_text_of_2_0_whose_index_is_null_is_null_in_every_way(
    tmp_path: Path, mapped: bool
) -> None:
    texts = pa.array(["a", "b", None] * 400)
    content = _with_null_numbers(
        tmp_path, pa.table({"c": texts}), lambda message: message.dictionary.indices
    )
    store: Any = LocalStore(str(tmp_path)) if mapped else open_store(f"memory://{tmp_path.name}")
    store.put("damaged.lance", [content])
    reader = open_reader(store, "damaged.lance")
    columns = reader.bind(reader.schema.fields)
    expected = [text if at % 4 else None for at, text in enumerate(texts.to_pylist())]
    (array,) = columns.read(0, 1200)
    assert array.to_pylist() == expected
    picked = [6, 4, 0]
    (array,) = columns.take(np.array(picked))
    assert array.to_pylist() == [expected[at] for at in picked]
    found = columns.columns[0].find(IsNull(), 0, 1200)
    if found is not None:
        assert found.tolist() == [at for at, text in enumerate(expected) if text is None]


@pytest.mark.spec("ends-4")
@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "fetched"])
@pytest.mark.parametrize("kind", ["text", "list"])
def test_ends_of_2_0_that_are_null_are_damage(tmp_path: Path, kind: str, mapped: bool) -> None:
    texts = [f"text {at}" for at in range(1200)]
    values: Any = pa.array(texts if kind == "text" else [[one] for one in texts])
    content = _with_null_numbers(
        tmp_path,
        pa.table({"c": values}),
        lambda message: message.binary.indices if kind == "text" else message.list.offsets,
    )
    store: Any = LocalStore(str(tmp_path)) if mapped else open_store(f"memory://{tmp_path.name}")
    store.put("damaged.lance", [content])
    reader = open_reader(store, "damaged.lance")
    columns = reader.bind(reader.schema.fields)
    # Row 5 begins where row 4 ends, which is null.
    ways: list[Any] = [lambda: columns.read(0, 1200), lambda: columns.take(np.array([5]))]
    for way in ways:
        with pytest.raises(CorruptFileError, match="ends of values: expected none that is null"):
            way()
    assert columns.take(np.array([6]))[0].to_pylist() == values[6:7].to_pylist()


@pytest.mark.parametrize("items", [2**31, 2**61 + 1, 2**64 - 1])
def test_more_dictionary_items_than_can_be_counted_are_refused(tmp_path: Path, items: int) -> None:
    def lie(message: Any) -> None:
        message.mini_block_layout.num_dictionary_items = items

    whole = _write(tmp_path, "string_few", "2.2")
    store = LocalStore(str(tmp_path))
    # Pages of the same form were opened before.
    before = open_reader(store, "file.lance")
    before.bind(before.schema.fields)
    content = rewritten(whole, lambda _, columns: page_message(columns[0].pages[0], lie))
    (tmp_path / "damaged.lance").write_bytes(content)
    reader = open_reader(store, "damaged.lance")
    with pytest.raises(CorruptFileError, match=f"dictionary items: .* found {items}"):
        reader.bind(reader.schema.fields)


@pytest.mark.parametrize("name", ["int64_small", "string", "vector_f32_100", "list_struct"])
def test_truncated_files_are_refused(tmp_path: Path, name: str) -> None:
    whole = _write(tmp_path, name, "2.2")
    store = LocalStore(str(tmp_path))
    for size in [0, 1, 39, 40, 100, len(whole) // 2, len(whole) - 41, len(whole) - 1]:
        (tmp_path / "damaged.lance").write_bytes(whole[:size])
        with pytest.raises(NotLanceError, match="not a Lance file"):
            open_reader(store, "damaged.lance")


def test_something_else_is_not_a_lance_file(tmp_path: Path) -> None:
    (tmp_path / "text.lance").write_bytes(b"id,name\n1,a\n" * 20)
    with pytest.raises(NotLanceError, match=r"text\.lance is not a Lance file: expected b'LANC'"):
        open_reader(LocalStore(str(tmp_path)), "text.lance")


def test_an_unknown_version_names_those_known(tmp_path: Path) -> None:
    whole = bytearray(_write(tmp_path, "int64_small", "2.2"))
    whole[-8:-4] = (7).to_bytes(2, "little") + (1).to_bytes(2, "little")
    (tmp_path / "new.lance").write_bytes(whole)
    with pytest.raises(UnsupportedFeatureError, match=r"version 7\.1.*knows"):
        open_reader(LocalStore(str(tmp_path)), "new.lance")


def test_offsets_beyond_the_file_are_reported_with_their_place(tmp_path: Path) -> None:
    whole = bytearray(_write(tmp_path, "int64_small", "2.2"))
    whole[-32:-24] = (1 << 40).to_bytes(8, "little")
    (tmp_path / "far.lance").write_bytes(whole)
    with pytest.raises(CorruptFileError, match=r"footer: expected .* found .*far\.lance"):
        open_reader(LocalStore(str(tmp_path)), "far.lance")
