"""Fixtures of several modules of tests of datasets."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.strangers import SECRET


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A file beside datasets that none of them may lead to."""
    path = tmp_path / "home" / "id_rsa"
    path.parent.mkdir()
    path.write_bytes(SECRET)
    return path
