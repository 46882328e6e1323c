"""``kind = "ingest"``: files of other formats become rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.ingestion import FORMATS, DriftRule, IngestMode
from glaive.pipeline.run import ExpectingStep
from glaive.pipeline.step import DatasetName, StepContext


@dataclass(frozen=True, kw_only=True)
class IngestStep(ExpectingStep):
    """Write the rows of files; see :func:`glaive.spark.ingest`.

    Parameters
    ----------
    source
        Files, folders or patterns.
    target
        The dataset.
    mode, format, schema, vectors, schema_drift, merge_keys
        As for :func:`glaive.ingest`.
    options
        Of the format.
    write_options
        Of the write, such as ``max_rows_per_file``.
    """

    source: tuple[str, ...] = field(repr=False)  # URLs may have passwords
    target: DatasetName
    mode: IngestMode = "create"
    format: str | None = None
    schema: str | None = None
    vectors: tuple[str, ...] = ()
    schema_drift: DriftRule = "fail"
    merge_keys: tuple[str, ...] = ()
    options: Mapping[str, Any] | None = field(default=None, repr=False)  # may have passwords
    write_options: Mapping[str, Any] | None = field(default=None, repr=False)  # may have passwords

    def check(self) -> None:
        """Refuse an unknown format, and keys of another mode."""
        super().check()
        if self.format is not None and self.format not in FORMATS:
            raise OptionError(f"format: expected one of {', '.join(FORMATS)}, not {self.format!r}")
        if (self.mode == "merge") != bool(self.merge_keys):
            raise OptionError("merge_keys: name the columns for mode = 'merge', and only for it")

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """None: an ingest may create its dataset."""
        return ()

    def writes(self) -> tuple[str, ...]:
        """The dataset, and that of bad records."""
        return (self.target, *self.quarantined())

    def summary(self) -> str:
        """What it will do."""
        return f"{self.mode} {self.target} from {', '.join(self.source)}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Ingest with the workers."""
        from glaive.spark import ingest

        aside = None if self.quarantine is None else context.datasets[self.quarantine]
        done = ingest(
            context.spark,
            [_located(context.folder, source) for source in self.source],
            context.datasets[self.target],
            format=self.format,
            mode=self.mode,
            schema=self.schema,
            vectors=self.vectors,
            schema_drift=self.schema_drift,
            merge_keys=self.merge_keys or None,
            job_id=context.job_id,
            bad_records=aside,
            expect=self.expect,
            on_violation=self.on_violation,
            reader_options=dict(self.options or {}),
            write_options=dict(self.write_options or {}),
            storage_options=context.storage or None,
        )
        if done.repeated:
            return {"repeated": 1}
        return {
            "rows": done.rows,
            "files": done.files,
            "bad_records": done.bad_records,
            "dropped": done.dropped,
        }


def _located(folder: str, source: str) -> str:
    return source if "://" in source else str(Path(folder) / Path(source).expanduser())
