"""Data overlays: files that replace values of single rows of a fragment.

Glaive can read transactions with overlays, but does not write any.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from glaive.dataclass import dataclass
from glaive.format.bitmaps import is_of_runs
from glaive.format.pb import table_pb2
from glaive.format.wire import parse_bitmap

if TYPE_CHECKING:
    from glaive.dataset.fragments.data_files import DataFile

__all__ = ["DataOverlayFile", "read_overlay"]


@dataclass
class DataOverlayFile:
    """New values for some rows of a fragment.

    Parameters
    ----------
    data_file
        The file with the values, one column per field.
    offsets
        The physical rows it has values for, each once: numbers, or one list of numbers per
        field if they differ. Those that were read are a ``Bitmap`` where they are long runs.
    committed_version
        The version that added it; ``None`` if uncommitted.
    """

    data_file: DataFile
    offsets: Iterable[int] | list[Iterable[int]]
    committed_version: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        return {
            "data_file": self.data_file.to_json(),
            "offsets": [
                offset if isinstance(offset, int) else sorted(offset) for offset in self.offsets
            ],
            "committed_version": self.committed_version,
        }


def read_overlay(message: table_pb2.DataOverlayFile, file: DataFile) -> DataOverlayFile:
    """Read an overlay; ``file`` is that of the message."""
    if message.WhichOneof("coverage") == "field_coverage":
        rows: Any = [_rows(bitmap) for bitmap in message.field_coverage.bitmaps]
    else:
        rows = _rows(message.shared_offset_bitmap)
    return DataOverlayFile(file, rows, message.committed_version)


def _rows(bitmap: bytes) -> Iterable[int]:
    rows = parse_bitmap(bitmap, "rows of a data overlay", "a transaction")
    if not is_of_runs(len(rows), len(bitmap)):
        return list(rows)
    from glaive.dataset.bitmap import Bitmap

    return Bitmap.of_roaring(rows)
