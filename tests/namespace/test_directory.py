"""A directory as a catalogue: its own tables, and those of pylance, in both directions."""

from __future__ import annotations

import pickle
import threading
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import lance_namespace as interface
import pyarrow as pa
import pytest
from tests.namespace.calls import ROWS, call, ipc, rows_of

import glaive
from glaive import tracing
from glaive.errors import GlaiveError
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore
from glaive.namespace import DirectoryNamespace, connect, folders
from glaive.namespace import errors as failures
from glaive.namespace.manifest_table import SCHEMA, ManifestTable

MODES: dict[str, dict[str, str]] = {
    "listing": {"manifest_enabled": "false"},
    "manifest": {"dir_listing_enabled": "false"},
    "both": {},
}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["glaive first", "pylance first"])
def pair(request: pytest.FixtureRequest, mode: str, tmp_path: Path) -> tuple[Any, ...]:
    """Two catalogues over one folder: of glaive and of pylance, the writer first."""
    pytest.importorskip("lance.namespace")
    properties = {"root": str(tmp_path), **MODES[mode]}
    both = [connect("dir", properties), interface.connect("dir", properties)]
    return tuple(both if request.param == "glaive first" else both[::-1])


@pytest.fixture
def catalogue(tmp_path: Path) -> DirectoryNamespace:
    return DirectoryNamespace(root=str(tmp_path))


@pytest.mark.spec("ns-2", "ns-5")
@pytest.mark.interop
def test_tables_of_one_are_tables_of_the_other(pair: tuple[Any, Any]) -> None:
    first, second = pair
    call(first, "create_table", ["t"], ipc())
    call(first, "declare_table", ["later"])
    assert call(second, "list_tables", []).tables == ["later", "t"]
    assert call(second, "count_table_rows", ["t"], predicate="a > 1").count == 2
    call(second, "insert_into_table", ["t"], ipc(), mode="append")
    assert call(first, "count_table_rows", ["t"]).count == 6
    with pytest.raises(interface.TableAlreadyExistsError):
        call(second, "declare_table", ["later"])
    call(second, "create_table", ["later"], ipc())
    assert call(first, "count_table_rows", ["later"]).count == 3
    call(second, "drop_table", ["later"])
    assert call(first, "list_tables", []).tables == ["t"]
    with pytest.raises(interface.TableNotFoundError):
        call(first, "describe_table", ["later"])


@pytest.mark.spec("ns-1")
@pytest.mark.interop
def test_deregistered_tables_are_gone_for_both(pair: tuple[Any, Any], mode: str) -> None:
    first, second = pair
    call(first, "create_table", ["t"], ipc())
    if mode == "both" and not isinstance(first, DirectoryNamespace):
        first = second  # pylance forgets the row only, and still lists the folder
    call(first, "deregister_table", ["t"])
    assert call(second, "list_tables", []).tables == []
    for catalogue in pair:
        with pytest.raises(interface.TableNotFoundError):
            call(catalogue, "describe_table", ["t"])


@pytest.mark.parametrize("location", ["o.lance", "t.lance"])
def test_a_name_that_was_deregistered_can_be_registered_again(
    tmp_path: Path, location: str
) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path))
    for name in ("o", "t"):
        call(catalogue, "create_table", [name], ipc())
        call(catalogue, "deregister_table", [name])
    call(catalogue, "register_table", ["t"], location=location)
    assert call(catalogue, "list_tables", []).tables == ["t"]
    assert call(catalogue, "describe_table", ["t"]).location.endswith(location)
    call(catalogue, "drop_table", ["t"])
    assert not (tmp_path / location).exists()
    with pytest.raises(interface.TableNotFoundError):
        call(catalogue, "describe_table", ["t"])


@pytest.mark.interop
@pytest.mark.parametrize("mode", ["manifest", "both"], indirect=True)
def test_nested_namespaces_are_shared(pair: tuple[Any, Any]) -> None:
    first, second = pair
    call(first, "create_namespace", ["n"], properties={"owner": "me"})
    call(second, "create_namespace", ["n", "m"])
    call(first, "create_table", ["n", "m", "t"], ipc())
    assert call(second, "describe_namespace", ["n"]).properties == {"owner": "me"}
    assert call(second, "list_namespaces", []).namespaces == ["n"]
    assert call(first, "list_namespaces", ["n"]).namespaces == ["m"]
    assert call(second, "list_tables", ["n", "m"]).tables == ["t"]
    assert call(second, "count_table_rows", ["n", "m", "t"]).count == 3
    with pytest.raises(interface.NamespaceNotEmptyError):
        call(second, "drop_namespace", ["n"])
    call(second, "drop_table", ["n", "m", "t"])
    call(second, "drop_namespace", ["n", "m"])
    assert call(first, "list_namespaces", ["n"]).namespaces == []


