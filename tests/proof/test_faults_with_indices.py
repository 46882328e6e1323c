"""A compaction that rebuilds indices: whatever goes wrong, none is lost or finds wrong rows."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.kit.crashes import left_by_kills
from tests.kit.model import made_rows, sorted_rows
from tests.kit.observe import coverage

import glaive
from glaive.dataset.dataset import LanceDataset
from glaive.io.access import open_store
from glaive.io.store import ObjectStore
from glaive.testing import KINDS, Kind, each_request, open_on

os.environ.setdefault("LANCE_LOG", "error")
lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")
pytestmark = pytest.mark.interop

INDICES = {"number": "BTREE", "text": "BITMAP"}
SEARCHES = ["number = 7", "text IN ('t1', 't3')"]


def compact(dataset: LanceDataset) -> object:
    return dataset.optimize.compact_files(target_rows_per_fragment=25)


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable-ids"])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in four fragments, some of them deleted, with three indices."""
    place = tmp_path_factory.mktemp("base") / "t"
    rows = made_rows(range(40), 1)
    made = lance.write_dataset(
        rows, str(place), max_rows_per_file=10, enable_stable_row_ids=request.param
    )
    for column, kind in INDICES.items():
        made.create_scalar_index(column, kind)
    made.create_index("vector", "IVF_FLAT", num_partitions=1)
    made.delete("id % 10 = 1")
    return place


def in_memory(place: Path) -> ObjectStore:
    store = open_store(f"memory://{uuid4().hex}/table")
    for one in place.rglob("*"):
        if one.is_file():
            store.put(one.relative_to(place).as_posix(), [one.read_bytes()])
    return store


def on_disk(store: ObjectStore, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    for one in store.walk(""):
        path = place / one.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(one.path))
    return place


def check_answers(place: Path, rows: list[dict[str, Any]]) -> None:
    """Pylance finds with the indices what is there."""
    opened = lance.dataset(str(place))
    assert sorted_rows(opened.to_table()) == rows
    for search in SEARCHES:
        by_index, by_scan = (
            sorted(opened.scanner(filter=search, use_scalar_index=use).to_table()["id"].to_pylist())
            for use in (True, False)
        )
        assert by_index == by_scan, search
    nearest = {"column": "vector", "q": [4.0, 2.0], "k": 7}
    near, nearest_of_all = (
        opened.to_table(columns=["id", "_distance"], nearest={**nearest, "use_index": use})
        .column("_distance")
        .to_pylist()
        for use in (True, False)
    )
    # With stable ids pylance counts rows that are gone among the seven, its own compaction's too.
    assert len(near) >= 6
    assert near == nearest_of_all[: len(near)]


def check_coverage(place: Path) -> None:
    """Every index covers all fragments, which are fewer than before."""
    fragments = tuple(one.fragment_id for one in glaive.dataset(place).get_fragments())
    assert len(fragments) < 4
    covered = [segment for *_, segment in coverage(lance, str(place))]
    assert covered == [fragments] * 3


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("kind", KINDS)
def test_indices_are_whole_whichever_request_goes_wrong(
    base: Path, tmp_path: Path, kind: Kind
) -> None:
    rows = sorted_rows(glaive.dataset(base).to_table())
    before, outcomes = coverage(lance, str(base)), 0
    for outcome in each_request(lambda: in_memory(base), compact, kind):
        outcomes += 1
        place = on_disk(outcome.store, tmp_path / "left")
        if outcome.error is None:
            check_coverage(place)
        else:
            assert coverage(lance, str(place)) == before
        if outcome.at % 5 == 1:
            check_answers(place, rows)
        if outcome.error is None:
            continue
        compact(outcome.dataset)
        opened = open_on(outcome.store)
        opened.cleanup_old_versions(timedelta(0), delete_unverified=True)
        place = on_disk(outcome.store, tmp_path / "left")
        check_coverage(place)
        if outcome.at % 5 == 1:
            check_answers(place, rows)
        tracked = set(glaive.dataset(place).tracked_files().read_all()["path"].to_pylist())
        left = {one.relative_to(place).as_posix() for one in place.rglob("*") if one.is_file()}
        assert left - tracked <= {"_versions/latest_version_hint.json"}
    assert outcomes > 10


@pytest.mark.sampled(every=2)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_indices_are_whole_after_a_kill_at_any_step(base: Path, tmp_path: Path) -> None:
    rows = sorted_rows(glaive.dataset(base).to_table())
    relaxed = {"fsync": "false"}
    begun, seen = shutil.copytree(base, tmp_path / "begun"), set()

    def carry_out() -> None:
        compact(glaive.dataset(begun, storage_options=relaxed))

    states = left_by_kills(begun, carry_out, tmp_path / "left")
    for step, place in enumerate(states, 1):
        seen.add(len(glaive.dataset(place).get_fragments()))
        if step % 5 == 1 or step == len(states):
            check_answers(place, rows)
        glaive.dataset(place).cleanup_old_versions(timedelta(0), delete_unverified=True)
        tracked = set(glaive.dataset(place).tracked_files().read_all()["path"].to_pylist())
        left = {one.relative_to(place).as_posix() for one in place.rglob("*") if one.is_file()}
        assert left - tracked <= {"_versions/latest_version_hint.json"}, step
    assert len(states) > 10
    assert len(seen) == 2, "every step left the same version"
