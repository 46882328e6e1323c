"""The same calls to both libraries: equal results, and errors that the same clauses catch."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import glaive.fragment
import glaive.optimize
import glaive.schema
import pyarrow as pa
import pytest

import glaive
import glaive.file

lance = pytest.importorskip("lance", reason="install the 'interop' group")
pytest.importorskip("lance.optimize")  # pylance loads these only when asked
pytest.importorskip("lance.file")

pytestmark = pytest.mark.interop

ROWS = pa.table({"id": [1, 2, 3, 4, 5], "name": list("abcde"), "v": [1.0, 2.0, 3.0, 4.0, 5.0]})
NEW = pa.table({"id": [5, 6], "name": ["x", "y"], "v": [0.0, 1.0]})
BASES = (
    ValueError,
    TypeError,
    OSError,
    LookupError,
    NotImplementedError,
    FileExistsError,
    OverflowError,
)

Call = Callable[[Any, Any, str], object]
"""Of a library, a dataset of three fragments, and its place."""


def appended(lib: Any, place: str, **options: Any) -> Any:
    made = lib.fragment.write_fragments(NEW, place)
    return lib.LanceDataset.commit(place, lib.LanceOperation.Append(made), 1, **options)


def deleted(lib: Any, ds: Any, place: str) -> Any:
    made = ds.get_fragment(0).delete("id = 1")
    operation = lib.LanceOperation.Delete([made], [1], "id = 1")
    return lib.LanceDataset.commit(place, operation, read_version=1).to_table()


def grown(lib: Any, ds: Any, place: str) -> Any:
    made = [one.merge_columns({"w": "v + 1"}) for one in ds.get_fragments()]
    operation = lib.LanceOperation.Merge([one for one, _ in made], made[0][1])
    return lib.LanceDataset.commit(place, operation, read_version=1).to_table()


def compacted(lib: Any, ds: Any) -> Any:
    options = lib.optimize.CompactionOptions(target_rows_per_fragment=100)
    plan = lib.optimize.Compaction.plan(ds, options)
    results = [pickle.loads(pickle.dumps(task)).execute(ds) for task in plan.tasks]
    told = [[one.id for one in task.fragments] for task in plan.tasks]
    metrics = lib.optimize.Compaction.commit(ds, pickle.loads(pickle.dumps(results)))
    return [told, metrics.fragments_removed, ds.version, len(ds.get_fragments())]


def by_transaction(lib: Any, place: str) -> Any:
    first, second = (
        lib.fragment.write_fragments(NEW, place, return_transaction=True) for _ in range(2)
    )
    both = [first, lib.Transaction(1, second.operation)]
    done = lib.LanceDataset.commit_batch(place, both)
    return [done["dataset"].to_table(), len(done["merged"].operation.fragments)]


def compaction_as_json(lib: Any, ds: Any) -> Any:
    options = lib.optimize.CompactionOptions(target_rows_per_fragment=100)
    plan = lib.optimize.Compaction.plan(ds, options)
    (task,) = plan.tasks
    result = task.execute(ds)
    values = [json.loads(one.json()) for one in (plan, task, result)]
    told = [*map(sorted, values), len(values[0]["tasks"]), values[0]["read_version"]]
    again = [type(one).from_json(one.json()).json() == one.json() for one in (plan, task, result)]
    fragments = [one["id"] for one in values[0]["tasks"][0]["fragments"]]
    return [*told, fragments, len(values[1]["task"]["fragments"]), again]


def changed_fragment(ds: Any) -> Any:
    fragment = ds.get_fragment(1).metadata
    fragment.id, fragment.physical_rows = 9, 7
    fragment.files.append(fragment.files[0])
    return [fragment.id, fragment.num_rows, len(fragment.files)]


def json_updated(lib: Any, place: str) -> Any:
    documents = pa.array(['{"a": 1}', None], pa.json_())
    ds = lib.write_dataset(pa.table({"j": documents, "t": ['{"q": 1}', "[1]"]}), f"{place}.json")
    found = [ds.update({"j": "'{\"z\": 2}'"}, where="t = '[1]'"), ds.to_table()["j"].to_pylist()]
    return [*found, ds.update({"j": "t"}), ds.to_table()["j"].to_pylist()]


def inner(ds: Any, place: str) -> Any:
    """What clients and tests use of pylance's private names."""
    ds.delete("id = 1")
    inner = ds._ds  # noqa: SLF001  # clients use it
    numbers = [inner.version(), inner.latest_version(), inner.count_fragments(), inner.tags()]
    counts = [inner.count_deleted_rows(), inner.num_small_files(10)]
    uri, options = ds._uri, [ds._storage_options, ds._default_scan_options]  # noqa: SLF001  # same
    return [*numbers, *counts, uri == place, options]