@pytest.mark.interop
def test_registered_folders_are_tables_for_both(tmp_path: Path) -> None:
    pytest.importorskip("lance.namespace")
    properties = {"root": str(tmp_path), "dir_listing_enabled": "false"}
    mine, theirs = connect("dir", properties), interface.connect("dir", properties)
    glaive.write_dataset(ROWS, tmp_path / "old.lance")
    call(mine, "register_table", ["a"], location="old.lance", properties={"k": "v"})
    call(theirs, "register_table", ["b"], location="old.lance")
    for catalogue in (mine, theirs):
        assert call(catalogue, "list_tables", []).tables == ["a", "b"]
        assert call(catalogue, "count_table_rows", ["a"]).count == 3
    assert call(mine, "describe_table", ["a"]).properties == {"k": "v"}


def test_properties_of_tables_are_kept(catalogue: DirectoryNamespace) -> None:
    call(catalogue, "declare_table", ["t"], properties={"owner": "me"})
    reported = call(catalogue, "describe_table", ["t"], check_declared=True)
    assert (reported.properties, reported.is_only_declared) == ({"owner": "me"}, True)


def test_a_description_tells_schema_and_counts(catalogue: DirectoryNamespace) -> None:
    call(catalogue, "create_table", ["t"], ipc())
    reported = call(catalogue, "describe_table", ["t"], load_detailed_metadata=True)
    assert (reported.version, reported.is_only_declared) == (1, False)
    assert [(field.name, field.type.type) for field in reported.var_schema.fields] == [
        ("a", "int64"),
        ("s", "string"),
    ]
    assert reported.metadata["total_rows"] == "3"


def test_listings_come_in_pages(catalogue: DirectoryNamespace) -> None:
    for name in "dacb":
        call(catalogue, "declare_table", [name])
    first = call(catalogue, "list_tables", [], limit=3)
    assert (first.tables, first.page_token) == (["a", "b", "c"], "c")
    rest = call(catalogue, "list_tables", [], limit=3, page_token="c")
    assert (rest.tables, rest.page_token) == (["d"], None)
    assert call(catalogue, "list_tables", [], include_declared=False).tables == []


def test_modes_say_what_happens_to_what_is_there(catalogue: DirectoryNamespace) -> None:
    call(catalogue, "create_namespace", ["n"], properties={"a": "1"})
    again = call(catalogue, "create_namespace", ["n"], mode="exist_ok", properties={"a": "2"})
    assert again.properties == {"a": "1"}
    call(catalogue, "create_namespace", ["n"], mode="Overwrite", properties={"a": "3"})
    assert call(catalogue, "describe_namespace", ["n"]).properties == {"a": "3"}
    call(catalogue, "create_table", ["n", "t"], ipc())
    call(catalogue, "create_table", ["n", "t"], ipc(ROWS.slice(0, 1)), mode="exist_ok")
    assert call(catalogue, "count_table_rows", ["n", "t"]).count == 3
    call(catalogue, "create_table", ["n", "t"], ipc(ROWS.slice(0, 1)), mode="overwrite")
    assert call(catalogue, "count_table_rows", ["n", "t"]).count == 1
    call(catalogue, "drop_namespace", ["removed"], mode="skip")
    with pytest.raises(failures.NamespaceNotFoundError):
        call(catalogue, "drop_namespace", ["removed"])


