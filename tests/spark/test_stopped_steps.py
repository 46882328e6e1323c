"""Steps that are stopped between their commits, or before these are written down, and go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everywhere in Spark

import glaive
import glaive.spark
from glaive.errors import (
    CommitConflictError,
    DatasetExistsError,
    DatasetNotFoundError,
    JobError,
    OptionError,
)
from glaive.pipeline import load, run

pytestmark = pytest.mark.spark

STEP = """
[datasets]
source = "source.lance"
t = "t.lance"
rejected = "rejected.lance"
[steps.one]
target = "t"
expect = "n < 100"
on_violation = "quarantine"
quarantine = "rejected"
"""


def stopped(_: str, work: Any) -> Any:
    """Do the work of a step, and end before that is written down."""
    work()
    raise KeyboardInterrupt


def numbers(folder: Path, name: str) -> list[int]:
    try:
        return sorted(glaive.dataset(folder / f"{name}.lance").to_table()["n"].to_pylist())
    except DatasetNotFoundError:
        return []


def put_aside(folder: Path) -> list[bytes]:
    try:
        return glaive.dataset(folder / "rejected.lance").to_table()["record"].to_pylist()
    except DatasetNotFoundError:
        return []


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("keys", ['kind = "sql"\nmode = "append"', 'kind = "merge"\non = "id"'])
def test_a_step_that_has_committed_puts_no_other_rows_aside(
    spark: SparkSession, tmp_path: Path, keys: str
) -> None:
    glaive.write_dataset(pa.table({"id": [1, 2], "n": [10, 40]}), tmp_path / "t.lance")
    query = "SELECT id + 10 AS id, n * 2 AS n FROM t"
    (tmp_path / "p.toml").write_text(f'{STEP}{keys}\nquery = "{query}"\n')

    with pytest.raises(KeyboardInterrupt):
        run(load(tmp_path / "p.toml"), lambda: spark, run_id="r", observer=stopped)
    assert numbers(tmp_path, "t") == [10, 20, 40, 80]
    # The query has other rows now, one of which is not as expected.
    done = run(load(tmp_path / "p.toml"), lambda: spark, run_id="r")
    assert (done.state, done.steps["one"].counts["version"]) == ("done", 2)
    assert numbers(tmp_path, "t") == [10, 20, 40, 80]
    assert put_aside(tmp_path) == []


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("changed", "found"), [({}, None), ({2: 20}, "0"), ({2: 20, 3: 300}, "others")]
)
def test_a_step_that_was_stopped_loses_and_doubles_no_row_that_is_not_as_expected(
    spark: SparkSession, tmp_path: Path, changed: dict[int, int], found: str | None
) -> None:
    source = glaive.write_dataset(
        pa.table({"id": [1, 2, 3], "n": [10, 200, 30]}), tmp_path / "source.lance"
    )
    blocked = glaive.write_dataset(pa.table({"n": [0]}), tmp_path / "t.lance")
    (tmp_path / "p.toml").write_text(f'{STEP}kind = "sql"\nquery = "SELECT id, n FROM source"\n')
    with pytest.raises(DatasetExistsError):  # once the rows are put aside
        run(load(tmp_path / "p.toml"), lambda: spark, run_id="r")
    before = put_aside(tmp_path)
    assert before == [b'{"id":2,"n":200}']
    glaive.LanceDataset.drop(blocked.uri)
    for number, n in changed.items():
        source.update({"n": f"{n}"}, where=f"id = {number}")
    if found is None:
        assert run(load(tmp_path / "p.toml"), lambda: spark, run_id="r").state == "done"
        assert numbers(tmp_path, "t") == [10, 30]
    else:
        with pytest.raises(OptionError, match=f"put 1 rows into .* Now {found} were found: "):
            run(load(tmp_path / "p.toml"), lambda: spark, run_id="r")
        assert numbers(tmp_path, "t") == []
    assert put_aside(tmp_path) == before


def test_rows_that_a_cluster_lost_between_two_commits_are_not_computed_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the query gives other rows each time, some would be in neither dataset, or in both."""
    monkeypatch.setattr("glaive.spark.lance_table.merge.can_lose_rows", lambda _: True)
    source = tmp_path / "n.txt"
    source.write_text("10\n200\n")

    now = F.udf(lambda line: int(source.read_text().split()[line]), "int")
    spark.udf.register("n_now", now.asNondeterministic())
    query = "SELECT CAST(id AS int) AS id, n_now(CAST(id AS int)) AS n FROM range(2)"
    (tmp_path / "p.toml").write_text(f'{STEP}kind = "sql"\nquery = "{query}"\n')
    write = glaive.spark.write

    def lose(*args: Any, **options: Any) -> Any:
        made = write(*args, **options)
        if str(args[1]).endswith("rejected.lance"):
            source.write_text("100\n20\n")
            context: Any = spark.sparkContext._jsc  # noqa: SLF001  # PySpark itself lists none
            for kept in list(context.getPersistentRDDs().values()):
                kept.unpersist(True)
        return made

    monkeypatch.setattr(glaive.spark, "write", lose)
    with pytest.raises(JobError, match="Checkpoint block"):
        run(load(tmp_path / "p.toml"), lambda: spark, run_id="r")
    assert put_aside(tmp_path) == [b'{"id":1,"n":200}']
    assert numbers(tmp_path, "t") == []


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("can_lose_rows", [False, True])
def test_a_step_that_replaces_what_it_reads_keeps_rows_that_others_added_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_lose_rows: bool
) -> None:
    """Where Spark keeps the rows of a step, its plan does not say what they were made from."""
    monkeypatch.setattr("glaive.spark.lance_table.merge.can_lose_rows", lambda _: can_lose_rows)
    vectors = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    rows = pa.table({"id": [1, 2], "n": [10, 200], "v": vectors})
    table = glaive.write_dataset(rows, tmp_path / "t.lance")
    query = "SELECT id, max(n) AS n, first(v) AS v FROM t GROUP BY id"
    keys = f'kind = "sql"\nmode = "overwrite"\nquery = "{query}"\n'
    (tmp_path / "p.toml").write_text(f"{STEP}{keys}")
    write = glaive.spark.write

    def overtaken(*args: Any, **options: Any) -> Any:
        made = write(*args, **options)
        if str(args[1]).endswith("rejected.lance"):
            table.insert(rows.slice(0, 1))
        return made

    monkeypatch.setattr(glaive.spark, "write", overtaken)
    with pytest.raises(CommitConflictError, match="were made from version 1"):
        run(load(tmp_path / "p.toml"), lambda: spark, run_id="r")
    assert numbers(tmp_path, "t") == [10, 10, 200]
    assert run(load(tmp_path / "p.toml"), lambda: spark, run_id="r").state == "done"
    assert numbers(tmp_path, "t") == [10]
    again = glaive.dataset(tmp_path / "t.lance").schema
    assert again.field("v").type == vectors.type


