"""Values of blobs lie in a file as if each were written alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from glaive.blob import blob_array, blob_field
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glaive.errors import SchemaError
from glaive.file.blob_writer import BlobFiles
from glaive.file.blobs import BlobValues
from glaive.file.files import LanceFileWriter
from glaive.format.paths import blob_file_path
from glaive.io.local import LocalStore
from glaive.io.wrapped import AlignedSink

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


def blob_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes()[:1] for path in sorted(folder.iterdir())}


@pytest.mark.spec("blob-file-4")
def test_a_file_that_is_given_up_leaves_the_blobs_of_the_one_of_its_name(tmp_path: Path) -> None:
    schema = pa.schema([blob_field("b")])
    path = tmp_path / "x.lance"

    def batch(value: bytes) -> pa.RecordBatch:
        return pa.record_batch([blob_array([value * (5 << 20), value * (1 << 18)])], schema=schema)

    with LanceFileWriter(path, schema) as writer:
        writer.write_batch(batch(b"a"))
    before = blob_files(tmp_path / "x")
    assert set(before.values()) == {b"a"}
    given_up = LanceFileWriter(path, schema)
    given_up.write_batch(batch(b"b"))
    assert blob_files(tmp_path / "x").items() >= before.items()
    given_up.abort()
    assert blob_files(tmp_path / "x") == before
    with LanceFileWriter(path, schema) as writer:
        writer.write_batch(batch(b"b"))
    after = blob_files(tmp_path / "x")
    assert set(after.values()) == {b"b"}
    assert not before.keys() & after.keys()


@pytest.mark.spec("sec-6", "blob-file-4")
def test_no_blob_file_behind_a_link_is_replaced_or_deleted(tmp_path: Path) -> None:
    schema = pa.schema([blob_field("b")])
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    names = [Path(blob_file_path("x.lance", number)).name for number in (1, 2)]
    for name in names:
        (theirs / name).write_bytes(b"precious")
    (tmp_path / "x").symlink_to(theirs)
    for complete in (False, True):
        with LanceFileWriter(tmp_path / "x.lance", schema) as writer:
            values = blob_array([b"b" * (5 << 20)])
            writer.write_batch(pa.record_batch([values], schema=schema))
            if not complete:
                writer.abort()
        assert [(theirs / name).read_bytes() for name in names] == [b"precious"] * 2
