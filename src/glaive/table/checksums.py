"""Whether the files of a table get checksums: what its configuration says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from glaive.format.pb import table_pb2
from glaive.io.checksums import checksum_function, writes_checksums
from glaive.io.store import BytesLike, ObjectStore

__all__ = ["CHECKSUMS", "checksum_of_metadata", "wants_checksums"]

CHECKSUMS: Final = "glaive.checksums"
"""Key of the table's configuration: whether its files get checksums."""


def wants_checksums(wire: table_pb2.ManifestOutline) -> bool | None:
    """What the configuration of a version says of checksums; None if it says nothing."""
    return {"true": True, "false": False}.get(wire.config.get(CHECKSUMS, "").lower())


def checksum_of_metadata(
    store: ObjectStore, wire: table_pb2.ManifestOutline
) -> Callable[[BytesLike], int] | None:
    """The function of checksums of manifests and deletion files; None where a version has none.

    Raises
    ------
    OptionError
        As for :func:`glaive.io.checksums.writes_checksums`.
    """
    function = checksum_function()
    if function is None:  # a change need not fail for it: data files say what is missing
        return None
    return function if writes_checksums(store, wanted=wants_checksums(wire)) else None
