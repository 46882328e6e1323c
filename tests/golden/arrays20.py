"""Pages of format 2.0: those pylance 14.0.2 writes, and those only older releases wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from tests.golden.assemble import Page

__all__ = ["WHOLE_FILE", "ArrayVector", "flat", "no_nulls", "old_pages", "vectors"]

# One nullable int32 column ``c`` with 1, 2, null.
WHOLE_FILE = (
    "03" + "48" * 63 + "010000000200000000000000" + "48" * 52
    + "0a1b0a1912016320ffffffffffffffffff012a05696e7433323001380110030a"
    "2912270a250a1f2f6c616e63652e656e636f64696e67732e436f6c756d6e456e"
    "636f64696e6712020a0012480a0200401202010c1803223c123a0a380a1e2f6c"
    "616e63652e656e636f64696e67732e4172726179456e636f64696e6712161214"
    "12120a060a040801120012080a060820120208019f0000000000000075000000"
    "0000000080000000000000001f000000000000009f0000000000000014010000"
    "0000000024010000000000000100000001000000000003004c414e43"
)  # fmt: skip


@dataclass(frozen=True)
class ArrayVector:
    """The columns of a field ``c``, and what they say."""

    name: str
    kind: pa.DataType
    values: Sequence[Any]
    columns: Sequence[Sequence[Page]]


def flat(bits: int, buffer: int = 0) -> str:
    return f"flat {{ bits_per_value: {bits} buffer {{ buffer_index: {buffer} }} }}"


def no_nulls(values: str) -> str:
    return f"nullable {{ no_nulls {{ values {{ {values} }} }} }}"


def some_nulls(values: str) -> str:
    return f"nullable {{ some_nulls {{ validity {{ {flat(1)} }} values {{ {values} }} }} }}"


def binary(adjustment: int, first: int = 0) -> str:
    return (
        f"binary {{ indices {{ {no_nulls(flat(64, first))} }} bytes {{ {flat(8, first + 1)} }}"
        f" null_adjustment: {adjustment} }}"
    )


def words(*values: int, kind: str = "<u8") -> bytes:
    return np.array(values, kind).tobytes()


def low_bits(values: Sequence[int], width: int) -> bytes:
    """The low bits of each value, one behind the other."""
    whole = 0
    for at, value in enumerate(values):
        whole |= (value & (1 << width) - 1) << at * width
    return whole.to_bytes((len(values) * width + 7) // 8, "little")


def vectors() -> list[ArrayVector]:
    """What pylance 14.0.2 writes."""
    lists = f"list {{ offsets {{ {no_nulls(flat(64))} }} null_offset_adjustment: 6 num_items: 5 }}"
    return [
        ArrayVector(
            "strings",
            pa.string(),
            ["ab", None, "", "xyz"],
            [[Page(4, binary(6), [words(2, 8, 2, 5), b"abxyz"])]],
        ),
        ArrayVector(
            "large strings",
            pa.large_string(),
            ["ab", None, "", "xyz"],
            [[Page(4, binary(6), [words(2, 8, 2, 5), b"abxyz"])]],
        ),
        ArrayVector(
            "a list with nulls",
            pa.list_(pa.int32()),
            [[1, 2], None, [], [3, None, 5]],
            [
                [Page(4, lists, [words(2, 8, 2, 5)])],
                [Page(5, some_nulls(flat(32, 1)), [b"\x17", words(1, 2, 3, 0, 5, kind="<i4")])],
            ],
        ),
        ArrayVector(
            "a list whose items are cut elsewhere",
            pa.list_(pa.int8()),
            [[1, 2], None, [], [3, 4, 5], [6], []],
            [
                [
                    Page(4, lists, [words(2, 8, 2, 5)]),
                    Page(
                        2,
                        f"list {{ offsets {{ {no_nulls(flat(64))} }} null_offset_adjustment: 2"
                        " num_items: 1 }",
                        [words(1, 1)],
                    ),
                ],
                [
                    Page(1, no_nulls(flat(8)), [b"\x01"]),
                    Page(5, no_nulls(flat(8)), [b"\x02\x03\x04\x05\x06"]),
                ],
            ],
        ),
        ArrayVector(
            "strings by a dictionary",
            pa.string(),
            ["a", "bb", None, "a"],
            [
                [
                    Page(
                        4,
                        f"dictionary {{ indices {{ {no_nulls(flat(8))} }} items {{"
                        f" {binary(4, 1)} }} num_dictionary_items: 2 }}",
                        [b"\x01\x02\x00\x01", words(1, 3), b"abb"],
                    )
                ]
            ],
        ),
        ArrayVector(
            "a packed struct",
            pa.struct([("a", pa.int8()), ("b", pa.float32())]),
            [{"a": 1, "b": 2.0}, {"a": 2, "b": 3.0}],
            [
                [
                    Page(
                        2,
                        f"packed_struct {{ inner {{ {no_nulls(flat(8))} }} inner {{"
                        f" {no_nulls(flat(32))} }} buffer {{ }} }}",
                        [bytes.fromhex("01000000400200004040")],
                    )
                ]
            ],
        ),
        ArrayVector(
            "everything is null",
            pa.int32(),
            [None, None],
            [[Page(2, "nullable { all_nulls { } }", [])]],
        ),
        ArrayVector("no validity at all", pa.int16(), [1, 2], [[Page(2, flat(16), [b"\1\0\2\0"])]]),
    ]


def old_pages(blocks: Callable[[list[int], int, int], bytes], table: bytes) -> list[ArrayVector]:
    """What releases before 2.1 also wrote.

    ``blocks`` packs values of a word size into FastLanes blocks of a width; ``table`` is a
    symbol table with "abc" and "de".
    """
    counts = [at * 7 % 1000 for at in range(1500)]
    packed = (
        "bitpacked {{ compressed_bits_per_value: {} uncompressed_bits_per_value: {}{}"
        " buffer {{ {} }} }}"
    )
    escaped = "".join(f"\\{byte:03o}" for byte in table)
    fixed = "fixed_size_binary {{ byte_width: 2 bytes {{ {} }} }}"
    signs = [1, -1, -5, 3, -512, 511, 0]
    large = [1, 2**61 - 1, 5, 3, 9, 2**60 + 3, 0]
    old_text = (
        f"list {{ offsets {{ {no_nulls(flat(64))} }} null_offset_adjustment: 10 num_items: 9 }}"
    )
    return [
        ArrayVector(
            "bit-packed",
            pa.int32(),
            [1, 2, 3, 500, 7, 0, 1023],
            [
                [
                    Page(
                        7,
                        no_nulls(packed.format(10, 32, "", "")),
                        [low_bits([1, 2, 3, 500, 7, 0, 1023], 10)],
                    )
                ]
            ],
        ),
        ArrayVector(
            "bit-packed with signs",
            pa.int32(),
            signs,
            [
                [
                    Page(
                        7,
                        no_nulls(packed.format(10, 32, " signed: true", "")),
                        [low_bits(signs, 10)],
                    )
                ]
            ],
        ),
        ArrayVector(
            "bit-packed over word borders",
            pa.uint64(),
            large,
            [[Page(7, packed.format(61, 64, "", ""), [low_bits(large, 61)])]],
        ),
        ArrayVector(
            "bit-packed with nulls",
            pa.int16(),
            [1, None, 3, None],
            [
                [
                    Page(
                        4,
                        some_nulls(packed.format(3, 16, "", "buffer_index: 1")),
                        [b"\x05", low_bits([1, 2, 3, 4], 3)],
                    )
                ]
            ],
        ),
        *(
            ArrayVector(
                f"bit-packed blocks of {bits} bits",
                kind,
                counts,
                [
                    [
                        Page(
                            1500,
                            no_nulls(
                                packed.format(10, bits, "", "").replace(
                                    "bitpacked", "bitpacked_for_non_neg"
                                )
                            ),
                            [blocks(counts, bits, 10)],
                        )
                    ]
                ],
            )
            for bits, kind in ((16, pa.int16()), (32, pa.int32()), (64, pa.uint64()))
        ),
        ArrayVector(
            "FSST",
            pa.string(),
            ["abcde", None, "", "deB"],
            [
                [
                    Page(
                        4,
                        f'fsst {{ binary {{ {binary(6)} }} symbol_table: "{escaped}" }}',
                        [words(2, 8, 2, 5), bytes([0, 1, 1, 255, 66])],
                    )
                ]
            ],
        ),
        ArrayVector(
            "strings of one length, byte by byte",
            pa.string(),
            ["aa", "bb", "cc"],
            [[Page(3, fixed.format(flat(8)), [b"aabbcc"])]],
        ),
        ArrayVector(
            "strings of one length, value by value",
            pa.binary(),
            [b"aa", b"bb", b"cc"],
            [[Page(3, no_nulls(fixed.format(flat(16))), [b"aabbcc"])]],
        ),
        ArrayVector(
            "strings of one length with nulls",
            pa.large_string(),
            ["aa", None, "cc"],
            [[Page(3, some_nulls(fixed.format(flat(16, 1))), [b"\x05", b"aabbcc"])]],
        ),
        ArrayVector(
            "strings as lists of bytes",
            pa.string(),
            ["foo", None, "barbaz"],
            [[Page(3, old_text, [words(3, 13, 9)])], [Page(9, no_nulls(flat(8)), [b"foobarbaz"])]],
        ),
    ]
