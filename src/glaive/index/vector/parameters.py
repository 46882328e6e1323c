"""Parameters of a vector index, checked before glaive reads anything.

Specification: "Training" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError, IndexKindError, OptionError
from glaive.format.pb import index_pb2, vector_details_pb2
from glaive.format.wire import parse
from glaive.index.protocol import PARAMETERS, VECTOR_PARAMETERS, IndexSource
from glaive.index.vector.coder import (
    Clusters,
    Coder,
    PlainCoder,
    ProductCoder,
    RabitCoder,
    ScalarCoder,
    Training,
    assign_all,
    device_named,
    encoded_tensor,
    train_clusters,
    train_codebook,
)
from glaive.index.vector.storage import (
    ADDRESSES,
    ColumnVectors,
    Rotation,
    VectorColumn,
    check_finite,
    load_matrix,
    matrix_of,
    metric_named,
    single_precision,
)
from glaive.kernels.distances import METRICS
from glaive.options import integer
from glaive.types import Float32s, integer_of

CODES: Final = ("FLAT", "SQ", "PQ", "RQ")
KINDS: Final = (
    "IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_SQ", "IVF_HNSW_PQ",
)  # fmt: skip

MAX_PARTITIONS: Final = 4096
_TARGET_ROWS: Final = {"FLAT": 4096, "SQ": 8192, "PQ": 8192, "RQ": 4096}
_TARGET_ROWS_OF_GRAPH: Final = 1 << 20
_DEFAULT_BITS: Final = {"FLAT": 0, "SQ": 8, "PQ": 8, "RQ": 5}
_BITS: Final = {"SQ": (8,), "PQ": (4, 8), "RQ": tuple(range(1, 10))}


@dataclass(frozen=True, slots=True)
class GraphParameters:
    """Parameters of the graphs of an index.

    Parameters
    ----------
    max_level
        Maximum number of levels.
    neighbors
        Maximum neighbours of a node above level 0; on level 0 the maximum is twice as large.
    candidates
        Candidates to consider when a node is added.
    """

    max_level: int
    neighbors: int
    candidates: int


@dataclass(frozen=True, slots=True)
class VectorParameters:
    """Parameters of a vector index.

    Parameters
    ----------
    kind
        One of :data:`KINDS`.
    column
        The vectors and their metric.
    num_partitions
        Number of partitions; ``None``: derived from the number of vectors and
        ``target_partition_size``.
    target_partition_size
        Rows per partition; ``None``: the default of the kind.
    num_sub_vectors
        Parts of product quantisation; 0 for other codes.
    num_bits
        Bits of a code, per part or per dimension.
    sample_rate, max_iters
        Training vectors per centroid, and maximum iterations.
    centroids
        Shape ``(partitions, dimension)``; ``None``: to be trained.
    codebook
        Shape ``(parts, 2 ** bits, dimension / parts)``; ``None``: to be trained.
    bounds
        Lower and upper bound of scalar quantisation; ``None``: to be trained.
    partitions
        Table with ``row_id`` and ``partition``; ``None``: to be computed.
    rotation
        ``fast`` or ``matrix``, for RaBitQ.
    signs
        Signs of a fast rotation that workers share; ``None``: a fixed default.
    transposed
        Store product codes column by column.
    graph
        None: no graphs.
    device
        Torch device that trains centroids; ``None``: the processor.
    """

    kind: str
    column: VectorColumn
    num_partitions: int | None = None
    target_partition_size: int | None = None
    num_sub_vectors: int = 0
    num_bits: int = 0
    sample_rate: int = 256
    max_iters: int = 50
    centroids: NDArray[Any] | None = None
    codebook: NDArray[Any] | None = None
    bounds: tuple[float, float] | None = None
    partitions: pa.Table | None = None
    rotation: str = "fast"
    signs: NDArray[np.uint8] | None = None
    transposed: bool = True
    train: bool = True
    graph: GraphParameters | None = field(default=None)
    device: str | None = None

    @property
    def codes(self) -> str:
        """``FLAT``, ``SQ``, ``PQ`` or ``RQ``."""
        return self.kind.rpartition("_")[2]

    def partitions_for(self, vectors: int) -> int:
        """Return the number of partitions of an index of ``vectors`` vectors."""
        if self.centroids is not None:
            return len(self.centroids)
        if self.num_partitions is not None:
            return max(1, min(self.num_partitions, vectors))
        target = self.target_partition_size
        if target is None:
            target = _TARGET_ROWS[self.codes] if self.graph is None else _TARGET_ROWS_OF_GRAPH
        return max(1, min(vectors // target, MAX_PARTITIONS))


class _Reader:
    """Takes parameters out of a mapping; :meth:`end` rejects the rest."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        # pylance's signatures use None for "not given".
        self._left = {key: value for key, value in parameters.items() if value is not None}

    def take(self, name: str, default: Any = None) -> Any:
        return self._left.pop(name, default)

    def integer(self, name: str, default: int | None = None) -> Any:
        value = self.take(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if name == "num_partitions" and value is not None and integer_of(value) is None:
            raise OptionError(
                f"num_partitions must be int, got {type(value)}: {name}: found {value!r:.80}"
            )
        return None if value is None else _INTEGERS[name].check(name, value)

    def end(self, kind: str) -> None:
        for name in sorted(self._left.keys() - PARAMETERS):
            closest = OptionError.did_you_mean(name, VECTOR_PARAMETERS.split())
            raise OptionError(f"{name}: no such parameter of {kind}{closest}")


_INTEGERS: Final = {
    "num_bits": integer(), "num_partitions": integer(1), "num_sub_vectors": integer(1),
    "target_partition_size": integer(1, 2**64 - 1), "sample_rate": integer(1),
    "max_iters": integer(1), "max_level": integer(1, 64), "m": integer(4, 1024),
    "ef_construction": integer(1, 65_536),
}  # fmt: skip


def parse_parameters(parameters: Mapping[str, Any], values: pa.Field[Any]) -> VectorParameters:
    """Check the parameters of ``create_index`` for a column.

    Raises
    ------
    OptionError
        A parameter is unknown, has a wrong value, or does not fit the column or another parameter.
    """
    reader = _Reader(parameters)
    kind = str(reader.take("index_type", "IVF_PQ")).upper()
    if kind not in KINDS:
        raise IndexKindError(f"index_type: expected one of {', '.join(KINDS)}, found {kind!r}")
    metric = reader.take("metric_type", None) or "l2"
    column = VectorColumn.of(values, metric_named(reader.take("metric", metric)))
    codes = kind.rpartition("_")[2]
    if column.metric == "hamming" and codes != "FLAT":
        raise OptionError(f"metric: {kind} has no codes for hamming; use IVF_FLAT or IVF_HNSW_FLAT")
    bits = reader.integer("num_bits", _DEFAULT_BITS[codes])
    if codes in _BITS and bits not in _BITS[codes]:
        raise OptionError(
            f"num_bits: {kind} has codes of {_named(_BITS[codes])} bits, found {bits}"
        )
    graph = _graph(reader) if "HNSW" in kind else None
    version = str(reader.take("index_file_version", "V3"))
    if version.upper() not in ("V3", "LEGACY"):  # wherever pylance reads Legacy, it reads V3
        raise OptionError(f"index_file_version: expected V3 or Legacy, found {version!r}")
    rotation = str(reader.take("rotation_type", "fast")).lower()
    if rotation not in ("fast", "matrix"):
        raise OptionError(f"rotation_type: expected fast or matrix, found {rotation!r}")
    if rotation == "matrix" and column.kind != pa.float32():
        # pylance's searches multiply the matrix with queries, which have the column's type.
        raise OptionError(f"rotation_type: matrix is for columns of float, found {column.kind}")
    centroids = _centroids(reader, column)
    num_partitions = reader.integer("num_partitions")
    if centroids is not None and num_partitions not in (None, len(centroids)):
        raise OptionError(
            f"Ivf centroids has {len(centroids)} clusters, but num_partitions={num_partitions}: "
            f"num_partitions: expected {len(centroids)}, the number of ivf_centroids, found"
            f" {num_partitions}"
        )
    parts = _parts(reader, column, bits) if codes == "PQ" else 0
    if codes == "RQ" and column.dimension % 8:
        raise OptionError(
            f"index_type: {kind} needs a dimension that is divisible by 8, column"
            f" {column.name!r} has {column.dimension}"
        )
    codebook = _codebook(reader.take("pq_codebook"), parts, bits, column)
    if codebook is not None and centroids is None:
        raise OptionError("pq_codebook: needs ivf_centroids, too: its codes are of residuals")
    bounds = _bounds(reader.take("sq_bounds"), codes, centroids)
    partitions = _partitions(reader.take("precomputed_partitions"), centroids)
    signs = _signs(reader.take("rabitq_model"), kind, bits, column)
    checked = VectorParameters(
        kind=kind, column=column, num_partitions=num_partitions,
        target_partition_size=reader.integer("target_partition_size"),
        num_sub_vectors=parts, num_bits=bits, sample_rate=reader.integer("sample_rate", 256),
        max_iters=reader.integer("max_iters", 50), centroids=centroids, codebook=codebook,
        bounds=bounds, partitions=partitions, rotation=rotation, signs=signs,
        transposed=not reader.take("skip_transpose", False),
        train=bool(reader.take("train", True)), graph=graph,
        device=device_named(reader.take("accelerator")),
    )  # fmt: skip
    reader.end(kind)
    return checked


def default_parts(dimension: int) -> int:
    """Return the default number of parts of product quantisation.

    Raises
    ------
    OptionError
        The dimension is not divisible by 8.
    """
    for width in (16, 8):
        if dimension % width == 0:
            return dimension // width
    raise OptionError(
        f"num_sub_vectors: glaive has no default for dimension {dimension}, which is not a"
        " multiple of 8. Set a divisor of the dimension"
    )


def _signs(model: object, kind: str, bits: int, column: VectorColumn) -> NDArray[np.uint8] | None:
    """Read the signs of a fast rotation from the result of pylance's ``build_rq_model``."""
    if model is None:
        return None
    try:
        parsed = json.loads(model) if isinstance(model, str) else {}
        signs = [int(sign) for sign in parsed["fast_rotation_signs"]]
        fits = (parsed["code_dim"], parsed["num_bits"]) == (column.dimension, bits)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise OptionError(
            f"rabitq_model: expected the JSON of a fast rotation, found {model!r:.80}"
        ) from error
    if kind != "IVF_RQ" or not fits:
        raise OptionError(
            f"rabitq_model: expected one for {kind} with {bits} bits of {column.dimension} "
            f"dimensions, found {model!r:.80}"
        )
    if len(signs) != column.dimension // 2 or not all(0 <= sign < 256 for sign in signs):
        raise OptionError(f"rabitq_model: expected {column.dimension // 2} bytes of signs")
    return np.array(signs, np.uint8)


def _named(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _graph(reader: _Reader) -> GraphParameters:
    return GraphParameters(
        max_level=reader.integer("max_level", 7),
        neighbors=reader.integer("m", 20),
        candidates=reader.integer("ef_construction", 150),
    )


def _parts(reader: _Reader, column: VectorColumn, bits: int) -> int:
    parts = reader.integer("num_sub_vectors")
    if parts is None:
        raise OptionError(
            "num_partitions and num_sub_vectors are required for IVF_PQ: give num_sub_vectors, for "
            "example dimension/8."
        )
    if column.dimension % parts:
        raise OptionError(
            f"dimension ({column.dimension}) must be divisible by num_sub_vectors ({parts}): "
            f"num_sub_vectors: expected a divisor of the dimension {column.dimension}, found"
            f" {parts}"
        )
    if bits == 4 and parts % 2:
        raise OptionError(f"num_sub_vectors: expected an even number for 4 bits, found {parts}")
    return int(parts)


def _centroids(reader: _Reader, column: VectorColumn) -> NDArray[Any] | None:
    numbers, uri = reader.take("ivf_centroids"), reader.take("ivf_centroids_file")
    if numbers is not None and uri is not None:
        raise OptionError("ivf_centroids, ivf_centroids_file: set one of them")
    if uri is not None:
        numbers = load_matrix(uri, "ivf_centroids_file")
    if numbers is None:
        return None
    matrix = matrix_of(numbers, "ivf_centroids")
    expected = f"(partitions, {column.dimension})"
    if matrix.ndim != 2 or not len(matrix) or matrix.shape[1] != column.dimension:
        raise OptionError(f"ivf_centroids: expected shape {expected}, found {matrix.shape}")
    check_finite(matrix, "ivf_centroids")
    return np.ascontiguousarray(matrix, column.dtype)


def _codebook(numbers: Any, parts: int, bits: int, column: VectorColumn) -> NDArray[Any] | None:
    if numbers is None or not parts:
        return None
    matrix = matrix_of(numbers, "pq_codebook")
    shape = (parts, 1 << bits, column.dimension // parts)
    if matrix.ndim == 2 and matrix.size == np.prod(shape):
        matrix = matrix.reshape(shape)
    if matrix.shape != shape:
        raise OptionError(f"pq_codebook: expected shape {shape}, found {matrix.shape}")
    check_finite(matrix, "pq_codebook")
    return np.ascontiguousarray(matrix, column.dtype)


def _bounds(
    given: object, codes: str, centroids: NDArray[Any] | None
) -> tuple[float, float] | None:
    if given is None:
        return None
    if codes != "SQ" or centroids is None:
        raise OptionError("sq_bounds: are of scalar quantisation, and need ivf_centroids, too")
    numbers = given if isinstance(given, tuple | list) else ()
    good = len(numbers) == 2 and all(isinstance(one, int | float) for one in numbers)
    if not good or not -math.inf < numbers[0] <= numbers[1] < math.inf:
        raise OptionError(f"sq_bounds: expected two numbers, the lower first, found {given!r:.80}")
    return float(numbers[0]), float(numbers[1])


def _partitions(table: Any, centroids: NDArray[Any] | None) -> pa.Table | None:
    if table is None:
        return None
    if centroids is None:
        raise OptionError("precomputed_partitions: needs the ivf_centroids it was computed with")
    known: pa.Table = table if isinstance(table, pa.Table) else pa.table({})
    if any(known.column_names.count(name) != 1 for name in ("row_id", "partition")):
        raise OptionError("precomputed_partitions: expected a table with row_id and partition")
    return known


# --- The details message of a vector index ----------------------------------------------
# Specification: "Details" in ``docs/format/vector-indices.md``.

TYPE_URL: Final = "/lance.index.pb.VectorIndexDetails"

_Details = vector_details_pb2.VectorIndexDetails
_VERSION: Final = 1
_RABIT_VERSION: Final = 2


def version_of(parameters: VectorParameters) -> int:
    """Return the version of the index's own format."""
    return _RABIT_VERSION if parameters.codes == "RQ" else _VERSION


def details_of(parameters: VectorParameters) -> bytes:
    """Encode the message for parameters."""
    details = _Details(metric_type=METRICS.index(parameters.column.metric))  # type: ignore[arg-type]  # an open enum
    if parameters.target_partition_size is not None:
        details.target_partition_size = parameters.target_partition_size
    graph = parameters.graph
    if graph is not None:
        details.hnsw_index_config.max_connections = graph.neighbors
        details.hnsw_index_config.construction_ef = graph.candidates
        details.hnsw_index_config.max_level = graph.max_level
    hints = {
        "ivf.max_iters": str(parameters.max_iters),
        "ivf.sample_rate": str(parameters.sample_rate),
        "skip_transpose": "false" if parameters.transposed else "true",
    }
    match parameters.codes:
        case "PQ":
            details.pq.num_bits = parameters.num_bits
            details.pq.num_sub_vectors = parameters.num_sub_vectors
            hints["pq.max_iters"] = str(parameters.max_iters)
            hints["pq.sample_rate"] = str(parameters.sample_rate)
        case "SQ":
            details.sq.num_bits = parameters.num_bits
            hints["sq.sample_rate"] = str(parameters.sample_rate)
        case "RQ":
            details.rq.num_bits = parameters.num_bits
            if parameters.rotation == "matrix":
                details.rq.rotation_type = _Details.RabitQuantization.MATRIX
        case _:
            details.flat.SetInParent()
    details.runtime_hints.update({f"lance.{key}": value for key, value in hints.items()})
    return details.SerializeToString(deterministic=True)


def details_by_name(content: bytes, where: object) -> dict[str, Any]:
    """Decode a message by pylance's names; empty for entries of old writers.

    Raises
    ------
    CorruptFileError
        The message is invalid, or its metric is unknown.
    """
    if not content:
        return {}
    details = _parsed(content, where)
    named: dict[str, Any] = {"metric_type": METRICS[details.metric_type].upper()}
    if details.target_partition_size:
        named["target_partition_size"] = details.target_partition_size
    if details.HasField("hnsw_index_config"):
        named["hnsw"] = _numbers(details.hnsw_index_config)
    codes = details.WhichOneof("compression")
    if codes not in (None, "flat"):
        named["compression"] = {"type": codes, **_numbers(getattr(details, codes))}
        if codes == "rq":
            rotations = ("fast", "matrix")
            named["compression"]["rotation_type"] = rotations[bool(details.rq.rotation_type)]
    if details.runtime_hints:
        named["runtime_hints"] = dict(details.runtime_hints)
    return named


def _numbers(message: Any) -> dict[str, int]:
    """Return the numbers of a message, by field name."""
    return {one.name: getattr(message, one.name) for one in message.DESCRIPTOR.fields}


def options_of(content: bytes, where: object) -> dict[str, Any]:
    """Return the parameters of ``create_index`` in a message, for index entries without files.

    Raises
    ------
    CorruptFileError
        The message is invalid, or its metric is unknown.
    """
    details = _parsed(content, where)
    codes = details.WhichOneof("compression") or "flat"
    graph = "HNSW_" if details.HasField("hnsw_index_config") else ""
    options: dict[str, Any] = {
        "index_type": f"IVF_{graph}{codes.upper()}",
        "metric": METRICS[details.metric_type],
        "target_partition_size": details.target_partition_size or None,
    }
    if codes != "flat":
        options["num_bits"] = getattr(details, codes).num_bits or None
    if codes == "pq":
        options["num_sub_vectors"] = details.pq.num_sub_vectors or None
    if codes == "rq" and details.rq.rotation_type == _Details.RabitQuantization.MATRIX:
        options["rotation_type"] = "matrix"
    if graph:
        options["m"] = details.hnsw_index_config.max_connections or None
        options["ef_construction"] = details.hnsw_index_config.construction_ef or None
        options["max_level"] = details.hnsw_index_config.max_level or None
    return options


def _parsed(content: bytes, where: object) -> vector_details_pb2.VectorIndexDetails:
    details = parse(_Details(), content, "details of an index", where)
    if not 0 <= details.metric_type < len(METRICS):
        raise CorruptFileError(
            "metric of an index", expected="0 to 3", found=f"{details.metric_type}", where=where
        )
    return details


# --- Train the model of a vector index: centroids and a coder ---------------------------
# Specification: "Training" in ``docs/format/vector-indices.md``.

_SAMPLE_SHARE = 4
"""A sample takes at most the memory limit of a build divided by this."""

_CODEBOOK_SAMPLE = 256
"""Training residuals of a codebook: the sample rate times this, for 4-bit codes as well."""


class VectorModel:
    """Centroids and a coder. Immutable.

    Parameters
    ----------
    column
        The vectors and their metric.
    centroids
        Shape ``(partitions, dimension)``, in the dtype of the column.
    coder
        Encodes vectors.
    loss
        Loss of the training; ``None`` if the caller gave the centroids.
    """

    def __init__(
        self, column: VectorColumn, centroids: NDArray[Any], coder: Coder, loss: float | None = None
    ) -> None:
        self.column, self.centroids, self.coder, self.loss = column, centroids, coder, loss
        self.clusters = clusters_of(centroids, column)

    def __len__(self) -> int:
        return len(self.centroids)

    def encode(
        self, block: ColumnVectors, partitions: NDArray[np.int32] | None = None
    ) -> tuple[NDArray[np.int32], NDArray[Any]]:
        """Return the partition and the record of each vector of a block."""
        ids = self.clusters.assign(block.vectors) if partitions is None else partitions
        residuals = block.vectors
        if self.column.metric != "hamming":
            with np.errstate(all="ignore"):  # an infinite residual is near nothing
                residuals = block.vectors - self.clusters.centroids[ids]
        records = np.empty(len(ids), self.dtype)
        records[ADDRESSES] = block.rows
        with np.errstate(over="ignore"):  # a factor beyond the largest number becomes infinite
            for name, codes in self.coder.encode(block, residuals, ids).items():
                records[name] = codes
        return ids, records

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a record: the row number and its codes."""
        return np.dtype([(ADDRESSES, np.uint64), *self.coder.dtypes])

    def message(self) -> index_pb2.IVF:
        """Encode the centroids as files store them."""
        return index_pb2.IVF(centroids_tensor=encoded_tensor(self.centroids), loss=self.loss)


def clusters_of(centroids: NDArray[Any], column: VectorColumn) -> Clusters:
    """Return stored centroids for assigning vectors to them."""
    if column.metric == "hamming":
        centroids = np.unpackbits(centroids, axis=1, bitorder="little")
    return Clusters(single_precision(centroids), column.metric)


def train_centroids(
    column: VectorColumn, vectors: Float32s, count: int, iterations: int, device: str | None = None
) -> tuple[NDArray[Any], float]:
    """Train centroids with a sample; return them in the dtype of the column, and the loss."""
    training = Training(column.metric, iterations, device=device)
    centroids, loss = train_clusters(vectors, count, training)
    if column.metric == "hamming":
        return np.packbits(centroids.astype(np.bool_), axis=1, bitorder="little"), loss
    return centroids.astype(column.dtype), loss


def sample_vectors(column: VectorColumn, source: IndexSource, rows: int) -> ColumnVectors:
    """Return the vectors of a sample of at most ``rows`` rows, fewer if memory is short."""
    limit = source.memory_limit // _SAMPLE_SHARE // (column.trained_dimension * 4)
    values = source.sample(min(rows, max(1, limit), source.num_rows))
    return column.block(values, np.zeros(len(values), np.uint64))


def train_model(source: IndexSource, parameters: VectorParameters) -> VectorModel | None:
    """Train a model; ``None`` if all rows lack a vector. Cost: reads one sample of the column."""
    sample = model_sample(source, parameters)
    if not len(sample):
        return None
    centroids, loss = model_centroids(parameters, sample, source.num_rows)
    return VectorModel(parameters.column, centroids, _coder(parameters, centroids, sample), loss)


def model_sample(source: IndexSource, parameters: VectorParameters) -> Float32s:
    """Return the training vectors of a model; each call returns the same."""
    needed = 0
    if parameters.centroids is None:
        needed = parameters.partitions_for(source.num_rows)
    if parameters.codes == "PQ" and parameters.codebook is None:
        needed = max(needed, _CODEBOOK_SAMPLE)
    elif parameters.codes == "SQ" and parameters.bounds is None:
        needed = max(needed, 256)
    rows = max(1, needed) * parameters.sample_rate
    return sample_vectors(parameters.column, source, rows).vectors


def model_centroids(
    parameters: VectorParameters, sample: Float32s, rows: int
) -> tuple[NDArray[Any], float | None]:
    """Return the centroids for ``rows`` rows, and the loss: ``None`` for centroids of the caller.

    Parameters
    ----------
    sample
        Result of :func:`model_sample`, with at least one vector.
    """
    if parameters.centroids is not None:
        return parameters.centroids, None
    count = parameters.partitions_for(rows)
    return train_centroids(
        parameters.column,
        _sample(sample, count * parameters.sample_rate),
        count,
        parameters.max_iters,
        parameters.device,
    )


def model_bounds(parameters: VectorParameters, sample: Float32s) -> tuple[float, float]:
    """Return the bounds of scalar quantisation; ``sample`` as for :func:`model_centroids`."""
    if parameters.bounds is not None:
        return parameters.bounds
    return float(sample.min()), float(sample.max())


def model_codebook(
    parameters: VectorParameters,
    centroids: NDArray[Any],
    sample: Float32s,
    chosen: Sequence[int] | None = None,
) -> NDArray[Any]:
    """Train the codebook of product quantisation, or some of its parts; parts are independent.

    Parameters
    ----------
    sample
        See :func:`model_centroids`.
    chosen
        Numbers of the parts to train; default: all.
    """
    return train_residuals(
        parameters.column,
        centroids,
        _sample(sample, parameters.sample_rate * _CODEBOOK_SAMPLE),
        parameters.num_sub_vectors,
        parameters.num_bits,
        parameters.max_iters,
        chosen,
    )


def _coder(parameters: VectorParameters, centroids: NDArray[Any], sample: Float32s) -> Coder:
    column = parameters.column
    match parameters.codes:
        case "SQ":
            start, end = model_bounds(parameters, sample)
            return ScalarCoder(column.dimension, start, end, dot=column.metric == "dot")
        case "PQ":
            codebook = parameters.codebook
            if codebook is None:
                codebook = model_codebook(parameters, centroids, sample)
            return ProductCoder(
                codebook,
                parameters.num_bits,
                residual=parameters.column.metric != "dot",
                by_column=parameters.transposed,
            )
        case "RQ":
            rotation = Rotation.random(parameters.rotation, column.dimension)
            if parameters.signs is not None:
                rotation = Rotation(parameters.signs)
            clusters, dot = clusters_of(centroids, column), column.metric == "dot"
            return RabitCoder(
                clusters, rotation, parameters.num_bits, dot=dot, in_blocks=parameters.transposed
            )
        case _:
            return PlainCoder(column)


def train_residuals(
    column: VectorColumn,
    centroids: NDArray[Any],
    vectors: Float32s,
    parts: int,
    bits: int,
    iterations: int,
    chosen: Sequence[int] | None = None,
) -> NDArray[Any]:
    """Train a codebook with a sample of vectors: on residuals, or for dot products on vectors.

    Parameters
    ----------
    chosen
        Numbers of the parts to train; default: all.

    Returns
    -------
    numpy.ndarray
        Shape ``(parts, 2 ** bits, dimension / parts)``, in the dtype of the column; only chosen
        parts.
    """
    if column.metric != "dot":
        clusters = clusters_of(centroids, column)
        ids, _ = assign_all(clusters, vectors, parallel=True)
        with np.errstate(all="ignore"):
            vectors = vectors - clusters.centroids[ids]
    trained = train_codebook(vectors, parts, bits, Training("l2", iterations), chosen)
    with np.errstate(all="ignore"):  # residuals may be twice the largest number
        return trained.astype(column.dtype)


def _sample(vectors: Float32s, limit: int) -> Float32s:
    """Return at most ``limit`` vectors, evenly spaced."""
    if len(vectors) <= limit:
        return vectors
    chosen = np.arange(limit, dtype=np.int64) * len(vectors) // limit
    return vectors[chosen]
