"""The model that all segments of a vector index share, trained before they are built.

It is the one that a single process would train, from the same sample with the same random choices;
a codebook for more than 256 partitions has another sample, of equal size. Centroids are few as a
rule, and trained here; the parts of a codebook do not depend on each other: tasks train them.

Specification: "Training" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.dataset.indexing.task import IndexTask, source_of
from glaive.dataset.tasks import opened_at
from glaive.index.vector.model import model_bounds, model_centroids, model_codebook, model_sample
from glaive.index.vector.parameters import VectorParameters, default_parts, parse_parameters

if TYPE_CHECKING:
    from glaive.dataset.indexing.source import ColumnSource
    from glaive.dataset.tasks import TaskRunner
    from glaive.dataset.version import OpenDataset, OpenedVersion

__all__ = ["CodebookTask", "with_shared_model"]

_GIVEN = ("ivf_centroids_file", "num_partitions", "accelerator")
"""Parameters of which nothing is left to do once there are centroids."""


@dataclass(frozen=True, slots=True)
class CodebookTask:
    """Train some parts of a codebook; can be pickled. Writes nothing.

    Each task reads the sample of the column by itself: that costs less than sending it.

    Parameters
    ----------
    start, stop
        Number of the first part, and the one after the last.
    """

    start: int
    stop: int

    def execute(self, dataset: OpenDataset, shared: IndexTask) -> NDArray[Any] | None:
        """These parts of the codebook; None without a vector to train them with.

        ``shared`` builds the whole index, and has centroids.

        Raises
        ------
        VersionNotFoundError
            The version of ``shared`` was cleaned up.
        """
        source, parameters = _parsed(opened_at(dataset, shared.read_version), shared)
        sample = model_sample(source, parameters)
        if not len(sample):
            return None
        centroids: Any = parameters.centroids
        return model_codebook(parameters, centroids, sample, range(self.start, self.stop))


def with_shared_model(
    opened: OpenedVersion, task: IndexTask, runner: TaskRunner, segments: int
) -> IndexTask:
    """The task of a vector index with centroids and, where codes need one, a codebook.

    Without centroids if nothing can be trained, or nothing is gained by training before: then the
    index is to be built as one segment.

    Parameters
    ----------
    task
        What one process would do.
    runner
        Trains the codebook.
    segments
        That the index is to have.

    Raises
    ------
    OptionError
        A parameter is wrong.
    """
    task = _complete(opened, task)
    source, parameters = _parsed(opened, task)
    needs_codebook = parameters.codes == "PQ" and parameters.codebook is None
    if not parameters.train or (segments < 2 and not (needs_codebook and runner.parallelism > 1)):
        return task
    trained: dict[str, Any] = {"ivf_centroids": parameters.centroids}
    if parameters.centroids is None or parameters.codes == "SQ":
        sample = model_sample(source, parameters)
        if not len(sample):
            return task
        trained["ivf_centroids"], _ = model_centroids(parameters, sample, source.num_rows)
        if parameters.codes == "SQ":
            trained["sq_bounds"] = model_bounds(parameters, sample)
    task = _given(task, **trained)
    return _with_codebook(opened, task, runner, parameters) if needs_codebook else task


def _with_codebook(
    opened: OpenedVersion, task: IndexTask, runner: TaskRunner, parameters: VectorParameters
) -> IndexTask:
    parts = parameters.num_sub_vectors
    count = min(parts, runner.parallelism)
    bounds = [parts * at // count for at in range(count + 1)]
    trained: list[Any] = runner.run(opened, [CodebookTask(a, b) for a, b in pairwise(bounds)], task)
    if any(part is None for part in trained):
        return task
    return _given(task, pq_codebook=np.concatenate(trained))


def _complete(opened: OpenedVersion, task: IndexTask) -> IndexTask:
    """The task with what follows from a recall, and with the default of product quantisation."""
    source, _ = source_of(opened, task, None)
    parameters = dict(task.parameters)
    if "recall" in parameters:
        from glaive.dataset.indexing.tuning import checked_recall, suited

        recall = checked_recall(parameters)
        if recall is not None:
            made = suited(parameters, recall, source.num_rows, source.field)
            parameters = {**made, "recall": recall}
    is_product = str(parameters.get("index_type")).upper().endswith("PQ")
    if is_product and parameters.get("num_sub_vectors") is None:
        kind: Any = source.field.type
        vectors = kind.value_type if pa.types.is_list(kind) else kind  # of several in a row
        if pa.types.is_fixed_size_list(vectors):
            parameters["num_sub_vectors"] = default_parts(vectors.list_size)
    return replace(task, parameters=parameters)


def _parsed(opened: OpenedVersion, task: IndexTask) -> tuple[ColumnSource, VectorParameters]:
    source, parameters = source_of(opened, task, None)
    parameters.pop("recall", None)  # of segments, when they are built
    return source, parse_parameters(parameters, source.field)


def _given(task: IndexTask, **trained: object) -> IndexTask:
    kept = {name: value for name, value in task.parameters.items() if name not in _GIVEN}
    return replace(task, parameters={**kept, **trained})
