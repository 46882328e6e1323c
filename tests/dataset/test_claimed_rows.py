"""What a manifest says about rows is checked against the files before memory is taken for them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from operator import methodcaller
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap, BitMap64
from tests.damage import rewritten as rewritten_file
from tests.traced import traced_peak

import glaive
from glaive.dataset.compaction_tasks import live_addresses
from glaive.dataset.dataset import LanceDataset
from glaive.dataset.layout import VersionCheck
from glaive.errors import CorruptFileError, GlaiveError, SchemaError, UnsupportedFeatureError
from glaive.format.manifest import encode_manifest
from glaive.format.pb import table_pb2
from glaive.format.rowids import encode_row_ids, encode_versions
from glaive.table.load import open_latest

ROWS = pa.table({"id": pa.array(range(40), pa.int64()), "text": ["a", "b"] * 20})
JOINED = pa.table({"_rowid": pa.array([1], pa.uint64()), "more": [1]})
MOST_MEMORY = 64 * 1024 * 1024
"""Bytes that anything done to forty rows may take."""


def rewrite(place: Path, change: Callable[[Any, list[Any]], object]) -> None:
    """Change the newest manifest and the messages of its fragments."""
    manifest = glaive.dataset(place).manifest
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(manifest.wire)
    fragments = [manifest.fragment_wire(at) for at in range(manifest.num_fragments)]
    change(wire, fragments)
    del wire.fragments[:]
    wire.fragments.extend(one.SerializeToString() for one in fragments)
    pieces = encode_manifest(
        wire, transaction=manifest.transaction or b"", index_section=manifest.index_section
    )
    Path(manifest.where).write_bytes(b"".join(map(bytes, map(memoryview, pieces))))


def claim(place: Path, rows: int) -> None:
    """Say that the first fragment has so many rows, with ids and versions for all of them."""

    def change(wire: Any, fragments: list[Any]) -> None:
        one = fragments[0]
        one.physical_rows = rows
        if one.HasField("inline_row_ids"):
            one.inline_row_ids = encode_row_ids(range(rows))
            one.inline_created_at_versions = encode_versions([(rows, 1)])
            one.inline_last_updated_at_versions = encode_versions([(rows, 1)])
            wire.next_row_id = 2**40

    rewrite(place, change)


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "t"
    glaive.write_dataset(ROWS, path, max_rows_per_file=20, enable_stable_row_ids=request.param)
    glaive.dataset(path).delete("id % 7 = 3")
    return path


def constant_udf(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pa.array([1] * batch.num_rows)], ["one"])


READ_ALL: dict[str, Callable[[LanceDataset], object]] = {
    "rows": lambda at: at.to_table(),
    "row ids": lambda at: at.to_table(columns=["_rowid"]),
    "row ids and addresses": lambda at: at.to_table(columns=["_rowid", "_rowaddr", "_rowoffset"]),
    "versions of rows": lambda at: at.to_table(
        columns=["_row_created_at_version", "_row_last_updated_at_version"]
    ),
    "a stream of row ids": lambda at: sum(len(one) for one in at.to_batches(columns=["_rowid"])),
    "a computed column": lambda at: at.to_table(columns={"one": "_rowid + 1"}),
    "a filter by id": lambda at: at.to_table(columns=["_rowid"], filter="_rowid % 2 = 0"),
    "a fragment": lambda at: at.get_fragments()[0].to_table(columns=["_rowid"]),
    "columns by expression": lambda at: at.add_columns({"two": "id + 1"}),
    "columns without inputs": lambda at: at.add_columns({"two": "2"}),
    "columns by a function": lambda at: at.add_columns(constant_udf, read_columns=["id"]),
    "columns by a function of nothing": lambda at: at.add_columns(constant_udf, read_columns=[]),
    "columns by join": lambda at: at.merge(JOINED, "_rowid"),
    "an update": lambda at: at.update({"text": "'z'"}),
    "a merge": lambda at: at.merge_insert("id").when_matched_update_all().execute(ROWS),
    "a compaction": lambda at: at.optimize.compact_files(materialize_deletions_threshold=0.0),
    "a validation": lambda at: at.validate(),
}  # fmt: skip


def refused_within_bounds(place: Path, operation: Callable[[LanceDataset], object]) -> str:
    """The message of the error that an operation ends in; memory is counted."""
    dataset = glaive.dataset(place)
    pool = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(pool)
    pa.set_memory_pool(watched)
    tracemalloc.start()
    try:
        with pytest.raises(GlaiveError) as caught:
            operation(dataset)
        used = tracemalloc.get_traced_memory()[1] + (watched.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(pool)
    assert used < MOST_MEMORY
    return str(caught.value)


@pytest.mark.spec("frag-6")
@pytest.mark.parametrize("rows", [21, 2**24, 2**32])
@pytest.mark.parametrize("name", READ_ALL)
def test_more_rows_than_the_files_have_are_damage(place: Path, name: str, rows: int) -> None:
    claim(place, rows)
    before = glaive.dataset(place).version
    message = refused_within_bounds(place, READ_ALL[name])
    assert str(rows) in message
    assert "20" in message
    assert glaive.dataset(place).version == before


@pytest.mark.parametrize("rows", [2**32 + 1, 2**48, 2**63, 2**64 - 1])
def test_more_rows_than_a_fragment_can_have_are_damage(place: Path, rows: int) -> None:
    def change(_wire: Any, fragments: list[Any]) -> None:
        fragments[1].physical_rows = rows

    rewrite(place, change)
    for name in ("rows", "row ids", "columns by expression", "a compaction"):
        message = refused_within_bounds(place, READ_ALL[name])
        assert "at most 2^32 rows" in message
    with pytest.raises(CorruptFileError, match=r"at most 2\^32 rows each"):
        glaive.dataset(place).count_rows()


@pytest.mark.parametrize("number", [2**32, 2**48, 2**63, 2**64 - 1])
def test_ids_of_fragments_beyond_a_row_address_are_damage(place: Path, number: int) -> None:
    def change(_wire: Any, fragments: list[Any]) -> None:
        fragments[1].id = number

    rewrite(place, change)
    for name in ("row ids", "an update", "a compaction", "a validation"):
        assert "id" in refused_within_bounds(place, READ_ALL[name])


def test_many_deleted_rows_of_few_are_not_listed(place: Path) -> None:
    """A bitmap of some bytes, a manifest that agrees with it, and a file that does not."""
    runs = BitMap(range(2**26))
    runs.run_optimize()
    claim(place, 2**27)

    def change(_wire: Any, fragments: list[Any]) -> None:
        deleted = fragments[0].deletion_file
        deleted.file_type = table_pb2.DeletionFile.BITMAP
        deleted.num_deleted_rows = 0  # as in old datasets: only the file tells
        path = place / "_deletions" / f"0-{deleted.read_version}-{deleted.id}.bin"
        path.write_bytes(runs.serialize())

    rewrite(place, change)
    operations: list[Any] = [
        lambda at: at.count_rows(),
        lambda at: at.to_table(limit=3),
        lambda at: at.take([1]),
    ]
    for operation in operations:
        assert "134217728" in refused_within_bounds(place, operation)


def test_rows_of_fragments_without_files_are_bounded(tmp_path: Path) -> None:
    """Columns without values need no file; what the manifest says is all there is."""
    glaive.write_dataset(pa.table({"id": [1, 2, 3]}), tmp_path / "t")
    dataset = glaive.dataset(tmp_path / "t")
    dataset.add_columns(pa.field("none", pa.int64()))
    glaive.dataset(tmp_path / "t").drop_columns(["id"])

    def without_files(rows: int) -> Callable[[Any, list[Any]], None]:
        def change(_wire: Any, fragments: list[Any]) -> None:
            del fragments[0].files[:]
            fragments[0].physical_rows = rows

        return change

    rewrite(tmp_path / "t", without_files(3))
    opened = glaive.dataset(tmp_path / "t")
    assert opened.to_table(with_row_id=True).to_pydict() == {
        "none": [None] * 3,
        "_rowid": [0, 1, 2],
    }
    rewrite(tmp_path / "t", without_files(2**32))
    for columns in (["_rowid"], ["none"]):
        read = methodcaller("to_table", columns=columns)
        message = refused_within_bounds(tmp_path / "t", read)
        assert "rows of fragments without files" in message


def test_values_of_gigabytes_that_no_file_has_are_not_made(tmp_path: Path) -> None:
    glaive.write_dataset(pa.table({"id": [1, 2, 3]}), tmp_path / "t")
    wide = pa.list_(pa.float32(), 2**31 - 1)
    glaive.dataset(tmp_path / "t").add_columns(pa.field("wide", wide))
    for operation in (lambda at: at.to_table(), lambda at: at.take([1])):
        assert "at most 2147483648" in refused_within_bounds(tmp_path / "t", operation)
    assert glaive.dataset(tmp_path / "t").to_table(columns=["id"]).num_rows == 3


def test_small_fragments_that_say_more_rows_than_they_have_are_damage(tmp_path: Path) -> None:
    """Neighbours that are small are read together, whichever columns are asked for."""
    glaive.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=2)

    def change(_wire: Any, fragments: list[Any]) -> None:
        for one in fragments:
            one.physical_rows = 2**32

    rewrite(tmp_path / "t", change)
    for operation in (
        READ_ALL["row ids"],
        READ_ALL["a filter by id"],
        lambda at: at.count_rows("_rowaddr % 2 = 1"),
        lambda at: at.to_table(filter="id > 3"),
    ):
        assert "4294967296" in refused_within_bounds(tmp_path / "t", operation)


def repeat(place: Path, rows: int, *, stable: bool = False) -> None:
    """A dataset of so many rows, which are all alike; two of them are deleted."""
    table = pa.table({"one": pa.array(np.ones(1000, np.int64))})
    glaive.write_dataset(table, place, data_storage_version="2.2", enable_stable_row_ids=stable)
    glaive.dataset(place).delete("_rowid IN (1, 999)")

    def lie(descriptor: Any, columns: list[Any]) -> None:
        descriptor.length = columns[0].pages[0].length = rows

    (file,) = (place / "data").iterdir()
    file.write_bytes(rewritten_file(file.read_bytes(), lie))

    def change(_wire: Any, fragments: list[Any]) -> None:
        fragments[0].files[0].file_size_bytes = file.stat().st_size

    claim(place, rows)
    rewrite(place, change)


@pytest.mark.spec("rel-44")
@pytest.mark.parametrize("name", ["columns by join", "a compaction"])
def test_numbers_of_billions_of_rows_are_not_held_at_once(tmp_path: Path, name: str) -> None:
    """The file has them, in a few bytes; a number for each of them would take gigabytes."""
    repeat(tmp_path / "t", 2**32, stable=True)
    message = refused_within_bounds(tmp_path / "t", READ_ALL[name])
    assert "row ids or versions of 4294967296 rows of one fragment" in message


@pytest.mark.spec("rel-24")
def test_addresses_of_the_rows_of_a_compaction_are_listed_some_at_a_time(tmp_path: Path) -> None:
    """Eight bytes for each row, three times, of a fragment whose rows are a few bytes."""
    repeat(tmp_path / "t", 2**28)
    dataset = glaive.dataset(tmp_path / "t")
    opened = dataset.opened
    found: list[bytes] = []
    used = traced_peak(
        lambda: found.append(live_addresses(opened, list(dataset.manifest.fragments())))
    )
    assert used < MOST_MEMORY
    addresses = BitMap64.deserialize(found[0])
    assert len(addresses) == 2**28 - 2
    assert 1 not in addresses
    assert 999 not in addresses


@pytest.mark.nightly(reason="counts billions of rows")
@pytest.mark.spec("rel-24")
def test_deleted_rows_of_a_file_of_runs_are_not_listed_by_reads(tmp_path: Path) -> None:
    """Nor counted against a limit: as runs they take next to nothing."""
    repeat(tmp_path / "t", 2**28)
    runs = BitMap(range(7, 2**28 - 5))
    runs.run_optimize()

    def change(_wire: Any, fragments: list[Any]) -> None:
        deleted = fragments[0].deletion_file
        deleted.file_type = table_pb2.DeletionFile.BITMAP
        deleted.num_deleted_rows = 0  # as in old datasets: only the file tells
        path = tmp_path / "t" / "_deletions" / f"0-{deleted.read_version}-{deleted.id}.bin"
        path.write_bytes(runs.serialize())

    rewrite(tmp_path / "t", change)
    found: list[Any] = []

    def read() -> None:
        dataset = glaive.dataset(tmp_path / "t")
        found.append(dataset.count_rows())
        found.append(dataset.to_table(columns=["one"], with_row_id=True)["_rowid"].to_pylist())

    assert traced_peak(read) < MOST_MEMORY
    assert found == [12, [*range(7), *range(2**28 - 5, 2**28)]]


@pytest.mark.nightly(reason="counts billions of rows")
@pytest.mark.spec("rel-24")
def test_rows_to_delete_are_counted_before_all_of_them_are_found(tmp_path: Path) -> None:
    """Those of all windows took gigabytes: more of them were made ahead than were counted."""
    repeat(tmp_path / "t", 2**28)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UnsupportedFeatureError, match="more than 134217728 rows of fragment 0"):
        glaive.dataset(tmp_path / "t").delete("one = 1 and _rowaddr > 5")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 * 1024**2  # kB
    assert glaive.dataset(tmp_path / "t").count_rows() == 2**28 - 2


@pytest.mark.spec("rel-24")
def test_a_fragment_of_which_all_rows_match_is_removed_however_many_these_are(
    tmp_path: Path,
) -> None:
    repeat(tmp_path / "t", 2**32 - 1)
    dataset = glaive.dataset(tmp_path / "t")
    dataset.insert(dataset.take([0]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert dataset.delete("one = 1") == {"num_deleted_rows": 2**32 - 2}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 * 1024**2  # kB
    assert glaive.dataset(tmp_path / "t").count_rows() == 0


def test_rows_that_are_all_alike_are_added_to_in_windows(tmp_path: Path) -> None:
    """A file may well hold millions of rows in a few bytes; its deleted rows take none either."""
    rows = 12_500_000
    repeat(tmp_path / "t", rows)
    dataset = glaive.dataset(tmp_path / "t")
    dataset.add_columns({"two": "one + 1"})  # loads what it needs
    tracemalloc.start()
    try:
        dataset.add_columns({"three": "two + 1"})
        seen = sum(len(one) for one in dataset.to_batches(columns=["three"]))
        assert tracemalloc.get_traced_memory()[1] < 8 * rows
    finally:
        tracemalloc.stop()
    assert seen == rows - 2
    assert dataset.take([998], columns=["three"])["three"].to_pylist() == [3]


def test_overwriting_with_ids_used_up_is_refused(place: Path) -> None:
    def change(wire: Any, _fragments: list[Any]) -> None:
        wire.max_allocated_field_id = 2**31 - 1

    rewrite(place, change)
    operations: list[Any] = [
        lambda at: at.insert(ROWS, mode="overwrite"),
        lambda at: at.add_columns({"two": "id + 1"}),
        lambda at: at.add_columns(pa.field("none", pa.int64())),
        lambda at: at.alter_columns({"path": "id", "data_type": pa.int32()}),
    ]
    for operation in operations:
        with pytest.raises(SchemaError, match="field ids go up to 2147483647"):
            operation(glaive.dataset(place))


def test_rows_and_fragments_are_refused_when_their_ids_are_used_up(place: Path) -> None:
    def change(wire: Any, _fragments: list[Any]) -> None:
        wire.max_fragment_id = 2**32 - 1
        wire.next_row_id = 2**64 - 3

    rewrite(place, change)
    stable = glaive.dataset(place).has_stable_row_ids
    operations: list[Any] = [
        lambda at: at.insert(ROWS),
        lambda at: at.insert(ROWS, mode="overwrite"),
        lambda at: at.update({"text": "'z'"}),
        lambda at: at.optimize.compact_files(materialize_deletions_threshold=0.0),
    ]
    for operation in operations:
        with pytest.raises(GlaiveError, match=r"next row id|fragment.*2\^32"):
            operation(glaive.dataset(place))
    assert open_latest(glaive.dataset(place).store).uses(2) == stable


def test_columns_without_a_name_are_read(tmp_path: Path) -> None:
    """pylance writes them; it cannot read them again."""
    glaive.write_dataset(ROWS, tmp_path / "t")

    def change(wire: Any, _fragments: list[Any]) -> None:
        wire.fields[1].name = ""

    rewrite(tmp_path / "t", change)
    dataset = glaive.dataset(tmp_path / "t")
    assert dataset.to_table().column_names == ["id", ""]
    assert dataset.to_table(columns=[""])[""].to_pylist() == ROWS["text"].to_pylist()
    found = dataset.to_table(filter="id = 3", with_row_id=True)
    assert found.to_pydict() == {"id": [3], "": ["b"], "_rowid": [3]}
    assert dataset.take([4]).to_pydict() == {"id": [4], "": ["a"]}


@pytest.mark.spec("rel-25")
def test_a_file_that_many_fragments_name_is_described_and_checked_once(tmp_path: Path) -> None:
    table = pa.table({f"c{at}": [1, None] for at in range(200)})
    dataset = glaive.write_dataset(table, tmp_path / "t")
    alone = dataset.stats.data_stats()

    def repeat(wire: Any, fragments: list[Any]) -> None:
        for number in range(1, 1000):
            fragments.append(type(fragments[0])())
            fragments[-1].CopyFrom(fragments[0])
            fragments[-1].id = number
        wire.max_fragment_id = 999

    rewrite(tmp_path / "t", repeat)
    dataset = glaive.dataset(tmp_path / "t")
    began = process_time()
    assert [one.bytes_on_disk for one in dataset.stats.data_stats().fields] == [
        1000 * one.bytes_on_disk for one in alone.fields
    ]
    dataset.validate()
    # Its columns were described for each fragment: 20 seconds.
    assert process_time() - began < 3


@pytest.mark.parametrize("change", [{"id": 0}, {"name": "id"}, {"parent_id": 7}], ids=str)
def test_fields_that_are_no_schema_are_found_by_validate_and_verify(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    glaive.write_dataset(ROWS, tmp_path / "t")

    def damage(wire: Any, _: list[Any]) -> None:
        for name, value in change.items():
            setattr(wire.fields[1], name, value)

    rewrite(tmp_path / "t", damage)
    dataset = glaive.dataset(tmp_path / "t")
    with pytest.raises(CorruptFileError) as unread:
        dataset.to_table()
    with pytest.raises(CorruptFileError) as found:
        dataset.validate()
    assert str(found.value) == str(unread.value)
    problems = VersionCheck(deep=False).problems(dataset, dataset.version)
    assert [problem.message for problem in problems] == [str(unread.value)]


def test_a_field_that_a_data_file_has_twice_is_damage(tmp_path: Path) -> None:
    glaive.write_dataset(ROWS, tmp_path / "t")

    def repeat(_: Any, fragments: list[Any]) -> None:
        fragments[0].files[0].fields[1] = 0

    rewrite(tmp_path / "t", repeat)
    dataset = glaive.dataset(tmp_path / "t")
    for read in (dataset.to_table, lambda: dataset.take([1]), lambda: dataset.delete("id = 1")):
        with pytest.raises(CorruptFileError, match="each once, found field 0 2 times"):
            read()


@pytest.mark.spec("rel-24")
def test_sizes_that_a_manifest_claims_do_not_raise_the_limit_of_row_ids(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(np.zeros(40_000, np.uint64))})
    glaive.write_dataset(rows, tmp_path, enable_stable_row_ids=True)

    def change(wire: Any, fragments: list[Any]) -> None:
        one = fragments[0]
        for name in ("row_ids", "last_updated_at_versions", "created_at_versions"):
            one.ClearField(f"inline_{name}")
        one.column_row_ids.SetInParent()
        one.files[0].fields.append(-3)
        one.files[0].column_indices.append(0)
        one.files[0].file_size_bytes = 2**50
        for number in range(1, 20):
            other = table_pb2.DataFragment()
            other.CopyFrom(one)
            other.id = number
            fragments.append(other)
        wire.next_row_id, wire.max_fragment_id = 2**40, 20

    rewrite(tmp_path, change)
    code = (
        "import sys, glaive\n"
        "index = glaive.dataset(sys.argv[1]).snapshot.row_id_index\n"
        "try: print(index.segments)\n"
        "except glaive.errors.LimitError as error: print('refused', error)\n"
    )
    environment = {**os.environ, "GLAIVE_MAX_DECODED_BYTES_PER_PAGE": "2MiB"}
    command = [sys.executable, "-c", code, str(tmp_path)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.startswith("refused data of ")


@pytest.mark.spec("rel-25")
def test_a_size_that_a_manifest_claims_makes_no_tasks(tmp_path: Path) -> None:
    glaive.write_dataset(pa.table({"s": ["a"] * 1000}), tmp_path, max_rows_per_file=500)

    def change(_: Any, fragments: list[Any]) -> None:
        fragments[1].files[0].file_size_bytes = 1 << 50

    stated = glaive.dataset(tmp_path).snapshot.file_bytes()
    assert stated == sum(path.stat().st_size for path in tmp_path.glob("data/*.lance"))
    rewrite(tmp_path, change)
    dataset = glaive.dataset(tmp_path)
    with pytest.raises(
        CorruptFileError, match=r"size of a data file: expected \d+ bytes, as .*\.lance has"
    ):
        dataset.snapshot.file_bytes()


@pytest.mark.spec("rel-24")
def test_rows_of_an_overlay_take_what_their_bitmap_takes(tmp_path: Path) -> None:
    glaive.write_dataset(ROWS, tmp_path / "t")
    manifest = glaive.dataset(tmp_path / "t").manifest
    message = table_pb2.Transaction(read_version=1, uuid="0" * 32)
    overlay = message.data_overlay.groups.add().overlays.add()
    overlay.data_file.path = "over.lance"
    for _ in range(3):
        runs = BitMap(range(1 << 20))
        runs.run_optimize()
        overlay.field_coverage.bitmaps.append(runs.serialize())
    overlay.field_coverage.bitmaps.append(BitMap([1, 5]).serialize())
    wire = table_pb2.ManifestOutline()
    wire.CopyFrom(manifest.wire)
    del wire.fragments[:]
    pieces = encode_manifest(wire, transaction=message.SerializeToString(), index_section=None)
    Path(manifest.where).write_bytes(b"".join(map(bytes, map(memoryview, pieces))))

    def read() -> None:
        (found,) = glaive.dataset(tmp_path / "t").get_transactions()
        ((rows, *_, few),) = (one.offsets for one in found.operation.groups[0].overlays)
        assert (len(rows), 1_048_575 in rows, few) == (1 << 20, True, [1, 5])
        assert len(repr(found)) < 100_000

    assert traced_peak(read) < MOST_MEMORY
