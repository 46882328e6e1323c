"""The uncommitted result of a compaction task."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final, Self

from glaive.dataclass import dataclass
from glaive.dataset.fragments.data_files import checked_integer
from glaive.dataset.fragments.metadata import FragmentMetadata, stored_fragments
from glaive.errors import OptionError
from glaive.format.fragment import Fragment

__all__ = ["CompactionMetrics", "JsonValue", "RewriteResult", "read_fragments", "read_number"]

_MAX_64: Final = 2**64 - 1


class JsonValue:
    """A value that other processes can get as JSON."""

    __slots__ = ()

    def json(self) -> str:
        """Encode as JSON."""
        return json.dumps(self.content())

    @classmethod
    def from_json(cls, json: str) -> Self:
        """Decode the output of :meth:`json`.

        Raises
        ------
        OptionError
            The text is not such output.
        """
        from json import loads

        try:
            return cls.of_content(loads(json))
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise OptionError(
                f"Could not load {cls.__name__} due to error: expected its JSON, found "
                f"{json!r:.80} ({error})"
            ) from error

    def content(self) -> dict[str, Any]:
        """The value as JSON can represent it."""
        raise NotImplementedError

    @classmethod
    def of_content(cls, values: Any) -> Self:
        """The value with this content."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class CompactionMetrics:
    """How much a compaction removed and added."""

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0

    def __add__(self, other: CompactionMetrics) -> CompactionMetrics:
        counts = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return CompactionMetrics(*map(sum, counts))


@dataclass(frozen=True, slots=True)
class RewriteResult(JsonValue):
    """The uncommitted fragments that a task wrote; can be pickled.

    Parameters
    ----------
    old
        Fragments whose rows were rewritten.
    new
        Fragments with these rows; the commit assigns their ids.
    moved
        Old addresses of the live rows, as a bitmap; empty if no index needs them.
    """

    read_version: int
    metrics: CompactionMetrics
    old: Sequence[Fragment]
    new: Sequence[Fragment]
    moved: bytes = b""

    def __repr__(self) -> str:
        return (
            f"RewriteResult(read_version={self.read_version}, "
            f"new_fragments={self.new_fragments}, old_fragments={self.original_fragments})"
        )

    @property
    def original_fragments(self) -> list[FragmentMetadata]:
        """Fragments whose rows were rewritten."""
        return list(map(FragmentMetadata.of, self.old))

    @property
    def new_fragments(self) -> list[FragmentMetadata]:
        """Fragments with these rows."""
        return list(map(FragmentMetadata.of, self.new))

    def content(self) -> dict[str, Any]:
        """The value as JSON can represent it."""
        return {
            "read_version": self.read_version,
            "metrics": asdict(self.metrics),
            "original_fragments": [fragment.to_json() for fragment in self.original_fragments],
            "new_fragments": [fragment.to_json() for fragment in self.new_fragments],
            "row_addrs": self.moved.hex() or None,
        }

    @classmethod
    def of_content(cls, values: Any) -> Self:
        """The value with this content."""
        counts = {name: read_number(values["metrics"], name) for name in values["metrics"]}
        return cls(
            read_number(values, "read_version"),
            CompactionMetrics(**counts),
            read_fragments(values["original_fragments"]),
            read_fragments(values["new_fragments"]),
            bytes.fromhex(values["row_addrs"] or ""),
        )


def read_number(values: Any, name: str) -> int:
    """The entry of this name, a version or a count."""
    return checked_integer(values[name], name, _MAX_64)


def read_fragments(documents: Iterable[str]) -> tuple[Fragment, ...]:
    """Decode outputs of ``FragmentMetadata.to_json``."""
    return tuple(stored_fragments(map(FragmentMetadata.from_json, documents), "fragments"))
