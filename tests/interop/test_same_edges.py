"""Calls at the edges of what is documented: both libraries answer alike, or refuse alike."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import glaive.fragment
import glaive.indices
import glaive.optimize
import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import DeletedRowError, OptionError, PartitionIndexError

lance = pytest.importorskip("lance", reason="install the 'interop' group")
pytest.importorskip("lance.fragment")  # pylance loads these only when asked
pytest.importorskip("lance.indices")

pytestmark = pytest.mark.interop

VECTORS = np.random.default_rng(3).random((64, 4), np.float32)
ROWS = pa.table(
    {
        "id": range(64),
        "name": [None, *(f"n{n}" for n in range(63))],
        "v": pa.FixedSizeListArray.from_arrays(VECTORS.ravel(), 4),
    }
)
PLAIN = ROWS.select(["id", "name"])
OTHER = pa.table({"q": [1, 2]})

Call = Callable[[Any, Any], object]
"""Of a library and a dataset of four fragments."""


def indexed(dataset: Any) -> Any:
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    return dataset


def by_value(dataset: Any) -> Any:
    dataset.create_scalar_index("id", "BTREE")
    return dataset


def reader(dataset: Any) -> Any:
    package = type(dataset).__module__.partition(".")[0]
    return import_module(f"{package}.dataset").VectorIndexReader(indexed(dataset), "v_idx")


def rows_of(index: Any) -> int:
    return sum(index.read_partition(number).num_rows for number in range(2))


def structs(lib: Any, dataset: Any, value: str) -> Any:
    """Rows of a column of structs, after an update of it."""
    inner = {"a": 1, "b": "x"}
    table = pa.table({"s": [inner], "deep": [{"p": inner}]})
    written = lib.write_dataset(table, f"{dataset.uri}.structs")
    written.update({"s": value})
    return written.to_table()


def updated(lib: Any, dataset: Any, kind: pa.DataType, value: str) -> Any:
    """A column of a type, after an update of its nulls."""
    written = lib.write_dataset(pa.table({"c": pa.nulls(2, kind)}), f"{dataset.uri}.updated")
    written.update({"c": value})
    return written.to_table()["c"].combine_chunks().to_pylist()


def made(lib: Any, dataset: Any, mode: str) -> object:
    """A fragment of another schema, for a place that has a dataset."""
    fragment = lib.LanceFragment.create(dataset.uri, OTHER, mode=mode)
    operation = lib.LanceOperation.Overwrite(OTHER.schema, [fragment])
    table = lib.LanceDataset.commit(dataset.uri, operation, read_version=1).to_table()
    return fragment.files[0].fields, fragment.physical_rows, table


RESULTS: dict[str, Call] = {
    "fragment of another schema, mode create": lambda lib, ds: made(lib, ds, "create"),
    "fragment of another schema, mode overwrite": lambda lib, ds: made(lib, ds, "overwrite"),
    "count with options of scans": lambda _, ds: [
        ds.count_rows(batch_size=7),
        ds.count_rows("id > 3", batch_size=7),
        ds.count_rows(filter="id > 3", with_row_id=True),
    ],
    "prewarmed without positions": lambda _, ds: by_value(ds).prewarm_index("id_idx"),
    "a struct by the names of its members": lambda lib, ds: structs(
        lib, ds, "named_struct('b', 'k', 'a', 5, 'z', 1)"
    ),
    "a struct with some of its members": lambda lib, ds: structs(lib, ds, "named_struct('a', '7')"),
    "a list as text": lambda lib, ds: updated(lib, ds, pa.string(), "[1, 2]"),
    "a list as text of a dictionary": lambda lib, ds: updated(
        lib, ds, pa.dictionary(pa.int8(), pa.string()), "['a', 'b']"
    ),
    "rows of all partitions": lambda _, ds: rows_of(reader(ds)),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_equal(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    theirs, ours = (RESULTS[name](lib, dataset(lib, tmp_path_factory)) for lib in (lance, glaive))
    assert ours == theirs


ERRORS: dict[str, tuple[type[Exception], str, Call]] = {
    "fragment below zero": (OverflowError, "negative|≥ 0", lambda _, ds: ds.get_fragment(-1)),
    "row id below zero": (
        OverflowError,
        "negative|≥ 0",
        lambda lib, _: lib.fragment.RowIdSequence([-1]),
    ),
    "no such fragment to train from": (
        ValueError,
        "Fragment id does not exist: 9",
        lambda lib, ds: lib.indices.IndicesBuilder(ds, "v").train_ivf(
            2, sample_rate=2, fragment_ids=[0, 9]
        ),
    ),
    "no such partition": (
        IndexError,
        "Partition id 7 is out of range",
        lambda _, ds: reader(ds).read_partition(7),
    ),
    "no such kind of vector index": (
        NotImplementedError,
        "IVF_XX",
        lambda _, ds: ds.create_index("v", "IVF_XX", num_partitions=1),
    ),
    "positions of an index without any": (
        ValueError,
        "FTS prewarm options are only supported for inverted indices",
        lambda _, ds: by_value(ds).prewarm_index("id_idx", with_position=True),
    ),
    "nulls in a column to be required": (
        OSError,
        "contains NULL values and cannot be made non-nullable",
        lambda _, ds: ds.alter_columns({"path": "name", "nullable": False}),
    ),
    "columns rewritten by a merge that inserts": (
        OSError,
        "cannot express this merge insert",
        lambda _, ds: (
            ds.merge_insert("id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .write_mode("rewrite_columns")
            .execute(PLAIN.slice(1))
        ),
    ),
    "drop of a folder that is no dataset": (
        ValueError,
        "Refusing to drop .* no readable Lance manifest",
        lambda lib, ds: lib.LanceDataset.drop(f"{ds.uri}/data"),
    ),
    "a join by a column that is not there": (
        OSError,
        "Column nope does not exist in the left side dataset",
        lambda _, ds: ds.merge(pa.table({"nope": [1], "w": [2]}), "nope"),
    ),
    "centroids of a column without an index": (
        KeyError,
        "No IVF index for column 'v'",
        lambda _, ds: ds.centroids(column="v"),
    ),
    "bytes as a boolean": (
        ValueError,
        "Cannot",
        lambda lib, ds: updated(lib, ds, pa.bool_(), "x'00ff'"),
    ),
    "a struct of other members": (
        ValueError,
        "(?i)cast",
        lambda lib, ds: structs(lib, ds, "struct(5, 'k')"),
    ),
    "a struct of members in other case": (
        ValueError,
        "(?i)cast",
        lambda lib, ds: structs(lib, ds, "named_struct('A', 5)"),
    ),
    "a struct of other members in a struct": (
        ValueError,
        "(?i)cast",
        lambda lib, ds: (
            structs(lib, ds, "s"),
            lib.dataset(f"{ds.uri}.structs").update(
                {"deep": "named_struct('p', named_struct('z', 1))"}
            ),
        ),
    ),
    "no such fragment to index": (
        ValueError,
        "No fragment with id 9",
        lambda _, ds: ds.create_index_uncommitted("id", "BTREE", fragment_ids=[0, 9]),
    ),
    "a time before the first version": (
        ValueError,
        "is earlier than the first version of this dataset",
        lambda lib, ds: lib.dataset(ds.uri, asof="1999-01-01 00:00:00"),
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_caught_alike(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    kind, words, call = ERRORS[name]
    for lib in (lance, glaive):
        with pytest.raises(kind, match=words):
            call(lib, dataset(lib, tmp_path_factory))


def test_an_unknown_option_of_a_count_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(OptionError, match=r"batch_sise.*did you mean 'batch_size'"):
        dataset(glaive, tmp_path_factory).count_rows(batch_sise=3)


def test_a_partition_beyond_the_last_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    index = reader(dataset(glaive, tmp_path_factory))
    for number in (-1, 2):
        with pytest.raises(PartitionIndexError, match=f"{number} is out of range.* from 0 to 1"):
            index.read_partition(number)


def test_figures_of_plans_have_the_names_of_pylance(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rows = PLAIN.slice(60).append_column("v", ROWS["v"].slice(60))
    source = pa.concat_tables([rows, rows.set_column(0, "id", pa.array(range(100, 104)))])
    for lib in (lance, glaive):
        opened = dataset(lib, tmp_path_factory)
        merge = opened.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        assert "LanceRead" in merge.explain_plan()
        said = merge.analyze_plan(source)
        for figure in ("num_inserted_rows=4", "num_updated_rows=4", "num_deleted_rows=0"):
            assert figure in said
        for name in ("bytes_written", "num_files_written", "fragments_scanned", "rows_scanned"):
            assert re.search(rf"\b{name}=[1-9]", said)
        assert re.search(r"\biops=\d", said)
        scan = opened.scanner(columns=["id"], filter="id > 2").analyze_plan()
        assert "fragments_scanned=4" in scan
        assert "rows_scanned=64" in scan
        scan = opened.scanner(columns=["id"]).analyze_plan()
        assert "fragments_scanned=4" in scan
        assert "rows_scanned=64" in scan


def test_messages_name_a_version_by_the_place_of_its_dataset(tmp_path: Path) -> None:
    opened = glaive.write_dataset(ROWS, str(tmp_path / "t"))
    with pytest.raises(LookupError, match=f"in version 1 of {tmp_path}/t.*Indices: none"):
        opened.drop_index("nope")
    for call in (
        lambda: opened.centroids(column="v"),
        lambda: glaive.LanceDataset.commit(
            opened, glaive.LanceOperation.Delete([], [77], "true"), read_version=1
        ),
    ):
        with pytest.raises(LookupError, match=f"version 1 of {tmp_path}/t") as caught:
            call()
        assert "manifest" not in str(caught.value)


def dataset(lib: Any, places: pytest.TempPathFactory) -> Any:
    return lib.write_dataset(ROWS, str(places.mktemp("edges") / "t"), max_rows_per_file=16)


@pytest.mark.parametrize("module", ["lance", "glaive"])
def test_small_things_are_as_in_pylance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """Values and classes of errors, one call each."""
    monkeypatch.chdir(tmp_path)
    lib, util = import_module(module), import_module(f"{module}.util")
    numbers = lib.write_dataset(pa.table({"k": range(9)}), "numbers")
    assert numbers.take([0, 1], columns=["_rowid", "_rowid"]).column_names == ["_rowid", "_rowid"]
    assert not import_module(f"{module}.lance").manifest_needs_migration(numbers)
    numbers._default_scan_options = {"with_row_id": True}  # noqa: SLF001  # clients set it
    assert numbers.schema.names == ["k", "_rowid"]
    random = np.random.default_rng(0)
    cubes = random.standard_normal((99, 4, 4), np.float32)
    with pytest.raises(ValueError, match="must be a 1-D array, got 2-D"):
        util.KMeans(2).fit(pa.FixedShapeTensorArray.from_numpy_ndarray(cubes))
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([("k", pa.int64()), blob])
    rows = pa.table([[0, 1], pa.array([b"a", b"b"], pa.large_binary())], schema=schema)
    blobs = lib.write_dataset(rows, "blobs", data_storage_version="2.1")
    blobs.delete("k = 0")
    with pytest.raises(NotImplementedError, match="must not target deleted rows") as caught:
        blobs.take_blobs("b", addresses=[0, 1])
    if module == "glaive":
        with pytest.raises(DeletedRowError):
            raise caught.value
    values = random.standard_normal(600 * 16, np.float32)
    vectors = pa.table({"v": pa.FixedSizeListArray.from_arrays(values, 16)})
    options = {"num_partitions": 2, "num_sub_vectors": 4, "metric": "cosine"}
    indexed = lib.write_dataset(vectors, "v").create_index("v", "IVF_PQ", **options)
    (told,) = indexed.stats.index_stats("v_idx")["indices"]
    assert (told["metric_type"], told["sub_index"]["metric_type"]) == ("cosine", "l2")
    with pytest.raises(ValueError, match="failed sanity check, only 20/20 passed"):
        util.validate_vector_index(indexed, "v", sample_size=20, pass_threshold=1.1)
    options |= {"index_file_version": "Legacy", "replace": True}
    assert lib.dataset("v").create_index("v", "IVF_PQ", **options).count_rows() == 600
    nothing = lib.dataset("v", index_cache_size_bytes=0)
    for _ in range(3):
        nothing.to_table(nearest={"column": "v", "q": values[:16]})
    assert nothing._ds.index_cache_hit_rate() == 0  # noqa: SLF001  # clients call it


@pytest.mark.parametrize("module", ["lance", "glaive"])
def test_new_columns_may_be_values_that_were_made_before(tmp_path: Path, module: str) -> None:
    lib, made = import_module(module), np.arange(8) * 1.5
    batch = pa.record_batch({"score": made})
    kinds = {
        "function": lambda _: batch,
        "frame": lambda _: batch.to_pandas(),
        "wrapped": lib.batch_udf()(lambda _: batch),
        "declared": lib.batch_udf(batch.schema)(lambda _: batch),
    }
    for name, function in kinds.items():
        dataset = lib.write_dataset(pa.table({"k": range(8)}), str(tmp_path / name))
        metadata, _ = dataset.get_fragments()[0].merge_columns(function)
        assert metadata.physical_rows == 8
        dataset.add_columns(function)
        assert dataset.to_table()["score"].to_pylist() == made.tolist(), name
        with pytest.raises((ValueError, OSError), match="size"):
            dataset.add_columns(lambda _: pa.record_batch({"other": made[:3]}))


@pytest.mark.parametrize("module", ["lance", "glaive"])
def test_the_progress_of_a_fragment_names_its_file_and_its_id(tmp_path: Path, module: str) -> None:
    lib, progress = import_module(module), import_module(f"{module}.progress")
    calls: list[object] = []

    class Noted(progress.FragmentWriteProgress):  # type: ignore[misc,name-defined]  # of either
        def begin(self, fragment: Any, **_: object) -> None:
            names = [(one.path[-6:], one.file_major_version) for one in fragment.files]
            calls.append(("begin", fragment.id, names, fragment.physical_rows))

        def complete(self, fragment: Any, **_: object) -> None:
            calls.append(("complete", fragment.id, len(fragment.files), fragment.physical_rows))

    rows = pa.table({"k": range(9)})
    lib.LanceFragment.create(str(tmp_path / "a"), rows, fragment_id=7, progress=Noted())
    assert calls == [("begin", 7, [(".lance", 2)], None), ("complete", 7, 1, 9)]
    calls.clear()
    options = {"max_rows_per_file": 4, "max_rows_per_group": 4}
    lib.fragment.write_fragments(rows, str(tmp_path / "b"), progress=Noted(), **options)
    assert calls[:3] == [("begin", 0, [], None), ("complete", 0, 1, 4), ("begin", 0, [], None)]
    notes = progress.FileSystemFragmentWriteProgress(str(tmp_path / "notes"))
    made = lib.LanceFragment.create(str(tmp_path / "c"), rows, progress=notes)
    kept = json.loads((tmp_path / "notes" / "fragment_0.json").read_text())
    assert [one["path"] for one in kept["files"]] == [made.files[0].path]


def test_indices_that_are_brought_up_to_date_leave_no_empty_folders(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(600 * 16, np.float32)
    rows = pa.table({"v": pa.FixedSizeListArray.from_arrays(values, 16), "k": range(600)})
    dataset = glaive.write_dataset(rows, tmp_path / "d")
    for kind in ("IVF_FLAT", "IVF_HNSW_SQ"):
        dataset.create_index("v", kind, num_partitions=2, name=kind)
    for kind in ("BTREE", "BITMAP", "ZONEMAP"):
        dataset.create_scalar_index("k", kind, name=kind)
    for _ in range(2):
        dataset = glaive.write_dataset(rows.slice(550), tmp_path / "d", mode="append")
        dataset.optimize.optimize_indices()
    folders = list((tmp_path / "d" / "_indices").iterdir())
    assert len(folders) >= 10
    assert all(any(folder.iterdir()) for folder in folders)


@pytest.mark.parametrize("module", ["lance", "glaive"])
def test_what_is_no_table_of_lance_is_refused(tmp_path: Path, module: str) -> None:
    lib, fragment = import_module(module), import_module(f"{module}.fragment")
    schema = pa.schema([("k", pa.int64())])
    odd = {"a": b"\x80\x81"}
    rows = pa.table([[1]], schema=schema)
    inner = pa.struct([pa.field("m", pa.int64(), metadata=odd)])
    for wrong in (
        rows.replace_schema_metadata(odd),
        pa.table([[1]], schema=pa.schema([schema.field(0).with_metadata(odd)])),
        pa.table([[{"m": 1}]], schema=pa.schema([pa.field("s", inner)])),
    ):
        with pytest.raises(ValueError, match=r"(?i)utf-?8"):
            lib.write_dataset(wrong, str(tmp_path / "a"))
    right = rows.replace_schema_metadata({"a": "ä"})
    assert lib.write_dataset(right, str(tmp_path / "b")).schema.metadata == {b"a": "ä".encode()}
    nothing = pa.table({"k": [1, 2]}).select([])
    with pytest.raises(OSError):  # noqa: PT011  # other words
        lib.write_dataset(nothing, str(tmp_path / "c"))
    with pytest.raises(OSError):  # noqa: PT011  # other words
        lib.LanceFragment.create(str(tmp_path / "d"), nothing)
    assert len(fragment.write_fragments(nothing, str(tmp_path / "e"))) == 1


@pytest.mark.parametrize("module", ["lance", "glaive"])
@pytest.mark.parametrize(
    ("expressions", "files"),
    [
        ({"new": "CAST(NULL AS INT)"}, 1),
        ({"new": "cast(null as string)", "other": "CAST(NULL AS timestamp)"}, 1),
        ({"new": "CAST(NULL AS INT)", "other": "k + 1"}, 2),
        ({"new": "CAST(NULL AS INT) + k"}, 2),
    ],
)
def test_columns_of_a_constant_null_change_the_schema_alone(
    tmp_path: Path, module: str, expressions: dict[str, str], files: int
) -> None:
    dataset = import_module(module).write_dataset(
        pa.table({"k": range(90)}), str(tmp_path / "t"), max_rows_per_file=30
    )
    dataset.add_columns(expressions)
    assert [len(one.data_files()) for one in dataset.get_fragments()] == [files] * 3
    assert dataset.to_table()["new"].null_count == 90