@pytest.mark.spec("ns-4")
def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(6)]

    def make(name: str) -> None:
        call(DirectoryNamespace(root=str(tmp_path)), "create_namespace", [name])

    threads = [threading.Thread(target=make, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert call(DirectoryNamespace(root=str(tmp_path)), "list_namespaces", []).namespaces == names


def test_memory_is_a_root_too() -> None:
    catalogue = connect("dir", {"root": "memory://catalogue-in-memory"})
    call(catalogue, "create_table", ["t"], ipc())
    assert call(catalogue, "list_tables", []).tables == ["t"]
    call(catalogue, "create_namespace", ["n"])
    call(catalogue, "create_table", ["n", "u"], ipc())
    assert glaive.dataset(namespace_client=catalogue, table_id=["n", "u"]).count_rows() == 3
    call(catalogue, "drop_table", ["t"])
    assert call(catalogue, "list_all_tables", []).tables == ["n$u"]


def test_a_catalogue_can_be_pickled(catalogue: DirectoryNamespace) -> None:
    call(catalogue, "create_table", ["t"], ipc())
    copy = pickle.loads(pickle.dumps(catalogue))
    assert call(copy, "list_tables", []).tables == ["t"]
    assert copy.namespace_id() == catalogue.namespace_id()


@pytest.mark.spec("rel-6")
def test_an_insert_is_answered_also_if_the_version_before_is_cleaned_up_at_once(
    catalogue: DirectoryNamespace,
) -> None:
    call(catalogue, "create_table", ["t"], ipc())
    uri = call(catalogue, "describe_table", ["t"]).location

    def clean_up(event: tracing.TraceEvent) -> None:
        if event.args.get("event") == "committed":
            glaive.dataset(uri).cleanup_old_versions(retain_versions=1)

    tracing.capture_trace_events(clean_up)
    try:
        answer = call(catalogue, "insert_into_table", ["t"], ipc(ROWS.slice(1)))
    finally:
        tracing.shutdown_tracing()
    assert (answer.num_inserted_rows, answer.version) == (2, 2)
    assert [found["version"] for found in glaive.dataset(uri).versions()] == [2]
    assert (
        call(catalogue, "insert_into_table", ["t"], ipc(), mode="overwrite").num_inserted_rows == 3
    )


def test_rows_are_queried_and_changed(catalogue: DirectoryNamespace) -> None:
    call(catalogue, "create_table", ["t"], ipc())
    merged = call(
        catalogue,
        "merge_insert_into_table",
        ["t"],
        ipc(ROWS.slice(2)),
        on=["a"],
        when_matched_update_all=True,
        when_not_matched_insert_all=True,
    )
    assert (merged.num_updated_rows, merged.num_inserted_rows, merged.version) == (1, 0, 2)
    assert call(catalogue, "update_table", ["t"], updates=[["a", "a * 10"]]).updated_rows == 3
    assert call(catalogue, "delete_from_table", ["t"], predicate="a = 10").version == 4
    found = call(
        catalogue,
        "query_table",
        ["t"],
        k=5,
        vector={},
        filter="a > 20",
        columns={"column_names": ["a"]},
    )
    assert rows_of(found) == [{"a": 30}]


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "decimal:128:99:-5"},
        {"type": "fixed_size_binary", "length": 1 << 62},
        {"type": "none"},
    ],
)
def test_a_type_that_is_none_is_wrong_in_the_request(
    catalogue: DirectoryNamespace, kind: dict[str, Any]
) -> None:
    call(catalogue, "create_table", ["t"], ipc())
    with pytest.raises(failures.InvalidInputError, match="data_type: ") as found:
        call(
            catalogue,
            "alter_table_alter_columns",
            ["t"],
            alterations=[{"path": "a", "data_type": kind}],
        )
    assert "damaged" not in str(found.value)


@pytest.mark.spec("rel-6")
def test_metadata_of_several_fields_are_set_at_once_or_not_at_all(
    catalogue: DirectoryNamespace,
) -> None:
    call(catalogue, "create_table", ["t"], ipc())

    def update(*entries: tuple[str, dict[str, Any], bool]) -> int:
        names = ("path", "metadata", "replace")
        updates = [dict(zip(names, entry, strict=True)) for entry in entries]
        return call(catalogue, "update_field_metadata", ["t"], updates=updates).version

    with pytest.raises(failures.TableColumnNotFoundError):
        update(("a", {"k": "1"}, False), ("none", {"k": "1"}, False))
    uri = catalogue.store.full("t.lance")
    opened = glaive.dataset(uri)
    assert (opened.version, opened.schema.field("a").metadata) == (1, None)
    assert update(("a", {"k": "1", "l": "2"}, False), ("s", {"x": "y"}, False)) == 2
    entries = ("s", {"z": "1"}, True), ("s", {"u": "2"}, False), ("`a`", {"l": "3"}, False)
    assert update(*entries, ("a", {"m": "4"}, False)) == 3
    found = glaive.dataset(uri).schema
    assert found.field("a").metadata == {b"k": b"1", b"l": b"3", b"m": b"4"}
    assert found.field("s").metadata == {b"z": b"1", b"u": b"2"}


@pytest.mark.parametrize(
    "name", ["..", "a/b", "a\\b", ".x", "__manifest", "a$b", "", "a\nb", "x" * 300]
)
def test_names_that_are_no_folders_are_refused(catalogue: DirectoryNamespace, name: str) -> None:
    for method, path in (("declare_table", [name]), ("create_namespace", [name])):
        with pytest.raises(failures.InvalidInputError, match="name"):
            call(catalogue, method, path)
    with pytest.raises(failures.TableNotFoundError):
        call(catalogue, "describe_table", [name])


def test_an_id_may_be_longer_than_the_name_of_a_folder(tmp_path: Path) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path))
    path = ["a" * 100, "b" * 100, "漢" * 100]
    for count in (1, 2):
        call(catalogue, "create_namespace", path[:count])
    call(catalogue, "create_table", path, ipc())
    assert call(catalogue, "list_tables", path[:2]).tables == path[2:]
    assert call(catalogue, "count_table_rows", path).count == 3
    call(catalogue, "drop_table", path)
    assert [one.name for one in tmp_path.iterdir()] == ["__manifest"]


