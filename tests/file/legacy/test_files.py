"""Files of format 0.1: what is written is read, by whatever path and from wherever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.legacy_statistics import page_statistics

from glaive.errors import RowIndexError, SchemaError, UnsupportedFeatureError
from glaive.file.legacy import LegacyFile, LegacyFileWriter
from glaive.file.open import create_writer, open_reader
from glaive.format.fields import LanceSchema
from glaive.format.footer import LegacyFooter
from glaive.format.pb import file_pb2
from glaive.io.access import open_store
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore
from glaive.testing import CountingStore

ROWS = 3000
RNG = np.random.default_rng(4)


def sample(rows: int = ROWS) -> pa.Table:
    """Columns of every kind of page; no value that the format would lose."""
    numbers = np.arange(rows)
    ends = np.concatenate(([0], np.cumsum(numbers % 4))).astype(np.int32)
    items = pa.array([f"item {n}" for n in range(int(ends[-1]))])
    keys = pa.array((numbers % 3).astype(np.int8))
    return pa.table(
        {
            "id": numbers,
            "small": numbers.astype(np.int8),
            "flag": pa.array(numbers % 3 == 0),
            "text": [f"row {n}" for n in numbers.tolist()],
            "bytes": pa.array([b"x" * (n % 7 + 1) for n in numbers.tolist()], pa.large_binary()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(rows * 3.0)), 3),
            "flags": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(rows * 3) % 5 == 0), 3),
            "list": pa.ListArray.from_arrays(pa.array(ends), items),
            "bits": pa.ListArray.from_arrays(
                pa.array(ends), pa.array(np.arange(ends[-1]) % 2 == 0)
            ),
            "struct": pa.StructArray.from_arrays(
                [pa.array(numbers), pa.array([str(n) for n in numbers.tolist()])], names=["a", "b"]
            ),
            "key": pa.DictionaryArray.from_arrays(keys, pa.array(["p", "q", "r"])),
            "code": pa.DictionaryArray.from_arrays(keys, pa.array([10, 20, 30])),
            "nothing": pa.nulls(rows),
        }
    )


def write(store: ObjectStore, rows: pa.Table, batch: int | None = None, step: int = 700) -> Any:
    schema = LanceSchema.from_arrow(rows.schema)
    writer = LegacyFileWriter(store, "a.lance", schema, rows_per_batch=batch)
    for part in rows.to_batches(max_chunksize=step):
        writer.write(part)
    return writer.finish()


def read(file: LegacyFile, start: int, stop: int) -> pa.Table:
    columns = file.bind(file.schema.fields)
    return pa.table(columns.read(start, stop), schema=columns.schema)


def opened(store: ObjectStore) -> LegacyFile:
    file = open_reader(store, "a.lance")
    assert isinstance(file, LegacyFile)
    return file


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    location = tmp_path if request.param == "file" else f"memory://{tmp_path.name}-legacy"
    return open_store(location)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("batch", [1, 7, 1000, 1024, 5000])
def test_rows_come_back(store: ObjectStore, batch: int) -> None:
    rows = sample(ROWS if batch > 7 else 60)
    written = write(store, rows, batch)
    file = opened(store)
    count = rows.num_rows
    assert (written.rows, file.num_rows, str(file.version)) == (count, count, "0.1")
    assert np.diff(file.batches).max() <= batch
    for start, stop in ((0, count), (1, count - 1), (count // 2, count // 2), (5, 6)):
        table = read(file, start, stop)
        table.validate(full=True)
        assert table.equals(rows.slice(start, stop - start))
    wanted = RNG.integers(0, count, 50)
    columns = file.bind(file.schema.fields)
    taken = pa.table(columns.take(wanted), schema=columns.schema)
    taken.validate(full=True)
    assert taken.equals(rows.take(pa.array(wanted)))


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    batch=st.integers(1, 20),
    start=st.integers(0, 300),
    length=st.integers(0, 300),
)
def test_any_division_into_batches_reads_the_same(
    sizes: list[int], batch: int, start: int, length: int
) -> None:
    rows = sample(sum(sizes))
    store = open_store("memory://cuts-legacy")
    writer = LegacyFileWriter(
        store, "a.lance", LanceSchema.from_arrow(rows.schema), rows_per_batch=batch
    )
    at = 0
    for size in sizes:
        writer.write(rows.slice(at, size))
        at += size
    writer.finish()
    start = min(start, rows.num_rows)
    stop = min(start + length, rows.num_rows)
    assert read(opened(store), start, stop).equals(rows.slice(start, stop - start))


def test_a_file_without_rows_is_read(store: ObjectStore) -> None:
    rows = sample(0).drop_columns(["key", "code"])
    write(store, rows)
    file = opened(store)
    assert file.num_rows == 0
    assert read(file, 0, 0).equals(rows)
    assert page_statistics(file) is None


@pytest.mark.spec("legacy-1", "legacy-3", "legacy-5")
def test_footer_metadata_and_manifest_entry_are_as_documented(tmp_path: Path) -> None:
    written = write(LocalStore(tmp_path), sample(), 1000)
    raw = pa.py_buffer((tmp_path / "a.lance").read_bytes())
    footer = LegacyFooter.parse(raw, raw.size, where="a")
    assert (footer.major, footer.minor, raw.size) == (0, 2, written.size)
    size = int.from_bytes(raw.slice(footer.position, 4).to_pybytes(), "little")
    message = raw.slice(footer.position + 4, size).to_pybytes()
    metadata = file_pb2.Metadata.FromString(message)
    assert metadata.batch_offsets == [0, 1000, 2000, 3000]
    assert footer.position + 4 + size + LegacyFooter.SIZE == raw.size
    assert written.fields == list(range(len(written.fields)))
    assert written.column_indices == []


@pytest.mark.spec("pagetable-1", "nulls-3")
def test_the_page_table_begins_at_the_lowest_id(store: ObjectStore) -> None:
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.int64(), "b": pa.string()}), first_id=7)
    writer = LegacyFileWriter(store, "a.lance", schema)
    writer.write(pa.table({"a": [1, 2], "b": ["x", "y"]}))
    assert writer.finish().fields == [7, 8]
    file = opened(store)
    assert file.num_columns == 2
    fields = file.schema.fields
    by_number = file.bind(fields[1:], {8: 1})
    assert by_number.read(0, 2)[0].to_pylist() == ["x", "y"]
    assert file.bind(fields, {7: 0}).read(0, 2)[1].null_count == 2


def test_ids_that_lie_far_apart_are_refused_before_memory_is_taken(store: ObjectStore) -> None:
    first, second = LanceSchema.from_arrow(pa.schema({"a": pa.int64(), "b": pa.int64()})).fields
    schema = LanceSchema((first, replace(second, id=2**31 - 1)))
    writer = LegacyFileWriter(store, "a.lance", schema)
    writer.write(pa.table({"a": [1], "b": [2]}))
    with pytest.raises(SchemaError, match=r"ids from 0 to 2147483647.*data_storage_version 2\.0"):
        writer.finish()
    writer.abort()


def test_flat_columns_are_views_of_the_file(tmp_path: Path) -> None:
    rows = pa.table({"a": np.arange(5000), "b": np.arange(5000.0), "c": np.arange(5000) % 2 == 0})
    write(LocalStore(tmp_path), rows, step=5000)
    file = opened(LocalStore(tmp_path))
    columns = file.bind(file.schema.fields)
    before = pa.total_allocated_bytes()
    arrays = columns.read(0, 5000)
    assert pa.total_allocated_bytes() == before
    assert pa.table(arrays, schema=columns.schema).equals(rows)
    assert columns.columns[0].cuts().tolist() == [0, 5000]


def test_a_take_reads_little(tmp_path: Path) -> None:
    store = CountingStore(open_store(f"memory://{tmp_path.name}-take"))
    rows = pa.table({"a": np.arange(200_000), "s": [f"row {i}" for i in range(200_000)]})
    write(store, rows, step=200_000)
    file = opened(store)
    columns = file.bind(file.schema.fields)
    store.reset()
    wanted = np.array([100_000, 7, 100_001])
    assert columns.take(wanted)[0].to_pylist() == wanted.tolist()
    assert store.bytes_read < 400_000  # of 6 MB
    assert store.requests <= 8


def test_small_pages_of_several_columns_are_joined(tmp_path: Path) -> None:
    rows = sample()
    store = LocalStore(tmp_path)
    write(store, rows, 16, step=16)
    columns = opened(store).bind(LanceSchema.from_arrow(rows.schema).fields)
    assert all(len(column.cuts()) <= 4 for column in columns.columns)


def test_rows_beyond_the_file_are_refused(store: ObjectStore) -> None:
    write(store, sample())
    columns = opened(store).bind(LanceSchema.from_arrow(sample().schema).fields)
    with pytest.raises(RowIndexError, match="3001"):
        columns.read(0, ROWS + 1)
    with pytest.raises(RowIndexError, match="3000"):
        columns.take(np.array([ROWS]))


def test_an_aborted_file_leaves_nothing(tmp_path: Path) -> None:
    rows = sample()
    writer = LegacyFileWriter(LocalStore(tmp_path), "a.lance", LanceSchema.from_arrow(rows.schema))
    writer.write(rows)
    assert writer.position > 0
    assert writer.rows == ROWS
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_large_rows_end_a_batch_early(tmp_path: Path) -> None:
    row = pa.array([b"x" * 2**20], pa.large_binary())
    rows = pa.table({"a": pa.chunked_array([row] * 40)})
    write(LocalStore(tmp_path), rows, step=1)
    file = opened(LocalStore(tmp_path))
    assert len(file.batches) > 2
    assert read(file, 0, 40)["a"].to_pylist() == rows["a"].to_pylist()


@pytest.mark.spec("nulls-1", "nulls-2")
def test_nulls_read_as_what_their_slots_hold(store: ObjectStore) -> None:
    null = np.array([False, True, False])
    filler = pa.array([4, 5, 6], pa.int32())
    masked = pa.Array.from_buffers(pa.int32(), 3, [pa.py_buffer(b"\5"), filler.buffers()[1]])
    required = pa.field("required", pa.string(), nullable=False)
    rows = pa.table(
        [
            masked,
            pa.array(["a", None, ""]),
            pa.array(["a", "", "c"]),
            pa.StructArray.from_arrays([filler], names=["x"], mask=pa.array(null)),
            pa.array([[1], None, [2, None]], pa.list_(pa.int64())),
            pa.array([True, None, True]),
        ],
        schema=pa.schema(
            [
                ("number", pa.int32()),
                ("text", pa.string()),
                required,
                ("struct", pa.struct({"x": pa.int32()})),
                ("list", pa.list_(pa.int64())),
                ("flag", pa.bool_()),
            ]
        ),
    )
    write(store, rows)
    assert read(opened(store), 0, 3).to_pydict() == {
        "number": [4, 5, 6],
        "text": ["a", None, None],
        "required": ["a", "", "c"],
        "struct": [{"x": 4}, {"x": 5}, {"x": 6}],
        "list": [[1], [], [2, 0]],
        "flag": [True, False, True],
    }


@pytest.mark.spec("keys-3")
def test_rows_are_encoded_with_the_dictionary_of_all_files(tmp_path: Path) -> None:
    def encoded(keys: list[int | None], items: list[str]) -> pa.Table:
        array = pa.DictionaryArray.from_arrays(pa.array(keys, pa.int8()), pa.array(items))
        return pa.table({"k": array})

    schema = LanceSchema.from_arrow(encoded([0], ["p"]).schema)
    shared: dict[int, pa.Array] = {}
    for number, rows in enumerate((encoded([0, 1], ["p", "q"]), encoded([0, None, 1], ["q", "p"]))):
        store = LocalStore(tmp_path / str(number))
        writer = LegacyFileWriter(store, "a.lance", schema, dictionaries=shared)
        writer.write(rows)
        writer.finish()
    assert shared[0].to_pylist() == ["p", "q"]
    column = read(opened(LocalStore(tmp_path / "1")), 0, 3)["k"].combine_chunks()
    assert column.indices.to_pylist() == [1, 0, 0]
    writer = LegacyFileWriter(LocalStore(tmp_path), "a.lance", schema, dictionaries=shared)
    writer.write(encoded([0, 1], ["z", "q"]))
    with pytest.raises(SchemaError, match=r"'k' .*one dictionary per dataset, and 1 values"):
        writer.finish()
    writer.abort()


REFUSED = {
    "map": (pa.map_(pa.string(), pa.int8()), "2.2"),
    "list of strings": (pa.list_(pa.string(), 2), "2.1"),
    "list of structs": (pa.list_(pa.struct({"a": pa.int8()}), 2), "2.2"),
    "items never null": (pa.list_(pa.field("item", pa.int8(), nullable=False)), "2.0"),
    "items named otherwise": (pa.list_(pa.field("element", pa.int8())), "2.0"),
    "struct without members": (pa.struct([]), "2.1"),
    "dictionary of floats": (pa.dictionary(pa.int8(), pa.float32()), "2.0"),
    "no bytes": (pa.binary(0), "2.2"),
    "lists of no bytes": (pa.list_(pa.binary(0), 2), "2.1"),
}


@pytest.mark.spec("legacy-7", "lists-3", "keys-5")
@pytest.mark.parametrize("name", REFUSED)
def test_types_that_the_format_cannot_hold_are_refused(tmp_path: Path, name: str) -> None:
    kind, version = REFUSED[name]
    schema = LanceSchema.from_arrow(pa.schema({"s": pa.struct({"c": kind})}))
    with pytest.raises(SchemaError, match=rf"'s\.c' has type .* format 0\.1 cannot.*{version} or"):
        create_writer(LocalStore(tmp_path), "a.lance", schema, "legacy")


def test_other_columns_and_nulls_where_none_belong_are_refused(tmp_path: Path) -> None:
    schema = LanceSchema.from_arrow(pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    writer = create_writer(LocalStore(tmp_path), "a.lance", schema, "0.1")
    with pytest.raises(SchemaError, match="expected the columns"):
        writer.write(pa.table({"b": [1]}))
    with pytest.raises(SchemaError, match=r"'a' .*expected no nulls, found 1"):
        writer.write(pa.table([pa.array([1, None])], schema=schema.to_arrow()))
    writer.abort()


def with_metadata(raw: bytes, change: Callable[[Any], None]) -> bytes:
    """The file after a change of the message at its end."""
    footer = LegacyFooter.parse(pa.py_buffer(raw), len(raw), where="a")
    size = int.from_bytes(raw[footer.position : footer.position + 4], "little")
    metadata = file_pb2.Metadata.FromString(raw[footer.position + 4 :][:size])
    change(metadata)
    message = metadata.SerializeToString()
    head = raw[: footer.position] + len(message).to_bytes(4, "little") + message
    return head + footer.build()


def without_schema(metadata: Any) -> None:
    metadata.manifest_position = 0


@pytest.mark.spec("legacy-4")
def test_a_file_without_a_schema_is_read_through_its_dataset(tmp_path: Path) -> None:
    rows = pa.table({"a": [1, 2, 3]})
    write(LocalStore(tmp_path), rows)
    path = tmp_path / "a.lance"
    path.write_bytes(with_metadata(path.read_bytes(), without_schema))
    file = opened(LocalStore(tmp_path))
    with pytest.raises(UnsupportedFeatureError, match="no schema of its own"):
        _ = file.schema
    fields = LanceSchema.from_arrow(rows.schema).fields
    assert file.bind(fields, {0: 0}).read(0, 3)[0].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("rows", [100, 1024, 3000])
def test_groups_have_as_many_rows_as_requested(tmp_path: Path, rows: int) -> None:
    import glaive

    table = pa.table({"x": range(5000)})
    written = glaive.write_dataset(
        table, tmp_path, data_storage_version="0.1", max_rows_per_group=rows, max_rows_per_file=2500
    )
    assert written.to_table() == table
    for file in (tmp_path / "data").iterdir():
        raw = file.read_bytes()
        at = int.from_bytes(raw[-16:-8], "little")
        size = int.from_bytes(raw[at : at + 4], "little")
        edges = file_pb2.Metadata.FromString(raw[at + 4 : at + 4 + size]).batch_offsets
        assert list(edges) == [*range(0, 2500, rows), 2500]


@pytest.mark.parametrize("rows", [2**31 - 1, 2**31, 2**60, 2**63 - 1])
def test_groups_of_more_rows_than_a_file_may_have_lose_none(tmp_path: Path, rows: int) -> None:
    import glaive

    table = pa.table({"x": range(30)})
    place = tmp_path / "t"
    glaive.write_dataset(table, place, data_storage_version="0.1", max_rows_per_group=rows)
    assert glaive.dataset(place).to_table() == table
    glaive.dataset(place).delete("x = 3")
    found = glaive.dataset(place).optimize
    found.compact_files(max_rows_per_group=rows, materialize_deletions_threshold=0.0)
    assert glaive.dataset(place).to_table()["x"].to_pylist() == [0, 1, 2, *range(4, 30)]


TEXTS = pa.array([b"fine", b"\xffnot fine"])
"""Bytes, of which the second are no text."""


@pytest.mark.parametrize(
    ("kind", "buffers", "found"),
    [
        (pa.string(), TEXTS.buffers(), "text that is not UTF-8"),
        (pa.decimal128(9), [None, pa.py_buffer(bytes(14) + b"\1\0" + bytes(16))], "a value that"),
    ],
)
def test_values_that_a_type_does_not_have_are_refused(
    tmp_path: Path, kind: Any, buffers: Any, found: str
) -> None:
    damaged: Any = pa.Array.from_buffers(kind, 2, buffers)
    rows = pa.table({"a": damaged})
    writer = LegacyFileWriter(LocalStore(tmp_path), "a.lance", LanceSchema.from_arrow(rows.schema))
    writer.write(rows)
    with pytest.raises(SchemaError, match=rf"column 'a' for .*a\.lance: {found}"):
        writer.finish()
    writer.abort()


def test_pages_whose_statistics_claim_the_same_place_are_read_after_these(tmp_path: Path) -> None:
    import glaive

    rows = range(40)
    members = pa.array([{"x": f"x {row}"} for row in rows])
    texts = [f"text {row:02}" for row in rows]
    table = pa.table({"text": texts, "struct": members, "number": rows})
    dataset = glaive.write_dataset(
        table, tmp_path, data_storage_version="0.1", max_rows_per_group=10
    )
    (path,) = (tmp_path / "data").iterdir()

    def claim(metadata: Any) -> None:
        metadata.statistics.page_table_position = metadata.page_table_position

    path.write_bytes(with_metadata(path.read_bytes(), claim))
    dataset = glaive.dataset(tmp_path)
    found = dataset.to_table(columns=["text"], filter="text >= 'text 00'")  # by the statistics
    assert set(found["text"].to_pylist()) <= set(texts)
    for name in ("struct", "number"):
        assert dataset.to_table(columns=[name])[name] == table[name]
        assert dataset.take([35, 4], columns=[name])[name].to_pylist() == (
            table[name].take([35, 4]).to_pylist()
        )
