"""Build a vector index step by step: train, encode, sort, commit.

Specification: "Training" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.compat.absent import REFUSED_MEMBERS, refuse_members
from glaive.dataset.indexing.task import ColumnSource
from glaive.dataset.indexing.vector_models import (
    EncodedVectors,
    IvfModel,
    PqModel,
    ivf_model,
    load_sorted,
    sort_encoded,
    write_encoded,
)
from glaive.errors import FragmentNotFoundError, OptionError
from glaive.expr.coerce import is_list
from glaive.format.manifest import Feature
from glaive.index.vector.coder import device_named
from glaive.index.vector.parameters import (
    default_parts,
    parse_parameters,
    sample_vectors,
    train_centroids,
    train_residuals,
)
from glaive.index.vector.storage import VectorColumn, metric_named
from glaive.options import integer

if TYPE_CHECKING:
    from glaive.dataset.dataset import LanceDataset
    from glaive.dataset.fragment import LanceFragment


_MEMORY_LIMIT = 1 << 30
RESIDUAL_COLUMN = "__residual_vector"
"""pylance's name of the column of residuals; :class:`IndicesBuilder` stores only codes."""


@refuse_members(REFUSED_MEMBERS)
class IndicesBuilder:
    """Builds a vector index in steps. You can keep the result of each step.

    For datasets that one process can index, :meth:`LanceDataset.create_index` is simpler.

    Parameters
    ----------
    dataset
        The dataset; each step reads its version at that time.
    column
        Path of a column of vectors.

    Raises
    ------
    ColumnNotFoundError, OptionError
        The column is unknown, or does not hold vectors.
    """

    def __init__(self, dataset: LanceDataset, column: str | list[str]) -> None:
        names = [column] if isinstance(column, str) else list(column)
        if len(names) != 1:
            raise OptionError(f"column: expected the path of one column, found {column!r}")
        self.dataset, self.column = dataset, names
        field = self._source(None).field
        bits = pa.types.is_uint8(_number_type(field.type))
        self.dimension = VectorColumn.of(field, "hamming" if bits else "cosine").dimension

    def _source(self, fragment_ids: Iterable[int] | None) -> ColumnSource:
        opened = self.dataset.opened
        ids = None if fragment_ids is None else tuple(fragment_ids)
        there = set(self.dataset.fragment_ids()) if ids else set()
        if missing := [one for one in ids or () if one not in there]:
            raise FragmentNotFoundError(
                f"fragment_ids: Fragment id does not exist: {missing[0]}; version "
                f"{self.dataset.version} has {', '.join(map(str, sorted(there)[:20]))}"
            )
        if ids is not None:
            opened.snapshot.positions_of(ids)
        return ColumnSource(
            opened.snapshot,
            self.column[0],
            ids,
            addresses=not opened.manifest.uses(Feature.STABLE_ROW_IDS),
            memory_limit=_MEMORY_LIMIT,
        )

    def train_ivf(
        self,
        num_partitions: int | None = None,
        *,
        distance_type: str = "l2",
        accelerator: object = None,
        sample_rate: int = 256,
        max_iters: int = 50,
        fragment_ids: Iterable[int] | None = None,
    ) -> IvfModel:
        """Train centroids on a sample of the column.

        Parameters
        ----------
        num_partitions
            Number of partitions; default: the square root of the number of rows.
        distance_type
            ``l2``, ``cosine``, ``dot`` or ``hamming``.
        accelerator
            Device on which torch trains, such as ``cuda`` or ``mps``; default: the CPU.
        sample_rate
            Number of rows to read per partition.
        max_iters
            Maximum number of iterations.
        fragment_ids
            Read these fragments only.

        Raises
        ------
        OptionError
            An argument is wrong, or the column has fewer rows than the sample needs.
        """
        source = self._source(fragment_ids)
        column = VectorColumn.of(source.field, metric_named(distance_type))
        count = round(math.sqrt(source.num_rows)) if num_partitions is None else num_partitions
        integer(1).check("num_partitions", count)
        integer(1).check("max_iters", max_iters)
        _check_rows("num_partitions", count, sample_rate, source.num_rows)
        sample = sample_vectors(column, source, count * sample_rate).vectors
        if not len(sample):
            raise OptionError(f"column {column.name!r} has no vector to train centroids with")
        device = device_named(accelerator)
        centroids, _ = train_centroids(column, sample, count, max_iters, device)
        return IvfModel(_lists(centroids), column.metric)

    def train_pq(
        self,
        ivf_model: IvfModel,
        num_subvectors: int | None = None,
        *,
        sample_rate: int = 256,
        max_iters: int = 50,
        num_bits: int = 8,
        fragment_ids: Iterable[int] | None = None,
    ) -> PqModel:
        """Train a codebook on the residuals of a sample.

        Parameters
        ----------
        ivf_model
            The centroids.
        num_subvectors
            Number of parts of a vector. Default: parts of 16 dimensions if that is possible,
            else of 8.
        sample_rate
            Number of rows to read per code.
        num_bits
            Bits per code: 4 or 8.
        max_iters, fragment_ids
            See :meth:`train_ivf`.

        Raises
        ------
        OptionError
            An argument is wrong, or the column has fewer rows than the sample needs.
        """
        source = self._source(fragment_ids)
        parts = self._parts(num_subvectors)
        integer(1).check("max_iters", max_iters)
        given = {
            "index_type": "IVF_PQ", "metric": ivf_model.distance_type, "num_sub_vectors": parts,
            "num_bits": num_bits, "ivf_centroids": ivf_model.centroids,
        }  # fmt: skip
        parameters = parse_parameters(given, source.field)
        _check_rows("num_bits", 1 << num_bits, sample_rate, source.num_rows)
        sample = sample_vectors(parameters.column, source, sample_rate << num_bits).vectors
        if not len(sample) or parameters.centroids is None:
            raise OptionError(f"column {self.column[0]!r} has no vector to train a codebook with")
        codebook = train_residuals(
            parameters.column, parameters.centroids, sample, parts, num_bits, max_iters
        )
        return PqModel(parts, _lists(codebook.reshape(-1, self.dimension)), num_bits=num_bits)

    def prepare_global_ivf_pq(
        self,
        num_partitions: int | None,
        num_subvectors: int | None,
        *,
        distance_type: str = "l2",
        accelerator: object = None,
        sample_rate: int = 256,
        max_iters: int = 50,
        num_bits: int = 8,
        fragment_ids: Iterable[int] | None = None,
    ) -> dict[str, Any]:
        """Train centroids and a codebook; see :meth:`train_ivf` and :meth:`train_pq`.

        Returns
        -------
        dict
            ``ivf_centroids`` and ``pq_codebook``: arguments of ``create_index_uncommitted``.
        """
        ivf = self.train_ivf(
            num_partitions, distance_type=distance_type, accelerator=accelerator,
            sample_rate=sample_rate, max_iters=max_iters, fragment_ids=fragment_ids,
        )  # fmt: skip
        pq = self.train_pq(
            ivf, num_subvectors, sample_rate=sample_rate, max_iters=max_iters, num_bits=num_bits,
            fragment_ids=fragment_ids,
        )  # fmt: skip
        return {"ivf_centroids": ivf.centroids, "pq_codebook": pq.codebook}

    def transform_vectors(
        self,
        ivf: IvfModel,
        pq: PqModel,
        dest_uri: str,
        fragments: Sequence[LanceFragment] | None = None,
        partition_ds_uri: str | None = None,
    ) -> None:
        """Write a file with the partition and the code of each row, in the order of the rows.

        Parameters
        ----------
        dest_uri
            URI of the file.
        fragments
            Fragments to encode; default: all.
        partition_ds_uri
            URI of a dataset with ``row_id`` and ``partition`` of each row, computed before.

        Raises
        ------
        OptionError
            The models do not fit the column, or a row has no partition.
        """
        ids = None if fragments is None else [fragment.fragment_id for fragment in fragments]
        if ids is not None and not ids:
            raise OptionError("fragments: expected at least one, or None for all")
        write_encoded(self._source(ids), self._encoded(ivf, pq), dest_uri, partition_ds_uri)

    def shuffle_transformed_vectors(
        self,
        unsorted_filenames: Sequence[str],
        dir_path: str,
        ivf: IvfModel,
        shuffle_output_root_filename: str = "sorted",
    ) -> list[str]:
        """Sort files of :meth:`transform_vectors` by partition into one file.

        Returns
        -------
        list
            Name of the file, below ``dir_path``.

        Raises
        ------
        CorruptFileError, NotLanceError, StoreError
            A file is missing, or :meth:`transform_vectors` did not write it.
        """
        name = f"{shuffle_output_root_filename}_0.lance"
        sort_encoded(_names(unsorted_filenames), dir_path, ivf.num_partitions, name)
        return [name]

    def load_shuffled_vectors(
        self,
        filenames: Sequence[str],
        dir_path: str,
        ivf: IvfModel,
        pq: PqModel,
        index_name: str | None = None,
    ) -> None:
        """Commit files of :meth:`shuffle_transformed_vectors` as an index.

        Parameters
        ----------
        index_name
            Name of the index; default: the column's name and ``_idx``.

        Raises
        ------
        CorruptFileError, NotLanceError, StoreError
            A file is missing, or :meth:`shuffle_transformed_vectors` did not write it.
        CommitConflictError
            Another writer rewrote the fragments meanwhile.
        """
        segment = load_sorted(
            self.dataset.opened, self.column[0], self._encoded(ivf, pq), _names(filenames), dir_path
        )
        name = f"{self.column[0]}_idx" if index_name is None else index_name
        self.dataset.commit_existing_index_segments(name, self.column[0], [segment])

    def _encoded(self, ivf: IvfModel, pq: PqModel) -> EncodedVectors:
        given = {
            "index_type": "IVF_PQ", "metric": ivf.distance_type, "ivf_centroids": ivf.centroids,
            "num_sub_vectors": pq.num_subvectors, "num_bits": pq.num_bits,
            "pq_codebook": pq.codebook,
        }  # fmt: skip
        return EncodedVectors(parse_parameters(given, self._source(()).field))

    def _parts(self, parts: int | None) -> int:
        if parts is not None:
            integer(1).check("num_subvectors", parts)
            return parts
        return default_parts(self.dimension)


