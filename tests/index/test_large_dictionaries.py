"""An index over dictionaries whose values are more than one array of texts can hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import CapacityError


@pytest.mark.nightly(reason="takes two gigabytes")
def test_values_beyond_an_array_are_an_error_that_says_so(tmp_path: Path) -> None:
    """1,100 rows of two megabytes, in a file of a few kilobytes."""
    rows = pa.array(np.zeros(1_100, np.int32))
    texts = pa.DictionaryArray.from_arrays(rows, pa.array(["y" * 2_000_000]))
    dataset = glaive.write_dataset({"text": texts}, tmp_path / "large.lance")
    with pytest.raises(CapacityError, match="cast the values to a large type"):
        dataset.create_scalar_index("text", "ZONEMAP")
