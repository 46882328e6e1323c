"""JSON text into JSONB and back."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glaive.arrow.jsonb import MAX_DEPTH, decode_jsonb, encode_jsonb
from glaive.errors import CorruptFileError, GlaiveError, SchemaError, UnsupportedFeatureError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


def encoded(*texts: str | None) -> list[bytes | None]:
    encoded_values: list[bytes | None] = encode_jsonb(pa.array(texts, pa.string())).to_pylist()
    return encoded_values


def decoded(*values: bytes | None) -> list[str | None]:
    array = pa.array(values, pa.large_binary())
    strings: list[str | None] = decode_jsonb(array, "a test").to_pylist()
    return strings


def test_texts_that_are_not_utf_8_are_no_json() -> None:
    """A JSON index of such a column ended in a ``UnicodeDecodeError``."""
    texts: Any = pa.array([b'{"a":1}', None, b'"\xff\xfe"'], pa.binary()).view(pa.string())
    with pytest.raises(SchemaError, match=r"xff.* is not JSON .*can't decode byte 0xff"):
        encode_jsonb(texts)


@pytest.mark.spec("jsonb-6")
def test_infinity_is_text_that_is_stored_as_infinity_again() -> None:
    """Its text was ``inf`` or ``Infinity``, which is no JSON: such rows were never rewritten."""
    raw = encoded("1e400", "-1e400")
    others = [bytes.fromhex(f"20000000 20000001 {kind}") for kind in ("20", "30", "10")]
    texts = ["1e999", "-1e999"]
    assert decoded(*raw) == texts
    assert decoded(*others) == [*texts, "null"]
    assert encoded(*texts) == raw
    assert [json.loads(text) for text in texts] == [math.inf, -math.inf]
    not_a_number = bytes.fromhex("20000000 20000009 60 7ff8000000000000")
    assert decoded(not_a_number) == ["null"]


@pytest.mark.spec("jsonb-1", "jsonb-2", "jsonb-3", "jsonb-4", "jsonb-5")
@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("null", "20000000 00000000"),
        ("true", "20000000 40000000"),
        ("false", "20000000 30000000"),
        ("0", "20000000 20000001 00"),
        ("-0.0", "20000000 20000009 60 8000000000000000"),
        ("255", "20000000 20000002 50 ff"),
        ("256", "20000000 20000003 50 0100"),
        ("-129", "20000000 20000003 40 ff7f"),
        ("4294967296", "20000000 20000009 50 0000000100000000"),
        ("2.5", "20000000 20000009 60 4004000000000000"),
        ('"é"', "20000000 10000002 c3a9"),
        ("[]", "80000000"),
        ("[1,[]]", "80000002 20000002 50000004 5001 80000000"),
        ('{"a":1}', "40000001 10000001 20000002 61 5001"),
    ],
)
def test_values_have_the_bytes_of_the_specification(text: str, raw: str) -> None:
    assert encoded(text) == [bytes.fromhex(raw)]
    assert decoded(bytes.fromhex(raw)) == [text]


@given(VALUES)
def test_values_come_back(value: Any) -> None:
    (text,) = decoded(*encoded(json.dumps(value)))
    assert text is not None
    assert json.loads(text) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back_bit_for_bit(value: float) -> None:
    (text,) = decoded(*encoded(repr(value)))
    assert text is not None
    assert math.copysign(1, float(text)) == math.copysign(1, value)
    assert float(text) == value


def test_members_are_in_the_order_of_their_bytes() -> None:
    assert decoded(*encoded('{"é":1,"z":2,"a":3,"":4}')) == ['{"":4,"a":3,"z":2,"é":1}']


def test_nulls_and_repeats_stay_where_they_are() -> None:
    assert decoded(*encoded("1", None, "[]", "1")) == ["1", None, "[]", "1"]


def test_numbers_beyond_64_bits_become_floats() -> None:
    assert decoded(*encoded("18446744073709551616")) == ["1.8446744073709552e+19"]


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "Infinity", '{"a":1,"a":2}', "'a'", "1" * 400, "[" * 300 + "]" * 300]
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="not JSON that can be stored"):
        encoded(text)


def test_nesting_has_a_limit_in_both_directions() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert decoded(*encoded(deep)) == [deep]
    with pytest.raises(SchemaError, match="nested"):
        encoded(f"[{deep}]")
    raw = encoded(deep)[0] or b""
    outer = bytes.fromhex("80000001") + (0x5000_0000 | len(raw)).to_bytes(4, "big") + raw
    twice = bytes.fromhex("80000001") + (0x5000_0000 | len(outer)).to_bytes(4, "big") + outer
    with pytest.raises(CorruptFileError, match="levels"):
        decoded(twice)


def test_numbers_that_json_does_not_have_are_named() -> None:
    with pytest.raises(UnsupportedFeatureError, match="number of type 7"):
        decoded(bytes.fromhex("20000000 20000002 7001"))
    with pytest.raises(UnsupportedFeatureError, match="type 6"):
        decoded(bytes.fromhex("20000000 60000001 00"))


@given(st.data())
def test_damaged_bytes_are_refused_or_read(data: st.DataObject) -> None:
    (raw,) = encoded('{"a":[1,2.5,"text",null,true],"b":{"c":-7}}')
    assert raw is not None
    at = data.draw(st.integers(0, len(raw) - 1))
    value = data.draw(st.integers(0, 255))
    stop = data.draw(st.integers(at + 1, len(raw)))
    damaged = (raw[:at] + bytes([value]) + raw[at + 1 :])[:stop]
    try:
        decoded(damaged)
    except GlaiveError:
        return
