"""``kind = "add_columns"``: columns by expressions, or by a function of record batches."""

from __future__ import annotations

from collections.abc import Mapping

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.pipeline.step import StepContext, TableStep, check_function, function_named


@dataclass(frozen=True, kw_only=True)
class AddColumnsStep(TableStep):
    """Add columns; see :meth:`glaive.spark.LanceTable.addColumns`.

    Parameters
    ----------
    columns
        Expressions by name, in the language of filters; or
    function
        ``module:function`` of record batches. Finished fragments are noted: a run that goes on
        computes only the others.
    read_columns, batch_size
        What the function gets.
    """

    columns: Mapping[str, str] | None = None
    function: str | None = None
    read_columns: tuple[str, ...] = ()
    batch_size: int | None = None

    def check(self) -> None:
        """Refuse a step with both expressions and a function, or neither."""
        if (self.columns is None) == (self.function is None):
            raise OptionError("columns: give either the key columns or the key function")
        if self.function is not None:
            check_function(self.function)
        elif self.read_columns or self.batch_size is not None:
            raise OptionError("read_columns: only with the key function, as batch_size is")

    def summary(self) -> str:
        """What it will do."""
        if self.function is not None:
            return f"add columns to {self.target} by {self.function}"
        return f"add {', '.join(self.columns or ())} to {self.target}"

    def run(self, context: StepContext) -> Mapping[str, int]:
        """Compute the columns in tasks."""
        table = context.table(self.target, self.branch)
        if self.function is None:
            return table.addColumns(self.columns or {}, job_id=context.job_id)
        return table.addColumns(
            function_named(self.function),
            read_columns=self.read_columns or None,
            batch_size=self.batch_size,
            checkpoint=context.scratch,
            job_id=context.job_id,
        )
