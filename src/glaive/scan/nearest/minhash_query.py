"""What users ask for with ``nearest=MinHashQuery(…)``."""

from __future__ import annotations

from glaive.dataclass import dataclass
from glaive.errors import OptionError

__all__ = ["MinHashQuery", "minhash_query_of"]


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
