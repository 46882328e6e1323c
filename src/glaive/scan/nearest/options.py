"""What users ask for with ``nearest``, checked as far as that needs no dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import OptionError
from glaive.index.vector.metric import metric_named
from glaive.kernels.distances import Metric

__all__ = ["ApproximationMode", "NearestOptions"]

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
        for name in ("column", "q"):
            if given.get(name) is None:
                raise OptionError(f"nearest: {name!r} is missing")
        if not isinstance(given["column"], str):
            raise OptionError(f"nearest: column: expected a name, found {given['column']!r}")
        kept: dict[str, Any] = {"column": given["column"], "query": _vectors(given["q"])}
        for name, least in _LEAST.items():
            if given.get(name) is not None:
                kept[name] = _integer(name, given[name], least)
        kept |= _partitions(given)
        if given.get("metric") is not None:
            kept["metric"] = _metric_of(given["metric"])
        if given.get("search_effort") is not None:
            kept["search_effort"] = _number("search_effort", given["search_effort"], 0, 1)
        for name, values in _CHOICES.items():
            if given.get(name) is not None:
                if type(given[name]) is not type(values[0]) or given[name] not in values:
                    expected = " or ".join(map(repr, values))
                    raise OptionError(
                        f"nearest: {name}: expected {expected}, found {given[name]!r}"
                    )
                kept[name] = given[name]
        if given.get("distance_range") is not None:
            kept["distance_range"] = _range(given["distance_range"])
        return cls(**kept)

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
        """Rows to find for each query, given the limit of the scan."""
        if self.k is not None:
            return self.k
        return _DEFAULT_COUNT if limit is None else limit


_LEAST: Final = {"k": 1, "refine_factor": 1, "ef": 1, "query_parallelism": -1}
_KEYS: Final = frozenset(
    {
        *_LEAST, "column", "q", "metric", "nprobes", "minimum_nprobes", "maximum_nprobes",
        "search_effort", "use_index", "approx_mode", "distance_range",
    }
)  # fmt: skip


def _check_keys(given: Mapping[Any, Any]) -> None:
    unknown = sorted(map(str, given.keys() - _KEYS))
    if unknown:
        from difflib import get_close_matches

        close = get_close_matches(unknown[0], sorted(_KEYS), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise OptionError(
            f"nearest: unknown key {unknown[0]!r}{hint} Known: {', '.join(sorted(_KEYS))}"
        )


_PYLANCE_WORDS: Final = {
    "k": "Nearest-K must be > 0 but got {}: ",
    "nprobes": "Nprobes must be > 0 but got {}: ",
    "refine_factor": "Refine factor must be 1 or more got {}: ",
}
"""What callers of pylance match on."""


def _partitions(given: Mapping[str, Any]) -> dict[str, int]:
    """How many partitions to search."""
    kept: dict[str, int] = {}
    for name in ("nprobes", "minimum_nprobes", "maximum_nprobes"):
        if given.get(name) is not None:
            kept[name] = _integer(name, given[name], 1)
    both = kept.pop("nprobes", None)
    # Whoever says how much effort to make leaves the number to that.
    if both is not None and given.get("search_effort") is None:
        kept = {"minimum_nprobes": both, "maximum_nprobes": both} | kept
    least, most = kept.get("minimum_nprobes", 1), kept.get("maximum_nprobes")
    if most is not None and least > most:
        raise OptionError(
            f"minimum_nprobes must be <= maximum_nprobes: nearest: minimum_nprobes is {least}, "
            f"maximum_nprobes is {most}; the first must not be more"
        )
    return kept


def _metric_of(given: object) -> Metric:
    try:
        return metric_named(given)
    except OptionError as error:
        raise OptionError(f"nearest: {error}") from None


def _integer(name: str, given: Any, least: int) -> int:
    try:
        number = int(given.__index__())
    except AttributeError:
        number = least - 1
    if number < least or isinstance(given, bool):
        said = _PYLANCE_WORDS.get(name, "").format(given)
        raise OptionError(f"{said}nearest: {name}: expected an integer ≥ {least}, found {given!r}")
    return number


def _number(name: str, given: Any, low: float, high: float) -> float:
    is_number = isinstance(given, int | float | np.number) and not isinstance(given, bool)
    if not is_number or not low <= float(given) <= high:
        raise OptionError(
            f"nearest: {name}: expected a number from {low} to {high}, found {given!r}"
        )
    return float(given)


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


def _vectors(given: Any) -> NDArray[Any]:
    """Numbers of the query, in one or two dimensions."""
    try:
        numbers = np.asarray(_plain(given))
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
    if isinstance(given, pa.Scalar):
        given = cast("Any", given).values if hasattr(given, "values") else given.as_py()
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