def fragment_text(ds: Any) -> str:
    ds.delete("id = 1")
    fragment = ds.get_fragment(0)
    text = repr(fragment).replace(fragment.data_files()[0].path, "F")
    return text.replace(fragment.deletion_file(), "D")


def indexed_rows(ds: Any) -> Any:
    """Scans of the rows that indices cover, beside those of all."""
    ds.create_scalar_index("id", "BTREE")
    ds.insert(NEW)
    filters = ["id > 3", "id > 3 and v < 5", "v < 3", "id > 3 or v < 3"]
    options: list[dict[str, Any]] = [
        {"fast_search": True},
        {"fast_search": True, "use_scalar_index": False},
        {"fast_search": True, "limit": 2, "offset": 1},
    ]
    scans = [
        ds.scanner(columns=["id"], filter=one, **given) for one in filters for given in options
    ]
    return [
        [one.to_table(), pa.Table.from_batches(one.to_batches(), one.projected_schema)]
        for one in scans
    ]


def polars_schema(lib: Any, place: str) -> Any:
    frame = pytest.importorskip("polars").DataFrame({"a": [1], "b": ["x"]})
    return lib.write_dataset(frame, f"{place}.frame").schema


RESULTS: dict[str, Call] = {
    "compactions as JSON": lambda lib, ds, _: compaction_as_json(lib, ds),
    "a deletion file told": lambda lib, *_: repr(lib.fragment.DeletionFile(1, 2, "array", 3, None)),
    "rows that indices cover": lambda _, ds, __: indexed_rows(ds),
    "inner names": lambda _, ds, place: inner(ds, place),
    "SQL by keywords": lambda _, ds, __: (
        ds.sql("SELECT id FROM t WHERE v > 2")
        .table_name(table_name="t")
        .batch_size(batch_size=100)
        .batch_size_bytes(batch_size_bytes=1 << 20)
        .blob_handling(blob_handling="all_binary")
        .build()
        .to_stream_reader()
        .read_all()
    ),
    "fragment as text": lambda _, ds, __: fragment_text(ds),
    "texts of polars": lambda lib, _, place: polars_schema(lib, place),
    "file as text": lambda lib, _, __: repr(lib.fragment.DataFile("x", [0], [0], 2, 0)),
    "fragment ids": lambda _, ds, __: [
        repr(ds.fragment_ids()),
        ds.fragment_ids() == [0, 1, 2],
        ds.fragment_ids() == [0, 1],
    ],
    "fields of a schema": lambda _, ds, __: [
        (one.id(), one.name(), one.children()) for one in ds.lance_schema.fields()
    ],
    "order by a name": lambda _, ds, __: ds.to_table(columns=["v"], order_by="v"),
    "merge plan": lambda _, ds, __: (
        ds.merge_insert("id").when_not_matched_insert_all().explain_plan().splitlines()[0]
    ),
    "JSON from text": lambda lib, _, place: json_updated(lib, place),
    "delete": lambda _, ds, __: [ds.delete("id = 2"), ds.to_table()],
    "delete all": lambda _, ds, __: [ds.delete("true"), ds.count_rows(), len(ds.get_fragments())],
    "update": lambda _, ds, __: [ds.update({"v": "v * 2"}, where="id > 3"), ds.to_table()],
    "upsert": lambda _, ds, __: (
        ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(NEW)
    ),
    "merge away": lambda _, ds, __: (
        ds.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_by_source_delete("v > 3")
        .execute(ROWS.slice(0, 1))
    ),
    "add columns": lambda _, ds, __: [ds.add_columns({"w": "v * 2"}), ds.to_table()],
    "add nulls": lambda _, ds, __: [ds.add_columns(pa.field("z", pa.int32())), ds.to_table()],
    "drop": lambda _, ds, __: [ds.drop_columns(["v"]), ds.to_table()],
    "alter": lambda _, ds, __: [
        ds.alter_columns({"path": "v", "name": "w"}, {"path": "id", "data_type": pa.int32()}),
        ds.to_table(),
    ],
    "join": lambda _, ds, __: [
        ds.merge(pa.table({"k": [1], "x": ["p"]}), "id", "k"),
        ds.to_table(),
    ],
    "tags": lambda _, ds, __: [ds.tags.create("a"), ds.tags.get_version("a"), len(ds.tags.list())],
    "branch": lambda _, ds, __: [
        ds.create_branch("b").insert(NEW),
        ds.checkout_version(("b", None)).count_rows(),
        ds.count_rows(),
    ],
    "latest": lambda _, ds, __: [
        old := copy.copy(ds),
        ds.insert(NEW),
        old.version,
        old.checkout_latest(),
        old.version,
        ds.version_refs(),
    ],
    "restore": lambda lib, ds, place: [
        ds.insert(NEW),
        ds.checkout_version(1).restore(),
        lib.dataset(place).version,
        lib.dataset(place).count_rows(),
    ],
    "clean up": lambda _, ds, __: [
        ds.insert(NEW),
        ds.cleanup_old_versions(older_than=timedelta(0)).old_versions,
    ],
    "clone": lambda _, ds, place: [
        ds.shallow_clone(f"{place}c", 1).to_table(),
        ds.deep_clone(f"{place}e", 1).to_table(),
    ],
    "compact in parts": lambda lib, ds, _: compacted(lib, ds),
    "append by hand": lambda lib, _, place: appended(lib, place, commit_timeout=None).to_table(),
    "detached": lambda lib, _, place: [
        appended(lib, place, detached=True).count_rows(),
        lib.dataset(place).version,
    ],
    "batch": lambda lib, _, place: by_transaction(lib, place),
    "delete by hand": deleted,
    "merge by hand": grown,
    "project by hand": lambda lib, _, place: lib.LanceDataset.commit(
        place,
        lib.LanceOperation.Project(lib.schema.LanceSchema.from_pyarrow(ROWS.schema)),
        read_version=1,
    ).to_table(),
    "create by hand": lambda lib, _, place: lib.LanceDataset.commit(
        f"{place}n", lib.fragment.write_fragments(NEW, f"{place}n", return_transaction=True)
    ).to_table(),
    "data file": lambda lib, ds, _: (
        lib.fragment.DataFile.create(ds, ds.get_fragment(1).data_files()[0].path).fields
    ),
    "metadata changes": lambda _, ds, __: changed_fragment(ds),
    "metadata by position": lambda lib, _, __: lib.FragmentMetadata(3, [], 9).to_json(),
    "fragment": lambda lib, ds, _: lib.LanceFragment(ds, 1).to_table(["id"], "id > 3", 1, 0),
    "pickled": lambda _, ds, __: [
        pickle.loads(pickle.dumps(ds)).version,
        pickle.loads(pickle.dumps(ds.get_fragment(1))).to_table(),
        pickle.loads(pickle.dumps(ds.get_fragment(1).metadata)) == ds.get_fragment(1).metadata,
    ],
    "scan by position": lambda _, ds, __: ds.scanner(
        ["id"], None, 2, 1, None, 2, None, 1, 1, True, [ds.get_fragment(1)]
    ).to_table(),
    "table by position": lambda _, ds, __: ds.to_table(["id"], "id > 1", 2, 1, None, 1),
    "open": lambda lib, _, place: [
        lib.LanceDataset(place, 1).version,
        lib.dataset(place, 1).version,
    ],
    "scan defaults": lambda lib, _, place: [
        (ds := lib.dataset(place, default_scan_options={"with_row_id": True, "limit": 2})).schema,
        ds.to_table(),
        ds.to_table(limit=1),
        ds.count_rows(),
        ds.take([4]),
        pickle.loads(pickle.dumps(ds)).to_table(),
        ds.checkout_version(1).to_table(),
    ],
    "storage options": lambda _, ds, __: [ds.initial_storage_options, ds.latest_storage_options()],
    "small pages": lambda lib, _, place: lib.write_dataset(
        ROWS, f"{place}x", max_page_bytes=16, data_cache_bytes=64
    ).to_table(),
    "config": lambda _, ds, __: [
        ds.update_config({"a": "b", "c": "d"}),
        ds.delete_config_keys(["a", "x"]),
        ds.config(),
    ],
    "figures": lambda _, ds, __: [
        ds.stats.dataset_stats(),
        ds.max_field_id,
        ds.has_index,
        ds.describe_indices(),
    ],
    "drop dataset": lambda lib, _, place: [
        lib.LanceDataset.drop(place),
        Path(place).exists(),
        lib.LanceDataset.drop(place, None, True),
    ],
}

