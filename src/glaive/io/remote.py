"""What readers, sinks and listings of remote objects share: no map, and errors to translate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from glaive.errors import StoreError
from glaive.io.failures import LARGEST, too_large
from glaive.io.store import BytesLike, ObjectMeta, ObjectStore, byte_views
from glaive.types import ByteRange

__all__ = ["RemoteReader", "RemoteSink", "described"]


class RemoteReader:
    """An object that is requested range by range, not mapped into memory."""

    __slots__ = ()

    mapped = False

    def advise(self, ranges: Sequence[ByteRange], advice: str) -> None:
        """Do nothing: there is no map."""

    def advise_pattern(self, pattern: str) -> None:
        """Do nothing: there is no map."""

    def close(self) -> None:
        """Do nothing: nothing is kept open."""


class RemoteSink:
    """An object being written through a file object of a library."""

    __slots__ = ("_file", "_full", "position")

    def __init__(self, file: Any, full: str) -> None:
        self._file, self._full, self.position = file, full, 0

    def write(self, data: Sequence[BytesLike]) -> None:
        """Append parts; full ones may be uploaded in the background."""
        file = self._opened()
        for view in byte_views(data):
            try:
                file.write(view)
            except self.refusals() as error:
                raise self.failed(error, self._full, "write") from None
            self.position += view.nbytes

    def _opened(self) -> Any:
        if self._file is None:
            raise StoreError(f"cannot write {self._full}: writing has ended. Start a new object.")
        return self._file

    def refusals(self) -> tuple[type[BaseException], ...]:
        """Errors of the library."""
        return (Exception,)

    def failed(self, error: BaseException, path: str, doing: str) -> StoreError:
        """Translate an error of the library."""
        raise NotImplementedError


def described(store: ObjectStore, path: str, size: int, modified: datetime | None) -> ObjectMeta:
    """What a server states of an object; of a size that no file has it is an error."""
    if size > LARGEST:
        raise too_large(store.full(path), size)
    return ObjectMeta(path, size, modified)
