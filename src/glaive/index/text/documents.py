"""The documents of a batch of rows: their texts, and where they come from.

Specification: "Documents" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.index.row_set import RowNumbers
from glaive.index.source import ValueBatch
from glaive.named_tuple import NamedTuple
from glaive.types import Int64s, UInt32s

__all__ = ["Documents", "check_column", "documents_of"]

_JSON = b"lance.json"
_EXTENSION = b"ARROW:extension:name"


class Documents(NamedTuple):
    """Texts to be indexed.

    Parameters
    ----------
    texts
        Of each document; a null has no tokens.
    rows
        Row of each document.
    elements
        Which element of its row's list it is; None if documents are rows.
    """

    texts: pa.Array
    rows: RowNumbers
    elements: UInt32s | None


def check_column(field: pa.Field[Any], *, by_element: bool) -> bool:
    """Check that a column can be indexed; whether it holds JSON.

    Raises
    ------
    OptionError
        Its values are not texts or lists of them, or not lists where elements are documents.
    UnsupportedFeatureError
        It holds lists of lists.
    """
    kind: Any = field.type
    is_json = (field.metadata or {}).get(_EXTENSION, b"").lower() in (_JSON, b"arrow.json")
    if _is_list(kind) and _is_list(kind.value_type):
        raise UnsupportedFeatureError(
            f"column {field.name!r}: lists of lists cannot be indexed; index a list of texts"
        )
    if by_element and not _is_list(kind):
        raise OptionError(
            f"document_granularity: column {field.name!r} of type {kind} has no list elements"
        )
    value = kind.value_type if _is_list(kind) else kind
    # A stranger's schema may call numbers, or anything, JSON.
    is_document = is_json and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
    if not (_is_text(value) or is_document):
        raise OptionError(
            f"INVERTED index column {field.name} must be text, lists of text, or JSON, but got "
            f"{kind}"
        )
    return is_json


def documents_of(batch: ValueBatch, *, by_element: bool) -> Documents:
    """The documents of some rows: the texts of a list are joined by a space, or one each.

    Of lists, those that are null and nulls in them are empty texts, as pylance has it: they have
    no tokens, but for the tokenizer ``raw``.
    """
    values: Any = batch.values
    if not _is_list(values.type):
        return Documents(values, batch.rows, None)
    if pa.types.is_fixed_size_list(values.type):
        values = values.cast(pa.large_list(values.type.value_type))
    parents = pc.list_parent_indices(values).to_numpy(zero_copy_only=False).astype(np.int64)
    texts: Any = values.flatten().cast(pa.large_string())
    if by_element:
        before = np.searchsorted(parents, parents, side="left")
        elements = (np.arange(len(parents)) - before).astype(np.uint32)
        empty: Any = pa.scalar("", pa.large_string())
        return Documents(pc.fill_null(texts, empty), batch.rows[parents], elements)
    if texts.null_count:
        valid = texts.is_valid()
        parents, texts = parents[valid.to_numpy(zero_copy_only=False)], texts.drop_null()
    return Documents(_joined(texts, parents, len(values)), batch.rows, None)


def _joined(texts: Any, parents: Int64s, count: int) -> pa.Array:
    """The texts of each row joined by a space, from the first on that is not empty."""
    sizes: Any = pc.binary_length(texts).to_numpy()
    if not sizes.all():
        ends = np.cumsum(sizes)
        before = np.concatenate(([0], ends))[np.searchsorted(parents, parents, side="left")]
        begun = ends > before
        parents, texts = parents[begun], texts.filter(pa.array(begun))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(parents, minlength=count))))
    list_type: Any = pa.LargeListArray
    lists = list_type.from_arrays(pa.array(offsets, pa.int64()), texts)
    joined: Any = pc.binary_join(lists, pa.scalar(" ", pa.large_string()))
    return joined  # type: ignore[no-any-return]  # an array


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
