"""Checksums of data files: every changed byte is found, other readers and bytes are as before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import glaive
from glaive.cli.maintenance import verify as command
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.plan import WriteOptions, plan_write
from glaive.dataset.writing.rows import commit_plan
from glaive.errors import CorruptFileError, GlaiveError, OptionError
from glaive.file.files import compare_file
from glaive.file.open import create_writer, open_reader
from glaive.format.fields import LanceSchema
from glaive.format.footer import FileChecksums
from glaive.io.access import open_store
from glaive.io.checksums import Expected, VerifyingReader, checksum_function
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore
from glaive.io.wrapped import WrappedStore
from glaive.table.load import open_latest
from glaive.testing import CountingStore
from glaive.types import ByteRange, Where

ON = {"checksums": "true"}
VERSIONS = ["2.0", "2.1", "2.2"]


class Remote(WrappedStore):
    """A store that says that its bytes go over a network."""

    is_remote = True


def over_a_network(uri: str) -> glaive.LanceDataset:
    store: ObjectStore = Remote(open_store(uri))
    return glaive.LanceDataset.of(store, open_latest(store))


def rows(count: int) -> pa.Table:
    random = np.random.default_rng(3)
    return pa.table(
        {
            "number": random.integers(0, 2**62, count),
            "text": pa.array([f"text {i % 97}" for i in range(count)]),
            "list": pa.array([[i, None] if i % 3 else None for i in range(count)]),
            "vector": pa.FixedSizeListArray.from_arrays(random.random(count * 4, "f4"), 4),
        }
    )


def written(store: Any, table: pa.Table, version: str, *, checksums: bool = True) -> bytes:
    schema = LanceSchema.from_arrow(table.schema)
    writer = create_writer(store, "a.lance", schema, version, checksums=checksums)
    writer.write(table)
    writer.finish()
    return bytes(store.get("a.lance").to_pybytes())


def with_checksums(store: LocalStore) -> tuple[bytes, slice]:
    """A file of four columns, and where in it its checksums are."""
    data = written(store, rows(10), "2.1")
    start, size = open_reader(store, "a.lance").container.global_ranges()[-1]  # type: ignore[attr-defined]  # of 2.x
    return data, slice(start, start + size)


def changed(data: bytes, trials: int) -> Iterator[tuple[int, bytes]]:
    """The data with one bit changed, at some places spread over it."""
    for at in np.linspace(0, len(data) - 1, trials).astype(int).tolist():
        copy = bytearray(data)
        copy[at] ^= 1 << at % 8
        yield at, bytes(copy)


@pytest.mark.sampled(every=4)
@pytest.mark.spec("checksum-1", "checksum-2", "checksum-4", "rel-28")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_changed_byte_of_a_file_is_an_error_or_changes_no_value(
    tmp_path: Path, version: str
) -> None:
    table = rows(500)
    store = LocalStore(tmp_path)
    data = written(store, table, version)
    refused = 0
    for at, damaged in changed(data, 150):
        store.put("a.lance", [damaged])
        try:
            file = open_reader(store, "a.lance", verify="always")
            bound = file.bind(file.schema.fields)
            arrays = bound.read(0, bound.num_rows)
        except GlaiveError:
            refused += 1
            continue
        found = pa.Table.from_arrays(arrays, names=table.column_names)
        assert found.equals(table.combine_chunks()), f"byte {at} changed a value"
    assert refused > 100  # the others are padding


@pytest.mark.spec("checksum-3")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_has_the_same_pages_with_and_without_checksums(tmp_path: Path, version: str) -> None:
    table = rows(300)
    store = LocalStore(tmp_path)
    without, data = (written(store, table, version, checksums=on) for on in (False, True))
    end = open_reader(store, "a.lance").container.global_ranges()[0].end  # type: ignore[attr-defined]  # of 2.x
    assert data[:end] == without[:end]
    overhead = len(data) - len(without)
    assert 0 < overhead < 64 + 400


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_values_that_are_written_without_a_copy_agree_with_their_checksums(
    tmp_path: Path, version: str
) -> None:
    random = np.random.default_rng(4)
    table = pa.table({"blob": [random.bytes(40_000), None, random.bytes(33_000)]})
    store = LocalStore(tmp_path)
    data = written(store, table, version)
    assert 73_000 < (compare_file(store, "a.lance") or 0) <= len(data)
    file = open_reader(store, "a.lance", verify="always")
    assert file.bind(file.schema.fields).read(0, 3) == [table["blob"].combine_chunks()]


@pytest.mark.interop
@pytest.mark.spec("checksum-3")
@pytest.mark.parametrize("version", VERSIONS)
def test_other_readers_read_files_with_checksums_and_rewrite_them_without(
    tmp_path: Path, version: str
) -> None:
    import lance

    table = rows(400)
    place = tmp_path / "t.lance"
    dataset = glaive.write_dataset(
        table, place, data_storage_version=version, storage_options=ON, max_rows_per_file=100
    )
    theirs = lance.dataset(str(place))
    assert theirs.to_table() == table
    assert theirs.take([3, 399]) == table.take([3, 399])
    theirs.optimize.compact_files()
    newest = dataset.checkout_version(theirs.latest_version)
    assert newest.to_table().sort_by("number") == table.sort_by("number")
    (name,) = (file.path for fragment in newest.get_fragments() for file in fragment.data_files())
    assert compare_file(LocalStore(place), f"data/{name}") is None


@pytest.mark.spec("rel-28", "checksum-5")
def test_the_error_names_file_column_page_and_remedy(tmp_path: Path) -> None:
    place = tmp_path / "t.lance"
    glaive.write_dataset(rows(4000), place, storage_options=ON)
    (file,) = place.glob("data/*.lance")
    layout = glaive.file.LanceFileReader(str(file)).layout()
    buffer = layout.columns[0].pages[0].buffers[-1]
    data = bytearray(file.read_bytes())
    data[buffer.position + buffer.size // 2] ^= 4
    file.write_bytes(data)
    silent = glaive.dataset(place, verify=False).to_table()
    assert not silent.equals(rows(4000)), "flat pages have no redundancy"
    with pytest.raises(
        CorruptFileError, match=rf"checksum.*{file.name}, column 0 'number', page 0.*restore it"
    ):
        glaive.dataset(place, verify=True).to_table()
    with pytest.raises(CorruptFileError, match="page 0"):
        glaive.dataset(place, verify=True).take([1])
    reported = CliRunner().invoke(command, [str(place)])
    assert reported.exit_code == 1
    assert "page 0" in reported.output


@pytest.mark.spec("checksum-4", "rel-28")
@pytest.mark.parametrize("at", range(8))
def test_checksums_that_do_not_end_as_they_must_are_damage(tmp_path: Path, at: int) -> None:
    """A file without them could be changed elsewhere, too, and nothing would tell."""
    store = LocalStore(tmp_path)
    data, place = with_checksums(store)
    damaged = bytearray(data)
    damaged[place.stop - 8 + at] ^= 0x81
    store.put("a.lance", [bytes(damaged)])
    with pytest.raises(CorruptFileError, match="checksums of a file"):
        compare_file(store, "a.lance")
    with pytest.raises(CorruptFileError, match="checksums of a file"):
        open_reader(store, "a.lance", verify="always")


@pytest.mark.spec("rel-28", "rel-50")
def test_a_file_that_ends_as_another_one_is_noticed(tmp_path: Path) -> None:
    """The other one has no checksums, or of its own: what the manifest says differs."""
    place, other = tmp_path / "t.lance", tmp_path / "other.lance"
    glaive.write_dataset(rows(400), place, storage_options=ON)
    glaive.write_dataset(rows(400).slice(7), other, data_storage_version="2.0")
    (file,), (strange,) = place.glob("data/*.lance"), other.glob("data/*.lance")
    kept = file.read_bytes()[:64]
    file.write_bytes(kept + strange.read_bytes()[64:])
    with pytest.raises(CorruptFileError, match=rf"size of a file.*{file.name}"):
        glaive.dataset(place, verify=True).to_table()
    reported = CliRunner().invoke(command, [str(place)])
    assert reported.exit_code == 1
    with pytest.raises(CorruptFileError, match=rf"rows of fragment 0, data file {file.name}"):
        glaive.dataset(place).validate()
    glaive.write_dataset(rows(400), other, mode="overwrite", data_storage_version="2.0")
    (strange,) = set(other.glob("data/*.lance")) - {strange}
    file.write_bytes(strange.read_bytes())
    with pytest.raises(CorruptFileError, match=r"format of fragment 0.*expected 2\.2, found 2\.0"):
        glaive.dataset(place).validate()


@pytest.mark.sampled(every=2)
@pytest.mark.spec("rel-29")
@pytest.mark.parametrize("files", [1, 16])
def test_what_was_fetched_over_a_network_is_compared_without_being_asked(
    tmp_path: Path, files: int
) -> None:
    table, uri = rows(480), f"memory://{tmp_path.name}-{files}/t"
    store: ObjectStore = Remote(open_store(uri))
    plan = plan_write(store, table.schema, WriteOptions(max_rows_per_file=480 // files))
    commit_plan(plan, write_fragments(plan, table.to_batches()))
    name = next(iter(store.list("data"))).path
    data = store.get(name).to_pybytes()
    refused = 0
    for at, damaged in changed(data, 60):
        store.put(name, [damaged])
        try:
            found = over_a_network(uri).to_table()
        except GlaiveError:
            refused += 1
            continue
        assert found.equals(table), f"byte {at} changed a value"
    assert refused > 30


@pytest.mark.spec("rel-29")
def test_a_part_of_a_buffer_is_read_with_the_whole_of_it_where_that_was_asked_for(
    tmp_path: Path,
) -> None:
    uri = f"memory://{tmp_path.name}-parts/t"
    table = pa.table({"number": np.random.default_rng(1).integers(0, 2**62, 200_000)})
    glaive.write_dataset(table, uri, storage_options=ON)
    store = open_store(uri)
    name = next(iter(store.list("data"))).path
    data = bytearray(store.get(name).to_pybytes())
    data[len(data) // 2] ^= 1
    store.put(name, [bytes(data)])
    assert over_a_network(uri).take([5]) == table.take([5])  # its chunk is not damaged
    with pytest.raises(CorruptFileError, match="'number', page 0"):
        glaive.dataset(uri, verify=True).take([5])


@pytest.mark.spec("rel-30")
def test_compaction_appends_and_new_columns_keep_checksums(tmp_path: Path) -> None:
    place = tmp_path / "t.lance"
    dataset = glaive.write_dataset(rows(300), place, max_rows_per_file=100, storage_options=ON)
    plain = glaive.dataset(place)  # without the option
    plain.optimize.compact_files()
    compacted = [file.path for one in plain.get_fragments() for file in one.data_files()]
    plain.update_config({"glaive.checksums": "true"})
    plain = glaive.write_dataset(rows(50), place, mode="append")
    plain.add_columns({"double": "number / 2"})
    plain.create_scalar_index("number", "BTREE")
    store = LocalStore(place)
    names = [file.path for one in plain.get_fragments() for file in one.data_files()]
    assert len(names) == 4
    assert set(compacted) < set(names)
    assert dataset.count_rows() == 300
    assert all(compare_file(store, f"data/{name}") for name in names)
    checked = CliRunner().invoke(command, [str(place)])
    assert checked.exit_code == 0, checked.output


@pytest.mark.spec("rel-30")
@pytest.mark.parametrize(("files", "per_file"), [(2, 100), (16, 100), (2, 20_000)])
@pytest.mark.parametrize("deleted", [False, True])
def test_compaction_does_not_carry_damage_on(
    tmp_path: Path, files: int, per_file: int, deleted: bool
) -> None:
    """The new file would have checksums that damage agrees with."""
    place = tmp_path / "t.lance"
    numbers = np.random.default_rng(1).integers(0, 2**62, files * per_file)
    glaive.write_dataset({"number": numbers}, place, max_rows_per_file=per_file, storage_options=ON)
    if deleted:
        glaive.dataset(place).delete("number % 2 = 0")
    file = min(place.glob("data/*.lance"))
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 4
    file.write_bytes(data)
    before = glaive.dataset(place).version
    with pytest.raises(CorruptFileError, match=rf"checksum.*{file.name}.*'number'"):
        glaive.dataset(place).optimize.compact_files()
    assert glaive.dataset(place).version == before
    unasked = glaive.dataset(place, verify=False)
    assert unasked.optimize.compact_files().fragments_added == 1


@pytest.mark.spec("rel-30")
def test_compaction_over_a_network_compares_whole_buffers_and_reads_no_more(tmp_path: Path) -> None:
    columns = {f"c{at}": np.random.default_rng(at).integers(0, 2**62, 20_000) for at in range(40)}

    def bytes_of_a_compaction(name: str, *, verified: bool, damaged: bool = False) -> int:
        uri = f"memory://{tmp_path.name}-{name}/t"
        glaive.write_dataset(columns, uri, max_rows_per_file=10_000, storage_options=ON)
        options = {} if verified else {"verify_checksums": "false"}
        store = CountingStore(Remote(open_store(uri, options)))
        path = next(iter(store.list("data"))).path
        data = bytearray(store.get(path).to_pybytes())
        data[len(data) // 3] ^= 4 * damaged
        store.put(path, [bytes(data)])
        store.reset()
        glaive.LanceDataset.of(store, open_latest(store)).optimize.compact_files()
        return store.bytes_read

    unverified = bytes_of_a_compaction("a", verified=False)
    assert bytes_of_a_compaction("b", verified=True) < 1.02 * unverified
    with pytest.raises(CorruptFileError, match=r"checksum.*'c"):
        bytes_of_a_compaction("c", verified=True, damaged=True)


@pytest.mark.spec("checksum-4")
def test_damaged_checksums_are_an_error(tmp_path: Path) -> None:
    own = checksum_function()
    assert own is not None
    store = LocalStore(tmp_path)
    data, place = with_checksums(store)
    raw = data[place]
    read = FileChecksums.parse(raw, 4, where="a")
    assert read is not None
    for wrong in (raw[:-20], raw[:20], b""):
        with pytest.raises(CorruptFileError, match="checksums of a file"):
            FileChecksums.parse(wrong, 4, where="a")
    with pytest.raises(CorruptFileError, match="5 columns"):
        FileChecksums.parse(raw, 5, where="a")
    fewer = FileChecksums.build(1, [2], [[3], [], [], []], own)
    store.put("a.lance", [data[: place.stop - len(fewer)], fewer, data[place.stop :]])
    with pytest.raises(CorruptFileError, match="checksum"):
        open_reader(store, "a.lance", verify="always")


@pytest.mark.spec("checksum-4")
def test_checksums_of_another_number_of_global_buffers_are_an_error(tmp_path: Path) -> None:
    own = checksum_function()
    assert own is not None
    store = LocalStore(tmp_path)
    data, place = with_checksums(store)
    read = FileChecksums.parse(data[place], 4, where="a")
    assert read is not None
    columns = [read.of_column(column) for column in range(4)]
    moved = [*read.global_buffers.tolist(), columns[0].pop()]
    more = FileChecksums.build(read.metadata, moved, columns, own)
    store.put("a.lance", [data[: place.start], more, data[place.stop :]])
    with pytest.raises(CorruptFileError, match="checksums of global buffers: expected 1, found 2"):
        open_reader(store, "a.lance", verify="always")


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_range_at_the_end_of_one_with_a_checksum_is_compared_and_one_beyond_is_whole(
    tmp_path: Path, name: str
) -> None:
    store = open_store(f"memory://{tmp_path.name}-around") if name == "a" else LocalStore(tmp_path)
    own = checksum_function()
    assert own is not None
    content = bytes(range(40))
    store.put(name, [content])
    reader = VerifyingReader(store.open(name), always=True)
    whole = ByteRange(0, 20)
    reader.expect([(whole, Expected(own(content[:20]), "a range", Where(name)))])
    assert reader.read([ByteRange(10, 20)])[0].to_pybytes() == content[10:30]
    assert reader.read([ByteRange(10, 10)])[0].to_pybytes() == content[10:20]
    fresh = VerifyingReader(store.open(name), always=True)
    fresh.expect([(whole, Expected(own(content), "a range", Where(name)))])
    with pytest.raises(CorruptFileError, match="a range: expected bytes with the checksum"):
        fresh.read([ByteRange(10, 10)])


@pytest.mark.parametrize("columns", [0, 1, 3])
@pytest.mark.parametrize("global_buffers", [[], [7]])
def test_checksums_of_columns_without_buffers_come_back(
    columns: int, global_buffers: list[int]
) -> None:
    own = checksum_function()
    assert own is not None
    raw = FileChecksums.build(5, global_buffers, [[]] * columns, own)
    read = FileChecksums.parse(raw, columns, where="a")
    assert read is not None
    assert read.global_buffers.tolist() == global_buffers
    assert [list(read.of_column(column)) for column in range(columns)] == [[]] * columns


def test_options_of_checksums_are_true_or_false(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="checksums: expected true or false, found 'yes'"):
        glaive.write_dataset(rows(3), tmp_path / "t.lance", storage_options={"checksums": "yes"})
