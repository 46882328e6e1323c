"""The details message of a vector index.

Specification: "Details" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from typing import Any, Final

from glaive.errors import CorruptFileError
from glaive.format.pb import vector_details_pb2
from glaive.format.wire import parse
from glaive.index.vector.parameters import VectorParameters
from glaive.kernels.distances import METRICS

__all__ = ["TYPE_URL", "details_by_name", "details_of", "options_of", "version_of"]

TYPE_URL: Final = "/lance.index.pb.VectorIndexDetails"

_Details = vector_details_pb2.VectorIndexDetails
_VERSION: Final = 1
_RABIT_VERSION: Final = 2


def version_of(parameters: VectorParameters) -> int:
    """Version of the index's own format."""
    return _RABIT_VERSION if parameters.codes == "RQ" else _VERSION


def details_of(parameters: VectorParameters) -> bytes:
    """The content of the message."""
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
    """What a message says, by pylance's names; empty for entries of old writers.

    Raises
    ------
    CorruptFileError
        The message cannot be parsed, or its metric is not known.
    """
    if not content:
        return {}
    details = _parsed(content, where)
    said: dict[str, Any] = {"metric_type": METRICS[details.metric_type].upper()}
    if details.target_partition_size:
        said["target_partition_size"] = details.target_partition_size
    if details.HasField("hnsw_index_config"):
        said["hnsw"] = _numbers(details.hnsw_index_config)
    codes = details.WhichOneof("compression")
    if codes not in (None, "flat"):
        said["compression"] = {"type": codes, **_numbers(getattr(details, codes))}
        if codes == "rq":
            rotations = ("fast", "matrix")
            said["compression"]["rotation_type"] = rotations[bool(details.rq.rotation_type)]
    if details.runtime_hints:
        said["runtime_hints"] = dict(details.runtime_hints)
    return said


def _numbers(message: Any) -> dict[str, int]:
    """The numbers of a message, by name."""
    return {one.name: getattr(message, one.name) for one in message.DESCRIPTOR.fields}


def options_of(content: bytes, where: object) -> dict[str, Any]:
    """Parameters of ``create_index`` that a message states; for entries without files.

    Raises
    ------
    CorruptFileError
        The message cannot be parsed, or its metric is not known.
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
