"""Options of ``nearest``, checked before the dataset is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.index.vector.storage import metric_named
from glaive.kernels.distances import Metric
from glaive.options import (
    ANYTHING,
    SWITCH,
    TEXT,
    Kind,
    TypedDict,
    integer,
    kinds_of,
    number,
    one_of,
    option,
)

ApproximationMode: TypeAlias = Literal["fast", "normal", "accurate"]

DEFAULT_COUNT: Final = 10


def _metric_of(given: object) -> Metric:
    try:
        return metric_named(given)
    except OptionError as error:
        raise OptionError(f"nearest: {error}") from None


def _range(given: Any) -> tuple[float | None, ...]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(given)
    bound = number()
    name = "nearest: distance_range"
    return tuple(None if one is None else bound.check(name, one) for one in given)


def query_vectors(given: Any) -> NDArray[Any]:
    """Return the numbers of the query, in one or two dimensions.

    Raises
    ------
    OptionError
        It has other values, or is empty.
    """
    try:
        numbers = given if type(given) is np.ndarray else np.asarray(_plain(given))
    except (ValueError, TypeError, pa.ArrowException) as error:
        # The query itself is not shown: Arrow would read invalid offsets to print it.
        raise OptionError(
            f"nearest: q: expected numbers, all vectors of one length: {error}"
        ) from None
    if numbers.dtype.kind not in "fiub" or numbers.ndim not in (1, 2):
        raise OptionError(
            "nearest: q: expected a vector of numbers, or a list of vectors of one length, found "
            f"{given!r:.60}"
        )
    if not numbers.size:
        raise OptionError(f"nearest: q: expected a vector, found none: shape {numbers.shape}")
    return numbers


def _plain(given: Any) -> Any:
    """Convert Arrow values to values that NumPy accepts."""
    if isinstance(given, np.ndarray) and np.ma.is_masked(given):
        raise ValueError("masked numbers")
    if isinstance(given, pa.Scalar):
        given = cast("Any", given).values if hasattr(given, "values") else given.as_py()
    if isinstance(given, pa.Array | pa.ChunkedArray):
        given.validate(full=True)  # pyarrow reads offsets out of a message as they are
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if isinstance(given, pa.ExtensionArray):
        given = cast("Any", given).storage
    if not isinstance(given, pa.Array):
        return given
    if given.null_count:
        raise ValueError(f"{given.null_count} nulls")
    kind: Any = given.type
    if pa.types.is_fixed_size_list(kind):
        flat = _plain(cast("Any", given).flatten())
        return np.asarray(flat).reshape(-1, kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return given.to_pylist()
    return given.to_numpy(zero_copy_only=False)


class SearchKeywords(TypedDict, total=False):
    """Further options of a search, after column, query and ``k``."""

    metric: str | None
    nprobes: int | None
    minimum_nprobes: int | None
    maximum_nprobes: int | None
    search_effort: float | None
    refine_factor: int | None
    ef: int | None
    use_index: bool
    approx_mode: ApproximationMode
    distance_range: tuple[float | None, float | None] | None
    query_parallelism: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NearestOptions:
    """A search for nearest vectors.

    Parameters
    ----------
    column
        Path of the column with the vectors.
    query
        One vector of shape ``(dimension,)``, or several, ``(n, dimension)``: a batch of
        queries or, for a column whose rows have several vectors each, one query.
    k
        Rows to find for each query; by default ``limit``, or 10.
    metric
        Kind of distance; by default the metric of the index, else ``l2``, for bytes ``hamming``.
    minimum_nprobes, maximum_nprobes
        Minimum and maximum partitions of an index to search for each query; ``nprobes`` sets both.
    search_effort
        Share of the partitions to search first, from 0 to 1; ``None`` for 0.5.
    refine_factor
        Factor of ``k``: measure true distances of so many candidates of an index.
    ef
        Candidates that a search in a graph keeps; by default 1.5 ``k``.
    use_index
        Search with an index, if one exists.
    approx_mode
        ``fast``, ``normal`` or ``accurate``. Accepted and ignored: glaive compares codes of IVF_RQ
        exactly.
    distance_range
        Lowest distance, and the upper bound (exclusive); ``None`` for no bound.
    query_parallelism
        Accepted and ignored: searches use all cores.
    """

    column: str = field(metadata={"kind": Kind("a name", TEXT.of)})
    query: NDArray[Any] = field(metadata={"kind": ANYTHING})
    k: int | None = option(integer(1, range_message="Nearest-K must be > 0 but got {}. "))
    metric: Metric | None = option(Kind("a metric", _metric_of))
    minimum_nprobes: int | None = option(integer(1))
    maximum_nprobes: int | None = option(integer(1))
    search_effort: float | None = option(number(0, 1))
    refine_factor: int | None = option(
        integer(1, range_message="Refine factor must be 1 or more got {}. ")
    )
    ef: int | None = option(integer(1))
    use_index: bool = option(SWITCH, default=True)
    approx_mode: ApproximationMode = option(one_of("fast", "normal", "accurate"), "normal")
    distance_range: tuple[float | None, float | None] = option(
        Kind("lower and upper bound", _range), (None, None)
    )
    query_parallelism: int | None = option(integer(-1))

    @classmethod
    def of(cls, given: object) -> NearestOptions:
        """Check the mapping that users write.

        Raises
        ------
        OptionError
            A key is unknown or missing, or has an invalid value.
        """
        if not isinstance(given, Mapping):
            raise OptionError(
                f"nearest: expected a mapping with 'column' and 'q', found {given!r:.80}"
            )
        for name in given:
            if name not in _KINDS:
                raise OptionError(
                    f"nearest: nearest() got an unexpected keyword argument {name!r}: unknown key"
                    f"{OptionError.did_you_mean(str(name), sorted(_KINDS))}"
                )
        kept = {
            name: _KINDS[name].check(f"nearest: {name}", value)
            for name, value in given.items()
            if value is not None
        }
        for name in ("column", "q"):
            if name not in kept:
                raise OptionError(f"nearest: {name!r} is missing. Add this key.")
        _set_partitions(kept)
        return cls(query=kept.pop("q"), **kept)

    def with_defaults(self, nprobes: int, refine_factor: int | None) -> NearestOptions:
        """Return the options with other defaults of the number of partitions and the refine factor.

        The search takes more partitions if these have too few rows.
        """
        given = (self.minimum_nprobes, self.maximum_nprobes, self.search_effort)
        made = self
        if all(number is None for number in given):
            made = replace(made, minimum_nprobes=nprobes, search_effort=0.0)
        if self.refine_factor is None:
            made = replace(made, refine_factor=refine_factor)
        return made

    def count(self, limit: int | None) -> int:
        """Return the rows to find for each query, given the limit of the scan: at least one.

        A scan with the limit 0 drops them after the search.
        """
        if self.k is not None:
            return self.k
        return limit or DEFAULT_COUNT


def _set_partitions(kept: dict[str, Any]) -> None:
    """Replace ``nprobes`` by the minimum and maximum number of partitions."""
    both = kept.pop("nprobes", None)
    # ``search_effort`` decides the number if it is given.
    if both is not None and "search_effort" not in kept:
        kept.setdefault("minimum_nprobes", both)
        kept.setdefault("maximum_nprobes", both)
    minimum, maximum = kept.get("minimum_nprobes", 1), kept.get("maximum_nprobes")
    if maximum is not None and minimum > maximum:
        raise OptionError(
            f"minimum_nprobes must be <= maximum_nprobes: nearest: minimum_nprobes is {minimum}, "
            f"maximum_nprobes is {maximum}; the first must not be more"
        )


_KINDS: Final = kinds_of(NearestOptions)
_KINDS["q"] = Kind("a vector", query_vectors)
_KINDS["nprobes"] = integer(1, range_message="Nprobes must be > 0 but got {}. ")
del _KINDS["query"]


# --- The query of ``nearest=MinHashQuery(…)`` -------------------------------------------


@dataclass
class MinHashQuery:
    """Find the texts most similar to a text by the MINHASHLSH index of their column.

    Use it as ``nearest`` of a scan. The result has ``limit`` rows, 10 by default, with
    ``_distance``: one minus the estimated share of common runs of words. The search misses texts
    that have little in common.

    Parameters
    ----------
    text
        The text. It becomes tokens like the texts of the index.
    column
        Path of the column.
    """

    text: str
    column: str


def minhash_query_of(given: object) -> MinHashQuery | None:
    """Convert a query of a user, or pylance's; return ``None`` for other values.

    Raises
    ------
    OptionError
        Text or column is another value than a string.
    """
    if type(given).__name__ != "MinHashQuery":
        return None
    text, column = (getattr(given, name, None) for name in ("text", "column"))
    if not isinstance(text, str) or not isinstance(column, str):
        raise OptionError(
            f"nearest: MinHashQuery: expected two strings, found {text!r:.80} and {column!r:.80}"
        )
    return MinHashQuery(text, column)
