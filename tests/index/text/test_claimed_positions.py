"""Positions that a few bytes claim to be: of these no memory is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from glaive.query import PhraseQuery
from tests.index.scalar.test_damage import replaced
from tests.index.scalar.test_sets_of_strangers import little_memory

import glaive
from glaive.errors import CorruptFileError
from glaive.index.text.postings import encode_varints

pytestmark = pytest.mark.spec("rel-24")

MANY = 1 << 24
"""Positions of a token in a document: 64 MB. With 2^28 of them a file of 8 KB took 4 GB."""

COMPRESSED: Any = {"lance-encoding:compression": "zstd"}


def claimed(rows: pa.Table) -> pa.Table:
    """Lists of one document, which has the token so often, always at the same place."""
    count = len(rows)
    columns: dict[str, Any] = {
        "_posting": [[bytes(4) + encode_varints(np.array([0, MANY]))[0].tobytes()]] * count,
        "_length": [1] * count,
        "_compressed_position": [bytes(MANY // 128)] * count,
        "_position_block_offset": [[0]] * count,
    }
    arrays = [
        pa.array(columns[one.name], one.type) if one.name in columns else rows[one.name]
        for one in rows.schema
    ]
    schema = pa.schema([one.with_metadata(COMPRESSED) for one in rows.schema], rows.schema.metadata)
    return pa.Table.from_arrays(arrays, schema=schema)


@pytest.mark.parametrize("version", [2, 3])
def test_more_positions_than_a_file_can_hold_are_refused(tmp_path: Path, version: int) -> None:
    path = tmp_path / "d"
    rows = pa.table({"x": ["red apple", "green"]})
    dataset = glaive.write_dataset(rows, path, data_storage_version="2.1")
    dataset.create_scalar_index("x", "INVERTED", with_position=True, format_version=version)
    replaced(path, "part_0_invert.lance", claimed)
    again = glaive.dataset(path)
    message = r"positions of an index: expected at most \d+ in \d+ bytes.*part_0_invert\.lance"
    with little_memory(), pytest.raises(CorruptFileError, match=message):
        again.to_table(full_text_query=PhraseQuery("red apple", "x"))
    glaive.write_dataset(pa.table({"x": ["red"]}), path, mode="append")
    with little_memory(), pytest.raises(CorruptFileError, match=message):
        glaive.dataset(path).optimize.optimize_indices(num_indices_to_merge=10)
