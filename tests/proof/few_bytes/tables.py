"""Tables of few bytes: manifests whose fragments stand for many rows, deletions and row ids."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pyroaring import BitMap
from tests.proof.few_bytes.draws import Draws, Impossible
from tests.proof.few_bytes.files import FewBytes, constant_file
from tests.proof.few_bytes.transactions import transaction_of

from glaive.format.deletions import encode_deletions
from glaive.format.footer import ManifestFooter
from glaive.format.manifest import Feature
from glaive.format.paths import deletion_file_path, manifest_path, transaction_path
from glaive.format.pb import table_pb2
from glaive.format.wire import MAX_FRAGMENT_ROWS

__all__ = ["FewRows", "write_table"]

MOST_BYTES = 3_000_000
"""Bytes of all files."""

MOST_LISTED = 1 << 19
"""Deleted rows that are listed in an Arrow file."""

MOST_DELETED = 1 << 28
"""Deleted rows of all fragments: a table of more takes seconds to count."""

MOST_HIDDEN = 1 << 25
"""Rows of a fragment with row ids or versions in its files: changes list them all."""

_LINEAGE = {
    -3: "column_row_ids",
    -4: "column_created_at_versions",
    -5: "column_last_updated_at_versions",
}


class FewRows(NamedTuple):
    """A table: what it is, its fragments, their rows, its versions, all bytes of its files, the
    deleted rows of each fragment, and whether row ids or versions are in its files.
    """

    story: str
    fragments: int
    rows: int
    versions: int
    size: int
    deleted: int
    hidden: bool


def write_table(folder: Path, draw: Draws) -> FewRows:
    """Any table, in a folder."""
    for _ in range(1000):
        try:
            return _Table(folder, draw).written()
        except (Impossible, OverflowError):
            continue
    raise Impossible


class _Table:
    """Choices that all fragments of a table share."""

    def __init__(self, folder: Path, draw: Draws) -> None:
        self.folder, self.draw = folder, draw
        self.fragments = draw.of([1, 1, 3, 40, 300, 2000])
        rows = draw.of([20, draw.many(0, 32), draw.many(12, 22), draw.many(16, 27)])
        self.rows = min(rows, MAX_FRAGMENT_ROWS)
        self.versions = draw.of([1, 2, 2, 5, 30])
        self.stable = draw.chance(0.6)
        self.hidden = [one for one in _LINEAGE if self.stable and draw.chance(0.25)]
        if self.hidden and self.rows > MOST_HIDDEN:
            raise Impossible
        self.deletions = draw.of(["none", "none", "bitmap", "bitmap", "listed"])
        self.deleted, self.deleted_rows = b"", 0
        self.story: list[str] = []

    def written(self) -> FewRows:
        """Write it."""
        names = ["k", *(f"c{at}" for at in range(self.draw.of([0, 0, 1, 30])))]
        file = constant_file(self.rows, len(names) + len(self.hidden), self.draw.of([1, 1, 40]))
        files = {"data/a.lance": file.raw}
        fragment = self._fragment(file, len(names), files)
        wire = self._manifest(names, fragment)
        size = 0
        for version in range(1, self.versions + 1):
            files |= self._version(wire, version)
            if sum(map(len, files.values())) > MOST_BYTES:
                raise Impossible
        for path, content in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_bytes(content)
            size += len(content)
        story = f"{self.fragments} fragments of {self.rows} rows, {self.versions} versions, "
        story += f"hidden {self.hidden}, {', '.join(dict.fromkeys(self.story))}"
        rows = self.fragments * self.rows
        return FewRows(
            story, self.fragments, rows, self.versions, size, self.deleted_rows, bool(self.hidden)
        )

    def _fragment(self, file: FewBytes, fields: int, files: dict[str, bytes]) -> Any:
        """The message of each fragment, but for its id and its row ids."""
        wire = table_pb2.DataFragment(physical_rows=self.rows)
        entry = wire.files.add(path="a.lance", file_size_bytes=len(file.raw))
        entry.fields.extend([*range(fields), *self.hidden])
        entry.column_indices.extend(range(fields + len(self.hidden)))
        entry.file_major_version, entry.file_minor_version = 2, 1
        for one in self.hidden:
            getattr(wire, _LINEAGE[one]).SetInParent()
        if self.stable:
            for field, name in ((-5, "last_updated_at"), (-4, "created_at")):
                if field not in self.hidden and self.draw.chance(0.7):
                    setattr(wire, f"inline_{name}_versions", self._row_versions())
        if self.deletions != "none":
            self._deletion(wire, files)
        return wire

    def _deletion(self, wire: Any, files: dict[str, bytes]) -> None:
        """Deleted rows, in one run or in runs with equal gaps."""
        rows = self.rows
        count = self.draw.of([1, rows // 2, rows - 1, rows])
        runs = self.draw.of([1, 1, 2, 1000])
        bitmap = self.deletions == "bitmap"
        if not bitmap and count > MOST_LISTED:
            count = MOST_LISTED
        if not 0 < count <= rows or count % runs or count * self.fragments > MOST_DELETED:
            raise Impossible
        stride, each = rows // runs, count // runs
        deleted = BitMap()
        for at in range(runs):
            deleted.add_range(at * stride, at * stride + each)
        if bitmap:
            deleted.run_optimize()
            content = deleted.serialize()
        else:
            content = encode_deletions(np.array(deleted.to_array(), np.uint32), bitmap=False)
        known = self.draw.of([count, count, 0])
        wire.deletion_file.file_type = int(bitmap)
        wire.deletion_file.num_deleted_rows = known
        self.deleted, self.deleted_rows = content, count
        self.story.append(f"{count} deleted in {len(content)} bytes")

    def _row_versions(self) -> bytes:
        runs = table_pb2.RowDatasetVersionSequence()
        parts = self.draw.of([1, 1, 2, 1000])
        if self.rows % parts:
            raise Impossible
        for at in range(parts):
            run = runs.runs.add(version=1 + at % self.versions)
            run.span.range.end = self.rows // parts
        return runs.SerializeToString()

    def _row_ids(self, at: int, form: str) -> bytes:
        """Row ids of a fragment."""
        sequence = table_pb2.RowIdSequence()
        rows, first = self.rows, at * (self.rows + 1)
        segment = sequence.segments.add()
        if form == "range":
            segment.range.start, segment.range.end = first, first + rows
            segment.range.SetInParent()
        elif form == "holes":
            part = segment.range_with_holes
            part.start, part.end = first, first + rows + 1
            part.holes.u64_array.values = int(first + rows // 2).to_bytes(8, "little")
        elif form == "ranges":
            segment.range.start, segment.range.end = first, first + rows - 1
            segment = sequence.segments.add()
            segment.range.start, segment.range.end = first + rows, first + rows + 1
        elif form == "bitmap":
            if rows > 1 << 14 or rows % 8:
                raise Impossible
            some = segment.range_with_bitmap
            some.start, some.end, some.bitmap = first, first + rows, b"\xff" * (rows // 8)
        else:
            if rows > 1 << 12:
                raise Impossible
            segment.array.u16_array.base = first
            segment.array.u16_array.offsets = np.arange(rows, dtype="<u2")[::-1].tobytes()
        return sequence.SerializeToString()

    def _manifest(self, names: list[str], fragment: Any) -> table_pb2.Manifest:
        wire = table_pb2.Manifest()
        for at, name in enumerate(names):
            wire.fields.add(
                id=at, name=name, logical_type="int64", nullable=True, parent_id=-1, type=2
            )
        form = self.draw.of(["range", "range", "holes", "ranges", "bitmap", "array"])
        for at in range(self.fragments):
            one = wire.fragments.add()
            one.CopyFrom(fragment)
            one.id = at
            if self.stable and -3 not in self.hidden:
                one.inline_row_ids = self._row_ids(at, form)
        if self.stable:
            self.story.append(form)
        wire.max_fragment_id = self.fragments - 1
        wire.next_row_id = self.fragments * (self.rows + 1)
        flags = Feature.DELETION_FILES * (self.deletions != "none")
        flags |= Feature.STABLE_ROW_IDS * self.stable
        flags |= Feature.SPILLED_ROW_LINEAGE * bool(self.hidden)
        wire.reader_feature_flags = wire.writer_feature_flags = int(flags)
        wire.writer_version.library, wire.writer_version.version = "lance", "1.0.0"
        wire.data_format.file_format, wire.data_format.version = "lance", "2.1"
        entries = self.draw.of([0, 0, 2000])
        for kept in (wire.config, wire.table_metadata):
            kept.update({f"k{at}": "" for at in range(entries)})
        return wire

    def _version(self, wire: table_pb2.Manifest, version: int) -> dict[str, bytes]:
        """The manifest of a version, with its transaction and deletion files."""
        files = {}
        if self.deletions != "none":
            bitmap = self.deletions == "bitmap"
            # Each fragment has a file of its own; versions share the files or have their own.
            own = self.draw.chance(0.3) and self.fragments * self.versions < 300
            number = version if own else 1
            for one in wire.fragments:
                one.deletion_file.id = number
                path = deletion_file_path(one.id, 0, number, bitmap=bitmap)
                files[path] = self.deleted
        wire.version = version
        wire.timestamp.seconds = 1_700_000_000 + version
        transaction = transaction_of(self.draw, wire, version)
        self.story.append(str(transaction.WhichOneof("operation")))
        message = transaction.SerializeToString()
        head = b""
        wire.ClearField("transaction_section")
        if self.draw.chance(0.6):
            wire.transaction_section = 0
            head = struct.pack("<I", len(message)) + message
        else:
            wire.transaction_file = f"{version - 1}-{transaction.uuid}.txn"
            files[transaction_path(wire.transaction_file)] = message
        body = wire.SerializeToString()
        raw = head + struct.pack("<I", len(body)) + body + ManifestFooter(len(head)).build()
        files[manifest_path(version)] = raw
        return files
