"""``LanceFragment._fragment``: what clients of pylance read of its inner fragment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from glaive.dataset.fragments.metadata import FragmentMetadata

__all__ = ["InnerFragment"]


class InnerFragment:
    """A fragment whose id, schema and metadata are methods; all else is as in the fragment."""

    def __init__(self, fragment: Any) -> None:
        self._outer = fragment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outer, name)

    def __repr__(self) -> str:
        return repr(self._outer)

    def __reduce__(self) -> tuple[object, ...]:
        return InnerFragment, (self._outer,)

    def id(self) -> int:
        """Identity within the dataset."""
        return int(self._outer.fragment_id)

    def schema(self) -> pa.Schema:
        """Schema of the dataset."""
        schema: pa.Schema = self._outer.schema
        return schema

    def metadata(self) -> FragmentMetadata:
        """Id, files and deletions."""
        found: FragmentMetadata = self._outer.metadata
        return found
