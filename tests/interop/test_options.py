"""Encoding keys: each is honoured, and what is written with it is read on both sides."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.interop.cases import assert_same, column

import glaive
from glaive.errors import ColumnNotFoundError, OptionError
from glaive.file.v2.container import Container
from glaive.format.pb import encodings21_pb2 as pb
from glaive.io.local import LocalStore
from glaive.types import Where

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

VERSIONS = ("2.1", "2.2", "2.3")
DIRECTIONS = [(glaive, lance), (lance, glaive), (glaive, glaive)]
NAMES = ["glaive-to-pylance", "pylance-to-glaive", "glaive-to-glaive"]
ROWS = 5000

OPTIONS: dict[str, dict[str, str]] = {
    "none": {"compression": "none"},
    "lz4": {"compression": "lz4"},
    "zstd": {"compression": "zstd"},
    "zstd_19": {"compression": "zstd", "compression-level": "19"},
    "fsst": {"compression": "fsst"},
    "lz4_bss": {"compression": "lz4", "bss": "on"},
    "zstd_bss": {"compression": "zstd", "bss": "on"},
    "zstd_no_bss": {"compression": "zstd", "bss": "off"},
    "no_runs": {"rle-threshold": "0"},
    "few_runs": {"rle-threshold": "0.5"},
    "no_dictionary": {"dict-divisor": "1000000"},
    "any_dictionary": {"dict-divisor": "1", "dict-size-ratio": "1"},
    "zstd_items": {"dict-values-compression": "zstd", "dict-values-compression-level": "9"},
    "plain_items": {"dict-values-compression": "none"},
    "small_chunks": {"minichunk-size": "512"},
    "large_chunks": {"minichunk-size": "32000"},
    "fullzip": {"structural-encoding": "fullzip"},
    "miniblock": {"structural-encoding": "miniblock"},
    "fullzip_lz4": {"structural-encoding": "fullzip", "compression": "lz4"},
    "fullzip_zstd": {"structural-encoding": "fullzip", "compression": "zstd"},
}

COLUMNS = (
    "int64_small",
    "int32_full",
    "int32_runs",
    "int8_small",
    "float64",
    "float32",
    "bool",
    "decimal128",
    "fixed_binary_3",
    "string",
    "string_few",
    "large_string",
    "string_long",
    "binary",
    "vector_f32_4",
)


def _keyed(kind: pa.DataType, name: str, options: dict[str, str]) -> pa.Field[Any]:
    """A field with the keys in its metadata; lists and structs have them at their leaves."""
    metadata: Any = {f"lance-encoding:{key}": value for key, value in options.items()}
    if pa.types.is_list(kind):
        return pa.field(name, pa.list_(_keyed(kind.value_type, "item", options)), True, metadata)
    if pa.types.is_struct(kind):
        members = [_keyed(kind.field(i).type, kind.field(i).name, options) for i in range(2)]
        return pa.field(name, pa.struct(members), True, metadata)
    return pa.field(name, kind, True, metadata)


@cache
def _columns() -> list[tuple[str, pa.Array]]:
    made = [(n, nulls, column(n, ROWS, nulls=nulls)) for n in COLUMNS for nulls in (False, True)]
    rng = np.random.default_rng(6)
    texts = column("string", ROWS, nulls=True)
    floats = column("float64", ROWS, nulls=True)
    ends = np.minimum(np.cumsum(rng.integers(0, 3, ROWS)), ROWS)
    lists = pa.ListArray.from_arrays(pa.array([0, *ends.tolist()], pa.int32()), texts)
    structs = pa.StructArray.from_arrays([texts, floats], names=["a", "b"])
    flat = [(f"{name}{'_nulls' * nulls}", array) for name, nulls, array in made]
    return [*flat, ("lists", lists), ("structs", structs)]


def _table(options: dict[str, str]) -> pa.Table:
    fields = [_keyed(array.type, name, options) for name, array in _columns()]
    arrays = [one.cast(field.type) for (_, one), field in zip(_columns(), fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@pytest.mark.sampled(every=61)
@pytest.mark.parametrize(("writer", "reader"), DIRECTIONS, ids=NAMES)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("options", OPTIONS)
def test_every_key_gives_files_that_both_read(
    tmp_path: Path, options: str, version: str, writer: ModuleType, reader: ModuleType
) -> None:
    written = _table(OPTIONS[options])
    uri = str(tmp_path / "x")
    writer.write_dataset(written, uri, data_storage_version=version)
    dataset = reader.dataset(uri)
    assert_same(dataset.to_table(), written)
    wanted = np.random.default_rng(3).integers(0, ROWS, 50).tolist()
    assert_same(dataset.take(wanted), written.take(pa.array(wanted, pa.int64())))


@pytest.mark.spec("enc-3")
def test_runs_that_pylance_compresses_twice_are_read(tmp_path: Path) -> None:
    at, rng = np.arange(20_000), np.random.default_rng(1)
    numbers = np.where(at % 3000 < 2500, at // 300, rng.integers(0, 100, len(at)))
    array, uri = pa.array(numbers.astype(np.int16)), str(tmp_path / "x")
    written = pa.table([array], schema=pa.schema([_keyed(array.type, "c", OPTIONS["lz4"])]))
    lance.write_dataset(written, uri, data_storage_version="2.3")
    described = " ".join(str(_layouts(uri)[0]).split())
    assert re.search(r"general {.* rle {.* general {", described)
    assert_same(glaive.dataset(uri).to_table(), written)


# ---------------------------------------------------------------- what the keys change


def _layouts(uri: str) -> list[pb.PageLayout]:
    """Layout of the first page of each column of a dataset's one file."""
    store = LocalStore(uri)
    (path,) = (f"data/{one.name}" for one in (Path(uri) / "data").iterdir())
    file = Container(store.open(path))
    return [
        file.page_layout(file.column(at).pages[0].encoding, Where(path, at))
        for at in range(file.footer.columns)
    ]


