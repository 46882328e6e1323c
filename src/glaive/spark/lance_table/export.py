"""Rows of a table as files of other formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from glaive.errors import DatasetExistsError, OptionError
from glaive.exporting import FORMATS, ExportMode, check_mode, export_files, refuse_others
from glaive.io.local import LocalStore
from glaive.io.location import Location
from glaive.spark.failures import as_glaive_errors, naming_job
from glaive.spark.jobs.runner import SparkRunner
from glaive.spark.lance_table.handle import TableHandle, located

_OF_VERSIONS = ("delta", "glaive", "lance")
"""Sources of Spark that keep what they replace as a version; others remove what is there."""

_LEFT = "the files that it wrote were removed"


class TableExport(TableHandle):
    """The method of ``LanceTable`` that writes files of other formats."""

    def export(
        self,
        format: str,
        path: str,
        mode: ExportMode = "errorifexists",
        *,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: str | None = None,  # the name that scans have for it
        storage_options: Mapping[str, str] | None = None,
        job_id: str | None = None,
        **options: Any,
    ) -> dict[str, int]:
        """Write the newest version to files of a folder.

        Parameters
        ----------
        format
            ``parquet``, ``csv``, ``json``, ``arrow`` or ``feather``: tasks read the dataset and
            write the files, with exactly its types. Else one of Spark's sources, such as ``orc``.
        path
            The folder.
        mode
            If there are files: ``errorifexists``; ``ignore`` does nothing; ``append`` adds more;
            ``overwrite`` removes those of other exports, once the new ones are there. Spark's
            sources remove them first, and in a bucket all that is below the path.
        columns, filter
            As for :func:`glaive.spark.read`; default: all.
        storage_options
            Of the store of the folder; default: those of the table.
        job_id
            Names this export: running it again with the same id returns what it did, or takes the
            place of a run that has not ended. Not for Spark's sources.
        **options
            Of the format: ``compression="zstd"`` of Parquet, ``header=False`` and ``sep=";"`` of
            CSV; those of Spark's source.

        Returns
        -------
        dict
            ``num_files``, ``num_rows`` and ``bytes``; of Spark's sources ``num_rows``.

        Raises
        ------
        DatasetExistsError
            There are files, and ``mode`` is ``errorifexists``.
        OptionError
            The format, the mode or an option is wrong; or ``overwrite`` would remove files that
            no export wrote.
        SchemaError
            The format has no values for a column; no task ran.
        CommitConflictError
            Another export to the folder, which began later, took the place of this one.
        JobError
            The cluster lost processes of the job.

        Notes
        -----
        The file ``_SUCCESS`` is written when all files are there, and names them. Blobs are written
        as bytes.
        """
        check_mode(mode)
        dataset = self._latest()
        target = located(path)
        name = format.lower()  # sources of Spark have names in any case, too
        if name not in FORMATS:
            place = Location.parse(target)
            if name not in _OF_VERSIONS and place.is_local:
                if "://" in target:
                    target = f"file://{place.path}"  # Spark decodes nothing in it
                if mode == "overwrite":
                    refuse_others(LocalStore(place.path))
            with _naming_formats(format), as_glaive_errors():
                frame = self._frame(columns, filter=filter, blobs="bytes")  # type: ignore[arg-type]  # a mapping is read, too
                frame.write.format(format).mode(mode).options(**options).save(target)
            return {"num_rows": dataset.count_rows(filter)}
        job = job_id if job_id is not None else str(uuid4())
        with naming_job(job, target, named=job_id is not None, left=_LEFT):
            return export_files(
                dataset.opened,
                target,
                name,
                mode,
                columns=columns,
                filter=filter,
                options=options,
                storage_options=storage_options or dataset.storage_options,
                job_id=job_id,
                runner=SparkRunner(self._spark),
            )


@contextmanager
def _naming_formats(given: str) -> Iterator[None]:
    """Say which formats there are, where Spark has no source of this name either.

    What a source refuses else, before it writes, is an error of the same class, with its words.
    """
    from pyspark.errors import (
        AnalysisException,
        IllegalArgumentException,
        UnsupportedOperationException,
    )

    refusals = (AnalysisException, IllegalArgumentException, UnsupportedOperationException)
    try:
        yield
    except Exception as error:
        if "[DATA_SOURCE_NOT_FOUND]" in str(error):
            raise OptionError(
                f"format: expected {', '.join(FORMATS)}, or the name of a source of Spark, found "
                f"{given!r}"
            ) from error
        if not isinstance(error, refusals):
            raise
        said = str(error).partition("\n")[0]
        if "[PATH_ALREADY_EXISTS]" in said:
            raise DatasetExistsError(f"export as {given}: {said}") from error
        raise OptionError(
            f"Spark's source {given!r} does not take the path, the columns or the options: {said}"
        ) from error