def test_a_branch_that_was_published_may_have_other_rows_when_the_run_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = glaive.write_dataset(pa.table({"n": [1]}), tmp_path / "t.lance")
    branch = table.create_branch("staging")
    branch.insert(pa.table({"n": [2]}))
    keys = 'kind = "publish"\ntarget = "t"\nbranch = "staging"\nexpect = "n < 3"\n'
    (tmp_path / "p.toml").write_text(f'[datasets]\nt = "t.lance"\n[steps.one]\n{keys}')
    with pytest.raises(KeyboardInterrupt):
        run(load(tmp_path / "p.toml"), lambda: spark, run_id="r", observer=stopped)
    branch.insert(pa.table({"n": [9]}))
    done = run(load(tmp_path / "p.toml"), lambda: spark, run_id="r")
    assert (done.state, done.steps["one"].counts["version"]) == ("done", 2)
    assert numbers(tmp_path, "t") == [1, 2]


@pytest.mark.sampled(every=2)
def test_an_export_that_may_have_appended_its_rows_does_not_append_them_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    glaive.write_dataset(pa.table({"n": [1, 2]}), tmp_path / "t.lance")
    keys = 'kind = "export"\nsource = "t"\npath = "out"\nmode = "append"\n'
    (tmp_path / "p.toml").write_text(f'[datasets]\nt = "t.lance"\n[steps.one]\n{keys}')
    with pytest.raises(KeyboardInterrupt):
        run(load(tmp_path / "p.toml"), lambda: spark, run_id="r", observer=stopped)
    assert run(load(tmp_path / "p.toml"), lambda: spark, run_id="r").state == "done"
    assert spark.read.parquet(str(tmp_path / "out")).count() == 2
