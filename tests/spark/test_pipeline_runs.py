"""Runs of pipelines that are files: steps, expectations, reports, and going on after a failure."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

import glaive
from glaive.errors import DatasetExistsError, DatasetNotFoundError, ExpectationError, OptionError
from glaive.pipeline import Pipeline, RunRecord, Runs, load, run

pytestmark = pytest.mark.spark

SHOP = """
name = "shop"
description = "Prices & <names>"
modules = ["shop_steps.py"]
[parameters]
minimum = 0
[datasets]
shop = "out/shop.lance"
changes = "out/changes.lance"
cheap = "out/cheap.lance"
rejected = "out/rejected.lance"
[steps.load]
kind = "ingest"
source = "a.csv"
target = "shop"
expect = "price > ${minimum}"
on_violation = "quarantine"
quarantine = "rejected"
[steps.changes]
kind = "ingest"
source = "b.csv"
target = "changes"
[steps.merge]
kind = "merge"
source = "changes"
target = "shop"
on = "id"
latest_by = "price"
expect = { affordable = "price < 8" }
on_violation = "quarantine"
quarantine = "rejected"
[steps.lengths]
kind = "add_columns"
target = "shop"
function = "shop_steps:lengths"
read_columns = "name"
[steps.double]
kind = "add_columns"
target = "shop"
columns = { double = "price * 2" }
[steps.cheap]
kind = "sql"
query = "SELECT name, price AS shop FROM shop WHERE price < 5"
target = "cheap"
expect = "shop > 1"
on_violation = "drop"
[steps.more]
kind = "sql"
query = "SELECT 'more' AS name, 2D AS shop"
target = "cheap"
mode = "append"
[steps.dedupe]
kind = "dedupe"
target = "shop"
columns = "id"
[steps.compact]
kind = "optimize"
target = "shop"
[steps.index]
kind = "index"
target = "shop"
column = "id"
index_type = "btree"
[steps.check]
kind = "python"
function = "shop_steps:check"
inputs = "shop"
arguments = { rows = 4 }
[steps.export]
kind = "export"
source = "shop"
path = "out/parquet"
after = "check"
"""
STEPS = """
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc


def lengths(batch):
    return pa.record_batch([pc.utf8_length(batch["name"])], ["length"])


def check(context, rows):
    if not Path(context.folder, "repaired").exists():
        raise ValueError("the network is down <here>")
    assert context.dataset("shop").count_rows() == rows
    return {"checked": rows}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "a.csv").write_text("id,name,price\n1,pen,2.5\n2,ink,7\n3,pad,-1\n4,cap,1\n")
    (tmp_path / "b.csv").write_text("id,name,price\n1,pen,3.5\n9,new,7\n9,newer,8\n")
    (tmp_path / "shop_steps.py").write_text(STEPS)
    (tmp_path / "shop.toml").write_text(SHOP)
    yield tmp_path
    sys.path.remove(str(tmp_path))
    sys.modules.pop("shop_steps", None)


def versions(pipeline: Pipeline) -> dict[str, int]:
    return {name: glaive.dataset(uri).version for name, uri in pipeline.datasets.items()}


def test_a_run_that_failed_goes_on_at_the_step_that_failed(
    spark: SparkSession, folder: Path
) -> None:
    pipeline = load(folder / "shop.toml")
    with pytest.raises(ValueError, match="the network is down"):
        run(pipeline, lambda: spark, run_id="first")
    failed = Runs.of(pipeline).latest()
    states = [step.state for step in failed.steps.values()]
    assert (failed.state, states) == ("failed", ["done"] * 10 + ["failed", "waiting"])
    assert failed.steps["load"].counts["bad_records"] == 1
    assert failed.steps["merge"].counts["bad_records"] == 1
    assert failed.steps["cheap"].counts["dropped"] == 1
    shop = failed.steps["merge"]
    assert shop.before["shop"] is not None
    assert shop.after_it["shop"] is not None
    assert (shop.before["shop"]["version"], shop.after_it["shop"]["version"]) == (1, 2)
    made = versions(pipeline)

    (folder / "repaired").touch()
    done = run(pipeline, lambda: spark, run_id="first")
    assert done.state == "done"
    assert [step.attempts for step in done.steps.values()] == [1] * 10 + [2, 1]
    assert versions(pipeline) == made
    rows = glaive.dataset(pipeline.datasets["shop"]).to_table().sort_by("id").to_pylist()
    assert [(row["id"], row["price"], row["length"], row["double"]) for row in rows] == [
        (1, 3.5, 3, 7.0),
        (2, 7.0, 3, 14.0),
        (4, 1.0, 3, 2.0),
        (9, 7.0, 3, 14.0),
    ]
    rejected = glaive.dataset(pipeline.datasets["rejected"]).to_table().to_pylist()
    assert [(row["reason"], json.loads(row["record"])["price"]) for row in rejected] == [
        ("expectation expect: price > 0", -1.0),
        ("expectation affordable: price < 8", 8.0),
    ]

    page = (folder / "shop.runs" / "first" / "report.html").read_text("utf-8")
    assert "Prices &amp; &lt;names&gt;" in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<section") == len(done.steps)

    # Killed after the commits, before they were written down: nothing is done twice.
    for step in done.steps.values():
        step.state = "failed"
    again = run(pipeline, lambda: spark, record=done)
    assert again.state == "done"
    assert versions(pipeline) == made


