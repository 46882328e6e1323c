"""After a compaction, vector indices are what pylance would have left, or as good."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.interop.compacted import Copies, compacted, entries, file_of, segment_of, vectors_of

from glaive.format.pb import index_pb2

lance = pytest.importorskip("lance", reason="install the 'interop' group")
files = pytest.importorskip("lance.file")

pytestmark = pytest.mark.interop

CODES: dict[str, dict[str, Any]] = {
    "flat": {"index_type": "IVF_FLAT"},
    "flat-cosine": {"index_type": "IVF_FLAT", "metric": "cosine"},
    "sq": {"index_type": "IVF_SQ", "metric": "dot"},
    "pq": {"index_type": "IVF_PQ", "num_sub_vectors": 4},
    "pq-4-bits": {"index_type": "IVF_PQ", "num_sub_vectors": 4, "num_bits": 4},
    "rq-1-bit": {"index_type": "IVF_RQ", "num_bits": 1},
    "rq-5-bits": {"index_type": "IVF_RQ", "num_bits": 5, "metric": "cosine"},
}
GRAPHS: dict[str, dict[str, Any]] = {
    "hnsw-flat": {"index_type": "IVF_HNSW_FLAT"},
    "hnsw-flat-cosine": {"index_type": "IVF_HNSW_FLAT", "metric": "cosine"},
    "hnsw-sq": {"index_type": "IVF_HNSW_SQ"},
    "hnsw-sq-dot": {"index_type": "IVF_HNSW_SQ", "metric": "dot"},
    "hnsw-pq": {"index_type": "IVF_HNSW_PQ", "num_sub_vectors": 4},
}


def vector_index(kind: str, partitions: int = 3, **more: Any) -> Any:
    options = {**(CODES | GRAPHS)[kind], "num_partitions": partitions, **more}
    return lambda dataset: dataset.create_index("v", **options)


def buffers(path: Path, count: int) -> list[bytes]:
    """Global buffers beside that of the schema."""
    reader = files.LanceFileReader(str(path))
    return [bytes(reader.read_global_buffer(at)) for at in range(1, count + 1)]


def nearest(path: Path, **options: Any) -> list[dict[str, list[Any]]]:
    dataset = lance.dataset(path)
    found = []
    for query in vectors_of(8, 16, 77):
        search = {"column": "v", "q": query, "k": 10, **options}
        plan = dataset.scanner(columns=["id", "_distance"], nearest=search)
        assert "ANN" in plan.explain_plan()
        found.append(plan.to_table().to_pydict())
    return found


@pytest.mark.sampled(every=4)
@pytest.mark.spec("vector-2", "vector-3")
@pytest.mark.parametrize(
    ("kind", "version"),
    [*((kind, "2.2") for kind in CODES), ("flat", "2.0"), ("pq", "2.1"), ("rq-5-bits", "2.0")],
)
def test_codes_are_those_pylance_leaves(tmp_path: Path, kind: str, version: str) -> None:
    copies = compacted(tmp_path, vector_index(kind), version=version)
    before, theirs, ours = copies.segments("v_idx")
    assert len(file_of(ours / "auxiliary.idx")) < len(file_of(before / "auxiliary.idx"))
    for name in ("index.idx", "auxiliary.idx"):
        one, other = file_of(theirs / name), file_of(ours / name)
        assert one.schema.equals(other.schema, check_metadata=True)
        assert one == other
        count = 2 if "pq" in kind and name == "auxiliary.idx" else 1
        assert buffers(theirs / name, count) == buffers(ours / name, count)
    assert nearest(copies.theirs) == nearest(copies.ours)


@pytest.mark.sampled(every=3)
@pytest.mark.spec("vector-2", "vector-11", "vector-12")
@pytest.mark.parametrize("kind", GRAPHS)
def test_graphs_have_the_nodes_that_are_left(tmp_path: Path, kind: str) -> None:
    copies = compacted(tmp_path, vector_index(kind))
    _, theirs, ours = copies.segments("v_idx")
    codes = "auxiliary.idx"
    assert file_of(theirs / codes) == file_of(ours / codes)
    assert buffers(theirs / codes, 1) == buffers(ours / codes, 1)
    assert buffers(theirs / "index.idx", 1) == buffers(ours / "index.idx", 1)
    graphs = [file_of(one / "index.idx") for one in (theirs, ours)]
    assert graphs[0]["__vector_id"] == graphs[1]["__vector_id"]
    lengths = [[len(one) for one in graph["__neighbors"].to_pylist()] for graph in graphs]
    # A node may find fewer others than it had; pylance looks further.
    assert all(one >= other for one, other in zip(*lengths, strict=True))
    assert sum(lengths[1]) >= 0.98 * sum(lengths[0])
    headers = [
        [json.loads(one) for one in json.loads(graph.schema.metadata[b"lance:hnsw"])]
        for graph in graphs
    ]
    for one, other in zip(*headers, strict=True):
        assert one["level_offsets"] == other["level_offsets"]
        assert one["params"] == other["params"]
    assert _measured(graphs[1], ours / codes, kind)


def _measured(graph: pa.Table, codes: Path, kind: str) -> bool:
    """Whether distances of plain vectors are those of the vectors."""
    if not kind.startswith("hnsw-flat"):
        return True
    rows = file_of(codes)
    header = json.loads(json.loads(graph.schema.metadata[b"lance:hnsw"])[0])
    first = graph.slice(0, header["level_offsets"][1]).to_pylist()
    vectors = np.array(rows["flat"].to_pylist()[: len(first)], np.float32)
    for at, node in enumerate(first):
        others = vectors[node["__neighbors"]]
        cosine = kind.endswith("cosine")
        far = 1 - others @ vectors[at] if cosine else np.square(others - vectors[at]).sum(axis=1)
        assert np.allclose(far, node["_distance"], rtol=1e-4, atol=1e-5)
        assert at not in node["__neighbors"]
    return True


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("kind", ["hnsw-flat", "hnsw-sq-dot", "hnsw-pq"])
@pytest.mark.parametrize("deleted", ["id % 7 = 0", "id % 10 < 7"])
def test_searches_of_graphs_find_as_much(tmp_path: Path, kind: str, deleted: str) -> None:
    sizes = (500, 500)
    copies = compacted(tmp_path, vector_index(kind, 1), sizes=sizes, deleted=f"({deleted})")
    recalls = []
    metric = GRAPHS[kind].get("metric", "l2")
    truth = _exact(copies, metric)
    for path in (copies.theirs, copies.ours):
        found = nearest(path, ef=30, refine_factor=1)
        hits = [len(set(a["id"]) & b) for a, b in zip(found, truth, strict=True)]
        recalls.append(sum(hits) / (10 * len(hits)))
    assert recalls[1] >= recalls[0] - 0.1


def _exact(copies: Copies, metric: str) -> list[set[int]]:
    dataset = lance.dataset(copies.theirs)
    found = []
    for query in vectors_of(8, 16, 77):
        search = {"column": "v", "q": query, "k": 10, "use_index": False, "metric": metric}
        rows = dataset.to_table(columns=["id", "_distance"], nearest=search)
        found.append(set(rows["id"].to_pylist()))
    return found


@pytest.mark.spec("vector-12")
@pytest.mark.parametrize("kind", ["hnsw-flat", "hnsw-pq"])
def test_graphs_without_loss_stay(tmp_path: Path, kind: str) -> None:
    copies = compacted(tmp_path, vector_index(kind), deleted="")
    for name in ("index.idx", "auxiliary.idx"):
        one, other = (file_of(folder / name) for folder in copies.segments("v_idx")[1:])
        assert one.schema.equals(other.schema, check_metadata=True)
        assert one == other


def first_partition(path: Path) -> str:
    """The rows of the first partition."""
    addresses = file_of(segment_of(path, "v_idx") / "auxiliary.idx")["_rowid"].to_pylist()
    (stored,) = buffers(segment_of(path, "v_idx") / "auxiliary.idx", 1)
    count = index_pb2.IVF.FromString(stored).lengths[0]
    rows = lance.dataset(path).to_table(columns=["id"], with_row_address=True).to_pydict()
    ids = dict(zip(rows["_rowaddr"], rows["id"], strict=True))
    return f"id IN ({', '.join(str(ids[one]) for one in addresses[:count])})"


@pytest.mark.sampled(every=2)
@pytest.mark.spec("vector-5")
@pytest.mark.parametrize("kind", ["flat", "pq", "rq-1-bit", "hnsw-sq"])
def test_partitions_may_lose_all_rows(tmp_path: Path, kind: str) -> None:
    copies = compacted(tmp_path, vector_index(kind), deleted=first_partition)
    _, theirs, ours = copies.segments("v_idx")
    assert file_of(theirs / "auxiliary.idx") == file_of(ours / "auxiliary.idx")
    one, other = (file_of(folder / "index.idx") for folder in (theirs, ours))
    assert one.schema.equals(other.schema, check_metadata=True)
    assert buffers(theirs / "index.idx", 1) == buffers(ours / "index.idx", 1)
    (lengths,) = buffers(ours / "auxiliary.idx", 1)
    assert index_pb2.IVF.FromString(lengths).lengths[0] == 0
    assert nearest(copies.theirs) == nearest(copies.ours)


@pytest.mark.parametrize("kind", ["pq", "hnsw-flat"])
def test_indices_of_stable_row_ids_stay(tmp_path: Path, kind: str) -> None:
    copies = compacted(tmp_path, vector_index(kind), stable=True)
    before, theirs, ours = copies.segments("v_idx")
    assert before.name == theirs.name == ours.name
    assert nearest(copies.theirs) == nearest(copies.ours)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", [pa.float16(), pa.float64()], ids=str)
@pytest.mark.parametrize("index_type", ["IVF_FLAT", "IVF_HNSW_FLAT"])
def test_vectors_of_other_floats(tmp_path: Path, kind: pa.DataType, index_type: str) -> None:
    def index(dataset: Any) -> None:
        dataset.create_index("v", index_type=index_type, num_partitions=2)

    copies = compacted(tmp_path, index, kind=kind)
    _, theirs, ours = copies.segments("v_idx")
    assert file_of(theirs / "auxiliary.idx") == file_of(ours / "auxiliary.idx")
    one, other = (file_of(folder / "index.idx") for folder in (theirs, ours))
    assert one["__vector_id" if "HNSW" in index_type else "__flat_marker"].equals(
        other["__vector_id" if "HNSW" in index_type else "__flat_marker"]
    )


@pytest.mark.spec("vector-13", "vector-14")
def test_old_indices_of_one_file_are_made_anew(tmp_path: Path) -> None:
    copies = compacted(tmp_path, vector_index("pq", index_file_version="Legacy"))
    before, theirs, ours = (one / "index.idx" for one in copies.segments("v_idx"))
    assert theirs.read_bytes() == ours.read_bytes() != before.read_bytes()
    assert nearest(copies.theirs) == nearest(copies.ours)


@pytest.mark.parametrize("form", ["Legacy", "V3"])
def test_an_index_whose_files_are_gone_covers_nothing(
    tmp_path: Path, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    index = vector_index("pq", index_file_version=form)

    def remove(path: Path) -> str:
        shutil.rmtree(path / "_indices")
        return "id % 5 = 0"

    copies = compacted(tmp_path, index, deleted=remove, passes=2)
    theirs, ours = (one.fragment_bitmap for path in copies[1:] for one in entries(path))
    assert ours == theirs
    assert "is missing" in caplog.text
