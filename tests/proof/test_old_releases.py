"""Datasets with indices of old releases: both libraries find, change and go on as without them.

``make historical`` lets the releases write them; ``tests/data/historical/indices`` has a few.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.historical import FURTHER, KEPT
from tools.old_releases import CASES, DIMENSION, rows

import glaive

os.environ.setdefault("LANCE_LOG", "error")
lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

FILTERS = {
    "n": ["n = 7919", "n IN (3, 9, 30010)", "n < 700", "n IS NULL", "n > 27500 AND n < 29000"],
    "i": ["i = 7", "i IN (3, 9, 1000)", "i < 20", "i IS NULL", "i > 10 AND i <= 30", "i != 7"],
    "f": ["f = 0.0", "f >= 3.5 AND f < 9", "f IS NULL", "f < 0", "f IS NOT NULL"],
    "t": ["t = 'text3 é'", "t > 'text5'", "t LIKE 'text1%'", "contains(t, 'ext12')", "t IS NULL"],
    "ok": ["ok", "NOT ok", "ok IS NULL", "ok IS NOT NULL"],
    "day": ["day = date '2024-01-07'", "day < date '2024-01-05'"],
    "at": ["at >= timestamp '2024-01-01 00:00:20'", "at IS NULL"],
    "dec": ["dec = 2", "dec > 5", "dec IS NULL"],
    "b": ["b = X'030303'", "b IS NULL"],
    "tags": [
        "array_has(tags, 't3')", "array_has_any(tags, ['t1', 't6'])",
        "array_has_all(tags, ['t1', 't2'])", "NOT array_has(tags, 't3')", "tags IS NULL",
    ],
    "numbers": ["array_has(numbers, 3)", "array_has_all(numbers, [1, 2])"],
    "js": ["json_get_int(js, 'x') = 5", "json_get_int(js, 'x') > 12"],
    "g": ["st_intersects(g, st_geomfromtext('POLYGON((1 1, 9 2, 4 8, 1 1))'))"],
}  # fmt: skip
"""Conditions by the column that is indexed."""

MISPLACED = ("0.16.0", "0.18.2", "0.20.0")
"""Releases whose compactions misplaced rows of bitmaps; pylance finds the same wrong rows.

