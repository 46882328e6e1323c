"""Compaction: the same groups, rows, ids and coverage as pylance's."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import glaive.optimize
import numpy as np
import pyarrow as pa
import pytest
from glaive.optimize import Compaction, CompactionPlan, CompactionTask, RewriteResult
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.overtaken import open_overtaken
from tests.trials import trials

import glaive
from glaive.dataset.tasks import commit_operation
from glaive.errors import CommitConflictError, OptionError, VersionNotFoundError
from glaive.format.pb import table_pb2
from glaive.table.index_coverage import reuse_entry
from glaive.table.operations.rewrite import Rewrite, RewriteGroup
from glaive.table.operations.update_config import ReserveFragments

lance = pytest.importorskip("lance", reason="install the 'interop' group")
theirs = pytest.importorskip("lance.optimize")

pytestmark = pytest.mark.interop

SYSTEM = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def make(path: str, sizes: list[int], deleted: list[int] | None = None, **options: Any) -> None:
    """One fragment for each size, the first rows of some deleted."""
    shutil.rmtree(path, ignore_errors=True)
    start = 0
    for size in sizes:
        rows = pa.table({"a": range(start, start + size), "t": [f"x{i}" for i in range(size)]})
        dataset = lance.write_dataset(rows, path, mode="append", **options)
        start += size
    start = 0
    for size, gone in zip(sizes, deleted or [0] * len(sizes), strict=True):
        if gone:
            dataset.delete(f"a >= {start} AND a < {start + gone}")
        start += size


def everything(path: str, columns: list[str]) -> dict[str, Any]:
    found = []
    for library in (lance, glaive):
        dataset = library.dataset(path)
        fragments = [
            (one.fragment_id, one.physical_rows, one.num_deletions)
            for one in dataset.get_fragments()
        ]
        rows = dataset.to_table(columns=columns).to_pydict()
        found.append({"rows": rows, "fragments": fragments, "version": dataset.version})
    assert found[0] == found[1]
    return found[0]


def groups_of(library: Any, path: str, options: dict[str, Any]) -> list[list[int]]:
    if library is glaive:
        plan = Compaction.plan(glaive.dataset(path), options)
        return [list(task.fragment_ids) for task in plan.tasks]
    plan = theirs.Compaction.plan(lance.dataset(path), options)
    return [[fragment.id for fragment in task.fragments] for task in plan.tasks]


SIZE = st.sampled_from([5, 10, 20, 30, 60, 99, 100, 101, 120, 200])
SHARE = st.sampled_from([0, 0, 0.05, 0.1, 0.2, 0.5, 0.9])


@settings(
    max_examples=trials(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(layout=st.lists(st.tuples(SIZE, SHARE), min_size=1, max_size=9), data=st.data())
def test_the_plan_is_that_of_pylance(
    tmp_path: Path, layout: list[tuple[int, float]], data: st.DataObject
) -> None:
    path = str(tmp_path / "d")
    sizes = [size for size, _ in layout]
    make(path, sizes, [int(size * share) for size, share in layout])
    for options in (
        {"target_rows_per_fragment": 100},
        {"target_rows_per_fragment": 100, "materialize_deletions": False},
        {"target_rows_per_fragment": 50, "materialize_deletions_threshold": 0.3},
        {
            "target_rows_per_fragment": 100,
            "excluded_fragment_ids": [data.draw(st.integers(0, len(sizes)))],
        },
        {"target_rows_per_fragment": 100, "max_source_fragments": data.draw(st.integers(1, 9))},
        {"target_rows_per_fragment": 100, "max_source_rows": data.draw(st.integers(50, 400))},
    ):
        assert groups_of(glaive, path, options) == groups_of(lance, path, options), options


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])
@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2"])
def test_both_leave_the_same(tmp_path: Path, version: str, stable: bool) -> None:
    found = []
    columns = ["a", "t", *(SYSTEM if stable else ["_rowid"])]
    for library in (glaive, lance):
        path = str(tmp_path / library.__name__)
        make(
            path,
            [30, 100, 30, 30, 200, 60, 5, 120],
            [6, 50, 0, 0, 100, 30, 0, 0],
            data_storage_version=version,
            enable_stable_row_ids=stable,
        )
        lance.dataset(path).update({"t": "'new'"}, where="a % 50 = 7")
        metrics = library.dataset(path).optimize.compact_files(target_rows_per_fragment=100)
        numbers = (
            metrics.fragments_removed,
            metrics.fragments_added,
            metrics.files_removed,
            metrics.files_added,
        )
        found.append((numbers, everything(path, columns)))
    assert found[0] == found[1]


def test_rows_keep_when_they_were_made_and_changed(tmp_path: Path) -> None:
    found = []
    for library in (glaive, lance):
        path = str(tmp_path / library.__name__)
        make(path, [10, 10], enable_stable_row_ids=True)
        lance.dataset(path).update({"t": "'new'"}, where="a = 3 OR a = 12")
        before = lance.dataset(path).to_table(columns=["a", *SYSTEM])
        library.dataset(path).optimize.compact_files()
        assert len(lance.dataset(path).get_fragments()) == 1
        found.append(everything(path, ["a", *SYSTEM])["rows"])
        assert found[-1] == before.to_pydict()
    assert found[0] == found[1]
    assert found[0][SYSTEM[1]] != found[0][SYSTEM[2]]


def test_nothing_to_do_makes_no_version(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    make(path, [100])
    metrics = glaive.dataset(path).optimize.compact_files(target_rows_per_fragment=100)
    assert metrics == glaive.optimize.CompactionMetrics()
    assert lance.dataset(path).version == 1


def test_output_is_split_at_the_target(tmp_path: Path) -> None:
    found = []
    for library in (glaive, lance):
        path = str(tmp_path / library.__name__)
        make(path, [90, 90, 90])
        library.dataset(path).optimize.compact_files(target_rows_per_fragment=100)
        found.append(everything(path, ["a"])["fragments"])
    assert found[0] == found[1]


def test_dropped_columns_and_column_files_become_one_file(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    make(path, [10, 10])
    dataset = lance.dataset(path)
    dataset.add_columns({"b": "a + 1"})
    dataset.drop_columns(["t"])
    glaive.dataset(path).optimize.compact_files()
    (fragment,) = glaive.dataset(path).manifest.fragments()
    assert len(fragment.files) == 1
    assert len(fragment.files[0].fields) == 2
    assert lance.dataset(path).to_table().to_pydict() == {
        "a": list(range(20)),
        "b": list(range(1, 21)),
    }


def test_blobs_move_with_their_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    payloads = [b"x" * 200_000, b"small", None, b"y" * 70_000]
    schema = pa.schema([pa.field("a", pa.int64()), lance.blob_field("b")])
    for at, payload in enumerate(payloads):
        rows = pa.table([[at], lance.blob_array([payload])], schema=schema)
        lance.write_dataset(rows, path, mode="append", data_storage_version="2.2")
    glaive.dataset(path).optimize.compact_files()
    for library in (glaive, lance):
        blobs = library.dataset(path).take_blobs("b", indices=[0, 1, 2, 3])
        assert [None if one is None else one.read() for one in blobs] == payloads


class TestIndices:
    @pytest.mark.spec("reuse-2")
    @pytest.mark.spec("reuse-3")
    def test_they_stay_usable_by_way_of_a_map(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        make(path, [10, 10, 10, 10])
        lance.dataset(path).create_scalar_index("a", "BTREE")
        lance.dataset(path).delete("a = 3")
        deferred: Any = {"defer_index_remap": True}
        glaive.dataset(path).optimize.compact_files(target_rows_per_fragment=20, **deferred)
        for turn in range(2):
            dataset = lance.dataset(path)
            scanner = dataset.scanner(filter="a IN (2, 3, 25)")
            assert "ScalarIndexQuery" in scanner.explain_plan()
            assert scanner.to_table().column("a").to_pylist() == [2, 25]
            if not turn:  # once more, on top of the first map
                lance.write_dataset(pa.table({"a": [100], "t": ["z"]}), path, mode="append")
                lance.dataset(path).delete("a = 30")
                glaive.dataset(path).optimize.compact_files(**deferred)
        assert lance.dataset(path).count_rows() == 39

    @pytest.mark.spec("reuse-3")
    @pytest.mark.parametrize("library", [glaive, lance], ids=["glaive", "pylance"])
    def test_maps_made_at_the_same_time_become_one(self, tmp_path: Path, library: Any) -> None:
        path = str(tmp_path / "d")
        make(path, [10, 10, 10, 10])
        lance.dataset(path).create_scalar_index("a", "BTREE")
        deferred = {"defer_index_remap": True}
        commit: Any = library.optimize.Compaction.commit

        def plan(maker: Any, number: int) -> tuple[Any, Any]:
            dataset = maker.dataset(path)
            options = {"target_rows_per_fragment": 20, **deferred}
            tasks = maker.optimize.Compaction.plan(dataset, options).tasks
            return dataset, tasks[number].execute(dataset)

        first, (_, result) = plan(library, 0), plan(glaive, 1)
        second = open_overtaken(path, lambda: commit(first[0], [first[1]], deferred))
        Compaction.commit(second, [result], deferred)
        dataset = lance.dataset(path)
        scanner = dataset.scanner(filter="a IN (2, 13, 25, 36)")
        assert "ScalarIndexQuery" in scanner.explain_plan()
        assert sorted(scanner.to_table().column("a").to_pylist()) == [2, 13, 25, 36]
        glaive.dataset(path).optimize.compact_files()
        again = lance.dataset(path).to_table(filter="a IN (2, 13, 25, 36)")
        assert sorted(again.column("a").to_pylist()) == [2, 13, 25, 36]

    def test_maps_elsewhere_made_at_the_same_time_are_a_conflict(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        make(path, [10, 10, 10, 10])
        lance.dataset(path).create_scalar_index("a", "BTREE")
        deferred = {"defer_index_remap": True}
        options = {"target_rows_per_fragment": 20, **deferred}
        first = glaive.dataset(path).opened
        tasks = Compaction.plan(glaive.dataset(path), options).tasks
        results = [task.execute(glaive.dataset(path)) for task in tasks]

        def commit_with_a_map_elsewhere() -> None:
            (new,), old = results[0].new, results[0].old
            reserved = commit_operation(first, ReserveFragments(1))
            new = replace(new, id=reserved.wire.max_fragment_id)
            entry = reuse_entry(first.store, reserved, [(results[0].moved, old, [new])])
            details = table_pb2.FragmentReuseIndexDetails()
            details.external.path = "details.binpb"
            entry.index_details.value = details.SerializeToString()
            groups = (RewriteGroup(old, (new,)),)
            commit_operation(first, Rewrite(groups=groups, reuse_index=entry))

        second = open_overtaken(path, commit_with_a_map_elsewhere)
        with pytest.raises(CommitConflictError, match="remapping table") as caught:
            Compaction.commit(second, results[1:], deferred)
        assert caught.value.retryable

    @pytest.mark.spec("reuse-1")
    @pytest.mark.spec("reuse-4")
    def test_maps_are_those_of_pylance(self, tmp_path: Path) -> None:
        details = []
        for library in (glaive, lance):
            path = str(tmp_path / library.__name__)
            make(path, [10, 10, 10], [0, 4, 0])
            lance.dataset(path).create_scalar_index("a", "BTREE")
            library.dataset(path).optimize.compact_files(
                target_rows_per_fragment=15, defer_index_remap=True
            )
            entries = {one.name: one for one in glaive.dataset(path).manifest.indices}
            reuse = entries["__lance_frag_reuse"]
            details.append(
                (
                    reuse.index_details.type_url,
                    reuse.index_details.value,
                    reuse.fragment_bitmap,
                    reuse.dataset_version,
                    entries["a_idx"].fragment_bitmap,
                )
            )
        assert details[0] == details[1]

    def test_neighbours_with_other_indices_stay_apart(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        make(path, [10, 10])
        lance.dataset(path).create_scalar_index("a", "BTREE")
        for at in range(2):
            lance.write_dataset(pa.table({"a": [at], "t": ["z"]}), path, mode="append")
        assert groups_of(glaive, path, {}) == groups_of(lance, path, {}) == [[0, 1], [2, 3]]

    @pytest.mark.spec("reuse-5")
    @pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "LABEL_LIST", "NGRAM", "ZONEMAP"])
    def test_with_stable_ids_every_answer_stays_right(self, tmp_path: Path, kind: str) -> None:
        path = str(tmp_path / "d")
        columns = {"LABEL_LIST": "l", "NGRAM": "t"}
        for start in (0, 10):
            rows = range(start, start + 10)
            data = {"a": rows, "l": [[at] for at in rows], "t": [f"text{at}" for at in rows]}
            options: Any = {"mode": "append", "enable_stable_row_ids": True}
            dataset = lance.write_dataset(pa.table(data), path, **options)
        dataset.create_scalar_index(columns.get(kind, "a"), kind)
        dataset.delete("a = 3")
        glaive.dataset(path).optimize.compact_files()
        questions = {"LABEL_LIST": "array_has(l, 15)", "NGRAM": "contains(t, 'text15')"}
        found = lance.dataset(path).to_table(filter=questions.get(kind, "a = 15"))
        assert found.column("a").to_pylist() == [15]
        assert [one.name for one in glaive.dataset(path).manifest.indices] == [
            f"{columns.get(kind, 'a')}_idx"
        ]


class TestInParts:
    def test_plan_task_and_result_travel(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        make(path, [60, 60, 60, 60])
        dataset = glaive.dataset(path)
        plan = Compaction.plan(dataset, {"target_rows_per_fragment": 100})
        assert plan.num_tasks() == 2
        assert pickle.loads(pickle.dumps(plan)) == plan == CompactionPlan.from_json(plan.json())
        results = []
        for task in plan.tasks:
            assert CompactionTask.from_json(task.json()) == task
            done = pickle.loads(pickle.dumps(task)).execute(glaive.dataset(path))
            assert RewriteResult.from_json(done.json()) == done
            results.append(pickle.loads(pickle.dumps(done)))
        assert lance.dataset(path).version == 4
        metrics = Compaction.commit(dataset, results)
        assert (metrics.fragments_removed, metrics.fragments_added) == (4, 2)
        assert dataset.version == 6
        assert lance.dataset(path).to_table()["a"].to_pylist() == list(range(240))

    def test_a_part_alone_can_be_committed(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        make(path, [60, 60, 60, 60])
        dataset = glaive.dataset(path)
        plan = Compaction.plan(dataset, {"target_rows_per_fragment": 100})
        Compaction.commit(dataset, [plan.tasks[1].execute(dataset)])
        assert [one.fragment_id for one in lance.dataset(path).get_fragments()] == [0, 1, 4]
        assert lance.dataset(path).to_table()["a"].to_pylist() == list(range(240))

    def test_rows_deleted_meanwhile_are_a_conflict(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        make(path, [10, 10])
        dataset = glaive.dataset(path)
        result = Compaction.plan(dataset).tasks[0].execute(dataset)
        lance.dataset(path).delete("a = 1")
        with pytest.raises(CommitConflictError, match="delete"):
            Compaction.commit(dataset, [result])
        assert lance.dataset(path).count_rows() == 19

    def test_rows_appended_meanwhile_are_none(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        make(path, [10, 10])
        dataset = glaive.dataset(path)
        result = Compaction.plan(dataset).tasks[0].execute(dataset)
        lance.write_dataset(pa.table({"a": [99], "t": ["z"]}), path, mode="append")
        Compaction.commit(dataset, [result])
        assert lance.dataset(path).to_table()["a"].to_pylist() == [99, *range(20)]
        assert [one.fragment_id for one in lance.dataset(path).get_fragments()] == [2, 3]

    @pytest.mark.parametrize("name", ["glaive", "lance"])
    def test_a_task_reads_the_version_it_was_planned_for(self, tmp_path: Path, name: str) -> None:
        library: Any = {"glaive": glaive, "lance": lance}[name]
        path = str(tmp_path / "d")
        make(path, [10, 10])
        (task,) = library.optimize.Compaction.plan(library.dataset(path), {}).tasks
        lance.write_dataset(pa.table({"a": [99], "t": ["z"]}), path, mode="append")
        newer = library.dataset(path)
        result = task.execute(newer)
        library.optimize.Compaction.commit(newer, [result])
        assert lance.dataset(path).to_table()["a"].to_pylist() == [99, *range(20)]

    @pytest.mark.parametrize("name", ["glaive", "lance"])
    def test_rows_deleted_since_the_plan_conflict(self, tmp_path: Path, name: str) -> None:
        library: Any = {"glaive": glaive, "lance": lance}[name]
        path = str(tmp_path / "d")
        make(path, [10, 10])
        (task,) = library.optimize.Compaction.plan(library.dataset(path), {}).tasks
        lance.dataset(path).delete("a = 1")
        newer = library.dataset(path)
        result = task.execute(newer)
        with pytest.raises(OSError, match=r"delete|conflict"):
            library.optimize.Compaction.commit(newer, [result])
        assert lance.dataset(path).count_rows() == 19

    def test_a_result_is_committed_once(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        make(path, [10, 10])
        dataset = glaive.dataset(path)
        result = Compaction.plan(dataset).tasks[0].execute(dataset)
        with pytest.raises(OptionError, match=r"same fragments.*\[0, 1\]"):
            Compaction.commit(dataset, [result, result])
        group = RewriteGroup(result.old, tuple(replace(one, id=7) for one in result.new))
        other = RewriteGroup(result.old, tuple(replace(one, id=8) for one in result.new))
        with pytest.raises(OptionError, match="rewrites fragment 0 twice"):
            commit_operation(dataset, Rewrite(groups=(group, other)))
        assert lance.dataset(path).count_rows() == 20
        Compaction.commit(dataset, [result])
        with pytest.raises(CommitConflictError):
            Compaction.commit(glaive.dataset(path, version=2), [result])

    def test_a_task_whose_version_was_cleaned_up_is_refused(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        make(path, [10, 10])
        plan = Compaction.plan(glaive.dataset(path))
        lance.dataset(path).delete("a = 1")
        dataset = glaive.dataset(path)
        dataset.cleanup_old_versions(timedelta(0))
        with pytest.raises(VersionNotFoundError, match=r"version 2 of .* cleaned up"):
            plan.tasks[0].execute(dataset)


class TestOptions:
    def test_defaults_come_from_the_configuration(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        make(path, [60, 60, 60, 60])
        lance.dataset(path).update_config({"lance.compaction.target_rows_per_fragment": "100"})
        assert groups_of(glaive, path, {}) == [[0, 1], [2, 3]]
        assert groups_of(glaive, path, {"target_rows_per_fragment": 1000}) == [[0, 1, 2, 3]]

    def test_the_configuration_may_exclude_fragments(self, tmp_path: Path) -> None:
        path = str(tmp_path / "d")
        make(path, [10, 10, 10, 10])
        dataset = glaive.dataset(path)
        for text, groups in (("3", [[0, 1, 2]]), ("0, 3", [[1, 2]]), ("", [[0, 1, 2, 3]])):
            dataset.update_config({"lance.compaction.excluded_fragment_ids": text})
            assert groups_of(glaive, path, {}) == groups
        dataset.update_config({"lance.compaction.excluded_fragment_ids": "3;4"})
        with pytest.raises(OptionError, match=r"excluded_fragment_ids.*'3;4'"):
            glaive.dataset(path).optimize.compact_files()

    @pytest.mark.spec("rel-25")
    def test_a_configuration_makes_no_file_of_each_row(self, tmp_path: Path) -> None:
        """With rows that few bytes stand for, the writing would not end."""
        rows = pa.table({"x": np.zeros(300_000, np.int8)})
        dataset = glaive.write_dataset(rows, tmp_path / "d", max_rows_per_file=150_000)
        dataset.delete("_rowid % 5 = 0")
        dataset.update_config({"lance.compaction.target_rows_per_fragment": "2"})
        message = "2 rows a fragment make 119,998 files more than there are; expected 100,000"
        for refused in (dataset.optimize.compact_files, lambda: Compaction.plan(dataset)):
            with pytest.raises(OptionError, match=message):
                refused()
        few = {"max_bytes_per_file": 1 << 20, "batch_size": 1024, "max_rows_per_group": 64}
        dataset.update_config({"lance.compaction.target_rows_per_fragment": "200000"})
        dataset.update_config({f"lance.compaction.{name}": "1" for name in few})
        for name, least in few.items():
            others: dict[str, Any] = {other: few[other] for other in few if other != name}
            with pytest.raises(OptionError, match=f"{name}: expected {least} at least in a conf"):
                dataset.optimize.compact_files(**others)
        given: Any = few
        assert dataset.optimize.compact_files(**given).fragments_added == 1

    @pytest.mark.parametrize(
        "options",
        [
            {"target_rows_per_fragment": 0},
            {"materialize_deletions_threshold": 2},
            {"compaction_mode": "sideways"},
            {"max_source_rows": -1},
        ],
        ids=str,
    )
    def test_what_cannot_be_is_refused(self, tmp_path: Path, options: dict[str, Any]) -> None:
        path = str(tmp_path / "d")
        make(path, [10, 10])
        with pytest.raises(OptionError):
            glaive.dataset(path).optimize.compact_files(**options)
        assert lance.dataset(path).version == 2


def test_row_ids_in_data_files_outlive_a_compaction(tmp_path: Path) -> None:
    """Where pylance keeps row ids and versions as hidden columns."""
    path = str(tmp_path / "d")
    dataset = lance.write_dataset(
        pa.table({"a": range(4000), "b": [0] * 4000}), path, enable_stable_row_ids=True
    )
    dataset.update_config(
        {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "16"}
    )
    lance.dataset(path).update({"b": "1"}, where="a % 7 = 3")
    lance.dataset(path).optimize.compact_files(materialize_deletions_threshold=0.0)
    lance.dataset(path).delete("a % 5 = 1")
    columns = ["a", "b", *SYSTEM[1:]]
    before = lance.dataset(path).to_table(columns, with_row_id=True)
    glaive.dataset(path).optimize.compact_files(materialize_deletions_threshold=0.0)
    for library in (lance, glaive):
        dataset = library.dataset(path)
        assert dataset.to_table(columns, with_row_id=True).equals(before)
        assert [one.num_deletions for one in dataset.get_fragments()] == [0]
    glaive.dataset(path).validate()
