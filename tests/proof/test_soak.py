"""The soak finds what it looks for: rows that are not those of its model, and things that grow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.proof.soak.owner import SCHEMA, Owner
from tests.proof.soak.resources import MIB, Resources, growth

import glaive

STEADY = Resources(300 * MIB, 9, 900, 20, 11, 0, 400)


def test_what_neither_grows_nor_shrinks_is_no_finding() -> None:
    samples = [replace(STEADY, memory=STEADY.memory + at % 7 * MIB) for at in range(60)]
    filling = [replace(STEADY, memory=at * MIB, maps=at * 9) for at in range(20)]
    assert growth(samples) == []
    assert growth([*filling, *samples[:40]]) == []


def test_maps_may_grow_as_the_table_does_and_no_more() -> None:
    grown = [replace(STEADY, maps=900 + 9 * at, files=400 + 4 * at) for at in range(60)]
    assert growth(grown) == []
    (found,) = growth([replace(one, files=400) for one in grown])
    assert found == "maps grew from 1,166 to 1,346"


@pytest.mark.parametrize("name", ["memory", "descriptors", "maps", "deleted", "threads"])
def test_what_grows_all_the_time_is_a_finding(name: str) -> None:
    step = 2 * MIB if name == "memory" else 4
    samples = [replace(STEADY, **{name: getattr(STEADY, name) + at * step}) for at in range(60)]
    (found,) = growth(samples)
    assert found.startswith(f"{name} grew from ")
    assert growth(samples[:5])[0].startswith("only 5 samples")


def test_a_row_that_somebody_else_deleted_or_changed_is_found(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    glaive.write_dataset(pa.Table.from_pylist([], SCHEMA), uri)
    owner = Owner(uri, 3, seed=1)
    for change in (owner.append, owner.append, owner.update, owner.merge, owner.delete):
        owner.rows = change(owner.newest())
    looks = (owner.scan, owner.search, owner.search_texts, owner.search_vectors)
    for look in looks:
        look(glaive.dataset(uri))
    lost = min(owner.rows)
    glaive.dataset(uri).delete(f"key = {lost}")
    with pytest.raises(AssertionError, match=rf"owner 3, a scan: lost \[{lost}\], foreign \[\]"):
        owner.scan(glaive.dataset(uri))
    del owner.rows[lost]
    owner.scan(glaive.dataset(uri))
    glaive.dataset(uri).update({"value": "value + 1"}, f"key = {min(owner.rows)}")
    with pytest.raises(AssertionError, match=r"lost \[\], foreign \[\], doubled \[\]"):
        owner.scan(glaive.dataset(uri))
