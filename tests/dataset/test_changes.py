"""The change feed: what versions did to rows, against rows compared one by one."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import glaive
from glaive.dataset.change_feed import ChangeReader
from glaive.dataset.transactions import write_fragments
from glaive.errors import (
    ColumnNotFoundError,
    OptionError,
    SchemaError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)

Row = dict[str, Any]

OF_BEFORE = ["delete", "update_preimage"]


def rows(numbers: range, text: str = "x") -> pa.Table:
    return pa.table({"id": list(numbers), "text": [f"{text}{number}" for number in numbers]})


def create(uri: Path, *, stable: bool = True, count: int = 10) -> glaive.LanceDataset:
    return glaive.write_dataset(
        rows(range(count)), str(uri), enable_stable_row_ids=stable, max_rows_per_file=4
    )


def append(dataset: glaive.LanceDataset, table: pa.Table) -> None:
    dataset.insert(table)


def kinds(dataset: glaive.LanceDataset, *versions: int, **options: Any) -> Counter[str]:
    return Counter(dataset.changes(*versions, **options).to_table()["_change_type"].to_pylist())


def listed(dataset: glaive.LanceDataset, *versions: int, **options: Any) -> list[tuple[Any, ...]]:
    table = dataset.changes(*versions, **options).to_table()
    names = ["_commit_version", "_change_type", "id", "text"]
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


@pytest.fixture
def dataset(tmp_path: Path) -> glaive.LanceDataset:
    """Versions 2 to 5: an append, a delete, an update and a merge."""
    made = create(tmp_path / "t.lance")
    append(made, rows(range(100, 102)))
    made.delete("id in (3, 100)")
    made.update({"text": "'new'"}, where="id < 2")
    merge = made.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(pa.table({"id": [7, 1000], "text": ["seven", "thousand"]}))
    return made


def test_every_kind_of_change_is_reported(dataset: glaive.LanceDataset) -> None:
    assert sorted(listed(dataset, 2)) == [
        (2, "insert", 100, "x100"),
        (2, "insert", 101, "x101"),
        (3, "delete", 3, "x3"),
        (3, "delete", 100, "x100"),
        (4, "update_postimage", 0, "new"),
        (4, "update_postimage", 1, "new"),
        (4, "update_preimage", 0, "x0"),
        (4, "update_preimage", 1, "x1"),
        (5, "insert", 1000, "thousand"),
        (5, "update_postimage", 7, "seven"),
        (5, "update_preimage", 7, "x7"),
    ]


def test_the_first_version_inserts_all_its_rows(dataset: glaive.LanceDataset) -> None:
    assert kinds(dataset, 1, 1) == {"insert": 10}


def test_the_rows_of_a_feed_are_known_for_whole_fragments_and_bounded_for_others(
    dataset: glaive.LanceDataset,
) -> None:
    assert dataset.changes(1, 1).estimated_rows == 10
    feed = dataset.changes(2)
    # Four commits, of 13 rows at most, each before and after.
    assert feed.to_table().num_rows <= feed.estimated_rows <= 4 * 2 * 13


def test_old_values_can_be_left_out(dataset: glaive.LanceDataset) -> None:
    found = kinds(dataset, 2, preimages=False)

    assert found == {"insert": 3, "delete": 2, "update_postimage": 3}


def test_net_changes_compare_only_the_ends(dataset: glaive.LanceDataset) -> None:
    # Row 100 came and went; the others are reported once, by the last version.
    assert sorted(listed(dataset, 2, net=True)) == [
        (5, "delete", 3, "x3"),
        (5, "insert", 101, "x101"),
        (5, "insert", 1000, "thousand"),
        *[(5, "update_postimage", number, text) for number, text in [(0, "new"), (1, "new")]],
        (5, "update_postimage", 7, "seven"),
        *[(5, "update_preimage", number, f"x{number}") for number in (0, 1, 7)],
    ]


def test_without_stable_ids_an_update_deletes_and_inserts(tmp_path: Path) -> None:
    dataset = create(tmp_path / "t.lance", stable=False)
    dataset.update({"text": "'new'"}, where="id < 2")

    assert sorted(listed(dataset, 2)) == [
        (2, "delete", 0, "x0"),
        (2, "delete", 1, "x1"),
        (2, "insert", 0, "new"),
        (2, "insert", 1, "new"),
    ]


@pytest.mark.parametrize("stable", [True, False])
def test_changes_of_no_row_emit_nothing(tmp_path: Path, stable: bool) -> None:
    dataset = create(tmp_path / "t.lance", stable=stable)
    dataset.delete("id = 0")
    before = dataset.version
    dataset.optimize.compact_files()
    dataset.create_scalar_index("id", "BTREE")
    dataset.add_columns({"twice": "id * 2"})
    dataset.alter_columns({"path": "text", "name": "word"})
    dataset.drop_columns(["twice"])
    dataset.update_config({"a": "b"})

    assert dataset.version > before + 5
    assert not dataset.changes(before + 1).tasks


@pytest.mark.spec("rel-11")
@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("offsets", [True, False])
def test_columns_rewritten_in_place_are_updates(
    tmp_path: Path, stable: bool, offsets: bool
) -> None:
    dataset = create(tmp_path / "t.lance", stable=stable)
    fragment = dataset.get_fragments()[1]
    keys = fragment.to_table(columns=["id"], with_row_id=True)
    changed = pa.table({"_rowid": keys["_rowid"][:2], "text": ["p", "q"]})
    updated: Any = fragment.update_columns(changed, with_offsets=True)
    made, fields, bitmap = updated
    update = glaive.LanceOperation.Update(
        updated_fragments=[made],
        fields_modified=fields,
        update_mode="rewrite_columns",
        updated_fragment_offsets={made.id: bitmap} if offsets else None,
    )
    dataset = glaive.LanceDataset.commit(dataset, update, read_version=dataset.version)

    found = listed(dataset, 2)

    rewritten = [4, 5] if offsets else [4, 5, 6, 7]
    assert [row for row in found if row[1] == "update_preimage"] == [
        (2, "update_preimage", number, f"x{number}") for number in rewritten
    ]
    texts = dict(zip(rewritten, ["p", "q", "x6", "x7"], strict=False))
    assert [row for row in found if row[1] == "update_postimage"] == [
        (2, "update_postimage", number, texts[number]) for number in rewritten
    ]
    assert len(found) == 2 * len(rewritten)

    if stable:  # where the rows move afterwards, their versions tell
        dataset.optimize.compact_files()
        assert sorted(row[1:] for row in listed(dataset, 2, net=True)) == sorted(
            row[1:] for row in found
        )


@pytest.mark.parametrize("stable", [True, False])
def test_an_overwrite_deletes_all_and_inserts_all(tmp_path: Path, stable: bool) -> None:
    dataset = create(tmp_path / "t.lance", stable=stable)
    dataset = glaive.write_dataset(rows(range(3), "y"), dataset, mode="overwrite")

    assert kinds(dataset, 2) == {"delete": 10, "insert": 3}
    assert kinds(dataset, 2, net=True) == {"delete": 10, "insert": 3}


def test_a_restore_undoes_what_came_after(dataset: glaive.LanceDataset) -> None:
    uri = dataset.uri
    dataset.checkout_version(1).restore()
    restored = glaive.dataset(uri)

    found = Counter(row[1] for row in listed(restored, 6))

    assert found == {"delete": 2, "insert": 1, "update_preimage": 3, "update_postimage": 3}
    assert listed(restored, 2, net=True) == []


@pytest.mark.parametrize("stable", [True, False])
def test_fragments_that_a_detached_version_brings_are_none_of_the_same_ids(
    tmp_path: Path, stable: bool
) -> None:
    """Fragment 3 of one has rows that others updated, that of the other new rows."""
    dataset = create(tmp_path / "t.lance", stable=stable)
    append = glaive.LanceOperation.Append(write_fragments(rows(range(100, 102)), dataset.uri))
    detached = glaive.LanceDataset.commit(dataset, append, read_version=1, detached=True)
    dataset.update({"text": "'new'"}, where="id < 3")
    detached.restore()
    restored = glaive.dataset(dataset.uri)

    for found in (restored.changes(3), restored.changes(3, net=True)):
        table = found.to_table()
        before = table.filter(pc.is_in(table["_change_type"], pa.array(OF_BEFORE)))
        after = table.filter(pc.invert(pc.is_in(table["_change_type"], pa.array(OF_BEFORE))))
        assert sorted(before["text"].to_pylist()) == ["new"] * 3
        assert sorted(after["text"].to_pylist()) == ["x0", "x1", "x100", "x101", "x2"]


def test_rows_of_a_version_without_a_column_have_nulls(tmp_path: Path) -> None:
    dataset = create(tmp_path / "t.lance")
    dataset.delete("id = 1")
    dataset.add_columns({"twice": "id * 2"})
    dataset.delete("id = 2")

    table = dataset.changes(2, columns=["id", "twice"]).to_table()

    assert table["id"].to_pylist() == [1, 2]
    assert table["twice"].to_pylist() == [None, 4]


def test_a_renamed_column_is_followed_by_its_id(tmp_path: Path) -> None:
    dataset = create(tmp_path / "t.lance")
    dataset.delete("id = 1")
    dataset.alter_columns({"path": "text", "name": "word"})

    assert dataset.changes(2, columns=["word"]).to_table()["word"].to_pylist() == ["x1"]


def test_values_take_the_type_of_the_last_version(tmp_path: Path) -> None:
    dataset = create(tmp_path / "t.lance")
    dataset.delete("id = 1")
    dataset.alter_columns({"path": "id", "data_type": pa.int32()})
    assert dataset.changes(2, columns=["id"]).to_table()["id"].type == pa.int32()

    dataset = glaive.write_dataset(pa.table({"id": [[1]]}), dataset, mode="overwrite")

    with pytest.raises(SchemaError, match=r"'id' is int.. in .*list"):
        dataset.changes(dataset.version).to_table()


def test_a_version_that_was_cleaned_up_is_named_with_the_oldest_left(
    dataset: glaive.LanceDataset,
) -> None:
    dataset.tags.create("kept", 2)
    dataset.cleanup_old_versions(
        older_than=timedelta(0), retain_versions=2, error_if_tagged_old_versions=False
    )

    with pytest.raises(
        VersionNotFoundError, match=r"version 3 .* oldest version left is 2; .* from version 5 on"
    ):
        dataset.changes(3)
    assert kinds(dataset, 5) == {"insert": 1, "update_postimage": 1, "update_preimage": 1}


def test_net_changes_across_a_compaction_need_stable_ids(tmp_path: Path) -> None:
    dataset = create(tmp_path / "t.lance", stable=False)
    append(dataset, rows(range(20, 22)))
    dataset.optimize.compact_files()

    with pytest.raises(UnsupportedFeatureError, match="version 4, a compaction"):
        dataset.changes(2, net=True)
    assert kinds(dataset, 2, 2, net=True) == {"insert": 2}


def test_tasks_run_elsewhere_and_in_any_order(dataset: glaive.LanceDataset) -> None:
    feed = dataset.changes(1)
    sent = pickle.loads(pickle.dumps((dataset, feed.tasks)))
    reader = ChangeReader(sent[0].opened)

    batches = [batch for task in reversed(sent[1]) for batch in reader.read(task)]

    found = pa.Table.from_batches(batches, feed.schema).to_pylist()
    key = Counter(str(sorted(row.items())) for row in found)
    assert key == Counter(str(sorted(row.items())) for row in feed.to_table().to_pylist())
    assert len(pickle.dumps(feed.tasks)) < 600 * len(feed.tasks)


def test_batches_are_as_small_as_asked_for(dataset: glaive.LanceDataset) -> None:
    batches = list(dataset.changes(1, 1, batch_size=3).to_batches())

    assert max(batch.num_rows for batch in batches) == 3
    assert sum(batch.num_rows for batch in batches) == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "start_version: expected an integer ≥ 1"),
        ((True,), "start_version: expected an integer ≥ 1"),
        ((3, 2), "start_version 3 comes after end_version 2"),
        ((2, 9), "end_version: the newest version is 5, found 9"),
        ((6,), "start_version: the newest version is 5, found 6"),
        (("2",), "start_version: expected an integer ≥ 1"),
    ],
)
def test_ranges_that_are_none_are_refused(
    dataset: glaive.LanceDataset, arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        dataset.changes(*arguments)


def test_columns_that_do_not_exist_are_refused(dataset: glaive.LanceDataset) -> None:
    with pytest.raises(ColumnNotFoundError, match="txt"):
        dataset.changes(1, columns=["txt"])
    taken = glaive.write_dataset(pa.table({"_change_type": ["a"]}), dataset, mode="overwrite")
    with pytest.raises(SchemaError, match="_change_type"):
        taken.changes(1)


def test_a_reader_streams_with_the_promised_schema(dataset: glaive.LanceDataset) -> None:
    feed = dataset.changes(1, columns=["text", "_rowid"])

    assert feed.to_reader().read_all().schema == feed.schema
    assert feed.schema.names == [
        "text",
        "_rowid",
        "_change_type",
        "_commit_version",
        "_commit_timestamp",
    ]
    times = dataset.changes(3, 3).to_table()["_commit_timestamp"].unique().to_pylist()
    assert times == [dataset.checkout_version(3).manifest.timestamp]


def state(dataset: glaive.LanceDataset) -> Counter[tuple[int, str]]:
    table = dataset.to_table(columns=["id", "text"])
    return Counter(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_changes_applied_to_one_version_make_the_next(
    tmp_path: Path, stable: bool, seed: int
) -> None:
    choose = random.Random(seed)
    dataset = create(tmp_path / "t.lance", stable=stable)

    def merge() -> None:
        start = choose.randrange(30)
        clauses = dataset.merge_insert("id").when_matched_update_all()
        clauses.when_not_matched_insert_all().execute(rows(range(start, start + 5), "m"))

    steps: list[Any] = [
        lambda: append(dataset, rows(range(next_id(dataset), next_id(dataset) + 3))),
        lambda: dataset.delete(f"id % 7 = {choose.randrange(7)}"),
        lambda: dataset.update({"text": f"'u{choose.random()}'"}, where=f"id % 5 = {seed}"),
        dataset.optimize.compact_files,
        merge,
        lambda: dataset.checkout_version(choose.randint(1, dataset.version)).restore(),
        lambda: glaive.write_dataset(rows(range(4), "o"), dataset, mode="overwrite"),
    ]
    for _ in range(14):
        choose.choices(steps, [3, 3, 3, 2, 3, 1, 0.5])[0]()
        dataset.checkout_latest()

    for version in range(2, dataset.version + 1):
        before, after = (state(dataset.checkout_version(at)) for at in (version - 1, version))
        changed = Counter(before)
        for _, kind, number, text in listed(dataset, version, version):
            changed[number, text] += 1 if kind in ("insert", "update_postimage") else -1
        assert +changed == after, (version, seed)
        assert min(changed.values(), default=0) >= 0
    if stable:
        first, last = state(dataset.checkout_version(1)), state(dataset)
        for _, kind, number, text in listed(dataset, 2, net=True):
            first[number, text] += 1 if kind in ("insert", "update_postimage") else -1
        assert +first == last


def next_id(dataset: glaive.LanceDataset) -> int:
    numbers: Any = dataset.to_table(columns=["id"])["id"].to_pylist()
    return int(max(numbers, default=0)) + 1


@pytest.mark.interop
@pytest.mark.parametrize("stable", [True, False])
def test_changes_that_pylance_made_are_found(tmp_path: Path, stable: bool) -> None:
    lance = pytest.importorskip("lance")
    uri = str(tmp_path / "t.lance")
    theirs = lance.write_dataset(rows(range(10)), uri, enable_stable_row_ids=stable)
    theirs = lance.write_dataset(rows(range(100, 102)), uri, mode="append")
    theirs.delete("id in (3, 100)")
    theirs.update({"text": "'new'"}, where="id < 2")
    theirs.optimize.compact_files()
    merge = theirs.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(pa.table({"id": [7, 1000], "text": ["seven", "thousand"]}))

    found = Counter(row[1] for row in listed(glaive.dataset(uri), 2))

    if not stable:
        assert found == {"insert": 6, "delete": 5}
        return
    assert found == {"insert": 3, "delete": 2, "update_preimage": 3, "update_postimage": 3}
    delta = theirs.delta(begin_version=1, end_version=theirs.version)
    net = glaive.dataset(uri).changes(2, net=True, columns=["id"]).to_table()
    ids = {
        kind: sorted(net.filter(pc.equal(net["_change_type"], kind))["id"].to_pylist())
        for kind in ("insert", "delete", "update_postimage")
    }
    assert ids["insert"] == sorted(delta.get_inserted_rows().read_all()["id"].to_pylist())
    assert ids["update_postimage"] == sorted(delta.get_updated_rows().read_all()["id"].to_pylist())
    assert ids["delete"] == delta.get_deleted_row_ids().read_all()["_rowid"].to_pylist() == [3]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.decimal128(5, -38), pa.decimal128(38, 38)),
        (pa.decimal256(76, -70), pa.decimal256(76, 76)),
    ],
    ids=str,
)
def test_decimals_are_not_cast_by_more_powers_of_ten_than_arrow_has(
    tmp_path: Path, old: Any, new: Any
) -> None:
    value = pa.py_buffer((123).to_bytes(old.byte_width, "little"))
    column = pa.Array.from_buffers(old, 1, [None, value])
    dataset = glaive.write_dataset(pa.table({"d": column}), tmp_path / "t")
    with pytest.raises(SchemaError, match="cannot be cast from decimal"):
        dataset.alter_columns({"path": "d", "data_type": new})
