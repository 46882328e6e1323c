"""A home of Spark in which its workers import the installed pyspark, with its bytecode.

Spark puts ``python/lib/pyspark.zip`` of its home first on the path of its workers. That holds
sources alone, which every one of the many short processes of these tests would compile again.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["home_without_zip"]


def home_without_zip() -> TemporaryDirectory[str] | None:
    """Links to what pyspark has, but for its archive; ``None`` where it is not installed."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    installed = Path(found.origin).parent
    home = TemporaryDirectory(prefix="spark-home-")
    libraries = Path(home.name, "python", "lib")
    libraries.mkdir(parents=True)
    for folder in ("bin", "jars", "sbin"):
        Path(home.name, folder).symlink_to(installed / folder)
    for archive in installed.glob("python/lib/py4j-*.zip"):
        (libraries / archive.name).symlink_to(archive)
    return home
