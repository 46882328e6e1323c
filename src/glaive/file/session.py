"""Several files below one directory, with pylance's names: the store is connected once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import pyarrow as pa

from glaive.compat.absent import Absence, refuse_members
from glaive.dataclass import dataclass
from glaive.errors import AccessError, ObjectNotFoundError, OptionError
from glaive.file.files import LanceFileReader, LanceFileWriter
from glaive.file.location import FileWithin
from glaive.io.catalogue import catalogued_options
from glaive.io.confined import is_downloaded, real_path
from glaive.io.failures import as_store_errors
from glaive.io.uri import open_store
from glaive.types import ByteRange

__all__ = ["LanceFileSession", "ListResult"]

_BLOB_FILES = (
    Absence(
        "files of blobs are written with the rows that own them",
        "Pass blob_array(...) to write_dataset or fragment.write_fragments, which pack the values",
        "LanceFileSession.open_dedicated_blob_writer LanceFileSession.open_packed_blob_writer",
    ),
)


@dataclass
class ListResult:
    """A directory: its sub-directories and its files, relative to the session's base path."""

    common_prefixes: list[str]
    objects: list[str]


@refuse_members(_BLOB_FILES)
class LanceFileSession:
    """Several files below one directory: the store is connected once.

    The directory may be that of somebody else: of a link that leads out of it no bytes are given,
    but of those that ``huggingface_hub`` makes to what it downloads.

    Parameters
    ----------
    base_path
        Path or URI of the directory.
    storage_options
        For object stores.
    namespace_client, table_id
        The table of a catalogue that the files belong to: its credentials are used.
    """

    def __init__(
        self,
        base_path: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None = None,
        namespace_client: object = None,
        table_id: Sequence[str] | None = None,
    ) -> None:
        options = catalogued_options(namespace_client, table_id, storage_options, base_path)
        self._store = open_store(base_path, options)

    def open_reader(
        self, path: str | os.PathLike[str], columns: Sequence[str] | None = None
    ) -> LanceFileReader:
        """Open a file below the base path."""
        return LanceFileReader.within(self._store, os.fspath(path), columns)

    def open_writer(
        self,
        path: str | os.PathLike[str],
        *,
        schema: pa.Schema | None = None,
        data_cache_bytes: int | None = None,
        version: str | None = None,
        keep_original_array: bool | None = None,
        max_page_bytes: int | None = None,
    ) -> LanceFileWriter:
        """Begin a file below the base path; options are those of :class:`LanceFileWriter`.

        Raises
        ------
        OptionError
            The path names a directory.
        StoreError
            It leads out of the base path.
        """
        name = os.fspath(path).lstrip("/")
        if not name or name.endswith("/"):
            raise OptionError(f"path: {path!r:.200} names a directory; give the path of a file")
        return LanceFileWriter(
            FileWithin(self._store, name),
            schema,
            data_cache_bytes=data_cache_bytes,
            version=version,
            keep_original_array=keep_original_array,
            max_page_bytes=max_page_bytes,
        )

    def contains(self, path: str) -> bool:
        """Whether there is a file with this path."""
        folder = str(PurePosixPath(path).parent)
        prefix = "" if folder == "." else folder
        return any(entry.path == path for entry in self._store.list(prefix))

    def list(self, path: str | None = None) -> list[str]:
        """Paths of all files below a directory, in order."""
        return [entry.path for entry in self._store.walk(path or "")]

    def list_with_delimiter(self, path: str | None = None) -> ListResult:
        """Files directly in a directory, and its sub-directories, in order."""
        prefix = (path or "").strip("/")
        start = f"{prefix}/" if prefix else ""
        objects = [entry.path for entry in self._store.list(prefix)]
        below = (entry.path.removeprefix(start) for entry in self._store.walk(prefix))
        folders = {name.partition("/")[0] for name in below if "/" in name}
        return ListResult([f"{start}{folder}" for folder in sorted(folders)], objects)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Raw bytes of a file.

        Raises
        ------
        OptionError
            It does not have them.
        AccessError
            It is a link that leads out of the base path.
        """
        self._refuse_link(path)
        source = self._store.open(path)
        if offset < 0 or length < 0 or length > source.size - offset:
            raise OptionError(
                f"read_range: {path} has {source.size} bytes, which do not hold {length} from "
                f"{offset} on"
            )
        return bytes(source.read([ByteRange(offset, length)])[0].to_pybytes())

    def delete_file(self, path: str) -> None:
        """Delete a file; ObjectNotFoundError if there is none."""
        if not self.contains(path):
            raise ObjectNotFoundError(
                f"cannot delete {self._store.full(path)}: there is no such file. Check the path."
            )
        self._store.delete([path])

    def upload_file(self, local_path: str | os.PathLike[str], remote_path: str) -> None:
        """Copy a local file to below the base path."""
        with as_store_errors(os.fspath(local_path), "read"):
            content = Path(local_path).read_bytes()
        self._store.put(remote_path, [content])

    def download_file(self, remote_path: str, local_path: str | os.PathLike[str]) -> None:
        """Copy a file from below the base path to a local one.

        Raises
        ------
        AccessError
            It is a link that leads out of the base path.
        """
        self._refuse_link(remote_path)
        content = self._store.get(remote_path).to_pybytes()
        with as_store_errors(os.fspath(local_path), "write"):
            Path(local_path).write_bytes(content)

    def _refuse_link(self, path: str) -> None:
        """Refuse a file whose name alone is below the base path: any other may be behind it."""
        store, full = self._store, self._store.full(path)
        why = store.file_link_out(path)
        if why is None:
            return
        if store.is_local:
            with as_store_errors(full, "follow"):
                if is_downloaded(real_path(store.uri), real_path(full)):
                    return
        raise AccessError(f"{full} was not read: {why}")