@pytest.mark.parametrize("kind", ["sql", "merge"])
def test_rows_that_are_not_as_expected_fail_their_step(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    text = '[datasets]\nt = "t.lance"\n[steps.one]\ntarget = "t"\nexpect = "id <> 1"\n'
    text += f'query = "SELECT id FROM range(3)"\nkind = "{kind}"\n'
    if kind == "merge":
        text += 'on = "id"\n'
        glaive.write_dataset(pa.table({"id": [0]}), str(tmp_path / "t.lance"))
    (tmp_path / "p.toml").write_text(text)
    pipeline = load(tmp_path / "p.toml")
    message = r'step one: a row violates the expectation expect: id <> 1: \{"id":1\}'
    with pytest.raises(ExpectationError, match=message):
        run(pipeline, lambda: spark)
    record = Runs.of(pipeline).latest()
    assert (record.state, record.steps["one"].state) == ("failed", "failed")
    assert "a row violates the expectation" in str(record.steps["one"].error)
    if kind == "merge":
        assert glaive.dataset(tmp_path / "t.lance").version == 1
    else:
        with pytest.raises(DatasetNotFoundError):
            glaive.dataset(tmp_path / "t.lance")


def test_a_run_goes_on_only_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    text = '[parameters]\nrows = 3\n[datasets]\nt = "t.lance"\n[steps.one]\nkind = "sql"\n'
    text += 'target = "t"\nquery = "SELECT id FROM range(${rows})"\n'
    file = tmp_path / "p.toml"
    file.write_text(text)
    record: RunRecord = run(load(file), lambda: spark, run_id="r")
    with pytest.raises(OptionError, match=r"it had the parameters \{'rows': 3\}"):
        run(load(file, {"rows": 4}), lambda: spark, run_id=record.id)
    file.write_text(text.replace("SELECT id", "SELECT id + 1 AS id"))
    with pytest.raises(OptionError, match="the step 'one' was done and has other keys now"):
        run(load(file), lambda: spark, run_id=record.id)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("keys", "query", "changed"),
    [
        ('mode = "append"', "id FROM range(3)", "id + 1 AS id FROM range(3)"),
        ('mode = "append"\nbranch = "b"', "id FROM range(3)", "id + 1 AS id FROM range(3)"),
        ('expect = "id < 2"\non_violation = "quarantine"\nquarantine = "q"', "id", "id, 1 AS x"),
    ],
)
def test_a_step_that_was_changed_is_not_taken_for_one_that_committed(
    spark: SparkSession, tmp_path: Path, keys: str, query: str, changed: str
) -> None:
    glaive.write_dataset(pa.table({"id": [0]}), tmp_path / "t.lance")
    if "FROM" not in query:
        query, changed = (f"{columns} FROM range(3)" for columns in (query, changed))
    file, text = tmp_path / "p.toml", '[datasets]\nt = "t.lance"\nq = "q.lance"\n[steps.one]\n'
    text += f'kind = "sql"\ntarget = "t"\n{keys}\nquery = "SELECT '
    file.write_text(f'{text}{query}"\n')
    quarantines = "quarantine" in keys

    def stopped(_: str, work: Any) -> Any:
        if quarantines:  # the rows that are put aside are committed, and then there is a dataset
            with pytest.raises(DatasetExistsError):
                work()
        else:
            work()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(load(file), lambda: spark, run_id="r", observer=stopped)
    file.write_text(f'{text}{changed}"\n')
    with pytest.raises(OptionError, match="the step 'one' was done and has other keys now"):
        run(load(file), lambda: spark, run_id="r")
    file.write_text(f'{text}{query}"\n')
    if quarantines:
        assert glaive.dataset(tmp_path / "q.lance").count_rows() == 1
    else:
        assert run(load(file), lambda: spark, run_id="r").state == "done"


