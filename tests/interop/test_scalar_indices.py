"""Scalar indices both ways: each library finds the rows of a scan by what the other one built."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.index.scalar.built import build, check, segments
from tests.index.scalar.values import TYPES, conditions, values_of

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

EVERY_TYPE = pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)
STABLE = pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable-ids"])


def write(path: Path, *parts: Any, stable: bool = False) -> Path:
    """A dataset with a fragment for each part of its column ``x``."""
    for part in parts:
        lance.write_dataset(
            pa.table({"x": part}), path, mode="append", enable_stable_row_ids=stable
        )
    return path


def files(path: Path, name: str) -> pa.Table:
    """Rows of a file of the only segment, with its metadata."""
    (segment,) = segments(path)
    return segment.open(name).read()


def questions(kind: Any) -> list[str]:
    """Filters on ``x`` in SQL."""
    types = pa.types
    literals = {
        "true": types.is_boolean(kind),
        "'ä42'": types.is_string(kind) or types.is_large_string(kind),
        "42": types.is_integer(kind),
        "10.5": types.is_floating(kind),
        "date '1970-02-12'": types.is_date32(kind),
        "timestamp '1970-01-01 00:00:42'": kind == pa.timestamp("s"),
    }
    found = ["x IS NULL"]
    for literal in (text for text, fits in literals.items() if fits):
        found += [f"x = {literal}", f"x > {literal}", f"x <= {literal}", f"x != {literal}"]
        found += [f"x IN ({literal}, {literal})", f"NOT (x IS NULL) AND x < {literal}"]
    return found


def check_theirs(path: Path, filters: list[str]) -> None:
    """Pylance uses the index for some filters, and finds with it what it finds without."""
    dataset = lance.dataset(path)
    for text in filters:
        options: dict[str, Any] = {"filter": text, "columns": [], "with_row_id": True}
        scanner = dataset.scanner(**options)
        assert "ScalarIndexQuery" in scanner.explain_plan(), text
        found = sorted(scanner.to_table()["_rowid"].to_pylist())
        plain = dataset.scanner(**options, use_scalar_index=False).to_table()
        assert found == sorted(plain["_rowid"].to_pylist()), text


@pytest.mark.spec("btree-1")
@pytest.mark.spec("btree-2")
@STABLE
@EVERY_TYPE
def test_b_trees_are_those_of_pylance(tmp_path: Path, kind: Any, stable: bool) -> None:
    parts = [values_of(kind, 3000, 1), values_of(kind, 2500, 2)]
    theirs = write(tmp_path / "theirs", *parts, stable=stable)
    ours = tmp_path / "ours"
    shutil.copytree(theirs, ours)
    lance.dataset(theirs).create_scalar_index("x", "BTREE")
    build(ours, "x", "btree")
    (their_entry,), (our_entry,) = (
        [one.entry for one in segments(path)] for path in (theirs, ours)
    )
    assert our_entry.index_version == their_entry.index_version
    assert our_entry.index_details == their_entry.index_details
    lookups = [files(path, "page_lookup.lance") for path in (theirs, ours)]
    assert lookups[0].schema.equals(lookups[1].schema, check_metadata=True)
    assert repr(lookups[0].to_pydict()) == repr(lookups[1].to_pydict())
    pages = [files(path, "page_data.lance") for path in (theirs, ours)]
    assert pages[0].schema.equals(pages[1].schema, check_metadata=True)
    assert repr(pages[0]["values"].to_pylist()) == repr(pages[1]["values"].to_pylist())
    assert sorted(pages[0]["ids"].to_pylist()) == sorted(pages[1]["ids"].to_pylist())
    for condition in conditions(parts[0]):
        check(theirs, "x", condition)
    check_theirs(ours, questions(kind))
