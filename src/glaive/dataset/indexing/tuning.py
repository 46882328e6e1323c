"""Parameters of a vector index, and of searches with it, that reach a recall.

Specification: "Details" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from glaive.errors import OptionError
from glaive.format.pb import table_pb2
from glaive.index.registry import kind_of
from glaive.index.vector.parameters import MAX_PARTITIONS
from glaive.index.vector.search_defaults import SearchDefaults, with_defaults
from glaive.scan.indices import IndexedSegment, SnapshotIndices, union_of
from glaive.scan.nearest.choice import ChosenIndex, searched_segments
from glaive.scan.nearest.recall import RecallSample
from glaive.scan.nearest.vectors import vector_type
from glaive.scan.views import Views

if TYPE_CHECKING:
    from glaive.scan.snapshot import Snapshot

__all__ = ["checked_recall", "chosen_index", "measured_recall", "suited", "tune"]

_LOG = logging.getLogger(__name__)

_QUERIES: Final = 100
_MOST_REFINED: Final = 64
_REFINED: Final = (None, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, _MOST_REFINED)
_MARGIN: Final = 0.25
"""Share of what is missing from 1 that is aimed at beyond the recall, as samples are small."""

_GROWTH: Final = 1.3
_FINE: Final = 0.9
"""Recall from which on product codes have a byte for four dimensions, instead of eight."""

_MEASURED_BYTES: Final = 1 << 30
_MEASURED_QUERIES: Final = 30


def checked_recall(parameters: Mapping[str, Any]) -> float | None:
    """The recall that is asked for among the parameters of an index; None for none.

    Raises
    ------
    OptionError
        It is not between 0 and 1.
    """
    given = parameters.get("recall")
    if given is None:
        return None
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not 0 < given < 1:
        raise OptionError(
            f"recall: expected a number between 0 and 1, such as 0.95, found {given!r}"
        )
    return float(given)


def suited(
    parameters: Mapping[str, Any], recall: float, rows: int, field: pa.Field[Any]
) -> dict[str, Any]:
    """Parameters with partitions and codes for so many rows, where nothing was said.

    Raises
    ------
    OptionError
        The column has several vectors in a row.
    """
    kind = str(parameters.get("index_type", "IVF_PQ")).upper()
    made = {name: value for name, value in parameters.items() if name != "recall"}
    stored: Any = field.type
    if pa.types.is_list(stored) or pa.types.is_large_list(stored):
        raise OptionError(
            f"recall: column {field.name!r} has several vectors in a row, of which none is "
            "measured. Leave it out, and set nprobes and refine_factor when searching"
        )
    said = ("num_partitions", "target_partition_size", "ivf_centroids", "ivf_centroids_file")
    if "HNSW" not in kind and all(made.get(name) is None for name in said):
        made["num_partitions"] = min(MAX_PARTITIONS, max(1, 1 << round(math.log2(rows + 1) / 2)))
    if kind.endswith("PQ") and made.get("num_sub_vectors") is None:
        dimension = int(getattr(stored, "list_size", 1))
        wanted = max(1, dimension // (4 if recall >= _FINE else 8))
        even = 2 if made.get("num_bits") == 4 else 1
        fitting = [
            parts for parts in range(1, wanted + 1) if dimension % parts == 0 and parts % even == 0
        ]
        made["num_sub_vectors"] = fitting[-1] if fitting else dimension
    return made


def tune(snapshot: Snapshot, column: str, recall: float, entry: table_pb2.IndexMetadata) -> None:
    """Find how a new segment has to be searched, and add that to its details.

    Partitions first, with as many candidates refined as may be; then the fewest candidates.

    Raises
    ------
    OptionError
        No search of the segment reaches the recall.
    """
    index = chosen_index(snapshot, [entry])
    sample = None
    if index is not None:
        fragments = sorted(index.fragments)
        sample = RecallSample.of(Views(snapshot), column, index.metric, _QUERIES, fragments)
    if index is None or sample is None:
        return
    aim = recall + _MARGIN * (1 - recall)
    partitions = len(index.segments[0].opened.partitions)
    nprobes, reached = 1, 0.0
    while True:
        reached = sample.recall(index, nprobes=nprobes, refine_factor=_MOST_REFINED)
        if reached >= aim or nprobes == partitions:
            break
        nprobes = min(partitions, max(nprobes + 1, int(nprobes * _GROWTH)))
    if reached < recall:
        raise OptionError(
            f"recall: an index of {index.name!r} with these codes reaches {reached:.3f}, not "
            f"{recall}. Use finer ones: more num_sub_vectors or num_bits, or IVF_SQ or IVF_FLAT"
        )
    aim = min(aim, reached)
    for refine in _REFINED:
        reached = sample.recall(index, nprobes=nprobes, refine_factor=refine)
        if reached >= aim:
            break
    defaults = SearchDefaults(nprobes, refine, recall)
    _LOG.info(
        "index %r: %d partitions, searched with nprobes=%d, refine_factor=%s: recall %.3f",
        entry.name, partitions, nprobes, refine, reached,
    )  # fmt: skip
    details = entry.index_details
    details.value = with_defaults(details.value, defaults, snapshot.manifest.where)


def chosen_index(
    snapshot: Snapshot, entries: Sequence[table_pb2.IndexMetadata]
) -> ChosenIndex | None:
    """Segments of a vector index that searches use; None where there are none.

    Raises
    ------
    OptionError
        The column has no vectors.
    """
    from glaive.dataset.indexing.indexed_path import indexed_path
    from glaive.table.index_coverage import covered_fragments

    manifest = snapshot.manifest
    live = frozenset(manifest.fragment_ids.tolist())
    segments: list[IndexedSegment] = []
    for entry in entries:
        kind = kind_of(entry)
        covered = (covered_fragments(entry) or frozenset()) & live
        if kind is not None and kind.name == "vector" and covered:
            segments.append(IndexedSegment(entry, kind, covered))
    if not segments:
        return None
    column = indexed_path(manifest, entries[0])
    vectors = vector_type(manifest.schema.find(column)[-1].to_arrow(), column)
    searched = searched_segments(SnapshotIndices.of(snapshot), segments, vectors)
    if not searched:
        return None
    fragments = union_of(one.segment for one in searched)
    return ChosenIndex(entries[0].name, searched, fragments, searched[0].opened.metric)


def measured_recall(
    snapshot: Snapshot, column: str, index: ChosenIndex, queries: int | None
) -> float | None:
    """Recall of searches as they are by default.

    None where nothing can be searched for, or where ``queries`` is None and the vectors are
    more than 1 GiB, which would take long to compare.
    """
    opened = index.segments[0].opened
    if queries is None:
        size = snapshot.num_rows * opened.dimension * opened.centroids.itemsize
        queries = _MEASURED_QUERIES if size <= _MEASURED_BYTES else 0
    if not queries:
        return None
    every = snapshot.manifest.fragment_ids.tolist()
    sample = RecallSample.of(Views(snapshot), column, index.metric, queries, every)
    return None if sample is None else sample.recall(index)
