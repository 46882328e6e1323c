"""Tokens and their numbers: sorted byte strings.

Specification: "Token sets" in ``docs/format/text-indices.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.chunked import as_numpy, one_array
from glaive.errors import CorruptFileError
from glaive.index.segment import IndexFile
from glaive.named_tuple import NamedTuple
from glaive.types import Flags, Int64s

__all__ = ["Tokens", "read_tokens", "token_columns", "write_tokens"]

_SET = "_token_fst_bytes"
_COUNT = "_token_next_id"
_BYTES = "_token_total_length"
_TEXT = "_token"
_NUMBER = "_token_id"


def token_columns(file: IndexFile) -> frozenset[str]:
    """Columns that a token set has: those of an FST, or those of a table."""
    return frozenset((_SET, _COUNT, _BYTES) if _SET in file.schema.names else (_TEXT, _NUMBER))


class Tokens(NamedTuple):
    """Tokens in ascending order, and the number of each."""

    strings: pa.Array
    numbers: Int64s

    def kept(self, mask: Flags) -> Tokens:
        """The tokens whose numbers are in the mask, renumbered in the same order."""
        kept = mask[self.numbers]
        renumbered = np.cumsum(mask) - 1
        return Tokens(self.strings.filter(pa.array(kept)), renumbered[self.numbers[kept]])


def read_tokens(file: IndexFile, count: int) -> Tokens:
    """Read a token set of ``count`` tokens.

    Raises
    ------
    CorruptFileError
        There are more or fewer, they are not numbered from 0 on, one is there twice, or they are
        no texts.
    """
    if _SET in file.schema.names:
        tokens = _from_set(file, count)
    else:
        file.check(_token=pa.string(), _token_id=pa.uint32())
        rows = file.read([_TEXT, _NUMBER])
        if rows[_TEXT].null_count or rows[_NUMBER].null_count:
            raise _corrupt(file, count, "nulls")
        strings: Any = one_array(rows[_TEXT]).cast(pa.large_binary())
        tokens = Tokens(strings, as_numpy(rows[_NUMBER]).astype(np.int64))
    numbered = np.zeros(count, np.bool_)
    if len(tokens.numbers) != count or (count and tokens.numbers.max() >= count):
        raise _corrupt(file, count, f"{len(tokens.numbers)}")
    numbered[tokens.numbers] = True
    if not numbered.all():
        raise _corrupt(file, count, "the same number twice")
    try:
        tokens.strings.cast(pa.large_string())  # Those of an FST are any bytes.
    except pa.ArrowInvalid as error:
        raise file.corrupt("tokens of an index", "UTF-8", str(error)) from error
    order = pc.sort_indices(tokens.strings)
    ordered = tokens.strings.take(order)
    if count > 1 and pc.any(pc.equal(ordered[1:], ordered[:-1])).as_py():
        raise _corrupt(file, count, "the same token twice")
    return Tokens(ordered, tokens.numbers[as_numpy(order)])


def _from_set(file: IndexFile, count: int) -> Tokens:
    # The number of tokens is counted, but written again in the type that it has.
    types: dict[str, pa.DataType] = {
        _SET: pa.large_binary(), _COUNT: pa.uint32(), _BYTES: pa.uint64(),
    }  # fmt: skip
    file.check(**types)
    rows = file.read([_SET, _BYTES])
    if len(rows) != 1 or rows[_SET].null_count or rows[_BYTES].null_count:
        raise _corrupt(file, count, f"{len(rows)} sets of them")
    data = rows[_SET][0].as_buffer()
    if count and rows[_BYTES][0].as_py() > data.size * 1024:
        raise _corrupt(file, count, f"{rows[_BYTES][0].as_py()} bytes of tokens")
    from glaive.index.text.fst_read import read_fst

    return Tokens(*read_fst(data, count, file.path))


def write_tokens(tokens: Tokens, schema: pa.Schema) -> pa.Table:
    """Tokens as rows of a file with this schema."""
    if _SET not in schema.names:
        numbers = pa.array(tokens.numbers.astype(np.uint32))
        kind = schema.field(_TEXT).type
        return (
            pa.table({_TEXT: tokens.strings.cast(kind), _NUMBER: numbers})
            .select(schema.names)
            .cast(schema)
        )
    from glaive.index.text.fst_write import write_fst

    size = _bytes_of(tokens.strings)
    columns = {
        _SET: pa.array([write_fst(tokens.strings, tokens.numbers)], pa.large_binary()),
        _COUNT: pa.array([len(tokens.numbers)], pa.uint32()),
        _BYTES: pa.array([size], pa.uint64()),
    }
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def _bytes_of(strings: Any) -> int:
    return int(pc.sum(pc.binary_length(strings)).as_py() or 0)


def _corrupt(file: IndexFile, count: int, found: str) -> CorruptFileError:
    return file.corrupt("tokens of an index", f"{count}, one per list", found)