def _described(tmp_path: Path, table: pa.Table, version: str = "2.2", **given: Any) -> str:
    """The layout of the only column, as text."""
    uri = str(tmp_path / f"{len(list(tmp_path.iterdir()))}")
    glaive.write_dataset(table, uri, data_storage_version=version, **given)
    (layout,) = _layouts(uri)
    return " ".join(str(layout).split())


FEW = pa.array([0.25 * (i * 7919 % 997) for i in range(10_000)])
TEXT = pa.array([f"value {i} of {i % 17}" for i in range(10_000)])
WORDS = pa.array([f"value {i * 7919 % 17}" for i in range(10_000)])
KEYS = pa.array(np.repeat(np.arange(9000) // 8 * 32 + np.arange(9000) % 8 + (1 << 30), 4))
DATES = pa.array([8000 + i * 7919 % 997 for i in range(10_000)], pa.int32()).cast(pa.date32())
CODES = pa.array([(i * 7919 % 40 - 20) * 1600 for i in range(10_000)], pa.int16())
RUNS = pa.array(np.repeat(np.random.default_rng(1).integers(0, 10**12, 200), 50))


@pytest.mark.parametrize(
    ("array", "options", "there", "absent"),
    [
        (FEW, {"compression": "zstd", "dict_divisor": 9999}, "byte_stream_split", "dictionary"),
        (FEW, {"compression": "lz4", "dict_divisor": 9999, "bss": "off"}, "LZ4", "byte_stream"),
        (RUNS, {}, "rle", "byte_stream_split"),
        (RUNS, {"rle_threshold": 0.01, "dict_divisor": 9999}, "inline_bitpacking", "rle"),
        (RUNS, {"rle_threshold": 0.03}, "rle", "inline_bitpacking"),
        (RUNS, {"compression": "none", "dict_divisor": 9999}, "flat", "rle"),
        (TEXT, {}, "fsst", "general"),
        (TEXT, {"compression": "none"}, "variable", "fsst"),
        (TEXT, {"compression": "zstd", "compression_level": 7}, "level: 7", "fsst"),
        (TEXT, {"structural_encoding": "fullzip"}, "full_zip_layout { bits_per_offset", "mini"),
        (TEXT, {"compression": "balanced", "compression_level": 5}, "level: 5", "byte_stream"),
        (TEXT, {"compression": "balanced"}, "values { fsst", "dictionary"),
        (KEYS, {}, "rle", "general"),
        (KEYS, {"compression": "balanced"}, "values { rle", "dictionary"),
        (KEYS.slice(0, 500), {"compression": "balanced", "dict_divisor": 9999}, "rle", "general"),
        (RUNS, {"compression": "balanced"}, "rle", "general"),
        (FEW, {"compression": "balanced"}, "dictionary", "byte_stream"),
        (DATES, {"compression": "balanced"}, "num_dictionary_items: 997", "general"),
        (CODES, {"compression": "balanced"}, "num_dictionary_items: 40", "general"),
        (DATES, {}, "inline_bitpacking", "dictionary"),
        (TEXT.slice(0, 50), {"compression": "fsst"}, "fsst", "general"),
        (TEXT.cast(pa.binary()), {"compression": "fsst"}, "fsst", "general"),
        (TEXT.cast(pa.binary()), {}, "variable", "fsst"),
        (WORDS, {}, "num_dictionary_items: 17", "fsst"),
        (WORDS, {"dict_divisor": 1000}, "fsst", "dictionary"),
        (WORDS, {"dict_size_ratio": 0.01}, "fsst", "dictionary"),
        (WORDS, {"compression": "none"}, "flat { bits_per_value: 32 }", "bitpacking"),
        (WORDS, {"dict_values_compression": "none"}, "dictionary { variable", "general"),
        (WORDS, {"dict_values_compression": "zstd"}, "ZSTD", "LZ4"),
        (TEXT.slice(0, 9), {"structural_encoding": "miniblock"}, "mini_block_layout", "zip"),
        (FEW.slice(0, 9), {"structural_encoding": "miniblock"}, "mini_block_layout", "zip"),
    ],
)
def test_a_key_changes_how_a_column_is_kept(
    tmp_path: Path, array: pa.Array, options: dict[str, object], there: str, absent: str
) -> None:
    found = _described(tmp_path, pa.table({"x": array}), encoding_options={"x": options})
    assert there in found
    assert absent not in found


def test_metadata_and_writer_options_are_twins(tmp_path: Path) -> None:
    metadata: Any = {"lance-encoding:compression": "zstd", "lance-encoding:compression-level": "5"}
    field = pa.field("x", pa.string(), True, metadata)
    said = _described(tmp_path, pa.table([TEXT], pa.schema([field])))
    options = {"compression": "zstd", "compression-level": 5}
    assert said == _described(tmp_path, pa.table({"x": TEXT}), encoding_options={"x": options})
    assert "level: 5" in said
    wins = {"x": {"compression": "none"}}
    table = pa.table([TEXT], pa.schema([field]))
    assert "general" not in _described(tmp_path, table, encoding_options=wins)


def test_options_of_all_columns_give_way_to_those_of_one(tmp_path: Path) -> None:
    level: Any = {"lance-encoding:compression": "zstd", "lance-encoding:compression-level": "5"}
    schema = pa.schema(
        [("a", pa.string()), ("b", pa.string()), pa.field("c", pa.string(), True, level)]
    )
    every: dict[str, Any] = {"compression": "zstd", "compression_level": 7, "minichunk_size": 65536}
    options = {"*": every, "b": {"compression": "lz4"}}
    uri = str(tmp_path / "all")

    glaive.write_dataset(pa.table([TEXT] * 3, schema), uri, encoding_options=options)

    first, second, third = (str(layout) for layout in _layouts(uri))
    assert "level: 7" in first
    assert "LZ4" in second
    assert "level: 5" in third
    assert lance.dataset(uri).to_table()["a"].combine_chunks() == TEXT
    named = _described(
        tmp_path, pa.table({"*": TEXT}), encoding_options={"*": {"compression": "none"}}
    )
    assert "fsst" not in named


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_both_read_what_was_written_with_balanced_compression(tmp_path: Path, version: str) -> None:
    narrow = pa.array([(i % 40 - 20) * 1600 if i % 9 else None for i in range(ROWS)], pa.int16())
    columns = {"keys": KEYS[:ROWS], "dates": DATES.take(np.arange(ROWS) % 10_000), "narrow": narrow}
    written = pa.table({**dict(_columns()), **columns})
    options = {"*": {"compression": "balanced"}}
    uri = str(tmp_path / "x")
    glaive.write_dataset(written, uri, data_storage_version=version, encoding_options=options)
    wanted = np.random.default_rng(3).integers(0, ROWS, 50).tolist()
    for reader in (lance, glaive):
        dataset = reader.dataset(uri)
        assert_same(dataset.to_table(), written)
        assert_same(dataset.take(wanted), written.take(pa.array(wanted, pa.int64())))


@pytest.mark.spec("general-4")
def test_both_read_offsets_in_their_own_zstd_frames(tmp_path: Path) -> None:
    lengths = np.random.default_rng(1).integers(0, 40, 20_000).tolist()
    written = pa.table({"text": [f"{i * 104_729**9:x}"[-n:] for i, n in enumerate(lengths)]})
    options = {"*": {"compression": "balanced"}}
    glaive.write_dataset(written, tmp_path / "x", encoding_options=options)
    (file,) = (tmp_path / "x" / "data").iterdir()
    assert file.read_bytes().count(bytes.fromhex("28b52ffd0038")) > 5
    for reader in (lance, glaive):
        dataset = reader.dataset(str(tmp_path / "x"))
        assert_same(dataset.to_table(), written)
        assert_same(dataset.take([7, 19_999]), written.take([7, 19_999]))


def test_metadata_does_not_ask_for_balanced_compression(tmp_path: Path) -> None:
    metadata: Any = {"lance-encoding:compression": "balanced"}
    table = pa.table([TEXT], pa.schema([pa.field("x", pa.string(), True, metadata)]))
    with pytest.raises(OptionError, match="expected lz4, zstd, none or fsst, found 'balanced'"):
        glaive.write_dataset(table, str(tmp_path / "x"))


def _nested(outer: dict[str, str], inner: dict[str, str]) -> pa.Table:
    def keys(given: dict[str, str]) -> Any:
        return {f"lance-encoding:{key}": value for key, value in given.items()}

    members = pa.struct([pa.field("text", pa.string(), True, keys(inner))])
    array = pa.StructArray.from_arrays([TEXT], names=["text"]).cast(members)
    return pa.table([array], pa.schema([pa.field("s", members, True, keys(outer))]))


@pytest.mark.parametrize("writer", [glaive, lance], ids=["glaive", "pylance"])
@pytest.mark.parametrize(
    ("outer", "inner", "there"),
    [
        ({"structural-encoding": "fullzip"}, {}, "full_zip_layout"),
        ({"compression": "zstd"}, {}, "fsst"),
        ({}, {"compression": "zstd"}, "ZSTD"),
    ],
)
def test_only_the_structure_is_inherited_by_members(
    tmp_path: Path, outer: dict[str, str], inner: dict[str, str], there: str, writer: ModuleType
) -> None:
    uri = str(tmp_path / "nested")
    writer.write_dataset(_nested(outer, inner), uri, data_storage_version="2.2")
    (layout,) = _layouts(uri)
    assert there in str(layout)


def test_writer_options_go_for_everything_below_a_path(tmp_path: Path) -> None:
    table = _nested({}, {})
    below = _described(tmp_path, table, encoding_options={"s": {"compression": "zstd"}})
    assert "ZSTD" in below
    both = {"s.text": {"compression": "none"}, "s": {"compression": "zstd"}}
    assert "general" not in _described(tmp_path, table, encoding_options=both)


@pytest.mark.parametrize("version", VERSIONS)
def test_chunks_are_as_large_as_asked_for(tmp_path: Path, version: str) -> None:
    sizes = []
    for size in (512, 4096, 16_384):
        uri = str(tmp_path / f"{size}")
        options = {"x": {"compression": "none", "minichunk_size": size}}
        glaive.write_dataset(
            pa.table({"x": TEXT}), uri, data_storage_version=version, encoding_options=options
        )
        (path,) = (Path(uri) / "data").iterdir()
        file = Container(LocalStore(uri).open(f"data/{path.name}"))
        sizes.append(file.column(0).pages[0].buffer_sizes[0])
    assert sizes[0] > 5 * sizes[1] > 15 * sizes[2]


# --------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("compression", "gzip", "found 'gzip'"),
        ("compression-level", "high", "integer from -131072 to 22, found 'high'"),
        ("compression-level", "23", "found '23'"),
        ("rle-threshold", "1.5", "a number from 0 to 1"),
        ("bss", "maybe", "expected one of 'off', 'on', 'auto'"),
        ("dict-divisor", "0", "integer from 1"),
        ("dict-size-ratio", "0", "above 0, up to 1"),
        ("dict-values-compression", "fsst", "expected one of 'lz4', 'zstd', 'none'"),
        ("dict-values-compression-level", "", "integer"),
        ("minichunk-size", "-1", "integer from 1"),
        ("structural-encoding", "weird", "expected one of 'miniblock', 'fullzip', 'sparse'"),
        ("structural-encoding", "sparse", "use format 2.3"),
        ("compresion", "zstd", "did you mean '"),
        ("colour", "red", "Known: "),
    ],
)
@pytest.mark.parametrize("spelling", ["metadata", "option"])
def test_keys_and_values_that_do_not_exist_are_named(
    tmp_path: Path, key: str, value: str, expected: str, spelling: str
) -> None:
    metadata: Any = {f"lance-encoding:{key}": value} if spelling == "metadata" else None
    table = pa.table([TEXT], pa.schema([pa.field("the text", pa.string(), True, metadata)]))
    options = {} if spelling == "metadata" else {"the text": {key: value}}
    with pytest.raises(OptionError, match="the text") as error:
        glaive.write_dataset(table, str(tmp_path / "x"), encoding_options=options)
    assert expected in str(error.value)
    assert key in str(error.value)
    assert not (tmp_path / "x" / "data").exists() or not any((tmp_path / "x" / "data").iterdir())