def _number_type(kind: Any) -> Any:
    while is_list(kind, fixed=True):
        kind = kind.value_type
    return kind


def _names(names: object) -> list[str]:
    if isinstance(names, list | tuple) and names and all(isinstance(one, str) for one in names):
        return list(names)
    raise OptionError(f"filenames: expected a list of names, found {names!r}")


def _lists(numbers: NDArray[Any]) -> Any:
    flat = pa.array(np.ascontiguousarray(numbers).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, numbers.shape[1])


def _check_rows(name: str, count: int, sample_rate: object, rows: int) -> None:
    needed = count * integer(2).check("sample_rate", sample_rate)
    if needed > rows:
        raise OptionError(
            f"{name}: {count} with sample_rate {sample_rate} need {needed} rows, there are {rows}."
            " Lower one of them"
        )


# --- The same steps as functions: ``lance.lance.indices`` ---------------------------------------


def train_ivf_model(
    dataset: Any,
    column: str,
    dimension: int,
    num_partitions: int,
    distance_type: str,
    sample_rate: int,
    max_iters: int,
    fragment_ids: Sequence[int] | None = None,
) -> Any:
    """Train centroids, as fixed-size lists; see :meth:`IndicesBuilder.train_ivf`.

    Parameters
    ----------
    dataset
        The dataset, or its ``_ds``.
    column
        Path of a column of vectors; may be a struct member.
    dimension
        Number of values in a vector of the column.
    sample_rate
        Number of rows to read per partition; fewer if the column has fewer.

    Raises
    ------
    OptionError
        An argument is wrong, or the column has fewer rows than the sample needs.
    """
    trained = _builder(dataset, column, dimension).train_ivf(
        num_partitions,
        distance_type=distance_type,
        sample_rate=_rate(dataset, sample_rate, num_partitions, fragment_ids),
        max_iters=max_iters,
        fragment_ids=fragment_ids,
    )
    return trained.centroids


