"""Rules of a table: constraints, defaults and generated columns, for every writer."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from click.testing import CliRunner

import glaive
from glaive.cli.main import cli
from glaive.dataset.writing.plan import WriteOptions, plan_write
from glaive.errors import CommitConflictError, FilterError, OptionError, SchemaError

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("price", pa.float64()),
        pa.field("amount", pa.int32(), nullable=False, metadata={"glaive.default": "1"}),
        pa.field("label", pa.string(), metadata={"glaive.default": "'new'"}),
        pa.field("total", pa.float64(), metadata={"glaive.generated": "price * amount"}),
    ]
)
NAMES = SCHEMA.names

ROWS = pa.table(
    {
        "id": [1, 2],
        "price": [1.0, 2.0],
        "amount": pa.array([1, 3], pa.int32()),
        "label": ["a", "b"],
        "total": [1.0, 6.0],
    },
    schema=SCHEMA,
)


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def dataset(request: Any, tmp_path: Path) -> glaive.LanceDataset:
    """Write a dataset with a rule of each kind."""
    stable: bool = request.param
    made = glaive.write_dataset(ROWS, tmp_path / "t", enable_stable_row_ids=stable)
    made.add_constraint("positive", "price > 0")
    return made


def as_pylance_reads(dataset: glaive.LanceDataset) -> list[tuple[Any, ...]]:
    """Return the rows by id."""
    table = lance.dataset(dataset.uri).to_table(columns=NAMES).sort_by("id")
    return [tuple(row.values()) for row in table.to_pylist()]


FIRST = [(1, 1.0, 1, "a", 1.0), (2, 2.0, 3, "b", 6.0)]

Change = Callable[[glaive.LanceDataset, Any], object]


def _insert(dataset: glaive.LanceDataset, rows: Any) -> None:
    dataset.insert(rows)


def _append_in_batches(dataset: glaive.LanceDataset, rows: Any) -> None:
    table = pa.table(rows)
    batches = [batch for at in range(table.num_rows) for batch in table.slice(at, 1).to_batches()]
    reader = pa.RecordBatchReader.from_batches(table.schema, batches)
    glaive.write_dataset(reader, dataset.uri, mode="append")


def _commit_fragments(dataset: glaive.LanceDataset, rows: Any) -> None:
    fragments = glaive.fragment.write_fragments(pa.table(rows), dataset)
    append = glaive.LanceOperation.Append(fragments)
    glaive.LanceDataset.commit(dataset.uri, append, read_version=dataset.version)


def _merge(dataset: glaive.LanceDataset, rows: Any) -> None:
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(pa.table(rows))


WRITERS = [_insert, _append_in_batches, _commit_fragments, _merge]


@pytest.mark.parametrize("write", WRITERS)
def test_rows_get_values_for_columns_that_they_lack(
    write: Change, dataset: glaive.LanceDataset
) -> None:
    write(dataset, {"id": [3, 4], "price": [5.0, None]})
    expected = [*FIRST, (3, 5.0, 1, "new", 5.0), (4, None, 1, "new", None)]
    assert as_pylance_reads(dataset) == expected


@pytest.mark.parametrize("write", WRITERS)
def test_given_values_are_kept(write: Change, dataset: glaive.LanceDataset) -> None:
    amount = pa.array([4], pa.int32())
    write(dataset, {"id": [3], "price": [5.0], "amount": amount, "label": [None], "total": [20.0]})
    assert as_pylance_reads(dataset) == [*FIRST, (3, 5.0, 4, None, 20.0)]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            {"id": [3, 4, 5], "price": [1.0, -2.0, -3.0]},
            r"CHECK constraint 'positive' \(price > 0\) is broken by row [01], price = -2\.0",
        ),
        (
            {"id": [3], "price": [1.0], "total": [9.0]},
            r"'total' \(price \* amount\) is broken by row 0, price = 1\.0, .*total = 9\.0",
        ),
        (
            {"id": [3], "price": [1.0], "total": pa.array([None], pa.float64())},
            r"generated column 'total' .* total = None",
        ),
        ({"id": [3], "amount": pa.array([None], pa.int32())}, "amount"),
    ],
    ids=["check", "generated", "generated null", "not null"],
)
def test_rows_that_break_a_rule_are_refused(
    write: Change, rows: Any, message: str, dataset: glaive.LanceDataset
) -> None:
    version = dataset.version
    with pytest.raises(SchemaError, match=message):
        write(dataset, rows)
    assert dataset.latest_version == version
    assert as_pylance_reads(dataset) == FIRST


def test_updates_compute_generated_columns_again(dataset: glaive.LanceDataset) -> None:
    dataset.create_scalar_index("total", "BTREE")
    dataset.update({"price": "price + 1"}, where="id = 2")
    assert as_pylance_reads(dataset) == [FIRST[0], (2, 3.0, 3, "b", 9.0)]
    assert dataset.to_table(columns=["id"], filter="total = 9").num_rows == 1
    assert dataset.to_table(columns=["id"], filter="total = 6").num_rows == 0
    for change in ({"price": "-price"}, {"total": "5"}):
        with pytest.raises(SchemaError, match="is broken by row 0"):
            dataset.update(change, where="id = 2")


def test_merges_keep_columns_that_they_do_not_set(dataset: glaive.LanceDataset) -> None:
    _merge(dataset, {"id": [2, 3], "price": [10.0, 4.0]})
    assert as_pylance_reads(dataset) == [FIRST[0], (2, 10.0, 3, "b", 30.0), (3, 4.0, 1, "new", 4.0)]
    with pytest.raises(SchemaError, match="'positive'"):
        _merge(dataset, {"id": [2], "price": [-1.0]})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda d: d.add_constraint("a", "price > 1"), SchemaError, r"price = 1\.0"),
        (lambda d: d.add_constraint("a", "cost > 1"), FilterError, "cost"),
        (lambda d: d.add_constraint("a", "price > 1) or (true"), FilterError, "character"),
        (lambda d: d.add_constraint("a", "price"), FilterError, "price"),
        (lambda d: d.add_constraint("a", "random() > 0"), OptionError, "columns of a row alone"),
        (lambda d: d.add_constraint("a", "1 < 2"), OptionError, "'1 < 2'"),
        (lambda d: d.add_constraint("positive", "id > 0"), OptionError, "exists: price > 0"),
        (lambda d: d.add_constraint(" ", "id > 0"), OptionError, "Name it"),
        (lambda d: d.drop_constraint("b"), OptionError, "has the constraints positive"),
        (lambda d: d.drop_columns(["price"]), SchemaError, "cannot be dropped: CHECK"),
        (lambda d: d.drop_columns(["amount"]), SchemaError, "generated column 'total'"),
        (
            lambda d: d.alter_columns({"path": "price", "name": "p"}),
            SchemaError,
            "cannot be renamed or cast: CHECK constraint 'positive'",
        ),
        (
            lambda d: d.alter_columns({"path": "amount", "data_type": pa.int64()}),
            SchemaError,
            "cannot be renamed or cast: generated column 'total'",
        ),
        (
            lambda d: d.alter_columns({"path": "id", "default": "price"}),
            SchemaError,
            "uses the columns price",
        ),
        (lambda d: d.alter_columns({"path": "id", "default": "'x'"}), SchemaError, "Cannot cast"),
        (lambda d: d.alter_columns({"path": "id", "default": "("}), SchemaError, "default"),
        (
            lambda d: d.alter_columns({"path": "id", "generated": "amount"}),
            SchemaError,
            "'id' .* id = 2",
        ),
        (
            lambda d: d.alter_columns({"path": "id", "generated": "total"}),
            SchemaError,
            "uses a generated column",
        ),
        (
            lambda d: d.alter_columns({"path": "label", "generated": "'x'"}),
            SchemaError,
            "does not depend on columns",
        ),
        (
            lambda d: d.alter_columns({"path": "id", "default": "1", "name": "i"}),
            OptionError,
            "same call",
        ),
        (
            lambda d: (
                d.merge_insert("id")
                .when_matched_update_all()
                .write_mode("rewrite_columns")
                .execute(pa.table({"id": [1], "price": [3.0]}))
            ),
            SchemaError,
            "written without their rows: CHECK",
        ),
    ],
)
def test_changes_that_break_rules_are_refused(
    change: Callable[[glaive.LanceDataset], object],
    error: type[Exception],
    message: str,
    dataset: glaive.LanceDataset,
) -> None:
    version = dataset.version
    with pytest.raises(error, match=message):
        change(dataset)
    assert dataset.latest_version == version


def test_rules_are_dropped_and_set(dataset: glaive.LanceDataset) -> None:
    dataset.drop_constraint("positive")
    dataset.drop_constraint("positive", ignore_not_found=True)
    dataset.alter_columns({"path": "total", "generated": None})
    dataset.alter_columns(
        {"path": "label", "default": None}, {"path": "amount", "default": "'7'", "nullable": False}
    )
    dataset.insert({"id": [3], "price": [-1.0]})
    assert as_pylance_reads(dataset) == [*FIRST, (3, -1.0, 7, None, None)]
    dataset.alter_columns({"path": "price", "name": "cost"})
    dataset.insert({"id": [4]})
    assert dataset.to_table(filter="id = 4").to_pylist()[0]["amount"] == 7


def test_rules_survive_changes_by_pylance(dataset: glaive.LanceDataset) -> None:
    theirs = lance.dataset(dataset.uri)
    lance.write_dataset(ROWS.slice(0, 0), theirs, mode="append")
    theirs.checkout_version(theirs.latest_version)
    theirs.update({"label": "'c'"}, where="id = 2")
    theirs.optimize.compact_files()
    theirs.delete("id = 1")
    theirs.add_columns({"more": "id + 1"})
    theirs.drop_columns(["more"])
    at = glaive.dataset(dataset.uri)
    at.insert({"id": [3], "price": [5.0]})
    assert as_pylance_reads(at) == [(2, 2.0, 3, "c", 6.0), (3, 5.0, 1, "new", 5.0)]
    with pytest.raises(SchemaError, match="'positive'"):
        at.insert({"id": [4], "price": [-5.0]})


def test_the_row_that_breaks_a_rule_is_counted_over_all_batches(
    dataset: glaive.LanceDataset,
) -> None:
    good = ROWS.select(["id", "price"])
    bad = pa.table({"id": [7, 8, 9], "price": [1.0, -1.0, 1.0]})
    table = pa.concat_tables([good, good, bad])
    for rows in (table, table.to_reader()):
        with pytest.raises(SchemaError, match=r"'positive' .* is broken by row 5, price = -1\.0"):
            dataset.insert(rows)
    assert dataset.count_rows() == 2


@pytest.mark.parametrize(
    ("updates", "message"),
    [({"price": "-1", "total": "-3"}, "'positive'"), ({"total": "7"}, "generated column 'total'")],
)
def test_checks_tell_of_rows_that_pylance_wrote(
    updates: dict[str, str], message: str, dataset: glaive.LanceDataset
) -> None:
    dataset.validate()
    lance.dataset(dataset.uri).update(updates, where="id = 2")
    at = glaive.dataset(dataset.uri)
    with pytest.raises(SchemaError, match=message):
        at.validate()
    told = CliRunner().invoke(cli, ["verify", at.uri, "--newest"])
    assert told.exit_code == 1
    assert message in told.output
    at.optimize.compact_files()  # such rows can be moved
    at.delete("id = 2")
    at.validate()


def test_a_constraint_conflicts_with_rows_written_meanwhile(dataset: glaive.LanceDataset) -> None:
    other = glaive.dataset(dataset.uri)
    other.insert({"id": [3], "price": [0.5]})
    with pytest.raises(SchemaError, match=r"price = 0\.5"):  # it reads the new rows
        dataset.add_constraint("more", "price >= 1")
    plan = plan_write(other.store, other.schema, WriteOptions(mode="append"), other.manifest)
    dataset.add_constraint("some", "price > 0.1")
    written = glaive.fragment.write_fragments(pa.table({"id": [4], "price": [0.05]}), other)
    append = glaive.LanceOperation.Append(written)
    with pytest.raises(CommitConflictError, match="rules"):
        glaive.LanceDataset.commit(other.uri, append, read_version=other.version)
    assert pickle.loads(pickle.dumps(plan)).rules == plan.rules


def test_an_overwrite_keeps_constraints_and_replaces_columns(dataset: glaive.LanceDataset) -> None:
    with pytest.raises(SchemaError, match="'positive'"):
        glaive.write_dataset({"price": [-1.0]}, dataset, mode="overwrite")
    with pytest.raises(SchemaError, match=r"drop_constraint\('positive'\)"):
        glaive.write_dataset({"id": [1]}, dataset, mode="overwrite")
    made = glaive.write_dataset({"id": [1], "price": [2.0]}, dataset, mode="overwrite")
    made.insert({"id": [2]})
    assert made.to_table().to_pylist() == [{"id": 1, "price": 2.0}, {"id": 2, "price": None}]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (pa.field("x", pa.int64(), metadata={"glaive.generated": "y + 1"}), "y"),
        (pa.field("x", pa.int64(), metadata={"glaive.default": "uuid()"}), "Cannot cast"),
        (pa.field("x", pa.int64(), metadata={"glaive.default": "1 +"}), "default is invalid"),
    ],
)
def test_a_new_dataset_refuses_invalid_rules(field: pa.Field, message: str, tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([1], field.type)}, schema=pa.schema([field]))
    with pytest.raises(SchemaError, match=message):
        glaive.write_dataset(table, tmp_path / "t")


VALUES = {
    "string view": (pa.array(["a", None], pa.string_view()), pa.string(), "c = 'a'", "c = 'b'"),
    "dictionary": (
        pa.array(["a", None]).dictionary_encode(),
        pa.dictionary(pa.int32(), pa.string()),
        "c = 'a'",
        "c = 'b'",
    ),
    "struct": (
        pa.array([{"x": 1, "y": None}, None]),
        pa.struct({"x": pa.int64(), "y": pa.int64()}),
        "c.x = 1",
        "c.x = 2",
    ),
    "list": (pa.array([[1, 2], None]), pa.list_(pa.int64()), "c[1] = 1", "c[1] = 2"),
    "json": (
        pa.array(['{"x": 1}', None], pa.json_()),
        pa.json_(),
        "json_get_int(c, 'x') = 1",
        "json_get_int(c, 'x') = 2",
    ),
    "binary": (pa.array([b"a", None]), pa.large_binary(), "c = X'61'", "c = X'62'"),
    "time": (
        pa.array([1, None], pa.timestamp("us")),
        pa.timestamp("us"),
        "c < timestamp '2000-01-01'",
        "c > timestamp '2000-01-01'",
    ),
}


@pytest.mark.parametrize("kind", VALUES)
def test_constraints_take_values_of_every_kind(kind: str, tmp_path: Path) -> None:
    values, stored, true, false = VALUES[kind]
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("c", stored)])
    at = glaive.write_dataset(schema.empty_table(), tmp_path / "t")
    at.add_constraint("c", f"id < 0 OR ({true})")
    rows = pa.table({"id": [1, 2], "c": values})
    at.insert(rows)
    at.insert({"id": [3]})
    at.validate()
    at.drop_constraint("c")
    at.add_constraint("d", f"id < 5 OR ({false})")
    with pytest.raises(SchemaError, match="'d'"):
        at.insert(pa.table({"id": [6], "c": values[:1]}))
    assert at.count_rows() == 3


def test_values_may_differ_for_each_row(tmp_path: Path) -> None:
    fields = [pa.field("id", pa.int64()), pa.field("key", pa.string(), nullable=False)]
    at = glaive.write_dataset(pa.schema(fields).empty_table(), tmp_path / "t")
    at.alter_columns({"path": "key", "default": "uuid()"})
    at.insert({"id": range(100)})
    assert len(set(at.to_table()["key"].to_pylist())) == 100


def test_ingested_files_get_values_for_columns_that_they_lack(
    dataset: glaive.LanceDataset, tmp_path: Path
) -> None:
    for name, text in {
        "a": "id,price\n3,5.5\n",
        "b": "id,price\n4,\n",
        "c": "id,price\n5,-1\n",
    }.items():
        (tmp_path / f"{name}.csv").write_text(text)
    glaive.ingest([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")], dataset.uri, mode="append")
    expected = [*FIRST, (3, 5.5, 1, "new", 5.5), (4, None, 1, "new", None)]
    assert as_pylance_reads(dataset) == expected
    with pytest.raises(SchemaError, match="'positive'"):
        glaive.ingest(str(tmp_path / "c.csv"), dataset.uri, mode="append")
    (tmp_path / "d.csv").write_text("id,price,amount\n6,1,2\n")
    with pytest.raises(SchemaError, match="amount is in some files only"):
        glaive.ingest(
            [str(tmp_path / "a.csv"), str(tmp_path / "d.csv")], dataset.uri, mode="append"
        )


def test_branches_keep_rules(dataset: glaive.LanceDataset) -> None:
    branch = dataset.create_branch("b")
    branch.insert({"id": [3], "price": [5.0]})
    assert branch.to_table(filter="id = 3").to_pylist()[0]["total"] == 5.0
    with pytest.raises(SchemaError, match="'positive'"):
        branch.insert({"id": [4], "price": [-5.0]})
