"""Merges whose source exceeds the memory limit do what the others do, and leave no file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import glaive
from glaive.errors import OptionError, SchemaError, StoreError

Clauses = Callable[[Any], Any]
MERGES: dict[str, Clauses] = {
    "upsert": lambda b: b.when_matched_update_all().when_not_matched_insert_all(),
    "update": lambda b: b.when_matched_update_all(),
    "insert": lambda b: b.when_not_matched_insert_all(),
    "delete": lambda b: b.when_matched_delete(),
    "fail": lambda b: b.when_matched_fail().when_not_matched_insert_all(),
    "swap": lambda b: b.when_matched_delete().when_not_matched_insert_all(),
    "replace": lambda b: (
        b.when_matched_update_all()
        .when_not_matched_insert_all()
        .when_not_matched_by_source_delete()
    ),
    "prune": lambda b: b.when_not_matched_by_source_delete("w > 20"),
    "newer": lambda b: b.when_matched_update_all(
        "source.w > target.w OR target._rowaddr % 3 = 0"
    ).when_not_matched_insert_all(),
    "columns": lambda b: b.when_matched_update_all().write_mode("rewrite_columns"),
}
KEYS = {"id": ["id"], "name": ["name"], "both": ["name", "id"]}
LIMIT = 50_000
"""Bytes: much less than the sources below, so that they take several blocks."""


def make(rows: int, seed: int, *, distinct: int, nulls: float) -> pa.Table:
    """Rows with keys below ``distinct``, or each once if that is 0."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, distinct, rows) if distinct else rng.permutation(4 * rows)[:rows]
    missing = rng.random(rows) < nulls
    return pa.table(
        {
            "id": pa.array(ids, mask=missing),
            "name": pa.array([f"name {at}" for at in ids], mask=rng.random(rows) < nulls),
            "w": rng.integers(0, 40, rows),
            "s": [{"x": int(at), "l": [int(at)] * (at % 3)} for at in ids],
        }
    )


def in_batches(table: pa.Table, rows: int = 700) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=rows))


def merged(
    target: pa.Table, path: Path, keys: list[str], clauses: Clauses, source: Any, **options: Any
) -> Any:
    """The rows in order, their ids, and the counts; or the kind of error."""
    limit = options.pop("limit")
    dataset = glaive.write_dataset(target, path, max_rows_per_file=900, **options)
    dataset.delete("w = 7")
    builder = clauses(dataset.merge_insert(keys)).memory_limit(limit)
    try:
        counts = builder.execute(source)
    except SchemaError as error:
        # Several keys may be wrong: the one that is named depends on the order of the matches.
        return re.sub(r"(name|id) = ('name \d+'|\d+)", r"\1", str(error)).partition("(")[0]
    columns = [*target.schema.names, *(["_rowid"] if options.get("enable_stable_row_ids") else [])]
    return counts, dataset.to_table(columns=columns).to_pylist()


@pytest.mark.sampled(every=10)
@pytest.mark.parametrize("clauses", MERGES)
@given(
    seed=st.integers(0, 2**32),
    rows=st.sampled_from([0, 1, 1500, 5000]),
    distinct=st.sampled_from([0, 0, 3000]),
    nulls=st.sampled_from([0, 0.2]),
    on=st.sampled_from(sorted(KEYS)),
    lacks=st.booleans(),
    stable=st.booleans(),
)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_source_on_disk_is_merged_as_one_in_memory(
    clauses: str,
    seed: int,
    rows: int,
    distinct: int,
    nulls: float,
    on: str,
    lacks: bool,
    stable: bool,
) -> None:
    target = make(2500, seed + 1, distinct=0, nulls=nulls)
    source = make(rows, seed, distinct=distinct, nulls=nulls)
    if lacks or clauses == "columns":
        source = source.select(["name", "w", "id"])
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for at, (given_rows, limit) in enumerate([(source, "1GB"), (in_batches(source), LIMIT)]):
            path = Path(folder) / str(at)
            options: Any = {"enable_stable_row_ids": stable, "limit": limit}
            results.append(merged(target, path, KEYS[on], MERGES[clauses], given_rows, **options))
    assert results[0] == results[1]


def test_a_key_given_twice_far_apart_is_refused_if_it_matches(tmp_path: Path) -> None:
    dataset = glaive.write_dataset({"id": [5], "w": [0]}, tmp_path / "d")
    source = pa.table({"id": [5, *range(10_000, 20_000), 5], "w": [1] * 10_002})
    upsert = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    with pytest.raises(SchemaError, match=r"several rows of the source .*id = 5"):
        upsert.memory_limit(LIMIT).execute(in_batches(source))
    assert dataset.version == 1
    insert = dataset.merge_insert("id").when_not_matched_insert_all().memory_limit(LIMIT)
    assert insert.execute(in_batches(source))["num_inserted_rows"] == 10_000


