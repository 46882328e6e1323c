"""Values of blobs lie in a file as if each were written alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glaive.errors import SchemaError
from glaive.file.v2.blob_files import BlobFiles
from glaive.file.v2.writing.blob_values import BlobValues
from glaive.format.paths import blob_file_path
from glaive.io.local import LocalStore
from glaive.io.sink import AlignedSink

SIZES = st.lists(st.sampled_from([0, 1, 63, 64, 65, 5000, 32_768, 32_769, 100_000]), max_size=12)


@given(SIZES, st.integers(0, 3), st.integers(0, 2**32))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_value_begins_at_its_position(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], skipped: int, seed: int
) -> None:
    store = LocalStore(tmp_path_factory.mktemp("blobs"))
    rng = np.random.default_rng(seed)
    texts = [rng.integers(0, 256, size, np.uint8).tobytes() for size in sizes]
    valid = rng.random(len(sizes)) < 0.8
    column = pa.array([b"before"] * skipped + texts, pa.large_binary()).slice(skipped)
    values = BlobValues.of(column, valid)
    written = [text if flag else b"" for text, flag in zip(texts, valid.tolist(), strict=True)]
    one, many = AlignedSink(store.create("one")), AlignedSink(store.create("many"))
    for sink in (one, many):
        sink.write([b"abc"])
    expected = [part.offset for part in one.write_aligned(written)]
    assert values.write(many).tolist() == expected
    for sink in (one, many):
        sink.write_aligned([b"after"])
        sink.finish()
    assert store.get("many").equals(store.get("one"))
    assert [bytes(values[row]) for row in range(len(sizes))] == written


@given(SIZES, st.integers(1, 200_000), st.integers(0, 2**32))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_packed_files_are_filled_as_if_each_value_were_put_alone(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, seed: int
) -> None:
    store = LocalStore(tmp_path_factory.mktemp("packed"))
    rng = np.random.default_rng(seed)
    sizes = [max(size, 1) for size in sizes]
    texts = [rng.integers(0, 256, size, np.uint8).tobytes() for size in sizes]
    values = BlobValues.of(pa.array(texts, pa.large_binary()), None)
    # Values that do not lie side by side in memory, too.
    rows = np.flatnonzero(rng.random(len(sizes)) < 0.7)
    wanted, number, position = [], 0, limit
    for row in rows.tolist():
        if not number or position + sizes[row] > limit:
            number, position = number + 1, 0
        wanted.append((number, position))
        position += sizes[row]
    files = BlobFiles(store, "data/00.lance")
    cut = int(rng.integers(0, len(rows) + 1))
    put = [files.put_packed(values.take(some), limit) for some in (rows[:cut], rows[cut:])]
    files.finish()
    numbers, positions = (np.concatenate(parts).tolist() for parts in zip(*put, strict=True))
    assert list(zip(numbers, positions, strict=True)) == wanted
    for row, number, position in zip(rows.tolist(), numbers, positions, strict=True):
        data = store.get(blob_file_path("data/00.lance", number))
        assert data.slice(position, sizes[row]).to_pybytes() == texts[row]


def test_offsets_that_leave_the_data_are_refused() -> None:
    offsets = pa.py_buffer(np.array([0, 5, 3], np.int64))
    column = pa.Array.from_buffers(pa.large_binary(), 2, [None, offsets, pa.py_buffer(b"abcdefgh")])
    with pytest.raises(SchemaError, match="must ascend within"):
        BlobValues.of(column, None)
