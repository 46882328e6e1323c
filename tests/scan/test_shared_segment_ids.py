"""Segments with one id: each has the rows of its own files, whatever another one has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.dataset.test_claimed_rows import rewrite

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.format.bitmaps import bitmap_of
from glaive.format.manifest import encode_manifest
from glaive.format.pb import table_pb2

FEW, ALL = 10, 2000
NEAREST = {"column": "vector", "q": [0.0, 0.0], "k": ALL}


def rows(first: int, end: int) -> pa.Table:
    vectors = pa.array(range(2 * first, 2 * end), pa.float32())
    texts = [f"word {at}" for at in range(first, end)]
    vector = pa.FixedSizeListArray.from_arrays(vectors, 2)
    return pa.table({"id": range(first, end), "text": texts, "vector": vector})


def build(dataset: LanceDataset, column: str) -> None:
    if column == "text":
        dataset.create_scalar_index("text", "INVERTED", name="found")
    else:
        dataset.create_index("vector", "IVF_FLAT", num_partitions=1, name="found")


def section(place: Path) -> Any:
    found = glaive.dataset(place).manifest.index_section
    return table_pb2.IndexSection.FromString(found or b"")


def put_section(place: Path, indices: Any) -> None:
    manifest = glaive.dataset(place).manifest
    pieces = encode_manifest(
        manifest.complete_wire,
        transaction=manifest.transaction or b"",
        index_section=indices.SerializeToString(),
    )
    Path(manifest.where).write_bytes(b"".join(map(bytes, map(memoryview, pieces))))


@pytest.fixture(params=["text", "vector"])
def column(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(tmp_path: Path, column: str) -> Path:
    """A dataset with a segment for each of two fragments, the second one below a base path."""
    place, base = tmp_path / "t.lance", tmp_path / "base"
    build(glaive.write_dataset(rows(0, FEW), place), column)
    glaive.write_dataset(rows(FEW, ALL), place, mode="append")
    for part in (rows(0, FEW), rows(FEW, ALL)):
        glaive.write_dataset(part, base, mode="append")
    build(glaive.dataset(base), column)
    (own,), (other,) = place.glob("_indices/*"), base.glob("_indices/*")
    other.rename(other.with_name(own.name))

    def add_base(wire: Any, _: Any) -> None:
        wire.base_paths.add(id=1, path=str(base), is_dataset_root=True)

    rewrite(place, add_base)
    indices, further = section(place), section(base).indices[0]
    further.uuid.CopyFrom(indices.indices[0].uuid)
    further.base_id = 1
    further.fragment_bitmap = bitmap_of(np.array([1], np.uint32))
    indices.indices.append(further)
    put_section(place, indices)
    return place


@pytest.mark.spec("rel-42")
def test_two_segments_with_one_id_are_searched_each_with_the_rows_of_its_own(
    place: Path, column: str
) -> None:
    """The rows of the first one stood for those of the second, which has more."""
    dataset = glaive.dataset(place)
    query: dict[str, Any] = {"nearest": NEAREST}
    if column == "text":
        query = {"full_text_query": "word", "limit": ALL}
    for _ in range(2):
        found = dataset.to_table(columns=["id"], **query)
        assert sorted(found["id"].to_pylist()) == list(range(ALL))


@pytest.mark.spec("rel-42")
def test_a_dataset_that_leaves_out_files_of_a_segment_takes_no_rows_from_another_in_a_session(
    tmp_path: Path,
) -> None:
    place, clone = tmp_path / "t.lance", tmp_path / "clone"
    dataset = glaive.write_dataset(rows(0, ALL), place)
    dataset.create_scalar_index("text", "FM")
    dataset.shallow_clone(clone, dataset.version)
    indices = section(clone)
    indices.indices[0].files[0].path = "other.lance"
    put_section(clone, indices)
    session = glaive.Session()
    found = [
        glaive.dataset(path, session=session).to_table(filter="contains(text, 'word')").num_rows
        for path in (clone, place)
    ]
    assert found == [0, ALL]
