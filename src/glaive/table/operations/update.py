"""Update: rows rewritten into new fragments, or columns replaced in place.

Updated rows are deleted and rewritten, followed by inserted rows. A column that is replaced for
whole fragments gets new files.

Specification: "Update" in ``docs/format``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from glaive.dataclass import dataclass
from glaive.errors import CorruptFileError
from glaive.format.bitmaps import BLOCK_BYTES, BLOCK_WORDS, block_numbers, offsets_of, word_masks
from glaive.format.fragment import Fragment, file_versions, ids_of, messages_of
from glaive.format.manifest import Feature, Manifest
from glaive.format.pb import table_pb2
from glaive.format.rowids import count_row_ids
from glaive.format.transaction import Operation
from glaive.format.wire import parse
from glaive.kernels.hashing import hash_strings
from glaive.kernels.strings import Strings
from glaive.table.deletions import DeletingOperation
from glaive.table.fragment_ids import (
    copy_of,
    edit_fragments,
    final_fragments,
    mark_changed,
    mark_file_versions,
    moved_fields,
    new_fragments,
)
from glaive.table.index_coverage import (
    after_remapping,
    cover_relocated,
    encode_indices,
    prune,
    related_fields,
    without_new,
)
from glaive.table.protocol import (
    INCREMENTAL,
    BuildContext,
    Conflict,
    Draft,
    HiddenLineage,
    changes_columns,
    incompatible,
    makes_non_nullable,
    needs_dataset,
    operation,
    overlap,
    read_fields,
)
from glaive.table.rowids import created_at
from glaive.types import as_buffer

# --- Filters of inserted keys, to detect that two writers inserted the same key ---------
# A filter has the hashes of the keys, or a split-block Bloom filter of them
# (:mod:`glaive.format.bitmaps`). Two Bloom filters of the same shape share a key only if some block
# has, in each word, a bit that both have set.
#
# Specification: "Update" in ``docs/format``.

_BYTES: Final = 32768
_ITEMS: Final = 8192
_PROBABILITY: Final = 0.00057

Filter = table_pb2.Transaction.Update.KeyExistenceFilter


def hash_keys(columns: Sequence[Any]) -> NDArray[np.uint64] | None:
    """Hash the bytes of each key with XXH64, seed 0.

    Parameters
    ----------
    columns
        Arrays of the key columns, of equal length.

    Returns
    -------
    numpy.ndarray or None
        ``None`` for unsupported keys. Supported keys are integers of 32 and 64 bits, strings and
        binary, without nulls.
    """
    import pyarrow.compute as pc

    if not all(_is_hashed(column.type) and not column.null_count for column in columns):
        return None
    parts: Any = [_bytes_of(column) for column in columns]
    keys = parts[0]
    if len(parts) > 1:  # a zero byte follows each part
        ends = [pa.scalar(end, pa.large_binary()) for end in (b"", b"\0")]
        keys = pc.binary_join_element_wise(*parts, *ends)
    _, offsets, data = keys.buffers()
    strings = Strings(offsets.slice(8 * keys.offset), 64, data or pa.py_buffer(b""))
    return hash_strings(strings, len(keys)) if len(keys) else np.empty(0, np.uint64)


def _is_hashed(data_type: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(data_type) or types.is_large_string(data_type)
    binary = types.is_binary(data_type) or types.is_large_binary(data_type)
    return bool(text or binary or (types.is_integer(data_type) and data_type.bit_width >= 32))


def _bytes_of(column: Any) -> Any:
    if pa.types.is_integer(column.type):
        signed = pa.types.is_signed_integer(column.type)
        words = as_buffer(column.cast(pa.int64() if signed else pa.uint64()).to_numpy())
        fixed: Any = pa.Array.from_buffers(pa.binary(8), len(column), [None, words])
        return fixed.cast(pa.large_binary())
    return column.cast(pa.large_binary())


def key_filter(field_ids: Sequence[int], hashes: NDArray[np.uint64]) -> Filter:
    """Make the Bloom filter of keys from their hashes (XXH64, seed 0).

    Parameters
    ----------
    field_ids
        Ids of the key columns.
    hashes
        One hash per key. Shape ``(keys,)``.
    """
    words = np.zeros((_BYTES // BLOCK_BYTES, BLOCK_WORDS), np.uint32)
    np.bitwise_or.at(words, block_numbers(hashes, len(words)), word_masks(hashes))
    made = Filter(field_ids=field_ids)
    made.bloom.bitmap = words.astype("<u4").tobytes()
    made.bloom.num_bits = _BYTES * 8
    made.bloom.number_of_items = _ITEMS
    made.bloom.probability = _PROBABILITY
    return made


def may_share_keys(mine: Filter, theirs: Filter) -> bool:
    """Return whether a key may be in both filters; ``True`` if they cannot be compared.

    Raises
    ------
    CorruptFileError
        The bitmap of a bloom filter ends within a block.
    """
    if list(mine.field_ids) != list(theirs.field_ids):
        return True
    exact = [key_filter.WhichOneof("data") == "exact" for key_filter in (mine, theirs)]
    if all(exact):
        return bool(set(mine.exact.key_hashes) & set(theirs.exact.key_hashes))
    if any(exact):
        listed, other = (mine, theirs) if exact[0] else (theirs, mine)
        if other.WhichOneof("data") is None:
            return True
        return _any_in(np.array(listed.exact.key_hashes, np.uint64), _words(other))
    if None in (mine.WhichOneof("data"), theirs.WhichOneof("data")):
        return True
    my_words, their_words = _words(mine), _words(theirs)
    if my_words.shape != their_words.shape:
        return True
    return bool(((my_words & their_words) != 0).all(axis=1).any())


def _words(key_filter: Filter) -> NDArray[np.uint32]:
    bitmap = key_filter.bloom.bitmap
    if not bitmap or len(bitmap) % BLOCK_BYTES:
        raise CorruptFileError(
            "filter of inserted keys",
            expected=f"blocks of {BLOCK_BYTES} bytes",
            found=f"{len(bitmap)} bytes",
            where="a transaction",
        )
    return np.frombuffer(bitmap, "<u4").astype(np.uint32, copy=False).reshape(-1, BLOCK_WORDS)


def _any_in(hashes: NDArray[np.uint64], words: NDArray[np.uint32]) -> bool:
    bits = word_masks(hashes)
    return bool(((words[block_numbers(hashes, len(words))] & bits) == bits).all(axis=1).any())


# --- Delete: fragments with new deletion files, and removed fragments -------------------
# Specification: "Delete" in ``docs/format``.


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(DeletingOperation):
    """Delete rows; ``predicate`` is the condition as the user wrote it."""

    wire_name: ClassVar[str] = "delete"
    compatible = INCREMENTAL - {"data_replacement", "delete", "merge", "rewrite", "update"}
    renamed = MappingProxyType({"updated": "updated_fragments", "removed": "deleted_fragment_ids"})

    predicate: str = ""

    def conflict_with(self, theirs: Operation, name: str | None) -> Conflict | None:
        """Return conflicts on the same fragments, except deletions of other rows."""
        if name in ("delete", "update") and not changes_columns(theirs):
            if self.shared(theirs):
                return None
            return overlap(self.changed_ids, theirs, f"{name} deleted rows of")
        if name in ("update", "rewrite", "data_replacement"):
            return overlap(self.changed_ids, theirs, f"{name} changed")
        if name == "merge":
            return Conflict("merge changed the files of all fragments")
        return incompatible(theirs, replaced="the rows that this deletes")

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Return the remaining fragments of ``base``, with new deletion files."""
        base = needs_dataset(base, "delete rows")
        wire = copy_of(base)
        replaced = final_fragments(base, self.updated)
        kept = edit_fragments(base, wire, replaced=replaced, removed=self.removed)
        return Draft(wire, base.index_section, kept)