def test_mistakes_are_found_before_a_row_is_written(tmp_path: Path) -> None:
    empty = pa.table({"x": pa.array([], pa.string())})
    uri = str(tmp_path / "x")
    with pytest.raises(OptionError, match="gzip"):
        glaive.write_dataset(empty, uri, encoding_options={"x": {"compression": "gzip"}})
    with pytest.raises(ColumnNotFoundError, match="No field named y"):
        glaive.write_dataset(empty, uri, encoding_options={"y": {"compression": "zstd"}})
    with pytest.raises(OptionError, match="part of the schema"):
        glaive.write_dataset(empty, uri, encoding_options={"x": {"packed": "true"}})
    options: Any = {"x": "zstd"}
    with pytest.raises(OptionError, match="expected a mapping"):
        glaive.write_dataset(empty, uri, encoding_options=options)


def test_large_chunks_need_a_format_that_has_them(tmp_path: Path) -> None:
    table, options = pa.table({"x": TEXT}), {"x": {"minichunk_size": 65_536}}
    with pytest.raises(OptionError, match="less than 32768 bytes"):
        glaive.write_dataset(
            table, str(tmp_path / "1"), data_storage_version="2.1", encoding_options=options
        )
    uri = str(tmp_path / "2")
    glaive.write_dataset(table, uri, data_storage_version="2.2", encoding_options=options)
    assert_same(lance.dataset(uri).to_table(), table)
