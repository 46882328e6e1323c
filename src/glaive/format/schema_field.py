"""A field of a schema as pylance's callers know it: facts are methods."""

from __future__ import annotations

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.format.declared_keys import (
    CLUSTERING_KEY_POSITION,
    PRIMARY_KEY_POSITION,
    is_clustering_key,
    is_primary_key,
    key_position,
)
from glaive.format.field import Field

__all__ = ["SchemaField"]


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A field with its id; returned by :meth:`LanceSchema.field`.

    Parameters
    ----------
    field
        The field.
    """

    _field: Field

    def id(self) -> int:
        """Its id, which data files and indices name it by."""
        return self._field.id

    def name(self) -> str:
        """Its name, without those of parents."""
        return self._field.name

    def children(self) -> list[SchemaField]:
        """Its members."""
        return [SchemaField(one) for one in self._field.children]

    def is_unenforced_primary_key(self) -> bool:
        """Whether it is declared to be of the primary key."""
        return is_primary_key(self._field)

    def unenforced_primary_key_position(self) -> int | None:
        """Its place in the primary key, from 1 on; None if none is given."""
        return key_position(self._field, PRIMARY_KEY_POSITION)

    def is_unenforced_clustering_key(self) -> bool:
        """Whether it is declared to be of the clustering key."""
        return is_clustering_key(self._field)

    def unenforced_clustering_key_position(self) -> int | None:
        """Its place in the clustering key, from 1 on; None if none is given."""
        return key_position(self._field, CLUSTERING_KEY_POSITION)

    @property
    def metadata(self) -> dict[str, str]:
        """Its metadata, as strings."""
        found = self._field.metadata
        return {_text(key): _text(value) for key, value in found.items()}

    def to_arrow(self) -> pa.Field:
        """The field in Arrow."""
        return self._field.to_arrow()


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
