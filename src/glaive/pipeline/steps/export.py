"""``kind = "export"``: rows are written as files of another format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from glaive.dataclass import dataclass
from glaive.errors import GlaiveError, OptionError
from glaive.exporting import FORMATS
from glaive.pipeline.step import DatasetName, Step, StepContext


@dataclass(frozen=True, kw_only=True)
class ExportStep(Step):
    """Export; see :meth:`glaive.spark.LanceTable.export`.

    Parameters
    ----------
    source, branch
        The dataset.
    path
        The folder to write.
    format
        ``parquet``, ``csv``, ``json``, ``arrow``, ``feather``; or one of Spark's, such as ``orc``.
    mode
        What becomes of files that are there. Default: replaced, as by a run that goes on. One of
        Spark's formats is not appended by a run that goes on: it may have been.
    options
        Of the format.
    """

    source: DatasetName
    path: str = field(repr=False)  # a URL may have a password
    branch: str | None = None
    format: str = "parquet"
    mode: Literal["errorifexists", "append", "overwrite", "ignore"] = "overwrite"
    options: Mapping[str, Any] | None = field(default=None, repr=False)  # may have passwords

    def reads(self, datasets: Mapping[str, str]) -> tuple[str, ...]:
        """The dataset."""
        return (self.source,)

    def summary(self) -> str:
        """What it will do."""
        return f"export {self.source} as {self.format} to {self.path}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Write the files.

        Raises
        ------
        OptionError
            An earlier attempt may have appended them, and it cannot be seen whether it did.
        """
        table = context.table(self.source, self.branch)
        folder = Path(context.folder, Path(self.path).expanduser())
        path = self.path if "://" in self.path else str(folder)
        if context.again and self.mode == "append" and self.format.lower() not in FORMATS:
            raise OptionError(
                f"step {context.name}: it was stopped, and files of {self.format} do not say which "
                f"run wrote them: its rows may be in {GlaiveError.without_secrets(path)} already. "
                "Nothing was written now. Look for them: if they are there, remove the step from "
                "the file; else export with mode 'overwrite' to a folder of its own, or as one of "
                f"{', '.join(FORMATS)}, which are exported once"
            )
        options: dict[str, Any] = dict(self.options or {})
        counts: dict[str, int] = table.export(
            self.format, path, self.mode, job_id=context.job_id, **options
        )
        return {"rows": counts["num_rows"]}
