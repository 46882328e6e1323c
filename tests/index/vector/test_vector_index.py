"""Vector indices made by hand: what is rebuilt, what is left alone, and what is damage."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.fragment import Fragment
from glaive.format.pb import index_pb2, table_pb2
from glaive.index.protocol import RebuiltSegment
from glaive.index.row_sets import AddressMap
from glaive.index.segment import IndexFile, Segment, SegmentWriter
from glaive.index.vector.coder import encoded_tensor
from glaive.index.vector.opened import LoadedPartition, OpenedVectorIndex
from glaive.index.vector.vector_index import VectorIndex
from glaive.io.access import open_store
from glaive.types import FormatVersion

VERSION = FormatVersion(2, 1)
LENGTHS = [4, 0, 2]
HEADER = {"entry_point": 3, "params": {"m": 2}, "level_offsets": [0, 4, 5]}
OVERFLOWING = [0, 4, 2**62, -(2**63) + 3, -(2**62) + 4, 5]
"""Levels that fall, though each step to the next one is above 0 in 64 bits."""
NODES = [[1, 2], [0], [0, 3], [2, 1], [], [1], [0]]
"""Neighbours of the four vectors of the first partition, of one above, and of the last two."""


def model(lengths: list[int]) -> bytes:
    offsets = np.cumsum([0, *lengths])[:-1].tolist()
    centroids = encoded_tensor(np.zeros((3, 2), np.float32))
    made = index_pb2.IVF(offsets=offsets, lengths=lengths, centroids_tensor=centroids)
    return made.SerializeToString()


def codes() -> pa.Table:
    """Six plain vectors, of rows 0 to 5 of fragment 1."""
    flat = pa.array(np.arange(12), pa.float32())
    return pa.table(
        {
            "_rowid": pa.array((1 << 32) + np.arange(6), pa.uint64()),
            "flat": pa.FixedSizeListArray.from_arrays(flat, 2),
        }
    )


def nodes() -> pa.Table:
    distances = [[1.0 for _ in neighbors] for neighbors in NODES]
    return pa.table(
        {
            "__vector_id": pa.array([0, 1, 2, 3, 3, 0, 1], pa.uint32()),
            "__neighbors": pa.array(NODES, pa.list_(pa.uint32())),
            "_distance": pa.array(distances, pa.list_(pa.float32())),
        }
    )


def written(
    *,
    details: str = '{"dim":2}',
    lengths: list[int] | None = None,
    rows: pa.Table | None = None,
    graph: pa.Table | None = None,
    headers: list[str] | None = None,
) -> tuple[Segment, SegmentWriter]:
    """A segment of three partitions with graphs, and one to be."""
    store = open_store("memory://indices")
    out = SegmentWriter(store, VERSION)
    said = {"distance_type": "l2", "storage_metadata": json.dumps([details])}
    stored = {"lance:ivf": model(LENGTHS if lengths is None else lengths)}
    out.write("auxiliary.idx", codes() if rows is None else rows, metadata=said, buffers=stored)
    last = {"entry_point": 0, "params": {"m": 2}, "level_offsets": [0, 2, 2]}
    texts = [json.dumps(HEADER), "", json.dumps(last)] if headers is None else headers
    out.write(
        "index.idx",
        nodes() if graph is None else graph,
        metadata={"lance:hnsw": json.dumps(texts)},
        buffers={"lance:ivf": model([5, 0, 2])},
    )
    return _segment(out), SegmentWriter(store, VERSION)


def _segment(out: SegmentWriter) -> Segment:
    out.finish()
    entry = table_pb2.IndexMetadata(name="v_idx")
    entry.uuid.uuid = out.id.bytes
    return Segment(out.store, entry)


def moved(survivors: list[int]) -> AddressMap:
    """These rows of fragment 1 are now those of fragment 5."""
    addresses = np.array([(1 << 32) + at for at in survivors], np.uint64)
    old, new = (
        Fragment(id=number, files=(), physical_rows=count)
        for number, count in ((1, 6), (5, len(survivors)))
    )
    return AddressMap.of([(addresses, [old], [new])])


def opened(out: SegmentWriter, name: str) -> IndexFile:
    return IndexFile(out.store, f"{out.folder}/{name}")


@pytest.mark.spec("vector-2", "vector-4", "vector-9", "vector-12")
def test_nodes_that_are_left_have_new_neighbours_and_an_entry() -> None:
    segment, out = written()
    assert VectorIndex().remap(segment, moved([0, 1, 2, 4, 5]), out) == RebuiltSegment()
    rows = opened(out, "auxiliary.idx").read()
    assert rows["_rowid"].to_pylist() == [(5 << 32) + at for at in range(5)]
    assert rows["flat"].to_pylist() == [[0, 1], [2, 3], [4, 5], [8, 9], [10, 11]]
    file = opened(out, "index.idx")
    # Vector 3 is deleted, and with it the level above; vector 2 finds 1 through it.
    graph = file.read().to_pydict()
    assert graph["__vector_id"] == [0, 1, 2, 0, 1]
    assert graph["__neighbors"] == [[1, 2], [0], [1, 0], [1], [0]]
    assert graph["_distance"] == [[1, 1], [1], [8, 32], [1], [1]]
    first, empty, last = json.loads(file.metadata["lance:hnsw"])
    assert json.loads(first) == {**HEADER, "entry_point": 0, "level_offsets": [0, 3, 3]}
    assert (empty, json.loads(last)["entry_point"]) == ("", 0)
    stored = index_pb2.IVF.FromString(file.buffer(1).to_pybytes())
    assert (list(stored.offsets), list(stored.lengths)) == ([0, 3, 3], [3, 0, 2])


@pytest.mark.spec("vector-9", "vector-12")
def test_the_entry_of_a_graph_follows_its_vector() -> None:
    segment, out = written()
    VectorIndex().remap(segment, moved([1, 2, 3]), out)
    file = opened(out, "index.idx")
    first, *others = json.loads(file.metadata["lance:hnsw"])
    assert json.loads(first) == {**HEADER, "entry_point": 2, "level_offsets": [0, 3, 4]}
    assert others == ["", ""]


@pytest.mark.spec("vector-32")
def test_layouts_not_known_here_are_left_alone() -> None:
    segment, out = written(details='{"dim":2,"layered":true}')
    assert VectorIndex().remap(segment, moved([0]), out) is None


@pytest.mark.spec("vector-13")
def test_files_of_other_old_indices_are_left_alone() -> None:
    store = open_store("memory://indices")
    out = SegmentWriter(store, VERSION)
    out.put("index.idx", [b"nodes", struct.pack("<qHH4s", 0, 0, 2, b"LANC")])
    with pytest.raises(UnsupportedFeatureError, match="create it again"):
        VectorIndex().remap(_segment(out), moved([0]), SegmentWriter(store, VERSION))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"lengths": [4, 0, 1]}, "auxiliary"),
        ({"lengths": [4, 0, 2**31]}, "auxiliary"),
        ({"rows": codes().drop_columns(["flat"])}, "auxiliary"),
        ({"rows": codes().rename_columns(["_rowid", "__pq_code"])}, "auxiliary"),
        ({"details": "{"}, "auxiliary"),
        ({"details": "[]"}, "auxiliary"),
        ({"headers": [""]}, "index"),
        ({"headers": ["{}", "", ""]}, "index"),
        ({"headers": [json.dumps({**HEADER, "level_offsets": [0, 4, 6]}), "", ""]}, "index"),
        ({"headers": [json.dumps({**HEADER, "level_offsets": [0, 6, 5]}), "", ""]}, "index"),
        ({"headers": [json.dumps({**HEADER, "level_offsets": OVERFLOWING}), "", ""]}, "index"),
        ({"headers": [json.dumps({**HEADER, "params": {"m": 0}}), "", ""]}, "index"),
        (
            {"headers": [json.dumps({**HEADER, "level_offsets": [0, 4] + [5] * 64}), "", ""]},
            "index",
        ),
    ],
    ids=[
        *("few", "huge", "no-codes", "other-codes", "json", "list"),
        *("headers", "empty", "levels", "falling", "overflowing", "m", "65-levels"),
    ],
)
def test_what_does_not_fit_is_damage(change: dict[str, Any], named: str) -> None:
    segment, out = written(**change)
    with pytest.raises(CorruptFileError, match=rf"{named}\.idx"):
        VectorIndex().remap(segment, moved([0, 1]), out)


@pytest.mark.parametrize("vector", [4, 9])
@pytest.mark.parametrize("column", ["__vector_id", "__neighbors"])
def test_nodes_of_vectors_that_are_not_there_are_damage(vector: int, column: str) -> None:
    graph = nodes()
    at = graph.schema.get_field_index(column)
    values: list[Any] = graph[column].to_pylist()
    values[1] = vector if column == "__vector_id" else [vector]
    changed = graph.set_column(at, column, pa.array(values, graph[column].type))
    segment, out = written(graph=changed)
    with pytest.raises(CorruptFileError, match=r"graph of an index.*index\.idx"):
        VectorIndex().remap(segment, moved([0, 1]), out)


@pytest.mark.parametrize("column", nodes().column_names)
@pytest.mark.parametrize("values", [["a"] * 7, [1.5] * 7, [[1.5]] * 7], ids=["text", "no", "lists"])
def test_nodes_of_other_types_are_damage(column: str, values: list[Any]) -> None:
    graph = nodes()
    at = graph.schema.get_field_index(column)
    segment, out = written(graph=graph.set_column(at, column, pa.array(values)))
    with pytest.raises(CorruptFileError, match=rf"{column}.*index\.idx"):
        VectorIndex().remap(segment, moved([0, 1]), out)


def test_a_graph_without_nodes_for_its_vectors_is_damage() -> None:
    none: Any = [[]] * 7
    graph = pa.table(
        {
            "__vector_id": pa.array([0, 0, 0, 0, 0, 0, 1], pa.uint32()),
            "__neighbors": pa.array(none, pa.list_(pa.uint32())),
            "_distance": pa.array(none, pa.list_(pa.float32())),
        }
    )
    headers = [json.dumps({**HEADER, "level_offsets": [0, 1, 2, 3, 4, 5]}), "", ""]
    segment, out = written(graph=graph, headers=headers)
    with pytest.raises(CorruptFileError, match=r"graph of partition 0.*index\.idx"):
        VectorIndex().remap(segment, moved([1, 2]), out)


@pytest.mark.spec("rel-24")
def test_bytes_of_an_old_file_are_no_rows_of_many_partitions() -> None:
    rows, partitions = 50, 400
    index = index_pb2.Index()
    ivf = index_pb2.IVF(offsets=[0] * partitions, lengths=[rows] * partitions)
    index.vector_index.stages.add().ivf.CopyFrom(ivf)
    codes = index.vector_index.stages.add().pq
    codes.num_sub_vectors, codes.num_bits, codes.dimension = 1, 8, 1
    message = index.SerializeToString()
    store = open_store("memory://indices")
    out = SegmentWriter(store, VERSION)
    tail = struct.pack("<qHH4s", 9 * rows, 0, 1, b"LANC")
    out.put("index.idx", [bytes(9 * rows), struct.pack("<I", len(message)), message, tail])
    segment = _segment(out)
    with pytest.raises(CorruptFileError, match=r"partitions of an index.*index\.idx"):
        VectorIndex().remap(segment, moved([0]), SegmentWriter(store, VERSION))
    with pytest.raises(CorruptFileError, match=r"partitions of an index.*index\.idx"):
        VectorIndex().open(segment)


@pytest.mark.parametrize("width", [0, 1, 2**29])
@pytest.mark.parametrize("length", [3, 2**31, 2**32 - 1])
def test_partitions_beyond_an_old_file_are_damage(width: int, length: int) -> None:
    index = index_pb2.Index()
    index.vector_index.stages.add().ivf.CopyFrom(index_pb2.IVF(offsets=[0], lengths=[length]))
    index.vector_index.stages.add().pq.num_sub_vectors = width
    index.vector_index.stages[1].pq.num_bits = 2**32 - 8
    if width == 1:
        index.vector_index.stages[1].pq.num_bits = 8
    message = index.SerializeToString()
    store = open_store("memory://indices")
    out = SegmentWriter(store, VERSION)
    tail = struct.pack("<qHH4s", 9, 0, 1, b"LANC")
    out.put("index.idx", [bytes(9), struct.pack("<I", len(message)), message, tail])
    with pytest.raises(CorruptFileError, match=r"partitions of an index.*index\.idx"):
        VectorIndex().remap(_segment(out), moved([0]), SegmentWriter(store, VERSION))


def test_graphs_on_codes_without_distances_are_left_alone() -> None:
    rows = codes().drop_columns(["flat"])
    bits = pa.FixedSizeListArray.from_arrays(pa.array([1] * 12, pa.uint8()), 2)
    segment, out = written(rows=rows.append_column("_rabit_codes", bits))
    assert VectorIndex().remap(segment, moved([0, 1]), out) is None


@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ"])
def test_vectors_whose_distances_are_infinite_can_be_indexed(tmp_path: Path, kind: str) -> None:
    numbers = np.random.default_rng(1).uniform(-3e38, 3e38, (400, 16)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(numbers.ravel(), 16)
    dataset = glaive.write_dataset(pa.table({"v": vectors, "id": range(400)}), tmp_path)
    options: dict[str, Any] = {"IVF_PQ": {"num_sub_vectors": 4}, "IVF_RQ": {"num_bits": 5}}
    dataset.create_index("v", kind, num_partitions=3, **options.get(kind, {}))
    nearest = {"column": "v", "q": numbers[0], "k": 3, "nprobes": 3}
    found = dataset.to_table(nearest=nearest, columns=["id"])["id"].to_pylist()
    assert set(found) <= set(range(400))
    assert dataset.stats.index_stats("v_idx")["num_indexed_rows"] == 400


@pytest.mark.spec("vector-5")
@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8, 9])
def test_an_index_with_an_empty_partition_is_prewarmed(
    tmp_path: Path, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
    centroids = np.zeros((3, 16), np.float32)
    centroids[2] = 1_000  # near no vector
    centroids[1, 0] = 1
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), 16)})
    dataset = glaive.write_dataset(table, tmp_path)
    given = pa.FixedSizeListArray.from_arrays(centroids.reshape(-1), 16)
    dataset.create_index("v", "IVF_RQ", num_partitions=3, num_bits=bits, ivf_centroids=given)
    read, loaded = OpenedVectorIndex.load, list[int]()

    def load(self: OpenedVectorIndex, number: int) -> LoadedPartition:
        loaded.append(number)
        return read(self, number)

    monkeypatch.setattr(OpenedVectorIndex, "load", load)
    dataset.prewarm_index("v_idx")
    assert loaded == [0, 1]  # nothing is asked for the empty one
    near = {"column": "v", "q": vectors[7], "k": 300, "nprobes": 3}
    assert dataset.to_table(nearest=near).num_rows == 300
