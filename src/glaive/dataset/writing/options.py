"""Options of writers, validated once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal

from glaive.dataclass import dataclass
from glaive.dataset.writing.base_paths import DatasetBasePath
from glaive.errors import OptionError, OptionRangeError
from glaive.file.blob_options import BlobOptions
from glaive.table.cleanup.auto_cleanup import INTERVAL, OLDER_THAN, span_text

__all__ = ["Mode", "WriteOptions"]

Mode = Literal["create", "append", "overwrite"]

_NUMBERS = (
    "max_rows_per_file",
    "max_rows_per_group",
    "max_bytes_per_file",
    "max_page_bytes",
    "data_cache_bytes",
)


DEFAULT_MAX_BYTES_PER_FILE: Final = 90 * 1024**3
"""Bytes of a data file at most, unless ``max_bytes_per_file`` says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Validated options of a write.

    Options that are not listed here are documented in
    :class:`glaive.dataset.writing.keywords.WriteKeywords`.

    Parameters
    ----------
    mode
        ``create`` fails if there is a dataset; ``append`` and ``overwrite`` create one if there
        is none.
    expected_version
        The version that an overwrite replaces; a newer one is a conflict.
    full_files
        Number of files with ``max_rows_per_file`` rows; later files have one row less.
        Default: all.
    compression
        ``balanced``: the encoding option of this name for all columns without others, in formats
        that have it. What is written on Spark has it, unless these options say ``automatic``.
    auto_cleanup
        Value of ``auto_cleanup_options``.
    blobs
        How blob values are stored, from three keywords.
    """

    mode: Mode = "create"
    max_rows_per_file: int = 1024 * 1024
    max_rows_per_group: int = 1024
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE
    max_page_bytes: int | None = None
    data_cache_bytes: int | None = None
    data_storage_version: str | None = None
    enable_stable_row_ids: bool = False
    enable_v2_manifest_paths: bool = True
    transaction_properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    commit_message: str | None = None
    initial_bases: tuple[DatasetBasePath, ...] = ()
    auto_cleanup: Mapping[str, object] | None = field(default=None, hash=False)
    target_bases: tuple[str, ...] = ()
    target_all_bases: bool = False
    progress: Any = None
    shows_progress: bool = False
    encoding_options: Mapping[str, Mapping[str, object]] | None = field(default=None, hash=False)
    compression: Literal["automatic", "balanced"] = "automatic"
    blobs: BlobOptions = field(default_factory=BlobOptions)
    full_files: int | None = None
    expected_version: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("create", "append", "overwrite"):
            raise OptionError(
                f"Invalid mode {self.mode!s:.60}: expected 'create', 'append' or 'overwrite'"
            )
        if self.compression not in ("automatic", "balanced"):
            raise OptionError(
                f"compression: expected 'automatic' or 'balanced', found {self.compression!r:.60}. "
                "Give others for columns: encoding_options={'*': {'compression': 'zstd'}}"
            )
        self._check_numbers()
        for name in ("enable_stable_row_ids", "enable_v2_manifest_paths"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name}: expected True or False, found {getattr(self, name)!r}")
        if self.target_bases and self.target_all_bases:
            raise OptionError("target_bases and target_all_bases: choose one of the two")
        for target in self.target_bases:
            if not isinstance(target, str):
                raise OptionError(f"target_bases: expected names or paths, found {target!r}")
        for base in self.initial_bases:
            if not isinstance(base, DatasetBasePath):
                raise OptionError(
                    f"initial_bases: expected glaive.DatasetBasePath objects, found {base!r}"
                )
        if self.initial_bases and self.mode == "overwrite":
            raise OptionError(
                "initial_bases: only possible for a new dataset; an overwritten one keeps its base "
                "paths"
            )
        if self.auto_cleanup is not None:
            self.cleanup_config()
        entries: list[tuple[object, object]] = [
            *self.transaction_properties.items(),
            ("commit_message", self.commit_message or ""),
        ]
        for key, text in entries:
            if not isinstance(key, str) or not isinstance(text, str):
                raise OptionError(
                    f"transaction_properties and commit_message: expected strings, found {key!r}: "
                    f"{text!r}"
                )

    def _check_numbers(self) -> None:
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is None and name in ("max_page_bytes", "data_cache_bytes"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                kind = OptionRangeError if isinstance(value, int) else OptionError
                raise kind(f"{name}: expected an integer ≥ 1, found {value!r}")

    def page_bytes(self, columns: int) -> int | None:
        """Maximum bytes of values per page, given the number of columns; ``None`` if unset."""
        share = None if self.data_cache_bytes is None else self.data_cache_bytes // max(1, columns)
        limits = [limit for limit in (self.max_page_bytes, share) if limit is not None]
        return max(1, min(limits)) if limits else None

    def cleanup_config(self) -> dict[str, str]:
        """Entries of the table's configuration for ``auto_cleanup``.

        Raises
        ------
        OptionError
            It has other keys, or values that are no integers.
        """
        if not isinstance(self.auto_cleanup or {}, Mapping):
            raise OptionError(f"auto_cleanup_options: expected a dict, found {self.auto_cleanup!r}")
        given = dict(self.auto_cleanup or {})
        config = {}
        for name, key, written in (
            ("interval", INTERVAL, str),
            ("older_than_seconds", OLDER_THAN, span_text),
        ):
            if name not in given:
                continue
            value = given.pop(name)
            if not isinstance(value, int) or value < (name == "interval"):
                raise OptionError(
                    f"auto_cleanup_options: expected an integer for {name!r}, found {value!r}"
                )
            config[key] = written(value)
        if given:
            raise OptionError(
                "auto_cleanup_options: expected 'interval' and 'older_than_seconds', found "
                f"{', '.join(map(repr, given))}"
            )
        return config
