"""Ways of reading a file, and what each takes."""

from __future__ import annotations

import json
import resource
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from tests.proof.few_bytes.draws import Draws
from tests.proof.few_bytes.files import FewBytes

import glaive
from glaive.file import LanceFileReader
from glaive.file.open import open_reader
from glaive.file.protocol import BoundColumns
from glaive.io.access import open_store
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore

__all__ = ["Taken", "Way", "measured", "ways"]

Way = tuple[str, Callable[[], Any]]


class Taken(NamedTuple):
    """What a read took: bytes of memory above what the process had, and seconds."""

    memory: int
    seconds: float
    held: int
    outcome: str
    foreign: bool


def ways(folder: Path, made: FewBytes, draw: Draws) -> Iterator[Way]:
    """Some of them, by name: of a file that is mapped, or fetched, or of a dataset."""
    (folder / "data").mkdir()
    (folder / "data" / "a.lance").write_bytes(made.raw)
    how = draw.of(["mapped", "fetched", "dataset"])
    if how == "dataset":
        yield from _of_a_dataset(folder, made)
    elif how == "mapped":
        yield from _of_a_file(LocalStore(str(folder / "data")), how, made.rows)
    else:
        store = open_store(f"memory://{folder.name}")
        store.put("a.lance", [made.raw])
        yield from _of_a_file(store, how, made.rows)


def _of_a_file(store: ObjectStore, how: str, rows: int) -> Iterator[Way]:
    opened: list[BoundColumns] = []

    def columns() -> BoundColumns:
        if not opened:
            file = open_reader(store, "a.lance")
            opened.append(file.bind(file.schema.fields))
        return opened[0]

    def take(*at: int) -> Any:
        return columns().take(np.array(at, np.int64))

    last = rows - 1
    spread = np.linspace(0, last, 60).astype(np.int64).tolist()
    yield f"{how}: open", columns
    yield f"{how}: take of a row", lambda: take(0)
    yield f"{how}: take of the last row", lambda: take(last)
    yield f"{how}: take of rows far apart", lambda: take(0, rows // 2, last)
    yield f"{how}: take of many", lambda: take(*spread)
    yield f"{how}: take with duplicates", lambda: take(*[last, 0] * 30)
    yield f"{how}: first rows", lambda: columns().read(0, min(rows, 10))
    yield f"{how}: rows in the middle", lambda: columns().read(rows // 2, min(rows, rows // 2 + 10))
    yield f"{how}: last rows", lambda: columns().read(max(0, rows - 10), rows)


def _of_a_dataset(folder: Path, made: FewBytes) -> Iterator[Way]:
    rows = made.rows

    def write() -> None:
        fragment = glaive.FragmentMetadata.from_json(json.dumps(made.fragment))
        operation = glaive.LanceOperation.Overwrite(made.schema, [fragment])
        glaive.LanceDataset.commit(str(folder), operation)

    def dataset() -> Any:
        return glaive.dataset(str(folder))

    yield "dataset: write", write
    yield "dataset: count", lambda: dataset().count_rows(None)
    yield "dataset: take of a row", lambda: dataset().take([rows - 1])
    yield "dataset: take", lambda: dataset().take([0, rows // 2, rows - 1])
    yield "dataset: a range", lambda: dataset().to_table(limit=10, offset=rows // 2)
    yield "dataset: batches", lambda: list(islice(dataset().to_batches(batch_size=10), 3))
    if rows <= 1 << 18:
        yield "dataset: a filter", lambda: dataset().to_table(filter="c0 is null", limit=3)
        yield "dataset: count of a filter", lambda: dataset().count_rows("c0 is not null")
    yield "dataset: statistics", lambda: dict(enumerate(dataset().stats.data_stats().fields))
    yield "file: reader", lambda: _reader(folder, rows)
    yield "dataset: validation", lambda: dataset().validate()


def _reader(folder: Path, rows: int) -> Any:
    reader = LanceFileReader(str(folder / "data" / "a.lance"))
    reader.metadata()
    batches = reader.read_range(0, min(rows, 10)).to_batches()
    return list(islice(batches, 3))


def measured(way: Callable[[], Any]) -> Taken:
    """Run it: what it took, and what came of it."""
    before = _peak_reset()
    began = _seconds()
    held, outcome, foreign = 0, "read", False
    try:
        result = way()
        held = _nbytes(result)
        del result
    except Exception as error:  # any of them is a result
        outcome = f"{type(error).__name__}: {str(error)[:200]}"
        foreign = not isinstance(error, glaive.GlaiveError)
    return Taken(max(0, _peak() - before), _seconds() - began, held, outcome, foreign)


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _nbytes(result: Any) -> int:
    """Bytes of the buffers of arrays, each once."""
    sizes: dict[int, int] = {}

    def visit(part: Any) -> None:
        if isinstance(part, pa.Table | pa.RecordBatch):
            part = part.columns
        elif isinstance(part, pa.ChunkedArray):
            part = part.chunks
        if isinstance(part, list | tuple):
            for one in part:
                visit(one)
        elif isinstance(part, pa.Array):
            for buffer in part.buffers():
                if buffer is not None:
                    sizes[buffer.address] = max(buffer.size, sizes.get(buffer.address, 0))
            if isinstance(part, pa.DictionaryArray):
                visit(part.dictionary)

    visit(result)
    return sum(sizes.values())


def _peak_reset() -> int:
    """Begin to measure the peak of resident memory anew; what there is now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


warnings.simplefilter("ignore")
