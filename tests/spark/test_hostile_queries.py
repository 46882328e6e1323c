"""Texts of queries that take time or stack by their form; no session is needed to refuse them."""

from __future__ import annotations

import time

import pytest
from pyspark.sql.types import LongType, StructField, StructType
from sqlglot import parse_one

from glaive.errors import OptionError
from glaive.spark.queries import tables_in
from glaive.spark.query_tables import TableUse, table_uses
from glaive.spark.versions import EqualTo

SCHEMA = StructType([StructField("a", LongType()), StructField("b", LongType())])


def use_of(query: str) -> TableUse:
    """What a query needs of the table ``f``."""
    (use,) = table_uses(parse_one(query, dialect="spark"), query, {"f": SCHEMA}, {})
    return use


@pytest.mark.spec("rel-25")
@pytest.mark.parametrize(
    "query",
    [
        "select " + "(" * 5_000 + "a" + ")" * 5_000 + " from f",
        "select a from (" * 500 + "f" + ")" * 500,
        "select a from f where " + "not " * 5_000 + "a = 1",
        "select " + "case when a = 1 then " * 1_000 + "1" + " end" * 1_000 + " from f",
        "{{" * 10_000,
    ],
)
def test_a_query_that_is_nested_too_deeply_is_refused(query: str) -> None:
    with pytest.raises(OptionError, match="nested too deeply"):
        tables_in(query)


@pytest.mark.nightly(reason="parses long conditions")
@pytest.mark.spec("rel-25")
def test_a_condition_of_many_tests_takes_time_by_its_length() -> None:
    def seconds(count: int) -> float:
        many = " or ".join(f"(b = 7 and a = {n})" for n in range(count))
        query = f"select a from f where b = 7 and ({many})"
        statement = parse_one(query, dialect="spark")
        before = time.process_time()
        (use,) = table_uses(statement, query, {"f": SCHEMA}, {})
        taken = time.process_time() - before
        assert set(use.tests) == {EqualTo(("b",), 7)}
        assert not use.decided
        return taken

    assert min(seconds(2_000) for _ in range(3)) < 20 * min(seconds(500) for _ in range(3))


@pytest.mark.spec("rel-25")
def test_a_number_of_many_digits_is_left_to_spark() -> None:
    use = use_of("select a from f where a = " + "9" * 100_000)
    assert (use.tests, use.decided) == ((), False)