ERRORS: dict[str, Call] = {
    "delete by no column": lambda _, ds, __: ds.delete("nope = 1"),
    "delete by no filter": lambda _, ds, __: ds.delete("id ="),
    "update no column": lambda _, ds, __: ds.update({"nope": "1"}),
    "merge by no column": lambda _, ds, __: ds.merge_insert("nope"),
    "merge with no clause": lambda _, ds, __: ds.merge_insert("id").execute(ROWS),
    "merge twins": lambda _, ds, __: (
        ds.merge_insert("id").when_matched_update_all().execute(pa.concat_tables([ROWS, ROWS]))
    ),
    "column is there": lambda _, ds, __: ds.add_columns({"v": "1"}),
    "no values": lambda _, ds, __: ds.add_columns(pa.field("z", pa.int8(), nullable=False)),
    "drop no column": lambda _, ds, __: ds.drop_columns(["nope"]),
    "alter no column": lambda _, ds, __: ds.alter_columns({"path": "nope", "name": "x"}),
    "cast to a list": lambda _, ds, __: ds.alter_columns(
        {"path": "v", "data_type": pa.list_(pa.int8())}
    ),
    "tag is there": lambda _, ds, __: [ds.tags.create("a", 1), ds.tags.create("a", 1)],
    "tag no version": lambda _, ds, __: ds.tags.create("a", 77),
    "tag no name": lambda _, ds, __: ds.tags.create("a b", 1),
    "no tag": lambda _, ds, __: ds.tags.delete("zz"),
    "branch is there": lambda _, ds, __: [ds.create_branch("b"), ds.create_branch("b")],
    "no branch": lambda _, ds, __: ds.branches.delete("zz"),
    "no version": lambda _, ds, __: ds.checkout_version(99),
    "no such tag": lambda _, ds, __: ds.checkout_version("nope"),
    "tagged version": lambda _, ds, __: [
        ds.insert(NEW),
        ds.tags.create("x", 1),
        ds.cleanup_old_versions(older_than=timedelta(0)),
    ],
    "no compaction option": lambda lib, ds, _: lib.optimize.Compaction.plan(ds, {"bogus": 1}),
    "no compaction mode": lambda _, ds, __: ds.optimize.compact_files(compaction_mode="bogus"),
    "no task": lambda lib, _, __: lib.optimize.CompactionTask.from_json("x"),
    "dataset is there": lambda lib, _, place: lib.write_dataset(ROWS, place),
    "no mode": lambda lib, _, place: lib.write_dataset(ROWS, place, mode="bogus"),
    "no place": lambda lib, _, __: lib.write_dataset(ROWS),
    "other columns": lambda lib, _, place: lib.write_dataset(
        pa.table({"z": [1]}), place, mode="append"
    ),
    "page of nothing": lambda lib, _, place: lib.write_dataset(ROWS, f"{place}x", max_page_bytes=0),
    "no base": lambda lib, _, place: lib.write_dataset(ROWS, f"{place}x", target_bases=["zz"]),
    "no option": lambda lib, _, place: lib.write_dataset(ROWS, f"{place}x", bogus=1),
    "no dataset": lambda lib, _, place: lib.dataset(f"{place}x"),
    "neither": lambda lib, _, __: lib.dataset(),
    "place and table": lambda lib, _, place: lib.dataset(place, table_id=["a"]),
    "table only": lambda lib, _, __: lib.dataset(table_id=["a"]),
    "no default": lambda lib, _, place: lib.dataset(
        place, default_scan_options={"bogus": 1}
    ).to_table(),
    "commit for no version": lambda lib, _, place: lib.LanceDataset.commit(
        place, lib.LanceOperation.Append([]), 99
    ),
    "batch for no version": lambda lib, _, place: lib.LanceDataset.commit_batch(
        place, [lib.Transaction(99, lib.LanceOperation.Append([]))]
    ),
    "commit in no time": lambda lib, _, place: lib.LanceDataset.commit(
        place, lib.LanceOperation.Append([]), 1, commit_timeout=timedelta(0)
    ),
    "commit of nothing": lambda lib, _, place: lib.LanceDataset.commit(place, 3, 1),
    "empty batch": lambda lib, _, place: lib.LanceDataset.commit_batch(place, []),
    "batch of others": lambda lib, _, place: lib.LanceDataset.commit_batch(
        place, [lib.Transaction(1, lib.LanceOperation.Restore(1))]
    ),
    "no row": lambda _, ds, __: ds.get_fragment(0).delete_rows([99]),
    "take of no row": lambda _, ds, __: ds.take([-1]),
    "less than no row in a batch": lambda _, ds, __: ds.to_table(batch_size=-1),
    "less than no row in a file": lambda lib, _, place: lib.write_dataset(
        NEW, f"{place}x", max_rows_per_file=-1
    ),
    "less than no partition": lambda lib, _, place: lib.write_dataset(
        pa.table({"v": pa.array([[1.0, 2.0]] * 9, pa.list_(pa.float32(), 2))}), f"{place}v"
    ).create_index("v", "IVF_FLAT", num_partitions=-1),
    "schema of none": lambda lib, _, __: lib.schema.LanceSchema.from_pyarrow(5),
    "less than no version": lambda _, ds, __: ds.cleanup_old_versions(retain_versions=-1),
    "less than no attempt": lambda _, ds, __: ds.merge_insert("id").conflict_retries(-1),
    "a condition of a merge that is none": lambda _, ds, __: ds.merge_insert(
        "id"
    ).when_matched_update_all(3),
    "a condition of deletion that is none": lambda _, ds, __: ds.merge_insert(
        "id"
    ).when_not_matched_by_source_delete(3),
    "an index or none": lambda _, ds, __: ds.merge_insert("id").use_index("no"),
    "take too far": lambda _, ds, __: ds.take([9]),
    "no fragment id": lambda lib, ds, _: lib.LanceFragment(ds, None),
    "partitions": lambda _, ds, __: ds.partition_expression,
    "partition of a fragment": lambda _, ds, __: ds.get_fragment(0).partition_expression,
    "new schema": lambda _, ds, __: ds.replace_schema(ROWS.schema),
    "figures of no index": lambda _, ds, __: ds.stats.index_stats("x"),
    "row ids twice": lambda lib, _, __: lib.fragment.RowIdSequence([1, 1]),
    "row ids of another kind": lambda lib, _, __: lib.fragment.RowIdMeta.from_dict({"x": [1]}),
    "storage options of no kind": lambda lib, _, place: lib.dataset(place, storage_options=3),
    "file of no schema": lambda lib, _, place: lib.file.LanceFileWriter(f"{place}.f", 3),
    "metadata of no text": lambda lib, _, place: lib.file.LanceFileWriter(
        f"{place}.f", ROWS.schema
    ).add_schema_metadata("k", 3),
    "no rewrites": lambda lib, ds, _: lib.optimize.Compaction.commit(ds, [3]),
    "options of no kind": lambda lib, ds, _: lib.optimize.Compaction.plan(ds, 3),
    "model of no index": lambda _, ds, __: ds.get_ivf_model("nope"),
    "fragment by name": lambda _, ds, __: ds.get_fragment("a"),
    "no deletion file": lambda lib, _, __: lib.fragment.DeletionFile.from_json("z"),
}