The first two misplaced rows of texts, too.
"""

WITHOUT_PARAMETERS = ("0.16.0", "0.18.2")
"""Releases whose full-text indices say nothing of their tokens; pylance 14 folds accents there."""

WORDS = ["fox", "quick", "tail dog", "naive", "naïve", "foxes", "nothing"]

STEPS: dict[str, Callable[[Any, str, pa.Table], object]] = {
    "append": lambda lib, at, table: lib.write_dataset(table.slice(0, 20), at, mode="append"),
    "delete": lambda lib, at, _: lib.dataset(at).delete("id % 17 = 2"),
    "update": lambda lib, at, _: lib.dataset(at).update({"id": "id"}, "id % 19 = 1"),
    "merge": lambda lib, at, table: (
        lib.dataset(at)
        .merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(table.slice(10))
    ),
    "compact": lambda lib, at, _: lib.dataset(at).optimize.compact_files(
        materialize_deletions_threshold=0.0
    ),
    "optimize": lambda lib, at, _: lib.dataset(at).optimize.optimize_indices(),
}


def ids(dataset: Any, **options: Any) -> list[int]:
    found: list[int] = dataset.to_table(columns=["id"], **options)["id"].to_pylist()
    return sorted(found)


def answer(lib: Any, at: str, condition: str) -> list[int] | None:
    """What a library finds by an index; None if it fails."""
    try:
        return ids(lib.dataset(at), filter=condition)
    except Exception:
        return None


def filters(case: str) -> Iterator[str]:
    for column, *_ in CASES[case]:
        yield from FILTERS.get(column, ())


def check_filters(case: str, at: str, wrong: set[str]) -> None:
    dataset = glaive.dataset(at)
    for condition in filters(case):
        if condition in wrong:
            continue
        scanned = ids(dataset, filter=condition, use_scalar_index=False)
        assert ids(dataset, filter=condition) == scanned, condition
        assert dataset.count_rows(condition) == len(scanned), condition


def check_words(case: str, at: str, release: str) -> None:
    if not case.startswith("fts"):
        return
    theirs, ours = lance.dataset(at), glaive.dataset(at)
    if release in WITHOUT_PARAMETERS:
        theirs = glaive.write_dataset(ours.to_table(), f"{at}-rebuilt", mode="overwrite")
        theirs.create_scalar_index("text", "INVERTED", ascii_folding=False)
    for words in WORDS:
        assert ids(ours, full_text_query=words) == ids(theirs, full_text_query=words), words


def check_nearest(case: str, at: str, lib: Any = glaive) -> None:
    column, kind, _ = CASES[case][0]
    if not kind.startswith("IVF"):
        return
    dataset = lib.dataset(at)
    for q in np.random.default_rng(9).random((3, DIMENSION), np.float32):
        point = (q * 255).astype(np.uint8) if column == "bits" else q
        near: dict[str, Any] = {"column": column, "q": point, "k": 10}
        asked: list[dict[str, Any]] = [
            {"metric": metric(case), "use_index": False},
            {"metric": metric(case), "nprobes": 50, "refine_factor": 100, "ef": 1000},
            {"nprobes": 50},
        ]
        exact, refined, rough = (
            dataset.to_table(columns=["id"], nearest=near | options) for options in asked
        )
        distances = [found["_distance"].to_numpy() for found in (refined, exact)]
        np.testing.assert_allclose(*distances, rtol=1e-3, atol=1e-5)
        assert len(set(rough["id"].to_pylist())) == 10


def metric(case: str) -> str:
    said: str = CASES[case][0][2].get("metric", "l2")
    return said


def life(lib: Any, case: str, at: str, check: Callable[[], None] | None = None) -> dict[str, str]:
    """Change a dataset in all ways; the steps that failed, and how."""
    failed = {}
    table = rows(CASES[case], 1000 if lib is lance else 2000, 1040 if lib is lance else 2040)
    for name, step in STEPS.items():
        try:
            step(lib, at, table)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
        except BaseException as error:  # panics
            failed[name] = f"panic: {error}"
        if check is not None:
            check()
    return failed


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "place", [*KEPT, *(at for at in FURTHER if at.name.partition("-")[0] in CASES)], ids=str
)
def test_old_indices_answer_and_are_changed(place: Path, tmp_path: Path) -> None:
    case = place.name.partition("-")[0]
    release = place.parent.name
    misplaced = MISPLACED if case == "bitmap" else MISPLACED[:2] * case.startswith("fts")
    if release in misplaced and "built" not in place.name:
        pytest.skip("indices that this release compacted have nulls in the places of other rows")
    at, theirs = str(tmp_path / "t"), str(tmp_path / "theirs")
    shutil.copytree(place, at)
    shutil.copytree(place, theirs)

    def check() -> None:
        check_filters(case, at, wrong)
        if near is None:
            check_nearest(case, at)
        check_words(case, at, release)

    try:
        wanted = lance.dataset(at).to_table(with_row_id=True).drop(["_rowid"])
    except Exception as error:
        pytest.skip(f"pylance cannot read it: {error}")
    if not case.startswith("json"):
        assert str(glaive.dataset(at).to_table().to_pylist()) == str(wanted.to_pylist())
    wrong = unlike(case, str(place))
    near = nearest_error(case, str(place))
    if case == "pages":  # glaive is right where pylance is not
        wrong = set()
    wrong = {one for one in wrong if answer(lance, at, one) == answer(glaive, at, one)}
    check()
    assert life(glaive, case, at, check) == {}
    pristine = life(lance, case, theirs)
    first = glaive.dataset(str(place)).version + 1
    for version in range(first, glaive.dataset(at).version + 1):
        with suppress(TypeError):  # of pylance's, for rebuilt indices
            lance.dataset(at).read_transaction(version)
    assert unlike(case, at) <= unlike(case, str(place))
    if near is None:
        check_nearest(case, at, lance)
    after = life(lance, case, at)
    assert {name: error for name, error in after.items() if name not in pristine} == {}
    check()
    glaive.dataset(at).validate()


def nearest_error(case: str, at: str) -> str | None:
    """How pylance fails to find the nearest rows by an index that an old release wrote."""
    try:
        check_nearest(case, at, lance)
    except (Exception, AssertionError) as error:
        return str(error)[:200]
    return None


def unlike(case: str, at: str) -> set[str]:
    """Conditions that pylance answers otherwise by the index than without it."""
    dataset = lance.dataset(at)
    found = set()
    for condition in filters(case):
        try:
            scanned = ids(dataset, filter=condition, use_scalar_index=False)
        except Exception as error:
            found.add(f"{condition}: {error}")
            continue
        ours = ids(glaive.dataset(at), filter=condition, use_scalar_index=False)
        assert scanned == ours, condition
        try:
            if ids(dataset, filter=condition) != scanned:
                found.add(condition)
        except Exception as error:
            found.add(f"{condition}: {error}")
    return found


def test_new_segments_have_the_type_of_the_index(tmp_path: Path) -> None:
    """0.36 named the types of bitmaps otherwise; pylance 14 refuses an index of both names."""
    at, old = str(tmp_path / "t"), "/lance.index.pb.BitmapIndexDetails"
    dataset = glaive.write_dataset({"i": [1, 2, 1]}, at)
    dataset.create_scalar_index("i", "BITMAP")
    (index,) = dataset.read_transaction(dataset.version).operation.new_indices
    renamed = replace(index, index_details=(old, b""))
    change = glaive.LanceOperation.CreateIndex([renamed], [index])
    glaive.LanceDataset.commit(at, change, read_version=dataset.version)
    glaive.write_dataset({"i": [1]}, at, mode="append")
    dataset = glaive.dataset(at)
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    assert [one.type_url for one in dataset.describe_indices()] == [old]
    assert len(dataset.describe_indices()[0].segments) == 2
    assert lance.dataset(at).count_rows("i = 1") == 3
