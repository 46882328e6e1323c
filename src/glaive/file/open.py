"""Open a data file of any version, or begin a new one."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from glaive.errors import DataFileMissingError, ObjectNotFoundError, OptionError
from glaive.file.protocol import FileReader, FileWriter
from glaive.file.v2.container import Container, tail_bytes
from glaive.file.versions import (
    DEFAULT,
    PROFILES,
    LegacyProfile,
    profile_of_footer,
    resolve_version,
)
from glaive.format.fields import LanceSchema
from glaive.format.footer import file_version
from glaive.io.checksums import (
    Verification,
    VerifyingReader,
    check_size,
    verification,
    writes_checksums,
)
from glaive.io.store import ObjectStore

if TYPE_CHECKING:
    from glaive.file.blobs import BlobOptions
    from glaive.file.v2.writer import GivenOptions


_READERS = {
    "layouts": "glaive.file.v2.reader:FileV2",
    "arrays": "glaive.file.v2.arrays:ArraysFile",
    "planes": "glaive.file.v2.reader:FileV2",
}
_MAX_PAGE_BYTES = 8 * 1024 * 1024
"""Default and maximum size of a page in bytes."""

_WRITERS = {
    "layouts": "glaive.file.v2.writer:FileV2Writer",
    "arrays": "glaive.file.v2.arrays:ArraysWriter",
    "planes": "glaive.file.v2.planes_writer:PlanesWriter",
}


@cache
def _load(location: str) -> Any:
    """Return the class at ``module:name``; only the page grammars in use are loaded."""
    module, _, name = location.partition(":")
    return getattr(import_module(module), name)


def open_reader(
    store: ObjectStore, path: str, *, size: int | None = None, verify: Verification | None = None
) -> FileReader:
    """Open a data file for reading.

    Parameters
    ----------
    size
        Size in bytes, if it is known; saves a request.
    verify
        Which bytes are compared with their checksums; by default what the store says.

    Raises
    ------
    DataFileMissingError
        The file is missing.
    NotLanceError, CorruptFileError, UnsupportedFeatureError
        It is of another format, truncated or damaged, or its version is unknown.

    Notes
    -----
    One request for the last 64 KiB; a second one when the metadata is larger. Of a mapped file,
    a view of what is needed.
    """
    try:
        reader = store.open(path, size=size)
        tail = reader.tail(tail_bytes(reader))
    except ObjectNotFoundError as error:
        raise DataFileMissingError(
            f"Not found: data file {store.full(path)} does not exist. Restore it, or read a "
            "version of the dataset that does not need it."
        ) from error
    verify = verification(store) if verify is None else verify
    profile = profile_of_footer(*file_version(tail, reader.size, where=reader.path), reader.path)
    if isinstance(profile, LegacyProfile):
        from glaive.file.legacy import LegacyFile

        return LegacyFile(reader, tail, profile)  # manifests of Lance up to 13 have another size
    if verify == "always":
        check_size(size, reader.size, reader.path)
    if verify != "never":
        reader = VerifyingReader(reader, always=verify == "always")
    opened: FileReader = _load(_READERS[profile.pages])(Container(reader, tail), profile)
    return opened


def create_writer(  # noqa: PLR0913  # each concerns a different part of a file
    store: ObjectStore,
    path: str,
    schema: LanceSchema,
    version: str | None = None,
    *,
    encoding_options: GivenOptions | None = None,
    dictionaries: dict[int, pa.Array] | None = None,
    blobs: BlobOptions | None = None,
    rows_per_batch: int | None = None,
    page_bytes: int | None = None,
    checksums: bool | None = None,
) -> FileWriter:
    """Begin a new data file in a format version (default: the newest stable one).

    Parameters
    ----------
    encoding_options
        How columns at or below a path are to be encoded, such as
        ``{"text": {"compression": "zstd"}}``; they take precedence over the metadata of a
        field. :class:`glaive.encodings.options.EncodingOptions` describes the options.
    dictionaries
        Items of dictionary columns by field id, which in format 0.1 all files of a dataset
        share. Items of new columns are added.
    blobs
        How the values of blob columns are stored, from format 2.2 on.
    rows_per_batch
        Rows of a page at most, in format 0.1; 1024 by default.
    page_bytes
        Approximate maximum bytes of values in a page, from format 2.0 on; 8 MiB by default.
    checksums
        Whether the file gets checksums, from format 2.0 on; by default what the store says.

    Raises
    ------
    SchemaError
        The version lacks a column's type.
    OptionError
        The version is unknown.

    Notes
    -----
    The first file of a process in an unstable version logs a warning.
    """
    profile = PROFILES[resolve_version(version)]
    if isinstance(profile, LegacyProfile):
        from glaive.file.legacy import LegacyFileWriter

        check_columns(schema, version, encoding_options)
        return LegacyFileWriter(
            store, path, schema, profile, rows_per_batch=rows_per_batch, dictionaries=dictionaries
        )
    if not profile.stable:
        _warn_unstable(str(profile.version))
    writer = _load(_WRITERS[profile.pages])
    sizes = {} if page_bytes is None else {"page_bytes": min(page_bytes, _MAX_PAGE_BYTES)}
    begun: FileWriter = writer(
        store,
        path,
        schema,
        profile,
        encoding_options=encoding_options,
        blobs=blobs,
        checksums=writes_checksums(store, wanted=checksums),
        **sizes,
    )
    return begun


@cache
def _warn_unstable(version: str) -> None:
    import logging

    logging.getLogger(__name__).warning(
        "Format %s is not stable yet: later readers may not read files written in it now. Keep "
        "important data in format %s.",
        version,
        DEFAULT,
    )


def check_columns(
    schema: LanceSchema, version: str | None, encoding_options: GivenOptions | None
) -> None:
    """Refuse types, options and metadata keys of a schema, like :func:`create_writer`."""
    if not encoding_options:
        _check_without_options(schema, resolve_version(version))
    else:
        _check(schema, resolve_version(version), encoding_options)


@lru_cache(maxsize=64)
def _check_without_options(schema: LanceSchema, version: str) -> None:
    _check(schema, version, None)


def _check(schema: LanceSchema, version: str, encoding_options: GivenOptions | None) -> None:
    profile = PROFILES[version]
    if not isinstance(profile, LegacyProfile):
        from glaive.file.v2.writer import column_options
        from glaive.file.versions import check_types

        check_types(schema, profile)
        column_options(schema, encoding_options, profile)
        return
    from glaive.file.legacy import check_legacy_types

    check_legacy_types(schema)
    if encoding_options:
        raise OptionError(
            f"encoding_options: format {profile.version} has none; use a newer data_storage_version"
        )
