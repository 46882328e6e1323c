"""File names carry versions in both schemes, and nothing else is taken for a manifest."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from glaive.format.paths import (
    DETACHED,
    ManifestName,
    deletion_file_path,
    manifest_path,
    new_data_file_name,
    parse_manifest_name,
)

VERSIONS = st.integers(1, DETACHED - 1)


@given(VERSIONS, st.sampled_from(["V1", "V2"]))
def test_versions_come_back_from_names(version: int, scheme: str) -> None:
    name = manifest_path(version, scheme).removeprefix("_versions/")
    assert parse_manifest_name(name) == ManifestName(version, scheme)


@pytest.mark.spec("name-1")
@given(VERSIONS, VERSIONS)
def test_v2_names_list_the_newest_first(one: int, other: int) -> None:
    assert (manifest_path(one) < manifest_path(other)) == (one > other)


@pytest.mark.spec("name-1", "name-2")
def test_the_first_version_is_named_as_elsewhere() -> None:
    assert manifest_path(1) == "_versions/18446744073709551614.manifest"
    assert manifest_path(1, "V1") == "_versions/1.manifest"


@pytest.mark.spec("name-4")
def test_detached_versions_are_no_part_of_the_history() -> None:
    name = manifest_path(DETACHED + 5)
    assert name == "_versions/d9223372036854775813.manifest"
    found = parse_manifest_name(name.removeprefix("_versions/"))
    assert found == ManifestName(DETACHED + 5, "V2")
    assert found.is_detached


@pytest.mark.spec("name-5")
@pytest.mark.parametrize(
    "name",
    [
        "latest_version_hint.json",
        "1.manifest#1",
        ".1.manifest.0a.tmp",
        "x.manifest",
        ".manifest",
        "-1.manifest",
        "d5.manifest",
        "٣.manifest",
        "99999999999999999999.manifest",
        "9" * 5000 + ".manifest",
        "1.manifest-5fd436ab",
    ],
)
def test_other_names_are_no_manifests(name: str) -> None:
    assert parse_manifest_name(name) is None


def test_data_file_names_are_spread_and_unique() -> None:
    names = {new_data_file_name() for _ in range(100)}
    assert len(names) == 100
    ended = {new_data_file_name("0123456789ab") for _ in range(100)}
    assert len(ended) == 100
    assert all(name.endswith("0123456789ab.lance") for name in ended)
    pattern = r"[01]{24}[0-9a-f]{26}\.lance"
    assert all(re.fullmatch(pattern, name) for name in names | ended)


@pytest.mark.spec("del-1")
def test_deletion_files_are_named_by_fragment_version_and_number() -> None:
    assert deletion_file_path(3, 7, 11, bitmap=True) == "_deletions/3-7-11.bin"
    assert deletion_file_path(3, 7, 11, bitmap=False) == "_deletions/3-7-11.arrow"
