"""Messages of Arrow whose offsets are wild: pyarrow hands them on, and no writer ends by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError, SchemaError
from glaive.file import LanceFileWriter

ROWS = pa.table({"id": [1, 2, 3], "t": ["one", "two", "three"], "l": [[1], [2, 3], []]})


def stream_of(column: str) -> pa.RecordBatchReader:
    """The rows out of a message in which the first text or list ends far behind all others."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
    raw = sink.getvalue().to_pybytes()
    ends = b"".join(end.to_bytes(4, "little") for end in {"t": (3, 6, 11), "l": (1, 3, 3)}[column])
    assert raw.count(ends) == 1
    return pa.ipc.open_stream(raw.replace(ends, b"\xff\xff\xff\x3f" + ends[4:]))


@pytest.mark.spec("rel-56")
@pytest.mark.parametrize("version", ["0.1", "2.0", "2.2"])
@pytest.mark.parametrize("column", ["t", "l"])
def test_rows_with_wild_offsets_are_refused(tmp_path: Path, column: str, version: str) -> None:
    def written() -> Any:
        return glaive.write_dataset(
            stream_of(column), tmp_path / "new", data_storage_version=version
        )

    def file() -> None:
        with LanceFileWriter(tmp_path / "file.lance", ROWS.schema, version=version) as writer:
            writer.write_batch(stream_of(column).read_next_batch())

    def merged() -> Any:
        merge = glaive.dataset(tmp_path / "t").merge_insert("id")
        return merge.when_matched_update_all().execute(stream_of(column))

    ids = ROWS.select(["id"])
    glaive.write_dataset(ROWS, tmp_path / "t", data_storage_version=version)
    joined = glaive.write_dataset(ids, tmp_path / "ids", data_storage_version=version)
    ways: list[Any] = [
        written,
        file,
        merged,
        lambda: glaive.write_dataset(stream_of(column), tmp_path / "t", mode="append"),
        lambda: joined.merge(stream_of(column), "id"),
        lambda: joined.add_columns(stream_of(column).read_next_batch().select([column])),
    ]
    for way in ways:
        with pytest.raises(SchemaError, match=f"column '{column}' is no array"):
            way()
    assert glaive.dataset(tmp_path / "t").to_table().equals(ROWS)
    assert joined.checkout_version(1).to_table().equals(ids)


@pytest.mark.spec("rel-56")
@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_query_with_wild_offsets_is_refused(tmp_path: Path, in_chunks: bool) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, 3.0, 4.0]), 2)
    dataset = glaive.write_dataset(pa.table({"v": vectors}), tmp_path / "t")
    query = stream_of("l").read_all()["l"]
    with pytest.raises(
        OptionError, match=r"q: expected numbers, all vectors of one length: .*ffset"
    ):
        dataset.to_table(nearest={"column": "v", "q": query if in_chunks else query.chunk(0)})


@pytest.mark.spec("rel-56")
@pytest.mark.parametrize("in_chunks", [False, True])
def test_positions_with_wild_offsets_are_refused(tmp_path: Path, in_chunks: bool) -> None:
    dataset = glaive.write_dataset(ROWS, tmp_path / "t")
    texts = stream_of("t").read_all()["t"]
    with pytest.raises(OptionError, match=r"row positions: expected integers: .*ffset"):
        dataset.take(texts if in_chunks else texts.chunk(0))
    assert dataset.take(pa.array([2, 0]).dictionary_encode())["id"].to_pylist() == [3, 1]
