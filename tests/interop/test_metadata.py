"""Configuration and metadata: the same calls of both libraries leave the same texts."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.errors import ColumnNotFoundError, CommitConflictError, OptionError

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

DATA = pa.table({"a": [1], "s": pa.array([{"x": 1}])})


def everything(path: str) -> dict[str, Any]:
    """What pylance and glaive both read; they must agree."""
    found = []
    for library in (lance, glaive):
        dataset = library.dataset(path)
        schema = dataset.schema
        found.append(
            {
                "config": dataset.config(),
                "metadata": dataset.metadata,
                "schema": schema.metadata or {},
                "a": schema.field("a").metadata or {},
                "x": schema.field("s").type.field("x").metadata or {},
                "version": dataset.version,
            }
        )
    assert found[0] == found[1]
    return found[0]


@pytest.fixture
def pair(tmp_path: Path) -> list[tuple[Any, str]]:
    """The same dataset for each library."""
    paths = [str(tmp_path / name) for name in ("glaive", "pylance")]
    return [
        (library.write_dataset(DATA, path), path)
        for library, path in zip((glaive, lance), paths, strict=True)
    ]


CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("update_config", ({"a": "1", "b": "2"},), {}),
    ("update_config", ({"a": None, "c": "3"},), {}),
    ("update_config", ({"z": "1"},), {"replace": True}),
    ("delete_config_keys", (["z", "nothing"],), {}),
    ("update_config", ({},), {}),
    ("update_metadata", ({"t": "1", "u": "ü"},), {}),
    ("update_metadata", ({"t": None},), {}),
    ("update_schema_metadata", ({"k": "v"},), {}),
    ("replace_schema_metadata", ({"q": "w"},), {}),
    ("update_field_metadata", ({"a": {"u": "1"}, "s.x": {"n": "m"}},), {}),
    ("update_field_metadata", ({"a": {"u": None, "w": "2"}},), {}),
    ("replace_field_metadata", ("a", {"only": "1"}), {}),
    ("update_config", ({},), {"replace": True}),
]


def test_the_same_calls_leave_the_same(pair: list[tuple[Any, str]]) -> None:
    for name, args, options in CALLS:
        results = []
        for dataset, path in pair:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                result = getattr(dataset, name)(*args, **options)
            results.append((result, everything(path)))
            assert dataset.version == results[-1][1]["version"]
        assert results[0] == results[1], name


def test_flags_are_those_of_pylance(pair: list[tuple[Any, str]]) -> None:
    for call in ("update_metadata", "update_config"):
        words = []
        for dataset, path in pair:
            getattr(dataset, call)({"k": "v"})
            wire = glaive.dataset(path).manifest.wire
            words.append((wire.reader_feature_flags, wire.writer_feature_flags))
        assert words[0] == words[1]


def test_a_field_that_is_not_there_is_refused(pair: list[tuple[Any, str]]) -> None:
    dataset, path = pair[0]
    with pytest.raises(ColumnNotFoundError, match=r"No field named s\.y"):
        dataset.update_field_metadata({"a": {"k": "v"}, "s.y": {"k": "v"}})
    assert everything(path)["version"] == 1


@pytest.mark.parametrize("values", [{"a": 1}, {1: "a"}, {"a": b"x"}])
def test_texts_only(pair: list[tuple[Any, str]], values: Any) -> None:
    dataset, path = pair[0]
    for call in (dataset.update_config, dataset.update_metadata, dataset.update_schema_metadata):
        with pytest.raises(OptionError, match="expected string keys"):
            call(values)
    assert everything(path)["version"] == 1


def test_two_writers_of_one_key_conflict_and_of_two_do_not(pair: list[tuple[Any, str]]) -> None:
    _, path = pair[0]
    first, second, third = (glaive.dataset(path) for _ in range(3))
    first.update_config({"k": "1"})
    with pytest.raises(CommitConflictError, match="k"):
        second.update_config({"k": "2"})
    third.update_config({"other": "3"})
    assert everything(path)["config"] == {"k": "1", "other": "3"}
