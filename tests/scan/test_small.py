"""Many small fragments are read together, and give what they give one by one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.damage import rewritten
from tests.trials import of_all

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.errors import CorruptFileError, GlaiveError
from glaive.file.v2.container import Container
from glaive.file.v2.reader import FieldColumns
from glaive.file.v2.small_files import OtherOrder
from glaive.format.fragment import Fragment, SingleFile
from glaive.io.wrapped import HeldReader
from glaive.scan import small
from glaive.scan.options import ScanOptions
from glaive.scan.plan import FragmentRows, plan_scan
from glaive.scan.projection import project
from glaive.scan.run.scheduler import ScanRun
from glaive.scan.small import (
    KeptColumn,
    SmallFragments,
    bind_files,
    can_be_tidied,
    cut_into_parts,
    tidied,
)
from glaive.scan.snapshot import Session, Snapshot
from glaive.scan.views import BoundProjection
from glaive.types import FormatVersion

FILES = 40
ROWS = 7
META = pa.struct([("x", pa.int64()), ("y", pa.string())])


def text(number: int) -> str | None:
    return None if number % 11 == 0 else f"text {number}"


def make(first: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(first)
    numbers = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "some": pa.array([None if rng.random() < 0.1 else i for i in numbers], pa.int32()),
            "flag": pa.array(
                [None if rng.random() < 0.1 else i % 3 == 0 for i in numbers], pa.bool_()
            ),
            "text": pa.array(list(map(text, numbers)), pa.string()),
            "same": pa.array([first // 50] * rows, pa.int64()),
            "none": pa.array([None if first % 3 else i for i in numbers], pa.float64()),
            "word": pa.array([f"w{i % 2}" for i in numbers]).dictionary_encode(),
            "vector": pa.array([[i, i + 1.5] for i in numbers], pa.list_(pa.float32(), 2)),
            "meta": pa.array([{"x": i, "y": None if i % 3 else str(i)} for i in numbers], META),
            "tags": pa.array([list(range(i % 4)) for i in numbers], pa.list_(pa.int16())),
        }
    )


def parts(*, even: bool = True) -> list[pa.Table]:
    sizes = [ROWS if even else 1 + at % 9 for at in range(FILES)]
    return [make(sum(sizes[:at]), size) for at, size in enumerate(sizes)]


def store(path: Path, tables: list[pa.Table], **options: Any) -> LanceDataset:
    for table in tables:
        made = glaive.write_dataset(table, path, mode="append", **options)
        options = {}
    return made


def together(dataset: LanceDataset, columns: list[str] | None = None) -> list[int]:
    """Fragments in each run that is read together, or 0 where that was not possible."""
    manifest = dataset.manifest
    snapshot = Snapshot(dataset.store, manifest, Session())
    source = BoundProjection(snapshot, project(manifest.schema, columns))
    options = ScanOptions.of()
    parts = cut_into_parts(ScanRun(source, options), plan_scan(snapshot, options).ranges)
    runs = []
    for part in parts:
        if isinstance(part, SmallFragments):
            run = ScanRun(source, options)
            for _ in part.columns(run):
                pass
            runs.append(0 if run.meter.counts["fallbacks"] else len(part.ranges))
    return runs


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize("even", [True, False], ids=["even", "uneven"])
def test_small_fragments_come_as_they_were_written(
    tmp_path: Path, version: str, even: bool
) -> None:
    tables = parts(even=even)
    dataset = store(tmp_path / "t", tables, data_storage_version=version)
    assert together(dataset) == [FILES]
    expected = pa.concat_tables(tables)
    assert dataset.to_table().to_pylist() == expected.to_pylist()
    for name in expected.column_names:
        assert dataset.to_table(columns=[name]).to_pylist() == expected.select([name]).to_pylist()
    batches = list(dataset.to_batches())
    assert [batch.num_rows for batch in batches] == [table.num_rows for table in tables]
    assert pa.Table.from_batches(batches).to_pylist() == expected.to_pylist()


def test_files_of_the_legacy_format_are_read_one_by_one(tmp_path: Path) -> None:
    tables = [table.select(["id", "same", "text"]) for table in parts()]
    dataset = store(tmp_path / "t", tables, data_storage_version="0.1")
    assert together(dataset) == []
    assert dataset.to_table().to_pylist() == pa.concat_tables(tables).to_pylist()


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_later_reads_get_the_same_rows_from_kept_columns(tmp_path: Path, version: str) -> None:
    lance = pytest.importorskip("lance", reason="install the 'interop' group")
    names = ["id", "text", "word", "vector", "tags"]  # 2.0 has no null structs
    tables = [table.select(names) for table in parts()]
    dataset = store(tmp_path / "t", tables, data_storage_version=version)
    dataset.delete("id % 5 = 3")
    expected = lance.dataset(str(tmp_path / "t")).to_table()
    half = expected.filter(pc.less(expected["id"], 100))
    rows = list(range(0, expected.num_rows, 3))
    for _ in range(4):
        assert dataset.to_table().to_pylist() == expected.to_pylist()
        assert dataset.to_table(filter="id < 100").to_pylist() == half.to_pylist()
        assert dataset.to_table(filter="id = 77").to_pylist() == half.to_pylist()[62:63]
        assert dataset.take(rows).to_pylist() == expected.take(rows).to_pylist()


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_kept_columns_are_decoded_once_and_cannot_be_changed(tmp_path: Path, version: str) -> None:
    tables = [table.select(["id", "text"]) for table in parts()]
    dataset = store(tmp_path / "t", tables, data_storage_version=version)
    first, second = (dataset.to_table()["id"].chunk(0).buffers()[1] for _ in range(2))
    assert first.address == second.address
    assert not first.is_mutable


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_files_are_read_one_by_one_if_each_read_compares_checksums(
    tmp_path: Path, version: str
) -> None:
    tables = [table.select(["id", "text"]) for table in parts()]
    store(tmp_path / "t", tables, data_storage_version=version)
    dataset = glaive.dataset(tmp_path / "t", storage_options={"verify_checksums": "true"})
    for _ in range(2):
        assert dataset.to_table()["id"].num_chunks == FILES


def test_a_damaged_file_of_format_2_0_is_named_at_each_read(tmp_path: Path) -> None:
    tables = [table.select(["id", "text"]) for table in parts()]
    dataset = store(tmp_path / "t", tables, data_storage_version="2.0")
    path = tmp_path / "t" / dataset.manifest.fragment(17).files[0].path
    path = next((tmp_path / "t").rglob(path.name))
    raw = bytearray(path.read_bytes())
    raw[-40:-8] = bytes(32)  # the footer
    path.write_bytes(raw)
    fresh = glaive.dataset(tmp_path / "t")
    for _ in range(3):
        with pytest.raises(CorruptFileError, match=path.name):
            fresh.to_table()
    assert fresh.to_table(filter="id < 7", limit=3)["id"].to_pylist() == [0, 1, 2]


def test_larger_fragments_between_small_ones_stay_in_order(tmp_path: Path) -> None:
    tables = parts()
    tables.insert(20, pa.concat_tables([make(10_000, 500)] * 400))
    dataset = store(tmp_path / "t", tables)
    assert together(dataset) == [20, 20]
    found, expected = dataset.to_table(), pa.concat_tables(tables)
    assert found["id"].equals(expected["id"])
    assert found["text"].equals(expected["text"])


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.filterwarnings("ignore:Format 2.3")
def test_files_that_are_not_kept_are_mapped_in_bulk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(small, "_KEPT_BYTES", 1_000)
    monkeypatch.setattr(small, "MAX_BYTES", 0)
    tables = parts(even=False)
    expected = pa.concat_tables(tables)
    dataset = store(tmp_path / "t", tables, data_storage_version=version)
    sizes = [file.stat().st_size for file in (tmp_path / "t" / "data").iterdir()]
    assert together(dataset) == [FILES]

    def read(**options: Any) -> tuple[pa.Table, int]:
        opened = glaive.LanceDataset(tmp_path / "t", session=Session())
        opened.io_stats_incremental()
        return opened.to_table(**options), opened.io_stats_incremental().read_bytes

    found, whole = read()
    assert found.to_pylist() == expected.to_pylist()
    found, fewer = read(columns=["id"])
    assert found.to_pylist() == expected.select(["id"]).to_pylist()
    assert fewer < whole / 2 < sum(sizes)
    found, fewer = read(filter="id % 50 = 7")
    rows = [row for row in expected.to_pylist() if row["id"] % 50 == 7]
    assert found.to_pylist() == rows
    dataset.delete("id % 3 = 1")
    rows = [row for row in expected.to_pylist() if row["id"] % 3 != 1]
    assert read()[0].to_pylist() == rows


@pytest.mark.parametrize("damage", ["shorter", "longer", "absent"])
def test_a_mapped_file_of_another_size_is_an_error_or_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(small, "_KEPT_BYTES", 1_000)
    monkeypatch.setattr(small, "MAX_BYTES", 0)
    store(tmp_path / "t", parts())
    path = sorted((tmp_path / "t" / "data").iterdir())[3]
    raw = path.read_bytes()
    path.unlink()
    if damage != "absent":
        path.write_bytes(raw[: len(raw) // 2] if damage == "shorter" else b"x" * 8 + raw)
    with pytest.raises(GlaiveError, match=path.stem):
        glaive.LanceDataset(tmp_path / "t", session=Session()).to_table()


def test_fragments_with_other_columns_begin_a_new_run(tmp_path: Path) -> None:
    tables = parts()
    tables[20:] = [table.drop(["some"]) for table in tables[20:]]
    dataset = store(tmp_path / "t", tables)
    assert together(dataset, ["id"]) == [20, 20]
    assert together(dataset) == [20]
    found = dataset.to_table(columns=["id", "some"])
    assert found["id"].to_pylist() == list(range(FILES * ROWS))
    assert found["some"].null_count >= 20 * ROWS


def test_limits_and_offsets_cut_fragments(tmp_path: Path) -> None:
    tables = parts()
    dataset = store(tmp_path / "t", tables)
    expected = pa.concat_tables(tables)
    found = dataset.to_table(columns=["id", "text"], offset=10, limit=201)
    assert found.to_pylist() == expected.select(["id", "text"]).slice(10, 201).to_pylist()


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize("rows", [ROWS, 300])
def test_limits_and_offsets_count_live_rows(tmp_path: Path, version: str, rows: int) -> None:
    names = ["id", "some", "text", "word", "meta", "tags"]
    tables = [make(rows * at, rows).select(names) for at in range(12)]
    dataset = store(tmp_path / "t", tables, data_storage_version=version)
    whole = f"id >= {3 * rows} and id < {4 * rows}"
    dataset.delete(f"id % 5 = 1 or {whole} or id = {12 * rows - 1}")
    live = [row for table in tables for row in table.to_pylist()]
    live = [row for row in live if row["id"] % 5 != 1 and row["id"] // rows != 3][:-1]
    assert dataset.to_table().to_pylist() == live
    backwards = [one.fragment_id for one in dataset.get_fragments()][::-1]
    turned = [row for at in range(11, -1, -1) for row in live if row["id"] // rows == at]
    rng = np.random.default_rng(rows)
    offsets = [0, 1, rows - 1, len(live) - 1, len(live), *rng.integers(0, len(live), 3).tolist()]
    for offset in offsets:
        for limit in (0, 1, 17, 3 * rows, None):
            options: Any = {"offset": offset, "limit": limit}
            part = slice(offset, None if limit is None else offset + limit)
            assert dataset.to_table(**options).to_pylist() == live[part]
            batches = dataset.to_batches(columns=["id"], **options)
            ids = [number for batch in batches for number in batch["id"].to_pylist()]
            assert ids == [row["id"] for row in live[part]]
            some = dataset.to_table(["id"], fragments=backwards, with_row_id=True, **options)
            assert some["id"].to_pylist() == [row["id"] for row in turned[part]]


@pytest.mark.interop
def test_deleted_rows_are_left_out(tmp_path: Path) -> None:
    lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")
    tables = parts(even=False)
    place = tmp_path / "t"
    store(place, tables)
    lance.dataset(place).delete("id % 5 = 1 or (id >= 40 and id < 80)")
    dataset = glaive.dataset(place)
    assert sum(together(dataset)) > FILES // 2
    rows = [row for row in pa.concat_tables(tables).to_pylist() if row["id"] % 5 != 1]
    rows = [row for row in rows if not 40 <= row["id"] < 80]
    assert dataset.to_table().to_pylist() == rows
    batches = list(dataset.to_batches())
    assert all(batch.num_rows for batch in batches)
    assert pa.Table.from_batches(batches).to_pylist() == rows


def outcome(read: Callable[[], pa.Table]) -> object:
    try:
        return read().to_pylist()
    except GlaiveError as error:
        return type(error), str(error)


def outcome_of_all(dataset: LanceDataset, **options: Any) -> Any:
    return outcome(partial(dataset.to_table, **options))


def one_by_one(
    dataset: LanceDataset, victim: Path, read: Callable[..., Any]
) -> tuple[list[Any], int]:
    """The outcome of each fragment while none is damaged, and the number of that of a file."""
    fragments = dataset.get_fragments()
    names = [fragment.data_files()[0].path for fragment in fragments]
    outcomes = [read(dataset, fragments=[fragment]) for fragment in fragments]
    return outcomes, names.index(victim.name)


@pytest.mark.parametrize("page_bytes", [None, 12], ids=["one page", "many pages"])
def test_damage_is_told_as_by_the_reader_of_single_files(
    tmp_path: Path, page_bytes: int | None
) -> None:
    tables = [table.select(["id", "some", "flag", "text"]) for table in parts()[:10]]
    # Damaged text may not be text any more, which is not looked at.
    tables = [table.set_column(3, "text", table["text"].cast(pa.binary())) for table in tables]
    dataset = store(tmp_path / "t", tables, max_page_bytes=page_bytes)
    victim = tmp_path / "t" / "data" / dataset.get_fragments()[0].data_files()[0].path
    sound = victim.read_bytes()
    single, number = one_by_one(dataset, victim, outcome_of_all)
    rng = np.random.default_rng(0)
    told = 0
    for at in rng.integers(0, len(sound), of_all(120)).tolist():
        broken = bytearray(sound)
        broken[at] ^= 1 << int(rng.integers(0, 8))
        victim.write_bytes(broken)
        fresh = glaive.dataset(dataset.uri)
        single[number] = outcome_of_all(fresh, fragments=[fresh.get_fragments()[number]])
        found = outcome_of_all(fresh)
        if isinstance(single[number], tuple):
            told += 1
            assert found == single[number]
        else:
            assert found == [row for one in single for row in one]
    assert told > 3


def far_away(_: Any, columns: list[Any]) -> None:
    columns[1].pages[0].buffer_offsets[1] = 2**64 - 1


def longer(_: Any, columns: list[Any]) -> None:
    columns[1].pages[-1].length += 1


def endless(_: Any, columns: list[Any]) -> None:
    columns[1].pages[0].length = 2**64 - 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (far_away, r"page buffer 1.*18446744073709551615"),
        (longer, "page rows: expected 7 in all.* found 8"),
        (endless, "page rows: expected at most .* found 18446744073709551615"),
    ],
)
def test_pages_with_other_bytes_or_rows_are_told_as_by_the_reader_of_single_files(
    tmp_path: Path, change: Callable[[Any, list[Any]], None], told: str
) -> None:
    dataset = store(tmp_path, [table.select(["id", "tags"]) for table in parts()[:10]])
    fragments = [one.metadata.to_json() for one in dataset.get_fragments()]
    file = fragments[4]["files"][0]
    victim = tmp_path / "data" / file["path"]

    victim.write_bytes(rewritten(victim.read_bytes(), change))
    file["file_size_bytes"] = victim.stat().st_size
    described = [glaive.FragmentMetadata.from_json(json.dumps(one)) for one in fragments]
    operation = glaive.LanceOperation.Overwrite(dataset.lance_schema, described)
    dataset = LanceDataset.commit(tmp_path, operation)
    assert together(dataset, ["id"]) == [10]
    with pytest.raises(CorruptFileError, match=told):
        dataset.to_table()


def wordy(number: int, rows: int = 2_000) -> pa.Table:
    """Text whose pages have FSST symbols or a dictionary each, unlike those of other files."""
    rng = np.random.default_rng(number)
    letters = [chr(97 + (number + at) % 26) for at in range(12)]
    words = ["".join(rng.choice(letters, rng.integers(2, 9))) for _ in range(200)]
    text = [" ".join(rng.choice(words, 8)) for _ in range(rows)]
    few = [f"{number}-{word}" for word in words[:70]]
    return pa.table(
        {
            "text": pa.array(text, mask=rng.random(rows) < 0.1),
            "few": pa.array(rng.choice(few, rows), mask=rng.random(rows) < 0.1),
            "sure": pa.array(rng.choice(few, rows)),
            "blob": pa.array([one.encode() for one in text], pa.large_binary()),
        }
    )


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_pages_with_symbols_or_items_of_their_own_are_read_together(
    tmp_path: Path, version: str
) -> None:
    tables = [wordy(number) for number in range(12)]
    dataset = store(tmp_path / "t", tables, data_storage_version=version)
    assert together(dataset) == [12]
    assert dataset.to_table().equals(pa.concat_tables(tables).cast(dataset.schema))
    every = [SingleFile.of(dataset.manifest.fragment(at), 2**30) for at in range(12)]
    files = [file for file in every if file is not None]
    assert len(files) == 12
    source = BoundProjection(dataset.opened.snapshot, project(dataset.manifest.schema, None))
    for column in bind_files(source, files).columns:
        found = column.physical_pages()
        assert found is not None
        ((_, pages),) = found
        assert len(pages) == 1, column.field.name


@pytest.mark.nightly(reason="makes large values")
@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("inside", ["text", "lists", "members"])
def test_values_far_larger_than_their_dictionaries_are_not_read_together(
    tmp_path: Path, inside: str, version: str
) -> None:
    words = [letter * 4000 for letter in "abc"]
    texts = [words[at % 3] for at in range(600)]
    values: Any = {
        "text": texts,
        "lists": [[one] for one in texts],
        "members": [{"x": one} for one in texts],
    }[inside]
    table = pa.table({"t": values})
    few = store(tmp_path / "few", [table] * 12, data_storage_version=version)
    assert together(few) == [12]
    many = store(tmp_path / "many", [table] * 120, data_storage_version=version)
    assert together(many) == [0]
    assert sum(map(len, many.to_batches())) == 120 * 600
    many.optimize.compact_files()
    assert many.take([0, 71_999]).to_pylist() == [table.to_pylist()[0], table.to_pylist()[-1]]


def test_indices_of_many_dictionaries_are_taken_from_the_right_one(tmp_path: Path) -> None:
    tables = [wordy(number, 300) for number in range(12)]
    dataset = store(tmp_path / "t", tables)
    expected = pa.concat_tables(tables)
    rows = np.random.default_rng(1).integers(0, 3_600, 500)
    assert dataset.take(rows).to_pylist() == expected.take(rows).to_pylist()


def outcome_as_bytes(dataset: LanceDataset, **options: Any) -> Any:
    """Damaged text may not be text any more, which is not looked at."""
    schema = pa.schema([("text", pa.binary()), ("few", pa.binary())])
    return outcome(lambda: dataset.to_table(**options).cast(schema))


def test_damaged_symbols_and_items_are_told_as_by_the_reader_of_single_files(
    tmp_path: Path,
) -> None:
    tables = [wordy(number, 1_000).select(["text", "few"]) for number in range(8)]
    dataset = store(tmp_path / "t", tables)
    victim = sorted((tmp_path / "t" / "data").iterdir())[4]
    sound = victim.read_bytes()
    single, number = one_by_one(dataset, victim, outcome_as_bytes)
    rng = np.random.default_rng(0)
    told = 0
    for at in rng.integers(0, len(sound), of_all(60)).tolist():
        broken = bytearray(sound)
        broken[at] ^= 1 << int(rng.integers(0, 8))
        victim.write_bytes(broken)
        fresh = glaive.dataset(dataset.uri)
        single[number] = outcome_as_bytes(fresh, fragments=[fresh.get_fragments()[number]])
        found = outcome_as_bytes(fresh)
        if isinstance(single[number], tuple):
            told += 1
            assert found == single[number]
        else:
            assert found == [row for one in single for row in one]
    assert told


def test_small_files_are_planned_once_for_a_projection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = glaive.write_dataset(pa.table({"n": range(400)}), tmp_path / "t", max_rows_per_file=10)
    planned = []
    real = SingleFile.of

    def noted(fragment: Fragment, max_size: int) -> Any:
        planned.append(fragment.id)
        return real(fragment, max_size)

    monkeypatch.setattr(SingleFile, "of", noted)
    dataset = glaive.dataset(made.uri)
    for _ in range(3):
        assert dataset.to_table()["n"].to_pylist() == list(range(400))
    assert sorted(planned) == list(range(40))


def alternating(at: int, *, texts: Any = str) -> pa.Table:
    """Rows whose pages have another encoding in each of three files, and words of their own."""
    rng = np.random.default_rng(at)
    rows, kind = 5 + at % 4, at % 3
    numbers = [7] * rows if kind == 0 else rng.integers(0, 1 << (4 * kind), rows).tolist()
    words = [texts(f"word {at % 7} {number}") for number in numbers]
    lists = [None if kind == 2 else [w] * (i % 3) for i, w in enumerate(words)]
    text = pa.string() if texts is str else pa.binary()
    some = pa.array([None if i == at % 9 else w for i, w in enumerate(words)], text)
    return pa.table(
        {
            "number": pa.array(numbers, pa.int32()),
            "some": pa.array([None if kind == 1 else w for w in words], text),
            "word": some.dictionary_encode().cast(pa.dictionary(pa.int16(), text)),
            "lists": pa.array(lists, pa.list_(text)),
            "nested": pa.array(
                [{"a": n, "b": [n] * (n % 3)} for n in numbers],
                pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int32()))]),
            ),
        }
    )


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
@pytest.mark.parametrize("paged", [7, 100], ids=["of many pages", "of one page"])
def test_files_whose_encodings_alternate_come_in_their_order(
    tmp_path: Path, version: str, paged: int
) -> None:
    tables = [alternating(at) for at in range(60)]
    expected = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    for at, table in enumerate(tables):
        few = {"max_page_bytes": 12} if at % paged == 5 else {}
        options = few | {"mode": "append", "data_storage_version": version}
        dataset = glaive.write_dataset(table, tmp_path / "t", **options)
    assert together(dataset) == [60]
    assert dataset.to_table().to_pylist() == expected.to_pylist()

    def compare_filters(dataset: LanceDataset, expected: pa.Table) -> None:
        for query, mask in {
            "number = 7": pc.equal(expected["number"], 7),
            "number > 250": pc.greater(expected["number"], 250),  # few rows, which are taken
            "some is not null": expected["some"].is_valid(),
            "word is null": expected["word"].is_null(),
        }.items():
            found, rows = dataset.to_table(filter=query), expected.filter(mask)
            assert found.to_pylist() == rows.to_pylist()
            names = {"text": "some", "twice": "number * 2"}
            computed = dataset.to_table(columns=names, filter=query)
            assert computed["text"].to_pylist() == rows["some"].to_pylist()
            assert computed["twice"].to_pylist() == [2 * row["number"] for row in rows.to_pylist()]

    compare_filters(dataset, expected)
    assert 0 < dataset.count_rows("number > 250") < len(expected) // 20
    some = [3, 200, 3, 77, 140]
    for _ in range(3):
        assert dataset.take(some).to_pylist() == expected.take(some).to_pylist()
    dataset.delete("number = 7 or number = 255")
    deleted = pc.is_in(expected["number"], pa.array([7, 255], pa.int32()))
    kept = expected.filter(pc.invert(deleted))
    assert dataset.to_table().to_pylist() == kept.to_pylist()
    compare_filters(dataset, kept)


def test_files_are_joined_in_another_order_by_the_bytes_of_files_not_of_rows(
    tmp_path: Path,
) -> None:
    """Pages of one value may stand for any number of rows; a take needs some of them."""
    rows = 200_000
    tables = [pa.table({"n": pa.array([at % 2 or None] * rows, pa.int64())}) for at in range(20)]
    dataset = store(tmp_path / "t", tables)
    every = [SingleFile.of(dataset.manifest.fragment(at), 2**30) for at in range(20)]
    source = BoundProjection(dataset.opened.snapshot, project(dataset.manifest.schema, None))
    bound = bind_files(source, [file for file in every if file is not None])
    (column,) = bound.columns
    assert isinstance(column, OtherOrder)
    assert bound.num_rows == 20 * rows
    assert bound.nbytes < rows
    found = bound.take(np.array([0, rows, 3 * rows - 1, 20 * rows - 1]))
    assert found[0].to_pylist() == [None, 1, None, 1]


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("writer", ["glaive", "lance"])
def test_pages_of_one_value_or_nulls_are_read_together(
    tmp_path: Path, version: str, writer: str
) -> None:
    library = pytest.importorskip(writer, reason="install the 'interop' group")
    rows = 6
    lists = [None, [], None, [], [], []]
    tables = [
        pa.table(
            {
                "none": pa.nulls(rows, pa.string()),
                "same": pa.array([at + 1] * rows, pa.int64()),
                "flag": pa.array([at % 2 == 0] * rows, pa.bool_()),
                "text": pa.array([f"text {at // 2}"] * rows, pa.large_string()),
                "some": pa.array([f"{at}" if i % 2 else None for i in range(rows)], pa.string()),
                "wide": pa.array([[at] * 9] * rows, pa.list_(pa.float32(), 9)),
                "part": pa.array([at + 1 if i % 3 else None for i in range(rows)], pa.int32()),
                "lists": pa.array(lists, pa.list_(pa.float32())),
                "deep": pa.array([None if i % 2 else {"x": None} for i in range(rows)], META),
            }
        )
        for at in range(30)
    ]
    expected = pa.concat_tables(tables)
    library.write_dataset(
        expected, tmp_path / "t", data_storage_version=version, max_rows_per_file=rows
    )
    dataset = glaive.dataset(tmp_path / "t")
    files = [
        SingleFile.of(fragment, 2**30) for fragment in map(dataset.manifest.fragment, range(30))
    ]
    source = BoundProjection(dataset.opened.snapshot, project(dataset.manifest.schema, None))
    bound = bind_files(source, [file for file in files if file is not None])
    fields = [column for column in bound.columns if isinstance(column, FieldColumns)]
    pages = [len(own) for column in fields for _, own in column.physical_pages()]
    assert pages == [1] * 10
    assert dataset.to_table().to_pylist() == expected.to_pylist()
    for query, mask in {
        "same = 7": pc.equal(expected["same"], 7),
        "part is null": expected["part"].is_null(),
        "flag": expected["flag"],
        "text = 'text 7'": pc.equal(expected["text"], "text 7"),
        "some = '9'": pc.fill_null(pc.equal(expected["some"], "9"), False),
        "lists is null": expected["lists"].is_null(),
        "deep is null": expected["deep"].is_null(),
    }.items():
        assert dataset.to_table(filter=query).to_pylist() == expected.filter(mask).to_pylist()
        assert dataset.count_rows(query) == pc.sum(mask).as_py()
    some_rows = [3, 100, 3, 77, 140, 179]
    for _ in range(4):
        assert dataset.take(some_rows).to_pylist() == expected.take(some_rows).to_pylist()


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.3"])
def test_damage_among_alternating_encodings_is_told_as_by_the_reader_of_single_files(
    tmp_path: Path, version: str
) -> None:
    tables = [alternating(at, texts=str.encode) for at in range(27)]
    dataset = store(tmp_path / "t", tables, data_storage_version=version)
    victim = tmp_path / "t" / "data" / dataset.get_fragments()[14].data_files()[0].path
    sound = victim.read_bytes()
    every = [table.to_pylist() for table in tables]
    rng = np.random.default_rng(0)
    told = 0
    for _ in range(of_all(40)):
        broken = bytearray(sound)
        for at in rng.integers(0, len(sound), 2).tolist():
            broken[at] ^= 1 << int(rng.integers(0, 8))
        victim.write_bytes(broken)
        fresh = glaive.dataset(dataset.uri)
        single = outcome(partial(fresh.to_table, fragments=[fresh.get_fragments()[14]]))
        if isinstance(single, tuple):
            told += 1
            found = outcome(fresh.to_table)
            if version != "2.0":
                assert found == single
            else:  # two columns may be damaged: threads report either
                assert isinstance(found, tuple)
                assert victim.name in found[1]
            assert isinstance(outcome(partial(fresh.to_table, filter="number = 7")), tuple | list)
            continue
        assert isinstance(single, list)
        every[14] = single
        expected = [row for rows in every for row in rows]
        assert fresh.to_table().to_pylist() == expected
        taken = fresh.take(range(150))["number"].to_pylist()[:80]
        assert taken == [row["number"] for row in expected[:80]]
    assert told > 2


def test_items_of_lists_that_two_damaged_files_exchange_are_an_error(tmp_path: Path) -> None:
    """The files of format 2.0 have as many items as their lists in sum, but not each of them."""
    rows = [[True], [False, True]]
    tables = [pa.table({"flags": pa.array(rows, pa.list_(pa.bool_()))}) for _ in range(10)]
    dataset = store(tmp_path / "t", tables, data_storage_version="2.0")
    for number, items in ((3, 4), (4, 2)):  # instead of 3
        name = dataset.get_fragments()[number].data_files()[0].path
        path = tmp_path / "t" / "data" / name
        raw = path.read_bytes()
        container = Container(HeldReader(name, pa.py_buffer(raw)))
        column = container.column(1)
        sound = column.SerializeToString()
        column.pages[0].length = items
        assert raw.count(sound) == 1
        path.write_bytes(raw.replace(sound, column.SerializeToString()))
    fresh = glaive.dataset(tmp_path / "t")
    for _ in range(2):
        with pytest.raises(CorruptFileError, match="items of lists"):
            fresh.to_table()


def test_equal_items_of_several_dictionaries_become_one(tmp_path: Path) -> None:
    def table(words: list[str]) -> pa.Table:
        return pa.table({"word": pa.array(words).dictionary_encode()})

    tables = [table(["b", "a", "b"]), table(["a", "c", "a"])] * 10
    dataset = store(tmp_path / "t", tables)
    assert together(dataset) == [20]
    found = dataset.to_table()["word"].combine_chunks()
    assert sorted(found.dictionary.to_pylist()) == ["a", "b", "c"]
    assert found.to_pylist() == ["b", "a", "b", "a", "c", "a"] * 10


def test_more_items_than_the_indices_can_number_come_in_several_arrays(tmp_path: Path) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    words = [[f"word {at}-{i}" for i in range(12)] for at in range(30)]
    tables = [pa.table({"word": pa.array(some, kind)}) for some in words]
    dataset = store(tmp_path / "t", tables)
    assert together(dataset) == [0]
    expected = [word for some in words for word in some]
    for _ in range(2):
        assert dataset.to_table()["word"].to_pylist() == expected
        assert dataset.take(range(0, 360, 2))["word"].to_pylist() == expected[::2]
        assert dataset.take([7, 350])["word"].to_pylist() == [expected[7], expected[350]]


def test_a_scan_of_few_small_files_keeps_them_for_the_next(tmp_path: Path) -> None:
    tables = parts()
    made = store(tmp_path / "t", tables)
    dataset = glaive.dataset(made.uri)
    files = [fragment.data_files()[0] for fragment in dataset.get_fragments()]
    sizes = [(tmp_path / "t" / "data" / file.path).stat().st_size for file in files]
    expected = pa.concat_tables(tables).to_pylist()
    dataset.io_stats_incremental()
    assert dataset.to_table().to_pylist() == expected
    first = dataset.io_stats_incremental()
    # The first file is also opened alone: it tells whether files are mapped.
    assert (first.read_iops, first.read_bytes) == (1 + FILES, sizes[0] + sum(sizes))
    assert dataset.to_table().to_pylist() == expected
    assert pa.Table.from_batches(dataset.to_batches()).to_pylist() == expected
    again = dataset.io_stats_incremental()
    assert (again.read_iops, again.read_bytes) == (0, 0)


@pytest.mark.parametrize("kept", [0, 1 << 24])
@pytest.mark.parametrize(
    ("number", "damage"),
    [(0, "shorter"), (3, "shorter"), (3, "absent")],  # the first file is opened by itself, too
)
def test_kept_columns_of_mapped_files_are_not_used_after_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, kept: int, number: int
) -> None:
    monkeypatch.setattr(small, "_KEPT_BYTES", kept)
    monkeypatch.setattr(small, "_READ_BYTES", 0)
    monkeypatch.setattr(small, "MAX_BYTES", 0)
    dataset = store(tmp_path / "t", parts())
    assert dataset.to_table().equals(dataset.to_table())
    found = dataset.to_table(filter="id = 30")
    dataset.io_stats_incremental()
    assert dataset.to_table(filter="id = 30").equals(found)
    assert dataset.io_stats_incremental().read_iops == 0
    path = Path(dataset.get_fragments()[number].data_files()[0].path)
    path = tmp_path / "t" / "data" / path
    time.sleep(0.02)  # sizes are trusted for a moment
    os.truncate(path, 100) if damage == "shorter" else path.unlink()
    for options in ({}, {"filter": "id = 30"}, {"columns": ["id"]}):
        with pytest.raises(GlaiveError, match=path.stem):
            dataset.to_table(**options)


@pytest.mark.parametrize("name", ["_KEPT_BYTES", "_DECODED_FILES_BYTES"])
def test_many_bytes_of_small_files_are_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(small, name, 1_000)
    monkeypatch.setattr(small, "_KEPT_BYTES", 1_000)
    dataset = glaive.dataset(store(tmp_path / "t", parts()).uri)
    few = dataset.to_table(columns=["id"], filter="id IN (3, 75)")
    dataset.to_table()
    dataset.io_stats_incremental()
    assert dataset.to_table().num_rows == FILES * ROWS
    read = dataset.io_stats_incremental().read_iops
    # More files fit as decoded columns than as files.
    assert read == (FILES if name == "_DECODED_FILES_BYTES" else 0)
    assert dataset.to_table(columns=["id"], filter="id IN (3, 75)").equals(few)


@pytest.mark.parametrize("numbers", [[75], [3, 75], [3, 4, 75, 76, 200], [279, 0, 100, 33, 150]])
def test_a_filter_reads_further_columns_only_from_files_with_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: list[int]
) -> None:
    monkeypatch.setattr(small, "_KEPT_BYTES", 1_000)
    dataset = store(tmp_path / "t", parts())
    read: list[int] = []
    read_files = small.read_files

    def counted(source: Any, files: Any, **options: Any) -> Any:
        read.append(len(files))
        return read_files(source, files, **options)

    monkeypatch.setattr(small, "read_files", counted)
    found = dataset.to_table(filter=f"id IN ({', '.join(map(str, numbers))})")
    assert read == [FILES, len({number // ROWS for number in numbers})]
    expected = pa.concat_tables(parts()).take(sorted(numbers))
    assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_the_next_version_reads_only_its_new_files(tmp_path: Path, version: str) -> None:
    names = ["id", "text", "tags"]
    dataset = store(
        tmp_path / "t", [table.select(names) for table in parts()], data_storage_version=version
    )
    dataset.to_table(filter="id > 0")
    for at in range(4):
        dataset.delete(f"id >= {7 * at + 20} and id < {7 * at + 30}")  # all rows of one file
        dataset.update({"text": "concat(text, '!')"}, where=f"id % 9 = {at}")
        dataset.io_stats_incremental()
        found = dataset.to_table(filter="id > 0")
        assert dataset.io_stats_incremental().read_iops < FILES / 4
        afresh = glaive.LanceDataset(tmp_path / "t", session=Session())
        assert found.equals(afresh.to_table(filter="id > 0"))
    assert 3 not in {fragment.fragment_id for fragment in dataset.get_fragments()}


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_the_next_version_does_not_read_rows_that_the_session_wrote(
    tmp_path: Path, version: str
) -> None:
    dataset = store(tmp_path / "t", parts(), data_storage_version=version)
    numbers, items = pa.array([0, 1, None], pa.int32()), pa.array([None, "new"])
    words = pa.DictionaryArray.from_arrays(numbers, items)
    rows = make(50, 3).set_column(6, "word", words)
    for at in range(2):
        dataset.to_table()
        if at == 0:
            dataset.update({"text": "concat(text, '!')"}, where="id % 9 = 2")
        else:
            dataset.merge_insert("id").when_matched_update_all().execute(rows)
        dataset.io_stats_incremental()
        found = dataset.to_table(filter="id >= 0"), dataset.to_table(filter="word IS NULL")
        assert dataset.io_stats_incremental().read_iops == 0
        afresh = glaive.LanceDataset(tmp_path / "t", session=Session())
        assert found[0].to_pylist() == afresh.to_table().to_pylist()
        assert found[1].to_pylist() == afresh.to_table(filter="word IS NULL").to_pylist()
    assert found[1]["id"].to_pylist() == [50, 52]


@pytest.mark.parametrize("version", ["2.0", "2.2", "2.3"])
def test_rows_with_dictionaries_within_are_kept_without_unused_items(
    tmp_path: Path, version: str
) -> None:
    words = [pa.array([f"w{row % 5}", None, f"w{row}"]).dictionary_encode() for row in range(30)]
    structs = [pa.StructArray.from_arrays([word], ["word"]) for word in words]
    starts = pa.array([0, 1, 3, 3], pa.int32())
    tables = [
        pa.table(
            {
                "id": [row, 100 + row, 200 + row],
                "struct": struct,
                "list": pa.ListArray.from_arrays(starts, struct),
            }
        )
        for row, struct in enumerate(structs)
    ]
    dataset = store(tmp_path / "t", tables, data_storage_version=version)
    dataset.to_table()
    dataset.update({"id": "id + 1000"}, where="id in (7, 107)")
    dataset.io_stats_incremental()
    found = dataset.to_table(filter="id >= 1000")
    assert dataset.io_stats_incremental().read_iops == 0
    assert found["struct"].to_pylist() == [{"word": "w2"}, {"word": None}]
    assert found["list"].to_pylist() == [[{"word": "w2"}], [{"word": None}, {"word": "w7"}]]
    afresh = glaive.LanceDataset(tmp_path / "t", session=Session())
    assert dataset.to_table().to_pylist() == afresh.to_table().to_pylist()
    if version != "2.0":  # its writer stores the items of the version before
        dataset.delete("id % 100 in (11, 12)")
        found = dataset.to_table(filter="id >= 0")
        items = found["struct"].combine_chunks().field(0).dictionary.to_pylist()
        assert "w10" in items
        assert "w11" not in items


def test_unused_items_within_structs_and_lists_are_dropped() -> None:
    numbers, items = pa.array([0, None, 1, 3], pa.int32()), pa.array(["a", "b", "c", None])
    word = pa.DictionaryArray.from_arrays(numbers, items)
    hidden = pa.array([False, False, True, False])
    struct = pa.StructArray.from_arrays([word, word.indices], ["word", "number"], mask=hidden)
    null = pa.array([False, True, False])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), struct, mask=null)
    large = pa.LargeListArray.from_arrays(pa.array([0, 1, 1, 4], pa.int64()), struct)
    arrays: list[Any] = [word, struct, lists, lists[1:], lists[:0], large]
    for array in arrays:
        left = tidied(array)
        left.validate(full=True)
        assert (left.type, left.to_pylist()) == (array.type, array.to_pylist())
        assert can_be_tidied(array.type)
    assert tidied(lists).values.field(0).dictionary.to_pylist() == ["a"]
    assert not can_be_tidied(pa.map_(pa.string(), word.type))
    assert not can_be_tidied(pa.list_(word.type, 2))
    assert can_be_tidied(pa.list_(pa.int8(), 2))


def test_values_below_nulls_that_a_session_wrote_are_not_found(tmp_path: Path) -> None:
    def table(numbers: list[int], *, is_null: bool) -> pa.Table:
        below, mask = pa.array(numbers), pa.array([is_null] * len(numbers))
        struct = pa.StructArray.from_arrays([below], ["a"], mask=mask)
        starts = pa.array(range(len(numbers) + 1), pa.int32())
        lists = pa.ListArray.from_arrays(starts, below, mask=mask)
        return pa.table({"id": numbers, "struct": struct, "list": lists})

    dataset = store(tmp_path / "t", [table([at], is_null=False) for at in range(20)])
    dataset.to_table()
    dataset.merge_insert("id").when_matched_update_all().execute(table([5, 6], is_null=True))
    dataset.io_stats_incremental()
    found = dataset.to_table(["struct.a", "list"], filter="struct.a IS NULL")
    assert dataset.io_stats_incremental().read_iops == 0
    assert [column.null_count for column in found.columns] == [2, 2]
    assert dataset.count_rows("struct.a in (5, 6)") == 0
    assert dataset.count_rows("array_length(list) = 1") == 18


def test_rows_of_a_large_kept_column_are_found_after_many_updates(tmp_path: Path) -> None:
    text = pa.array([str(row) * 200 for row in range(900)])
    table = pa.table({"id": range(900), "text": text, "word": text.dictionary_encode()})
    dataset = glaive.write_dataset(table, tmp_path / "t", max_rows_per_file=90)
    dataset.to_table(filter="id >= 0")
    for at in range(20):  # more pieces than a column may have
        dataset.update({"id": "id + 0"}, where=f"id % 30 in ({at}, {at + 1})")
        found = dataset.to_table(filter=f"id % 31 = {at}")
        assert found["text"].to_pylist() == [str(row) * 200 for row in found["id"].to_pylist()]
        assert found["word"].to_pylist() == found["text"].to_pylist()
        assert sorted(found["id"].to_pylist()) == list(range(at, 900, 31))


def test_updates_of_few_rows_do_not_copy_the_other_rows_of_a_kept_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, joined = 3000, []
    table = pa.table({"id": range(rows), "text": [str(row) * 50 for row in range(rows)]})
    dataset = glaive.write_dataset(table, tmp_path / "t", max_rows_per_file=300)

    def concat_arrays(arrays: list[pa.Array]) -> pa.Array:
        if pa.types.is_string(arrays[0].type):
            joined.append(sum(map(len, arrays)))
        return real(arrays)

    real = small.concat_arrays
    for at in range(60):
        dataset.update({"id": "id + 0"}, where=f"id % 300 = {at}")
        if not at:
            monkeypatch.setattr(small, "concat_arrays", concat_arrays)
    assert 100 < max(joined) < rows
    assert sum(joined) < 5 * rows
    found = dataset.to_table(filter="id % 7 = 0").sort_by("id")
    assert found["text"].to_pylist() == [str(row) * 50 for row in range(0, rows, 7)]


def test_a_version_with_the_same_columns_uses_the_same_projections_and_filters(
    tmp_path: Path,
) -> None:
    dataset = store(tmp_path / "t", parts())
    views = dataset.opened.views
    before = views.scan(("id",)).projection, views.filter("id = 1"), views.value("id + 1")
    dataset.update({"id": "id + 1"}, where="id = 1")
    views = dataset.opened.views
    after = views.scan(("id",)).projection, views.filter("id = 1"), views.value("id + 1")
    assert all(old is new for old, new in zip(before, after, strict=True))
    dataset.add_columns({"more": "id + 1"})
    assert dataset.opened.views.filter("id = 1") is not before[1]


def test_rows_that_a_session_wrote_are_read_if_each_read_compares_checksums(tmp_path: Path) -> None:
    tables = [table.select(["id", "text"]) for table in parts()]
    store(tmp_path / "t", tables, data_storage_version="2.0")
    dataset = glaive.dataset(tmp_path / "t", storage_options={"verify_checksums": "true"})
    dataset.to_table()
    dataset.update({"text": "'new'"}, where="id % 9 = 2")
    dataset.io_stats_incremental()
    dataset.to_table()
    assert dataset.io_stats_incremental().read_iops > 0


@pytest.mark.parametrize(
    ("paths", "rows", "count"),
    [
        ("abc", [[0, 1, 2, 3, 4, 5]], 3),
        ("ac", [[0, 1], [4, 5]], 2),
        ("cab", [[4, 5], [0, 1, 2, 3]], 3),
        ("bx", [[2, 3]], 1),
        ("axbc", [[0, 1]], 1),
        ("xabc", [], 0),
    ],
)
def test_a_kept_column_serves_files_up_to_the_first_unknown_file(
    paths: str, rows: list[list[int]], count: int
) -> None:
    files = [SingleFile(path, 9, 2, False, (FormatVersion(2, 1), (0,), (0,))) for path in "abc"]
    part = SmallFragments([FragmentRows(at, 0, 2) for at in range(3)], files)
    found, known = KeptColumn(part, [pa.array(range(6))]).of_first(paths)
    assert ([piece.to_pylist() for piece in found], known) == (rows, count)


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_the_next_version_keeps_dictionaries_while_no_file_vanishes(
    tmp_path: Path, version: str
) -> None:
    words = [pa.array([f"w{at}", "w"] * 3).dictionary_encode() for at in range(FILES)]
    tables = [
        pa.table(
            {
                "id": range(6 * at, 6 * at + 6),
                "word": word,
                "nested": pa.StructArray.from_arrays([word], ["word"]),
            }
        )
        for at, word in enumerate(words)
    ]
    dataset = store(tmp_path / "t", tables, data_storage_version=version)
    dataset.to_table(filter="id >= 0")
    for at in range(4):
        dataset.update({"id": "id + 0"}, where=f"id % 9 = {at}")
        dataset.io_stats_incremental()
        found = dataset.to_table(filter="id >= 0")
        assert dataset.io_stats_incremental().read_iops < FILES / 4
        afresh = glaive.LanceDataset(tmp_path / "t", session=Session())
        assert found.to_pylist() == afresh.to_table(filter="id >= 0").to_pylist()


@pytest.mark.parametrize("words", [1, 7])
def test_the_next_version_forgets_items_of_dictionaries_whose_rows_are_deleted(
    tmp_path: Path, words: int
) -> None:
    def word(row: int) -> str:
        return f"w{row // 7}.{row % words}"

    dataset = store(
        tmp_path / "t",
        [
            pa.table({"id": rows, "word": pa.array(map(word, rows)).dictionary_encode()})
            for rows in (range(first, first + 7) for first in range(0, 84, 7))
        ],
    )
    for first in range(0, 77, 7):
        found = dataset.to_table(filter="id >= 0")["word"].combine_chunks()
        items, left = set(found.dictionary.to_pylist()), {word(row) for row in range(first, 84)}
        # Few items stay until they are a quarter of the rows.
        assert items >= left
        assert items == left or len(items) <= (84 - first) // 4
        dataset.delete(f"id < {first + 7}")


def test_a_filter_after_a_compaction_reads_only_the_files_with_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small, "_KEPT_BYTES", 1_000)
    dataset = store(tmp_path / "t", parts())
    dataset.to_table()
    dataset.optimize.compact_files(target_rows_per_fragment=4 * ROWS)
    files = len(dataset.get_fragments())
    assert small.MIN_SMALL_FILES < files < FILES
    read: list[int] = []
    read_files = small.read_files

    def counted(source: Any, files: Any, **options: Any) -> Any:
        read.append(len(files))
        return read_files(source, files, **options)

    monkeypatch.setattr(small, "read_files", counted)
    assert dataset.to_table(filter="id = 75").num_rows == 1
    assert read == [files, 1]


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
def test_few_rows_of_a_filter_have_their_system_columns(tmp_path: Path, stable: bool) -> None:
    dataset = store(tmp_path / "t", parts(), enable_stable_row_ids=stable)
    dataset.delete("id % 11 = 5")
    dataset.update({"text": "'new'"}, where="id % 17 = 3")
    names = ["_rowid", "_rowaddr", "_rowoffset"]
    names += ["_row_created_at_version", "_row_last_updated_at_version"] if stable else []
    every = dataset.to_table(["id", *names], fragments=dataset.get_fragments()[::-1])
    want = {row["id"]: row for row in every.to_pylist()}
    for condition in ("id IN (7, 75, 103, 104, 278)", "id % 50 = 3", "_rowid < 40", "id > 1000"):
        found = dataset.to_table(["id", *names], filter=condition).to_pylist()
        assert found == [want[row["id"]] for row in found]
        assert len(found) == dataset.count_rows(condition)


def test_dictionaries_within_structs_do_not_fill_their_index_type(tmp_path: Path) -> None:
    def table(first: int) -> pa.Table:
        words = [f"w{first}.{row % 10}" for row in range(100)]
        word = pa.array(words).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))
        struct = pa.StructArray.from_arrays([word], ["word"])
        return pa.table({"id": range(first, first + 100), "struct": struct})

    dataset = store(tmp_path / "t", [table(first) for first in range(0, 1000, 100)])
    for first in range(0, 1500, 100):
        found = dataset.to_table()
        assert found["struct"].num_chunks == 1  # read together
        assert found["id"].to_pylist() == [*range(first, first + 1000)]
        dataset.delete(f"id < {first + 100}")
        dataset.insert(table(first + 1000))


def test_filters_that_pass_few_rows_decode_a_kept_column_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = store(tmp_path / "t", [table.select(["id", "text"]) for table in parts()])
    taken: list[int] = []
    take = FieldColumns.plan_take

    def counted(self: FieldColumns, rows: Any) -> Any:
        taken.append(len(rows))
        return take(self, rows)

    monkeypatch.setattr(FieldColumns, "plan_take", counted)
    for at in range(30):
        assert dataset.to_table(filter=f"id = {at}")["text"].to_pylist() == [text(at)]
    assert len(taken) == FILES // 4 - 1