def test_a_name_that_is_no_unicode_is_an_error_of_glaive(catalogue: DirectoryNamespace) -> None:
    for method in ("table_exists", "drop_table", "list_table_versions"):
        with pytest.raises(GlaiveError, match="half of a surrogate pair"):
            call(catalogue, method, ["\ud800"])
    with pytest.raises(failures.InvalidInputError, match=r"location 'a\\udfff'"):
        call(catalogue, "register_table", ["t"], location="a\udfff")


@pytest.mark.spec("ns-3")
@pytest.mark.parametrize(
    "location", ["/etc", "../x", "a/../../x", "file:///etc", "s3://b/x", "", "__manifest", "a\\b"]
)
def test_places_outside_of_the_root_are_refused(tmp_path: Path, location: str) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path), dir_listing_enabled="false")
    with pytest.raises(failures.InvalidInputError, match="location"):
        call(catalogue, "register_table", ["t"], location=location)
    row = {"object_id": "t", "object_type": "table", "location": location}
    rows = pa.Table.from_pylist([row], SCHEMA)
    glaive.write_dataset(rows, tmp_path / "__manifest", mode="overwrite")
    with pytest.raises(failures.InternalError, match="its location is"):
        call(catalogue, "drop_table", ["t"])


def test_a_foreign_manifest_table_is_refused(tmp_path: Path) -> None:
    glaive.write_dataset({"x": [1]}, tmp_path / "__manifest")
    with pytest.raises(failures.InternalError, match="expected the columns object_id"):
        call(DirectoryNamespace(root=str(tmp_path)), "list_tables", [])


@pytest.mark.parametrize("column", ["object_id", "location", "metadata", "base_objects"])
def test_texts_of_a_manifest_table_that_are_not_utf8_are_named(tmp_path: Path, column: str) -> None:
    row = {"object_id": "t", "object_type": "table", "location": "t.lance"}
    rows = pa.Table.from_pylist([row], SCHEMA)
    at = rows.schema.get_field_index(column)
    text: Any = pa.array([b"\xff"]).view(pa.string())
    texts = pa.ListArray.from_arrays([0, 1], text) if column == "base_objects" else text
    rows = rows.set_column(at, SCHEMA.field(at), texts.cast(SCHEMA.field(at).type))
    glaive.write_dataset(rows, tmp_path / "__manifest")
    with pytest.raises(failures.InternalError, match=f"a string in {column} is not UTF-8"):
        call(DirectoryNamespace(root=str(tmp_path)), "list_tables", [])


def test_an_object_that_a_manifest_table_repeats_is_named(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist([{"object_id": "t", "object_type": "table"}] * 100_000, SCHEMA)
    glaive.write_dataset(rows, tmp_path / "__manifest", data_storage_version="2.2")
    with pytest.raises(failures.InternalError, match="the object 't' has two rows"):
        call(DirectoryNamespace(root=str(tmp_path)), "list_tables", [])


def test_texts_that_all_rows_of_a_manifest_table_share_are_held_once(tmp_path: Path) -> None:
    count, long = 2_000, "x" * 20_000
    row = {"object_type": "table", "location": long, "metadata": f'{{"a":"{long}"}}'}
    named = [row | {"object_id": f"t{number}"} for number in range(count)]
    rows = pa.Table.from_pylist(named, SCHEMA)
    glaive.write_dataset(rows, tmp_path / "__manifest", data_storage_version="2.2")
    del named, rows
    tracemalloc.start()
    held = ManifestTable(str(tmp_path)).read()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(held) == count
    assert most < 20_000_000


@pytest.mark.spec("ns-6")
def test_unknown_feature_flags_are_refused(catalogue: DirectoryNamespace, tmp_path: Path) -> None:
    call(catalogue, "create_namespace", ["n"])
    table = glaive.dataset(tmp_path / "__manifest")
    table.update_config({"lance.namespace.manifest.reader_feature_flags": "4"})
    with pytest.raises(failures.UnsupportedOperationError, match="reader_feature_flags '4'"):
        call(catalogue, "list_namespaces", [])


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "root: a directory namespace needs"),
        ({"root": "x", "manifest_enabled": "maybe"}, "expected true or false"),
        ({"root": "x", "manifest_enable": "true"}, "did you mean 'manifest_enabled'"),
        ({"root": "x", "credential_vendor.enabled": "true"}, "makes no credentials"),
        ({"root": "memory://"}, "without a name"),
        (
            {"root": "x", "manifest_enabled": "false", "dir_listing_enabled": "false"},
            "at least one must be true",
        ),
    ],
)
def test_wrong_properties_are_named(properties: dict[str, str], message: str) -> None:
    with pytest.raises(GlaiveError, match=message):
        connect("dir", properties)


