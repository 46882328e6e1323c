"""Open the segments of vector indices.

Specification: "Files" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from glaive.errors import UnsupportedFeatureError
from glaive.index.segment import Segment
from glaive.index.vector.codes import Codes
from glaive.index.vector.graph import GRAPHS, Graphs
from glaive.index.vector.opened import OpenedVectorIndex, metric_of, read_centroids
from glaive.index.vector.opened_legacy import open_legacy
from glaive.index.vector.partitions import read_model
from glaive.index.vector.plain_codes import PlainCodes, ScalarCodes
from glaive.index.vector.product_codes import product_codes
from glaive.index.vector.rabit_codes import RabitCodes
from glaive.index.vector.storage import PLAIN, PRODUCT, SCALAR, Storage
from glaive.kernels.codes import MAX_WIDTH

__all__ = ["open_vector_index"]


def open_vector_index(segment: Segment, index_name: str, codes_name: str) -> OpenedVectorIndex:
    """Read what every search of a segment needs.

    Raises
    ------
    UnsupportedFeatureError
        The codes, the distance or the layout are not known.
    CorruptFileError, DataFileMissingError, NotLanceError
        A file is damaged or absent.
    """
    if not segment.has(codes_name):
        return open_legacy(segment, index_name)
    storage = Storage(segment.open(codes_name))
    metric = metric_of(storage.metric, storage.file)
    index = segment.open(index_name)
    model = read_model(index)
    partitions = storage.partitions
    centroids = read_centroids(model, len(partitions), metric, index)
    dimension = int(centroids.shape[1])
    codes: Codes
    if storage.column == PLAIN:
        codes = PlainCodes(storage, metric, dimension)
    elif metric == "hamming" or dimension > MAX_WIDTH:
        raise UnsupportedFeatureError(
            f"{segment.where}: codes of {dimension} dimensions are not compared by {metric}"
        )
    elif storage.column == SCALAR:
        codes = ScalarCodes(storage, metric, dimension)
    elif storage.column == PRODUCT:
        codes = product_codes(storage, metric, centroids)
    else:
        codes = RabitCodes(storage, metric, centroids)
    graphs = Graphs(index, len(partitions)) if GRAPHS in index.metadata else None
    return OpenedVectorIndex(segment, metric, centroids, partitions, codes, graphs=graphs)