def train_pq_model(  # pylance has them
    dataset: Any,
    column: str,
    dimension: int,
    num_subvectors: int,
    distance_type: str,
    sample_rate: int,
    max_iters: int,
    ivf_centroids: Any,
    fragment_ids: Sequence[int] | None = None,
    num_bits: int = 8,
) -> Any:
    """Train a codebook, as fixed-size lists; see :meth:`IndicesBuilder.train_pq`.

    Parameters
    ----------
    ivf_centroids
        Result of :func:`train_ivf_model`, which explains the other parameters.

    Raises
    ------
    OptionError
        An argument is wrong, or the column has fewer rows than the sample needs.
    """
    trained = _builder(dataset, column, dimension).train_pq(
        IvfModel(ivf_centroids, distance_type),
        num_subvectors,
        sample_rate=_rate(dataset, sample_rate, 1 << num_bits, fragment_ids),
        max_iters=max_iters,
        num_bits=num_bits,
        fragment_ids=fragment_ids,
    )
    return trained.codebook


def get_ivf_model(dataset: Any, index_name: str) -> IvfModel:
    """Return the centroids of a vector index.

    Raises
    ------
    IndexNotFoundError
        The index is missing.
    OptionError
        The index is not a vector index.
    """
    return ivf_model(dataset.opened.snapshot, index_name)


def build_rq_model(dimension: int, num_bits: int = 5, dtype: str = "float32") -> str:  # noqa: ARG001  # pylance has it
    """Make a random rotation that several tasks share to build an index: ``rabitq_model``, as JSON.

    Parameters
    ----------
    dimension
        Number of values in a vector, divisible by 8.
    num_bits
        Bits per value in a code.
    dtype
        Accepted for pylance compatibility; ignored.

    Raises
    ------
    OptionError
        The dimension is not a multiple of 8.
    """
    if dimension < 1 or dimension % 8:
        raise OptionError(f"dimension must be divisible by 8 for IVF_RQ, found {dimension}")
    signs = np.random.default_rng().integers(0, 256, dimension // 2)
    model = {
        "rotate_mat_position": None, "fast_rotation_signs": signs.tolist(),
        "rotation_type": "fast", "code_dim": dimension, "num_bits": num_bits, "packed": False,
        "query_estimator": "raw_query",
    }  # fmt: skip
    return json.dumps(model)


def _builder(dataset: Any, column: str, dimension: int) -> IndicesBuilder:
    builder = IndicesBuilder(dataset, column)
    if dimension != builder.dimension:
        raise OptionError(
            f"dimension: vectors of column {column!r} have {builder.dimension}, found {dimension}"
        )
    return builder


def _rate(dataset: Any, rate: int, count: int, fragment_ids: Sequence[int] | None) -> int:
    """Return the rows to read for each of ``count``; limited by the number of rows."""
    fragments = dataset.get_fragments()
    rows: int = sum(
        one.count_rows()
        for one in fragments
        if fragment_ids is None or one.fragment_id in fragment_ids
    )
    return min(rate, max(2, rows // max(1, count)))
