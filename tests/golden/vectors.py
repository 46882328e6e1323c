"""Files and pages that pylance 14.0.2 wrote, and the values they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from tests.golden.assemble import Page


@dataclass(frozen=True)
class Vector:
    """One page of a column ``c``, and what it says."""

    name: str
    version: str
    kind: pa.DataType
    values: Sequence[Any]
    page: Page


def _page(length: int, layout: str, *buffers: str) -> Page:
    return Page(length, layout, [bytes.fromhex(buffer) for buffer in buffers])


ITEM = "layers: REPDEF_ALL_VALID_ITEM"
NULLABLE = "layers: REPDEF_NULLABLE_ITEM"
LISTS = "layers: REPDEF_NULL_AND_EMPTY_LIST"
DEF = "def_compression { flat { bits_per_value: 16 } }"
REP = "rep_compression { flat { bits_per_value: 16 } }"
SHORTS = "value_compression { flat { bits_per_value: 16 } }"
FIVE = r"inline_value: '\005\000\000\000\000\000\000\000'"
OFFSETS = "variable { offsets { flat { bits_per_value: 32 } } }"

LIST_ROWS = [[1, 2], None, [], [3, None]]
TEXT_ROWS = ["ab", None, "", "xyz"]

VECTORS = [
    Vector(
        "a list with nulls",
        "2.1",
        pa.list_(pa.int16()),
        LIST_ROWS,
        _page(
            4,
            f"mini_block_layout {{ {REP} {DEF} {SHORTS}"
            f" {NULLABLE} {LISTS} num_buffers: 1 repetition_index_depth: 1 num_items: 4 }}",
            "5000",
            "06000c000c0008000100000001000100 01000000fefefefe0000000002000300"
            "00000100fefefefe0100020003000000",
            "04000000000000000000000000000000",
        ),
    ),
    Vector(
        "a list with nulls",
        "2.2",
        pa.list_(pa.int16()),
        LIST_ROWS,
        _page(
            4,
            f"mini_block_layout {{ {REP} {DEF} {SHORTS}"
            f" {NULLABLE} {LISTS} num_buffers: 1 repetition_index_depth: 1 num_items: 4"
            " has_large_chunk: true }",
            "60000000",
            "06000c000c0008000000fefefefefefe 01000000010001000100 0000fefefefe"
            "0000000002000300 00000100fefefefe0100020003000000",
            "04000000000000000000000000000000",
        ),
    ),
    Vector(
        "strings with a null",
        "2.1",
        pa.string(),
        TEXT_ROWS,
        _page(
            4,
            f"mini_block_layout {{ {DEF} value_compression {{ {OFFSETS} }} {NULLABLE}"
            " num_buffers: 1 num_items: 4 }",
            "5000",
            "040008001c00fefe0000010000000000 14000000160000001600000016000000"
            "19000000616278797a484848fefefefe",
        ),
    ),
    Vector(
        "strings with a null",
        "2.2",
        pa.string(),
        TEXT_ROWS,
        _page(
            4,
            f"mini_block_layout {{ {DEF} value_compression {{ {OFFSETS} }} {NULLABLE}"
            " num_buffers: 1 num_items: 4 has_large_chunk: true }",
            "50000000",
            "040008001c0000000000010000000000 14000000160000001600000016000000"
            "19000000616278797a484848fefefefe",
        ),
    ),
    Vector(
        "a struct, null outside and inside",
        "2.1",
        pa.struct([pa.field("x", pa.int8())]),
        [{"x": 1}, None, {"x": None}],
        _page(
            3,
            f"mini_block_layout {{ {DEF} value_compression {{ flat {{ bits_per_value: 8 }} }}"
            f" {NULLABLE} {NULLABLE} num_buffers: 1 num_items: 3 }}",
            "2000",
            "030006000300fefe000002000100fefe 010000fefefefefe",
        ),
    ),
    Vector(
        "runs",
        "2.1",
        pa.int32(),
        [7] * 300 + [9] * 200,
        _page(
            500,
            "mini_block_layout { value_compression { rle { values { flat { bits_per_value: 32 } }"
            f" run_lengths {{ flat {{ bits_per_value: 8 }} }} }} }} {ITEM}"
            " num_buffers: 2 num_items: 500 }",
            "3000",
            "00000c000300fefe0700000007000000 09000000fefefefeff2dc8fefefefefe",
        ),
    ),
    Vector(
        "long strings, zipped",
        "2.1",
        pa.string(),
        ["a" * 300, None, ""],
        _page(
            3,
            "full_zip_layout { bits_def: 1 bits_per_offset: 32 num_items: 3 num_visible_items: 3"
            f" value_compression {{ {OFFSETS} }} {NULLABLE} }}",
            "002c010000" + "61" * 300 + "010000000000",
            "0000310132013701",
        ),
    ),
    Vector(
        "lists of long strings, zipped",
        "2.1",
        pa.list_(pa.string()),
        [["b" * 300, None], None, [], ["c"]],
        _page(
            4,
            "full_zip_layout { bits_rep: 1 bits_def: 2 bits_per_offset: 32 num_items: 5"
            f" num_visible_items: 3 value_compression {{ {OFFSETS} }} {NULLABLE} {LISTS} }}",
            "042c010000" + "62" * 300 + "010607040100000063",
            "00003201330134013a01",
        ),
    ),
    Vector(
        "numbers with a null, zipped",
        "2.1",
        pa.int16(),
        [1, None, 3],
        _page(
            3,
            "full_zip_layout { bits_def: 1 bits_per_value: 16 num_items: 3 num_visible_items: 3"
            f" {SHORTS} {NULLABLE} }}",
            "000100010000000300",
        ),
    ),
    Vector(
        "lists of numbers, zipped",
        "2.1",
        pa.list_(pa.int16()),
        [[1, None], None, [], [3]],
        _page(
            4,
            "full_zip_layout { bits_rep: 1 bits_def: 2 bits_per_value: 16 num_items: 5"
            f" num_visible_items: 3 {SHORTS} {NULLABLE} {LISTS} }}",
            "0401000100000607040300",
            "000607080b",
        ),
    ),
    Vector(
        "vectors with a null inside and outside",
        "2.1",
        pa.list_(pa.float32(), 2),
        [[1.0, None], None, [3.0, 4.0]],
        _page(
            3,
            f"mini_block_layout {{ {DEF} value_compression {{ fixed_size_list {{ items_per_value: 2"
            f" values {{ flat {{ bits_per_value: 32 }} }} has_validity: true }} }} {NULLABLE}"
            " num_buffers: 2 num_items: 3 }",
            "5000",
            "0300060001001800000001000000fefe 31fefefefefefefe0000803f00000000"
            "00000000000000000000404000008040",
        ),
    ),
    Vector(
        "lists without any value",
        "2.1",
        pa.list_(pa.int32()),
        [None, [], None],
        _page(3, f"constant_layout {{ {ITEM} {LISTS} }}", "010001000100", "010002000100"),
    ),
    Vector(
        "lists without any value",
        "2.2",
        pa.list_(pa.int32()),
        [None, [], None],
        _page(
            3,
            f"constant_layout {{ {ITEM} {LISTS} {REP} {DEF} num_rep_values: 3 num_def_values: 3 }}",
            "010001000100",
            "010002000100",
        ),
    ),
    Vector(
        "one string for all",
        "2.2",
        pa.string(),
        ["hello"] * 3,
        _page(
            3, f"constant_layout {{ {ITEM} }}", "020000000800000005000000000000000500000068656c6c6f"
        ),
    ),
    Vector(
        "one number for all, and a null",
        "2.2",
        pa.int64(),
        [5, None, 5],
        _page(3, f"constant_layout {{ {NULLABLE} {FIVE} }}", "", "000001000000"),
    ),
    Vector(
        "nothing but nulls",
        "2.1",
        pa.float64(),
        [None] * 5,
        _page(5, f"constant_layout {{ {NULLABLE} }}"),
    ),
]

FILES = {
    # One nullable int32 column ``c`` with 1, 2, null.
    "2.1": (
        "3000" + "48" * 62 + "030006000c00fefe000000000100fefe010000000200000000000000fefefefe"
        "4848484848484848484848484848484848484848484848484848484848484848"
        "0a1b0a1912016320ffffffffffffffffff012a05696e7433323001380110030a"
        "2912270a250a1f2f6c616e63652e656e636f64696e67732e436f6c756d6e456e"
        "636f64696e6712020a0012460a020040120202201803223a12380a360a1d2f6c"
        "616e63652e656e636f64696e677332312e506167654c61796f757412150a1312"
        "040a0208101a040a020820320103380148039f00000000000000730000000000"
        "000080000000000000001f000000000000009f00000000000000120100000000"
        "000022010000000000000100000001000000020001004c414e43"
    ),
    "2.2": (
        "30000000" + "48" * 60 + "030006000c000000000000000100fefe010000000200000000000000fefefefe"
        "4848484848484848484848484848484848484848484848484848484848484848"
        "0a1b0a1912016320ffffffffffffffffff012a05696e7433323001380110030a"
        "2912270a250a1f2f6c616e63652e656e636f64696e67732e436f6c756d6e456e"
        "636f64696e6712020a0012480a020040120204201803223c123a0a380a1d2f6c"
        "616e63652e656e636f64696e677332312e506167654c61796f757412170a1512"
        "040a0208101a040a0208203201033801480350019f0000000000000075000000"
        "0000000080000000000000001f000000000000009f0000000000000014010000"
        "0000000024010000000000000100000001000000020002004c414e43"
    ),
    "2.3": (
        "30000000" + "48" * 60 + "030006000c000000000000000100fefe010000000200000000000000fefefefe"
        "4848484848484848484848484848484848484848484848484848484848484848"
        "0a1b0a1912016320ffffffffffffffffff012a05696e7433323001380110030a"
        "2912270a250a1f2f6c616e63652e656e636f64696e67732e436f6c756d6e456e"
        "636f64696e6712020a0012500a020040120204201803224412420a400a1f2f6c"
        "616e63652e656e636f64696e677332332e506c616e61724c61796f7574121d0a"
        "050a030a010312140a120a040a020820120612040a020810280130039f000000"
        "000000007d0000000000000080000000000000001f000000000000009f000000"
        "000000001c010000000000002c01000000000000010000000100000002000300"
        "4c414e43"
    ),
}
