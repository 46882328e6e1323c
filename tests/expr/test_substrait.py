"""Numbers of Substrait bytes that no writer makes."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from glaive.errors import FilterError
from glaive.expr.filters import bind_filter
from glaive.format.fields import LanceSchema

SCHEMA = LanceSchema.from_arrow(pa.schema([("a", pa.int64())]))
_LONGEST = b"\xff" * 9 + b"\x7f"


def varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def number(field: int, value: bytes) -> bytes:
    return varint(field << 3) + value


def part(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def is_equal_to_itself(literal: bytes) -> bytes:
    """The filter ``literal = literal``."""
    declared = part(2, part(3, number(2, b"\1") + part(3, b"equal")))
    argument = part(4, part(3, part(1, literal)))
    call = part(3, number(1, b"\1") + argument + argument)
    columns = part(4, part(1, b"a") + part(2, part(1, part(7, b""))))
    return declared + columns + part(3, part(1, call) + part(3, b"x"))


@pytest.mark.spec("rel-25")
def test_a_decimal_has_no_more_bytes_than_decimals_have() -> None:
    decimal = part(1, b"\x7f" * 3_000_000) + number(2, b"\x26")
    started = time.process_time()
    with pytest.raises(FilterError, match="a decimal has 3000000 bytes, at most 16"):
        bind_filter(is_equal_to_itself(part(24, decimal)), SCHEMA)
    assert time.process_time() - started < 2
    right = part(1, (15).to_bytes(16, "little")) + number(2, b"\x05") + number(3, b"\1")
    assert bind_filter(is_equal_to_itself(part(24, right)), SCHEMA).mask(
        pa.record_batch({"a": [1]})
    ).to_pylist() == [True]


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("scale", [2_000_000_000, 39, 2**64 - 39])
def test_decimals_have_a_scale_that_arrow_has_powers_for(scale: int) -> None:
    # Casts to others read beyond them.
    kind = part(24, number(1, varint(scale)) + number(2, b"\x0a"))
    one = part(3, part(1, number(7, b"\1")))
    cast = part(3, part(1, part(11, part(1, kind) + part(2, one[2:]))))
    literal = part(24, part(1, b"\1") + number(2, b"\x0a") + number(3, varint(scale)))
    columns = part(4, part(1, b"a") + part(2, part(1, part(7, b""))))
    for whole in (columns + part(3, cast[2:] + part(3, b"x")), is_equal_to_itself(literal)):
        with pytest.raises(FilterError, match="damaged: decimals of 128 bits have up to 38"):
            bind_filter(whole, SCHEMA)


@pytest.mark.parametrize("operator", ["equal", "in"])
def test_a_decimal_has_no_more_digits_than_its_type(operator: str) -> None:
    digits = part(1, (10**10).to_bytes(16, "little")) + number(2, b"\x0a") + number(3, b"\2")
    whole = is_equal_to_itself(part(24, digits))
    if operator == "in":
        operand = part(1, part(24, digits))
        columns = part(4, part(1, b"a") + part(2, part(1, part(7, b""))))
        whole = columns + part(3, part(1, part(8, part(1, operand) + part(2, operand))))
    with pytest.raises(FilterError, match=r"type decimal128\(10, 2\) has 11 digits"):
        bind_filter(whole, SCHEMA)


@pytest.mark.nightly(reason="parses long chains")
@pytest.mark.spec("rel-25")
def test_a_long_chain_takes_time_by_its_length() -> None:
    heads, size = [], 0
    for _ in range(200_000):  # AND of one operand, which is the next one
        sizes = []
        for field in (3, 4, 3):
            sizes.append(varint(field << 3 | 2) + varint(size))
            size += len(sizes[-1])
        heads += sizes
    declared = part(2, part(3, number(2, b"\0") + part(3, b"and")))
    columns = part(4, part(1, b"a") + part(2, part(1, part(7, b""))))
    started = time.process_time()
    with pytest.raises(FilterError, match="filters do not have Substrait expression"):
        bind_filter(declared + columns + part(3, part(1, b"".join(heads[::-1]))), SCHEMA)
    assert time.process_time() - started < 8


@pytest.mark.parametrize("field", [2, 3, 5, 7, 14, 16, 17])
def test_numbers_have_the_lowest_bits_of_longer_ones(field: int) -> None:
    whole = is_equal_to_itself(number(field, _LONGEST))
    assert bind_filter(whole, SCHEMA).text == (
        bind_filter(is_equal_to_itself(number(field, b"\xff" * 9 + b"\1")), SCHEMA).text
    )


@pytest.mark.parametrize("reference", [b"", part(2, b"")], ids=["nothing", "the first column"])
def test_a_reference_names_a_column(reference: bytes) -> None:
    columns = part(4, part(1, b"a") + part(2, part(1, part(1, b""))))
    column = part(2, part(1, reference) + part(4, b""))
    whole = columns + part(3, part(1, column) + part(3, b"x"))
    schema = LanceSchema.from_arrow(pa.schema([("a", pa.bool_())]))
    if reference:
        assert bind_filter(whole, schema).text == "`a`"
        return
    with pytest.raises(FilterError, match="damaged: a reference names no column"):
        bind_filter(whole, schema)


@pytest.mark.parametrize(("field", "bits"), [(2, 8), (3, 16), (5, 32), (16, 32)])
def test_a_number_has_the_bits_of_its_type(field: int, bits: int) -> None:
    half = 1 << (bits - 1)
    fits = is_equal_to_itself(number(field, varint(half - 1)))
    assert bind_filter(fits, SCHEMA).mask(pa.record_batch({"a": [1]})).to_pylist() == [True]
    with pytest.raises(FilterError, match=f"damaged: a constant of {bits} bits is {half}"):
        bind_filter(is_equal_to_itself(number(field, varint(half))), SCHEMA)


def test_items_of_a_list_have_one_type() -> None:
    one, text, null = number(7, b"\1"), part(12, b"x"), part(29, part(7, b""))
    right = is_equal_to_itself(part(30, part(1, null) + part(1, one)))
    assert bind_filter(right, SCHEMA).mask(pa.record_batch({"a": [1]})).to_pylist() == [True]
    with pytest.raises(FilterError, match="damaged: items of a list differ in type"):
        bind_filter(is_equal_to_itself(part(30, part(1, one) + part(1, text))), SCHEMA)


def test_a_column_of_rows_around_a_subquery_is_no_column() -> None:
    columns = part(4, part(1, b"a") + part(2, part(1, part(1, b""))))
    for root in (3, 5, 6):
        column = part(2, part(1, part(2, b"")) + part(root, b""))
        whole = columns + part(3, part(1, column) + part(3, b"x"))
        schema = LanceSchema.from_arrow(pa.schema([("a", pa.bool_())]))
        with pytest.raises(FilterError, match="only columns and members"):
            bind_filter(whole, schema)


@pytest.mark.parametrize(
    ("options", "fits"),
    [
        ({"overflow": ["ERROR"]}, True),
        ({"case_sensitivity": ["CASE_SENSITIVE"]}, True),
        ({"case_sensitivity": ["CASE_INSENSITIVE", "CASE_SENSITIVE"]}, True),
        ({"case_sensitivity": ["CASE_INSENSITIVE"]}, False),
        ({"overflow": ["SILENT"], "null_handling": ["IGNORE_NULLS"]}, False),
    ],
)
def test_a_function_is_not_computed_otherwise_than_its_options_say(
    options: dict[str, list[str]], *, fits: bool
) -> None:
    declared = part(2, part(3, number(2, b"\1") + part(3, b"starts_with")))
    text = part(4, part(3, part(1, part(12, b"A"))))
    given = b"".join(
        part(5, part(1, name.encode()) + b"".join(part(2, one.encode()) for one in wanted))
        for name, wanted in options.items()
    )
    columns = part(4, part(1, b"a") + part(2, part(1, part(7, b""))))
    call = part(3, number(1, b"\1") + text + text + given)
    whole = declared + columns + part(3, part(1, call) + part(3, b"x"))
    if fits:
        assert bind_filter(whole, SCHEMA).mask(pa.record_batch({"a": [1]})).to_pylist() == [True]
        return
    with pytest.raises(FilterError, match="do not have the function 'starts_with' with"):
        bind_filter(whole, SCHEMA)
