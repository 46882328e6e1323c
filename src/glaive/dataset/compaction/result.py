"""What a task of a compaction made, until it is committed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeVar

from glaive.dataset.fragments.metadata import FragmentMetadata, stored_fragments
from glaive.errors import OptionError
from glaive.format.fragment import Fragment

__all__ = ["CompactionMetrics", "RewriteResult", "read_fragments", "read_json"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CompactionMetrics:
    """What a compaction took away and added."""

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0

    def __add__(self, other: CompactionMetrics) -> CompactionMetrics:
        return CompactionMetrics(
            *(mine + theirs for mine, theirs in zip(_figures(self), _figures(other), strict=True))
        )


def _figures(metrics: CompactionMetrics) -> tuple[int, ...]:
    return tuple(asdict(metrics).values())


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What a task made: fragments that no version has yet; can be pickled.

    Parameters
    ----------
    old
        Fragments whose rows were rewritten.
    new
        Fragments with these rows; their ids are given by the commit.
    moved
        Old addresses of the rows that are left, as a bitmap; none where no index needs them.
    """

    read_version: int
    metrics: CompactionMetrics
    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]
    moved: bytes = b""

    @property
    def original_fragments(self) -> tuple[FragmentMetadata, ...]:
        """Fragments whose rows were rewritten, as users know them."""
        return tuple(map(FragmentMetadata.of, self.old))

    @property
    def new_fragments(self) -> tuple[FragmentMetadata, ...]:
        """Fragments with these rows, as users know them."""
        return tuple(map(FragmentMetadata.of, self.new))

    def json(self) -> str:
        """As text."""
        return json.dumps(
            {
                "read_version": self.read_version,
                "metrics": asdict(self.metrics),
                "original_fragments": [
                    original_fragment.to_json() for original_fragment in self.original_fragments
                ],
                "new_fragments": [fragment.to_json() for fragment in self.new_fragments],
                "moved": self.moved.hex(),
            }
        )

    @classmethod
    def from_json(cls, json: str) -> Self:
        """Read what :meth:`json` gave."""
        return read_json(json, cls.__name__, cls._of)

    @classmethod
    def _of(cls, found: Any) -> Self:
        return cls(
            found["read_version"],
            CompactionMetrics(**found["metrics"]),
            read_fragments(found["original_fragments"]),
            read_fragments(found["new_fragments"]),
            bytes.fromhex(found["moved"]),
        )


def read_json(text: str, what: str, make: Callable[[Any], T]) -> T:
    """Make something of what its ``json`` gave.

    Raises
    ------
    OptionError
        It is nothing of the kind.
    """
    try:
        return make(json.loads(text))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise OptionError(f"expected the JSON of a {what}, found {text!r:.80} ({error})") from error


def read_fragments(texts: Iterable[str]) -> tuple[Fragment, ...]:
    """Fragments of what ``FragmentMetadata.to_json`` gave."""
    return tuple(stored_fragments(map(FragmentMetadata.from_json, texts), "fragments"))
