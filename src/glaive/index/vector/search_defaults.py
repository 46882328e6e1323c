"""How an index is searched where the query does not say: kept with the details of its segments.

Specification: "Details" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from glaive.format.pb import vector_details_pb2
from glaive.format.wire import parse
from glaive.named_tuple import NamedTuple

__all__ = ["SearchDefaults", "with_defaults"]

_PARTITIONS: Final = "glaive.nprobes"
_REFINE: Final = "glaive.refine_factor"
_RECALL: Final = "glaive.recall"
_MOST: Final = {_PARTITIONS: 1 << 20, _REFINE: 1 << 10}
"""Greater numbers are nobody's choice, and are passed over."""


class SearchDefaults(NamedTuple):
    """What was chosen when the index was built with ``recall``.

    Parameters
    ----------
    nprobes
        Partitions to search for each query.
    refine_factor
        Candidates whose distance is computed again, for each row wanted; None: of none.
    recall
        What was asked for.
    """

    nprobes: int
    refine_factor: int | None
    recall: float

    @classmethod
    def of(cls, details: bytes, where: object) -> SearchDefaults | None:
        """Those in a details message; None where there are none, or no numbers.

        Raises
        ------
        CorruptFileError
            The message cannot be parsed.
        """
        message = parse(
            vector_details_pb2.VectorIndexDetails(), details, "details of an index", where
        )
        nprobes = _number(message.runtime_hints, _PARTITIONS)
        try:
            recall = float(message.runtime_hints.get(_RECALL, ""))
        except ValueError:
            return None
        if nprobes is None or not 0 < recall < 1:
            return None
        return cls(nprobes, _number(message.runtime_hints, _REFINE), recall)


def with_defaults(details: bytes, defaults: SearchDefaults, where: object) -> bytes:
    """A details message with other defaults.

    Raises
    ------
    CorruptFileError
        The message cannot be parsed.
    """
    message = parse(vector_details_pb2.VectorIndexDetails(), details, "details of an index", where)
    hints: dict[str, float] = {_PARTITIONS: defaults.nprobes, _RECALL: defaults.recall}
    if defaults.refine_factor is not None:
        hints[_REFINE] = defaults.refine_factor
    message.runtime_hints.update({key: str(value) for key, value in hints.items()})
    return message.SerializeToString(deterministic=True)


def _number(hints: Mapping[str, str], key: str) -> int | None:
    text = hints.get(key, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 9):
        return None
    return int(text) if 1 <= int(text) <= _MOST[key] else None
