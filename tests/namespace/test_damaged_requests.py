"""Rows of requests of types that datasets do not have."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.namespace.calls import call, ipc

from glaive.namespace import DirectoryNamespace
from glaive.namespace.errors import TableSchemaValidationError


@pytest.mark.spec("rel-42")
def test_rows_of_a_type_that_pyarrow_has_no_arrays_for_are_refused(tmp_path: Path) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path))
    with pytest.raises(TableSchemaValidationError, match="month_interval"):
        call(catalogue, "create_table", ["t"], intervals_of_months())


def intervals_of_months() -> bytes:
    """A stream with a column of them, which pyarrow does not write: the unit is 0 instead of 2."""
    sound = ipc(pa.table({"a": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}))
    units = (at for at, byte in enumerate(sound) if byte == 2)
    changed = (sound[:at] + b"\0" + sound[at + 1 :] for at in units)
    return next(one for one in changed if _kind(one) == "month_interval")


def _kind(stream: bytes) -> str:
    try:
        return str(pa.ipc.open_stream(stream).schema.field(0).type)
    except (pa.ArrowException, OSError):
        return ""
