"""Write datasets with all kinds of index by old releases of pylance, for ``make historical``.

``python tools/old_releases.py FOLDER`` installs each release into a separate folder, runs this
module there, and deletes the folder. The datasets are ``FOLDER/<release>/<case>-<history>``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import decimal
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

RELEASES: Final = (
    "0.16.0", "0.18.2", "0.20.0", "0.22.0", "0.24.1", "0.25.2", "0.27.0", "0.29.0", "0.30.0",
    "0.31.1", "0.33.0", "0.36.0", "0.38.3", "0.39.0", "1.0.4", "2.0.1", "3.0.0", "4.0.2", "6.1.0",
    "7.1.0", "8.0.1", "9.0.1", "10.0.0", "11.0.0", "12.0.0", "13.0.0",
)  # fmt: skip
"""One release of each major version, and each 0.x that changed a kind of index. 5 is missing."""

STORAGE: Final = ("legacy", "2.0", "2.1", "2.2", "2.3")

WORDS: Final = (
    "alpha", "beta", "gamma", "delta", "fox", "dog", "cat", "tail", "quick", "brown", "lazy",
    "search", "index", "lance",
)  # fmt: skip
DIMENSION: Final = 8

Index = tuple[str, str, dict[str, Any]]
"""Column, kind and parameters. A lower-case kind has the parameters of ``IndexConfig``."""

_COLUMNS = ("i", "f", "t", "ok", "day", "at", "dec", "b")


def _vectors(kind: str, column: str = "vec", **more: Any) -> list[Index]:
    return [(column, kind, {"num_partitions": 2, **more})]


CASES: Final[dict[str, list[Index]]] = {
    "btree": [(column, "BTREE", {}) for column in _COLUMNS],
    "pages": [("n", "BTREE", {})],
    "bitmap": [(column, "BITMAP", {}) for column in _COLUMNS],
    "label_list": [("tags", "LABEL_LIST", {}), ("numbers", "LABEL_LIST", {})],
    "zonemap": [(column, "ZONEMAP", {}) for column in _COLUMNS],
    "bloomfilter": [(column, "BLOOMFILTER", {}) for column in _COLUMNS],
    "ngram": [("t", "NGRAM", {})],
    "fm": [("t", "fm", {})],
    "rtree": [("g", "RTREE", {})],
    "json": [("js", "json", {"target_index_type": "btree", "path": "x"})],
    "json_bitmap": [("js", "json", {"target_index_type": "bitmap", "path": "x"})],
    "fts": [("text", "INVERTED", {})],
    "fts_positions": [("text", "INVERTED", {"with_position": True})],
    "fts_stem": [("text", "INVERTED", {"stem": True, "remove_stop_words": True})],
    "fts_ngram": [("text", "INVERTED", {"base_tokenizer": "ngram"})],
    "fts_whitespace": [("text", "INVERTED", {"base_tokenizer": "whitespace"})],
    "ivf_flat": _vectors("IVF_FLAT"),
    "ivf_flat_hamming": _vectors("IVF_FLAT", "bits", metric="hamming"),
    "ivf_pq": _vectors("IVF_PQ", num_sub_vectors=4),
    "ivf_pq_4": _vectors("IVF_PQ", num_sub_vectors=4, num_bits=4),
    "ivf_pq_cosine": _vectors("IVF_PQ", num_sub_vectors=4, metric="cosine"),
    "ivf_pq_dot": _vectors("IVF_PQ", num_sub_vectors=4, metric="dot"),
    "ivf_pq_half": _vectors("IVF_PQ", "half", num_sub_vectors=4),
    "ivf_pq_double": _vectors("IVF_PQ", "double", num_sub_vectors=4),
    "ivf_pq_legacy": _vectors("IVF_PQ", num_sub_vectors=4, index_file_version="Legacy"),
    "ivf_sq": _vectors("IVF_SQ"),
    "ivf_rq": _vectors("IVF_RQ"),
    "ivf_hnsw_flat": _vectors("IVF_HNSW_FLAT"),
    "ivf_hnsw_pq": _vectors("IVF_HNSW_PQ", num_sub_vectors=4),
    "ivf_hnsw_sq": _vectors("IVF_HNSW_SQ"),
    "ivf_hnsw_sq_cosine": _vectors("IVF_HNSW_SQ", metric="cosine"),
}
"""Indices of each dataset, by name."""

EVERYWHERE: Final = ("btree", "bitmap", "label_list", "fts", "ivf_pq", "ivf_hnsw_sq")
"""Cases to write in each format of data files, and with stable row ids."""


def rows(indices: list[Index], start: int, stop: int) -> pa.Table:
    """Return rows of the indexed columns, with some nulls."""
    numbers = range(start, stop)
    random = np.random.default_rng(start)
    width = DIMENSION
    points = random.random((len(numbers), width), np.float32)

    def vectors(kind: Any, values: Any) -> Any:
        flat = pa.array(values.reshape(-1), kind)
        return pa.FixedSizeListArray.from_arrays(flat, width)

    def some(values: Any, kind: Any, step: int = 11) -> Any:
        gaps = [None if at % step == 3 else one for at, one in zip(numbers, values, strict=True)]
        return pa.array(gaps, kind)

    day = dt.date(2024, 1, 1)
    moment = dt.datetime.fromisoformat("2024-01-01")
    floats = [
        float("nan") if at % 17 == 5 else -0.0 if at % 19 == 4 else at % 40 / 2 for at in numbers
    ]
    texts = [" ".join(random.choice(WORDS, 1 + at % 7)) for at in numbers]
    made: dict[str, Callable[[], Any]] = {
        "n": lambda: some([at * 7919 % 30011 for at in numbers], pa.int64()),
        "i": lambda: some([at * 7 % 50 for at in numbers], pa.int64()),
        "f": lambda: some(floats, pa.float64()),
        "t": lambda: some([f"text{at % 23} é" for at in numbers], pa.string()),
        "ok": lambda: some([at % 3 == 0 for at in numbers], pa.bool_()),
        "day": lambda: some([day + dt.timedelta(at % 30) for at in numbers], pa.date32()),
        "at": lambda: some(
            [moment + dt.timedelta(seconds=at % 30) for at in numbers], pa.timestamp("us")
        ),
        "dec": lambda: some([decimal.Decimal(at % 30) / 4 for at in numbers], pa.decimal128(10, 2)),
        "b": lambda: some([bytes([at % 29]) * 3 for at in numbers], pa.binary()),
        "tags": lambda: some(
            [[f"t{at % 7}", f"t{at % 5}"][: at % 3] for at in numbers], pa.list_(pa.string())
        ),
        "numbers": lambda: some([[at % 6, at % 4] for at in numbers], pa.list_(pa.int64())),
        "js": lambda: some([f'{{"x": {at % 20}}}' for at in numbers], pa.json_()),
        "text": lambda: some([f"{one} Foxes naïve" for one in texts], pa.string()),
        "vec": lambda: vectors(pa.float32(), points),
        "half": lambda: vectors(pa.float16(), points.astype(np.float16)),
        "double": lambda: vectors(pa.float64(), points.astype(np.float64)),
        "bits": lambda: vectors(pa.uint8(), (points * 255).astype(np.uint8)),
        "g": lambda: pa.StructArray.from_arrays(
            [pa.array(points[:, at].astype(np.float64) * 20) for at in (0, 1)],
            fields=[pa.field("x", pa.float64(), False), pa.field("y", pa.float64(), False)],
        ),
    }
    names = list(dict.fromkeys(column for column, *_ in indices))
    columns: dict[str, Any] = {"id": pa.array(numbers, pa.int64())}
    columns |= {name: made[name]() for name in names}
    table = pa.table(columns)
    if "g" in columns:
        said: dict[bytes | str, bytes | str] = {
            "ARROW:extension:name": "geoarrow.point",
            "ARROW:extension:metadata": "{}",
        }
        at = table.schema.get_field_index("g")
        table = table.cast(table.schema.set(at, table.schema.field(at).with_metadata(said)))
    return table


def _create(dataset: Any, lance: Any, index: Index) -> None:
    column, kind, parameters = index
    if kind.islower():
        config = lance.indices.IndexConfig(index_type=kind, parameters=parameters)
        dataset.create_scalar_index(column, config)
    elif kind.startswith("IVF"):
        dataset.create_index(column, kind, **parameters)
    else:
        dataset.create_scalar_index(column, kind, **parameters)


def _write(lance: Any, place: str, indices: list[Index], history: str, **options: Any) -> None:
    """Write one dataset: 2 fragments and deleted rows, with more changes in longer histories."""
    column, kind, _ = indices[0]
    size = 1500 if column == "n" else 150 if kind.startswith("IVF") else 60
    table = rows(indices, 0, 2 * size)
    lance.write_dataset(table, place, max_rows_per_file=size, **options)
    failed = []
    for index in indices:
        try:
            _create(lance.dataset(place), lance, index)
        except BaseException as error:
            failed.append(error)
    if len(failed) == len(indices):
        raise failed[0]
    grown: tuple[Callable[[], Any], ...] = (
        lambda: lance.write_dataset(rows(indices, 2 * size, 3 * size), place, mode="append"),
        lambda: lance.dataset(place).optimize.optimize_indices(),  # noqa: PLW0108  # opens it then
        lambda: lance.dataset(place).delete("id % 13 = 5"),
        lambda: lance.dataset(place).optimize.compact_files(target_rows_per_fragment=2 * size),
        lambda: lance.write_dataset(rows(indices, 3 * size, 3 * size + 20), place, mode="append"),
    )
    for step in grown if history == "grown" else grown[2:3]:
        try:
            step()
        except BaseException as error:  # some releases fail for some kinds
            print(f"  {Path(place).name}, a step: {error!s:.150}", flush=True)


def write_all(folder: Path, only: list[str]) -> None:
    """Write the datasets that the imported release of pylance supports."""
    warnings.simplefilter("ignore")
    import lance

    options = inspect.signature(lance.write_dataset).parameters
    stable = [name for name in options if name.endswith("stable_row_ids")]
    wanted: list[tuple[str, str, str, dict[str, Any]]] = []
    for name in CASES:
        wanted += [(name, history, history, {}) for history in ("built", "grown")]
        if name in EVERYWHERE:
            for version in STORAGE:
                wanted.append((name, version, "grown", {"data_storage_version": version}))
            wanted += [(name, "stable", "grown", {stable[0]: True})] if stable else []
    for name, title, history, given in wanted:
        place = folder / f"{name}-{title}"
        if only and place.name not in only:
            continue
        if name.startswith("json"):
            given["data_storage_version"] = "2.2"
        try:
            _write(lance, str(place), CASES[name], history, **given)
        except BaseException as error:  # includes panics: this release lacks the feature
            print(f"{folder.name} {place.name}: {str(error) or repr(error):.150}", flush=True)
            shutil.rmtree(place, ignore_errors=True)


def main() -> None:
    """Install releases and run each, or write with the imported release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--releases", nargs="*", default=RELEASES)
    parser.add_argument("--cases", nargs="*", default=[])
    parser.add_argument("--installed", type=Path, help="folder to install and reuse releases in")
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write_all(given.folder, given.cases)
        return
    for release in given.releases:
        out = given.folder / release
        if out.is_dir() and not given.cases:
            continue
        with tempfile.TemporaryDirectory() as place:
            libraries = Path(place)
            if given.installed is not None and (given.installed / release).is_dir():
                libraries = given.installed / release
            else:
                install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
                subprocess.run(  # our own arguments
                    [*install, "--target", place, f"pylance=={release}"], check=True
                )
            out.mkdir(parents=True, exist_ok=True)
            environment = {**os.environ, "PYTHONPATH": str(libraries), "RUST_BACKTRACE": "0"}
            command = [sys.executable, __file__, str(out), "--write", "--cases", *given.cases]
            subprocess.run(command, check=True, env=environment)  # our own arguments
            print(f"{release}: {len(list(out.iterdir()))} datasets", flush=True)


if __name__ == "__main__":
    main()
