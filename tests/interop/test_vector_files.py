"""Files of vector indices decoded as the specification says, whichever library wrote them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import glaive
from glaive.format.pb import index_pb2, vector_details_pb2

lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")
files: Any = pytest.importorskip("lance.file")

pytestmark = pytest.mark.interop

Floats = NDArray[np.float64]

ROWS, DIMENSION, PARTITIONS = 300, 72, 2
WRITERS = pytest.mark.parametrize("library", [lance, glaive], ids=["pylance", "glaive"])
METRICS = pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
ABSENT = {"null": 3, "nan": 5, "item": 7, "infinite": 11}
ZERO = 9
"""A row without a direction."""


def vectors(rows: int, seed: int) -> NDArray[np.float32]:
    random = np.random.default_rng(seed)
    near = random.normal(size=(2, DIMENSION))[random.integers(0, 2, rows)] * 2
    return (near + random.normal(size=(rows, DIMENSION))).astype(np.float32)


def table(*, null_item: bool = False) -> pa.Table:
    made = vectors(ROWS, 1)
    made[ABSENT["nan"], 4], made[ABSENT["infinite"], 0], made[ZERO] = np.nan, -np.inf, 0
    items = np.zeros((ROWS, DIMENSION), np.bool_)
    items[ABSENT["item"], 2] = null_item
    mask = np.arange(ROWS) == ABSENT["null"]
    flat = pa.array(made.ravel(), mask=items.ravel())
    column = pa.FixedSizeListArray.from_arrays(flat, DIMENSION, mask=pa.array(mask))
    return pa.table({"id": range(ROWS), "v": column})


QUERY = vectors(1, 2)[0].astype(np.float64)


class Stored(NamedTuple):
    """What the files of an index hold.

    Parameters
    ----------
    rows
        Of ``auxiliary.idx``.
    metadata, details
        Of that file, and what it says of its codes.
    partitions
        First and last row of each.
    centroids
        Of each.
    buffers
        Global buffers of that file, by their number.
    graph
        Rows of ``index.idx``.
    """

    rows: pa.Table
    metadata: dict[str, str]
    details: dict[str, Any]
    partitions: list[tuple[int, int]]
    centroids: Floats
    buffers: Any
    graph: pa.Table

    def codes(self, name: str, partition: int) -> NDArray[np.uint8]:
        """Bytes of the rows of a partition, as they are stored."""
        start, stop = self.partitions[partition]
        part: Any = self.rows[name].slice(start, stop - start).combine_chunks()
        found: NDArray[np.uint8] = part.flatten().to_numpy().reshape(stop - start, -1)
        return found

    def numbers(self, name: str, partition: int) -> Floats:
        """One number of each row of a partition."""
        start, stop = self.partitions[partition]
        return self.rows[name].slice(start, stop - start).to_numpy().astype(np.float64)

    def row_numbers(self, partition: int) -> NDArray[np.int64]:
        start, stop = self.partitions[partition]
        return self.rows["_rowid"].slice(start, stop - start).to_numpy().astype(np.int64)


def tensor(data: bytes) -> Floats:
    return array_of(index_pb2.Tensor.FromString(data))


def array_of(message: Any) -> Floats:
    kinds = {1: "<f2", 2: "<f4", 3: "<f8", 4: "u1"}
    found = np.frombuffer(message.data, kinds[message.data_type]).reshape(message.shape)
    return found.astype(np.float64)


def stored(path: Path) -> Stored:
    (folder,) = path.glob("_indices/*")
    opened = [files.LanceFileReader(str(folder / name)) for name in ("auxiliary.idx", "index.idx")]
    rows, graph = (one.read_all().to_table() for one in opened)
    metadata, said = (
        {key.decode(): value.decode() for key, value in one.schema.metadata.items()}
        for one in (rows, graph)
    )
    ours, theirs = (
        index_pb2.IVF.FromString(bytes(one.read_global_buffer(int(known["lance:ivf"]))))
        for one, known in zip(opened, (metadata, said), strict=True)
    )
    ends = np.cumsum([0, *ours.lengths]).tolist()
    assert list(ours.offsets) == ends[:-1]
    assert ends[-1] == len(rows)
    counts = [0] * len(ours.lengths) if not len(graph) else list(theirs.lengths)
    assert list(theirs.lengths) == counts
    assert list(theirs.offsets) == np.cumsum([0, *counts]).tolist()[:-1]
    (text,) = json.loads(metadata["storage_metadata"])
    buffer = lambda number: bytes(opened[0].read_global_buffer(number))  # noqa: E731  # of this file
    return Stored(
        rows, metadata, json.loads(text), list(pairwise(ends)),
        array_of(theirs.centroids_tensor), buffer, graph,
    )  # fmt: skip


def built(
    path: Path, library: Any, kind: str, metric: str, *, null_item: bool = False, **options: Any
) -> Stored:
    dataset = library.write_dataset(table(null_item=null_item), str(path))
    dataset.create_index("v", kind, metric=metric, num_partitions=PARTITIONS, **options)
    return stored(path)


def compared(metric: str) -> Floats:
    """The vectors as they are compared."""
    flat = table()["v"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    found = np.zeros((ROWS, DIMENSION))
    found[np.arange(ROWS) != ABSENT["null"]] = flat.reshape(-1, DIMENSION)
    return unit(found) if metric == "cosine" else found


def unit(found: Floats) -> Floats:
    with np.errstate(all="ignore"):
        made: Floats = found / np.linalg.norm(found, axis=-1, keepdims=True)
    return made


def searched(path: Path, library: Any) -> dict[int, float]:
    """Distances of all rows by codes."""
    near = {"column": "v", "q": QUERY.astype(np.float32), "k": ROWS, "nprobes": PARTITIONS}
    near |= {"approx_mode": "accurate"}
    found = library.dataset(path).to_table(columns=["id", "_distance"], nearest=near)
    return dict(zip(found["id"].to_pylist(), found["_distance"].to_pylist(), strict=True))


def check_distances(path: Path, expected: dict[int, float], theirs: float = 1e-4) -> None:
    for library, most in ((glaive, 1e-4), (lance, theirs)):
        found = searched(path, library)
        assert found.keys() == expected.keys()
        np.testing.assert_allclose(
            [found[at] for at in expected], list(expected.values()), rtol=1e-4, atol=most
        )


def by_row(known: Stored, distances: list[Floats]) -> dict[int, float]:
    return {
        row: distance
        for number, some in enumerate(distances)
        for row, distance in zip(known.row_numbers(number).tolist(), some.tolist(), strict=True)
    }


# ------------------------------------------------------------------ vectors and partitions


@pytest.mark.spec("vector-1", "vector-3", "vector-4", "vector-17", "vector-19", "vector-28")
@METRICS
@WRITERS
def test_vectors_are_stored_by_the_nearest_centroid(
    tmp_path: Path, library: Any, metric: str
) -> None:
    # Where it normalizes vectors, pylance takes the number that lies behind a null.
    null_item = library is glaive or metric != "cosine"
    known = built(tmp_path, library, "IVF_FLAT", metric, null_item=null_item)
    absent = {*ABSENT.values(), *([ZERO] if metric == "cosine" else [])}
    absent -= set() if null_item else {ABSENT["item"]}
    assert sorted(known.rows["_rowid"].to_pylist()) == sorted({*range(ROWS)} - absent)
    assert known.rows.schema.names == ["_rowid", "flat"]
    assert known.rows.schema.types == [pa.uint64(), pa.list_(pa.float32(), DIMENSION)]
    assert (known.metadata["distance_type"], known.details) == (metric, {"dim": DIMENSION})
    wanted, query = compared(metric), unit(QUERY) if metric == "cosine" else QUERY
    distances = []
    for number in range(len(known.partitions)):
        rows = known.row_numbers(number)
        start, stop = known.partitions[number]
        flat = known.rows["flat"].slice(start, stop - start).to_pylist()
        np.testing.assert_allclose(flat, wanted[rows], rtol=1e-5, atol=1e-6)
        if metric == "dot":
            far = -wanted[rows] @ known.centroids.T
        else:
            far = ((wanted[rows][:, None] - known.centroids) ** 2).sum(axis=2)
        assert (far[:, number] <= far.min(axis=1) + 1e-3).all()
        alone = wanted[rows] @ query
        squares = ((wanted[rows] - query) ** 2).sum(axis=1)
        distances.append(squares if metric == "l2" else 1 - alone)
    if metric == "dot":
        np.testing.assert_allclose(np.linalg.norm(known.centroids, axis=1), 1, atol=1e-3)
    check_distances(tmp_path, by_row(known, distances))


@pytest.mark.spec("vector-20")
@pytest.mark.parametrize(
    ("kind", "data_type"),
    [(np.float16, 1), (np.float32, 2), (np.float64, 3), (np.uint8, 4)],
    ids=["float16", "float32", "float64", "uint8"],
)
@WRITERS
def test_centroids_and_codebook_have_the_type_of_the_column(
    tmp_path: Path, library: Any, kind: Any, data_type: int
) -> None:
    found: Any = vectors(ROWS, 1)[:, :16]
    found = np.packbits(found > 0, axis=1) if kind is np.uint8 else found.astype(kind)
    column = pa.FixedSizeListArray.from_arrays(pa.array(found.ravel()), found.shape[1])
    dataset = library.write_dataset(pa.table({"v": column}), str(tmp_path))
    bits = kind is np.uint8
    options: dict[str, Any] = {"metric": "hamming"} if bits else {"num_sub_vectors": 2}
    dataset.create_index("v", "IVF_FLAT" if bits else "IVF_PQ", num_partitions=1, **options)
    (folder,) = tmp_path.glob("_indices/*")
    index = files.LanceFileReader(str(folder / "index.idx"))
    model = index_pb2.IVF.FromString(bytes(index.read_global_buffer(1)))
    assert model.centroids_tensor.data_type == data_type
    if not bits:
        known = stored(tmp_path)
        codebook = known.buffers(known.details["codebook_position"])
        assert index_pb2.Tensor.FromString(codebook).data_type == data_type


# ------------------------------------------------------------------ codes


@pytest.mark.spec("vector-3", "vector-15", "vector-28")
@METRICS
@WRITERS
def test_scalar_codes_are_steps_from_the_lower_bound(
    tmp_path: Path, library: Any, metric: str
) -> None:
    known = built(tmp_path, library, "IVF_SQ", metric)
    assert known.rows.schema.types == [pa.uint64(), pa.list_(pa.uint8(), DIMENSION)]
    start, end = (known.details["bounds"][name] for name in ("start", "end"))
    step, wanted = (end - start) / 255, compared(metric)
    query = unit(QUERY) if metric == "cosine" else QUERY
    asked = np.clip(np.floor((query - start) / step), 0, 255)
    distances = []
    for number in range(len(known.partitions)):
        codes = known.codes("__sq_code", number).astype(np.float64)
        exact = (wanted[known.row_numbers(number)] - start) * 255 / (end - start)
        assert (codes <= exact + 1e-3).all()
        assert (codes > np.minimum(exact, 255) - 1 - 1e-3).all()
        if metric == "dot":
            distances.append(1 - (start + codes * step) @ query)
        else:
            distances.append(step**2 * ((codes - asked) ** 2).sum(axis=1))
    check_distances(tmp_path, by_row(known, distances), 1e-2)


@pytest.mark.sampled(every=3)
@pytest.mark.spec("vector-3", "vector-6", "vector-7", "vector-16", "vector-28")
@METRICS
@pytest.mark.parametrize("bits", [4, 8])
@WRITERS
def test_product_codes_are_the_nearest_of_a_codebook(
    tmp_path: Path, library: Any, bits: int, metric: str
) -> None:
    parts = 8
    known = built(tmp_path, library, "IVF_PQ", metric, num_sub_vectors=parts, num_bits=bits)
    assert known.rows.schema.types == [pa.uint64(), pa.list_(pa.uint8(), parts * bits // 8)]
    details, width = known.details, DIMENSION // parts
    assert (details["nbits"], details["num_sub_vectors"], details["dimension"]) == (
        bits, parts, DIMENSION,
    )  # fmt: skip
    codebook = tensor(known.buffers(details["codebook_position"]))
    codebook = codebook.reshape(parts, 1 << bits, width)
    wanted, query = compared(metric), unit(QUERY) if metric == "cosine" else QUERY
    distances = []
    for number in range(len(known.partitions)):
        data = known.codes("__pq_code", number)
        if details["transposed"]:
            data = np.array([data.reshape(-1)[at :: len(data)] for at in range(len(data))])
        if bits == 4:
            data = np.stack([data & 15, data >> 4], axis=2).reshape(len(data), parts)
        center = np.zeros(DIMENSION) if metric == "dot" else known.centroids[number]
        residuals = wanted[known.row_numbers(number)] - center
        far = residuals.reshape(-1, parts, 1, width) - codebook
        squares = (far**2).sum(axis=3)
        chosen = np.take_along_axis(squares, data[:, :, None].astype(np.int64), axis=2)[:, :, 0]
        assert (chosen <= squares.min(axis=2) * (1 + 1e-3) + 1e-4).all()
        decoded = codebook[np.arange(parts), data].reshape(-1, DIMENSION)
        if metric == "dot":
            distances.append(1 - decoded @ query)
        else:
            distances.append(((query - center - decoded) ** 2).sum(axis=1))
    check_distances(tmp_path, by_row(known, distances), 0.05 if bits == 4 else 1e-3)


# ------------------------------------------------------------------ bits of rotated vectors


def rotated(known: Stored, found: Floats) -> Floats:
    """Each row as the index rotates it."""
    if known.details["rotation_type"] == "matrix":
        return found @ tensor(known.buffers(known.details["rotate_mat_position"])).T
    signs = np.array(known.details["fast_rotation_signs"], np.uint8).reshape(4, -1)
    flips = np.unpackbits(signs, axis=1, bitorder="little") * -2.0 + 1
    size = 1 << DIMENSION.bit_length() - 1
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    matrix /= np.sqrt(size)
    for at in range(4):
        found = found * flips[at]
        some = slice(0, size) if at % 2 == 0 else slice(DIMENSION - size, DIMENSION)
        found[:, some] = found[:, some] @ matrix
        first, last = np.split(found, 2, axis=1)
        found = np.concatenate([first + last, first - last], axis=1)
    return found / 4


ORDER = [0, 16, 8, 24, 1, 17, 9, 25, 2, 18, 10, 26, 3, 19, 11, 27]
ORDER += [at + 4 for at in ORDER]


def signs_of(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bits of the rows of a partition, of 32 at a time."""
    rows, width = data.shape
    flat, whole = data.reshape(-1), rows // 32 * 32
    found = np.zeros((rows, width), np.uint8)
    for first in range(0, whole, 32):
        for byte in range(width):
            column = flat[first * width + 32 * byte :][:32]
            halves = np.stack([column & 15, column >> 4], axis=1).reshape(-1)
            for shift, some in ((0, halves[:32]), (4, halves[32:])):
                for row, half in zip(ORDER, some.tolist(), strict=True):
                    found[first + row, byte] |= half << shift
    rest = flat[whole * width :].reshape(width, rows - whole)
    found[whole:] = rest.T
    return np.unpackbits(found, axis=1, bitorder="little")


