"""Pages of a listing: ``limit`` names after the name in ``page_token``."""

from __future__ import annotations

from collections.abc import Sequence

from glaive.namespace.errors import InvalidInputError
from glaive.namespace.identifiers import value

__all__ = ["page_of"]


def page_of(names: Sequence[str], request: object) -> tuple[list[str], str | None]:
    """The page of sorted names that a request asks for, and the token of the next one.

    Raises
    ------
    InvalidInputError
        The limit is below 1.
    """
    after, limit = value(request, "page_token"), value(request, "limit")
    rest = [name for name in names if name > after] if after else list(names)
    if limit is None:
        return rest, None
    if not isinstance(limit, int) or limit < 1:
        raise InvalidInputError(f"limit: expected a number above 0, found {limit!r:.60}")
    page = rest[:limit]
    return page, page[-1] if len(rest) > limit else None
