"""What users ask for with ``nearest``, checked as far as that needs no dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import nan
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import OptionError, OptionRangeError
from glaive.index.vector.vector_column import metric_named
from glaive.kernels.distances import Metric
from glaive.types import integer_of

ApproximationMode: TypeAlias = Literal["fast", "normal", "accurate"]

_CHOICES: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {"use_index": (True, False), "approx_mode": ("fast", "normal", "accurate")}
)
_DEFAULT_COUNT: Final = 10


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
        Rows to find for each query; by default as many as ``limit`` says, or 10.
    metric
        Kind of distance; by default that of the index, else ``l2``, for bytes ``hamming``.
    minimum_nprobes, maximum_nprobes
        Partitions of an index to search for each query, at least and at most; ``nprobes`` sets
        both.
    search_effort
        Which share of the partitions to begin with, from 0 to 1; ``None`` for 0.5.
    refine_factor
        Measure true distances of so many times ``k`` candidates of an index.
    ef
        Candidates that a search in a graph keeps; by default 1.5 ``k``.
    use_index
        Search with an index, where there is one.
    approx_mode
        How exactly codes of IVF_RQ are compared: ``fast``, ``normal`` or ``accurate``.
    distance_range
        Lowest distance, and the one that distances have to stay below; ``None`` for no bound.
    query_parallelism
        Accepted; searches use the cores there are.
    """

    column: str
    query: NDArray[Any]
    k: int | None = None
    metric: Metric | None = None
    minimum_nprobes: int | None = None
    maximum_nprobes: int | None = None
    search_effort: float | None = None
    refine_factor: int | None = None
    ef: int | None = None
    use_index: bool = True
    approx_mode: ApproximationMode = "normal"
    distance_range: tuple[float | None, float | None] = (None, None)
    query_parallelism: int | None = None

    @classmethod
    def of(cls, given: object) -> NearestOptions:
        """Check the mapping that users write.

        Raises
        ------
        OptionError
            A key is unknown or missing, or has a value it cannot have.
        """
        if not isinstance(given, Mapping):
            raise OptionError(
                f"nearest: expected a mapping with 'column' and 'q', found {given!r:.80}"
            )
        _check_keys(given)
        kept = {name: _CHECKED[name](value) for name, value in given.items() if value is not None}
        for name in ("column", "q"):
            if name not in kept:
                raise OptionError(f"nearest: {name!r} is missing")
        _set_partitions(kept)
        return cls(query=kept.pop("q"), **kept)

    def with_defaults(self, nprobes: int, refine_factor: int | None) -> NearestOptions:
        """The same with other defaults for how many partitions are searched, and refined.

        More partitions are searched where these have too few rows.
        """
        said = (self.minimum_nprobes, self.maximum_nprobes, self.search_effort)
        made = self
        if all(number is None for number in said):
            made = replace(made, minimum_nprobes=nprobes, search_effort=0.0)
        if self.refine_factor is None:
            made = replace(made, refine_factor=refine_factor)
        return made

    def count(self, limit: int | None) -> int:
        """Rows to find for each query, given the limit of the scan: at least one.

        A scan with the limit 0 cuts them off after the search.
        """
        if self.k is not None:
            return self.k
        return limit or _DEFAULT_COUNT


_LEAST: Final = {
    "k": 1, "refine_factor": 1, "ef": 1, "query_parallelism": -1,
    "nprobes": 1, "minimum_nprobes": 1, "maximum_nprobes": 1,
}  # fmt: skip


