"""An opened file that is used by several threads at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from glaive.file.open import create_writer, open_reader
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore
from glaive.io.store import RangeReader
from glaive.io.wrapped import WrappedReader, WrappedStore
from glaive.types import ByteRange

COLUMNS = 600
"""So many that their metadata is more than the first request fetches."""


class Slow(WrappedReader):
    """Fetches from afar, and lets others do something during the first request."""

    def __init__(self, inner: RangeReader) -> None:
        super().__init__(inner)
        self.inner = inner
        self.meanwhile: Callable[[], object] | None = None

    def read(self, ranges: Sequence[ByteRange]) -> list[pa.Buffer]:
        found = self.inner.read(ranges)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return found


class Remote(WrappedStore):
    """A store whose readers are slow."""

    def open(self, path: str, *, size: int | None = None) -> RangeReader:
        self.opened = Slow(self.inner.open(path, size=size))
        return self.opened


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_metadata_that_two_threads_fetch_at_a_time_is_right_afterwards(
    tmp_path: Path, version: str
) -> None:
    rows = pa.table({f"the_column_{at}": [at, -at] for at in range(COLUMNS)})
    schema = LanceSchema.from_arrow(rows.schema)
    writer = create_writer(LocalStore(str(tmp_path)), "file.lance", schema, version)
    writer.write(rows)
    writer.finish()
    store = Remote(LocalStore(str(tmp_path)))
    file = open_reader(store, "file.lance", verify="never")
    store.opened.meanwhile = lambda: file.schema
    numbers = {field.id: at for at, field in enumerate(schema.fields)}
    for at in (5, 300, COLUMNS - 1):
        (column,) = file.bind([schema.fields[at]], numbers, 2).read(0, 2)
        assert column.to_pylist() == [at, -at]