def test_what_directories_lack_is_refused_by_name(catalogue: DirectoryNamespace) -> None:
    with pytest.raises(failures.UnsupportedOperationError, match="rename_table"):
        call(catalogue, "rename_table", ["t"], new_table_name="u")
    with pytest.raises(failures.UnsupportedOperationError, match="Cascade"):
        call(catalogue, "drop_namespace", ["n"], behavior="Cascade")
    with pytest.raises(interface.InvalidInputError, match="no catalogue of the kind 'hive'"):
        connect("hive", {})


def test_garbage_is_no_table(catalogue: DirectoryNamespace) -> None:
    for data in (b"", b"ARROW1 garbage", b"\x00" * 64):
        with pytest.raises(failures.InvalidInputError, match="Arrow IPC stream"):
            call(catalogue, "create_table", ["t"], data)
    assert call(catalogue, "list_tables", []).tables == []


def test_rows_whose_names_are_no_text_or_that_are_too_many_are_refused(
    catalogue: DirectoryNamespace,
) -> None:
    nulls = pa.record_batch([pa.Array.from_buffers(pa.null(), 1 << 40, [None])], ["n"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, nulls.schema, options=pa.ipc.IpcWriteOptions(allow_64bit=True)
    ) as writer:
        writer.write_batch(nulls)
    many = sink.getvalue().to_pybytes()
    no_text = ipc(pa.table({"marked": pa.array([2], pa.int64()).view(pa.timestamp("us", "UTC"))}))
    assert len(many) < 1000
    for data, message in (
        (many, "1099511627776 rows"),
        (ipc(pa.table({"marked": ["x"]})).replace(b"marked", b"mark\xff\xff"), "UTF-?8|utf-8"),
        (no_text.replace(b"UTC", b"U\xffC"), "UTF-?8|utf-8"),
    ):
        with pytest.raises(GlaiveError, match=message):
            call(catalogue, "create_table", ["t"], data)


def test_calls_are_counted_where_that_is_asked_for(tmp_path: Path) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path), ops_metrics_enabled="true")
    for _ in range(2):
        call(catalogue, "list_tables", [])
    assert catalogue.retrieve_ops_metrics() == {"list_tables": 2}
    catalogue.reset_ops_metrics()
    assert catalogue.retrieve_ops_metrics() == {}


@pytest.mark.sampled(every=2)
@pytest.mark.spec("sec-18")
@pytest.mark.parametrize("mode", ["manifest", "both"])
@pytest.mark.parametrize(
    ("location", "dropped"),
    [("OWN", "t"), ("OWN", "own"), ("OWN/data", "t"), ("OWN/data", "own"), ("sub", "t")],
)
def test_a_table_is_not_dropped_where_another_one_lies(
    tmp_path: Path, mode: str, location: str, dropped: str
) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path), **MODES[mode])
    call(catalogue, "create_table", ["own"], ipc())
    for folder in ("sub", "sub/in"):
        glaive.write_dataset(ROWS, tmp_path / folder)
    own = ManifestTable(str(tmp_path)).read()["own"].location
    call(catalogue, "register_table", ["in"], location="sub/in")
    call(catalogue, "register_table", ["t"], location=location.replace("OWN", str(own)))
    both = (
        f"the table '{dropped}' .* also the folder of the table '(own|t|in)'.* by deregister_table"
    )
    with pytest.raises(failures.InvalidTableStateError, match=both):
        call(catalogue, "drop_table", [dropped])
    assert call(catalogue, "list_tables", []).tables == ["in", "own", "t"]
    for folder in (str(own), "sub/in"):
        assert glaive.dataset(tmp_path / folder).to_table() == ROWS
    call(catalogue, "deregister_table", ["t"])
    call(catalogue, "drop_table", ["own"])
    assert call(catalogue, "list_tables", []).tables == ["in"]


def test_a_table_that_a_listing_finds_is_dropped_by_no_other_name(tmp_path: Path) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path))
    call(catalogue, "create_namespace", ["n"])
    glaive.write_dataset(ROWS, tmp_path / "own.lance")
    call(catalogue, "register_table", ["n", "own"], location="own.lance")
    with pytest.raises(failures.InvalidTableStateError, match="'own'"):
        call(catalogue, "drop_table", ["n", "own"])
    call(catalogue, "deregister_table", ["n", "own"])
    assert call(catalogue, "count_table_rows", ["own"]).count == 3
    call(catalogue, "register_table", ["n", "own"], location="own.lance")
    call(catalogue, "deregister_table", ["own"])
    call(catalogue, "drop_table", ["n", "own"])
    assert not (tmp_path / "own.lance").exists()


