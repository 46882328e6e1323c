"""How rows become files and a version: what a writer is asked for, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from glaive.dataset.writing.base_paths import DatasetBasePath
from glaive.errors import OptionError
from glaive.file.blob_options import BlobOptions

__all__ = ["Mode", "WriteOptions"]

Mode = Literal["create", "append", "overwrite"]

_NUMBERS = (
    "max_rows_per_file",
    "max_rows_per_group",
    "max_bytes_per_file",
    "max_page_bytes",
    "data_cache_bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How rows become files and a version, with all values checked.

    Where nothing else is said, an option means what the keyword of the same name means in
    :class:`glaive.dataset.writing.keywords.WriteKeywords`.

    Parameters
    ----------
    mode
        ``create`` refuses a dataset that is there; ``append`` and ``overwrite`` create one
        that is not.
    full_files
        So many files take ``max_rows_per_file``, those after them one row less; all if omitted.
    auto_cleanup
        What ``auto_cleanup_options`` asks for.
    blobs
        How the values of blob columns are kept: what three keywords ask for.
    """

    mode: Mode = "create"
    max_rows_per_file: int = 1024 * 1024
    max_rows_per_group: int = 1024
    max_bytes_per_file: int = 90 * 1024**3
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
    encoding_options: Mapping[str, Mapping[str, object]] | None = field(default=None, hash=False)
    blobs: BlobOptions = field(default_factory=BlobOptions)
    full_files: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("create", "append", "overwrite"):
            raise OptionError(
                f"mode: expected 'create', 'append' or 'overwrite', found {self.mode!r}"
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
                "initial_bases: only a dataset that is created gets them; an overwritten one keeps "
                "its own"
            )
        if self.auto_cleanup is not None:
            self.cleanup_config()
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

    def _check_numbers(self) -> None:
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is None and name in ("max_page_bytes", "data_cache_bytes"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise OptionError(f"{name}: expected an integer ≥ 1, found {value!r}")

    def page_bytes(self, columns: int) -> int | None:
        """Bytes of values in a page of one of so many columns; ``None`` where nothing is said."""
        share = None if self.data_cache_bytes is None else self.data_cache_bytes // max(1, columns)
        said = [one for one in (self.max_page_bytes, share) if one is not None]
        return max(1, min(said)) if said else None

    def cleanup_config(self) -> dict[str, str]:
        """Entries of the table's configuration that ``auto_cleanup`` comes to.

        Raises
        ------
        OptionError
            It has other keys, or values that are no integers.
        """
        given = dict(self.auto_cleanup or {})
        config = {}
        for name, key, unit in (
            ("interval", "lance.auto_cleanup.interval", ""),
            ("older_than_seconds", "lance.auto_cleanup.older_than", "s"),
        ):
            if name not in given:
                continue
            value = given.pop(name)
            if not isinstance(value, int) or value < (name == "interval"):
                raise OptionError(
                    f"auto_cleanup_options: expected an integer for {name!r}, found {value!r}"
                )
            config[key] = f"{value}{unit}"
        if given:
            raise OptionError(
                "auto_cleanup_options: expected 'interval' and 'older_than_seconds', found "
                f"{', '.join(map(repr, given))}"
            )
        return config
