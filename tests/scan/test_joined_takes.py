"""Takes out of several fragments, whose columns are read as one."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.trials import of_all

import glaive
from glaive.dataset.tasks import commit_operation
from glaive.errors import CorruptFileError, GlaiveError, RowIndexError
from glaive.io.local import LocalStore
from glaive.scan import small
from glaive.scan.joined import MAX_FRAGMENTS
from glaive.scan.options import Meter
from glaive.scan.snapshot import Session, Snapshot
from glaive.scan.take import take
from glaive.scan.views import Views
from glaive.table.operations.merge import Project

from .cold_files import forget, needs_fadvise

ROWS = 3000
FRAGMENTS = 5


def columns(rows: int, seed: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    words = [f"word {i % 700} of some length" for i in range(rows)]
    nulls = rng.random(rows) < 0.2
    numbers = rng.integers(-(2**40), 2**40, rows)
    starts = np.cumsum(rng.integers(0, 4, rows + 1)) - 0
    offsets = pa.array(starts - starts[0], pa.int32())
    items = pa.array(rng.integers(0, 1000, int(offsets[-1].as_py())))
    return {
        "number": pa.array(numbers),
        "small": pa.array(rng.integers(0, 9, rows), pa.int8()),
        "null": pa.array(numbers, mask=nulls),
        "float": pa.array(rng.random(rows)),
        "flag": pa.array(rng.random(rows) < 0.5, mask=nulls),
        "text": pa.array(words, mask=nulls),
        "many": pa.array([f"{n:x}-{n % 97}" for n in numbers.tolist()]),
        "kind": pa.array([f"kind {n % 7}" for n in range(rows)]),
        "constant": pa.array(["same"] * rows),
        "vector": pa.FixedSizeListArray.from_arrays(rng.random(rows * 40, np.float32), 40),
        "list": pa.ListArray.from_arrays(offsets, items),
        "strings": pa.array([words[: n % 3] for n in range(rows)]),
        "struct": pa.array([{"a": n, "b": [words[n]]} for n in range(rows)]),
        "blob": pa.array([bytes([n % 256]) * (n % 300) for n in range(rows)], pa.large_binary()),
        "time": pa.array(np.arange(rows), pa.timestamp("us")),
        "decimal": pa.array(range(rows), pa.decimal128(20, 2)),
        "category": pa.array([words[n % 9] for n in range(rows)]).dictionary_encode(),
    }


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.table(columns(ROWS))


@pytest.fixture(scope="module", params=["2.0", "2.1", "2.2", "2.3"])
def dataset(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, table: pa.Table
) -> glaive.LanceDataset:
    path = tmp_path_factory.mktemp("joined") / "t"
    made = glaive.write_dataset(
        table, path, max_rows_per_file=ROWS // FRAGMENTS, data_storage_version=request.param
    )
    assert len(made.get_fragments()) == FRAGMENTS
    return made


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("count", [2, 7, 100, 2500])
def test_rows_come_in_the_order_that_was_given(
    dataset: glaive.LanceDataset, table: pa.Table, count: int
) -> None:
    opened = glaive.dataset(dataset.uri)
    rng = np.random.default_rng(count)
    for _ in range(3):
        rows = rng.integers(0, ROWS, count)
        taken = opened.take(rows.tolist())
        taken.validate(full=True)
        assert taken.equals(table.take(pa.array(rows)))


def test_fragments_join_as_takes_meet_them(dataset: glaive.LanceDataset, table: pa.Table) -> None:
    opened = glaive.dataset(dataset.uri)
    size = ROWS // FRAGMENTS
    for wanted in ([0, size], [4 * size, 2 * size + 1], [size, 0, 4 * size + 3], [3 * size, 0]):
        assert opened.take(wanted, columns=["text", "list"]).equals(
            table.select(["text", "list"]).take(pa.array(wanted))
        )


def test_many_rows_are_taken_on_threads(tmp_path: Path) -> None:
    source = pa.table(columns(20_000)).select(["number", "text", "list", "flag"])
    made = glaive.write_dataset(source, tmp_path / "t", max_rows_per_file=4000)
    rows = np.random.default_rng(1).integers(0, 20_000, 40_000)
    assert made.take(rows).equals(source.take(pa.array(rows)))


def test_fragments_of_different_encodings_are_taken_together(tmp_path: Path) -> None:
    parts = [
        pa.table({"n": np.arange(500), "s": [f"value {i}" for i in range(500)]}),
        pa.table({"n": np.full(500, 7), "s": ["same"] * 500}),
        pa.table({"n": np.arange(500) * 2**40, "s": [f"{i % 3}" * 40 for i in range(500)]}),
        pa.table({"n": pa.nulls(500, pa.int64()), "s": pa.nulls(500, pa.string())}),
        pa.table({"n": np.arange(500), "s": ["x" * i for i in range(500)]}),
    ]
    for part in parts:
        glaive.write_dataset(part, tmp_path / "t", mode="append")
    whole = pa.concat_tables(parts)
    opened = glaive.dataset(tmp_path / "t")
    for seed in range(4):
        rows = np.random.default_rng(seed).integers(0, 2500, 64)
        assert opened.take(rows).equals(whole.take(pa.array(rows)))


def test_a_column_that_some_fragments_lack_is_null_there(tmp_path: Path) -> None:
    glaive.write_dataset({"a": [1, 2, 3]}, tmp_path / "t")
    glaive.write_dataset({"a": [4, 5, 6]}, tmp_path / "t", mode="append")
    made = glaive.dataset(tmp_path / "t")
    made.add_columns(pa.schema([pa.field("b", pa.string())]))
    made = glaive.write_dataset({"a": [7], "b": ["x"]}, tmp_path / "t", mode="append")
    assert made.take([6, 0, 4]).to_pydict() == {"a": [7, 1, 5], "b": ["x", None, None]}


def test_deleted_rows_are_not_counted(dataset: glaive.LanceDataset, tmp_path: Path) -> None:
    copy = glaive.write_dataset(
        dataset.to_table(columns=["number", "kind"]), tmp_path / "t", max_rows_per_file=500
    )
    copy.delete("number % 3 = 0")
    live = copy.to_table()
    rows = np.random.default_rng(5).integers(0, live.num_rows, 200)
    assert glaive.dataset(copy.uri).take(rows).equals(live.take(pa.array(rows)))


@pytest.mark.parametrize("fragment", [0, 2, FRAGMENTS - 1])
def test_deleted_rows_are_not_counted_once_all_fragments_are_joined(
    tmp_path: Path, table: pa.Table, fragment: int
) -> None:
    names, size = ["number", "text", "list"], ROWS // FRAGMENTS
    source = table.select(names).append_column("id", pa.array(range(ROWS)))
    made = glaive.write_dataset(source, tmp_path / "t", max_rows_per_file=size)
    made.delete(f"id >= {fragment * size + 3} AND id < {fragment * size + 7}")
    live = source.filter(pa.array([not 3 <= at - fragment * size < 7 for at in range(ROWS)]))
    opened = glaive.dataset(made.uri)
    rows = [0, 4, size + 5, 2 * size + 3, 3 * size, live.num_rows - 1, live.num_rows - size + 9]
    for _ in range(3):  # the first take joins the fragments, the others find them joined
        assert opened.take(rows).equals(live.take(pa.array(rows)))
    with pytest.raises(RowIndexError, match=f"position {live.num_rows} is out of range"):
        opened.take([*rows, live.num_rows])


def test_row_ids_beyond_a_fragment_are_not_rows_of_the_next(dataset: glaive.LanceDataset) -> None:
    size = ROWS // FRAGMENTS
    assert dataset._take_rows([0, 1 << 32]).num_rows == 2  # noqa: SLF001  # pylance's name
    with pytest.raises(GlaiveError):
        dataset._take_rows([0, size, 1 << 32])  # noqa: SLF001  # same


def test_more_fragments_than_are_joined_are_read_all_the_same(tmp_path: Path) -> None:
    assert MAX_FRAGMENTS >= 1024
    source = pa.table({"n": np.arange(300)})
    made = glaive.write_dataset(source, tmp_path / "t", max_rows_per_file=3)
    for seed in range(5):
        rows = np.random.default_rng(seed).integers(0, 300, 50)
        assert made.take(rows)["n"].to_pylist() == rows.tolist()


def test_what_it_costs_is_asked_of_each_file_once(dataset: glaive.LanceDataset) -> None:
    opened = glaive.dataset(dataset.uri)
    rows = list(range(0, ROWS, 37))
    for _ in range(3):
        opened.take(rows, columns=["number", "text"])
    before = opened.io_stats_snapshot().read_iops
    opened.take(rows, columns=["number", "text"])
    assert opened.io_stats_snapshot().read_iops == before


EXTREMES = (0, 1, -1, -(2**63), 2**63 - 1, 2**31, 2**31 - 1, -(2**31), 2**32, 255, 65_535)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
def test_damaged_files_among_joined_ones_give_an_error_or_rows(
    tmp_path: Path, version: str
) -> None:
    """Runs span the memory of several files: no number of one may lead out of it."""
    made = glaive.write_dataset(
        pa.table(columns(600)), tmp_path / "t", max_rows_per_file=120, data_storage_version=version
    )
    files = sorted(Path(made.uri, "data").iterdir())
    whole = [file.read_bytes() for file in files]
    rng = np.random.default_rng(int(version[-1]))
    errors = 0
    for _ in range(of_all(60)):
        number = int(rng.integers(len(files)))
        raw = bytearray(whole[number])
        for _ in range(3):
            width = int(rng.choice([1, 2, 4, 8]))
            at = int(rng.integers(len(raw) // width)) * width
            extreme = int(rng.choice(EXTREMES)) & ((1 << 8 * width) - 1)
            raw[at : at + width] = extreme.to_bytes(width, "little")
        # Under another name: this process has mapped the files of the trial before.
        folder = tmp_path / f"{rng.integers(2**40)}"
        shutil.copytree(made.uri, folder)
        (folder / "data" / files[number].name).write_bytes(raw)
        opened = glaive.dataset(folder)
        for _ in range(2):
            try:
                opened.take(rng.integers(0, 600, 90)).validate()
            except GlaiveError:
                errors += 1
        shutil.rmtree(folder)
    assert errors > 1  # about 6; which bytes are hit depends on the names of the files


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("budget", [0, 200_000, 64 * 1024 * 1024])
def test_takes_keep_to_the_budget_of_their_session(tmp_path: Path, budget: int) -> None:
    source = pa.table(columns(3000)).select(["number", "text", "kind", "list"])
    glaive.write_dataset(source, tmp_path / "t", max_rows_per_file=100)
    session = glaive.Session(metadata_cache_size_bytes=budget)
    opened = glaive.dataset(tmp_path / "t", session=session)
    for seed in range(6):
        rows = np.random.default_rng(seed).integers(0, 3000, 40)
        assert opened.take(rows).equals(source.take(pa.array(rows)))
        assert session.size_bytes() <= budget


def test_a_fragment_that_is_not_joined_yet_is_taken_from_alone(tmp_path: Path) -> None:
    size = 8000
    source = pa.table({"n": np.random.default_rng(0).integers(0, 2**60, 12 * size)})
    made = glaive.write_dataset(
        source, tmp_path / "t", max_rows_per_file=size, max_page_bytes=16 * 1024
    )
    first = [fragment * size + 5 for fragment in range(10)]
    for rows in (first, [11 * size + 3, 11 * size + 7000], [10 * size, 11 * size, 3]):
        assert made.take(rows).equals(source.take(pa.array(rows)))


@needs_fadvise
def test_damage_of_a_file_that_a_take_does_not_touch_does_not_matter(tmp_path: Path) -> None:
    """Nor where files are cold: what a take needs of them is looked up before it is read."""
    source = pa.table(columns(20_000)).select(["number", "kind", "text"])
    made = glaive.write_dataset(source, tmp_path / "t", max_rows_per_file=4000)
    (hurt,) = made.get_fragments()[3].data_files()
    path = Path(made.uri, "data", hurt.path)
    raw = path.read_bytes()
    path.write_bytes(b"\xff" * (len(raw) - 4000) + raw[-4000:])
    opened = glaive.dataset(tmp_path / "t")
    rows = [0, 4100, 8200]
    forget(tmp_path / "t")
    with pytest.raises(GlaiveError):
        opened.take([*rows, 12_300])
    forget(tmp_path / "t")
    assert opened.take(rows).equals(source.take(pa.array(rows)))


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_text_is_decoded_with_the_symbols_of_its_own_file(
    tmp_path: Path, order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file has symbols of its own, and lies in memory wherever the system put it."""
    monkeypatch.setattr(small, "_KEPT_BYTES", 0)
    rows = 4000
    parts = [
        [f"{word} {n * 7919 % 10_007:05d} of {word} and {word}" for n in range(rows)]
        for word in ("apples", "quince blossoms", "zebra crossings", "0123456789")
    ]
    for part in parts:
        made = glaive.write_dataset({"text": part}, tmp_path / "t", mode="append")
    opened = glaive.dataset(made.uri)
    for fragment in order:  # mapped in this order, before they are joined
        opened.take([fragment * rows])
    texts = [text for part in parts for text in part]
    for seed in range(3):
        wanted = np.random.default_rng(seed).integers(0, 4 * rows, 300).tolist()
        assert opened.take(wanted)["text"].to_pylist() == [texts[row] for row in wanted]
        counts = joined_counts(made, *([fragment * rows] for fragment in order), wanted)
        assert counts == {"rows_taken_joined": len(wanted)}