@pytest.mark.parametrize("mode", ["rewrite_rows", "rewrite_columns"])
def test_the_condition_chooses_one_of_the_rows_of_a_key_far_apart(
    mode: Any, tmp_path: Path
) -> None:
    dataset = glaive.write_dataset({"id": [5, 6], "w": [3, 3], "v": [1, 2]}, tmp_path / "d")

    def update(first: int, last: int) -> int:
        keys, weights = [5, *range(10_000, 30_000), 5], [first, *[9] * 20_000, last]
        builder = dataset.merge_insert("id").when_matched_update_all("source.w > target.w")
        builder = builder.write_mode(mode).memory_limit(LIMIT)
        counts = builder.execute(in_batches(pa.table({"id": keys, "w": weights})))
        return counts["num_updated_rows"]

    assert (update(1, 4), update(5, 1), update(5, 5)) == (1, 1, 0)
    with pytest.raises(SchemaError, match=r"several rows of the source .*id = 5"):
        update(6, 7)
    rows = sorted(dataset.to_table().to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 5, "w": 5, "v": 1}, {"id": 6, "w": 3, "v": 2}]


@pytest.mark.parametrize(
    "kind",
    [
        pa.dictionary(pa.int8(), pa.string()),
        pa.json_(),
        pa.large_list(pa.string()),
        pa.string_view(),
    ],
    ids=str,
)
def test_values_of_all_kinds_come_back_from_disk(tmp_path: Path, kind: pa.DataType) -> None:
    texts: Any = [None if at % 7 == 0 else f'{{"a":{at % 5}}}' for at in range(4000)]
    if pa.types.is_large_list(kind):
        texts = [None if text is None else [text, None] for text in texts]
    column = pa.array(texts).cast(pa.string()) if not pa.types.is_large_list(kind) else texts
    values = (
        column.dictionary_encode().cast(kind)
        if pa.types.is_dictionary(kind)
        else pa.ExtensionArray.from_storage(kind, column)
        if isinstance(kind, pa.BaseExtensionType)
        else pa.array(column, kind)
        if isinstance(column, list)
        else column.cast(kind)
    )
    rows = pa.table({"id": range(4000), "c": values})
    results = []
    for name, source, limit in (("a", rows, "1GB"), ("b", in_batches(rows), LIMIT)):
        dataset = glaive.write_dataset(rows.slice(0, 2000), tmp_path / name)
        upsert = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        upsert.memory_limit(limit).execute(source)
        results.append(dataset.to_table())
    assert results[0].equals(results[1])
    assert results[0].column("c").to_pylist() == rows.column("c").to_pylist()


# --------------------------------------------------------------------- files


def open_files(folder: Path) -> list[str]:
    """Files in a folder that are there, or that this process holds open without a name."""
    found = list(map(str, folder.iterdir()))
    links = Path("/proc/self/fd")
    if links.exists():
        for link in links.iterdir():
            try:
                path = str(link.readlink())
            except OSError:  # the one through which the folder was listed
                continue
            found += [path] if path.startswith(str(folder)) else []
    return found


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


class StopError(Exception):
    """What a source raises."""


@pytest.mark.parametrize("end", [None, StopError, KeyboardInterrupt, SchemaError])
def test_the_temporary_file_is_removed_however_a_merge_ends(
    tmp_path: Path, temporary: Path, end: type[BaseException] | None
) -> None:
    table = make(4000, 1, distinct=0, nulls=0)
    dataset = glaive.write_dataset(table, tmp_path / "d")
    seen: list[list[str]] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in table.to_batches(max_chunksize=500):
            yield batch
            seen.append(open_files(temporary))
        if end in (StopError, KeyboardInterrupt):
            assert end is not None
            raise end

    builder = dataset.merge_insert("id").when_not_matched_insert_all().memory_limit(LIMIT)
    builder = builder.when_matched_fail() if end is SchemaError else builder
    if end is None:
        builder.execute(batches())
    else:
        with pytest.raises(end):
            builder.execute(batches())
    if sys.platform == "linux":
        assert not seen[0]
        assert seen[-1]
    assert not open_files(temporary)
    assert dataset.count_rows() == 4000


def test_small_sources_are_not_written_to_disk(tmp_path: Path, temporary: Path) -> None:
    table = make(4000, 1, distinct=0, nulls=0)
    dataset = glaive.write_dataset(table, tmp_path / "d")
    temporary.rmdir()  # a file in it would fail
    merge = dataset.merge_insert("id").when_matched_update_all()
    assert merge.execute(in_batches(table))["num_updated_rows"] == 4000
    assert merge.memory_limit(LIMIT).execute(table)["num_updated_rows"] == 4000
    with pytest.raises(StoreError, match=r"memory_limit.*TMPDIR"):
        merge.execute(in_batches(table))


