"""Kinds of index by the type of their details."""

from __future__ import annotations

import pytest

from glaive.format.pb import table_pb2
from glaive.index.protocol import IndexKind, index_kind, index_kinds, kind_by_files, kind_of
from glaive.table.index_coverage import holds_addresses

KINDS = index_kinds()


def entry(url: str = "", version: int = 0) -> table_pb2.IndexMetadata:
    made = table_pb2.IndexMetadata(index_version=version)
    made.index_details.type_url = url
    return made


@pytest.mark.spec("kind-1")
@pytest.mark.parametrize("package", ["lance.table", "lance.index.pb", "x.y.z"])
@pytest.mark.parametrize("host", ["/", "", "type.googleapis.com/"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_message_says_the_kind_whatever_stands_before(
    kind: str, host: str, package: str
) -> None:
    for name in (f"{kind}IndexDetails", f"{kind.upper()}INDEXDETAILS"):
        assert kind_of(entry(f"{host}{package}.{name}")) is KINDS[kind]


@pytest.mark.spec("kind-2")
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_newer_versions_are_not_known(kind: str) -> None:
    url = f"/lance.table.{kind}IndexDetails"
    assert kind_of(entry(url, KINDS[kind].newest)) is KINDS[kind]
    assert kind_of(entry(url, KINDS[kind].newest + 1)) is None


def test_other_kinds_are_not_known() -> None:
    assert kind_of(entry("/lance.table.FooIndexDetails")) is None


@pytest.mark.spec("kind-1")
def test_files_tell_the_kind_of_entries_without_details() -> None:
    files = ["page_data.lance", "page_lookup.lance"]
    assert kind_of(entry(), files) is KINDS["btree"]
    assert kind_of(table_pb2.IndexMetadata(), files) is KINDS["btree"]
    assert kind_of(entry(), ["something.else"]) is None
    assert kind_of(entry()) is None
    assert kind_by_files([""]) is None


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_tables_know_which_kinds_store_addresses(kind: str) -> None:
    # An index that is taken for one of row ids is left as it is where rows are relocated.
    newest = entry(f"/lance.table.{kind}IndexDetails", KINDS[kind].newest)
    assert holds_addresses(newest) is KINDS[kind].stores_addresses


def test_each_kind_has_a_file_of_its_own() -> None:
    markers = [one for kind in KINDS.values() for one in kind.markers]
    assert len(markers) == len(set(markers))


def test_two_kinds_cannot_have_one_name() -> None:
    with pytest.raises(TypeError, match="btree"):
        index_kind(type("Other", (IndexKind,), {"name": "btree", "newest": 0}))
    assert index_kinds()["btree"] is KINDS["btree"]
