"""Pages of format 2.3 read back; see ``planes23.py``. And such that contradict themselves."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.golden.assemble import Page, assemble
from tests.golden.planes23 import ALL, CHUNK, CHUNKED, VECTORS, page
from tests.golden.reading import check_page, read, take
from tests.golden.vectors import Vector

from glaive.errors import CorruptFileError, UnsupportedFeatureError


@pytest.mark.spec(
    *("plane-1", "plane-2", "plane-3", "dense-1", "sparse-1", "sparse-2", "sparse-3", "sparse-4"),
    *("sparse-5", "chunked-1", "chunked-2", "zipped-1", "zipped-2", "same-1", "none-1"),
    *(
        "indexed-1",
        "numbers-1",
        "numbers-2",
        "range-1",
        "delta-1",
        "delta-2",
        "dict-3",
        "var-6",
        "var-7",
    ),
)
@pytest.mark.parametrize("vector", VECTORS, ids=lambda one: one.name)
def test_a_page(tmp_path: Path, vector: Vector) -> None:
    check_page(tmp_path, vector)
    expected = pa.array(vector.values, vector.kind)
    for row in range(len(expected)):
        assert take(tmp_path, [row]).equals(expected.slice(row, 1))


def sparse(layer: str) -> str:
    return f"sparse {{ layers {{ {layer} }} layers {{ validity {{ {ALL} }} }} }}"


def lists(**fields: str) -> str:
    """Three lists with items 1, 2 and 3, with some fields replaced."""
    told = {
        "num_child_slots": "num_child_slots: 3",
        "non_empty_positions": "non_empty_positions { range {"
        " uncompressed_bits_per_value: 64 step: 1 } }",
        "num_non_empty_positions": "num_non_empty_positions: 3",
        "counts": r"counts { constant { value: '\001\000\000\000\000\000\000\000' } }",
        "validity": f"validity {{ {ALL} }}",
        **fields,
    }
    return f"list {{ {' '.join(told.values())} }}"


def one_list_each(**fields: str) -> Page:
    return page(3, sparse(lists(**fields)), CHUNKED, "20000000", CHUNK)


LIST = pa.list_(pa.int32())
ITEM = pa.int32()
FLAT = "flat { bits_per_value: 64 }"
TWO = r"constant { value: '\002\000\000\000\000\000\000\000' }"
NULLS = f"sparse {{ layers {{ validity {{ {ALL} }} }} }}"

BROKEN: dict[str, tuple[pa.DataType, Page, str]] = {
    "no planes": (ITEM, Page(3, "", []), "planes of a page"),
    "no structure": (ITEM, Page(3, f"values {{ {CHUNKED} }}", []), "planes of a page"),
    "no values": (ITEM, Page(3, f"structure {{ {NULLS} }}", []), "planes of a page"),
    "no layers": (ITEM, page(3, "sparse { }", "no_values { }"), "layers"),
    "fixed-size lists of nothing": (
        ITEM,
        page(3, "sparse { layers { fixed_size_list { } } }", "no_values { }"),
        "sizes of lists of fixed size",
    ),
    "rows that are no multiple of a size": (
        ITEM,
        page(3, "sparse { layers { fixed_size_list { dimension: 2 } } }", "no_values { }"),
        "sizes of lists of fixed size",
    ),
    "a list last": (
        LIST,
        page(3, f"sparse {{ layers {{ {lists()} }} }}", CHUNKED, "20000000", CHUNK),
        "layers",
    ),
    "counts that do not add up": (LIST, one_list_each(counts=f"counts {{ {TWO} }}"), "counts"),
    "fewer items than lists": (LIST, one_list_each(num_child_slots=""), "items of lists"),
    "more lists than slots": (
        LIST,
        one_list_each(
            num_non_empty_positions="num_non_empty_positions: 4",
            num_child_slots="num_child_slots: 4",
        ),
        "positions of lists: expected at most .*3, one per slot",
    ),
    "positions behind the last slot": (
        LIST,
        one_list_each(
            non_empty_positions="non_empty_positions { range {"
            " uncompressed_bits_per_value: 64 start: 1 step: 1 } }"
        ),
        "positions of lists: expected ascending numbers below 3",
    ),
    "positions that stand still": (
        LIST,
        one_list_each(non_empty_positions=f"non_empty_positions {{ {TWO} }}"),
        "positions of lists: expected ascending",
    ),
    "validity of no meaning": (
        LIST,
        one_list_each(validity="validity { positions { constant { } } }"),
        "meaning of validity",
    ),
    "more nulls than slots": (
        LIST,
        one_list_each(validity=f"validity {{ meaning: 1 positions {{ {TWO} }} num_positions: 4 }}"),
        "validity positions: expected at most .*3, one per slot",
    ),
    "a constant without value": (
        LIST,
        one_list_each(counts="counts { constant { } }"),
        "constant: expected the bytes of the value",
    ),
    "numbers of 32 bits": (
        LIST,
        one_list_each(
            non_empty_positions="non_empty_positions { range {"
            " uncompressed_bits_per_value: 32 step: 1 } }"
        ),
        "positions of lists: expected 3 numbers of 64 bits",
    ),
    "a payload that is missing": (
        LIST,
        one_list_each(counts=f"counts {{ {FLAT} }}"),
        "2 of values, 1 of structure",
    ),
    "a list where the column has none": (ITEM, one_list_each(), "page layers"),
    "levels under sparse structure": (
        ITEM,
        page(3, NULLS, CHUNKED.replace("num_buffers", "levels { } num_buffers"), "20000000", CHUNK),
        "no levels, since it is sparse",
    ),
    "no levels under dense structure": (
        ITEM,
        page(3, "dense { layers: REPDEF_ALL_VALID_ITEM }", CHUNKED, "20000000", CHUNK),
        "levels, since it is dense",
    ),
    "a constant with nulls, dense": (
        ITEM,
        page(3, "dense { layers: REPDEF_NULLABLE_ITEM }", r"constant { scalar: '\0\0\0\0' }"),
        "valid items only",
    ),
    "a constant of no bytes": (ITEM, page(3, NULLS, "constant { }"), "1 to 32 bytes"),
    "lists without values, dense": (
        LIST,
        page(3, "dense { layers: 1 layers: 4 }", "no_values { }"),
        "one nullable item",
    ),
    "indices, dense": (
        ITEM,
        page(3, "dense { layers: 1 }", "indexed { }"),
        "structure of a page with indexed values",
    ),
    "fewer values than valid slots": (
        ITEM,
        page(
            3,
            NULLS,
            "zipped { value_compression { flat { bits_per_value: 32 } }"
            " bits_per_value: 32 num_items: 2 num_visible_items: 2 }",
            bytes(8),
        ),
        "zipped values: expected 3",
    ),
    "an index behind the last item": (
        ITEM,
        page(
            3,
            NULLS,
            r"indexed { indices { constant { value: '\002\000\000\000' } } items {"
            " value_compression { flat { bits_per_value: 32 } }"
            " bits_per_value: 32 num_items: 2 num_visible_items: 2 } }",
            bytes(8),
        ),
        "indices of indexed values: expected numbers below 2, found 2",
    ),
    "an item count of 33 bits": (
        ITEM,
        page(
            3,
            NULLS,
            "zipped { value_compression { flat { bits_per_value: 32 } }"
            " bits_per_value: 32 num_items: 4294967296 num_visible_items: 2 }",
            bytes(8),
        ),
        "at most 4294967295",
    ),
    "dictionary items without end": (
        ITEM,
        page(
            3,
            NULLS,
            "chunked { value_compression { flat { bits_per_value: 32 } } dictionary { range {"
            " uncompressed_bits_per_value: 32 step: 1 } } num_dictionary_items: 1099511627776"
            " num_buffers: 1 }",
            "20000000",
            CHUNK,
            b"",
        ),
        "dictionary items: expected at most",
    ),
}


@pytest.mark.spec("plane-3", "sparse-2", "sparse-3", "sparse-4", "sparse-5", "dense-1", "numbers-3")
@pytest.mark.spec("sparse-6")
@pytest.mark.parametrize("name", BROKEN)
def test_a_page_that_contradicts_itself_is_damage(tmp_path: Path, name: str) -> None:
    kind, broken, said = BROKEN[name]
    data = assemble(pa.schema([pa.field("c", kind)]), [[broken]], "2.3")
    with pytest.raises(CorruptFileError, match=said) as caught:
        read(tmp_path, data)
    assert "one.lance" in str(caught.value)


@pytest.mark.spec("rle-5")
def test_runs_of_which_none_tells_their_number_are_refused(tmp_path: Path) -> None:
    packed = (
        "out_of_line_bitpacking { uncompressed_bits_per_value: 8"
        " values { flat { bits_per_value: 2 } } }"
    )
    runs = (
        f"chunked {{ value_compression {{ rle {{ values {{ {packed} }}"
        f" run_lengths {{ {packed} }} }} }} levels {{ }} num_buffers: 2 num_items: 3 }}"
    )
    broken = page(3, "dense { layers: 1 }", runs, "20000000", CHUNK)
    data = assemble(pa.schema([pa.field("c", pa.int8())]), [[broken]], "2.3")
    with pytest.raises(UnsupportedFeatureError, match="number of runs"):
        read(tmp_path, data)