def extra_of(data: NDArray[np.uint8], bits: int) -> NDArray[np.int64]:
    """Numbers of so many bits, of blocks of 64 dimensions."""
    blocks = data.reshape(len(data), -1, 8 * bits).astype(np.int64)
    numbers = [_extra(blocks, bits, at) for at in range(64)]
    found = np.stack(numbers, axis=2).reshape(len(data), -1)
    assert not found[:, DIMENSION:].any()
    return found[:, :DIMENSION]


def _extra(blocks: NDArray[np.int64], bits: int, at: int) -> NDArray[np.int64]:
    """The number of one dimension of each block."""
    k, b = at // 16, at % 16
    if bits == 1:
        return blocks[..., at // 8] >> at % 8 & 1
    if bits == 2:
        return blocks[..., b] >> 2 * k & 3
    if bits == 4:
        return blocks[..., 8 * k + b % 8] >> 4 * (b // 8) & 15
    if bits == 6:
        if at < 48:
            return blocks[..., at] & 63
        return sum((blocks[..., 16 * j + b] >> 6) << 2 * j for j in range(3)) + blocks[..., 0] * 0
    if bits == 8:
        return blocks[..., at]
    if bits == 5:
        low = blocks[..., 16 * (k // 2) + b] >> 4 * (k % 2) & 15
    else:
        low = _extra(blocks, bits - 1, at)
    place = 8 * (b % 8) + 2 * k + b // 8
    top = blocks[..., 8 * (bits - 1) + place // 8] >> place % 8 & 1
    return low | top << bits - 1


BITS = [*(("l2", bits) for bits in range(1, 10)), ("dot", 1), ("dot", 4), ("cosine", 5)]


@pytest.mark.sampled(every=5)
@pytest.mark.spec("vector-3", "vector-8", "vector-23", "vector-24", "vector-25", "vector-26")
@pytest.mark.spec("vector-28", "vector-29", "vector-30", "vector-31", "vector-32")
@pytest.mark.parametrize(("metric", "bits"), BITS)
@WRITERS
def test_rotated_codes_are_signs_and_sizes(
    tmp_path: Path, library: Any, metric: str, bits: int
) -> None:
    check_rotated(tmp_path, built(tmp_path, library, "IVF_RQ", metric, num_bits=bits), metric, bits)


@pytest.mark.spec("vector-23", "vector-29")
@pytest.mark.parametrize("bits", [1, 3])
def test_a_matrix_may_rotate_codes(tmp_path: Path, bits: int) -> None:
    options = {"num_bits": bits, "rotation_type": "matrix"}
    check_rotated(tmp_path, built(tmp_path, glaive, "IVF_RQ", "l2", **options), "l2", bits)


def check_rotated(path: Path, known: Stored, metric: str, bits: int) -> None:
    details, e = known.details, bits - 1
    assert (details["num_bits"], details["query_estimator"]) == (bits, "raw_query")
    assert details["packed"]
    octets = {"_rabit_codes": DIMENSION // 8} | ({"__blocked_ex_codes": 16 * e} if e else {})
    for name, width in octets.items():
        assert known.rows.schema.field(name).type == pa.list_(pa.uint8(), width)
    wanted, query = compared(metric), unit(QUERY) if metric == "cosine" else QUERY
    turned = rotated(known, query[None])[0]
    assert np.linalg.norm(turned) == pytest.approx(np.linalg.norm(query), rel=1e-5)
    distances = []
    for number in range(len(known.partitions)):
        center = known.centroids[number]
        residuals = wanted[known.row_numbers(number)] - center
        numbers, middle = rotated(known, residuals), rotated(known, center[None])[0]
        signs = signs_of(known.codes("_rabit_codes", number)).astype(np.int64)
        certain = np.abs(numbers) > 1e-4
        assert ((signs == 1) == (numbers >= 0))[certain].all()
        factors = [(signs - 0.5, "")]
        if e:
            extra = extra_of(known.codes("__blocked_ex_codes", number), e)
            assert extra.max() < 1 << e
            factors.append(((signs << e | extra) - ((1 << e) - 0.5), "_ex"))
            # Larger numbers have no smaller codes.
            sizes, order = np.abs(factors[1][0]), np.argsort(np.abs(numbers), axis=1)
            steps = np.diff(np.take_along_axis(sizes, order, axis=1), axis=1)
            apart = np.diff(np.take_along_axis(np.abs(numbers), order, axis=1), axis=1) > 1e-4
            assert (steps[apart] >= 0).all()
        squares = (residuals**2).sum(axis=1)
        for codes, suffix in factors:
            with np.errstate(all="ignore"):
                along = (codes * numbers).sum(axis=1)
                ratio = np.where(along != 0, squares / along, 0)
            across = codes @ middle
            add, scale = squares + 2 * ratio * across, -2 * ratio
            if metric == "dot":
                add, scale = 1 - residuals @ center + ratio * across, -ratio
            for name, expected in (("__add_factors", add), ("__scale_factors", scale)):
                found = known.numbers(name + suffix, number)
                np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
        codes, suffix = factors[-1]
        add, scale = (
            known.numbers(f"__{name}_factors{suffix}", number) for name in ("add", "scale")
        )
        product = codes @ turned
        if metric == "dot":
            near = query @ center
            distances.append(1 - 2 * near + near * add + scale * product)
        else:
            distances.append(add + ((query - center) ** 2).sum() + scale * product)
    check_distances(path, by_row(known, distances), 0.2)


# ------------------------------------------------------------------ graphs


@pytest.mark.sampled(every=3)
@pytest.mark.spec("vector-1", "vector-4", "vector-9", "vector-10", "vector-11")
@METRICS
@pytest.mark.parametrize("kind", ["IVF_HNSW_FLAT", "IVF_HNSW_SQ"])
@WRITERS
def test_graphs_have_levels_of_neighbours_with_distances(
    tmp_path: Path, library: Any, kind: str, metric: str
) -> None:
    options = {"m": 4, "max_level": 4}
    known = built(tmp_path, library, kind, metric, **options)
    (index,) = tmp_path.glob("_indices/*/index.idx")
    model = index_pb2.IVF.FromString(bytes(files.LanceFileReader(str(index)).read_global_buffer(1)))
    texts = json.loads(known.graph.schema.metadata[b"lance:hnsw"])
    assert known.graph.schema.names == ["__vector_id", "__neighbors", "_distance"]
    assert len(texts) == len(known.partitions)
    for number, text in enumerate(texts):
        said = json.loads(text)
        assert said["params"]["m"] == 4
        ends, nodes = said["level_offsets"], model.lengths[number]
        assert (ends[0], ends[-1]) == (0, nodes)
        graph = known.graph.slice(model.offsets[number], nodes).to_pydict()
        start, stop = known.partitions[number]
        if kind == "IVF_HNSW_SQ":
            low, high = (known.details["bounds"][name] for name in ("start", "end"))
            points = low + known.codes("__sq_code", number) * (high - low) / 255
        else:
            points = np.array(known.rows["flat"].slice(start, stop - start).to_pylist())
        below = list(range(stop - start))
        for first, last in pairwise(ends):
            here = graph["__vector_id"][first:last]
            assert here == below or (first and set(here) < set(below))
            for node, near, far in zip(
                here, graph["__neighbors"][first:last], graph["_distance"][first:last], strict=True
            ):
                assert set(near) <= set(here) - {node}
                assert library is lance or len(near) <= (4 if first else 8)
                squares = ((points[near] - points[node]) ** 2).sum(axis=1)
                if metric == "dot" or (metric == "cosine" and kind == "IVF_HNSW_FLAT"):
                    squares = 1 - points[near] @ points[node]
                np.testing.assert_allclose(far, squares, rtol=1e-2, atol=1e-2)
            below = here
        assert said["entry_point"] in graph["__vector_id"][ends[-2] if here else 0 :] or not here


# ------------------------------------------------------------------ details


KINDS: dict[str, dict[str, Any]] = {
    "IVF_FLAT": {}, "IVF_SQ": {}, "IVF_PQ": {"num_sub_vectors": 4, "num_bits": 4},
    "IVF_RQ": {"num_bits": 3}, "IVF_HNSW_FLAT": {"m": 6, "ef_construction": 50, "max_level": 5},
    "IVF_HNSW_SQ": {}, "IVF_HNSW_PQ": {"num_sub_vectors": 4},
}  # fmt: skip


@pytest.mark.sampled(every=2)
@pytest.mark.spec("vector-22")
@pytest.mark.parametrize("kind", KINDS)
def test_details_of_the_entry_are_those_of_pylance(tmp_path: Path, kind: str) -> None:
    said, versions = [], []
    for library in (lance, glaive):
        path = tmp_path / library.__name__
        built(path, library, kind, "dot", target_partition_size=100, **KINDS[kind])
        (entry,) = glaive.dataset(path).manifest.indices
        details = vector_details_pb2.VectorIndexDetails.FromString(entry.index_details.value)
        details.ClearField("runtime_hints")
        said.append(details)
        versions.append(entry.index_version)
    assert said[0] == said[1]
    assert said[1].metric_type == vector_details_pb2.DOT
    assert said[1].WhichOneof("compression") == kind.rpartition("_")[2].lower()
    assert said[1].HasField("hnsw_index_config") == ("HNSW" in kind)
    assert versions == [2 if kind == "IVF_RQ" else 1] * 2
