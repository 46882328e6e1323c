"""Add the scheme ``scratch://``: a folder below the temporary directory of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir

from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore


def connect(uri: str, options: Mapping[str, str]) -> ObjectStore:
    """Open the store of a URI such as ``scratch://table``."""
    return LocalStore(str(Path(gettempdir()) / "scratch" / uri.partition("://")[2]), options)
