"""Open a data file whatever its version, or begin a new one."""

from __future__ import annotations

from glaive.errors import DataFileMissingError, ObjectNotFoundError
from glaive.file.v2.arrays_reader import ArraysFile
from glaive.file.v2.arrays_writer import ArraysWriter
from glaive.file.v2.container import Container
from glaive.file.v2.reader import FileV2
from glaive.file.v2.writer import FileV2Writer
from glaive.file.versions import PROFILES, profile_of_footer, resolve_version
from glaive.format.fields import LanceSchema
from glaive.io.store import ObjectStore

__all__ = ["create_writer", "open_reader"]

_READERS = {"layouts": FileV2, "arrays": ArraysFile}
_WRITERS = {"layouts": FileV2Writer, "arrays": ArraysWriter}


def open_reader(store: ObjectStore, path: str, *, size: int | None = None) -> FileV2:
    """Open a data file for reading.

    Parameters
    ----------
    size
        Size in bytes as far as it is known; spares asking for it.

    Raises
    ------
    DataFileMissingError
        There is no such file.
    NotLanceError, CorruptFileError, UnsupportedFeatureError
        It is not a Lance file, it is cut off or damaged, or its version is unknown.

    Notes
    -----
    One request for the last 64 KiB; a second one when the metadata is larger than that.
    """
    try:
        container = Container(store.open(path, size=size))
    except ObjectNotFoundError as error:
        raise DataFileMissingError(
            f"data file {store.full(path)} does not exist. Restore it, or read a version of the "
            "dataset that does not need it."
        ) from error
    footer = container.footer
    profile = profile_of_footer(footer.major, footer.minor, container.path)
    return _READERS[profile.pages](container, profile)


def create_writer(
    store: ObjectStore, path: str, schema: LanceSchema, version: str | None = None
) -> FileV2Writer:
    """Begin a new data file in a format version (default: the newest stable one).

    Raises
    ------
    SchemaError
        The version cannot hold a column's type.
    OptionError, UnsupportedFeatureError
        There is no such version, or glaive does not write it.
    """
    profile = PROFILES[resolve_version(version)]
    return _WRITERS[profile.pages](store, path, schema, profile)
