"""Texts that Parquet files have as numbers of few items reach the data files as such."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import glaive
from glaive.ingestion.columnar import Parquet
from glaive.ingestion.sources import Rejects, list_sources

ROWS = 30_000
CHOICES = ["DELIVER IN PERSON", "", "äöü", "TAKE BACK RETURN", "NONE"]
KINDS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()]


def texts(kind: Any, seed: int = 0, *, nulls: bool = False) -> Any:
    random = np.random.default_rng(seed)
    numbers = random.integers(0, len(CHOICES), ROWS)
    mask = random.random(ROWS) < 0.1 if nulls else None
    items = pa.array(CHOICES).take(pa.array(numbers, mask=mask))
    return items.cast(kind)


def written(path: Path, table: pa.Table, **options: Any) -> str:
    pq.write_table(table, path, row_group_size=9000, **options)
    return str(path)


def batches(path: str, schema: pa.Schema) -> list[Any]:
    source = Parquet({})
    (file,) = list_sources([path], None)
    (piece,) = source.pieces(file, 1 << 30)
    return list(source.read(piece, schema, Rejects(keep=False, job_id=None)))


def test_texts_of_few_items_come_as_dictionaries_and_others_plain(tmp_path: Path) -> None:
    columns = {
        "few": texts(pa.string()),
        "each its own": pa.array([f"text number {n}" for n in range(ROWS)]),
        "numbers": pa.array(np.arange(ROWS) % 3),
        "plain": texts(pa.string(), 1),
        "lists": pa.array([["a", "b"]] * ROWS),
    }
    table = pa.table(columns)
    encoded = [name for name in table.column_names if name != "plain"]
    path = written(tmp_path / "a.parquet", table, use_dictionary=encoded)
    found = batches(path, table.schema)
    kept = {name for batch in found for name in batch.schema.names
            if pa.types.is_dictionary(batch.schema.field(name).type)}  # fmt: skip
    assert kept == {"few"}
    parts = [
        pa.table({name: column.cast(table.schema.field(name).type) for name, column in
                  zip(batch.schema.names, batch.columns, strict=True)})
        for batch in found
    ]  # fmt: skip
    assert pa.concat_tables(parts) == table


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.3"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_kind_of_text_is_ingested_as_it_is(tmp_path: Path, kind: Any, version: str) -> None:
    table = pa.table({"few": texts(kind), "holes": texts(kind, 1, nulls=True), "n": range(ROWS)})
    path = written(tmp_path / "a.parquet", table)
    glaive.write_dataset(table[:0], tmp_path / "t.lance", data_storage_version=version)
    glaive.ingest(path, str(tmp_path / "t.lance"), mode="append")
    glaive.write_dataset(table, tmp_path / "other.lance", data_storage_version=version)
    dataset, other = (glaive.dataset(tmp_path / name) for name in ("t.lance", "other.lance"))
    assert dataset.schema == other.schema
    assert dataset.to_table() == other.to_table()
    if kind == pa.string():
        assert dataset.count_rows("few = 'NONE'") == other.count_rows("few = 'NONE'") > 0


def test_row_groups_may_have_different_items(tmp_path: Path) -> None:
    parts = [[f"{group}-{n % 7}" for n in range(9000)] for group in range(4)]
    table = pa.table({"few": [text for part in parts for text in part]})
    path = written(tmp_path / "a.parquet", table)
    glaive.ingest(path, str(tmp_path / "t.lance"))
    assert glaive.dataset(tmp_path / "t.lance").to_table() == table


PLAIN: dict[str, Any] = {"compression": "none", "write_statistics": False}


def test_numbers_of_items_that_do_not_exist_are_damage(tmp_path: Path) -> None:
    table = pa.table({"few": ["aaaa", "bbbb", "cccc"] * (ROWS // 3)})
    path = written(tmp_path / "a.parquet", table, **PLAIN)
    data = Path(path).read_bytes()
    numbers = bytes([0b00100100, 0b01001001, 0b10010010])
    assert data.count(numbers) > 3
    Path(path).write_bytes(data.replace(numbers, b"\xff\xff\xff"))
    with pytest.raises(glaive.errors.FormatError, match="row group 0 is damaged"):
        glaive.ingest(path, str(tmp_path / "t.lance"))


def test_a_column_of_nulls_is_ingested(tmp_path: Path) -> None:
    table = pa.table({"none": pa.nulls(ROWS, pa.string()), "few": texts(pa.string())})
    path = written(tmp_path / "a.parquet", table)
    glaive.ingest(path, str(tmp_path / "t.lance"))
    assert glaive.dataset(tmp_path / "t.lance").to_table() == table


def test_rows_are_tested_by_their_texts(tmp_path: Path) -> None:
    table = pa.table({"few": texts(pa.string()), "n": range(ROWS)})
    path = written(tmp_path / "a.parquet", table)
    glaive.ingest(path, str(tmp_path / "t.lance"), expect="few != 'NONE'", on_violation="drop")
    expected = table.filter(pa.compute.not_equal(table["few"], "NONE"))
    assert glaive.dataset(tmp_path / "t.lance").to_table() == expected


def test_columns_that_a_file_lacks_and_other_orders_do_not_disturb_dictionaries(
    tmp_path: Path,
) -> None:
    first = pa.table(
        {"n": range(ROWS), "few": texts(pa.large_string()), "x": texts(pa.string(), 2)}
    )
    written(tmp_path / "1.parquet", first)
    written(tmp_path / "2.parquet", first.select(["few", "n"]))
    glaive.ingest(str(tmp_path / "1.parquet"), str(tmp_path / "t.lance"))
    glaive.ingest(
        str(tmp_path / "2.parquet"), str(tmp_path / "t.lance"), mode="append", schema_drift="add"
    )
    found = glaive.dataset(tmp_path / "t.lance").to_table()
    missing = first.set_column(2, "x", pa.nulls(ROWS, pa.string()))
    assert found == pa.concat_tables([first, missing])


def test_bytes_that_are_to_be_strings_are_refused_as_before(tmp_path: Path) -> None:
    glaive.write_dataset(pa.table({"few": ["a"]}), tmp_path / "t.lance")
    path = written(tmp_path / "a.parquet", pa.table({"few": texts(pa.binary())}))
    with pytest.raises(glaive.errors.SchemaError, match="few"):
        glaive.ingest(path, str(tmp_path / "t.lance"), mode="append")


def test_files_are_as_small_as_those_of_plain_texts(tmp_path: Path) -> None:
    table = pa.table({"few": texts(pa.string()), "holes": texts(pa.string(), 1, nulls=True)})
    encoded = written(tmp_path / "a.parquet", table)
    plain = written(tmp_path / "b.parquet", table, use_dictionary=False)
    sizes = []
    for path in (encoded, plain):
        glaive.ingest(path, f"{path}.lance")
        (file,) = Path(f"{path}.lance", "data").iterdir()
        sizes.append(file.stat().st_size)
    assert sizes[0] <= sizes[1]
