"""Options of a compaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Final, Literal, Self

from glaive.dataclass import dataclass
from glaive.errors import OptionError

__all__ = ["CompactionOptions"]

CONFIG_PREFIX = "lance.compaction."
"""Prefix of table configuration entries that set defaults of the options."""

_LEAST: Final = {"max_bytes_per_file": 1 << 20, "batch_size": 1024, "max_rows_per_group": 64}
"""Of a configuration: it may be a stranger's, and want a file, a page or a step for every row of
billions that take few bytes."""

_REQUIRED: Final = ("target_rows_per_fragment", "max_rows_per_group", "max_bytes_per_file")

_LIMITS: Final = ("max_source_fragments", "max_source_rows", "max_source_bytes")

_MODES = ("reencode", "try_binary_copy", "force_binary_copy")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """How to compact.

    Parameters
    ----------
    target_rows_per_fragment
        Rows per new fragment; smaller fragments are candidates.
    max_rows_per_group
        Maximum rows per page, in files of format 0.1.
    max_bytes_per_file
        Approximate maximum bytes per file.
    materialize_deletions, materialize_deletions_threshold
        Whether fragments with a greater share of deleted rows are candidates.
    defer_index_remap
        Store a remapping table for readers to apply, instead of rebuilding indices that store
        row addresses. No effect on datasets with stable row ids.
    num_threads
        Accepted and ignored; the number of cores decides.
    batch_size
        Rows read at a time; chosen by row width when omitted.
    io_buffer_size
        Accepted and ignored; memory is bounded in other ways.
    compaction_mode
        ``reencode``, or ``try_binary_copy``, which does the same here.
    max_source_fragments, max_source_rows, max_source_bytes
        Limits of one run: groups are taken, oldest first, while they stay below.
    excluded_fragment_ids
        Fragments to leave alone; groups do not span them.
    data_storage_version
        Format of the files; default: that of the dataset.
    compression
        ``balanced``: fewer bytes, as of what is written on Spark; ``automatic``: as by
        :func:`glaive.write_dataset`.
    """

    target_rows_per_fragment: int = 1024 * 1024
    max_rows_per_group: int = 1024
    max_bytes_per_file: int = 90 * 1024**3
    materialize_deletions: bool = True
    materialize_deletions_threshold: float = 0.1
    defer_index_remap: bool = False
    num_threads: int | None = None
    batch_size: int | None = None
    io_buffer_size: int | None = None
    compaction_mode: str = "reencode"
    binary_copy_read_batch_bytes: int | None = None
    max_source_fragments: int | None = None
    max_source_rows: int | None = None
    max_source_bytes: int | None = None
    excluded_fragment_ids: tuple[int, ...] = ()
    data_storage_version: str | None = None
    compression: Literal["automatic", "balanced"] = "automatic"

    def __post_init__(self) -> None:
        for name in (*_REQUIRED, "batch_size", *_LIMITS):
            value = getattr(self, name)
            missing = value is None and name not in _REQUIRED
            if not missing and (not isinstance(value, int) or value < 1):
                raise OptionError(f"{name}: expected an integer ≥ 1, found {value!r:.60}")
        if self.compression not in ("automatic", "balanced"):
            raise OptionError(
                f"compression: expected automatic or balanced, found {self.compression!r:.60}"
            )
        if not 0 <= self.materialize_deletions_threshold <= 1:
            raise OptionError(
                "materialize_deletions_threshold: expected a share from 0 to 1, found "
                f"{self.materialize_deletions_threshold!r}"
            )
        if self.compaction_mode not in _MODES:
            raise OptionError(
                f"Invalid compaction mode {self.compaction_mode!r:.60}: compaction_mode: expected "
                f"one of {', '.join(_MODES)}"
            )
        if self.compaction_mode == "force_binary_copy":
            raise OptionError(
                "compaction_mode 'force_binary_copy' is not supported: pages are always "
                "re-encoded. Choose 'try_binary_copy' or 'reencode'"
            )

    @property
    def limits_source(self) -> bool:
        """Whether a run takes some of the groups only."""
        return any(getattr(self, name) is not None for name in _LIMITS)

    @classmethod
    def of(cls, given: Mapping[str, Any] | None, config: Mapping[str, str]) -> Self:
        """The given options, with defaults from the table's configuration.

        Raises
        ------
        OptionError
            An option does not exist or has an invalid value.
        """
        if given is not None and not isinstance(given, Mapping):
            raise OptionError(f"compaction: expected a dict of options, found {given!r:.60}")
        given = given or {}
        known = {field.name: field for field in fields(cls)}
        kept: dict[str, Any] = {}
        for key, text in config.items():
            name = key.removeprefix(CONFIG_PREFIX)
            if key.startswith(CONFIG_PREFIX) and name in known and given.get(name) is None:
                kept[name] = _from_text(name, text)
        for name, value in given.items():
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else "."
                raise OptionError(
                    f"Invalid compaction option: {name}: compaction: unknown option {name!r}{hint} "
                    f"Known: {', '.join(known)}"
                )
            if value is not None:
                kept[name] = tuple(value) if name == "excluded_fragment_ids" else value
        return cls(**kept)


def _from_text(name: str, text: str) -> Any:
    if name in ("materialize_deletions", "defer_index_remap"):
        if text.lower() not in ("true", "false"):
            raise OptionError(f"{CONFIG_PREFIX}{name}: expected true or false, found {text!r:.60}")
        return text.lower() == "true"
    if name in ("compaction_mode", "compression", "data_storage_version"):
        return text
    try:
        if name == "excluded_fragment_ids":
            return tuple(int(number) for number in text.split(",") if number.strip())
        value = float(text) if name.endswith("threshold") else int(text)
    except ValueError:
        raise OptionError(f"{CONFIG_PREFIX}{name}: expected a number, found {text!r:.60}") from None
    if value < (least := _LEAST.get(name, 0)):
        raise OptionError(
            f"{CONFIG_PREFIX}{name}: expected {least} at least in a configuration, "
            f"found {text!r:.60}. Change it, or give {name} with the call"
        )
    return value