def test_a_full_disk_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="limits of POSIX")
    path = tmp_path / "d"
    glaive.write_dataset({"id": [1], "w": [1]}, path)
    script = f"""
import resource, pyarrow as pa, glaive
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, {resource.RLIM_INFINITY}))
rows = pa.table({{"id": range(1 << 20), "w": range(1 << 20)}})
source = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=65536))
merge = glaive.dataset({str(path)!r}).merge_insert("id").when_not_matched_insert_all()
try:
    merge.memory_limit("1MB").execute(source)
except glaive.errors.StoreError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "cannot write rows of the source, which exceed memory_limit" in done.stdout
    assert glaive.dataset(path).version == 1


# ----------------------------------------------------------------- conflicts


@pytest.mark.parametrize("limit", ["1GB", LIMIT])
def test_a_merge_that_lost_a_race_reads_its_source_again(tmp_path: Path, limit: int | str) -> None:
    table = make(4000, 1, distinct=0, nulls=0)
    dataset = glaive.write_dataset(table, tmp_path / "d", max_rows_per_file=1500)
    last = int(table.column("id")[3999].as_py())

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table.slice(0, 3000).to_batches(max_chunksize=500)
        other = glaive.dataset(tmp_path / "d")
        other.update({"w": "-1"}, where="w < 20")  # rows that are merged, too
        yield from table.slice(3000).to_batches(max_chunksize=500)

    upsert = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    counts = upsert.memory_limit(limit).execute(batches())
    assert counts == {"num_inserted_rows": 0, "num_updated_rows": 4000, "num_deleted_rows": 0}
    assert dataset.version == 3
    rows = dataset.to_table().sort_by("id")
    assert rows.equals(table.sort_by("id"))
    assert dataset.count_rows(filter=f"id = {last}") == 1


# ------------------------------------------------------------------- options


@pytest.mark.parametrize("limit", [0, -5, True, None, 1.5, "", "many", "0MB", "3 bushels", "1e9"])
def test_limits_that_are_no_size_are_refused(tmp_path: Path, limit: Any) -> None:
    dataset = glaive.write_dataset({"id": [1]}, tmp_path / "d")
    with pytest.raises(OptionError, match="memory_limit: expected a number of bytes"):
        dataset.merge_insert("id").memory_limit(limit)


def test_the_setting_is_read_from_the_environment() -> None:
    def limit(text: str) -> str:
        script = "from glaive.config import settings; print(settings.memory_limit)"
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "GLAIVE_MEMORY_LIMIT": text},
            capture_output=True,
            text=True,
            check=False,
        )
        return (done.stdout or done.stderr).strip().splitlines()[-1]

    assert [limit(text) for text in ("2GB", "512 MiB", "1.5kb", "77")] == [
        "2000000000", str(512 * 1024**2), "1500", "77",
    ]  # fmt: skip
    for text in ("2 GX", str(2**63)):
        expected = "OptionError: GLAIVE_MEMORY_LIMIT: expected a number of bytes from 1 to 2^63 - 1"
        assert expected in limit(text)


def test_the_report_says_whether_the_source_was_on_disk(tmp_path: Path) -> None:
    table = make(4000, 1, distinct=0, nulls=0)
    merge = glaive.write_dataset(table, tmp_path / "d").merge_insert("id").when_matched_update_all()
    assert "source_on_disk: no" in merge.analyze_plan(in_batches(table))
    assert "source_on_disk: yes" in merge.memory_limit(LIMIT).analyze_plan(in_batches(table))


def test_rows_matched_from_several_blocks_are_not_taken_for_unmatched(tmp_path: Path) -> None:
    dataset = glaive.write_dataset({"id": [5, 6], "w": [0, 0]}, tmp_path / "d")
    source = pa.table({"id": [5, *range(10_000, 20_000), 5], "w": [1] * 10_002})
    merge = dataset.merge_insert("id").when_not_matched_by_source_delete().memory_limit(LIMIT)
    assert merge.execute(in_batches(source))["num_deleted_rows"] == 1
    assert dataset.to_table().column("id").to_pylist() == [5]


def test_a_table_in_memory_stays_there_whatever_its_order_and_nullability(
    tmp_path: Path, temporary: Path
) -> None:
    temporary.rmdir()  # a file in it would fail
    strict = pa.schema([pa.field("id", pa.int64(), False), pa.field("w", pa.int64())])
    dataset = glaive.write_dataset(pa.table({"id": [1], "w": [1]}, strict), tmp_path / "d")
    source = pa.table({"w": range(20_000), "id": range(20_000)})
    merge = dataset.merge_insert("id").when_not_matched_insert_all().memory_limit(LIMIT)
    assert merge.execute(source)["num_inserted_rows"] == 19_999