@pytest.mark.parametrize("name", ["n", "n$t"])
def test_a_folder_that_is_dropped_takes_no_row_of_others_along(tmp_path: Path, name: str) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path))
    call(catalogue, "create_namespace", ["n"])
    call(catalogue, "create_table", ["n", "t"], ipc())
    glaive.write_dataset(ROWS, tmp_path / f"{name}.lance")
    call(catalogue, "drop_table", [name])
    assert call(catalogue, "list_tables", []).tables == []
    assert call(catalogue, "list_tables", ["n"]).tables == ["t"]
    assert call(catalogue, "count_table_rows", ["n", "t"]).count == 3


@pytest.mark.parametrize("mode", ["manifest", "both"])
def test_a_table_that_could_not_be_dropped_is_there_and_can_be_dropped_again(
    tmp_path: Path, mode: str
) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path), **MODES[mode])
    call(catalogue, "create_namespace", ["n"])
    call(catalogue, "create_table", ["n", "t"], ipc())
    (manifest,) = tmp_path.glob("*$t/_versions/*.manifest")
    whole = manifest.read_bytes()
    manifest.write_bytes(bytes(len(whole)))
    with pytest.raises(GlaiveError, match="is not dropped"):
        call(catalogue, "drop_table", ["n", "t"])
    manifest.write_bytes(whole)
    assert call(catalogue, "count_table_rows", ["n", "t"]).count == 3
    call(catalogue, "drop_table", ["n", "t"])
    assert call(catalogue, "list_tables", ["n"]).tables == []
    assert not manifest.parent.parent.exists()


@pytest.mark.parametrize("mode", ["manifest", "both"])
def test_a_table_whose_drop_ctrl_c_stops_can_be_dropped_again(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path), **MODES[mode])
    call(catalogue, "create_namespace", ["n"])
    call(catalogue, "create_table", ["n", "t"], ipc())
    (folder,) = tmp_path.glob("*$t")
    delete = LocalStore.delete

    def stopped(store: LocalStore, paths: Sequence[str]) -> None:
        if store.root == str(folder) and any(path.endswith(".manifest") for path in paths):
            raise KeyboardInterrupt
        delete(store, paths)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "delete", stopped)
        with pytest.raises(KeyboardInterrupt):
            call(catalogue, "drop_table", ["n", "t"])
    assert call(catalogue, "list_tables", ["n"]).tables == ["t"]
    call(catalogue, "drop_table", ["n", "t"])
    assert call(catalogue, "list_tables", ["n"]).tables == []
    assert not folder.exists()


def test_a_table_that_several_drop_at_once_is_gone(tmp_path: Path) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path), dir_listing_enabled="false")
    names = [f"t{number}" for number in range(20)]
    for name in names:
        call(catalogue, "create_table", [name], ipc())
    together = threading.Barrier(4)

    def drop_all() -> None:
        for name in names:
            together.wait()
            with suppress(failures.TableNotFoundError):
                call(catalogue, "drop_table", [name])

    threads = [threading.Thread(target=drop_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert call(catalogue, "list_tables", []).tables == []
    assert [path.name for path in tmp_path.iterdir()] == ["__manifest"]


def test_what_a_stopped_drop_has_left_is_no_table(tmp_path: Path) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path))
    for folder in ("_versions", "data"):
        (tmp_path / "t.lance" / folder).mkdir(parents=True)
    assert call(catalogue, "list_tables", []).tables == []
    call(catalogue, "create_table", ["t"], ipc())
    assert call(catalogue, "list_all_tables", []).tables == ["t"]


def test_folders_that_no_id_names_are_not_listed(tmp_path: Path) -> None:
    catalogue = DirectoryNamespace(root=str(tmp_path))
    for name in ("a\\b", "..", "x" * 220, "t"):
        glaive.write_dataset(ROWS, tmp_path / "written")
        (tmp_path / "written").rename(tmp_path / f"{name}.lance")
    assert call(catalogue, "list_tables", [], include_declared=False).tables == ["t"]
    assert call(catalogue, "list_all_tables", []).tables == ["t"]


def link_table(catalogue: Any, root: Path, mine: Path, links_at: str) -> None:
    """Make ``mine/x.lance`` the table ``t`` of a catalogue by a link."""
    if links_at == "a folder above it":
        (root / "sub").symlink_to(mine)
        call(catalogue, "register_table", ["t"], location="sub/x.lance")
    else:
        (root / "t.lance").symlink_to(mine / "x.lance")


