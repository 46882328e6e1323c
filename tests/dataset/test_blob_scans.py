"""Scans of blob columns as values: how much of them is in memory at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive import Blob, blob_array, blob_field
from glaive.dataset.dataset import LanceDataset
from glaive.io.access import open_store
from glaive.table.load import open_latest
from glaive.testing import CountingStore

ROWS = 60
MEGABYTE = 1 << 20


def nested(shape: str) -> pa.Table:
    """A megabyte in each row."""
    field, values = blob_field("b"), blob_array([bytes([row]) * MEGABYTE for row in range(ROWS)])
    column: Any = values
    if shape == "struct":
        column = pa.StructArray.from_arrays([values], fields=[field])
    elif shape == "list":
        column = pa.ListArray.from_arrays(list(range(0, ROWS + 1, 2)), values, pa.list_(field))
    kind = field if shape == "plain" else pa.field("b", column.type)
    return pa.table([column], schema=pa.schema([kind]))


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("shape", ["plain", "struct", "list"])
def test_values_are_read_some_megabytes_at_a_time(tmp_path: Path, shape: str) -> None:
    made = glaive.write_dataset(nested(shape), tmp_path / "t", data_storage_version="2.2")
    assert len(made.get_fragments()) == 1
    read = []
    for batch in made.scanner(blob_handling="all_binary").to_batches():
        assert batch.nbytes < 24 * MEGABYTE
        column = batch.column("b")
        flat = column if shape == "plain" else column.flatten()
        read += [
            bytes(value)
            for part in (flat[0] if shape == "struct" else flat,)
            for value in part.to_pylist()
        ]
    assert [(value[0], len(value)) for value in read] == [(row, MEGABYTE) for row in range(ROWS)]


def test_values_that_lie_elsewhere_make_no_short_portions_of_a_compaction(tmp_path: Path) -> None:
    media = tmp_path / "media.bin"
    with media.open("wb") as file:
        file.truncate(64 * MEGABYTE)  # sparse: nothing reads it
    blob = Blob.from_uri(media.as_uri(), position=0, size=64 * MEGABYTE)
    uris = pa.table([blob_array([blob] * ROWS)], schema=pa.schema([blob_field("b")]))
    place = tmp_path / "t"
    for mode in ("create", "append"):
        glaive.write_dataset(
            uris,
            place,
            mode=mode,
            data_storage_version="2.2",
            allow_external_blob_outside_bases=True,
        )
    store = CountingStore(open_store(place))
    LanceDataset.of(store, open_latest(store)).optimize.compact_files()
    found = glaive.dataset(place, allow_external_blobs=True)
    assert len(found.get_fragments()) == 1
    assert found.take_blobs("b", indices=[ROWS])[0].size() == 64 * MEGABYTE
    assert store.requests < ROWS


@pytest.mark.parametrize(
    "extension",
    [
        {"name": "arrow.opaque", "metadata": '{"type_name": "a", "vendor_name": "b"}'},
        {"name": "lance.blob.v2"},
    ],
)
def test_descriptions_are_no_values_of_the_extension_type_of_a_column(
    tmp_path: Path, extension: dict[str, str]
) -> None:
    said = {f"ARROW:extension:{key}": value for key, value in extension.items()}
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true", **said})
    rows = pa.table([pa.array([b"x", None, b"yy"], pa.large_binary())], schema=pa.schema([field]))
    made = glaive.write_dataset(rows, tmp_path / "t", data_storage_version="2.1")
    kept = made.to_table()
    assert kept.schema.field("b").metadata == {b"lance-encoding:blob": b"true"}
    assert kept["b"].combine_chunks().field("size").to_pylist() == [1, 0, 2]
    assert [one.readall() for one in made.take_blobs("b", indices=[0, 2])] == [b"x", b"yy"]
