"""Whether text that comes with a dictionary is written with it; see :mod:`glaive.file.v2.coded`.

Specification: "What writers choose" in ``docs/format/encodings.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from glaive.arrow.blocks import Dictionary
from glaive.arrow.build import block_from_array
from glaive.encodings.choose_dictionary import SURE_SHARE
from glaive.encodings.options import AUTOMATIC, EncodingOptions
from glaive.encodings.text_stats import MAX_ITEMS, MIN_VALUES, dictionary_bytes
from glaive.file.v2.coded import is_coded, plain_bytes, renumbered

__all__ = ["settled"]


def settled(array: Any, kind: pa.DataType, wanted: EncodingOptions | None) -> Any:
    """A coded array as it is to be written: with its dictionary, or plain.

    Parameters
    ----------
    kind
        Type of the field.
    wanted
        What the author of the column asks for; ``None`` where no coded values can be
        written.

    Notes
    -----
    It stays coded only where a writer of the plain values would make the same choice
    without comparing: where a dictionary takes a fifth of the bytes, and nothing was asked.
    """
    if not is_coded(array.type, kind):
        return array
    used = _used_only(array) if wanted == AUTOMATIC and len(array) >= MIN_VALUES else None
    if used is None or not 2 <= len(used.dictionary) <= min(MAX_ITEMS, len(array) // 2):
        return array.cast(kind)
    block = block_from_array(used)
    if not isinstance(block, Dictionary):
        return array.cast(kind)
    small = dictionary_bytes(block) < SURE_SHARE * plain_bytes(used)
    return used if small else array.cast(kind)


def _used_only(array: Any) -> Any:
    """The same without items that no value has, in the order of their first values."""
    indices = array.indices
    if indices.null_count:
        indices = indices.drop_null()
    times = np.bincount(np.asarray(indices), minlength=len(array.dictionary))
    if times.all():
        return array
    used = np.flatnonzero(times)
    number = np.zeros(len(times), np.int32)
    number[used] = np.arange(len(used))
    return renumbered(array, number, array.dictionary.take(pa.array(used)))
