"""Segments of one model are merged, with rows that none of them has; others are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.index.vector.sources import VERSION, ArraySource, built, clustered, lists_of

from glaive.errors import CorruptFileError, UnsupportedFeatureError
from glaive.format.pb import table_pb2, vector_details_pb2
from glaive.index.segment import Segment, SegmentWriter
from glaive.index.vector.index_writer import StoredIndex
from glaive.index.vector.vector_index import VectorIndex

ROWS, DIMENSION = 1200, 16
CODES: dict[str, dict[str, Any]] = {
    "flat": {"index_type": "IVF_FLAT", "metric": "cosine"},
    "sq": {"index_type": "IVF_SQ"},
    "pq": {"index_type": "IVF_PQ", "num_sub_vectors": 4},
    "pq-4-bits": {"index_type": "IVF_PQ", "num_sub_vectors": 4, "num_bits": 4, "metric": "dot"},
    "rq": {"index_type": "IVF_RQ", "num_bits": 4},
    "rq-matrix": {"index_type": "IVF_RQ", "num_bits": 1, "rotation_type": "matrix"},
    "hnsw": {"index_type": "IVF_HNSW_SQ", "m": 6},
}


class Numbered(ArraySource):
    """Rows of one fragment with this number."""

    def __init__(self, array: Any, number: int) -> None:
        super().__init__([array])
        self.number = number

    def batches(self) -> Any:
        for values, rows in super().batches():
            yield values, rows + np.uint64(self.number << 32)


def buffers_of(file: Any) -> int:
    """Partitions, and a codebook or a matrix."""
    said = file.metadata.get("storage_metadata", "")
    return 2 if "codebook_position" in said or '"matrix' in said.replace("\\", "") else 1


def contents(segment: Segment) -> Any:
    """The files' columns and metadata; buffers with them."""
    files = {}
    for name in ("index.idx", "auxiliary.idx"):
        file = segment.open(name)
        files[name] = (
            file.read().to_pydict(),
            file.metadata,
            [file.buffer(number).to_pybytes() for number in range(1, 1 + buffers_of(file))],
        )  # fmt: skip
    return files


def merged(segments: list[Segment], source: ArraySource | None) -> Segment:
    out = SegmentWriter(segments[0].store, VERSION)
    made = VectorIndex().merge(segments, source, out)
    entry = table_pb2.IndexMetadata(name="i", files=out.finish(), index_version=made.version)
    entry.uuid.uuid = out.id.bytes
    entry.index_details.type_url, entry.index_details.value = made.type_url, made.details
    return Segment(out.store, entry)


