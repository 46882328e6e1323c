"""Options of readers, checked by name and type."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from itertools import pairwise
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from glaive.errors import OptionError
from glaive.ingestion.sources import Piece, SourceFile

T = TypeVar("T", bound=object)

_ELSEWHERE = {
    "charset": "encoding",
    "dateformat": "timestamp_format",
    "delimiter": "sep",
    "escapechar": "escape",
    "navalues": "null",
    "nullvalue": "null",
    "quotechar": "quote",
    "separator": "sep",
    "timestampformat": "timestamp_format",
}
"""Names that readers of pandas and Spark have for options, without underlines."""


def known_options(format_name: str, given: Mapping[str, object], names: tuple[str, ...]) -> None:
    """Refuse options that a format does not have."""
    for name in given:
        if name not in names:
            lower = f"{name}".lower()
            elsewhere = _ELSEWHERE.get(lower.replace("_", ""))
            close = [elsewhere] if elsewhere in names else get_close_matches(lower, names, 1)
            hint = f"; did you mean {close[0]}?" if close else "."
            known = ", ".join(names) or "none"
            raise OptionError(f"{format_name}: no option {name!r}{hint} Known: {known}")


def option(given: Mapping[str, object], name: str, default: T) -> T:
    """An option of the type of its default; text from a command line is converted."""
    value = given.get(name, default)
    if isinstance(default, bool) and isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise OptionError(f"{name}: expected true or false, found {value!r}")
        value = value.lower() == "true"
    if not isinstance(value, type(default)):
        raise OptionError(f"{name}: expected {type(default).__name__}, found {value!r}")
    return value


# --- Cutting files into ranges ----------------------------------------------------------

_MOST_PIECES: Final = 10_000
"""Of a file: what a server, or a file with holes, says of its size may be any number."""


def byte_pieces(file: SourceFile, target_bytes: int, *, whole: bool) -> list[Piece]:
    """Ranges of bytes of about the same size; a compressed file is one."""
    wanted = 1 if whole or file.compression else round(file.size / target_bytes)
    count = min(max(1, wanted), _MOST_PIECES)
    edges = [file.size * number // count for number in range(count)]
    return [
        Piece(file, start, stop, (stop or file.size) - start)
        for start, stop in pairwise([*edges, None])
        if start is not None
    ]


def grouped_pieces(file: SourceFile, sizes: list[int], target_bytes: int) -> list[Piece]:
    """Ranges of consecutive parts of a file, such as row groups, of about so many bytes.

    Parameters
    ----------
    sizes
        Bytes of each part.
    """
    pieces, start, size = [], 0, 0
    for number, part in enumerate(sizes):
        if size and size + part > target_bytes:
            pieces.append(Piece(file, start, number, size))
            start, size = number, 0
        size += part
    if sizes:
        pieces.append(Piece(file, start, len(sizes), size))
    return pieces


# --- Lists in text files: as texts in JSON, and as vectors that all have one length -----

_NUMBERS = r'^\s*\[[^\[\]{}"]*\]\s*$'
"""One list without lists, objects or texts in it: it cannot be read as more than one value."""


def holds_numbers(data_type: Any) -> bool:
    """Whether a type is that of lists or vectors of numbers."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(test(data_type) for test in lists):
        return False
    item = data_type.value_type
    return bool(pa.types.is_integer(item) or pa.types.is_floating(item))


def numbers_of(name: str, texts: Any, data_type: Any) -> Any:
    """Read a column of texts such as ``[0.25, 1e-3]`` as lists of numbers.

    Raises
    ------
    pyarrow.ArrowInvalid
        A text is no such list; names the column.
    """
    json: Any = import_module("pyarrow.json")

    item = data_type.value_type
    parsed: Any = pa.list_(pa.float32() if pa.types.is_float16(item) else item)
    texts = texts.combine_chunks()
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), parsed)
    wrong = pc.invert(pc.match_substring_regex(texts, _NUMBERS))
    if pc.any(wrong).as_py():
        found = texts.filter(wrong)[0].as_py()
        raise pa.ArrowInvalid(
            f"column {name}: expected a list of numbers as in JSON, such as [0.5, 2], found "
            f"{found[:60]!r}"
        )
    lines = pc.binary_join_element_wise('{"v":', pc.fill_null(texts, "null"), "}", "")
    whole: Any = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")
    data = whole[0].as_buffer()
    try:
        table = json.read_json(
            pa.BufferReader(data),
            read_options=json.ReadOptions(use_threads=False, block_size=data.size + 1),
            parse_options=json.ParseOptions(
                explicit_schema=pa.schema([pa.field("v", parsed)]), newlines_in_values=True
            ),
        )
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column {name}: {error}") from None
    return table.column("v")


def vectors_checked(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table whose lists have the lengths that the vectors of a schema have.

    Raises
    ------
    pyarrow.ArrowInvalid
        A list has another length; names the column.
    """
    for field in schema:
        if not pa.types.is_fixed_size_list(field.type) or field.name not in table.column_names:
            continue
        lengths = pc.list_value_length(table.column(field.name))
        wrong = pc.not_equal(lengths, field.type.list_size)
        if pc.any(wrong).as_py():
            raise pa.ArrowInvalid(
                f"column {field.name}: expected {field.type.list_size} numbers, found "
                f"{lengths.filter(wrong)[0].as_py()}"
            )
    return table
