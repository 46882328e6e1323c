"""Rows of requests whose arrays reach beyond their memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.damaged_views import views
from tests.namespace.calls import call, ipc

from glaive.namespace import DirectoryNamespace
from glaive.namespace.errors import InvalidInputError


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
def test_a_null_of_any_length_ends_no_process(
    tmp_path: Path, kind: pa.DataType, length: int
) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path))
    rows = pa.table({"a": views(kind, length)})
    with pytest.raises(InvalidInputError, match="a view "):
        call(catalogue, "create_table", ["t"], ipc(rows))
    call(catalogue, "create_table", ["t"], ipc(pa.table({"a": views(kind, 7)})))
    with pytest.raises(InvalidInputError, match="a view "):
        call(catalogue, "insert_into_table", ["t"], ipc(rows))
    assert call(catalogue, "count_table_rows", ["t"]).count == 3
