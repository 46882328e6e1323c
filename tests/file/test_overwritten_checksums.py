"""Files with checksums whose bytes were overwritten in runs, such as a sector that a disk lost.

A run may hold the checksums as a whole: what leads to them is still there then.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import CorruptFileError, GlaiveError
from glaive.file.files import compare_file
from glaive.file.open import open_reader
from glaive.io.access import open_store
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore
from glaive.io.wrapped import WrappedStore
from glaive.table.load import open_latest

ON = {"checksums": "true"}
ROWS = 50
KINDS = {
    "BTREE": "id", "BITMAP": "id", "ZONEMAP": "id", "BLOOMFILTER": "id", "NGRAM": "text",
    "LABEL_LIST": "labels", "INVERTED": "text", "IVF_PQ": "vector", "IVF_HNSW_SQ": "vector",
}  # fmt: skip


class Remote(WrappedStore):
    """A store that says that its bytes go over a network."""

    is_remote = True


def rows() -> pa.Table:
    vectors = np.random.default_rng(1).random(ROWS * 8, np.float32)
    return pa.table(
        {
            "id": np.arange(ROWS) * 977 % 61,
            "text": [f"word{at % 7} and {at}" for at in range(ROWS)],
            "labels": [[at % 3, at % 5] for at in range(ROWS)],
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 8),
        }
    )


def overwritten(data: bytes, place: slice, trials: int) -> Iterator[tuple[slice, bytes]]:
    """The data with a run overwritten: by zeros, ones, any bytes, or those of another place.

    Most runs end behind the begin of the checksums, which have a ``place``; some are just these,
    and some end in the tables and the footer.
    """
    chance = random.Random(len(data))
    for _ in range(trials):
        size = chance.choice([8, 16, 24, 32, 40, 64, 96, 200, 512, 1024, 4096])
        at = chance.choice(
            [
                chance.randrange(len(data) - 8),
                chance.randrange(max(0, place.start - size), len(data) - 8),
                place.start,
                max(0, place.stop - size),
                max(0, len(data) - 40 + chance.choice([-16, 0, 8, 16, 24, 32, 36]) - size),
            ]
        )
        size = min(size, len(data) - at)
        other = chance.randrange(len(data) - size + 1)
        ways = [bytes(size), b"\xff" * size, chance.randbytes(size), data[other : other + size]]
        yield slice(at, at + size), data[:at] + chance.choice(ways) + data[at + size :]


def opened(path: Path) -> Any:
    return open_reader(LocalStore(path.parent), path.name, verify="always")


def content(path: Path) -> list[Any]:
    """The rows of a file, and its global buffers but the schema and the checksums."""
    file = opened(path)
    columns = file.bind(file.schema.fields).read(0, file.num_rows) if file.schema.fields else []
    numbers = range(1, file.container.footer.global_buffers - 1)
    others = [file.container.global_buffer(number).to_pybytes() for number in numbers]
    return [file.num_rows, file.schema.to_arrow(), file.schema.metadata, columns, others]


def place_of_checksums(path: Path) -> slice:
    start, size = opened(path).container.global_ranges()[-1]
    return slice(start, start + size)


def refused_runs(path: Path, trials: int) -> int:
    """How many of some overwritten runs are errors; all others change no value."""
    data, right, place = path.read_bytes(), content(path), place_of_checksums(path)
    refused = 0
    for run, damaged in overwritten(data, place, trials):
        path.write_bytes(damaged)
        try:
            found = content(path)
        except GlaiveError:
            refused += 1
            continue
        assert found == right, f"bytes {run.start} to {run.stop} changed a value"
    path.write_bytes(data)
    return refused


@pytest.mark.sampled(every=2)
@pytest.mark.spec("checksum-4", "rel-28", "rel-49")
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_an_overwritten_run_of_a_data_file_is_an_error_or_changes_no_value(
    tmp_path: Path, version: str
) -> None:
    glaive.write_dataset(rows(), tmp_path, data_storage_version=version, storage_options=ON)
    (path,) = tmp_path.glob("data/*.lance")
    assert refused_runs(path, 300) > 200


@pytest.mark.sampled(every=4)
@pytest.mark.spec("checksum-4", "rel-34")
@pytest.mark.parametrize("kind", KINDS)
def test_an_overwritten_run_of_an_index_file_is_an_error_or_changes_no_value(
    tmp_path: Path, kind: str
) -> None:
    dataset = glaive.write_dataset(rows(), tmp_path, storage_options=ON)
    if kind.startswith("IVF"):
        given: dict[str, Any] = {"num_sub_vectors": 2} if kind == "IVF_PQ" else {}
        dataset.create_index(KINDS[kind], kind, num_partitions=2, **given)
    else:
        dataset.create_scalar_index(KINDS[kind], kind)
    files = [path for path in (tmp_path / "_indices").rglob("*.*") if path.is_file()]
    assert files
    for path in files:
        assert refused_runs(path, 120) > 80, path.name


@pytest.mark.spec("checksum-4", "rel-28", "rel-49")
def test_checksums_that_are_overwritten_as_a_whole_are_damage(tmp_path: Path) -> None:
    glaive.write_dataset(rows(), tmp_path, storage_options=ON)
    (path,) = tmp_path.glob("data/*.lance")
    place = place_of_checksums(path)
    data = bytearray(path.read_bytes())
    data[place] = bytes(place.stop - place.start)
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match="checksums of a file"):
        compare_file(LocalStore(path.parent), path.name)
    with pytest.raises(CorruptFileError, match="checksums of a file"):
        glaive.dataset(tmp_path, verify=True).to_table()
    assert glaive.dataset(tmp_path, verify=False).to_table() == rows()


@pytest.mark.spec("checksum-4", "rel-29")
@pytest.mark.parametrize("files", [1, 16])
def test_overwritten_checksums_are_noticed_in_what_was_fetched_over_a_network(
    tmp_path: Path, files: int
) -> None:
    glaive.write_dataset(rows(), tmp_path, storage_options=ON, max_rows_per_file=-(-ROWS // files))
    path = min(tmp_path.glob("data/*.lance"))
    place = place_of_checksums(path)
    data = bytearray(path.read_bytes())
    data[place] = bytes(place.stop - place.start)
    path.write_bytes(data)
    store: ObjectStore = Remote(open_store(str(tmp_path)))
    with pytest.raises(CorruptFileError, match="checksums of a file"):
        glaive.LanceDataset.of(store, open_latest(store)).to_table()


@pytest.mark.spec("global-1")
def test_a_file_whose_table_has_lost_the_schema_is_damaged(tmp_path: Path) -> None:
    """It would have no columns and no rows."""
    glaive.write_dataset(rows(), tmp_path, storage_options={"checksums": "false"})
    (path,) = tmp_path.glob("data/*.lance")
    table = opened(path).container.footer.global_table
    data = bytearray(path.read_bytes())
    data[table : table + 16] = bytes(16)
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match="expected a schema"):
        _ = opened(path).num_rows


@pytest.mark.parametrize("checksums", ["true", "false"])
def test_a_last_global_buffer_of_somebody_else_is_not_taken_for_checksums(
    tmp_path: Path, checksums: str
) -> None:
    """It lies before the schema, whatever its size; so do those of other writers."""
    path = tmp_path / "a.lance"
    for size in (0, 36, 56, 64, 120):
        given = {"storage_options": {"checksums": checksums}}
        with glaive.file.LanceFileWriter(str(path), rows().schema, **given) as writer:
            writer.write_batch(rows())
            writer.add_global_buffer(bytes(size))
        assert content(path)[0] == ROWS
        assert (opened(path).container.checksums is not None) is (checksums == "true")


@pytest.mark.interop
def test_files_of_pylance_with_global_buffers_have_no_checksums(tmp_path: Path) -> None:
    from lance.file import LanceFileWriter

    path = tmp_path / "a.lance"
    for size in (1, 36, 52, 64, 120):
        with LanceFileWriter(str(path), rows().schema) as writer:
            writer.write_batch(rows())
            writer.add_global_buffer(bytes(size))
        assert content(path)[0] == ROWS
        assert opened(path).container.checksums is None
