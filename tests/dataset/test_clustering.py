"""Tables that want their rows clustered: what maintenance and appends write again, and why."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from tests.kit.crashes import left_by_kills

import glaive
from glaive.dataset import clustering, maintenance
from glaive.errors import ColumnNotFoundError, OptionError, SchemaError

TARGET = 1000
"""Rows of a fragment."""


def rows(count: int, seed: int = 0, *, width: int = 4) -> pa.Table:
    random = np.random.default_rng(seed)
    payload = pa.py_buffer(random.bytes(width * count))
    return pa.table(
        {
            "k": random.permutation(count),
            "x": random.integers(0, 100, count),
            "payload": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(width), count, [None, payload]
            ),
        }
    )


def made(
    uri: Path, *keys: str, count: int = 4 * TARGET, config: dict[str, str] | None = None, **how: Any
) -> glaive.LanceDataset:
    dataset = glaive.write_dataset(rows(count), uri, max_rows_per_file=count // 4, **how)
    target = {"lance.compaction.target_rows_per_fragment": f"{TARGET}"}
    keys_of = {"glaive.cluster_by": json.dumps(list(keys))}
    dataset.update_config(target | keys_of | (config or {}))
    return dataset


def maintained(dataset: glaive.LanceDataset, **options: Any) -> list[str]:
    options = {"steps": ["compact"], "small_fragments": 1} | options
    return [step.reason for step in dataset.optimize.maintain(**options)]


def contents(dataset: Any) -> list[tuple[Any, ...]]:
    found = dataset.to_table().to_pydict()
    return sorted(zip(*found.values(), strict=True))


def spans(dataset: Any, column: str = "k") -> list[tuple[int, int]]:
    """The least and the greatest value of each fragment, whose rows are in order."""
    found = []
    for fragment in dataset.get_fragments():
        values = fragment.to_table([column])[column].to_numpy()
        assert (np.diff(values) >= 0).all()
        found.append((int(values[0]), int(values[-1])))
    return found


FILTERS = {"k": "k between 500 and 700", "x": "x between 5 and 7"}


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
@pytest.mark.parametrize("keys", [("k",), ("k", "x")], ids=",".join)
def test_filters_on_the_columns_read_far_fewer_bytes_afterwards(
    tmp_path: Path, keys: tuple[str, ...], stable: bool
) -> None:
    uri, count = tmp_path / "t.lance", 40_000
    table = rows(count, width=500)
    dataset = glaive.write_dataset(table, uri, max_rows_per_file=4000, enable_stable_row_ids=stable)
    config = {"glaive.cluster_by": json.dumps(keys)}
    dataset.update_config(config | {"lance.compaction.target_rows_per_fragment": "4000"})
    for key in keys:
        dataset.create_scalar_index(key, "ZONEMAP", rows_per_zone=500)

    def read(filter: str) -> tuple[int, pa.Table]:
        figures: list[Any] = []
        found = dataset.scanner(filter=filter, scan_stats_callback=figures.append).to_table()
        return figures[0].bytes_read, found.sort_by("k")

    ids = dataset.to_table(["k"], with_row_id=True).sort_by("k")
    before = {key: read(FILTERS[key]) for key in keys}
    reason = f"10 of 10 fragments are not clustered by {', '.join(keys)}"
    assert maintained(dataset, steps=["compact", "optimize_indices"])[0] == reason
    assert (dataset.to_table(["k"], with_row_id=True).sort_by("k") == ids) is stable
    for key in keys:
        (size, found), (fewer, again) = before[key], read(FILTERS[key])
        assert again == found
        assert fewer < size / 2
        by_pylance = lance.dataset(str(uri)).to_table(filter=FILTERS[key])
        assert by_pylance.sort_by("k") == found


def test_only_new_fragments_are_clustered(tmp_path: Path) -> None:
    dataset = made(tmp_path / "t.lance", "k")
    assert maintained(dataset) == ["4 of 4 fragments are not clustered by k"]
    assert spans(dataset) == [(at, at + TARGET - 1) for at in range(0, 4 * TARGET, TARGET)]
    assert maintained(dataset) == []
    old = {fragment.fragment_id for fragment in dataset.get_fragments()}

    dataset.insert(rows(300, 1))
    dataset.insert(rows(400, 2))
    assert maintained(dataset, small_fragments=3) == []
    assert maintained(dataset, dry_run=True) == ["2 of 6 fragments are not clustered by k"]
    assert maintained(dataset) == ["2 of 6 fragments are not clustered by k"]
    assert old < {fragment.fragment_id for fragment in dataset.get_fragments()}
    assert spans(dataset)[4:] == [(0, 399)]

    # A small one joins new ones with as many rows, and no fewer.
    dataset.insert(rows(600, 3))
    maintained(dataset)
    assert [one.count_rows() for one in dataset.get_fragments()[4:]] == [700, 600]
    dataset.insert(rows(700, 4))
    maintained(dataset)
    assert [one.count_rows() for one in dataset.get_fragments()[4:]] == [1000, 1000]
    assert len(spans(lance.dataset(dataset.uri))) == 6


def renamed(dataset: glaive.LanceDataset) -> None:
    dataset.alter_columns({"path": "k", "name": "key"})
    dataset.update_config({"glaive.cluster_by": '["key"]'})


def compacted_by_pylance(dataset: glaive.LanceDataset) -> None:
    lance.dataset(dataset.uri).optimize.compact_files(target_rows_per_fragment=2 * TARGET)


def replaced_by_pylance(column: str) -> Callable[[glaive.LanceDataset], Any]:
    """Give one fragment other values of a column, in a file of its own."""

    def change(dataset: glaive.LanceDataset) -> None:
        other = lance.dataset(dataset.uri)
        fragment = other.get_fragments()[0]
        ids = fragment.to_table(["k"], with_row_id=True)["_rowid"]
        values = pa.table({"_rowid": ids, column: range(len(ids), 0, -1)})
        changed, fields = fragment.update_columns(values)
        operation = lance.LanceOperation.Update(updated_fragments=[changed], fields_modified=fields)
        lance.LanceDataset.commit(other, operation, read_version=other.version)

    return change


def keys(*names: str) -> Callable[[glaive.LanceDataset], Any]:
    return lambda dataset: dataset.update_config({"glaive.cluster_by": json.dumps(names)})


CHANGES: dict[str, tuple[Callable[[glaive.LanceDataset], Any], int]] = {
    "a scan": (lambda dataset: dataset.to_table(), 0),
    "a few deleted rows": (lambda dataset: dataset.delete("k < 50"), 0),
    "updated rows": (lambda dataset: dataset.update({"x": "x + 1"}, "k = 7"), 1),
    "an added column": (lambda dataset: dataset.add_columns({"twice": "2 * k"}), 0),
    "an added key": (keys("k", "x"), 4),
    "another key": (keys("x"), 4),
    "no key": (keys(), 0),
    "a renamed key": (renamed, 0),
    "compaction by pylance": (compacted_by_pylance, 2),
    "other values of another column": (replaced_by_pylance("x"), 0),
    "other values of the key": (replaced_by_pylance("k"), 1),
    "an older version": (lambda dataset: dataset.checkout_version(2).restore(), 4),
}
"""By name: a change of a clustered table, and how many fragments are then out of order."""


@pytest.mark.parametrize("name", CHANGES)
def test_changes_by_all_writers_leave_right_what_is_in_order(tmp_path: Path, name: str) -> None:
    dataset = made(tmp_path / "t.lance", "k")
    maintained(dataset)
    change, expected = CHANGES[name]
    change(dataset)
    dataset = glaive.dataset(dataset.uri)
    before, of = contents(dataset), len(dataset.get_fragments())
    reasons = maintained(dataset)
    if expected:
        are = "fragment is" if of == 1 else "fragments are" if expected > 1 else "fragments is"
        assert reasons[0].startswith(f"{expected} of {of} {are} not clustered by ")
    else:
        assert reasons == []
    assert maintained(dataset) == []
    assert contents(lance.dataset(dataset.uri)) == before


def test_fragments_that_lost_many_rows_are_clustered_again(tmp_path: Path) -> None:
    dataset = made(tmp_path / "t.lance", "k")
    maintained(dataset)
    dataset.delete("k >= 500 and k < 1500")
    assert maintained(dataset) == ["2 of 4 fragments lost more than 10 % of the rows"]
    assert sorted(spans(dataset)) == [(0, 1999), (2000, 2999), (3000, 3999)]


@pytest.mark.parametrize("indexed", [False, True], ids=["", "indexed"])
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
def test_appends_cluster_new_fragments_if_properties_ask_for_it(
    tmp_path: Path, stable: bool, indexed: bool
) -> None:
    config = {"glaive.auto_compact": "4"} | ({"glaive.auto_index": "true"} if indexed else {})
    dataset = made(tmp_path / "t.lance", "k", config=config, enable_stable_row_ids=stable)
    dataset.create_scalar_index("k", "BTREE")
    maintained(dataset)
    expected = contents(dataset)
    for at in range(40):
        more = rows(100, at)
        dataset.insert(more)
        expected += zip(*more.to_pydict().values(), strict=True)
    assert len(dataset.get_fragments()) < 16
    assert contents(lance.dataset(dataset.uri)) == sorted(expected)
    found = lance.dataset(dataset.uri).to_table(filter="k = 7")
    assert found.num_rows == dataset.count_rows("k = 7") == 41
    maintained(dataset)
    assert len(spans(dataset)) < 16


@pytest.mark.parametrize("sizes", [{"max_source_rows": 2000}, {"max_source_fragments": 2}])
def test_limits_bound_what_a_compaction_on_the_table_clusters(
    tmp_path: Path, sizes: dict[str, int]
) -> None:
    config = {f"lance.compaction.{name}": f"{value}" for name, value in sizes.items()}
    dataset = made(tmp_path / "t.lance", "k", config=config)
    assert maintained(dataset) == ["2 of 4 fragments are not clustered by k"]
    assert maintained(dataset) == ["2 of 4 fragments are not clustered by k"]
    assert maintained(dataset) == []


@pytest.mark.parametrize("keys", [("k",), ("k", "x")], ids=",".join)
def test_indices_find_sorted_rows_of_tables_that_defer_their_remapping(
    tmp_path: Path, keys: tuple[str, ...]
) -> None:
    config = {"lance.compaction.defer_index_remap": "true"}
    dataset = made(tmp_path / "t.lance", *keys, config=config)
    dataset.create_scalar_index("k", "BTREE")
    assert maintained(dataset)
    for reader in (dataset, lance.dataset(dataset.uri)):
        for key in range(0, 4 * TARGET, 500):
            assert reader.to_table(filter=f"k = {key}")["k"].to_pylist() == [key]


def test_sorted_fragments_of_many_bytes_stay_whatever_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = {"lance.compaction.target_rows_per_fragment": f"{100 * TARGET}"}
    dataset = made(tmp_path / "t.lance", "k", config=target)
    maintained(dataset)
    (first,) = dataset.get_fragments()
    size = sum(file.file_size_bytes or 0 for file in first.metadata.files)
    dataset.insert(rows(8 * TARGET))
    for least, left in ((2 * size, 2), (8 * size, 1)):
        monkeypatch.setattr(clustering, "_LEAST_BYTES", least)
        maintained(dataset)
        assert len(spans(dataset)) == left
        dataset.insert(rows(4 * TARGET))


@pytest.mark.parametrize("values", [1, 2, 3])
def test_columns_of_few_values_are_sorted_in_parts_of_about_one_size(
    tmp_path: Path, values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustering, "_LEAST_BYTES", 1)
    monkeypatch.setattr(clustering, "parts_for", lambda *_: 8)
    dataset = made(tmp_path / "t.lance", "k")
    dataset.update({"k": f"k % {values}"})
    before = contents(dataset)
    maintained(dataset)
    assert contents(lance.dataset(dataset.uri)) == before
    found = spans(dataset)
    assert found == sorted(found)
    assert max(part.count_rows() for part in dataset.get_fragments()) < TARGET


OTHERS: dict[str, tuple[Callable[[glaive.LanceDataset], Any], int]] = {
    "an append": (lambda dataset: dataset.insert(rows(10, 9)), 1),
    "a delete": (lambda dataset: dataset.delete("k = 5"), 0),
    "an update": (lambda dataset: dataset.update({"x": "1000"}, "k = 5"), 0),
    "another clustering": (maintained, 0),
}
"""By name: what another writer commits meanwhile, and how many fragments stay out of order."""


@pytest.mark.parametrize("name", OTHERS)
def test_other_writers_meanwhile_lose_nothing(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = made(tmp_path / "t.lance", "k", enable_stable_row_ids=True)
    change, left = OTHERS[name]
    twin = glaive.dataset(shutil.copytree(dataset.uri, tmp_path / "twin.lance"))
    change(twin)
    rewrite_useful, calls = maintenance.rewrite_useful, list[object]()

    def overtaken(*given: Any) -> Any:
        results = rewrite_useful(*given)
        if not calls:
            calls.append(name)
            change(glaive.dataset(dataset.uri))
        return results

    monkeypatch.setattr(maintenance, "rewrite_useful", overtaken)
    maintained(dataset)
    assert calls
    monkeypatch.undo()
    assert contents(lance.dataset(dataset.uri)) == contents(twin)
    reasons = maintained(dataset, dry_run=True)
    assert [int(reason.split()[0]) for reason in reasons] == [left] * bool(left)


def test_a_run_that_is_killed_before_any_change_loses_and_doubles_nothing(tmp_path: Path) -> None:
    base = made(tmp_path / "base.lance", "k")
    base.create_scalar_index("x", "BTREE")
    expected = contents(base)

    def run() -> None:
        maintained(glaive.dataset(base.uri))

    left = left_by_kills(Path(base.uri), run, tmp_path / "left")
    for step, place in enumerate(left, 1):
        uri = str(place)
        dataset = glaive.dataset(uri)
        assert contents(dataset) == expected
        reasons = maintained(dataset)
        assert reasons in ([], ["4 of 4 fragments are not clustered by k"])
        assert reasons or step > 4
        assert contents(lance.dataset(uri)) == expected
        assert len(spans(dataset)) == 4
    assert len(left) > 4


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_rows_of_many_types_are_clustered_in_each_format(tmp_path: Path, version: str) -> None:
    k = np.random.default_rng(1).permutation(400)
    columns = {
        "k": pa.array(k),
        "word": pa.array([f"w{n}" if n % 5 else None for n in k]).dictionary_encode(),
        "list": pa.array([list(range(n % 4)) for n in k]),
        "struct": pa.array([{"a": int(n), "b": str(n)} for n in k]),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(k, 4), pa.float32()), 4),
    }
    if version == "2.2":
        columns["blob"] = glaive.blob_array([bytes(int(n)) for n in k])
    fields = [
        glaive.blob_field(name) if name == "blob" else pa.field(name, column.type)
        for name, column in columns.items()
    ]
    table = pa.table(list(columns.values()), schema=pa.schema(fields))
    how: dict[str, Any] = {"data_storage_version": version, "max_rows_per_file": 90}
    dataset = glaive.write_dataset(table, tmp_path / "t.lance", **how)
    dataset.update_config({"glaive.cluster_by": '["word", "k"]'})
    names = [name for name in columns if name != "blob"]
    expected = dataset.to_table(names).sort_by("k").to_pylist()
    assert maintained(dataset) == ["5 of 5 fragments are not clustered by word, k"]
    dataset.validate()
    found = lance.dataset(dataset.uri).to_table(names)
    assert found.sort_by("k").to_pylist() == expected
    if version == "2.2":
        blobs = dataset.take_blobs("blob", indices=list(range(400)))
        assert [len(blob.read()) for blob in blobs] == found["k"].to_pylist()


def test_strings_that_begin_alike_are_sorted_in_several_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustering, "_LEAST_BYTES", 1)
    monkeypatch.setattr(clustering, "parts_for", lambda *_: 4)
    monkeypatch.setattr(clustering, "_SAMPLE_ROWS", 100)
    names = [f"https://example.org/{n:05}" for n in np.random.default_rng(1).permutation(5000)]
    names += ["a", "z", "https://example.org", ""]
    dataset = glaive.write_dataset(pa.table({"name": [*names, None]}), tmp_path / "t.lance")
    dataset.update_config({"glaive.cluster_by": '["name"]'})
    maintained(dataset)
    assert len(dataset.get_fragments()) == 4
    assert dataset.to_table()["name"].to_pylist() == [None, *sorted(names)]


def test_half_precision_numbers_are_sorted(tmp_path: Path) -> None:
    half = pa.array(np.random.default_rng(1).permutation(400).astype(np.float16))
    dataset = glaive.write_dataset(pa.table({"half": half}), tmp_path / "t.lance")
    dataset.update_config({"glaive.cluster_by": '["half"]'})
    maintained(dataset)
    assert spans(dataset, "half") == [(0, 399)]


def test_wrong_columns_are_refused(tmp_path: Path) -> None:
    dataset = made(tmp_path / "t.lance", "k")
    for text, error, message in (
        ("k", OptionError, "expected a JSON list of names of columns, found 'k'"),
        ('{"k": 1}', OptionError, "expected a JSON list"),
        ('["kk"]', ColumnNotFoundError, "Column kk does not exist in .*CLUSTER BY"),
        (json.dumps(["k"] * 17), OptionError, "expected 1 to 16 columns, found 17"),
    ):
        dataset.update_config({"glaive.cluster_by": text})
        with pytest.raises(error, match=message):
            maintained(dataset)
    dataset.add_columns(pa.schema({"l": pa.list_(pa.int8())}))
    dataset.update_config({"glaive.cluster_by": '["l"]'})
    with pytest.raises(OptionError, match=r"'l'.*list"):
        maintained(dataset)


def test_columns_of_a_clustering_are_renamed_but_not_dropped(tmp_path: Path) -> None:
    dataset = made(tmp_path / "t.lance", "k", "x")
    maintained(dataset)
    dataset.add_columns(pa.schema([pa.field("s", pa.struct([pa.field("k", pa.int8())]))]))
    dataset.alter_columns({"path": "`k`", "name": "new"}, {"path": "s.k", "name": "old"})
    assert dataset.config()["glaive.cluster_by"] == '["new", "x"]'
    assert maintained(dataset) == []
    with pytest.raises(SchemaError, match="columns new, x cannot be dropped: rows are clustered"):
        dataset.drop_columns(["new", "x"])
    dataset.update_config({"glaive.cluster_by": '["x"]'})
    dataset.drop_columns(["new"])
    assert maintained(dataset) == ["4 of 4 fragments are not clustered by x"]
    dataset.update_config({"glaive.cluster_by": "k"})
    version = dataset.version
    with pytest.raises(OptionError, match="expected a JSON list"):
        dataset.alter_columns({"path": "x", "name": "y"})
    assert glaive.dataset(dataset.uri).version == version
