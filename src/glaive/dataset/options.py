"""How rows become files and a version: what a writer can be told, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from glaive.errors import OptionError
from glaive.file.blob_options import BlobOptions

__all__ = ["Mode", "WriteOptions"]

Mode = Literal["create", "append", "overwrite"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How rows become files and a version.

    Parameters
    ----------
    mode
        ``create`` refuses a dataset that is there; ``append`` and ``overwrite`` create one
        that is not.
    max_rows_per_file
        Rows after which a new file, and with it a new fragment, is begun.
    max_bytes_per_file
        Bytes after which a new file is begun, about.
    data_storage_version
        Format of the files by name; by default that of the dataset, else the stable one.
    enable_stable_row_ids, enable_v2_manifest_paths
        How a new dataset is made; an existing one stays as it is.
    transaction_properties
        Text entries kept with the version.
    commit_message
        Shown with the version.
    progress
        Told of files: ``begin(fragment)`` and ``complete(fragment)``.
    encoding_options
        How columns are encoded, by path; see :func:`glaive.write_dataset`.
    blobs
        How the values of blob columns are kept.
    """

    mode: Mode = "create"
    max_rows_per_file: int = 1024 * 1024
    max_bytes_per_file: int = 90 * 1024**3
    data_storage_version: str | None = None
    enable_stable_row_ids: bool = False
    enable_v2_manifest_paths: bool = True
    transaction_properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    commit_message: str | None = None
    progress: Any = None
    encoding_options: Mapping[str, Mapping[str, object]] | None = field(default=None, hash=False)
    blobs: BlobOptions = field(default_factory=BlobOptions)

    def __post_init__(self) -> None:
        if self.mode not in ("create", "append", "overwrite"):
            raise OptionError(
                f"mode: expected 'create', 'append' or 'overwrite', found {self.mode!r}"
            )
        for name in ("max_rows_per_file", "max_bytes_per_file"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise OptionError(f"{name}: expected a whole number ≥ 1, found {value!r}")
        for name in ("enable_stable_row_ids", "enable_v2_manifest_paths"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name}: expected True or False, found {getattr(self, name)!r}")
        texts: list[tuple[object, object]] = [
            *self.transaction_properties.items(),
            ("commit_message", self.commit_message or ""),
        ]
        for key, text in texts:
            if not isinstance(key, str) or not isinstance(text, str):
                raise OptionError(
                    f"transaction_properties and commit_message: expected text, found {key!r}: "
                    f"{text!r}"
                )
