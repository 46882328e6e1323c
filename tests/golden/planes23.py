"""Pages of format 2.3: those that pylance 14.0.2 wrote, and some made by hand."""

from __future__ import annotations

import struct

import pyarrow as pa
from tests.golden.assemble import Page
from tests.golden.vectors import Vector

__all__ = ["VECTORS", "page"]

NULLABLE = "layers: REPDEF_NULLABLE_ITEM"
LISTS = "layers: REPDEF_NULL_AND_EMPTY_LIST"
ALL = "meaning: 1 positions { constant { } }"
SHORTS = "flat { bits_per_value: 16 }"
CHUNKED = "chunked { value_compression { flat { bits_per_value: 32 } } num_buffers: 1 }"


def page(length: int, structure: str, values: str, *buffers: bytes | str) -> Page:
    """A page of the two planes; buffers as bytes or in hex."""
    raw = [bytes.fromhex(one) if isinstance(one, str) else one for one in buffers]
    return Page(length, f"structure {{ {structure} }} values {{ {values} }}", raw)


def numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def range_of(start: int, step: int) -> str:
    return f"range {{ uncompressed_bits_per_value: 64 start: {start} step: {step} }}"


CHUNK = "00000c000000fefe010000000200000003000000fefefefe"

VECTORS = [
    Vector(
        "a list with nulls, dense",
        "2.3",
        pa.list_(pa.int16()),
        [[1, 2], None, [], [3, None]],
        page(
            4,
            f"dense {{ {NULLABLE} {LISTS} }}",
            f"chunked {{ value_compression {{ {SHORTS} }} levels {{"
            f" rep_compression {{ {SHORTS} }} def_compression {{ {SHORTS} }}"
            " repetition_index_depth: 1 } num_buffers: 1 num_items: 4 }",
            "60000000",
            "06000c000c0008000000fefefefefefe010000000100010001000000fefefefe"
            "000000000200030000000100fefefefe0100020003000000",
            "04000000000000000000000000000000",
        ),
    ),
    Vector(
        "one number for all, and a null",
        "2.3",
        pa.int64(),
        [5, None, 5],
        page(
            3,
            "sparse { layers { validity { meaning: 2"
            f" positions {{ {range_of(0, 2)} }} num_positions: 2 }} }} }}",
            r"constant { scalar: '\005\000\000\000\000\000\000\000' }",
        ),
    ),
    Vector(
        "lists, few of them with items",
        "2.3",
        pa.list_(pa.int32()),
        [[], [1, 2], None, [], [3]],
        page(
            5,
            "sparse { layers { list { num_child_slots: 3"
            f" non_empty_positions {{ {range_of(1, 3)} }} num_non_empty_positions: 2"
            " counts { flat { bits_per_value: 64 } } validity { meaning: 1"
            r" positions { constant { value: '\002\000\000\000\000\000\000\000' } }"
            f" num_positions: 1 }} }} }} layers {{ validity {{ {ALL} }} }} }}",
            CHUNKED,
            "20000000",
            CHUNK,
            numbers(2, 1),
        ),
    ),
    Vector(
        "nothing but nulls, dense",
        "2.3",
        pa.float64(),
        [None] * 4,
        page(4, f"dense {{ {NULLABLE} }}", "no_values { }"),
    ),
    Vector(
        "nothing but nulls, sparse",
        "2.3",
        pa.string(),
        [None] * 4,
        page(
            4,
            "sparse { layers { validity { meaning: 2 positions { constant { } } } } }",
            "no_values { }",
        ),
    ),
    Vector(
        "lists in lists, their lengths in a dictionary",
        "2.3",
        pa.list_(pa.list_(pa.int32())),
        [[[1], []], None, [[2, 3]]],
        page(
            3,
            "sparse { layers { list { num_child_slots: 3"
            f" non_empty_positions {{ {range_of(0, 2)} }} num_non_empty_positions: 2"
            " counts { dictionary { indices { flat { bits_per_value: 32 } }"
            f" items {{ {range_of(1, 1)} }} num_dictionary_items: 2 }} }}"
            r" validity { meaning: 1 positions { constant {"
            r" value: '\001\000\000\000\000\000\000\000' } } num_positions: 1 } } }"
            " layers { list { num_child_slots: 3 non_empty_positions { delta {"
            " uncompressed_bits_per_value: 64 base: 0 deltas { constant {"
            r" value: '\002\000\000\000\000\000\000\000' } } } } num_non_empty_positions: 2"
            f" counts {{ {range_of(1, 1)} }} validity {{ {ALL} }} }} }}"
            f" layers {{ validity {{ {ALL} }} }} }}",
            CHUNKED,
            "20000000",
            CHUNK,
            numbers(8, 0) + struct.pack("<2I", 1, 0),
        ),
    ),
    Vector(
        "structs and items that are null, only valid values stored",
        "2.3",
        pa.struct([pa.field("x", pa.binary(2))]),
        [{"x": b"ab"}, None, {"x": None}, {"x": b"cd"}],
        page(
            4,
            "sparse { layers { validity { meaning: 1 positions {"
            r" constant { value: '\001\000\000\000\000\000\000\000' } } num_positions: 1 } }"
            " layers { validity { meaning: 1 positions { flat { bits_per_value: 64 } }"
            " num_positions: 2 } } }",
            "zipped { value_compression { flat { bits_per_value: 16 } }"
            " bits_per_value: 16 num_items: 2 num_visible_items: 2 }",
            b"abcd",
            numbers(1, 2),
        ),
    ),
    Vector(
        "numbers of items, some of them null",
        "2.3",
        pa.string(),
        ["one", "three", None, "one"],
        page(
            4,
            "sparse { layers { validity { meaning: 1"
            r" positions { constant { value: '\002\000\000\000\000\000\000\000' } }"
            " num_positions: 1 } } }",
            "indexed { indices { flat { bits_per_value: 32 } } items {"
            " value_compression { variable { offsets { flat { bits_per_value: 32 } } } }"
            " bits_per_offset: 32 num_items: 2 num_visible_items: 2 } }",
            struct.pack("<4I", 0, 1, 0, 0),
            b"\x03\0\0\0one\x05\0\0\0three",
            bytes([0, 7, 16]),
        ),
    ),
    Vector(
        "values that are equally long",
        "2.3",
        pa.string(),
        ["ab", "cd", "ef"],
        page(
            3,
            "dense { layers: REPDEF_ALL_VALID_ITEM }",
            "chunked { value_compression { variable { offsets { range {"
            " uncompressed_bits_per_value: 32 step: 2 } } } } levels { }"
            " num_buffers: 1 num_items: 3 }",
            "10000000",
            "000006000000fefe" + b"abcdef".hex() + "fefe",
        ),
    ),
]
