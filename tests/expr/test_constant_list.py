"""Long lists of constants mean what the same constants mean one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from glaive.errors import FilterError
from glaive.expr.constants import ConstantList
from glaive.expr.filters import bind_filter
from glaive.expr.parse import parse, render
from glaive.expr.tree import MAX_NODES, InList, Literal, Name
from glaive.format.fields import LanceSchema

BATCH: Any = pa.record_batch(
    {
        "k": pa.array([0, 5, -7, 2**40, None]),
        "i": pa.array([0, 5, -7, 100, None], pa.int32()),
        "x": pa.array([0.0, -0.0, 1.5, float("nan"), None]),
        "f": pa.array([0.0, -0.0, 1.5, 3.25, None], pa.float32()),
        "s": pa.array(["", "a", "id7", "ä", None]),
        "ls": pa.array(["", "a", "id7", "ä", None], pa.large_string()),
        "d": pa.array([None, 1, 2, 3, 4], pa.decimal128(10, 2)),
    }
)
SCHEMA = LanceSchema.from_arrow(BATCH.schema)
NUMBERS = ", ".join(map(str, range(-10, 20)))
FLOATS = ",".join(str(n / 4) for n in range(-10, 20))
TEXTS = ", ".join(f"'id{n}'" for n in range(20)) + ", ''"


@pytest.mark.parametrize(
    ("operand", "items"),
    [
        ("k", NUMBERS),
        ("i", NUMBERS),
        ("x", NUMBERS),
        ("d", NUMBERS),
        ("x", FLOATS),
        ("f", FLOATS),
        ("k + 1", NUMBERS),
        ("i * 2", NUMBERS),
        ("x - 1", NUMBERS),
        ("k * 0.5", FLOATS),
        ("CAST(i AS bigint)", NUMBERS),
        ("s", TEXTS),
        ("ls", TEXTS),
        ("lower(s)", TEXTS),
    ],
)
@pytest.mark.parametrize("negated", ["", "NOT "])
def test_a_long_list_is_its_items(operand: str, items: str, negated: str) -> None:
    long = bind_filter(f"{operand} {negated}IN ({items})", SCHEMA)
    # A comment keeps the items apart.
    short = bind_filter(f"{operand} {negated}IN (/**/{items})", SCHEMA)
    assert long.mask(BATCH).equals(short.mask(BATCH))
    assert long.text == short.text
    assert long.columns == short.columns
    for term in long.terms:
        assert term.mask(BATCH).equals(long.mask(BATCH))


@pytest.mark.parametrize("items", [NUMBERS, FLOATS, TEXTS, f"  {NUMBERS}\n"])
def test_its_text_is_read_as_the_same(items: str) -> None:
    node = parse(f"a IN ({items}) AND b = 1")
    assert parse(render(node)) == node
    assert parse(f"a IN (/**/{items}) AND b = 1") != node  # one by one
    assert render(parse(f"a IN (/**/{items}) AND b = 1")) == render(node)


@pytest.mark.parametrize(
    "items",
    [
        f"{NUMBERS}, {2**63 - 1}",
        f"{NUMBERS}, 1.5",
        f"{NUMBERS}, NULL",
        f"{NUMBERS}, 1 + 1",
        f"{NUMBERS}, 'a'",
        f"{TEXTS}, 'it''s'",
        f"{TEXTS}, s",
        ", ".join(["1"] * 15),
    ],
)
def test_mixed_and_short_lists_are_read_one_by_one(items: str) -> None:
    node: Any = parse(f"a IN ({items})")
    assert not isinstance(node.items, ConstantList)
    assert len(node.items) == items.count(",") + 1


def test_a_constant_that_does_not_fit_is_named() -> None:
    with pytest.raises(FilterError, match="constant 3000000000 of type bigint does not fit"):
        bind_filter(f"i IN ({NUMBERS}, 3000000000)", SCHEMA)
    with pytest.raises(FilterError, match="does not fit"):
        bind_filter(f"s IN ({NUMBERS})", SCHEMA)


def test_a_list_that_does_not_end_is_an_error() -> None:
    with pytest.raises(FilterError, match="expected"):
        parse(f"a IN ({NUMBERS}")
    with pytest.raises(FilterError, match="expected"):
        parse(f"a IN ({NUMBERS},")


def test_its_items_count_as_all_others() -> None:
    with pytest.raises(FilterError, match="more than 250000"):
        parse(f"a IN ({','.join(['1'] * MAX_NODES)})")


def test_a_list_of_an_array_equals_the_same_list_of_a_text() -> None:
    of_array = ConstantList.of(pa.array(range(-10, 20)))
    of_text = ConstantList(tuple(range(-10, 20)), pa.int64())
    assert of_array == of_text
    assert hash(of_array) == hash(of_text)
    assert of_array[-1] == of_text[-1] == Literal(19, pa.int64())
    assert of_array != ConstantList.of(pa.array(range(-10, 21)))
    inner = [*range(-10, 4), 99, *range(5, 20)]  # equal in length, at both ends and in hash
    assert of_array != ConstantList.of(pa.array(inner))
    assert of_array != ConstantList.of(pa.array(range(-10, 20), pa.int32()))
    dates = ConstantList.of(pa.array([3, 1], pa.int32()).cast(pa.date32()))
    assert (dates[0].value, dates[1].value) == dates.values == (3, 1)


def test_a_list_of_an_array_is_bound_without_python_values(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = pa.array([5, 2**40, 7])
    monkeypatch.setattr(ConstantList, "values", property(lambda _: pytest.fail("made values")))
    bound = bind_filter(InList(Name(("k",)), ConstantList.of(keys)), SCHEMA)
    assert bound.mask(BATCH).to_pylist() == [False, True, False, True, False]