def plain(found: Any) -> Any:
    """Results of either library as values that compare."""
    if isinstance(found, list | tuple):
        return [plain(one) for one in found]
    if isinstance(found, dict):
        return {key: plain(value) for key, value in found.items()}
    if isinstance(found, lance.LanceDataset | glaive.LanceDataset):
        return found.version
    return found


@pytest.fixture(params=[glaive, lance], ids=["glaive", "pylance"])
def library(request: pytest.FixtureRequest) -> Any:
    return request.param


def made(lib: Any, place: str) -> Any:
    return lib.write_dataset(ROWS, place, max_rows_per_file=2)


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_equal(name: str, tmp_path: Path) -> None:
    mine, theirs = (
        plain(RESULTS[name](lib, made(lib, place), place))
        for lib, place in ((glaive, str(tmp_path / "a")), (lance, str(tmp_path / "b")))
    )
    assert mine == theirs


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_caught_alike(name: str, tmp_path: Path) -> None:
    found = []
    for lib, place in ((glaive, str(tmp_path / "a")), (lance, str(tmp_path / "b"))):
        dataset = made(lib, place)
        with pytest.raises(BASES) as caught:
            ERRORS[name](lib, dataset, place)
        found.append({one for one in BASES if isinstance(caught.value, one)})
        assert lib.dataset(place).to_table().slice(0, 5) == ROWS
    mine, theirs = found
    assert theirs <= mine