def test_columns_are_all_made_by_the_function_that_the_step_has_now(
    spark: SparkSession, tmp_path: Path
) -> None:
    glaive.write_dataset(pa.table({"id": range(6)}), tmp_path / "t.lance", max_rows_per_file=2)
    (tmp_path / "changed_steps.py").write_text(
        "import pyarrow as pa\nimport pyarrow.compute as pc\n"
        "def first(batch):\n"
        "    if 5 in batch['id'].to_pylist():\n        raise ValueError('five')\n"
        "    return pa.record_batch([pc.multiply(batch['id'], 0)], ['x'])\n"
        "def second(batch):\n"
        "    return pa.record_batch([pc.add(batch['id'], 1)], ['x'])\n"
    )
    file, text = tmp_path / "p.toml", 'modules = ["changed_steps.py"]\n[datasets]\nt = "t.lance"\n'
    text += '[steps.one]\nkind = "add_columns"\ntarget = "t"\nfunction = "changed_steps:'
    file.write_text(f'{text}first"\n')
    try:
        with pytest.raises(PythonException, match="five"):
            run(load(file), lambda: spark, run_id="r")
        assert list((tmp_path / "p.runs" / "r").rglob("*.json")) != []
        file.write_text(f'{text}second"\n')
        run(load(file), lambda: spark, run_id="r")
    finally:
        sys.path.remove(str(tmp_path))
    assert glaive.dataset(tmp_path / "t.lance").to_table()["x"].to_pylist() == [1, 2, 3, 4, 5, 6]


def test_a_step_that_brought_indices_up_to_date_is_not_done_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    dataset = glaive.write_dataset(pa.table({"id": [0, 1]}), str(tmp_path / "t.lance"))
    dataset.create_scalar_index("id", "BTREE")
    dataset.insert(pa.table({"id": [2]}))
    text = '[datasets]\nt = "t.lance"\n[steps.indices]\nkind = "index"\ntarget = "t"\n'
    (tmp_path / "p.toml").write_text(f"{text}update = true\n")
    pipeline = load(tmp_path / "p.toml")

    def unindexed() -> int:
        rows: int = glaive.dataset(dataset.uri).stats.index_stats("id_idx")["num_unindexed_rows"]
        return rows

    assert unindexed() == 1
    done = run(pipeline, lambda: spark)
    assert unindexed() == 0
    assert done.steps["indices"].counts == {"version": 4}
    dataset.insert(pa.table({"id": [3]}))
    done.steps["indices"].state = "failed"  # It was killed after its commit.
    assert run(pipeline, lambda: spark, record=done).steps["indices"].counts == {"version": 4}
    assert unindexed() == 1


STAGED = """
name = "staged"
[parameters]
highest = 4
[datasets]
t = "t.lance"
[steps.more]
kind = "sql"
query = "SELECT id + 10 AS id, id + 2 AS price FROM range(3)"
target = "t"
mode = "append"
branch = "staging"
[steps.dedupe]
kind = "dedupe"
target = "t"
columns = "price"
branch = "staging"
[steps.publish]
kind = "publish"
target = "t"
branch = "staging"
expect = { cheap = "price <= ${highest}", known = "id >= 0" }
[steps.export]
kind = "export"
source = "t"
path = "files"
"""


def test_what_a_branch_gets_is_seen_once_it_is_as_expected(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t.lance")
    glaive.write_dataset(pa.table({"id": [1], "price": [2]}), uri)
    (tmp_path / "p.toml").write_text(STAGED)

    message = "step publish: 1 rows of branch staging of t violate the expectation cheap"
    with pytest.raises(ExpectationError, match=message):
        run(load(tmp_path / "p.toml", {"highest": 3}), lambda: spark, run_id="strict")
    assert glaive.dataset(uri).to_table().to_pylist() == [{"id": 1, "price": 2}]
    staged = glaive.dataset(uri, version=("staging", None))
    assert sorted(staged.to_table()["price"].to_pylist()) == [2, 3, 4]

    # Another run finds the branch, and the same rows twice.
    done = run(load(tmp_path / "p.toml"), lambda: spark, run_id="loose")
    assert [step.state for step in done.steps.values()] == ["done"] * 4
    assert sorted(glaive.dataset(uri).to_table()["price"].to_pylist()) == [2, 3, 4]
    assert done.steps["publish"].counts["num_files_copied"] > 0
    assert done.steps["publish"].before["t"] != done.steps["publish"].after_it["t"]
    assert done.steps["export"].counts["rows"] == 3

    version = glaive.dataset(uri).version
    done.steps["publish"].state = "failed"  # killed before the commit was written down
    assert run(load(tmp_path / "p.toml"), lambda: spark, record=done).state == "done"
    assert glaive.dataset(uri).version == version
