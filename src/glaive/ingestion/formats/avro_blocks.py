"""What blocks of an Avro file say: how much they decode to, before that, and their records.

fastavro decodes each as a whole, however much that is: 400 bytes of bzip2 stand for 300 MB.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from typing import Any, Final

import pyarrow as pa

from glaive.config import USUAL_RATIO, settings

__all__ = ["check_block", "check_end"]

_PART: Final = 1 << 20

_DEFLATE_RATIO: Final = 1032
"""The most that deflate can do: smaller blocks need no look at all."""

_SHARE_WITH_LISTS: Final = 256
"""Each item becomes an object of Python, of a hundred times its bytes or more, and all those of a
record are there at once: what may be so is limited to this part of what bytes may be."""

_DAMAGE: Final = (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError)


def check_block(codec: str, data: bytes, *, has_lists: bool = False) -> None:
    """Refuse a block that decodes to far more than it is, and than a page may.

    Parameters
    ----------
    codec
        As the header of the file names it.
    data
        The compressed block. Damage is for its reader to find.
    has_lists
        Its records have lists or maps.

    Raises
    ------
    EOFError
        It does.
    """
    allowed = settings.max_decoded_bytes_per_page // (_SHARE_WITH_LISTS if has_lists else 1)
    most = max(allowed, USUAL_RATIO * len(data))
    if codec in _STATED:
        stated, ratio = _STATED[codec]
        size = stated(data)
        if size > min(most, ratio * len(data)):
            raise EOFError(
                f"a block of {len(data)} bytes says that it decodes to {size}. Where it may be so, "
                "set GLAIVE_MAX_DECODED_BYTES_PER_PAGE"
            )
    if codec not in _PARTS or (codec == "deflate" and _DEFLATE_RATIO * len(data) <= most):
        return
    total, parts = 0, _PARTS[codec](data)
    while total <= most:
        try:
            size = next(parts, 0)
        except _DAMAGE:
            return
        if not size:
            return
        total += size
    raise EOFError(
        f"a block of {len(data)} bytes decodes to more than {most}. To allow more, set "
        "GLAIVE_MAX_DECODED_BYTES_PER_PAGE"
    )


def check_end(block: Any) -> None:
    """Refuse a block that has bytes behind its records: their number is a claim of the file.

    Parameters
    ----------
    block
        Of fastavro, whose records were read; None: there is none.

    Raises
    ------
    ValueError
        It has.
    """
    if block is not None and block.bytes_.read(1):
        raise ValueError(f"bytes behind the {block.num_records} records that it states")


def _deflated(data: bytes) -> Iterator[int]:
    decoder = zlib.decompressobj(-zlib.MAX_WBITS)
    while data:
        yield len(decoder.decompress(data, _PART))
        data = decoder.unconsumed_tail


def _read(kind: Callable[[BytesIO], Any], data: bytes) -> Iterator[int]:
    with kind(BytesIO(data)) as opened:
        while size := len(opened.read(_PART)):
            yield size


def _zstd(source: BytesIO) -> Any:
    return pa.CompressedInputStream(source, "zstd")


def _snappy_size(data: bytes) -> int:
    size = 0
    for at, byte in enumerate(data[:5]):
        size |= (byte & 127) << 7 * at
        if byte < 128:
            break
    return size


def _lz4_size(data: bytes) -> int:
    return int.from_bytes(data[:4], "little")


_STATED: Final[dict[str, tuple[Callable[[bytes], int], int]]] = {
    "lz4": (_lz4_size, 255),
    "snappy": (_snappy_size, 22),
}
"""The size that a block says, for which its decoder takes memory at once, and the most times its
own size that it can be.
"""

_PARTS: Final[dict[str, Callable[[bytes], Iterator[int]]]] = {
    "bzip2": partial(_read, bz2.BZ2File),
    "deflate": _deflated,
    "xz": partial(_read, lzma.LZMAFile),
    "zstandard": partial(_read, _zstd),
}
"""Sizes of the parts that a block decodes to, one after the other."""
