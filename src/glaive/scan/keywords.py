"""Keyword arguments of methods that scan, for type checkers and for ``inspect.signature``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from glaive.errors import OptionError
from glaive.scan.options import ScanOptions

if TYPE_CHECKING:
    from glaive.scan.metrics import ScanStatistics
    from glaive.scan.run.compare import ColumnOrdering

__all__ = ["FragmentScanKeywords", "HeadKeywords", "NoKeywords", "ScanKeywords", "shows_options"]

F = TypeVar("F", bound=Callable[..., Any])


class NoKeywords(TypedDict):
    """Options of a function that names all of its own: type checkers find those it lacks."""


class ScanKeywords(TypedDict, total=False):
    """Options of scans beside columns, filter, limit and offset, as users write them.

    :class:`ScanOptions` says what they mean; ``None`` is its default. The last ten need an index
    or change nothing without one.
    """

    order_by: Sequence[str | ColumnOrdering] | None
    batch_size: int | None
    batch_size_bytes: int | None
    strict_batch_size: bool | None
    batch_readahead: int | None
    fragment_readahead: int | None
    scan_in_order: bool | None
    with_row_id: bool | None
    with_row_address: bool | None
    include_deleted_rows: bool | None
    late_materialization: bool | Sequence[str] | None
    use_stats: bool | None
    io_buffer_size: int | None
    scan_stats_callback: Callable[[ScanStatistics], object] | None
    fragments: Iterable[object] | None
    range_before: Sequence[int] | None
    blob_handling: str | None
    use_cache: bool | None
    substrait_filter: bytes | None
    nearest: object
    full_text_query: object
    index_segments: object
    row_addr_allowlist: object
    row_addr_blocklist: object
    aggregate: object
    prefilter: bool | None
    use_scalar_index: bool | None
    fast_search: bool | None
    disable_scoring_autoprojection: bool | None


class FragmentScanKeywords(ScanKeywords, total=False):
    """Options of scans of one fragment, which name limit and offset like all others."""

    limit: int | None
    offset: int | None


class HeadKeywords(ScanKeywords, total=False):
    """Options of scans of the first rows."""

    columns: Sequence[str] | Mapping[str, str] | None
    filter: object
    offset: int | None


_BY_NAME = ("limit", "offset", *ScanKeywords.__annotations__)
_DEFAULTS = {f.name: None if f.default is MISSING else f.default for f in fields(ScanOptions)}


def shows_options(*positional: str) -> Callable[[F], F]:
    """Let a method with ``**options: Unpack[ScanKeywords]`` name each of them in its signature.

    Type checkers read the annotation. At run time it says nothing to ``inspect.signature`` and
    ``help``, and it has no way to say that some options may be given by position, as pylance
    allows: the ``positional`` ones, after those that the method names itself.
    """

    def showing(method: F) -> F:
        own = signature(method)
        *named, rest = own.parameters.values()
        first = [
            parameter.name
            for parameter in named
            if parameter.kind == Parameter.POSITIONAL_OR_KEYWORD
        ]
        exposed = {parameter.name: parameter for parameter in named}
        exposed |= {option: _exposed(option) for option in _BY_NAME if option not in exposed}
        kind = Parameter.POSITIONAL_OR_KEYWORD
        order = {option: exposed.pop(option).replace(kind=kind) for option in (*first, *positional)}
        others = [rest] if rest.name != "options" else []  # arguments for somebody else

        @wraps(method)
        def call(*args: Any, **options: Any) -> Any:
            if len(args) <= len(first):
                return method(*args, **options)
            more = dict(zip(positional, args[len(first) :], strict=False))
            if twice := more.keys() & options.keys():
                raise OptionError(f"arguments of {method.__name__}: {min(twice)!r} is given twice")
            return method(*args[: len(first)], *args[len(order) :], **options, **more)

        parameters = [*order.values(), *exposed.values(), *others]
        call.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # functions take attributes
        return call  # type: ignore[return-value]  # called as the method is

    return showing


def _exposed(option: str) -> Parameter:
    return Parameter(
        option,
        Parameter.KEYWORD_ONLY,
        default=_DEFAULTS.get(option),
        annotation=FragmentScanKeywords.__annotations__[option].__forward_arg__,
    )