class TestRowIds:
    IDS = (range(5), range(3, 9), [5, 3, 9], [], [0, 2**40], range(0, 10, 2))

    @pytest.mark.parametrize("ids", IDS, ids=str)
    def test_sequences_are_those_of_pylance(self, ids: Any) -> None:
        mine, theirs = (lib.fragment.RowIdSequence(ids) for lib in (glaive, lance))
        assert list(mine) == list(theirs) == list(ids)
        assert (len(mine), mine.to_pyarrow()) == (len(theirs), theirs.to_pyarrow())
        assert pickle.loads(pickle.dumps(mine)) == mine
        told = json.loads(mine.to_inline_metadata().json())
        read = lance.fragment.RowIdMeta.from_dict(told)
        assert list(lance.fragment.RowIdSequence.from_inline_metadata(read)) == list(ids)
        told = theirs.to_inline_metadata().asdict()
        again = glaive.fragment.RowIdMeta.from_dict(told)
        assert glaive.fragment.RowIdSequence.from_inline_metadata(again) == mine

    def test_rows_written_anew_keep_their_ids(self, library: Any, tmp_path: Path) -> None:
        place = str(tmp_path / "d")
        library.write_dataset(ROWS, place, enable_stable_row_ids=True)
        (fragment,) = library.fragment.write_fragments(ROWS.slice(3), place)
        ids = library.fragment.RowIdSequence([3, 4])
        fragment.row_id_meta = ids.to_inline_metadata()
        gone = library.dataset(place).get_fragment(0).delete("id > 3")
        operation = library.LanceOperation.Update(
            updated_fragments=[gone], new_fragments=[fragment]
        )
        library.LanceDataset.commit(place, operation, read_version=1)
        for reader in (glaive, lance):
            told = reader.dataset(place).to_table(with_row_id=True)
            assert told["_rowid"].to_pylist() == [0, 1, 2, 3, 4]
            assert told["id"].to_pylist() == [1, 2, 3, 4, 5]
