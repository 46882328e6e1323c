"""Messages of Arrow whose offsets are wild: pyarrow hands them on, and no query ends by them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError

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
