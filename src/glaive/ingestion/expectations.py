"""Conditions that rows have to fulfil, and what becomes of those that do not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self, TypeAlias, get_args

import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.python_values import python_rows
from glaive.arrow.views import cut_views
from glaive.dataclass import dataclass
from glaive.dataset.writing.conform import conform
from glaive.errors import ExpectationError, OptionError
from glaive.expr.filters import bind_filter
from glaive.expr.names import check_column_texts
from glaive.format.fields import LanceSchema
from glaive.ingestion.formats.protocol import Rows
from glaive.ingestion.rejects import Rejects
from glaive.ingestion.sources import SourceFile

__all__ = ["Expectations", "OnViolation"]

OnViolation: TypeAlias = Literal["fail", "drop", "quarantine"]

_SHOWN = 300
"""Characters of a row in a message."""


@dataclass(frozen=True, slots=True)
class Expectations:
    """Conditions by name; can be pickled.

    A row violates a condition unless it is true; null is not.

    Parameters
    ----------
    conditions
        Names and filters, in the language of filters.
    on_violation
        ``fail``: the first row is an error; ``drop``: it is left out and counted;
        ``quarantine``: it becomes a bad record.
    """

    conditions: tuple[tuple[str, str], ...]
    on_violation: OnViolation = "fail"

    @classmethod
    def of(
        cls, expect: str | Mapping[str, str] | None, on_violation: str, *, has_quarantine: bool
    ) -> Self | None:
        """The conditions as given by a user; None if there are none.

        Raises
        ------
        OptionError
            They are neither a text nor texts by name, or there is no place for the rows.
        """
        if on_violation not in get_args(OnViolation):
            raise OptionError(
                f"on_violation: expected one of {', '.join(get_args(OnViolation))}, found "
                f"{on_violation!r}"
            )
        if expect is None:
            return None
        given: Any = {"expect": expect} if isinstance(expect, str) else expect
        if not isinstance(given, Mapping) or not all(
            isinstance(part, str) and part.strip() for pair in given.items() for part in pair
        ):
            raise OptionError(
                "expect: expected a condition such as 'price > 0', or conditions by name, found "
                f"{expect!r:.80}"
            )
        if on_violation == "quarantine" and not has_quarantine:
            raise OptionError("on_violation='quarantine': name the dataset for the rows")
        return cls(tuple(given.items()), on_violation)  # type: ignore[arg-type]  # checked above

    def check(self, schema: LanceSchema) -> None:
        """Refuse conditions that rows of a schema cannot be tested with.

        Raises
        ------
        FilterError
            A condition is wrong; the message says what and where.
        """
        for _, condition in self.conditions:
            check_column_texts(schema, condition)
            bind_filter(condition, schema)

    def kept(
        self, rows: Rows, columns: pa.Schema, schema: LanceSchema, file: SourceFile, into: Rejects
    ) -> Iterator[pa.RecordBatch]:
        """The rows that fulfil all conditions.

        Parameters
        ----------
        columns, schema
            The types of the rows, as Arrow's schema and as that of the dataset.
        file
            Where they are from.
        into
            Counts the others, or puts them aside.

        Raises
        ------
        ExpectationError
            A row violates a condition, and ``on_violation`` is ``fail``.
        """
        filters = [(name, text, bind_filter(text, schema)) for name, text in self.conditions]
        for batch in _conformed(rows, columns):
            left = batch
            for name, text, bound in filters:
                mask = bound.mask(left)
                if mask.true_count == len(left):
                    continue
                self._violated(left.filter(pc.invert(mask)), f"{name}: {text}", file, into)
                left = left.filter(mask)
            if left.num_rows:
                yield left

    def _violated(
        self, rows: pa.RecordBatch, expectation: str, file: SourceFile, into: Rejects
    ) -> None:
        if self.on_violation == "drop":
            into.drop(rows.num_rows)
            return
        if self.on_violation == "fail":
            shown = _row_texts(rows.slice(0, 1))[0].decode()[:_SHOWN]
            raise ExpectationError(
                f"{file.uri}: a row violates the expectation {expectation}: {shown}. Correct the "
                "source, or drop or quarantine such rows with on_violation"
            )
        for text in _row_texts(rows):
            into.add(file, None, f"expectation {expectation}", text)


def _row_texts(rows: pa.RecordBatch) -> list[bytes]:
    """Each row as JSON."""
    return [json.dumps(row, default=str, ensure_ascii=False).encode() for row in python_rows(rows)]


def _conformed(rows: Rows, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    for part in cut_views(rows):
        fitted = conform(part, columns)
        yield from fitted.to_batches() if isinstance(fitted, pa.Table) else [fitted]
