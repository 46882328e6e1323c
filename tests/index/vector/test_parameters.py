"""Parameters of vector indices: defaults, and messages that name what is wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.index.vector.sources import VERSION, ArraySource, clustered, lists_of

from glaive.errors import OptionError
from glaive.index.segment import SegmentWriter
from glaive.index.vector.parameters import KINDS, parse_parameters
from glaive.index.vector.vector_index import VectorIndex
from glaive.io.access import open_store

FLOATS = pa.field("v", pa.list_(pa.float32(), 12))
CENTROIDS = np.ones((3, 12), np.float32)


@pytest.mark.spec("vector-18")
@pytest.mark.parametrize(
    ("kind", "rows", "expected"),
    [
        ("IVF_FLAT", 10_000, 2),
        ("IVF_RQ", 10_000, 2),
        ("IVF_PQ", 10_000, 1),
        ("IVF_SQ", 100_000, 12),
        ("IVF_HNSW_SQ", 2_000_000, 1),
        ("IVF_HNSW_SQ", 4_000_000, 3),
        ("IVF_HNSW_PQ", 4_000_000, 3),
        ("IVF_HNSW_FLAT", 4_000_000, 3),
        ("IVF_FLAT", 1 << 30, 4096),
        ("IVF_FLAT", 5, 1),
    ],
)
def test_partitions_follow_from_rows(kind: str, rows: int, expected: int) -> None:
    given: dict[str, Any] = {"index_type": kind} | ({"num_sub_vectors": 4} if "PQ" in kind else {})
    parameters = parse_parameters(given, pa.field("v", pa.list_(pa.float32(), 16)))
    assert parameters.partitions_for(rows) == expected


def test_a_target_or_a_number_changes_that() -> None:
    target = parse_parameters({"index_type": "IVF_FLAT", "target_partition_size": 300}, FLOATS)
    assert target.partitions_for(2000) == 6
    number = parse_parameters({"index_type": "IVF_FLAT", "num_partitions": 7.0}, FLOATS)
    assert [number.partitions_for(rows) for rows in (2000, 3)] == [7, 3]
    given = parse_parameters({"index_type": "IVF_FLAT", "ivf_centroids": CENTROIDS}, FLOATS)
    assert given.partitions_for(2) == 3


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("index_type", {"index_type": "IVF_XX"}),
        ("metric", {"metric": "manhattan"}),
        ("metric", {"metric": 5}),
        ("metric", {"metric": "hamming"}),
        ("num_sub_vectors", {"index_type": "IVF_PQ"}),
        ("num_sub_vectors", {"index_type": "IVF_PQ", "num_sub_vectors": 5}),
        ("num_sub_vectors", {"index_type": "IVF_PQ", "num_sub_vectors": 0}),
        ("num_sub_vectors", {"index_type": "IVF_PQ", "num_sub_vectors": 3, "num_bits": 4}),
        ("num_bits", {"index_type": "IVF_PQ", "num_sub_vectors": 4, "num_bits": 5}),
        ("num_bits", {"index_type": "IVF_SQ", "num_bits": 4}),
        ("divisible by 8", {"index_type": "IVF_RQ"}),
        ("num_partitions", {"num_partitions": 0}),
        ("num_partitions", {"num_partitions": True}),
        ("num_partitions", {"num_partitions": "3"}),
        ("num_partitions", {"num_partitions": 4, "ivf_centroids": CENTROIDS}),
        ("target_partition_size", {"target_partition_size": -1}),
        ("target_partition_size", {"target_partition_size": 2**64}),
        ("sample_rate", {"sample_rate": 0}),
        ("max_iters", {"max_iters": 0}),
        ("m:", {"index_type": "IVF_HNSW_FLAT", "m": 3}),
        ("m:", {"index_type": "IVF_HNSW_FLAT", "m": 5000}),
        ("max_level", {"index_type": "IVF_HNSW_FLAT", "max_level": 0}),
        ("ef_construction", {"index_type": "IVF_HNSW_FLAT", "ef_construction": 1 << 20}),
        ("num_subvectors: no such", {"num_subvectors": 4}),
        ("ivf_centroids", {"ivf_centroids": CENTROIDS[:, :3]}),
        ("ivf_centroids", {"ivf_centroids": CENTROIDS[0]}),
        ("ivf_centroids", {"ivf_centroids": CENTROIDS[:0]}),
        ("ivf_centroids", {"ivf_centroids": CENTROIDS * np.nan}),
        ("ivf_centroids", {"ivf_centroids": CENTROIDS.astype(int)}),
        ("ivf_centroids", {"ivf_centroids": pa.nulls(2, pa.list_(pa.float32(), 12))}),
        ("set one of them", {"ivf_centroids": CENTROIDS, "ivf_centroids_file": "x.npy"}),
        ("pq_codebook", {"index_type": "IVF_PQ", "num_sub_vectors": 4, "pq_codebook": CENTROIDS,
                         "ivf_centroids": CENTROIDS}),
        ("pq_codebook", {"index_type": "IVF_PQ", "num_sub_vectors": 4,
                         "pq_codebook": np.ones((4, 256, 3))}),
        ("sq_bounds", {"sq_bounds": (0, 1), "ivf_centroids": CENTROIDS}),
        ("sq_bounds", {"index_type": "IVF_SQ", "sq_bounds": (0, 1)}),
        ("two numbers", {"index_type": "IVF_SQ", "sq_bounds": (1, 0), "ivf_centroids": CENTROIDS}),
        ("two numbers", {"index_type": "IVF_SQ", "sq_bounds": "ab", "ivf_centroids": CENTROIDS}),
        ("precomputed_partitions", {"precomputed_partitions": pa.table({"row_id": [1]})}),
        ("precomputed_partitions", {"precomputed_partitions": pa.table({"row_id": [1]}),
                                    "ivf_centroids": CENTROIDS}),
        ("index_file_version", {"index_file_version": "V9"}),
        ("rotation_type", {"rotation_type": "slow"}),
        ("accelerator", {"accelerator": "abacus"}),
    ],
)  # fmt: skip
def test_wrong_parameters_are_named(name: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=name):
        parse_parameters({"index_type": "IVF_FLAT", **wrong}, FLOATS)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.endswith("RQ")])
def test_parameters_of_other_kinds_of_indices_are_ignored(kind: str) -> None:
    own = {"num_sub_vectors": 4} if kind.endswith("PQ") else {}
    graph = {} if "HNSW" in kind else {"m": 0, "ef_construction": "x", "max_level": 3}
    codes = {} if own else {"num_sub_vectors": 5, "pq_codebook": np.ones((4, 256, 3))}
    texts = {"with_position": 3, "rows_per_zone": 1, "use_torch": True}
    said = parse_parameters({"index_type": kind, **own, **graph, **codes, **texts}, FLOATS)
    assert said == parse_parameters({"index_type": kind, **own}, FLOATS)


@pytest.mark.parametrize(
    "kind",
    [
        pa.int32(),
        pa.list_(pa.int32(), 3),
        pa.list_(pa.uint8(), 3),
        pa.list_(pa.list_(pa.float32(), 3)),
        pa.list_(pa.float32()),
        pa.string(),
    ],
)
def test_columns_that_l2_does_not_compare_are_named(kind: Any) -> None:
    with pytest.raises(OptionError, match=r"metric|column '?v"):
        parse_parameters({"index_type": "IVF_FLAT"}, pa.field("v", kind))


def test_the_processor_is_no_accelerator() -> None:
    for device in ("cpu", None, SimpleNamespace(type="cpu", index=None)):
        checked = parse_parameters({"index_type": "IVF_FLAT", "accelerator": device}, FLOATS)
        assert checked.device is None


def test_an_accelerator_that_is_not_there_is_an_error() -> None:
    for device in ("cuda:77", SimpleNamespace(type="cuda", index=77)):
        with pytest.raises(OptionError, match=r"accelerator: .*torch"):
            parse_parameters({"index_type": "IVF_FLAT", "accelerator": device}, FLOATS)


def test_centroids_come_from_a_file_or_a_tensor(tmp_path: Path) -> None:
    np.save(tmp_path / "centroids.npy", CENTROIDS)
    options = {"index_type": "IVF_FLAT", "ivf_centroids_file": str(tmp_path / "centroids.npy")}
    loaded = parse_parameters(options, FLOATS).centroids
    assert loaded is not None
    assert np.array_equal(loaded, CENTROIDS)
    (tmp_path / "other.npy").write_bytes(b"something else")
    with pytest.raises(OptionError, match="not an array of NumPy"):
        parse_parameters({**options, "ivf_centroids_file": str(tmp_path / "other.npy")}, FLOATS)
    np.savez(tmp_path / "several.npz", CENTROIDS)
    with pytest.raises(OptionError, match="several arrays"):
        parse_parameters({**options, "ivf_centroids_file": str(tmp_path / "several.npz")}, FLOATS)
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(CENTROIDS)
    given = parse_parameters({"index_type": "IVF_FLAT", "ivf_centroids": tensor}, FLOATS).centroids
    assert given is not None
    assert np.array_equal(given, CENTROIDS)


@pytest.mark.spec("sec-1")
@pytest.mark.parametrize("header", ["((((", "'''", " 1\n2\n  3\n 4", "shape", "items", "PK"])
def test_a_damaged_file_of_centroids_is_refused(tmp_path: Path, header: str) -> None:
    """NumPy reads what it has as literals of Python, or as an archive."""
    shape = {"shape": "(9999999999999999999999, 4)", "items": "(True, 4)"}.get(header)
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}" if shape else header
    raw = b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode() + bytes(32)
    place = tmp_path / "centroids.npy"
    place.write_bytes(b"PK\3\4 and no archive" if header == "PK" else raw)
    with pytest.raises(OptionError, match="ivf_centroids_file"):
        parse_parameters({"index_type": "IVF_FLAT", "ivf_centroids_file": str(place)}, FLOATS)


def test_the_column_is_read_once_and_little_is_kept_in_memory() -> None:
    source = ArraySource([lists_of(clustered(4000, 12))], memory_limit=1 << 16)
    out = SegmentWriter(open_store("memory://once"), VERSION)
    VectorIndex().build(source, {"index_type": "IVF_FLAT", "num_partitions": 5}, out)
    assert source.times_read == 1
    assert {file.path for file in out.finish()} == {"index.idx", "auxiliary.idx"}


def test_an_interrupted_build_leaves_nothing() -> None:
    class Interrupted(ArraySource):
        def batches(self) -> Any:
            for at, batch in enumerate(super().batches()):
                if at == 3:
                    raise KeyboardInterrupt
                yield batch

    store = open_store("memory://interrupted")
    out = SegmentWriter(store, VERSION)
    with pytest.raises(KeyboardInterrupt):
        VectorIndex().build(
            Interrupted([lists_of(clustered(4000, 12))]), {"index_type": "IVF_HNSW_SQ"}, out
        )
    out.abort()
    assert list(store.walk("_indices")) == []