def _check_keys(given: Mapping[Any, Any]) -> None:
    if not given.keys() <= _CHECKED.keys():
        unknown = sorted(map(str, given.keys() - _CHECKED.keys()))
        from difflib import get_close_matches

        close = get_close_matches(unknown[0], sorted(_CHECKED), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise OptionError(
            f"nearest: nearest() got an unexpected keyword argument {unknown[0]!r}: unknown key "
            f"{unknown[0]!r}{hint} Known: {', '.join(sorted(_CHECKED))}"
        )


_PYLANCE_WORDS: Final = {
    "k": "Nearest-K must be > 0 but got {}: ",
    "nprobes": "Nprobes must be > 0 but got {}: ",
    "refine_factor": "Refine factor must be 1 or more got {}: ",
}
"""What callers of pylance match on."""


def _set_partitions(kept: dict[str, Any]) -> None:
    """Set how many partitions to search, at least and at most, in place of ``nprobes``."""
    both = kept.pop("nprobes", None)
    # Whoever says how much effort to make leaves the number to that.
    if both is not None and "search_effort" not in kept:
        kept.setdefault("minimum_nprobes", both)
        kept.setdefault("maximum_nprobes", both)
    least, most = kept.get("minimum_nprobes", 1), kept.get("maximum_nprobes")
    if most is not None and least > most:
        raise OptionError(
            f"minimum_nprobes must be <= maximum_nprobes: nearest: minimum_nprobes is {least}, "
            f"maximum_nprobes is {most}; the first must not be more"
        )


def _name(given: object) -> str:
    if not isinstance(given, str):
        raise OptionError(f"nearest: column: expected a name, found {given!r}")
    return given


def _choice(name: str, given: Any) -> Any:
    values = _CHOICES[name]
    if type(given) is not type(values[0]) or given not in values:
        expected = " or ".join(map(repr, values))
        raise OptionError(f"nearest: {name}: expected {expected}, found {given!r}")
    return given


def _metric_of(given: object) -> Metric:
    try:
        return metric_named(given)
    except OptionError as error:
        raise OptionError(f"nearest: {error}") from None


def _integer(name: str, given: Any, least: int) -> int:
    number = integer_of(given)
    number = least - 1 if number is None else number
    if number.bit_length() > 64:
        raise OptionRangeError(
            f"nearest: {name}: expected an integer from {least} to 2^64 - 1, found one of "
            f"{number.bit_length()} bits"
        )
    if number < least:
        said = _PYLANCE_WORDS.get(name, "").format(given)
        kind = OptionRangeError if isinstance(given, int) else OptionError
        raise kind(f"{said}nearest: {name}: expected an integer ≥ {least}, found {given!r:.80}")
    return number


def _number(name: str, given: Any, low: float, high: float) -> float:
    is_number = isinstance(given, int | float | np.number) and not isinstance(given, bool)
    try:
        number = float(given) if is_number else nan
    except OverflowError:  # integers may be larger than all floats
        number = nan
    if not low <= number <= high:
        raise OptionError(
            f"nearest: {name}: expected a number from {low} to {high}, found {given!r:.80}"
        )
    return number


def _range(given: Any) -> tuple[float | None, float | None]:
    if isinstance(given, str) or not isinstance(given, tuple | list) or len(given) != 2:
        raise OptionError(
            f"nearest: distance_range: expected lower and upper bound, found {given!r}"
        )
    infinity = float("inf")
    low, high = (
        None if bound is None else _number("distance_range", bound, -infinity, infinity)
        for bound in given
    )
    return low, high


def query_vectors(given: Any) -> NDArray[Any]:
    """Numbers of the query, in one or two dimensions.

    Raises
    ------
    OptionError
        It has other values, or none.
    """
    try:
        numbers = given if type(given) is np.ndarray else np.asarray(_plain(given))
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise OptionError(
            f"nearest: q: expected numbers, all vectors of one length: {error}"
        ) from None
    if numbers.dtype.kind not in "fiub" or numbers.ndim not in (1, 2):
        raise OptionError(
            "nearest: q: expected a vector of numbers, or a list of vectors of one length, found "
            f"{numbers.dtype} of shape {numbers.shape}"
        )
    if not numbers.size:
        raise OptionError(f"nearest: q: expected a vector, found none: shape {numbers.shape}")
    return numbers


def _plain(given: Any) -> Any:
    """Arrow values as something that NumPy understands."""
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


_CHECKED: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {
        "column": _name,
        "q": query_vectors,
        "metric": _metric_of,
        "search_effort": partial(_number, "search_effort", low=0, high=1),
        "distance_range": _range,
        **{name: partial(_integer, name, least=least) for name, least in _LEAST.items()},
        **{name: partial(_choice, name) for name in _CHOICES},
    }
)
"""What is kept of the value of each key."""


# --- What users ask for with ``nearest=MinHashQuery(…)`` --------------------------------


@dataclass
class MinHashQuery:
    """The rows whose texts are most like a text, by the MINHASHLSH index of their column.

    As ``nearest`` of a scan: ``limit`` rows, 10 by default, with their ``_distance``: one less the
    share of runs of words that the texts have in common, estimated. Texts that have little in
    common are not found.

    Parameters
    ----------
    text
        Becomes tokens as the texts of the index did.
    column
        Path of the column.
    """

    text: str
    column: str


def minhash_query_of(given: object) -> MinHashQuery | None:
    """A query as users give it, pylance's included; None for other values.

    Raises
    ------
    OptionError
        Text or column is no string.
    """
    if type(given).__name__ != "MinHashQuery":
        return None
    text, column = (getattr(given, name, None) for name in ("text", "column"))
    if not isinstance(text, str) or not isinstance(column, str):
        raise OptionError(
            f"nearest: MinHashQuery: expected two strings, found {text!r:.80} and {column!r:.80}"
        )
    return MinHashQuery(text, column)
