"""Format 0.1 both ways: what it keeps of every type, and what it loses, is as in pylance."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.historical import EXPECTED, copied, rows_of
from tests.interop.cases import COLUMNS, SIZES, assert_same, table
from tests.legacy_statistics import page_statistics

import glaive
from glaive.errors import SchemaError
from glaive.file.legacy import LegacyFile, LegacyFileWriter
from glaive.file.open import open_reader
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

KEYS = pa.array([1, 0, 2, None, 1], pa.int8())


def dictionary(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(KEYS, pa.array(values, kind))


SPECIAL = {
    "null": pa.nulls(5),
    "list_null": pa.array([[None], [], [None, None], [], []], pa.list_(pa.null())),
    "fixed_list_bool": pa.array([[True, False, True]] * 5, pa.list_(pa.bool_(), 3)),
    "fixed_list_nested": pa.array([[[1, 2], [3, 4]]] * 5, pa.list_(pa.list_(pa.int16(), 2), 2)),
    "fixed_list_binary": pa.array([[b"ab", b"cd"]] * 5, pa.list_(pa.binary(2), 2)),
    "dictionary_string": dictionary(["p", "", "r"], pa.string()),
    "dictionary_binary": dictionary([b"p", b"q", b"r"], pa.large_binary()),
    "dictionary_int": dictionary([10, 20, 30], pa.uint32()),
    "list_dictionary": pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 2, 4, 5], pa.int32()), dictionary(["p", "q", "r"], pa.string())
    ),
    "struct_dictionary": pa.StructArray.from_arrays(
        [dictionary(["p", "q", "r"], pa.large_string())], names=["k"]
    ),
    "list_of_required": pa.array(
        [[{"a": 1}]] * 5, pa.list_(pa.struct([pa.field("a", pa.int8(), nullable=False)]))
    ),
    "fixed_list_bool_nulls": pa.array([[True, None, True]] * 5, pa.list_(pa.bool_(), 3)),
    "slots_of_nulls": pa.StructArray.from_arrays(
        [
            pa.Array.from_buffers(kind, 5, [pa.py_buffer(b"\x15"), *buffers])
            for kind, *buffers in (
                (pa.bool_(), pa.py_buffer(b"\x1f")),
                (pa.int16(), pa.py_buffer(bytes(range(10)))),
                (pa.binary(2), pa.py_buffer(bytes(range(10)))),
                (
                    pa.string(),
                    pa.array(["a", "bb", "", "dd", "e"]).buffers()[1],
                    pa.py_buffer(b"abbdde"),
                ),
            )
        ],
        names=list("abcd"),
        mask=pa.array([False, False, True, True, False]),
    ),
    "sliced": pa.array([{"a": n, "b": [n], "c": n % 2 == 0} for n in range(9)])[3:8],
}


def compare(written: pa.Table, folder: Path) -> None:
    """Write with both, read with both: four equal results, whole, in parts and taken."""
    uris = {}
    for writer in (glaive, lance):
        uris[writer.__name__] = str(folder / writer.__name__)
        writer.write_dataset(written, uris[writer.__name__], data_storage_version="legacy")
    expected = lance.dataset(uris["lance"]).to_table()
    rows = written.num_rows
    assert expected.num_rows == rows
    for writer, reader in ((glaive, lance), (lance, glaive), (glaive, glaive)):
        dataset = reader.dataset(uris[writer.__name__])
        assert dataset.count_rows() == rows
        assert dataset.data_storage_version == "0.1"
        assert_same(dataset.to_table(), expected)
        last = written.column_names[-1:]
        assert_same(dataset.to_table(columns=last), expected.select(last))
        if not rows:
            continue
        rng = np.random.default_rng(rows)
        wanted = [*rng.integers(0, rows, 40).tolist(), 0, rows - 1, 0]
        assert_same(dataset.take(wanted), expected.take(pa.array(wanted)))
        offset, limit = rows // 3, max(1, rows // 2)
        assert_same(dataset.to_table(offset=offset, limit=limit), expected.slice(offset, limit))


@pytest.mark.sampled(every=40)
@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_reads_as_pylance_reads_it(tmp_path: Path, name: str) -> None:
    for rows in SIZES[:5] if "long" in name else (*SIZES[:5], 7000):
        compare(table(name, rows), tmp_path / str(rows))


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("name", SPECIAL)
def test_types_of_this_format_alone(tmp_path: Path, name: str) -> None:
    compare(pa.table({"c": SPECIAL[name]}), tmp_path)


LOSSLESS = [
    name
    for name in COLUMNS
    if not name.startswith(
        ("list", "large_list", "struct", "all_null", "vector_holes", "vector_of_nulls")
    )
    and "few" not in name
]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("name", LOSSLESS)
def test_values_survive(tmp_path: Path, name: str) -> None:
    written = table(name, 2500).select(["plain", "required"])
    glaive.write_dataset(written, tmp_path / "d", data_storage_version="legacy")
    assert_same(glaive.dataset(tmp_path / "d").to_table(), written)


@pytest.mark.parametrize("writer", [glaive, lance], ids=["glaive", "pylance"])
def test_both_append_and_delete(tmp_path: Path, writer: ModuleType) -> None:
    uri = str(tmp_path / "d")
    first = pa.table(
        {
            "id": np.arange(3000),
            "text": [f"row {n}" for n in range(3000)],
            "key": pa.DictionaryArray.from_arrays(
                pa.array((np.arange(3000) % 3).astype(np.int8)), pa.array(["p", "q", "r"])
            ),
        }
    )
    writer.write_dataset(first, uri, data_storage_version="legacy", max_rows_per_file=2000)
    glaive.write_dataset(first, uri, mode="append")
    lance.write_dataset(first, uri, mode="append")
    lance.dataset(uri).delete("id % 7 = 0")
    glaive.write_dataset(first.slice(0, 10), uri, mode="append")
    found, expected = glaive.dataset(uri).to_table(), lance.dataset(uri).to_table()
    assert_same(found, expected)
    assert found.num_rows == 3 * (3000 - 429) + 10
    wanted = [0, found.num_rows - 1, 5000, 17]
    assert_same(glaive.dataset(uri).take(wanted), lance.dataset(uri).take(wanted))
    other = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["z"]))
    unknown = first.slice(0, 1).set_column(2, "key", other)
    with pytest.raises(SchemaError, match="one dictionary per dataset"):
        glaive.write_dataset(unknown, uri, mode="append")


@pytest.mark.parametrize("writer", [glaive, lance], ids=["glaive", "pylance"])
@pytest.mark.parametrize("text", ["", None])
def test_filters_know_that_empty_texts_of_dictionaries_are_nulls(
    tmp_path: Path, text: str | None, writer: ModuleType
) -> None:
    texts = pa.array(["a", text, "b"])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1] * 500, pa.int16()), texts)
    uri = str(tmp_path / "t")
    options = {"data_storage_version": "0.1", "max_rows_per_group": 300}
    writer.write_dataset(pa.table({"c": column}), uri, **options)
    found, expected = glaive.dataset(uri), lance.dataset(uri)
    assert found.to_table().to_pylist() == expected.to_table().to_pylist()
    for wanted in ("c IS NULL", "c IS NOT NULL", "c <> 'a'", "NOT c = 'a'", "c = 'b'", "c = ''"):
        assert found.count_rows(wanted) == expected.count_rows(wanted), wanted


def test_texts_of_dictionaries_that_are_never_null_may_be_empty(tmp_path: Path) -> None:
    texts = pa.array(["a", "", "b"])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1], pa.int16()), texts)
    schema = pa.schema([pa.field("c", column.type, nullable=False)])
    rows = pa.table([column], schema=schema)
    dataset = glaive.write_dataset(rows, tmp_path / "t", data_storage_version="0.1")
    assert dataset.to_table()["c"].to_pylist() == ["a", "", "b", ""]


def test_columns_that_pylance_added_are_read(tmp_path: Path) -> None:
    uri = str(tmp_path / "d")
    glaive.write_dataset(
        pa.table({"a": np.arange(2500), "s": [{"x": n} for n in range(2500)]}),
        uri,
        data_storage_version="legacy",
    )
    dataset = lance.dataset(uri)
    dataset.add_columns({"b": "a * 2", "c": "cast(a as string)"})
    dataset.drop_columns(["a"])
    assert_same(glaive.dataset(uri).to_table(), dataset.to_table())
    assert_same(glaive.dataset(uri).take([2499, 1]), dataset.take([2499, 1]))
    files = glaive.dataset(uri).get_fragments()[0].metadata.files
    assert [file.fields[0] for file in files] == [0, 3]


def test_a_dataset_of_the_other_format_does_not_take_such_files(tmp_path: Path) -> None:
    rows = pa.table({"a": [1]})
    glaive.write_dataset(rows, tmp_path / "d", data_storage_version="legacy")
    glaive.write_dataset(rows, tmp_path / "d", mode="append")
    assert glaive.dataset(tmp_path / "d").data_storage_version == "0.1"
    glaive.write_dataset(rows, tmp_path / "d", mode="overwrite", data_storage_version="2.1")
    assert lance.dataset(str(tmp_path / "d")).data_storage_version == "2.1"


def statistics(folder: Path) -> pa.Table:
    (path,) = folder.glob("data/*.lance")
    file = open_reader(LocalStore(folder), str(path.relative_to(folder)))
    assert isinstance(file, LegacyFile)
    found = page_statistics(file)
    assert found is not None
    return found


def measured() -> pa.Table:
    """Columns that both measure, with pages of nulls, of NaN, and of long strings."""
    rng = np.random.default_rng(3)
    holes = rng.random(5000) < 0.3
    holes[1024:2048] = True
    floats = rng.normal(size=5000).round(1)
    floats[2048:3072] = np.nan
    floats[::5] = -0.0
    long = [f"{n % 13}" * (n % 90) for n in range(5000)]
    return pa.table(
        {
            "i": pa.array(rng.integers(-100, 100, 5000).astype(np.int16), mask=holes),
            "u": pa.array(rng.integers(0, 2**63, 5000).astype(np.uint64), mask=holes),
            "f": pa.array(floats, mask=holes),
            "g": pa.array(floats.astype(np.float32)),
            "b": pa.array(rng.random(5000) < 0.5, mask=holes),
            "d": pa.array(rng.integers(0, 9999, 5000).astype(np.int32), mask=holes).view(
                pa.date32()
            ),
            "m": pa.array(rng.integers(0, 9999, 5000), mask=holes).cast(pa.decimal128(19, 0)),
            "s": pa.StructArray.from_arrays([pa.array(rng.integers(0, 9, 5000))], names=["x"]),
            "t": pa.array(long, mask=holes),
            "y": pa.array([one.encode() for one in long], pa.large_binary(), mask=holes),
        }
    )


def test_statistics_are_those_of_pylance(tmp_path: Path) -> None:
    rows = measured()
    for writer in (glaive, lance):
        writer.write_dataset(rows, str(tmp_path / writer.__name__), data_storage_version="legacy")
    mine, theirs = statistics(tmp_path / "glaive"), statistics(tmp_path / "lance")
    assert mine.column_names == theirs.column_names
    assert mine.num_rows == theirs.num_rows == 5
    for name in mine.column_names:
        kind = mine[name].type.field("min_value").type
        one, other = mine[name].combine_chunks(), theirs[name].combine_chunks()
        assert one.field("null_count").equals(other.field("null_count"))
        if pa.types.is_string(kind) or pa.types.is_large_binary(kind):
            continue  # theirs are wider than they need to be
        for bound in ("min_value", "max_value"):
            found, expected = one.field(bound), other.field(bound)
            assert found.to_string() == expected.to_string(), (name, bound)


FILTERS = [
    ("i > 90", "i"),
    ("u < 100000000000000000", "u"),
    ("f < -3.0", "f"),
    ("g > 3.0", "g"),
    ("b", "b"),
    ("d > date '1997-01-01'", "d"),
    ("t > '9'", "t"),
    ("t = '12121212'", "t"),
    ("s.x = 8", "s"),
]


@pytest.mark.parametrize(("condition", "column"), FILTERS)
def test_pylance_finds_the_same_rows_with_both_statistics(
    tmp_path: Path, condition: str, column: str
) -> None:
    found = []
    for writer in (glaive, lance):
        uri = str(tmp_path / writer.__name__)
        writer.write_dataset(measured().select([column]), uri, data_storage_version="legacy")
        found.append(lance.dataset(uri).to_table(filter=condition))
    assert found[0].num_rows > 0
    assert_same(found[0], found[1])


@pytest.mark.parametrize("batch", [1, 100, 1024])
def test_batches_of_any_size_are_read_by_pylance(tmp_path: Path, batch: int) -> None:
    rows = table("list_struct_list", 1000).select(["plain"])
    uri = str(tmp_path / "d")
    glaive.write_dataset(rows, uri, data_storage_version="legacy")
    (path,) = (tmp_path / "d" / "data").iterdir()
    path.unlink()
    writer = LegacyFileWriter(
        LocalStore(uri), f"data/{path.name}", LanceSchema.from_arrow(rows.schema),
        rows_per_batch=batch,
    )  # fmt: skip
    writer.write(rows)
    size = writer.finish().size
    file = lance.fragment.DataFile(path.name, writer_fields(rows), [], 0, 2, size)
    fragment = lance.FragmentMetadata(0, [file], 1000)
    operation = lance.LanceOperation.Overwrite(rows.schema, [fragment])
    dataset = lance.LanceDataset.commit(uri, operation, read_version=1)
    assert_same(glaive.dataset(uri).to_table(), dataset.to_table())


def writer_fields(rows: pa.Table) -> list[int]:
    return LanceSchema.from_arrow(rows.schema).field_ids()


@pytest.mark.parametrize("name", EXPECTED)
def test_old_datasets_read_as_they_always_did(tmp_path: Path, name: str) -> None:
    copied(name, tmp_path / "d")
    before = {path: path.read_bytes() for path in (tmp_path / "d").rglob("*") if path.is_file()}
    for version, facts in EXPECTED[name].items():
        if facts["data_storage_version"] != "0.1":
            continue
        dataset = glaive.dataset(tmp_path / "d", version=int(version))
        expected = rows_of(name, version)
        assert_same(dataset.to_table(), expected)
        assert dataset.count_rows() == facts["rows"]
        wanted = np.arange(facts["rows"])[::-3].tolist()
        assert_same(dataset.take(wanted), expected.take(pa.array(wanted, pa.int64())))
    after = {path: path.read_bytes() for path in (tmp_path / "d").rglob("*") if path.is_file()}
    assert after == before


def test_rows_are_appended_to_an_old_dataset(tmp_path: Path) -> None:
    uri = str(copied("v0.7.5/with_deletions", tmp_path / "d"))
    before = glaive.dataset(uri).to_table()
    added = pa.table({"x": pa.array([7, 8], pa.int64())})
    glaive.write_dataset(added, uri, mode="append")
    expected = pa.concat_tables([before, added])
    assert_same(glaive.dataset(uri).to_table(), expected)
    assert_same(lance.dataset(uri).to_table(), expected)
    assert lance.dataset(uri).count_rows() == expected.num_rows
