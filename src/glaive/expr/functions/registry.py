"""Find a scalar function by its name in filters.

Each topic module of this folder decorates its functions with ``@function(names, takes=...)``.
Importing the modules registers them.

A function has two parts. ``resolve`` determines the types that the arguments must be cast to, and
the type of the result. ``evaluate`` computes the values from arguments of exactly these types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final, TypeVar

from glaive.config import added
from glaive.dataclass import dataclass
from glaive.errors import FilterError
from glaive.expr.rows import broadcast, pa

AGGREGATES = frozenset(
    """
    approx_distinct approx_median approx_percentile_cont array_agg avg bit_and bit_or
    bit_xor bool_and bool_or corr count covar_pop covar_samp cume_dist dense_rank every
    first_value grouping lag last_value lead max mean median min nth_value ntile
    percent_rank rank row_number stddev stddev_pop stddev_samp string_agg sum var var_pop
    var_samp
    """.split()  # noqa: SIM905  # words are easier to read than a list
)
"""Names of SQL aggregates, for a better error message."""

Types = tuple[tuple[Any, ...], Any]
"""The types to cast the arguments to, and the type of the result."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call as written, before its arguments are cast.

    Parameters
    ----------
    name
        The function's first name.
    types
        Arrow types of the arguments; ``pa.null()`` for the literal NULL.
    literals
        A ``pa.Scalar`` for each argument that is a constant, ``None`` for the others.
    """

    name: str
    types: Sequence[Any]
    literals: Sequence[Any]


Resolve = Callable[[Call], Types]
"""Function from a call to its types; raises ``FilterError``."""

_REGISTERED: dict[str, Function] = {}


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function.

    Parameters
    ----------
    name
        First name of the function.
    takes
        Type rule.
    compute
        Function that computes an array from the arguments; at least one argument is an array.
        A function that takes no arguments returns a scalar. If volatile, it computes an array from
        the number of rows.
    volatile
        Each call returns different values, so calls are never folded to constants.
    column
        Index of the argument that is passed as an array if all are constants.
    geometries
        Geometry arguments have a :class:`~glaive.arrow.extensions.GeometryType`.
    """

    name: str
    takes: Resolve
    compute: Callable[..., Any]
    volatile: bool = False
    column: int = 0
    geometries: bool = False

    def resolve(self, types: Sequence[Any], literals: Sequence[Any] = ()) -> Types:
        """Return the types the arguments must be cast to, and the type of the result.

        Dictionaries count as their values, unless the function accepts dictionaries.

        Parameters
        ----------
        types
            Arrow types of the arguments; ``pa.null()`` for the literal NULL.
        literals
            A ``pa.Scalar`` for each argument that is a constant, ``None`` for the others; some
            functions need a constant to determine their type. May be omitted.

        Raises
        ------
        FilterError
            The number of arguments or a type is wrong.
        """
        given = [*literals, *[None] * (len(types) - len(literals))]
        try:
            return self.takes(Call(self.name, types, given))
        except FilterError:
            decoded = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in types]
            if decoded == [*types]:
                raise
            return self.takes(Call(self.name, decoded, given))

    def evaluate(self, arguments: Sequence[Any], rows: int, kind: Any = None) -> Any:
        """Return an array of ``rows`` values.

        Parameters
        ----------
        arguments
            Of the types that ``resolve`` returned: arrays of ``rows`` values, a ``pa.Scalar``
            for each constant.
        kind
            The type of the result that ``resolve`` returned. If omitted, the values may have a
            similar type, such as ``string`` for ``string_view``.

        Raises
        ------
        FilterError
            The function is undefined for a value, such as a wrong regular expression.
        """
        if self.volatile:
            result = self.compute(rows)
        elif any(isinstance(argument, pa.Array) for argument in arguments):
            result = self.compute(*arguments)
        elif arguments:
            given = list(arguments)
            given[self.column] = broadcast(given[self.column], 1)
            result = broadcast(self.compute(*given)[0], rows)
        else:
            result = broadcast(self.compute(), rows)
        return result if kind is None or result.type == kind else result.cast(kind)


C = TypeVar("C", bound=Callable[..., Any])


def function(
    *names: str, takes: Resolve, volatile: bool = False, column: int = 0, geometries: bool = False
) -> Callable[[C], C]:
    """Register ``compute`` under these names, in lower case (decorator)."""

    def register(compute: C) -> C:
        registered = Function(names[0], takes, compute, volatile, column, geometries)
        for name in names:
            if _REGISTERED.setdefault(name, registered) is not registered:
                raise TypeError(f"two functions claim the name {name!r}")
        return compute

    return register


_GEOMETRY: Final = "st_"

_ELSEWHERE: Final = {
    **{
        part: f"date_part('{part}', …)"
        for part in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
    },
    "len": "length(…)",
    "size": "array_length(…)",
    "isnull": "… IS NULL",
}
"""Functions of Spark and other engines, and their equivalents here."""


@cache
def functions() -> dict[str, Function]:
    """Return all functions by name; one with several names is listed under each."""
    from glaive.expr import functions as package

    for module in iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    return dict(sorted(_REGISTERED.items()))


def find(name: str) -> Function:
    """Return the function of this name, ignoring case.

    Raises
    ------
    FilterError
        The name is unknown; the message lists similar names.
    """
    from difflib import get_close_matches

    known = functions()
    named = known.get(name.lower())
    if named is None:
        added("functions")  # imports packages, which register functions
        named = _REGISTERED.get(name.lower())
    if named is None and name.lower().startswith(_GEOMETRY):
        there = ", ".join(one for one in known if one.startswith(_GEOMETRY))
        raise FilterError(
            f"unknown function {name!r:.100}: of the functions of geometries there are {there}. "
            "Others are in libraries for geometries: read the rows, and compute with one of those."
        )
    if named is None:
        elsewhere = _ELSEWHERE.get(name.lower())
        if elsewhere is not None:
            raise FilterError(f"unknown function {name!r}; write {elsewhere}")
        close = get_close_matches(name.lower(), known, n=3)
        hint = f"; did you mean {', '.join(map(repr, close))}?" if close else "."
        raise FilterError(
            f"unknown function {name!r:.100}{hint} The guide to functions lists all {len(known)}."
        )
    return named
