"""How the values of blob v2 columns are stored.

Specification: "Where values lie" in ``docs/format/blobs.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Literal

from glaive.dataclass import dataclass
from glaive.errors import OptionError, SchemaError
from glaive.format.field import Field
from glaive.io.store import ObjectStore
from glaive.io.uri import open_object

__all__ = ["BlobOptions", "BlobThresholds"]

_PREFIX = "lance-encoding:blob-"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobOptions:
    """Options of a writer for blobs.

    Parameters
    ----------
    pack_file_size
        Bytes of a file with several blobs, at most; options of a column take precedence.
    external
        ``reference`` keeps the URIs of external values, ``ingest`` copies the values.
    outside_bases
        Allow URIs outside of all ``bases``.
    bases
        Base URIs by their id; URIs below them are stored as relative paths.
    opener
        Returns store and path of an object to be copied, by its URI.
    """

    pack_file_size: int | None = None
    external: Literal["reference", "ingest"] = "reference"
    outside_bases: bool = False
    bases: Mapping[int, str] = field(default_factory=dict, hash=False)
    opener: Callable[[str], tuple[ObjectStore, str]] = field(default=open_object, hash=False)

    def __post_init__(self) -> None:
        if self.external not in ("reference", "ingest"):
            raise OptionError(
                f"external_blob_mode: expected 'reference' or 'ingest', found {self.external!r}"
            )
        if self.outside_bases and self.external == "ingest":
            raise OptionError(
                "allow_external_blob_outside_bases: only with external_blob_mode='reference', as "
                "'ingest' copies from anywhere. Leave one of them out."
            )
        size: object = self.pack_file_size
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise OptionError(
                f"blob_pack_file_size_threshold: expected an integer ≥ 1, found {size!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobThresholds:
    """Sizes in bytes that determine where the values of one column are stored.

    A value above ``own_file`` has its own file; else above ``inline`` it is in a file of up to
    ``pack_file`` bytes with several values; else in the data file.
    """

    inline: int = 64 * 1024
    own_file: int = 4 * 1024 * 1024
    pack_file: int = 1024**3

    @classmethod
    def of(cls, column: Field, options: BlobOptions) -> BlobThresholds:
        """Thresholds from the metadata of a column, else from the options, else the defaults.

        Raises
        ------
        SchemaError
            A threshold is not a valid number of bytes.
        """
        size = options.pack_file_size
        default = cls() if size is None else cls(pack_file=size)
        return cls(
            inline=_threshold(column, "inline-size-threshold", 0, default.inline),
            own_file=_threshold(column, "dedicated-size-threshold", 1, default.own_file),
            pack_file=_threshold(column, "pack-file-size-threshold", 1, default.pack_file),
        )


def _threshold(column: Field, name: str, least: int, default: int) -> int:
    text = column.option(_PREFIX + name)
    if text is None:
        return default
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    if not is_number or not least <= int(text) < 2**63:
        raise SchemaError(
            f"column {column.name!r}: {_PREFIX}{name}: expected a number of bytes ≥ {least}, "
            f"found {text!r:.80}"
        )
    return int(text)
