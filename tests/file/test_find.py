"""Rows that pass a condition are found without arrays of the values, the same as with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glaive.arrow.conditions import Condition, HasText, InRange, IsNull, IsOneOf
from glaive.errors import CorruptFileError, RowIndexError, SchemaError
from glaive.file.open import create_writer, open_reader
from glaive.file.protocol import BoundColumn, FormatProfile
from glaive.file.v2.arrays import ArraysWriter
from glaive.file.v2.writer import FileV2Writer
from glaive.file.versions import V2_0, V2_1
from glaive.format.fields import LanceSchema
from glaive.io.access import open_store
from glaive.io.local import LocalStore

VERSIONS = ("0.1", "2.0", "2.1", "2.2", "2.3")
SIZES = (1, 7, 64, 1023, 1024, 1025, 2049, 5000)
KINDS: list[pa.DataType] = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(),
    pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float32(), pa.float64(),
    pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns"),
    pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin"), pa.duration("s"),
]  # fmt: skip
SHAPES = ("narrow", "wide", "signed", "runs", "equal", "few", "special")
OPTIONS: list[dict[str, str]] = [
    {},
    {"compression": "none"},
    {"compression": "lz4", "bss": "on"},
    {"structural-encoding": "fullzip"},
    {"dict-divisor": "1", "dict-size-ratio": "1.0"},
]
WORDS = [*(f"word {i}" for i in range(40)), ""]


def numbers(kind: pa.DataType, shape: str, rows: int, seed: int) -> Any:
    """Words of a type in one of the shapes that encodings are made for."""
    random = np.random.default_rng(seed)
    bits = kind.bit_width
    top = (1 << bits) - 1
    if shape == "narrow":
        words = random.integers(0, 100, rows, np.uint64)
    elif shape == "wide":
        words = random.integers(0, top, rows, np.uint64, endpoint=True)
    elif shape == "signed":
        words = random.integers(0, 40, rows, np.uint64) - np.uint64(20)
    elif shape == "runs":
        words = np.repeat(random.integers(0, 90, rows // 9 + 1, np.uint64), 9)[:rows]
    elif shape == "equal":
        words = np.full(rows, random.integers(0, 100), np.uint64)
    elif shape == "few":
        words = random.integers(0, top, 9, np.uint64)[random.integers(0, 9, rows)]
    else:
        edges = [0, 1, top, top >> 1, (top >> 1) + 1]
        if pa.types.is_floating(kind):
            code = f"f{bits // 8}"
            special = np.array([np.inf, -np.inf, np.nan, -0.0, 1.5, -1.5], code)
            edges += special.view(f"u{bits // 8}").tolist()
        words = np.array(edges, np.uint64)[random.integers(0, len(edges), rows)]
    raw = (words & np.uint64(top)).astype(f"<u{bits // 8}")
    if kind == pa.date64():
        raw = (raw % np.uint64(1000)) * np.uint64(86_400_000)
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(raw.tobytes())])


def with_nulls(array: Any, share: float, seed: int) -> Any:
    mask = np.random.default_rng(seed).random(len(array)) < share
    return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)


def write(
    folder: Path, array: Any, version: str, options: dict[str, str] | None = None, batch: int = 600
) -> BoundColumn:
    store = LocalStore(str(folder))
    schema = LanceSchema.from_arrow(pa.schema([pa.field("c", array.type)]))
    given = {"c": options} if options and version in ("2.1", "2.2", "2.3") else None
    writer = create_writer(store, "file.lance", schema, version, encoding_options=given)
    table = pa.table({"c": array})
    for part in table.to_batches(max_chunksize=batch):
        writer.write(part)
    writer.finish()
    reader = open_reader(store, "file.lance")
    (column,) = reader.bind(reader.schema.fields).columns
    return column


def check(column: BoundColumn, condition: Condition, start: int, stop: int) -> bool:
    """Compare with the mask; whether there was a quicker way."""
    array: Any = column.read(start, stop)
    expected = np.flatnonzero(np.asarray(condition.mask(array))) + start
    rows = column.find(condition, start, stop)
    if rows is not None:
        assert rows.dtype == np.int64
        assert rows.tolist() == expected.tolist()
    return rows is not None


def conditions(data: st.DataObject, array: Any) -> Condition:
    """A condition on values near those of an array."""
    present = array.drop_null()
    pool = pa.concat_arrays([present, numbers(array.type, "special", 20, 1)])
    pool = pool if len(present) else pool.slice(0, 5)
    position = st.integers(0, len(pool) - 1)
    form = data.draw(st.sampled_from(["range", "set", "large set", "null"]))
    if form == "null":
        return IsNull(data.draw(st.booleans()))
    if form == "range":
        low, high = data.draw(position), data.draw(position)
        bounded = data.draw(st.sampled_from([(True, True), (True, False), (False, True)]))
        return InRange(
            low=pool[low] if bounded[0] else None,
            high=pool[high] if bounded[1] else None,
            low_included=data.draw(st.booleans()),
            high_included=data.draw(st.booleans()),
        )
    count = 3 if form == "set" else 60
    drawn = data.draw(st.lists(position, max_size=count, min_size=count // 2))
    values = pool.take(pa.array(drawn, pa.int64()))
    return IsOneOf(values, negated=data.draw(st.booleans()))


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("version", VERSIONS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_numbers_are_found(tmp_path_factory: Any, version: str, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    rows = data.draw(st.sampled_from(SIZES))
    seed = data.draw(st.integers(0, 99))
    array = numbers(kind, data.draw(st.sampled_from(SHAPES)), rows, seed)
    if version != "0.1":
        array = with_nulls(array, data.draw(st.sampled_from([0.0, 0.0, 0.2, 1.0])), seed)
    options = data.draw(st.sampled_from(OPTIONS))
    column = write(tmp_path_factory.mktemp("f"), array, version, options)
    start = data.draw(st.integers(0, rows - 1))
    stop = data.draw(st.integers(start, rows))
    assert check(column, conditions(data, column.read(0, rows)), 0, rows)
    assert check(column, conditions(data, column.read(0, rows)), start, stop)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("equal", [False, True])
def test_booleans_are_found(tmp_path: Path, version: str, share: float, equal: bool) -> None:
    flags = np.random.default_rng(2).random(3001) < (2 if equal else 0.4)
    share = 0.0 if version == "0.1" else share
    column = write(tmp_path, with_nulls(pa.array(flags), share, 3), version)
    for condition in (
        IsOneOf(pa.array([True])),
        IsOneOf(pa.array([False])),
        IsOneOf(pa.array([True]), negated=True),
        IsOneOf(pa.array([], pa.bool_())),
        InRange(low=pa.scalar(True)),
        InRange(high=pa.scalar(True), high_included=False),
        IsNull(),
        IsNull(negated=True),
    ):
        for start, stop in ((0, 3001), (0, 0), (5, 2999), (1024, 1025)):
            assert check(column, condition, start, stop)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_strings_with_a_dictionary_are_found(tmp_path: Path, version: str, share: float) -> None:
    drawn = np.random.default_rng(4).integers(0, len(WORDS), 4000)
    array = with_nulls(pa.array([WORDS[i] for i in drawn.tolist()]), share, 5)
    column = write(tmp_path, array, version)
    for condition in (
        IsOneOf(pa.array(["word 7"])),
        IsOneOf(pa.array(["word 7", "nothing", ""])),
        IsOneOf(pa.array(["word 7"]), negated=True),
        InRange(low=pa.scalar("word 2"), high=pa.scalar("word 3")),
        IsNull(),
        IsNull(negated=True),
    ):
        for start, stop in ((0, 4000), (17, 3999), (1024, 1025)):
            assert check(column, condition, start, stop)


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_columns_of_dictionaries_are_found(tmp_path: Path, version: str) -> None:
    drawn = np.random.default_rng(4).integers(0, 30, 2500)
    array: Any = pa.array([WORDS[i] for i in drawn.tolist()]).dictionary_encode()
    if version != "0.1":
        array = pa.DictionaryArray.from_arrays(with_nulls(array.indices, 0.1, 6), array.dictionary)
    column = write(tmp_path, array, version)
    for condition in (
        IsOneOf(pa.array(["word 7", "x"])),
        IsOneOf(pa.array(["word 7"]), negated=True),
        IsNull(),
    ):
        assert check(column, condition, 3, 2499)


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_any_test_is_made_once_per_distinct_value(tmp_path: Path, version: str) -> None:
    drawn = np.random.default_rng(4).integers(0, len(WORDS), 4000)
    array = with_nulls(pa.array([WORDS[i] for i in drawn.tolist()]), 0.1, 5)
    column = write(tmp_path, array, version)
    entries_tested: list[Any] = []

    def passing(values: Any) -> Any:
        entries_tested.append(values)
        return pc.fill_null(pc.match_like(values, "%1%"), True)

    for start, stop in ((0, 4000), (1000, 3000)):
        rows = column.find_entries(passing, start, stop)
        assert rows is not None
        expected = np.flatnonzero(np.asarray(passing(column.read(start, stop)))) + start
        assert rows.tolist() == expected.tolist()
    entries = entries_tested[0]
    assert len(entries) == len(WORDS) + 1
    assert not entries[len(WORDS)].is_valid
    # Asked for the dictionary once, and by this test for each range.
    assert len(entries_tested) == 3


@pytest.mark.parametrize(("writer", "profile"), [(ArraysWriter, V2_0), (FileV2Writer, V2_1)])
def test_pages_of_all_kinds_are_tested_one_by_one(
    tmp_path: Path, writer: Any, profile: FormatProfile
) -> None:
    few = [WORDS[i % 7] for i in range(3000)]
    parts = [pa.array(few), pa.array([f"text {i}" for i in range(3000)]), pa.array(few)]
    strings: Any = pa.concat_arrays(parts)
    table = pa.table({"s": strings, "n": with_nulls(pa.array(range(9000)), 0.1, 1)})
    store = LocalStore(str(tmp_path))
    schema = LanceSchema.from_arrow(table.schema)
    made = writer(store, "file.lance", schema, profile, page_bytes=4096)
    for batch in table.to_batches(max_chunksize=1500):
        made.write(batch)
    made.finish()
    reader = open_reader(store, "file.lance")
    text, column = reader.bind(reader.schema.fields).columns
    assert len(column.cuts()) > 4
    for start, stop in ((0, 9000), (1499, 4501), (8999, 9000)):
        assert check(column, InRange(low=pa.scalar(1000), high=pa.scalar(5000)), start, stop)
        assert check(column, IsNull(), start, stop)
    wanted = IsOneOf(pa.array(["word 3", "text 3500"]))
    assert check(text, wanted, 0, 9000)
    assert check(text, wanted, 2900, 6100)
    assert not check(text, wanted, 3000, 6000)


def test_text_without_a_dictionary_is_left_to_the_caller(tmp_path: Path) -> None:
    array = pa.array([f"{i * 7919 % 10007} is a number" for i in range(3000)])
    for version in ("0.1", "2.0", "2.1", "2.2"):
        (tmp_path / version).mkdir()
        column = write(tmp_path / version, array, version)
        assert column.find(InRange(low=pa.scalar("9")), 0, 3000) is None
        assert column.find_entries(pc.is_valid, 0, 3000) is None


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("compression", ["fsst", "balanced"])
def test_words_are_found_in_encoded_text(
    tmp_path: Path, version: str, share: float, kind: Any, compression: str
) -> None:
    strings = [f"the number {i * 7919 % 10007} of many" * (i % 3) for i in range(4000)]
    array = with_nulls(pa.array(strings, kind), share, 8)
    column = write(tmp_path, array, version, {"compression": compression}, batch=4000)
    for condition in (
        HasText(word="79"),
        HasText(word="f manythe number 1"),
        HasText(word="the number 79", begins=True),
        HasText(word="9 of many", ends=True),
        HasText(word=strings[301], begins=True, ends=True),
        HasText(word="not there"),
        IsOneOf(pa.array([strings[301], "x", strings[1000], None], kind)),
        IsNull(),
    ):
        for start, stop in ((0, 4000), (17, 3999), (1024, 1025)):
            assert check(column, condition, start, stop)
    assert column.find(HasText(word=""), 0, 4000) is None
    assert column.find(IsOneOf(pa.array(["", "x"], kind)), 0, 4000) is None
    assert column.find(IsOneOf(pa.array(["x"], kind), negated=True), 0, 4000) is None


OTHERS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.large_binary(), [b"a" * 5000, None, b"", b"x"]),
    (pa.list_(pa.float32(), 3), [[1, 2, 3], None, [1, 2, None]]),
    (pa.list_(pa.int8()), [[1], None, []]),
    (pa.null(), [None]),
    (pa.decimal128(10, 2), [1, None, 3]),
    (pa.binary(3), [b"abc", None, b"xyz"]),
    (pa.float16(), [1.5, None, -0.0]),
    (pa.struct([("a", pa.int8())]), [{"a": 1}, None, {"a": None}]),
]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize(("kind", "values"), OTHERS, ids=lambda values: str(values)[:20])
def test_nulls_of_other_types_are_found_or_left(
    tmp_path: Path, version: str, kind: pa.DataType, values: list[Any]
) -> None:
    if version == "2.0" and pa.types.is_struct(kind):
        values = [value for value in values if value is not None]
    array = pa.array(values * 500, kind)
    column = write(tmp_path, array, version)
    nested = pa.types.is_struct(kind) or pa.types.is_list(kind)
    for condition in (IsNull(), IsNull(negated=True)):
        assert check(column, condition, 3, len(array) - 5) != nested
    if pa.types.is_decimal(kind):
        check(column, IsOneOf(array.slice(2, 1)), 0, len(array))


def test_one_value_for_all_rows_is_tested_once(tmp_path: Path) -> None:
    column = write(tmp_path, pa.array(["same"] * 2000), "2.2")
    assert check(column, IsOneOf(pa.array(["same"])), 3, 1999)
    assert check(column, IsOneOf(pa.array(["other"])), 0, 2000)
    rows = column.find_entries(lambda values: pc.fill_null(pc.equal(values, "same"), False), 5, 9)
    assert rows is not None
    assert rows.tolist() == [5, 6, 7, 8]


def test_nested_columns_and_fetched_files_are_left_to_the_caller(tmp_path: Path) -> None:
    lists: Any = pa.array([[1], None, [2, 3]])
    column = write(tmp_path, lists, "2.1")
    assert column.find(IsNull(), 0, 3) is None
    store = open_store("memory://find")
    schema = LanceSchema.from_arrow(pa.schema([("c", pa.int64())]))
    writer = create_writer(store, "file.lance", schema, "2.1")
    writer.write(pa.table({"c": np.arange(5000)}))
    writer.finish()
    reader = open_reader(store, "file.lance")
    (fetched,) = reader.bind(reader.schema.fields).columns
    assert fetched.find(IsOneOf(pa.array([1])), 0, 5000) is None


def test_rows_beyond_the_column_and_other_types_are_refused(tmp_path: Path) -> None:
    for version in ("0.1", "2.0", "2.1"):
        (tmp_path / version).mkdir()
        column = write(tmp_path / version, pa.array([1, 2, 3]), version)
        with pytest.raises(RowIndexError, match=r"rows 0\.\.4"):
            column.find(IsNull(), 0, 4)
        with pytest.raises(SchemaError, match=r"type string.*type int64"):
            column.find(IsOneOf(pa.array(["a"])), 0, 3)
        with pytest.raises(SchemaError, match=r"text.*type int64"):
            column.find(HasText(word="a"), 0, 3)


def test_a_damaged_chunk_is_reported(tmp_path: Path) -> None:
    write(tmp_path, pa.array(np.arange(5000) % 999), "2.1")
    path = tmp_path / "file.lance"
    content = bytearray(path.read_bytes())
    store = LocalStore(str(tmp_path))
    reader = open_reader(store, "file.lance")
    (column,) = reader.bind(reader.schema.fields).columns
    assert check(column, IsOneOf(pa.array([7])), 0, 5000)
    # The word in front of the first packed chunk is its width.
    at = content.index((10).to_bytes(8, "little"))
    content[at] = 65
    path.unlink()
    path.write_bytes(content)
    reader = open_reader(store, "file.lance")
    (column,) = reader.bind(reader.schema.fields).columns
    with pytest.raises(CorruptFileError, match="bit-packed chunk"):
        column.find(IsOneOf(pa.array([7])), 0, 5000)
