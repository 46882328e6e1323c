"""Filters and computed columns: the interface of this package.

``bind_filter`` turns a text, a pyarrow expression or Substrait bytes into a :class:`Filter`,
which has the columns it needs, its terms with the conditions on single columns, and evaluates
batches. ``bind_value`` does the same for expressions of any type.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from glaive.arrow import compute as pc
from glaive.arrow.capacity import batch_parts, too_large
from glaive.arrow.conditions import Condition, HasText
from glaive.arrow.dictionaries import concat_arrays, dictionary_encoded
from glaive.arrow.scalars import FALSE
from glaive.dataclass import dataclass
from glaive.errors import CapacityError, FilterError, OptionError
from glaive.expr.bind import bind
from glaive.expr.evaluate import values
from glaive.expr.filter_shapes import FilterShapes
from glaive.expr.fold import draws, simplify
from glaive.expr.names import Names
from glaive.expr.parse import parse
from glaive.expr.render import render
from glaive.expr.sizes import scalar_bytes, varies
from glaive.expr.split import Test, conjuncts, merged, one_column, paths
from glaive.expr.tree import Literal, Node, walk
from glaive.format.fields import LanceSchema

__all__ = ["Filter", "Term", "Value", "bind_filter", "bind_value"]

_MAX_MESSAGE_TEXT = 100
"""Characters of an expression in messages."""

NO_COLUMNS: Mapping[str, pa.DataType] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bound:
    """A bound expression."""

    expression: Node

    @property
    def columns(self) -> tuple[str, ...]:
        """Paths of the columns it needs."""
        return paths(self.expression)


@dataclass(frozen=True, slots=True, kw_only=True)
class Term(_Bound):
    """One of the tests that must all pass.

    Parameters
    ----------
    expression
        Bound and boolean.
    condition
        Path of a column and the condition on its values, if the test is equivalent to that.
    """

    condition: tuple[str, Condition] | None

    @property
    def columns(self) -> tuple[str, ...]:
        """Paths of the columns it needs."""
        return paths(self.expression) if self.condition is None else self.condition[:1]

    @property
    def is_by_value(self) -> bool:
        """Whether rows of equal values have one result."""
        return not draws(self.expression)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows pass, without nulls; see :meth:`Filter.mask`."""
        # Evaluating LIKE is faster than the mask of a ``HasText``.
        if self.condition is not None and not isinstance(self.condition[1], HasText):
            path, condition = self.condition
            index = batch.schema.get_field_index(path)
            if index >= 0:
                return condition.mask(batch.column(index))
        return _passing(self.expression, batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(_Bound):
    """A bound filter.

    Parameters
    ----------
    expression
        Bound and simplified.
    terms
        Tests that must all pass, those with a condition first; if empty, all rows pass. A test
        without a condition is evaluated only on rows that passed those before it:
        ``b != 0 AND a / b = 1``.
    written
        As it is written, or its tree.
    """

    terms: tuple[Term, ...]
    written: str | Node

    @property
    def columns(self) -> tuple[str, ...]:
        """Paths of the columns it needs."""
        return self.terms[0].columns if len(self.terms) == 1 else paths(self.expression)

    @property
    def text(self) -> str:
        """The filter in normal form."""
        return render(parse(self.written) if isinstance(self.written, str) else self.written)

    @property
    def never(self) -> bool:
        """Whether no row can pass."""
        return any(
            isinstance(term.expression, Literal) and term.expression.value is not True
            for term in self.terms
        )

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows pass; rows that evaluate to NULL do not, so that the mask has no nulls.

        Parameters
        ----------
        batch
            Has a column for each path of ``columns``, or the struct that contains it; members
            of a null struct must be null.

        Raises
        ------
        FilterError
            A value cannot be computed: a division by zero, an invalid cast.
        """
        return _passing(self.expression, batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value(_Bound):
    """A bound expression of any type.

    Parameters
    ----------
    expression
        Bound and simplified.
    type
        Arrow type of the values.
    text
        The expression in normal form.
    """

    type: pa.DataType
    text: str

    @property
    def constant_bytes(self) -> int:
        """Bytes of constants that every value may contain."""
        if not varies(self.type):
            return 0
        literals = (node for node in walk(self.expression) if isinstance(node, Literal))
        return sum(scalar_bytes(literal.scalar()) for literal in literals)

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """One value for each row; see :meth:`Filter.mask` about the batch and errors.

        Raises
        ------
        FilterError
            A value cannot be computed, or a single value does not fit an array.
        CapacityError
            The values do not fit one array: use fewer rows.
        """
        try:
            if varies(self.type):
                return self._values(batch)
            # The values are small even if intermediate ones are large.
            result: pa.Array = concat_arrays(list(batch_parts(self._values, batch)))
        except CapacityError as error:
            if batch.num_rows > 1 and varies(self.type):
                raise
            raise _too_large(self.text, error) from None
        return result

    def _values(self, batch: pa.RecordBatch) -> pa.Array:
        computed: Any = values(self.expression, batch)
        kind: Any = self.type
        try:
            result: pa.Array = computed if computed.type == kind else _as_type(computed, kind)
        except (pa.ArrowInvalid, pa.ArrowCapacityError, pa.ArrowNotImplementedError) as error:
            if not too_large(error):
                raise FilterError(f"{_short(self.text)}: {error}") from None
            raise CapacityError(f"the values do not fit one array: {error}") from None
        return result


def bind_filter(
    source: str | pc.Expression | bytes,
    schema: LanceSchema,
    *,
    system: Mapping[str, pa.DataType] = NO_COLUMNS,
    shapes: FilterShapes | None = None,
) -> Filter:
    """Make a filter ready for batches of a schema.

    Parameters
    ----------
    source
        A text in the filter language, a pyarrow expression, or a Substrait
        ``ExtendedExpression`` as bytes.
    system
        Columns that no file has, such as ``_rowid``, and their types.
    shapes
        Filters of this schema and these columns that were made before; one that differs from
        another in its constants only takes a third of the time.

    Raises
    ------
    FilterError
        The filter is wrong; the message says what and where.
    """
    simple = shapes.filled(source) if shapes is not None and isinstance(source, str) else None
    if simple is not None and isinstance(source, str):
        return _filter_of(simple, source)
    node, text = _tree_of(source, schema, system)
    bound, _ = bind(node, schema, system=system, text=text, test=True)
    simple = simplify(bound)
    if shapes is not None and isinstance(source, str):
        shapes.keep(source, simple)
    return _filter_of(simple, node)


def _filter_of(simple: Node, written: str | Node) -> Filter:
    # Tests with a condition are fast and cannot fail; others may rely on them to exclude rows.
    tests = sorted(
        merged([(term, one_column(term)) for term in conjuncts(simple)]), key=_is_general
    )
    terms = tuple(Term(expression=part, condition=test) for part, test in tests)
    return Filter(expression=simple, terms=terms, written=written)


def bind_value(
    source: str | pc.Expression | bytes,
    schema: LanceSchema,
    *,
    system: Mapping[str, pa.DataType] = NO_COLUMNS,
) -> Value:
    """Make an expression of any type ready for batches of a schema; see ``bind_filter``."""
    node, text = _tree_of(source, schema, system)
    bound, kind = bind(node, schema, system=system, text=text, test=False)
    return Value(expression=simplify(bound), type=kind, text=render(node))


def _as_type(values: Any, kind: Any) -> Any:
    """Values in the public type, which may be a dictionary."""
    if pa.types.is_dictionary(kind):
        encoded = dictionary_encoded(values.cast(kind.value_type))
        indices = encoded.indices.cast(kind.index_type)
        return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=kind.ordered)
    return values.cast(kind)


def _tree_of(
    source: str | pc.Expression | bytes, schema: LanceSchema, system: Mapping[str, pa.DataType]
) -> tuple[Node, str]:
    if isinstance(source, str):
        return parse(source), source
    if isinstance(source, pc.Expression):
        from glaive.expr.convert import from_arrow
        from glaive.expr.held_constants import held_constants

        return held_constants(from_arrow(source), Names(schema, system, "")), ""
    if isinstance(source, bytes):
        from glaive.expr.substrait import read_substrait

        return read_substrait(source), ""
    raise OptionError(
        f"a filter is a text, a pyarrow expression or Substrait bytes, not {type(source).__name__}"
    )


def _too_large(text: str, error: CapacityError) -> FilterError:
    return FilterError(f"{_short(text)} cannot be computed for a row: {error}")


def _short(text: str) -> str:
    half = _MAX_MESSAGE_TEXT // 2
    return text if len(text) <= 2 * half else f"{text[:half]}…{text[-half:]}"


def _is_general(test: tuple[Node, Test | None]) -> bool:
    return test[1] is None


def _passing(node: Node, batch: pa.RecordBatch) -> pa.BooleanArray:
    try:
        mask: Any = concat_arrays(list(batch_parts(partial(values, node), batch)))
    except CapacityError as error:
        raise _too_large(render(node), error) from None
    passing: pa.BooleanArray = pc.fill_null(mask, FALSE) if mask.null_count else mask
    return passing
