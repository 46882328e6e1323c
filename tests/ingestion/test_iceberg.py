"""Iceberg tables as sources: snapshots, partitions, deleted rows, columns that changed."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, update_table_metadata
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType

import glaive
from glaive.arrow.blocks import fields_of, with_fields
from glaive.errors import OptionError, UnsupportedFeatureError
from glaive.ingestion import IngestTask
from glaive.ingestion.formats import StoreFiles, format_named
from glaive.ingestion.task import IngestedPieces


@pytest.fixture
def catalog(tmp_path: Path) -> Iterable[SqlCatalog]:
    made = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/lake")
    made.create_namespace("db")
    yield made
    made.close()


def small(*numbers: int, name: str = "n") -> pa.Table:
    return pa.table(
        {
            name: pa.array(numbers, pa.int64()),
            "s": pa.array([f"s{one}" for one in numbers], pa.string()),
        }
    )


def created(catalog: SqlCatalog, rows: pa.Table) -> Table:
    table = catalog.create_table("db.t", schema=rows.schema)
    table.append(rows)
    return table


def place(table: Table) -> str:
    return table.location().removeprefix("file://")


def ingested(source: object, **options: Any) -> list[dict[str, Any]]:
    """The rows of a snapshot, as pylance reads them from the dataset that glaive made."""
    uri = str(Path(str(source).removeprefix("file://")).parent / "t.lance")
    glaive.ingest(str(source), uri, format="iceberg", mode="overwrite", **options)
    rows = lance.dataset(uri).to_table().to_pylist()
    return sorted(rows, key=lambda row: int(row["number" if "number" in row else "n"]))


def rows_of(table: Table, snapshot: int | None = None) -> list[dict[str, Any]]:
    rows = table.scan(snapshot_id=snapshot).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: int(row["number" if "number" in row else "n"]))


def snapshot_ids(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.snapshots()]


def test_a_snapshot_has_the_rows_columns_and_types_of_the_table(catalog: SqlCatalog) -> None:
    rows = {
        "n": pa.array([1, 2, 3], pa.int64()),
        "small": pa.array([1, None, 3], pa.int32()),
        "day": [date(2026, 1, 1), None, date(2026, 1, 2)],
        "at": pa.array([datetime(2026, 1, n, tzinfo=UTC) for n in (1, 2, 3)]),
        "local": pa.array([datetime(2026, 1, n) for n in (1, 2, 3)]),  # noqa: DTZ001  # the type
        "price": [Decimal("1.50"), None, Decimal("-2.25")],
        "tags": [["x"], [], None],
        "at_home": [{"street": "a", "number": 1}, None, {"street": None, "number": 2}],
        "raw": [b"a", None, b""],
        "flag": [True, None, False],
    }
    table = created(catalog, pa.table(rows))
    assert ingested(place(table)) == rows_of(table)
    schema = glaive.dataset(Path(place(table)).parent / "t.lance").schema
    assert schema.names == list(rows)
    types = {name: schema.field(name).type for name in schema.names}
    assert types["price"] == pa.decimal128(3, 2)
    assert types["local"] == pa.timestamp("us")
    assert types["at"] == pa.timestamp("us", "UTC")
    assert types["tags"] == pa.list_(pa.field("element", pa.string()))


def test_a_snapshot_is_named_by_its_id_a_time_a_file_or_a_folder(catalog: SqlCatalog) -> None:
    table = created(catalog, small(1, 2))
    old = table.metadata_location
    table.append(small(3))
    table.delete("n = 1")
    first, second, _ = table.snapshots()
    folder = place(table)

    def seen(rows: list[dict[str, Any]]) -> list[int]:
        return [row["n"] for row in rows]

    assert seen(ingested(folder)) == [2, 3]
    assert seen(ingested(f"file://{folder}/")) == [2, 3]
    assert seen(ingested(old.removeprefix("file://"))) == [1, 2]
    assert seen(ingested(folder, reader_options={"version": second.snapshot_id})) == [1, 2, 3]
    by_text = {"version": str(first.snapshot_id)}  # as from a command line
    assert seen(ingested(folder, reader_options=by_text)) == [1, 2]
    moment = datetime.fromtimestamp(second.timestamp_ms / 1000, UTC).isoformat()
    assert seen(ingested(folder, reader_options={"asof": moment})) == [1, 2, 3]


def test_a_table_is_named_by_a_catalogue(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(catalog, small(1, 2))
    monkeypatch.setenv("PYICEBERG_CATALOG__C__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__C__URI", f"sqlite:///{tmp_path}/c.db")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", type(_config())())
    uri, how = tmp_path / "t.lance", {"format": "iceberg", "reader_options": {"catalog": "c"}}
    glaive.ingest("db.t", uri, **how)
    assert glaive.dataset(uri).to_table()["n"].to_pylist() == [1, 2]
    with pytest.raises(OptionError, match="no such Iceberg table"):
        glaive.ingest("db.other", uri, mode="overwrite", **how)


def _config() -> Any:
    import pyiceberg.catalog

    return cast("Any", pyiceberg.catalog)._ENV_CONFIG  # noqa: SLF001  # read once, at the import


def test_partitions_may_be_hidden_and_change(catalog: SqlCatalog) -> None:
    rows = small(1, 2, 3).append_column(
        "at", pa.array([datetime(2026, 1, n, tzinfo=UTC) for n in (1, 2, 2)])
    )
    table = catalog.create_table("db.t", schema=rows.schema)
    with table.update_spec() as spec:
        spec.add_field("at", DayTransform(), "at_day")
    table.append(rows)
    with table.update_spec() as spec:
        spec.remove_field("at_day")
        spec.add_field("s", IdentityTransform())
        spec.add_field("n", BucketTransform(4))
    table.append(rows)
    assert ingested(place(table)) == rows_of(table)
    assert len(ingested(place(table))) == 6


def test_names_of_partitions_may_have_any_characters(catalog: SqlCatalog) -> None:
    rows = pa.table({"n": [1, 2, 3, 4], "s": ["'a'", "x/y?#", "50%25", None]})
    table = catalog.create_table("db.t", schema=rows.schema)
    with table.update_spec() as spec:
        spec.add_field("s", IdentityTransform())
    table.append(rows)  # writes folders such as s=%27a%27
    assert ingested(place(table)) == rows_of(table) == rows.to_pylist()


def test_values_of_identity_partitions_come_from_the_metadata(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    table = catalog.create_table("db.t", schema=small().schema)
    with table.update_spec() as spec:
        spec.add_field("s", IdentityTransform())
    name = f"{tmp_path}/n.parquet"  # as Hive writes it: the file lacks the column
    pq.write_table(pa.table({"n": pa.array([1, 2], pa.int64())}), name)
    added = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{name}",
        file_format=FileFormat.PARQUET,
        partition=Record("ü/1"),
        record_count=2,
        file_size_in_bytes=Path(name).stat().st_size,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        split_offsets=[],
        sort_order_id=None,
        spec_id=table.spec().spec_id,
    )
    mapping = '[{"field-id": 1, "names": ["n"]}, {"field-id": 2, "names": ["s"]}]'
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": mapping})
        with change.update_snapshot().fast_append() as snapshot:
            snapshot.append_data_file(added)
    assert ingested(place(table)) == [{"n": 1, "s": "ü/1"}, {"n": 2, "s": "ü/1"}]


def test_columns_are_found_by_their_ids(catalog: SqlCatalog) -> None:
    table = created(catalog, small(1, 2))
    with table.update_schema() as change:
        change.rename_column("n", "number")
    with table.update_schema() as change:
        change.add_column("n", StringType())  # another column under the old name
        change.delete_column("s")
    table.append(pa.table({"number": pa.array([3], pa.int64()), "n": ["x"]}))
    first = snapshot_ids(table)[0]
    found = ingested(place(table))
    assert found == [{"number": 1, "n": None}, {"number": 2, "n": None}, {"number": 3, "n": "x"}]
    assert ingested(place(table), reader_options={"version": first}) == small(1, 2).to_pylist()


class DeleteWriter(ManifestWriterV2):  # type: ignore[misc]  # pyiceberg is optional
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES


def with_deletes(table: Table, content: DataFileContent, rows: pa.Table) -> str:
    """Add a snapshot with a file of deletes; return the file with the metadata."""
    folder, number = Path(place(table)), 1 + max(snapshot_ids(table))
    name = f"{folder}/data/deletes.parquet"
    pq.write_table(rows, name)
    at = table.metadata.last_sequence_number + 1
    deletes = DataFile.from_args(
        content=content,
        file_path=f"file://{name}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=Path(name).stat().st_size,
        equality_ids=[1] if content == DataFileContent.EQUALITY_DELETES else None,
        spec_id=table.spec().spec_id,
    )
    entry = ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=deletes
    )
    output = table.io.new_output(f"file://{folder}/metadata/deletes.avro")
    with DeleteWriter(table.spec(), table.schema(), output, number, "null") as writer:
        writer.add_entry(entry)
    last = table.current_snapshot()
    assert last is not None
    listed = f"file://{folder}/metadata/deletes-list.avro"
    manifests = [*last.manifests(table.io), writer.to_manifest_file()]
    with write_manifest_list(
        2, table.io.new_output(listed), number, last.snapshot_id, at, "null"
    ) as lists:
        lists.add_manifests(manifests)
    snapshot = Snapshot(
        snapshot_id=number,
        parent_snapshot_id=last.snapshot_id,
        sequence_number=at,
        timestamp_ms=last.timestamp_ms + 1,
        manifest_list=listed,
        summary=Summary(Operation.DELETE),
        schema_id=table.schema().schema_id,
    )
    ref = SetSnapshotRefUpdate(
        ref_name="main",
        type="branch",
        snapshot_id=number,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    metadata: TableMetadata = update_table_metadata(
        table.metadata, (AddSnapshotUpdate(snapshot=snapshot), ref)
    )
    written = f"{folder}/metadata/99999-deletes.metadata.json"
    ToOutputFile.table_metadata(metadata, table.io.new_output(f"file://{written}"))
    return written


def test_rows_in_positional_deletes_are_left_out(catalog: SqlCatalog) -> None:
    table = created(catalog, small(*range(100)))
    table.append(small(100))
    paths = [
        task.file.file_path for task in table.scan().plan_files() if task.file.record_count > 1
    ]
    rows = pa.table({"file_path": paths * 3, "pos": pa.array([0, 7, 99], pa.int64())})
    with_deletes(table, DataFileContent.POSITION_DELETES, rows)
    gone = {0, 7, 99}
    found = [row["n"] for row in ingested(place(table))]
    assert found == [number for number in range(101) if number not in gone]


def test_equality_deletes_are_refused(catalog: SqlCatalog) -> None:
    table = created(catalog, small(1, 2))
    rows = pa.table({"n": pa.array([1], pa.int64())})
    with_deletes(table, DataFileContent.EQUALITY_DELETES, rows)
    with pytest.raises(UnsupportedFeatureError, match=r"equality deletes.*Compact the table"):
        ingested(place(table))


def test_a_table_of_an_object_store_cannot_name_local_files() -> None:
    files = StoreFiles("s3://bucket/table", {})
    for name in ("file:///etc/passwd", "FILE:///etc/passwd", "/etc/passwd"):
        with pytest.raises(UnsupportedFeatureError, match="names a local file"):
            files.new_input(name)
    assert files.new_input("s3a://other/x.parquet").location == "s3://other/x.parquet"


def test_the_transaction_names_the_snapshot(catalog: SqlCatalog) -> None:
    table = created(catalog, small(1))
    ingested(place(table))
    made = glaive.dataset(Path(place(table)).parent / "t.lance")
    transaction = made.read_transaction(made.version)
    assert transaction is not None
    properties = transaction.transaction_properties or {}
    assert properties["iceberg.version"] == str(snapshot_ids(table)[0])
    assert properties["iceberg.table"] == table.location()


def test_tasks_are_small_whatever_the_history_of_the_table(catalog: SqlCatalog) -> None:
    table = created(catalog, small(1))
    sizes = []
    for number in range(2, 12):
        table.overwrite(small(number))
        source = format_named("iceberg", {})
        source.files([place(table)], {})
        sizes.append(len(pickle.dumps(source)))
    assert sizes[-1] < sizes[0] + 200


def test_a_task_has_only_its_own_files(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = created(catalog, small(1))
    for number in range(2, 9):
        table.append(small(number))
    tasks: list[IngestTask] = []

    def driver(given: Sequence[IngestTask]) -> Iterator[tuple[int, IngestedPieces]]:
        tasks.extend(given)
        yield from ((at, task.execute()) for at, task in enumerate(given))

    uri = tmp_path / "t.lance"
    glaive.ingest(place(table), uri, format="iceberg", task_bytes=1, driver=driver)
    assert lance.dataset(str(uri)).count_rows() == 8
    names = [entry.file.file_path for entry in table.scan().plan_files()]
    assert len(tasks) == len(names)
    for task in tasks:
        assert sum(name.encode() in pickle.dumps(task) for name in names) == 1


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_columns_of_all_types_are_loaded_again(
    catalog: SqlCatalog, tmp_path: Path, mode: str
) -> None:
    identity = UUID(int=7).bytes
    values: dict[str, tuple[pa.DataType, object]] = {
        "uuid": (pa.uuid(), identity),
        "uuids": (pa.list_(pa.uuid()), [identity, None]),
        "by_uuid": (pa.map_(pa.uuid(), pa.uuid()), [(identity, None)]),
        "record": (pa.struct([pa.field("of", pa.uuid()), pa.field("at", pa.time64("us"))]), None),
        "time": (pa.time64("us"), time(1, 2, 3, 4)),
        "at": (pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=UTC)),
        "local": (pa.timestamp("us"), datetime(2026, 1, 1)),  # noqa: DTZ001  # the type
        "price": (pa.decimal128(38, 9), Decimal("1.5")),
        "fixed": (pa.binary(3), b"abc"),
        "map": (pa.map_(pa.string(), pa.list_(pa.string())), [("a", ["x", None])]),
        "lists": (pa.list_(pa.list_(pa.int64())), [[1, None], [], None]),
        "structs": (pa.list_(pa.struct([pa.field("a", pa.int64())])), [{"a": 1}, None]),
    }

    def rows(*numbers: int) -> pa.Table:
        columns = {
            name: pa.array([value if number % 2 else None for number in numbers], stored(kind))
            for name, (kind, value) in values.items()
        }
        typed = {name: columns[name].cast(kind) for name, (kind, _) in values.items()}
        return pa.table({"n": pa.array(numbers, pa.int64()), **typed})

    def stored(kind: Any) -> Any:
        """The type with bytes in place of UUIDs, from which Arrow can make values."""
        if kind == pa.uuid():
            return pa.binary(16)
        below = [field.with_type(stored(field.type)) for field in fields_of(kind)]
        return with_fields(kind, below)

    table, uri = created(catalog, rows(1, 2, 3)), tmp_path / "t.lance"
    load: dict[str, Any] = {"format": "iceberg", "mode": mode, "once": True}
    if mode == "merge":
        load["merge_keys"] = ["n", "uuid"]
        table.delete("n = 2")  # an old row with null in a key would be refused
    glaive.ingest(place(table), uri, **load)
    if mode == "merge":
        table.delete("n = 1")
    table.append(rows(4, 5))
    glaive.ingest(place(table), uri, **load)
    found = lance.dataset(str(uri)).to_table().sort_by("n")
    assert found.to_pylist() == table.scan().to_arrow().sort_by("n").to_pylist()
    assert found.schema.field("uuid").type == pa.uuid()


def test_a_dropped_column_is_null_in_new_rows(catalog: SqlCatalog, tmp_path: Path) -> None:
    table, uri = created(catalog, small(1)), tmp_path / "t.lance"
    load: dict[str, Any] = {"format": "iceberg", "mode": "append", "once": True}
    glaive.ingest(place(table), uri, **load)
    with table.update_schema() as change:
        change.delete_column("s")
    table.append(small(2).select(["n"]))
    glaive.ingest(place(table), uri, schema_drift="add", **load)
    found = lance.dataset(str(uri)).to_table().to_pylist()
    assert found == [{"n": 1, "s": "s1"}, {"n": 2, "s": None}]
    table.delete("n = 1")
    with pytest.raises(OptionError, match="lacks"):
        glaive.ingest(
            place(table), uri, schema_drift="add", **{**load, "mode": "merge"}, merge_keys="s"
        )


def test_what_cannot_be_read_is_refused(catalog: SqlCatalog, tmp_path: Path) -> None:
    for source in (tmp_path / "nothing", tmp_path / "no.metadata.json"):
        with pytest.raises(OptionError, match="no such Iceberg table"):
            ingested(source)
    broken = tmp_path / "1.metadata.json"
    broken.write_text("{}")
    with pytest.raises(OptionError, match="no such Iceberg table"):
        ingested(broken)
    table = created(catalog, small(1))
    with pytest.raises(OptionError, match="no such Iceberg snapshot"):
        ingested(place(table), reader_options={"version": 7})
    with pytest.raises(OptionError, match="version and asof"):
        ingested(place(table), reader_options={"version": 7, "asof": "2026-01-01"})
    assert LongType() == table.schema().find_type("n")
