"""Compare reads of random tables with pylance: ``python -m benchmarks.shapes``.

A seed determines the tables:

- columns of all types with random widths, cardinalities, runs, orders and shares of nulls;
- lists and structs two deep, vectors, dictionaries;
- 1, 4, 40 or 1,000 fragments, deleted rows, format versions 2.0 to 2.3.

pylance writes them. Both libraries answer the same questions in turn; their answers are compared.

A *cell* is one question of one table. Its ratio divides pylance's CPU time by glaive's. Both are
medians of later calls; first calls are listed separately.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import glaive
from benchmarks.measure import settled

Rng = np.random.Generator

_VERSIONS = ("2.0", "2.1", "2.2", "2.3")
_FRAGMENTS = (1, 1, 4, 4, 40, 1_000)
_TINY = 10
"""Rows per fragment of a table with a thousand fragments."""
_ROUNDS = 7
_WARM = 6
"""Untimed calls before the timed calls: some read paths only start after a few calls."""
_LEAST = 0.002
"""Minimum seconds of a measurement."""


@dataclass
class Cell:
    """The results of one question of one table, in milliseconds of CPU time."""

    table: int
    shape: str
    question: str
    pylance: float
    glaive: float
    first_pylance: float
    first_glaive: float
    wrong: bool = False
    ratio: float = field(init=False)

    def __post_init__(self) -> None:
        self.ratio = self.pylance / max(self.glaive, 1e-6)


# --- Columns -------------------------------------------------------------------------------


def _arranged(rng: Rng, values: np.ndarray[Any, Any], rows: int) -> tuple[Any, str]:
    """Arrange values in runs, sorted, or unchanged."""
    order = rng.choice(["random", "random", "sorted", "runs"])
    if order == "sorted":
        return np.sort(values), "sorted"
    if order == "runs":
        run = int(rng.choice([3, 20, 300]))
        return np.repeat(values[: -(-rows // run)], run)[:rows], f"runs of {run}"
    return values, ""


def _with_nulls(rng: Rng, array: pa.Array) -> tuple[pa.Array, str]:
    share = float(rng.choice([0, 0, 0, 0.01, 0.3, 0.9]))
    if not share:
        return array, ""
    mask = pa.array(rng.random(len(array)) < share)
    return pc.if_else(mask, pa.scalar(None, array.type), array), f"{share:.0%} null"


def _numbers(rng: Rng, rows: int) -> tuple[pa.Array, str]:
    kind = rng.choice(
        ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "float32", "float64",
         "date32", "timestamp", "bool", "decimal"]
    )  # fmt: skip
    if kind == "bool":
        return pa.array(rng.random(rows) < rng.choice([0.01, 0.5])), "bool"
    if kind in ("float32", "float64"):
        values = rng.random(rows)
        if rng.random() < 0.4:
            values = np.round(values, 2)
        made, order = _arranged(rng, values.astype(kind), rows)
        return pa.array(made), f"{kind} {order}"
    bits = int(rng.choice([1, 3, 7, 7, 12, 20, 31]))
    values, order = _arranged(rng, rng.integers(0, 1 << bits, rows), rows)
    if kind == "decimal":
        return pa.array(values).cast(pa.decimal128(20, 0)), f"decimal {bits} bits {order}"
    if kind in ("date32", "timestamp"):
        days = (values % 40_000).astype(np.int32)  # later days have no value in Python
        wide = pa.array(days if kind == "date32" else values)
        return wide.cast(pa.date32() if kind == "date32" else pa.timestamp("us")), f"{kind} {order}"
    width = np.dtype(str(kind)).itemsize * 8
    low = values & ((1 << min(bits, width - 1)) - 1)
    return pa.array(low.astype(str(kind))), f"{kind} {bits} bits {order}"


def _texts(rng: Rng, rows: int) -> tuple[pa.Array, str]:
    distinct = int(min(rows, rng.choice([3, 100, 3_000, 1_000_000])))
    length = int(rng.choice([2, 10, 40, 200]))
    kind = rng.choice(["string", "string", "large_string", "binary"])
    letters = rng.integers(97, 123, (min(distinct, 20_000), length)).astype(np.uint8)
    words = [bytes(row[: rng.integers(1, length + 1)]).decode() for row in letters]
    picks, order = _arranged(rng, rng.integers(0, len(words), rows), rows)
    array = pa.array(words).take(pa.array(picks))
    if distinct > len(words):  # append a number to each word: all are distinct
        tail = pa.array(np.arange(rows)).cast(pa.string())
        array = pc.binary_join_element_wise(array, tail, "-")
    return array.cast(getattr(pa, str(kind))()), f"{kind} {distinct} of {length} {order}"


def _dictionaries(rng: Rng, rows: int) -> tuple[pa.Array, str]:
    words = pa.array([f"word-{at}" for at in range(int(rng.choice([4, 90, 3_000])))])
    picks, nulls = _with_nulls(rng, pa.array(rng.integers(0, len(words), rows).astype(np.int32)))
    return pa.DictionaryArray.from_arrays(picks, words), f"dictionary of {len(words)} {nulls}"


def _vectors(rng: Rng, rows: int) -> tuple[pa.Array, str]:
    width = int(rng.choice([2, 8, 64]))
    items = pa.array(rng.random(rows * width).astype(np.float32))
    return pa.FixedSizeListArray.from_arrays(items, width), f"vectors of {width}"


def _lists(rng: Rng, rows: int, depth: int) -> tuple[pa.Array, str]:
    mean = float(rng.choice([0.5, 3, 12]))
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(rng.poisson(mean, rows), out=ends[1:])
    items, what = _column(rng, int(ends[-1]), depth - 1, simple=True)
    return pa.ListArray.from_arrays(pa.array(ends), items), f"list({mean:g}) of [{what}]"


def _structs(rng: Rng, rows: int, depth: int) -> tuple[pa.Array, str]:
    parts = [_column(rng, rows, depth - 1) for _ in range(int(rng.integers(1, 4)))]
    arrays = [array for array, _ in parts]
    made = pa.StructArray.from_arrays(arrays, [f"m{at}" for at in range(len(parts))])
    return made, f"struct of [{'; '.join(what for _, what in parts)}]"


def _column(rng: Rng, rows: int, depth: int, *, simple: bool = False) -> tuple[pa.Array, str]:
    kinds: list[Callable[..., tuple[pa.Array, str]]] = [_numbers] * 5 + [_texts] * 4
    if not simple:
        kinds += [_dictionaries, _vectors]
    deep: list[Callable[..., tuple[pa.Array, str]]] = [_lists, _structs]
    every = kinds + deep * 2 if depth > 0 else kinds
    make = every[int(rng.integers(len(every)))]
    array, what = make(rng, rows, depth) if make in deep else make(rng, rows)
    if pa.types.is_dictionary(array.type) or pa.types.is_fixed_size_list(array.type):
        return array, what
    array, nulls = _with_nulls(rng, array)
    return array, f"{what} {nulls}".strip()


# --- Tables and questions -------------------------------------------------------------------


@dataclass
class Shape:
    """A table on disk, with a description."""

    number: int
    rows: int
    version: str
    fragments: int
    deleted: bool
    columns: dict[str, str]
    path: str

    def __str__(self) -> str:
        named = ", ".join(f"{name}: {what}" for name, what in self.columns.items())
        marks = f"{self.rows:,} rows, {self.fragments} fragments, {self.version}"
        return f"{marks}{', deletions' if self.deleted else ''}: {named}"


def make_shape(number: int, seed: int, rows: int, folder: Path) -> Shape:
    """Write a random table with pylance."""
    rng = np.random.default_rng([seed, number])
    fragments = int(rng.choice(_FRAGMENTS))
    rows = fragments * _TINY if fragments == max(_FRAGMENTS) else int(rng.choice([rows // 8, rows]))
    version = str(rng.choice(_VERSIONS))
    made = {f"c{at}": _column(rng, rows, 2) for at in range(int(rng.integers(1, 6)))}
    table = pa.table(
        {"seq": pa.array(np.arange(rows))} | {name: array for name, (array, _) in made.items()}
    )
    path = str(folder / f"{number}.lance")
    most = -(-rows // fragments)
    try:
        lance.write_dataset(table, path, data_storage_version=version, max_rows_per_file=most)
    except OSError as error:
        if "struct validity" not in str(error):  # 2.0 cannot store null structs
            raise
        version = "2.1"
        lance.write_dataset(table, path, data_storage_version=version, max_rows_per_file=most)
    deleted = bool(rng.random() < 0.25)
    if deleted:
        lance.dataset(path).delete("seq % 37 = 5")
    what = {name: text for name, (_, text) in made.items()}
    return Shape(number, rows, version, fragments, deleted, what, path)


def _conditions(rng: Rng, name: str, array: pa.ChunkedArray) -> Iterator[tuple[str, str]]:
    """Yield filters of each kind that a column supports."""
    kind = array.type
    if pa.types.is_nested(kind):
        return
    yield "is null", f"{name} IS NULL"
    values = array.drop_null()
    if pa.types.is_dictionary(kind) or pa.types.is_binary(kind) or not len(values):
        return
    one = values[int(rng.integers(len(values)))].as_py()
    if pa.types.is_boolean(kind):
        yield "boolean", name
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        yield "equal", f"{name} = {one!r}"
        yield "range", f"{name} < {one!r}"
        yield "two", f"{name} >= {one!r} AND seq % 2 = 0"
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield "equal", f"{name} = '{one}'"
        yield "prefix", f"{name} LIKE '{one[:2]}%'"
        yield "in", f"{name} IN ('{one}', 'nowhere')"


def questions(
    shape: Shape, rng: Rng, table: pa.Table
) -> Iterator[tuple[str, Callable[[Any, int], Any]]]:
    """Yield each kind of read, as a function of a dataset and the number of the call."""
    total = table.num_rows
    name = str(rng.choice(list(shape.columns)))
    yield "scan", lambda d, _: d.to_table()
    yield "stream", lambda d, _: pa.Table.from_batches(d.to_batches(), d.schema)
    yield f"column {name}", lambda d, _: d.to_table(columns=[name])
    yield "limit with offset", lambda d, _: d.to_table(limit=100, offset=total // 2)
    for count in (1, 30, 300, 5_000):
        drawn = [rng.integers(0, total, count) for _ in range(16)]

        def take(d: Any, turn: int, drawn: Any = drawn) -> pa.Table:
            return d.take(drawn[turn % len(drawn)].tolist())

        yield f"take {count}", take
    for column in shape.columns:
        for kind, text in _conditions(rng, column, table[column]):

            def rows(d: Any, _: int, text: str = text) -> pa.Table:
                return d.to_table(filter=text)

            def counted(d: Any, _: int, text: str = text) -> int:
                return int(d.count_rows(text))

            yield f"filter {kind} {column}", rows
            if kind in ("is null", "range"):
                yield f"count {kind} {column}", counted
    yield "update", lambda d, turn: d.update({"seq": "seq + 0"}, where=f"seq % 97 = {turn % 97}")


def _same(theirs: Any, ours: Any) -> bool:
    if isinstance(theirs, pa.Table):  # pages may have separate dictionaries
        equal = ours.equals(theirs) or ours.to_pylist() == theirs.to_pylist()
        return bool(ours.schema == theirs.schema and equal)
    return bool(theirs == ours)


def ask(shape: Shape, question: str, work: Callable[[Any, int], Any]) -> Cell:
    """Time one question for both libraries in turn, on separately opened datasets.

    Each library updates a copy of its own.
    """
    paths = [shape.path] * 2
    if question == "update":
        paths = [f"{shape.path}.{name}" for name in ("pylance", "glaive")]
        for path in paths:
            shutil.copytree(shape.path, path)
    opened = [lance.dataset(paths[0]), glaive.dataset(paths[1])]
    firsts, inner = [0.0, 0.0], [1, 1]
    times: tuple[list[float], list[float]] = ([], [])
    answers: list[Any] = [None, None]
    for at, dataset in enumerate(opened):
        start = time.process_time()
        answers[at] = work(dataset, 0)
        firsts[at] = time.process_time() - start
        for turn in range(1, _WARM):
            start = time.process_time()
            work(dataset, turn)
        inner[at] = max(1, int(_LEAST / max(time.process_time() - start, 1e-5)))
    wrong = not _same(*answers)
    del answers
    with settled():
        for turn in range(_ROUNDS):
            for at, dataset in enumerate(opened):
                start = time.process_time()
                for again in range(inner[at]):
                    work(dataset, turn * inner[at] + again)
                times[at].append((time.process_time() - start) / inner[at])
    theirs, ours = (1e3 * median(own) for own in times)
    first_theirs, first_ours = (1e3 * first for first in firsts)
    return Cell(
        shape.number, str(shape), question, theirs, ours, first_theirs, first_ours, wrong=wrong
    )


def report(cells: list[Cell]) -> str:
    """Summarize all cells, and list cells slower than pylance."""
    ratios = np.array([cell.ratio for cell in cells])
    kinds: dict[str, list[float]] = {}
    for cell in cells:
        kinds.setdefault(" ".join(cell.question.split(" c")[:1]), []).append(cell.ratio)
    lines = [f"{'question':24} {'cells':>5} {'least':>6} {'5 %':>6} {'mean':>6}"]
    for kind, own in [*sorted(kinds.items()), ("all", ratios.tolist())]:
        least, low = min(own), float(np.percentile(own, 5))
        lines.append(f"{kind:24} {len(own):5} {least:6.2f} {low:6.2f} {geometric_mean(own):6.2f}")
    faster, twice = np.mean(ratios > 1), np.mean(ratios >= 2)
    lines.append(f"faster than pylance: {faster:.1%} of cells, twice: {twice:.1%}")
    firsts = [cell.first_pylance / max(cell.first_glaive, 1e-6) for cell in cells]
    lines.append(f"first calls: mean {geometric_mean(firsts):.2f}")
    for cell in sorted(cells, key=lambda cell: cell.ratio):
        if cell.ratio >= 1 and not cell.wrong:
            continue
        mark = "WRONG " if cell.wrong else ""
        pair = f"{cell.pylance:.3f} to {cell.glaive:.3f} ms"
        lines.append(f"{mark}{cell.ratio:.2f} {cell.question} ({pair}): {cell.shape}")
    return "\n".join(lines)


def main() -> int:
    """Ask all questions and print the report; return 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(prog="make bench-shapes", description=__doc__)
    parser.add_argument("--tables", type=int, default=20, help="random tables")
    parser.add_argument("--first", type=int, default=0, help="number of the first table")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of large tables")
    parser.add_argument("--seed", type=int, default=1, help="of the tables")
    parser.add_argument("--only", help="questions with this text in their name")
    parser.add_argument("--json", type=Path, help="write all cells to this file")
    options = parser.parse_args()
    cells: list[Cell] = []
    for number in range(options.first, options.first + options.tables):
        with tempfile.TemporaryDirectory() as folder:
            try:
                shape = make_shape(number, options.seed, options.rows, Path(folder))
            except OSError as error:
                print(f"{number}: pylance cannot write this table: {error}", flush=True)
                continue
            table = lance.dataset(shape.path).to_table()
            asked = questions(shape, np.random.default_rng([options.seed, number, 1]), table)
            for question, work in asked:
                if options.only is None or options.only in question:
                    cells.append(ask(shape, question, work))
            print(f"{number}: {shape}", flush=True)
    print(report(cells))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
    return int(any(cell.wrong for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