_MESSAGE = table_pb2.Transaction.Update


@operation
@dataclass(frozen=True, slots=True, kw_only=True)
class Update(DeletingOperation):
    """Change rows. ``updated`` may also have new files for replaced columns.

    Parameters
    ----------
    new
        Fragments with moved rows, then inserted rows. With stable row ids they include the ids of
        moved rows.
    fields_modified
        Ids of the fields whose values were replaced in place.
    fields_touched
        Ids of all fields with new values.
    columns
        Whether columns were replaced in place; otherwise rows moved.
    inserted_rows
        Filter of the inserted keys, in wire format, to detect equal keys of two writers.
    unfiltered_keys
        Whether keys were inserted but the filter is omitted, so that others may have inserted the
        same. Not part of the message.
    changed_offsets
        Rows with new values by fragment, if columns were replaced; roaring bitmaps.
    compacted_sstables
        Passed through unchanged.
    lineage
        Result for :meth:`hidden`; not part of the message.
    """

    wire_name: ClassVar[str] = "update"
    compatible = frozenset({"create_index", "reserve_fragments", "update_bases", "update_config"})
    renamed = MappingProxyType(
        {
            "updated": "updated_fragments",
            "removed": "removed_fragment_ids",
            "new": "new_fragments",
            "fields_touched": "fields_for_preserving_frag_bitmap",
            "columns": "update_mode",
            "changed_offsets": "updated_fragment_offset_bitmaps",
        }
    )

    new: Sequence[Fragment] = ()
    fields_modified: tuple[int, ...] = ()
    fields_touched: tuple[int, ...] = ()
    columns: bool = False
    inserted_rows: table_pb2.Transaction.Update.KeyExistenceFilter | None = None
    unfiltered_keys: bool = field(default=False, compare=False)
    changed_offsets: Mapping[int, bytes] = field(default_factory=dict, hash=False)
    compacted_sstables: tuple[table_pb2.Transaction.Update.CompactedSsTable, ...] = ()
    lineage: Mapping[int, HiddenLineage] = field(default_factory=dict, hash=False, compare=False)

    @classmethod
    def from_wire(cls, message: table_pb2.Transaction.Update) -> Self:
        """Read the wire message."""
        from pyroaring import BitMap

        changed = {
            fragment_id: BitMap(offsets.offsets).serialize()
            for fragment_id, offsets in message.updated_fragment_offsets.items()
        }
        made = read_fields(cls, message)
        return replace(
            made, columns=bool(made.columns), changed_offsets={**changed, **made.changed_offsets}
        )

    @property
    def in_place(self) -> bool:
        """Whether columns were replaced in place."""
        return self.columns or bool(self.fields_modified)

    def naming_fields(self, base: Manifest) -> Self:
        """Name the fields that the operation replaces in place, if it omits them.

        These are the fields that changed fragments have in other files than in ``base``.
        """
        if self.fields_modified:
            return self
        known, moved = set(base.fragment_ids.tolist()), set[int]()
        for fragment in messages_of(self.updated):
            if fragment.id in known:
                before = base.fragment_wire(base.position_of(fragment.id))
                moved |= moved_fields(before, fragment)
        moved &= set(base.schema.field_ids())
        return replace(self, fields_modified=tuple(sorted(moved))) if moved else self

    def hidden(self, base: Manifest) -> frozenset[int]:
        """Return source fragments of moved rows that have row ids or versions in their files."""
        if not (self.new and base.uses(Feature.SPILLED_ROW_LINEAGE)):
            return frozenset()
        spilled = set()
        for fragment_id in self.changed_ids & set(base.fragment_ids.tolist()):
            wire = base.fragment_wire(base.position_of(fragment_id))
            if wire.HasField("column_row_ids") or wire.HasField("column_created_at_versions"):
                spilled.add(fragment_id)
        return frozenset(spilled)

    def with_hidden(self, lineage: Mapping[int, HiddenLineage]) -> Self:
        """Return the operation with the lineage of the fragments in :meth:`hidden`."""
        return replace(self, lineage=lineage)

    def conflict_with(self, theirs: Operation, name: str | None) -> Conflict | None:
        """Return conflicts on the same fragments, except deletions of other rows, and on keys."""
        if name in ("append", "update"):
            same = self._same_keys(theirs)
            if same is not None:
                return same
        if name == "append":
            return None
        if name in ("delete", "update", "rewrite", "data_replacement"):
            if self.shared(theirs):
                return None
            return overlap(self.changed_ids, theirs, f"{name} changed")
        if name == "project":
            return self._projected(theirs)
        if name == "merge":
            return Conflict("merge changed the files of all fragments")
        return incompatible(theirs, replaced="the rows that this updates")

    def _same_keys(self, theirs: Operation) -> Conflict | None:
        mine = self.inserted_rows
        if mine is None and not self.unfiltered_keys:
            return None
        if theirs.wire_name == "append":
            return Conflict("append may have added keys that this inserts")
        message = theirs.to_wire()
        if mine is None or not message.HasField("inserted_rows"):
            return Conflict("update may have added keys that this inserts")
        if may_share_keys(mine, message.inserted_rows):
            return Conflict("update inserted keys that this inserts as well")
        return None

    def _projected(self, theirs: Operation) -> Conflict | None:
        if makes_non_nullable(theirs):
            return Conflict("project may have made a column non-nullable")
        dropped = set(self.fields_modified) - {field.id for field in theirs.to_wire().schema}
        if dropped:
            return Conflict(f"project dropped field {min(dropped)}, which has new values")
        return None

    def apply(self, base: Manifest | None, context: BuildContext) -> Draft:
        """Return the fragments of ``base``, some of them changed, then the new fragments."""
        base = needs_dataset(base, "update rows")
        wire = copy_of(base)
        for fragments in (self.new, self.updated):
            mark_file_versions(wire, file_versions(fragments), base.data_format)
        change = partial(self._mark_changed, base, context.version) if self.in_place else None
        replaced = final_fragments(base, self.updated, change)
        entries = without_new(base.indices, ids_of(self.new))
        if self.in_place and entries:
            modified = related_fields(base.schema, self.fields_modified)
            entries = prune(after_remapping(entries), ids_of(replaced), modified)
        stable = base.uses(Feature.STABLE_ROW_IDS)
        added = new_fragments(
            wire,
            self.new,
            context.version,
            created=partial(created_at, base, self.lineage) if stable else None,
        )
        if stable and not self.in_place:
            # Fragments with as many ids as rows only have moved rows; other rows are new.
            relocated = [
                fragment_id
                for fragment, fragment_id in zip(self.new, ids_of(added), strict=True)
                if fragment.row_ids is not None
                and count_row_ids(fragment.row_ids, where=base.where) == fragment.physical_rows
            ]
            touched = related_fields(base.schema, self.fields_touched)
            entries = cover_relocated(entries, self.changed_ids, relocated, touched)
        kept = edit_fragments(base, wire, replaced=replaced, removed=self.removed, added=added)
        same = entries == base.indices
        return Draft(wire, base.index_section if same else encode_indices(entries), kept)

    def _mark_changed(self, base: Manifest, version: int, fragment: table_pb2.DataFragment) -> None:
        changed = self.changed_offsets.get(fragment.id)
        if changed is not None:
            where = f"changed rows of fragment {fragment.id}"
            mark_changed(fragment, version, offsets_of(changed, where))
        elif fragment.files != base.fragment_wire(base.position_of(fragment.id)).files:
            mark_changed(fragment, version)  # the committer omitted the rows


def encode_offsets(changed: Mapping[int, bytes]) -> bytes:
    """Encode rows with new values by fragment, as bytes that tasks send."""
    return _MESSAGE(updated_fragment_offset_bitmaps=changed).SerializeToString()


def joined_offsets(parts: Iterable[bytes]) -> Mapping[int, bytes]:
    """Join results of :func:`encode_offsets`, for :attr:`Update.changed_offsets`."""
    joined = _MESSAGE()
    for part in parts:
        joined.MergeFrom(parse(_MESSAGE(), part, "changed rows", "the result of a task"))
    return joined.updated_fragment_offset_bitmaps
