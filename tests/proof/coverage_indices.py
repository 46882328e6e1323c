"""Fuzzing of indices: one file of an index has the bytes of the fuzzer, and is searched.

The first byte says which file of the index it is, by its place in the order of names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from tests.kit.simulated_bucket import Bucket
from tests.kit.simulated_store import SimulatedStore
from tests.kit.simulation import Faults, Simulation

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.plan import WriteOptions, plan_write
from glaive.dataset.writing.rows import commit_plan
from glaive.errors import GlaiveError
from glaive.table.load import open_latest

__all__ = ["INDEX_TARGETS", "index_seeds"]

_ROWS, _DIMENSION = 60, 8
_NEAREST = [0.1 * at for at in range(_DIMENSION)]

Make = Callable[[LanceDataset], object]


def _scalar(column: str, kind: str) -> Make:
    return lambda one: one.create_scalar_index(column, kind)


def _vector(kind: str, **parameters: Any) -> Make:
    return lambda one: one.create_index("v", kind, num_partitions=2, **parameters)


_FILTERS = {
    "id": ["id = 30", "id < 60", "id is null", "not (id > 90)"],
    "t": ["t = 'word1 word2'", "t like 'word1%'", "contains(t, 'ord1')", "t is null"],
    "l": ["array_has(l, 'l1')", "array_has_all(l, ['l1', 'l2'])"],
}
_KINDS: dict[str, tuple[Make, list[dict[str, Any]]]] = {
    **{
        f"index-{kind.lower().replace('_', '-')}": (
            _scalar(column, kind),
            [{"filter": text} for text in _FILTERS[column]],
        )
        for column, kind in (
            ("id", "BTREE"),
            ("id", "BITMAP"),
            ("id", "ZONEMAP"),
            ("t", "BLOOMFILTER"),
            ("t", "NGRAM"),
            ("l", "LABEL_LIST"),
        )
    },
    "index-inverted": (
        lambda one: one.create_scalar_index("t", "INVERTED", with_position=True),
        [{"full_text_query": text, "limit": 5} for text in ("word1", "word1 word2")],
    ),
    **{
        f"index-{kind.lower().replace('_', '-')}": (
            _vector(kind, **parameters),
            [{"nearest": {"column": "v", "q": _NEAREST, "k": k, "nprobes": 2}} for k in (3, 80)],
        )
        for kind, parameters in (
            ("IVF_FLAT", {}),
            ("IVF_PQ", {"num_sub_vectors": 2, "num_bits": 4}),
            ("IVF_SQ", {}),
            ("IVF_RQ", {}),
            ("IVF_HNSW_SQ", {}),
        )
    },
}


def _store(bucket: Bucket) -> SimulatedStore:
    return SimulatedStore(Simulation(0, bucket, Faults(wait=0.0)).observer())


@cache
def _indexed(target: str) -> tuple[Bucket, tuple[str, ...]]:
    """A dataset with one index, and the paths of its files."""
    random = np.random.default_rng(2)
    texts = [f"word{at % 9} word{at % 4}" if at % 7 else None for at in range(_ROWS)]
    table = pa.table({
        "id": pa.array([at * 3 if at % 20 else None for at in range(_ROWS)], pa.int64()),
        "t": texts,
        "l": [[f"l{(at + k) % 5}" for k in range(at % 4)] for at in range(_ROWS)],
        "v": pa.FixedSizeListArray.from_arrays(
            pa.array(random.normal(size=_ROWS * _DIMENSION), pa.float32()), _DIMENSION
        ),
    })  # fmt: skip
    bucket = Bucket(f"memory://fuzz-{target}")
    store = _store(bucket)
    plan = plan_write(store, table.schema, WriteOptions())
    made = LanceDataset.of(store, commit_plan(plan, write_fragments(plan, table.to_batches())))
    _KINDS[target][0](made)
    return bucket, tuple(sorted(meta.path for meta in store.walk("_indices")))


def read_index(target: str, data: bytes) -> None:
    """Search an index, one of whose files has these bytes."""
    base, paths = _indexed(target)
    bucket = base.copied(base.uri)
    bucket.put(paths[(data[:1] or b"\0")[0] % len(paths)], data[1:], "overwrite", 0.0)
    store = _store(bucket)
    refused: GlaiveError | None = None
    for options in _KINDS[target][1]:
        try:
            LanceDataset.of(store, open_latest(store)).to_table(columns=["id"], **options)
        except GlaiveError as error:  # the other searches may read on
            refused = error
    if refused is not None:
        raise refused


INDEX_TARGETS: dict[str, Callable[[bytes], None]] = {
    target: partial(read_index, target) for target in _KINDS
}


def index_seeds(target: str) -> Iterator[bytes]:
    """The files of the index, each after its number."""
    bucket, paths = _indexed(target)
    store = _store(bucket)
    for number, path in enumerate(paths):
        yield bytes([number]) + store.get(path).to_pybytes()
