"""A whole bucket is a folder of sources."""

from __future__ import annotations

from pathlib import Path

import glaive
from glaive.io.access import open_store


def test_the_files_of_a_bucket_are_ingested_by_its_name(tmp_path: Path) -> None:
    open_store("memory://whole-bucket").put("x.csv", [b"id\n1\n"])
    for number, source in enumerate(("memory://whole-bucket", "memory://whole-bucket/")):
        assert glaive.ingest(source, tmp_path / f"{number}.lance").rows == 1
