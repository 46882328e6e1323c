"""Find a scalar function by the name it has in a filter.

Each topic module of this folder decorates its functions with ``@function(names, takes=...)``.
Importing the folder's modules fills the table, so adding a function is adding one to a file.

A function is two things: ``resolve`` says, from the types of the arguments as they stand in
the text, which types they must be cast to and what type comes back; ``evaluate`` computes the
values from arguments of exactly those types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from glaive.errors import FilterError
from glaive.expr.functions.untyped import pa
from glaive.expr.rows import spread

__all__ = ["AGGREGATES", "Call", "Function", "Resolve", "Types", "find", "function", "functions"]

AGGREGATES = frozenset(
    """
    approx_distinct approx_median approx_percentile_cont array_agg avg bit_and bit_or
    bit_xor bool_and bool_or corr count covar_pop covar_samp cume_dist dense_rank every
    first_value grouping lag last_value lead max mean median min nth_value ntile
    percent_rank rank row_number stddev stddev_pop stddev_samp string_agg sum var var_pop
    var_samp
    """.split()  # noqa: SIM905  # words are easier to read than a list
)
"""Names that SQL knows as aggregates, for the error that says they are no functions of rows."""

Types = tuple[tuple[Any, ...], Any]
"""The types arguments are to be cast to, and the type of the result."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it stands in the text, before anything is cast.

    Parameters
    ----------
    name
        The function's first name.
    types
        Arrow types of the arguments; ``pa.null()`` for the literal NULL.
    literals
        A ``pa.Scalar`` for each argument that is a constant, None for the others.
    """

    name: str
    types: Sequence[Any]
    literals: Sequence[Any]


Resolve = Callable[[Call], Types]
"""From a call to its types; raises ``FilterError``."""

_FOUND: dict[str, Function] = {}


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function.

    Parameters
    ----------
    name
        The first of its names.
    takes
        The rule for types.
    compute
        From the arguments, at least one of them an array, to an array. Without arguments: to a
        scalar. Volatile: from the number of rows.
    volatile
        Each call gives other values: a call with constants must not be folded into one value.
    column
        The number of the argument that is given as an array when all are constants.
    """

    name: str
    takes: Resolve
    compute: Callable[..., Any]
    volatile: bool = False
    column: int = 0

    def resolve(self, types: Sequence[Any], literals: Sequence[Any] = ()) -> Types:
        """Return the types the arguments must be cast to, and the type of the result.

        Parameters
        ----------
        types
            Arrow types of the arguments; ``pa.null()`` for the literal NULL.
        literals
            A ``pa.Scalar`` for each argument that is a constant, None for the others; some
            functions need a constant to know their type. May be left out.

        Raises
        ------
        FilterError
            The number of arguments or a type is none the function takes.
        """
        given = [*literals, *[None] * (len(types) - len(literals))]
        return self.takes(Call(self.name, types, given))

    def evaluate(self, arguments: Sequence[Any], rows: int, kind: Any = None) -> Any:
        """Return an array of ``rows`` values.

        Parameters
        ----------
        arguments
            Of the types that ``resolve`` gave: arrays of ``rows`` values, a ``pa.Scalar`` for
            each constant.
        kind
            The type of the result that ``resolve`` gave. Without it the values may come in a
            type next to it, such as ``string`` for ``string_view``.

        Raises
        ------
        FilterError
            A value is none the function is defined for, such as a wrong regular expression.
        """
        if self.volatile:
            made = self.compute(rows)
        elif any(isinstance(argument, pa.Array) for argument in arguments):
            made = self.compute(*arguments)
        elif arguments:
            given = list(arguments)
            given[self.column] = spread(given[self.column], 1)
            made = spread(self.compute(*given)[0], rows)
        else:
            made = spread(self.compute(), rows)
        return made if kind is None or made.type == kind else made.cast(kind)


C = TypeVar("C", bound=Callable[..., Any])


def function(
    *names: str, takes: Resolve, volatile: bool = False, column: int = 0
) -> Callable[[C], C]:
    """Decorator: make ``compute`` known under these names, in lower case."""

    def register(compute: C) -> C:
        made = Function(names[0], takes, compute, volatile, column)
        for name in names:
            if _FOUND.setdefault(name, made) is not made:
                raise TypeError(f"two functions claim the name {name!r}")
        return compute

    return register


@cache
def functions() -> dict[str, Function]:
    """Return all functions by name; one with several names is there under each."""
    from glaive.expr import functions as package

    for module in iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    return dict(sorted(_FOUND.items()))


def find(name: str) -> Function:
    """Return the function of that name, in any case of letters.

    Raises
    ------
    FilterError
        There is none; the message gives the closest names.
    """
    known = functions()
    found = known.get(name.lower())
    if found is None:
        close = get_close_matches(name.lower(), known, n=3)
        hint = f"; did you mean {', '.join(map(repr, close))}?" if close else "."
        raise FilterError(
            f"unknown function {name!r}{hint} docs/guide/functions.md lists all {len(known)} names."
        )
    return found