@pytest.mark.spec("rel-16", "sec-14")
@pytest.mark.parametrize("links_at", ["the table", "a folder above it", "another table of it"])
def test_dropping_a_table_deletes_nothing_that_a_link_leads_to(
    tmp_path: Path, links_at: str
) -> None:
    mine, root = tmp_path / "mine", tmp_path / "shop"
    catalogue = connect("dir", {"root": str(root)})
    call(catalogue, "create_table", ["own"], ipc())
    if links_at == "another table of it":
        mine = root
    glaive.write_dataset(ROWS, mine / "x.lance")
    link_table(catalogue, root, mine, links_at)
    with pytest.raises(failures.PermissionDeniedError, match=r"is a link to .* deregister_table"):
        call(catalogue, "drop_table", ["t"])
    assert glaive.dataset(mine / "x.lance").to_table() == ROWS
    assert "t" in call(catalogue, "list_tables", []).tables
    allowed = {"root": str(root), "storage.delete_through_links": "true"}
    call(connect("dir", allowed), "drop_table", ["t"])
    assert not (mine / "x.lance" / "_versions").exists()
    assert "t" not in call(catalogue, "list_tables", []).tables


@pytest.mark.spec("sec-14")
@pytest.mark.parametrize("links_at", ["the table", "a folder above it"])
def test_tags_branches_and_versions_are_not_deleted_where_a_link_of_a_table_leads(
    tmp_path: Path, links_at: str
) -> None:
    mine, root = tmp_path / "mine", tmp_path / "shop"
    catalogue = connect("dir", {"root": str(root)})
    call(catalogue, "create_table", ["own"], ipc())
    dataset = glaive.write_dataset(ROWS, mine / "x.lance")
    dataset.tags.create("first", 1)
    dataset.create_branch("side", 1)
    link_table(catalogue, root, mine, links_at)
    deletions = {"delete_table_tag": {"tag": "first"}, "delete_table_branch": {"name": "side"}}
    for deletion, given in deletions.items():
        with pytest.raises(failures.PermissionDeniedError, match="is a link to"):
            call(catalogue, deletion, ["t"], **given)
    every = [{"start_version": 0, "end_version": 9}]
    with pytest.raises(GlaiveError, match="is a link to"):
        call(catalogue, "batch_delete_table_versions", ["t"], ranges=every)
    assert (list(dataset.tags.list()), list(dataset.branches.list())) == (["first"], ["side"])
    assert dataset.checkout_version(("side", None)).to_table() == ROWS
    allowed = connect("dir", {"root": str(root), "storage.delete_through_links": "true"})
    for deletion, given in deletions.items():
        call(allowed, deletion, ["t"], **given)
    assert (list(dataset.tags.list()), list(dataset.branches.list())) == ([], [])


@pytest.mark.spec("sec-14")
@pytest.mark.parametrize(
    ("deletion", "given"),
    [
        ("delete_table_tag", {"tag": "first"}),
        ("delete_table_branch", {"name": "side"}),
        ("drop_table", {}),
    ],
)
def test_files_stay_where_a_link_takes_the_place_of_a_table_after_the_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletion: str, given: dict[str, str]
) -> None:
    root, mine = tmp_path / "shop", tmp_path / "mine"
    for folder in (root / "t.lance", mine):
        dataset = glaive.write_dataset(ROWS, folder)
        dataset.tags.create("first", 1)
        dataset.create_branch("side", 1)
    look = folders.refuse_links

    def look_too_early(store: ObjectStore, folder: str) -> None:
        look(store, folder)
        (root / folder).rename(tmp_path / "moved")
        (root / folder).symlink_to(mine)

    monkeypatch.setattr(folders, "refuse_links", look_too_early)
    before = sorted(mine.rglob("*"))
    with pytest.raises(GlaiveError, match="link"):
        call(connect("dir", {"root": str(root)}), deletion, ["t"], **given)
    assert sorted(mine.rglob("*")) == before


@pytest.mark.spec("sec-14")
def test_taking_out_a_table_hides_none_that_its_link_leads_to(tmp_path: Path) -> None:
    other = connect("dir", {"root": str(tmp_path / "other")})
    catalogue = connect("dir", {"root": str(tmp_path / "shop")})
    call(other, "create_table", ["elsewhere"], ipc())
    call(catalogue, "create_table", ["own"], ipc())
    (tmp_path / "shop" / "t.lance").symlink_to("own.lance")
    (tmp_path / "shop" / "s.lance").symlink_to(tmp_path / "other" / "elsewhere.lance")
    for name in ("t", "s"):
        with pytest.raises(failures.PermissionDeniedError, match="Delete the link to take out"):
            call(catalogue, "deregister_table", [name])
        assert name in call(catalogue, "list_tables", []).tables
    assert "own" in call(catalogue, "list_tables", []).tables
    assert call(other, "list_tables", []).tables == ["elsewhere"]
    (tmp_path / "shop" / "t.lance").unlink()
    call(catalogue, "deregister_table", ["own"])
    assert call(catalogue, "list_tables", []).tables == ["s"]


