"""Files of strangers that Spark reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import glaive.spark
from glaive.errors import SchemaError

pytestmark = pytest.mark.spark

MODULE = "glaive_of_a_stranger"


def described(kind: dict[str, Any] | str) -> str:
    """What Spark writes into a Parquet file of the columns ``a`` and ``b``."""
    below = {"type": "array", "elementType": kind, "containsNull": True}
    types = {"a": "long", "b": below}
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in types.items()]
    return json.dumps({"type": "struct", "fields": fields})


@pytest.mark.spec("sec-21")
def test_a_class_that_a_parquet_file_names_is_not_imported(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "imported"
    (tmp_path / f"{MODULE}.py").write_text(
        f"from pathlib import Path\nPath({str(marker)!r}).touch()\nMade = dict\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    kind = {"type": "udt", "pyClass": f"{MODULE}.Made", "serializedClass": "", "sqlType": "long"}
    rows = pa.table({"a": [1, 2], "b": [[3], [4]]})
    for name, said in (("theirs", kind), ("mine", "long")):
        noted = {"org.apache.spark.sql.parquet.row.metadata": described(said)}
        pq.write_table(rows.replace_schema_metadata(noted), tmp_path / f"{name}.parquet")

    theirs = str(tmp_path / "theirs.parquet")
    with pytest.raises(SchemaError, match="a type that a class of Python defines"):
        glaive.spark.read_files(spark, [theirs])
    named = glaive.spark.read_files(spark, [theirs], schema="a bigint, b array<bigint>")
    mine = glaive.spark.read_files(spark, [str(tmp_path / "mine.parquet")])

    assert named.collect() == mine.collect()
    assert mine.columns == ["a", "b"]
    assert not marker.exists()
