"""Calls at the edges of what is documented: both libraries answer alike, or refuse alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
import glaive.fragment
import glaive.indices
import glaive.optimize
from glaive.errors import OptionError, PartitionIndexError

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


def test_a_partition_beyond_the_last_is_refused(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
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
    with pytest.raises(LookupError, match=f"in version 1 of {tmp_path}/t: .*Indices: none"):
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
