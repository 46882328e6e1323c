"""What an index is built from: the values of a column, with the numbers of their rows.

Specification: "Building" in ``docs/format/indices.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.index.row_set import RowNumbers
from glaive.named_tuple import NamedTuple

__all__ = ["FragmentExtent", "IndexSource", "ValueBatch", "stored_batches"]


@dataclass(frozen=True, slots=True)
class FragmentExtent:
    """A fragment that is indexed.

    Parameters
    ----------
    id
        Of the fragment.
    physical_rows
        Its rows, deleted ones included.
    """

    id: int
    physical_rows: int


class ValueBatch(NamedTuple):
    """Neighbouring rows of a fragment.

    Parameters
    ----------
    values
        One value for each live row, in the type of the column as it is stored: extension
        types as their storage, dictionary-encoded values decoded. JSON documents are texts.
    rows
        Number of each row: its address or, for kinds that store these, its stable row id.
    """

    values: pa.Array
    rows: RowNumbers


class IndexSource(Protocol):
    """The live rows of a column of some fragments, which can be read more than once."""

    @property
    def field(self) -> pa.Field[pa.DataType]:
        """Name, type and metadata of the column."""

    @property
    def dictionary_type(self) -> pa.DataType | None:
        """The type of a column whose values are encoded with dictionaries; else None."""

    @property
    def fragments(self) -> Sequence[FragmentExtent]:
        """The fragments, in the order in which they are read."""

    @property
    def num_rows(self) -> int:
        """Live rows."""

    @property
    def stable_row_ids(self) -> bool:
        """Whether rows of the dataset have stable ids, so that these are not their addresses."""

    @property
    def memory_limit(self) -> int:
        """Bytes that building may hold; what is larger is spilled to a temporary folder."""

    def batches(self) -> Iterator[ValueBatch]:
        """Read all rows, fragment by fragment, a batch within one fragment. Bounded memory."""

    def sample(self, rows: int, seed: int = 0) -> pa.Array:
        """Values of so many random rows, or of all, in no certain order. Reads these rows only."""


def stored_batches(source: IndexSource) -> Iterator[ValueBatch]:
    """All rows of a source, JSON documents as filters compare them: in JSONB."""
    from glaive.arrow.jsonb import encode_jsonb

    is_json = pa.types.is_large_binary(source.field.type)
    for values, rows in source.batches():
        texts = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        yield ValueBatch(encode_jsonb(values) if is_json and texts else values, rows)
