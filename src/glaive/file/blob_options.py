"""How the values of blob columns of the second kind are kept.

Specification: "Where values lie" in ``docs/format/blobs.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from glaive.errors import OptionError, SchemaError
from glaive.format.field import Field
from glaive.io.store import ObjectStore
from glaive.io.uri import open_object

__all__ = ["BlobOptions", "BlobThresholds"]

_PREFIX = "lance-encoding:blob-"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobOptions:
    """What a writer is told of blobs.

    Parameters
    ----------
    pack_file_size
        Bytes of a file with several blobs, at most; what a column says wins.
    external
        ``reference`` keeps the URIs of values that lie elsewhere, ``ingest`` copies the values.
    outside_bases
        Allow URIs below none of ``bases``.
    bases
        Places that URIs may lie below, by their id; those are kept as paths below them.
    opener
        Store and path of an object that is copied, by its URI.
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
    """Sizes in bytes that decide where the values of one column lie.

    Above ``own_file`` a value has a file of its own; else above ``inline`` it lies in a file
    with others, of up to ``pack_file`` bytes; else in the data file.
    """

    inline: int = 64 * 1024
    own_file: int = 4 * 1024 * 1024
    pack_file: int = 1024**3

    @classmethod
    def of(cls, column: Field, options: BlobOptions) -> BlobThresholds:
        """What the metadata of a column says, else the writer's options, else the usual.

        Raises
        ------
        SchemaError
            A threshold is no number that it can be.
        """
        usual = cls() if options.pack_file_size is None else cls(pack_file=options.pack_file_size)
        return cls(
            inline=_threshold(column, "inline-size-threshold", 0, usual.inline),
            own_file=_threshold(column, "dedicated-size-threshold", 1, usual.own_file),
            pack_file=_threshold(column, "pack-file-size-threshold", 1, usual.pack_file),
        )


def _threshold(column: Field, name: str, least: int, usual: int) -> int:
    text = column.option(_PREFIX + name)
    if text is None:
        return usual
    if not text.isascii() or not text.isdecimal() or not least <= int(text) < 2**63:
        raise SchemaError(
            f"column {column.name!r}: {_PREFIX}{name}: expected a number of bytes ≥ {least}, "
            f"found {text!r}"
        )
    return int(text)