@pytest.mark.spec("sec-14")
def test_no_mark_is_put_where_a_link_takes_the_place_of_a_table_after_the_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, mine = tmp_path / "shop", tmp_path / "mine"
    other = connect("dir", {"root": str(mine)})
    for catalogue in (other, connect("dir", {"root": str(root)})):
        call(catalogue, "create_table", ["t"], ipc())
    look = LocalStore.link_out

    def look_too_early(store: LocalStore, folder: str) -> str | None:
        found = look(store, folder)
        if not folder and not (tmp_path / "moved").exists():  # the last look
            (root / "t.lance").rename(tmp_path / "moved")
            (root / "t.lance").symlink_to(mine / "t.lance")
        return found

    monkeypatch.setattr(LocalStore, "link_out", look_too_early)
    with pytest.raises(GlaiveError, match=r"cannot write .* is a link to"):
        call(connect("dir", {"root": str(root)}), "deregister_table", ["t"])
    assert call(other, "list_tables", []).tables == ["t"]


@pytest.mark.spec("sec-14")
@pytest.mark.parametrize("link", ["__manifest", "__manifest/_versions"])
def test_a_catalogue_does_not_change_another_one_that_its_manifest_table_is_a_link_to(
    tmp_path: Path, link: str
) -> None:
    other = connect("dir", {"root": str(tmp_path / "other"), **MODES["manifest"]})
    call(other, "create_table", ["t"], ipc())
    root = tmp_path / "shop"
    root.joinpath(link).parent.mkdir(parents=True)
    for path in [link] if link == "__manifest" else [link, "__manifest/data"]:
        (root / path).symlink_to(tmp_path / "other" / path)
    (root / "t.lance").mkdir()
    (root / "t.lance" / ".lance-reserved").touch()
    catalogue = connect("dir", {"root": str(root)})
    for change in ("drop_table", "deregister_table", "create_namespace"):
        name = "n" if change == "create_namespace" else "t"
        with pytest.raises(failures.PermissionDeniedError, match="delete_through_links"):
            call(catalogue, change, [name])
    assert call(other, "list_tables", []).tables == ["t"]
    assert call(other, "list_namespaces", []).namespaces == []
    allowed = {"root": str(root), "storage.delete_through_links": "true"}
    call(connect("dir", allowed), "drop_table", ["t"])
    assert call(other, "list_tables", []).tables == []


@pytest.mark.spec("sec-14")
def test_a_link_to_a_declared_table_is_not_dropped_with_it(tmp_path: Path) -> None:
    catalogue = connect("dir", {"root": str(tmp_path)})
    call(catalogue, "declare_table", ["own"])
    (tmp_path / "t.lance").symlink_to("own.lance")
    with pytest.raises(failures.PermissionDeniedError, match=r"t\.lance is a link to own"):
        call(catalogue, "drop_table", ["t"])
    assert [path.name for path in (tmp_path / "own.lance").iterdir()] == [".lance-reserved"]


@pytest.mark.spec("rel-16")
def test_a_table_is_dropped_though_the_root_of_its_catalogue_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "shop").symlink_to(tmp_path / "real")
    catalogue = connect("dir", {"root": str(tmp_path / "shop")})
    call(catalogue, "create_table", ["t"], ipc())
    call(catalogue, "drop_table", ["t"])
    assert not (tmp_path / "real" / "t.lance").exists()


@pytest.mark.parametrize(
    "kind",
    [
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
        pa.struct([("d", pa.dictionary(pa.int32(), pa.string()))]),
    ],
    ids=str,
)
def test_a_query_has_one_dictionary_for_the_rows_of_all_fragments(
    catalogue: DirectoryNamespace, tmp_path: Path, kind: Any
) -> None:
    words = [["a", "b", None], ["c", "a", "d"]]
    for part in words:
        values = pa.array(part).dictionary_encode()
        column: Any = values.cast(pa.dictionary(pa.int32(), pa.string()))
        if pa.types.is_list(kind):
            column = pa.ListArray.from_arrays([0, 1, 1, 3], column)
        elif pa.types.is_struct(kind):
            column = pa.StructArray.from_arrays([column], ["d"])
        else:
            column = values.cast(kind)
        table = pa.table({"id": range(3), "d": column})
        glaive.write_dataset(table, tmp_path / "t.lance", mode="append")
    answer = call(catalogue, "query_table", ["t"], k=9, vector={}, filter="id >= 0")
    stored = glaive.dataset(tmp_path / "t.lance").to_table()
    assert rows_of(answer) == stored.to_pylist()
