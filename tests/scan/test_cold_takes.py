"""Rows of files that are not in memory: what they need is asked for before any is waited for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.io.mapped import prefetch
from glaive.scan.projection import project
from glaive.scan.snapshot import Session, Snapshot
from glaive.scan.views import BoundProjection

from .cold_files import forget, needs_fadvise

ROWS = 12_000
FULL_ZIP = {"lance-encoding:structural-encoding": "fullzip"}


def make(first: int) -> pa.Table:
    numbers = range(first, first + ROWS)
    table = pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "some": pa.array([None if i % 7 == 0 else i for i in numbers], pa.int32()),
            "text": pa.array([f"text {i * 7919 % 10007}" for i in numbers]),
            "few": pa.array([f"word {i % 7}" for i in numbers]),
            "same": pa.array([first] * ROWS, pa.int64()),
            "wide": pa.array([None if i % 5 == 0 else f"{i} " * (40 + i % 9) for i in numbers]),
            "vector": pa.array([[i, i + 1.5] * 64 for i in numbers], pa.list_(pa.float32(), 128)),
            "tags": pa.array([list(range(i % 4)) for i in numbers], pa.list_(pa.int16())),
            "meta": pa.array([{"x": i, "y": None if i % 3 else str(i)} for i in numbers]),
        }
    )
    own_pages = table.schema.field("wide").with_metadata(FULL_ZIP)
    at = table.schema.get_field_index("wide")
    return table.cast(table.schema.set(at, own_pages))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> LanceDataset:
    path = tmp_path_factory.mktemp("cold")
    for at in range(3):
        made = glaive.write_dataset(make(at * ROWS), path / "t", mode="append")
    return made


@pytest.mark.sampled(every=2)
@needs_fadvise
@pytest.mark.parametrize("columns", [None, ["id"], ["tags", "meta"], ["vector", "_rowid"]])
def test_rows_of_cold_files_are_those_asked_for(
    dataset: LanceDataset, columns: list[str] | None
) -> None:
    rows = np.random.default_rng(3).integers(0, 3 * ROWS, 120).tolist()
    warm = glaive.dataset(dataset.uri).take(rows, columns)
    forget(dataset.uri)
    cold = glaive.dataset(dataset.uri)
    assert cold.take(rows, columns).equals(warm)
    forget(dataset.uri)
    assert cold.take(rows, columns).equals(warm)
    if columns is None:
        assert warm["id"].to_pylist() == rows


@pytest.mark.parametrize(
    "columns", [["id", "some", "same"], ["text", "few"], ["tags", "meta"], ["wide"]]
)
def test_what_a_take_needs_is_known(dataset: LanceDataset, columns: list[str]) -> None:
    manifest = dataset.manifest
    snapshot = Snapshot(dataset.store, manifest, Session())
    source = BoundProjection(snapshot, project(manifest.schema, columns))
    bound = source.fragment(1)
    rows = np.array([11_999, 0, 5, 5, 7000])
    assert bound.prefetch(rows)
    again = pa.Table.from_arrays(bound.take(rows), schema=source.schema)
    assert again.equals(dataset.take((rows + ROWS).tolist(), columns))


def test_places_that_are_not_mapped_do_no_harm() -> None:
    prefetch(np.array([[4096, 100]] * 40, np.int64))
    prefetch(np.empty((0, 2), np.int64))