@pytest.mark.sampled(every=2)
@pytest.mark.spec("vector-27")
@pytest.mark.parametrize("kind", CODES)
def test_a_merge_is_what_one_build_with_that_model_would_have_written(kind: str) -> None:
    vectors = clustered(ROWS, DIMENSION)
    arrays = [lists_of(part) for part in np.split(vectors, 3)]
    centroids = vectors[:: ROWS // 5][:5]
    options: dict[str, Any] = {**CODES[kind], "ivf_centroids": centroids}
    if "PQ" in options["index_type"]:
        shape = (4, 1 << options.get("num_bits", 8), DIMENSION // 4)
        options["pq_codebook"] = np.random.default_rng(0).standard_normal(shape)
    first = built(Numbered(arrays[0], 0), **options)
    again = merged([first], None)
    assert contents(again) == contents(first)
    assert again.entry.index_details == first.entry.index_details
    if "SQ" in options["index_type"]:
        more = merged([first], Numbered(arrays[1], 1))
        more = merged([more], Numbered(arrays[2], 2))
    else:
        second = built(Numbered(arrays[1], 1), **options)
        more = merged([first, second], Numbered(arrays[2], 2))
    rows = more.open("auxiliary.idx").read(["_rowid"])["_rowid"].to_pylist()
    expected = [(number << 32) + at for number in range(3) for at in range(ROWS // 3)]
    assert sorted(rows) == expected
    if "SQ" not in options["index_type"]:
        assert contents(more) == contents(built(ArraySource(arrays), **options))


@pytest.mark.spec("vector-27")
def test_segments_with_models_of_their_own_are_not_merged() -> None:
    arrays = [lists_of(clustered(ROWS, DIMENSION, seed)) for seed in (0, 1)]
    first, second = (
        built(ArraySource([array]), index_type="IVF_FLAT", num_partitions=3) for array in arrays
    )
    with pytest.raises(UnsupportedFeatureError, match="another model"):
        merged([first, second], None)


def test_columns_that_changed_are_not_merged() -> None:
    first = built(ArraySource([lists_of(clustered(ROWS, DIMENSION))]), index_type="IVF_FLAT")
    for other in (clustered(50, 8), clustered(50, DIMENSION).astype(np.float64)):
        with pytest.raises(UnsupportedFeatureError, match="build it again"):
            merged([first], ArraySource([lists_of(other)]))


def test_an_index_without_vectors_has_nothing_to_merge() -> None:
    empty = built(ArraySource([pa.nulls(3, pa.list_(pa.float32(), 4))]), index_type="IVF_FLAT")
    with pytest.raises(UnsupportedFeatureError, match="without a model"):
        merged([empty], None)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("index.idx", "lance:index", "{}"),
        ("index.idx", "lance:index", "["),
        ("index.idx", "lance:hnsw", '["{}"]'),
        ("index.idx", "lance:hnsw", '["{\\"params\\":{\\"m\\":-1}}"]'),
        ("auxiliary.idx", "storage_metadata", '["{\\"bounds\\":{\\"start\\":0}}"]'),
        ("auxiliary.idx", "storage_metadata", f'["{{\\"bounds\\":{{\\"start\\":{10**400}}}}}"]'),
        ("auxiliary.idx", "storage_metadata", "[]"),
        ("auxiliary.idx", "distance_type", "hamming"),
    ],
)
def test_damaged_models_are_named(name: str, key: str, value: str) -> None:
    source = ArraySource([lists_of(clustered(300, DIMENSION))])
    whole = built(source, index_type="IVF_HNSW_SQ", num_partitions=1)
    out = SegmentWriter(whole.store, VERSION)
    for file_name in ("index.idx", "auxiliary.idx"):
        file = whole.open(file_name)
        copy = out.create(file_name, file.schema.remove_metadata())
        said = {**file.metadata, "lance:ivf": str(copy.add_buffer(file.buffer(1).to_pybytes()))}
        copy.add_metadata(said | ({key: value} if file_name == name else {}))
        copy.write(file.read())
        copy.finish()
    entry = table_pb2.IndexMetadata(name="i", files=out.finish())
    entry.uuid.uuid = out.id.bytes
    with pytest.raises(CorruptFileError, match=str(json.dumps(name)[1:-1])):
        merged([Segment(out.store, entry)], None)


@pytest.mark.spec("rel-42")
@pytest.mark.parametrize("number", [pa.float16(), pa.uint8(), pa.list_(pa.float32(), 1)], ids=str)
@pytest.mark.parametrize("column", ["__add_factors_ex", "__scale_factors_ex"])
def test_factors_of_codes_that_are_no_floats_are_damage(column: str, number: Any) -> None:
    """Their bytes were taken for floats, or ended in bare errors."""
    whole = built(ArraySource([lists_of(clustered(300, DIMENSION))]), **CODES["rq"])

    def other(rows: pa.Table) -> pa.Table:
        one = pa.scalar([1] if pa.types.is_nested(number) else 1, number)
        values = pa.repeat(one, len(rows))
        return rows.set_column(rows.schema.get_field_index(column), column, values)

    hurt = copied(whole, {"auxiliary.idx": other})
    with pytest.raises(CorruptFileError, match=rf"{column}.*auxiliary"):
        VectorIndex().open(hurt)
    with pytest.raises(CorruptFileError, match=rf"{column}.*auxiliary"):
        merged([hurt], None)


@pytest.mark.spec("vector-32")
@pytest.mark.parametrize("change", [{"query_estimator": "other"}, {"layered": True}], ids=str)
def test_codes_of_other_versions_are_not_read(change: dict[str, Any]) -> None:
    whole = built(ArraySource([lists_of(clustered(300, DIMENSION))]), **CODES["rq"])
    (text,) = json.loads(whole.open("auxiliary.idx").metadata["storage_metadata"])
    said = json.dumps([json.dumps(json.loads(text) | change)])
    with pytest.raises(UnsupportedFeatureError, match="Build the index again"):
        VectorIndex().open(copied(whole, {}, storage_metadata=said))


@pytest.mark.spec("vector-32")
def test_codes_that_do_not_lie_in_blocks_are_not_read() -> None:
    def renamed(rows: pa.Table) -> pa.Table:
        names = {"__blocked_ex_codes": "__ex_codes"}
        return rows.rename_columns([names.get(name, name) for name in rows.column_names])

    whole = built(ArraySource([lists_of(clustered(300, DIMENSION))]), **CODES["rq"])
    with pytest.raises(UnsupportedFeatureError, match=r"old layout.*Build the index again"):
        VectorIndex().open(copied(whole, {"auxiliary.idx": renamed}))


def copied(
    whole: Segment, changes: dict[str, Callable[[pa.Table], pa.Table]], **said: str
) -> Segment:
    """A segment with other rows in some of its files, and other metadata."""
    out = SegmentWriter(whole.store, VERSION)
    for name in ("index.idx", "auxiliary.idx"):
        file = whole.open(name)
        rows = file.read()
        if name in changes:
            rows = changes[name](rows)
        copy = out.create(name, rows.schema.remove_metadata())
        buffers = [file.buffer(at).to_pybytes() for at in range(1, 1 + buffers_of(file))]
        for content in buffers:
            copy.add_buffer(content)
        known = {key: value for key, value in said.items() if key in file.metadata}
        copy.add_metadata({**file.metadata, **known})
        copy.write(rows)
        copy.finish()
    entry = table_pb2.IndexMetadata(name="i", files=out.finish())
    entry.uuid.uuid = out.id.bytes
    return Segment(out.store, entry)


@pytest.mark.parametrize(
    ("sample_rate", "max_iters", "known"),
    [
        ("9" * 5000, "7", (256, 7)),
        ("300", "99999999", (300, 50)),  # a training that does not converge would not end
        ("99999999", "1000", (256, 1000)),
        ("0", "0", (256, 50)),
    ],
)
def test_hints_that_are_no_choice_of_anybody_are_passed_over(
    sample_rate: str, max_iters: str, known: tuple[int, int]
) -> None:
    segment = built(ArraySource([lists_of(clustered(300, 8))]), index_type="IVF_FLAT")
    hints = {"lance.ivf.sample_rate": sample_rate, "lance.ivf.max_iters": max_iters}
    details = vector_details_pb2.VectorIndexDetails(runtime_hints=hints)
    segment.entry.index_details.value = details.SerializeToString()
    parameters = StoredIndex(segment).parameters()
    assert (parameters.sample_rate, parameters.max_iters) == known
