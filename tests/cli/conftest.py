"""A small dataset, and a way to call commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import glaive
from glaive.cli.main import cli


@pytest.fixture
def call() -> Callable[..., Result]:
    """Return a function that runs ``glaive`` with arguments, in this process."""

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments))

    return run


@pytest.fixture
def things(tmp_path: Path) -> str:
    """Write a dataset of two versions: three rows, then five."""
    uri = str(tmp_path / "things.lance")
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("name", pa.string(), metadata={"unit": "none"}),
            pa.field("v", pa.list_(pa.float32(), 8)),
        ]
    )
    rows = {"id": [1, 2, 3], "name": ["a", None, "ü" * 100], "v": [list(range(8))] * 3}
    glaive.write_dataset(pa.table(rows, schema), uri)
    glaive.write_dataset(pa.table(rows, schema).slice(0, 2), uri, mode="append")
    return uri
