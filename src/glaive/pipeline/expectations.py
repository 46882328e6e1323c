"""Expectations of steps that write rows: conditions, and what becomes of other rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from glaive.dataclass import dataclass
from glaive.dataset.tasks import JOB
from glaive.errors import ExpectationError, OptionError
from glaive.format.column_path import quoted_name
from glaive.ingestion.expectations import Expectations, OnViolation
from glaive.ingestion.rejects import BAD_RECORDS
from glaive.pipeline.step import DatasetName, Step, StepContext
from glaive.table.load import read_transaction

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from glaive.dataset.dataset import LanceDataset

__all__ = ["ExpectedRows", "ExpectingStep", "quarantine_job"]

_VIOLATED: Final = re.compile(r"glaive expectation \((.+?)\) row (\{.*?\}?) end", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class ExpectingStep(Step):
    """A step that writes rows, and the keys that say which rows it expects.

    Parameters
    ----------
    expect
        A condition that every row has to fulfil, or several by name; null does not fulfil it.
    on_violation
        ``fail``, ``drop`` or ``quarantine``.
    quarantine
        The dataset for other rows: ``file``, ``line``, ``reason``, ``record`` (JSON), ``job_id``.
    """

    expect: str | Mapping[str, str] | None = None
    on_violation: OnViolation = "fail"
    quarantine: DatasetName | None = None

    def check(self) -> None:
        """Refuse what does not go together."""
        self.expectations()
        if self.quarantine is not None and self.writes().count(self.quarantine) > 1:
            raise OptionError("quarantine: name another dataset than the one that the step writes")

    def expectations(self) -> Expectations | None:
        """The conditions, if there are any."""
        return Expectations.of(
            self.expect, self.on_violation, has_quarantine=self.quarantine is not None
        )

    def quarantined(self) -> tuple[str, ...]:
        """The dataset of other rows, among those that the step writes."""
        return () if self.quarantine is None else (self.quarantine,)

    @contextmanager
    def expected(self, frame: DataFrame, context: StepContext) -> Iterator[ExpectedRows]:
        """The rows of a frame that are as expected.

        Raises
        ------
        ExpectationError
            A row violates a condition, and ``on_violation`` is ``fail``: within the block, when
            the frame is computed.

        Notes
        -----
        For ``fail`` the conditions are part of the query. Otherwise Spark keeps the frame until
        the block ends, and counts the other rows before. On a cluster, which may lose what it
        keeps, the work fails then: computed once more, a row might be as expected that was not
        before, or the other way around. Once the job of the step has made its version, the frame
        is not computed: the query may give other rows since.
        """
        from glaive.spark.frame_sources import checkpointed
        from glaive.spark.lance_table.merge_keys import may_be_lost

        expectations = self.expectations()
        if expectations is None or self._has_committed(context):
            yield ExpectedRows(frame, {})
            return
        if expectations.on_violation == "fail":
            try:
                yield ExpectedRows(_failing(frame, expectations), {})
            except Exception as error:
                violated = _VIOLATED.search(str(error))
                if violated is None:
                    raise
                raise ExpectationError(
                    f"step {context.name}: a row violates the expectation {violated[1]}: "
                    f"{violated[2]}. Correct the source, or drop or quarantine such rows with "
                    "on_violation"
                ) from error
            return
        kept = checkpointed(frame) if may_be_lost(context.spark) else frame.persist()
        try:
            yield self._without_others(kept, expectations, context)
        finally:
            kept.unpersist()

    def _without_others(
        self, frame: DataFrame, expectations: Expectations, context: StepContext
    ) -> ExpectedRows:
        from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

        tests = [_is_true(text) for _, text in expectations.conditions]
        reason: Any = F.lit(None)
        for (name, text), test in reversed(list(zip(expectations.conditions, tests, strict=True))):
            reason = F.when(~test, F.lit(f"expectation {name}: {text}")).otherwise(reason)
        passed = reduce(lambda left, right: left & right, tests)
        others = frame.where(~passed)
        if expectations.on_violation == "drop":
            return ExpectedRows(frame.where(passed), {"dropped": others.count()})
        values = {
            "file": F.lit(f"step {context.name}"),
            "line": F.lit(None).cast("bigint"),
            "reason": reason,
            "record": _row_text(frame).cast("binary"),
            "job_id": F.lit(context.job_id),
        }
        count = others.count()
        if self.quarantine is not None:
            rows = others.select(*(values[name].alias(name) for name in BAD_RECORDS.names))
            self._put_aside(rows, count, self.quarantine, context)
        return ExpectedRows(frame.where(passed), {"bad_records": count})

    def _put_aside(
        self, rows: DataFrame, count: int, quarantine: DatasetName, context: StepContext
    ) -> None:
        """Commit the other rows, unless an earlier run of the step did before it was stopped.

        Raises
        ------
        OptionError
            That run had others.
        """
        from glaive.spark import write

        job = quarantine_job(context.job_id)
        made = context.made_by(job, quarantine)
        if made is not None:
            _expect_same(context, job, made, rows, count)
        elif count:
            write(
                rows,
                context.datasets[quarantine],
                "append",
                job_id=job,
                arrow_schema=BAD_RECORDS,
                storage_options=context.storage or None,
            )

    def _has_committed(self, context: StepContext) -> bool:
        """Whether the job of the step has made its version, also where no record says so."""
        target = DatasetName(self.writes()[0])
        return context.made_by(context.job_id, target, self.branch_written) is not None


def _expect_same(
    context: StepContext, job: str, made: LanceDataset, rows: DataFrame, count: int
) -> None:
    """Check that a version has the rows that are to be put aside now.

    Raises
    ------
    OptionError
        It has others.
    """
    from glaive.spark import read

    transaction = read_transaction(made.store, made.manifest)
    if transaction is None or transaction.properties.get(JOB) != job:
        return  # it was cleaned up
    storage: Any = {"storage_options": dict(context.storage)} if context.storage else {}
    own = f"job_id = '{context.job_id}'"
    earlier = read(context.spark, made.uri, version=made.version, filter=own, **storage)
    number = earlier.count()
    if number != count:
        found = f"{count}"
    elif rows.select("record").exceptAll(earlier.select("record")).isEmpty():
        return
    else:
        found = "others"
    raise OptionError(
        f"step {context.name}: a run of {job} was stopped when it had put {number} rows into "
        f"{made.uri} (version {made.version}), and now there are {found}: what the query reads has "
        "changed since. Nothing was written. Let it read the same rows again, or start a new run, "
        "and delete the rows of this one, if they are not to be there twice"
    )


def quarantine_job(job: str) -> str:
    """The id by which a job puts rows aside."""
    return f"{job}.quarantine"


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """The rows that are as expected, and how many others there are."""

    frame: DataFrame
    counts: Mapping[str, int]


def _failing(frame: DataFrame, expectations: Expectations) -> DataFrame:
    """The frame, whose computation fails at the first row that violates a condition."""
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    shown = F.substring(_row_text(frame), 1, 300)
    for name, text in expectations.conditions:
        message = F.concat(F.lit(f"glaive expectation ({name}: {text}) row "), shown, F.lit(" end"))
        failed = F.raise_error(message).cast("boolean")
        frame = frame.where(F.when(_is_true(text), F.lit(True)).otherwise(failed))
    return frame


def _is_true(condition: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    return F.coalesce(F.expr(condition).cast("boolean"), F.lit(False))


def _row_text(frame: DataFrame) -> Column:
    from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

    quoted = list(map(quoted_name, frame.columns))
    return F.to_json(F.struct(*quoted))
