"""How a column is to be encoded, as far as options specify it.

The keys are in the metadata of the column's field, ``lance-encoding:compression`` and so on,
or are given to the writer as ``compression`` and so on. Anything unspecified is chosen by size.
The compression ``balanced`` can only be given to the writer: pylance would refuse it in metadata.

Specification: "Encoding keys" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

from glaive.config import added
from glaive.dataclass import dataclass
from glaive.encodings.compression import Scheme
from glaive.errors import OptionError
from glaive.options import Kind, integer, number, one_of, option

PREFIX = "lance-encoding:"


_COMPRESSIONS = ("lz4", "zstd", "none", "fsst", "balanced")


def _compression(*names: str) -> Kind:
    """Return these names, and the names that other packages gave their encodings."""

    def of(text: str) -> str:
        if text.lower() not in names and text not in added("encodings"):
            raise ValueError(text)
        return text.lower() if text.lower() in names else text

    return Kind(" or ".join((", ".join(names[:-1]), names[-1])), of)


def _share(given: float) -> float:
    if not 0 < given <= 1:
        raise ValueError(given)
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingOptions:
    """Encoding options of one column; ``None`` leaves the choice to the writer.

    Parameters
    ----------
    compression
        ``"lz4"`` or ``"zstd"``: compress where that gains. ``"fsst"``: encode text with FSST;
        numbers ignore it. ``"none"``: plain values, or plain indices into a dictionary.
        ``"balanced"``: as by default, and zstd around that where it saves much.
    compression_level
        Level of zstd, -131072 to 22.
    rle_threshold
        Run-length encoding only with fewer runs than this share of the values, 0 to 1.
    bss
        Split values of 32 and 64 bits into byte streams before lz4 or zstd: always, never,
        or when their bytes are similar and it gains.
    dict_divisor
        A dictionary has at most values / divisor items.
    dict_size_ratio
        A dictionary takes less than this share of the plain bytes, above 0, up to 1.
    dict_values_compression, dict_values_compression_level
        How the items of a dictionary are compressed, from format 2.2 on; ``"none"``: plain items.
    minichunk_size
        Approximate bytes of a chunk of strings.
    structural_encoding
        The page layout, whatever the width of the values.
    members
        Of a packed struct: the options of each member.
    """

    compression: str | None = option(_compression(*_COMPRESSIONS))
    compression_level: int | None = option(integer(-131_072, 22))
    rle_threshold: float | None = option(number(0, 1))
    bss: Literal["off", "on", "auto"] = option(one_of("off", "on", "auto"), "auto")
    dict_divisor: int = option(integer(1, 2**31 - 1), 2)
    dict_size_ratio: float = option(Kind("a number above 0, up to 1", _share, float), 0.8)
    dict_values_compression: Literal["lz4", "zstd", "none"] | None = option(
        one_of("lz4", "zstd", "none")
    )
    dict_values_compression_level: int | None = option(integer(-131_072, 22))
    minichunk_size: int | None = option(integer(1, 2**30))
    structural_encoding: Literal["miniblock", "fullzip", "sparse"] | None = option(
        one_of("miniblock", "fullzip", "sparse")
    )
    members: tuple[EncodingOptions, ...] = ()

    @property
    def scheme(self) -> Scheme | None:
        """The requested general compression, if any."""
        known: dict[str | None, Scheme] = {"lz4": "lz4", "zstd": "zstd"}
        return known.get(self.compression)

    @property
    def extension(self) -> Any:
        """The encoding of another package that is requested by its name, if any."""
        name = self.compression
        return None if name is None or name in _COMPRESSIONS else added("encodings")[name]

    @property
    def is_balanced(self) -> bool:
        """Whether zstd compresses the default choice, where it saves much."""
        return self.compression == "balanced"

    @property
    def chooses_compression(self) -> bool:
        """Whether the writer may compress although no scheme was requested."""
        return self.compression is None or self.is_balanced


AUTOMATIC = EncodingOptions()
"""All choices left to the writer."""


_KEYS: dict[str, Kind] = {
    entry.name.replace("_", "-"): entry.metadata["kind"]
    for entry in fields(EncodingOptions)
    if "kind" in entry.metadata
}
"""Options that a caller can give to the writer."""

_STORED_KEYS = _KEYS | {"compression": _compression(*_COMPRESSIONS[:-1])}
"""Options that metadata can have."""

_TYPE_OPTIONS = (
    "packed",
    "blob",
    "blob-inline-size-threshold",
    "blob-dedicated-size-threshold",
    "blob-pack-file-size-threshold",
)
"""Keys that define the type of a column; they belong to the schema."""


def read_metadata(metadata: Mapping[str, bytes], column: str) -> dict[str, Any]:
    """Parse the ``lance-encoding:`` keys of a field into fields of :class:`EncodingOptions`.

    Raises
    ------
    OptionError
        Unknown key or invalid value; the message names the column and lists what is valid.
    """
    parsed = {}
    for key, value in metadata.items():
        if not key.startswith(PREFIX):
            continue
        name = key.removeprefix(PREFIX)
        if name not in _TYPE_OPTIONS:
            known = [PREFIX + option for option in (*_KEYS, *_TYPE_OPTIONS)]
            text = value.decode("utf-8", "replace")
            parsed[name.replace("-", "_")] = _parse(
                _STORED_KEYS.get(name), key, text, known, column
            )
    return parsed


def read_options(given: Mapping[str, object], column: str) -> dict[str, Any]:
    """Parse options given to the writer: the same keys after the prefix, with ``-`` or ``_``.

    Raises
    ------
    OptionError
        As :func:`read_metadata`.
    """
    parsed = {}
    for key, value in given.items():
        name = key.replace("_", "-")
        if name in _TYPE_OPTIONS:
            raise OptionError(
                f"encoding option {key!r} of column {column!r} is part of the schema: "
                f"put {PREFIX}{name} into the metadata of the field"
            )
        known = [option.replace("-", "_") for option in _KEYS]
        parsed[name.replace("-", "_")] = _parse(_KEYS.get(name), key, str(value), known, column)
    return parsed


def _parse(kind: Kind | None, key: str, text: str, known: list[str], column: str) -> Any:
    if kind is None:
        hint = OptionError.did_you_mean(key, known)
        raise OptionError(f"column {column!r}: unknown encoding option {key!r:.80}{hint}")
    return kind.parse(f"column {column!r}: {key}", text)


# --- Choices that a format version allows the writer of a page --------------------------


@dataclass(frozen=True, kw_only=True)  # no slots: profiles have another base with some
class PageOptions:
    """The permissions that concern single pages.

    Parameters
    ----------
    large_chunks
        Mini-block chunk words and value buffer sizes are 32 bits wide, else 16.
    scalar_constants
        A page whose valid values are all equal may store a single value.
    compressed_constant_levels
        Levels of constant pages go through a block codec, else they are raw 16 bits.
    dictionary_bits
        Widths in bits of fixed-width values for which a dictionary may be built.
    level_runs
        Run-length encoding may be used for levels.
    dictionary_compression
        Dictionaries are compressed with this scheme (``None``: never).
    packed_runs
        The values of runs may be packed.
    """

    large_chunks: bool
    scalar_constants: bool
    compressed_constant_levels: bool
    dictionary_bits: frozenset[int]
    level_runs: bool
    dictionary_compression: Literal["lz4", "zstd"] | None
    packed_runs: bool = False
