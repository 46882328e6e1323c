"""Arrow's client of HDFS, a library that it also looks for in the working directory, and runs.

There it may be a stranger's file: in the folder of a dataset, for example.
"""

from __future__ import annotations

import os
import re
from typing import Final

from glaive.errors import StoreError

__all__ = ["check_hdfs_client"]

_LIBRARIES: Final = ("libhdfs.so", "libhdfs.dylib", "hdfs.dll")
_LEADS_THERE: Final = re.compile(r"(?i)hdfs|viewfs|reference")
"""In URIs and options that may lead to HDFS, as what references name does."""


def check_hdfs_client(place: str) -> None:
    """Check that Arrow finds no client in the working directory, before a place is opened.

    ``place`` is its URI, perhaps with options.

    Raises
    ------
    StoreError
        The place may be in HDFS, and there is a file of the client's name.
    """
    for name in _LIBRARIES if _LEADS_THERE.search(place) else ():
        if os.path.lexists(name):
            raise StoreError(
                f"HDFS is not opened where the working directory has a file {name}: Arrow would "
                "run it as its client. Work in another directory; LD_LIBRARY_PATH or "
                "ARROW_LIBHDFS_DIR says where the client is."
            )