@pytest.mark.parametrize("version", ["2.1", "2.3"])
def test_vectors_of_several_pages_are_taken_as_one(tmp_path: Path, version: str) -> None:
    rng = np.random.default_rng(5)
    holes = pa.array(rng.random(400 * 90), mask=rng.random(400 * 90) < 0.1)
    vectors = pa.table(
        {
            "plain": pa.FixedSizeListArray.from_arrays(rng.random(400 * 90, np.float32), 90),
            "holes": pa.FixedSizeListArray.from_arrays(holes, 90),
        }
    )
    dataset = glaive.write_dataset(
        vectors, tmp_path / "t", max_rows_per_file=100, data_storage_version=version
    )
    rows = rng.integers(0, 400, 60).tolist()
    assert joined_counts(dataset, rows)["rows_taken_joined"] == 60
    assert dataset.take(rows).combine_chunks() == vectors.take(rows).combine_chunks()


def test_columns_with_sparse_pages_and_lists_of_structs_are_taken_with_the_others(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(6)
    words = pa.array(rng.choice(["pear", "quince"], 20_000), mask=rng.random(20_000) < 0.9)
    lists = [None if n % 3 == 0 else [n] * (n % 4) for n in range(20_000)]
    rows = pa.table({"n": rng.random(20_000), "kind": words.dictionary_encode(), "list": lists})
    vectors = pa.FixedSizeListArray.from_arrays(rng.random(20_000 * 20), 20)
    structs = pa.StructArray.from_arrays([pa.array(rng.random(40_000))], ["x"])
    rows = rows.append_column("vector", vectors)
    rows = rows.append_column("pairs", pa.FixedSizeListArray.from_arrays(structs, 2))
    lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")
    lance.write_dataset(rows, tmp_path / "t", max_rows_per_file=4000, data_storage_version="2.3")
    dataset = glaive.dataset(tmp_path / "t")
    wanted = rng.integers(0, 20_000, 60).tolist()
    source = Views(Snapshot(LocalStore(dataset.uri), dataset.manifest, Session())).take(None)
    for _ in range(2):
        assert take(source, wanted).to_pylist() == rows.take(wanted).to_pylist()
    joined = source.joined_before()
    assert joined is not None
    assert None not in joined.columns


def joined_counts(dataset: glaive.LanceDataset, *takes: list[int]) -> dict[str, int]:
    """What the meter counts of takes, one after the other, of one opened dataset."""
    source = Views(Snapshot(LocalStore(dataset.uri), dataset.manifest, Session())).take(None)
    meter = Meter()
    for rows in takes:
        take(source, rows, meter)
    return dict(meter.counts)


def test_ordinary_takes_are_joined_and_nothing_is_given_up(tmp_path: Path) -> None:
    names = ["number", "null", "float", "flag", "text", "many", "kind", "list", "struct", "vector"]
    made = glaive.write_dataset(
        pa.table(columns(20_000)).select(names), tmp_path / "t", max_rows_per_file=4000
    )
    rows = list(range(5, 20_000, 150))
    assert joined_counts(made, rows, rows, [7, 19_000]) == {"rows_taken_joined": 2 * len(rows) + 2}


def test_a_file_that_was_truncated_is_named_by_the_next_take(tmp_path: Path) -> None:
    rows = np.random.default_rng(4).integers(0, 2**60, 200_000)
    made = glaive.write_dataset({"n": rows}, tmp_path / "t", max_rows_per_file=50_000)
    wanted = [7, 60_000, 110_000, 199_999]
    for _ in range(3):  # the files are opened, then joined, then looked at again
        assert made.take(wanted)["n"].to_pylist() == rows[wanted].tolist()
    (hurt,) = made.get_fragments()[2].data_files()
    path = Path(made.uri, "data", hurt.path)
    time.sleep(0.05)  # for so long, those who looked at four files trust their sizes
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(CorruptFileError, match=hurt.path):
        made.take(wanted)
    # Takes from other fragments do not look at it.
    assert made.take([7, 60_000])["n"].to_pylist() == rows[[7, 60_000]].tolist()


def test_texts_of_many_files_are_decoded_with_the_symbols_of_each(tmp_path: Path) -> None:
    count, rows = 20, 1200
    texts = pa.array([f"file {at // rows} {hash_of(at):x}" * 2 for at in range(count * rows)])
    made = glaive.write_dataset(pa.table({"text": texts}), tmp_path / "t", max_rows_per_file=rows)
    rng = np.random.default_rng(8)
    for _ in range(4):
        wanted = rng.integers(0, len(texts), 200).tolist()
        assert made.take(wanted)["text"].combine_chunks() == texts.take(pa.array(wanted))


def hash_of(number: int) -> int:
    return number * 0x9E3779B97F4A7C15 % 2**48


@pytest.fixture(scope="module")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> glaive.LanceDataset:
    return glaive.write_dataset(
        {"n": range(1300)}, tmp_path_factory.mktemp("scattered") / "t", max_rows_per_file=10
    )


def test_takes_that_met_half_of_the_fragments_have_opened_all(
    scattered: glaive.LanceDataset,
) -> None:
    opened = glaive.dataset(scattered.uri)
    half = list(range(0, 700, 10))
    for _ in range(2):  # small files are read in bulk, then opened
        assert opened.take(half)["n"].to_pylist() == half
    before = opened.io_stats_snapshot().read_iops
    rest = list(range(705, 1300, 10))
    assert opened.take([*rest, 3])["n"].to_pylist() == [*rest, 3]
    assert opened.io_stats_snapshot().read_iops == before


def test_takes_that_each_meet_new_fragments_open_all_once_they_met_half(
    scattered: glaive.LanceDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small, "_KEPT_BYTES", 0)  # as if the files were too large to keep
    opened = glaive.dataset(scattered.uri)
    # Each take also reads fragments that earlier takes read. The last takes open them.
    for stop in (300, 600, *[900] * 5):
        rows = list(range(0, stop, 10))
        assert opened.take(rows)["n"].to_pylist() == rows
    before = opened.io_stats_snapshot().read_iops
    rest = list(range(905, 1300, 10))
    assert opened.take(rest)["n"].to_pylist() == rest
    assert opened.io_stats_snapshot().read_iops == before


def test_a_take_reads_all_small_files_once_takes_have_read_a_sixteenth(
    scattered: glaive.LanceDataset,
) -> None:
    opened = glaive.dataset(scattered.uri)
    for rows in (list(range(first, first + 100, 10)) for first in (0, 200)):
        assert opened.take(rows)["n"].to_pylist() == rows
    before = opened.io_stats_snapshot().read_iops
    every = list(range(1299, -1, -7))
    assert opened.take(every)["n"].to_pylist() == every
    assert opened.io_stats_snapshot().read_iops == before


def test_takes_of_one_row_read_all_small_files_after_a_sixteenth_too(
    scattered: glaive.LanceDataset,
) -> None:
    opened = glaive.dataset(scattered.uri)
    for row in range(0, 100, 10):
        assert opened.take([row])["n"].to_pylist() == [row]
    before = opened.io_stats_snapshot().read_iops
    for row in (1299, 640, 3):
        assert opened.take([row])["n"].to_pylist() == [row]
    assert opened.io_stats_snapshot().read_iops == before


def test_files_above_64_kib_are_kept_once_takes_have_read_their_share(tmp_path: Path) -> None:
    words = [f"{row * 2**61 % 999_983:040b}" for row in range(9 * 16_000)]
    table = pa.table({"n": range(len(words)), "word": words})
    opened = glaive.write_dataset(table, tmp_path / "t", max_rows_per_file=9000)
    size = (opened.get_fragments()[0].data_files()[0].file_size_bytes or 0) / 65_536
    assert 2 < size < 8
    reads = []
    for turn in range(int(16 * size)):
        before = opened.io_stats_snapshot().read_iops
        row = turn * 9000 % len(words) + 17
        assert opened.take([row])["word"].to_pylist() == [words[row]]
        reads.append(opened.io_stats_snapshot().read_iops > before)
    assert all(reads[:16])
    assert not any(reads[int(9 * size) :])


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.3"])
def test_takes_keep_the_columns_of_one_small_fragment(tmp_path: Path, version: str) -> None:
    whole = pa.table(columns(3000)).select(["number", "null", "text", "list", "category"])
    made = glaive.write_dataset(whole, tmp_path / "t", data_storage_version=version)
    made.delete("number = " + str(whole["number"][7]))
    live = np.delete(np.arange(3000), 7)
    opened, rng = glaive.dataset(made.uri), np.random.default_rng(3)
    before = opened.session().size_bytes()
    for count in (1, 30, 1, 2, 30, 1, 300, 1):
        rows = rng.integers(0, len(live), count)
        assert opened.take(rows.tolist()).equals(whole.take(pa.array(live[rows])))
    (data,) = opened.get_fragments()[0].data_files()
    path = tmp_path / "t" / "data" / data.path
    os.truncate(path, 100)  # kept columns are copies
    assert opened.take([5, 6]).equals(whole.take(pa.array(live[5:7])))
    kept = opened.session().size_bytes() - before
    assert whole.nbytes // 2 < kept < 4 * whole.nbytes


def test_columns_that_would_take_much_memory_are_not_kept(tmp_path: Path) -> None:
    words = pa.array(["a" * 900, "b" * 900]).take(pa.array(np.arange(60_000) % 2))
    made = glaive.write_dataset(pa.table({"word": words}), tmp_path / "t")
    for row in range(40):
        assert made.take([row, 59_999 - row])["word"].to_pylist() == [
            words[row].as_py(), words[59_999 - row].as_py()
        ]  # fmt: skip
    assert made.session().size_bytes() < 1_000_000


def test_small_files_are_kept_among_deleted_rows_and_files_of_other_kinds(tmp_path: Path) -> None:
    whole = pa.table(columns(2000)).select(["number", "null", "text", "list", "struct", "category"])
    glaive.write_dataset(whole.slice(0, 600), tmp_path / "t", max_rows_per_file=10)
    glaive.write_dataset(whole.slice(600, 1000), tmp_path / "t", mode="append")
    made = glaive.write_dataset(
        whole.slice(1600), tmp_path / "t", mode="append", max_rows_per_file=10
    )
    made.delete(f"number = {whole['number'][7]} OR number = {whole['number'][1905]}")
    kept = np.delete(np.arange(2000), [7, 1905])
    opened, rng = glaive.dataset(tmp_path / "t"), np.random.default_rng(5)
    for count in (80, 80, 80, 700, 3):
        rows = rng.integers(0, len(kept), count)
        assert opened.take(rows.tolist()).equals(whole.take(pa.array(kept[rows])))


def test_takes_that_met_few_of_the_fragments_open_no_others(
    scattered: glaive.LanceDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small, "_KEPT_BYTES", 0)
    opened = glaive.dataset(scattered.uri)
    few = list(range(0, 630, 10))
    for _ in range(2):
        assert opened.take(few)["n"].to_pylist() == few
    before = opened.io_stats_snapshot().read_iops
    assert opened.take([1295, 1285])["n"].to_pylist() == [1295, 1285]
    assert opened.io_stats_snapshot().read_iops > before


def test_a_damaged_file_that_no_take_asked_for_is_not_reported(
    scattered: glaive.LanceDataset, tmp_path: Path
) -> None:
    shutil.copytree(scattered.uri, tmp_path / "t")
    opened = glaive.dataset(tmp_path / "t")
    (hurt,) = opened.get_fragments()[129].data_files()
    (tmp_path / "t" / "data" / hurt.path).write_bytes(b"\xff" * 900)
    half = list(range(0, 700, 10))
    for _ in range(3):
        assert opened.take(half)["n"].to_pylist() == half
    with pytest.raises(GlaiveError, match=hurt.path):
        opened.take([3, 1295])
    assert opened.take([3, 1285])["n"].to_pylist() == [3, 1285]


def test_numbers_of_rows_beyond_a_fragment_are_none(tmp_path: Path) -> None:
    made = glaive.write_dataset({"n": range(40)}, tmp_path / "t", max_rows_per_file=10)
    source = Views(Snapshot(LocalStore(made.uri), made.manifest, Session())).take(None)
    joined = source.joined(np.arange(4))
    assert joined is not None
    fragments = np.array([0, 2])
    numbers = joined.numbers(fragments, np.array([3, 9]))
    assert numbers is not None
    assert numbers.tolist() == [3, 29]
    assert joined.numbers(fragments, np.array([10, 0])) is None
    assert joined.numbers(fragments, np.array([0, -1])) is None


def test_packed_members_that_lie_elsewhere_in_some_files_are_not_mixed_up(tmp_path: Path) -> None:
    """Which member is which is said by each file."""

    def rows(order: str, seed: int) -> pa.Table:
        rng = np.random.default_rng(seed)
        values = {name: pa.array(rng.integers(0, 2**40, 2000)) for name in "abc"}
        members = [pa.field(name, pa.int64(), nullable=False) for name in order]
        array = pa.StructArray.from_arrays([values[name] for name in order], fields=members)
        metadata = {"lance-encoding:packed": "true"}
        field = pa.field("s", array.type, nullable=False, metadata=metadata)
        return pa.table([array], schema=pa.schema([field]))

    for seed in (0, 1):
        made = glaive.write_dataset(rows("abc", seed), tmp_path / "t", mode="append")
    snapshot = Snapshot(LocalStore(made.uri), made.manifest, Session())
    (packed,) = snapshot.manifest.schema.fields
    turned = replace(packed, children=tuple(reversed(packed.children)))
    schema = replace(snapshot.manifest.schema, fields=(turned,))
    change = Project(schema=schema, preserves_nullability=True)
    commit_operation(made._at, change)  # noqa: SLF001  # drop_columns does not reorder members
    made = glaive.dataset(made.uri)
    for seed in (2, 3):
        made = glaive.write_dataset(rows("cba", seed), made, mode="append")
    whole = made.to_table()
    opened = glaive.dataset(made.uri)
    for wanted in ([4007, 6001], [4007, 6001, 3], [1, 2001, 4001, 6001]):
        assert opened.take(wanted).equals(whole.take(pa.array(wanted)))


def test_a_fragment_alone_is_joined_once_takes_have_met_it_four_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that takes once does not load the modules for it."""
    monkeypatch.setattr(small, "_KEPT_BYTES", 0)
    made = glaive.write_dataset(pa.table(columns(3000)).select(["number", "text"]), tmp_path / "t")
    rows = list(range(5, 3000, 50))
    assert joined_counts(made, *[rows] * 3) == {}
    assert joined_counts(made, *[rows] * 6) == {"rows_taken_joined": 3 * len(rows)}
