"""The tables that schedules begin with: ordinary ones, some with a register, and clones."""

from __future__ import annotations

import random
import zlib
from functools import cache
from typing import Any

import pyarrow as pa
from tests.kit.simulated_bucket import Bucket
from tests.kit.simulated_register import entry_path
from tests.kit.simulated_store import SimulatedStore
from tests.kit.simulation import Actor, Faults, Simulation
from tests.proof.simulated.bases import bases_of
from tests.proof.simulated.clones import CLONED, SOURCE, clone_into
from tests.proof.simulated.contents import vector, words
from tests.proof.simulated.frames import KEY_TYPES, SCHEMA, schema_with_keys, table
from tests.proof.simulated.places import Place

from glaive.dataset.dataset import LanceDataset
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.plan import DatasetBasePath, WriteOptions, plan_write
from glaive.dataset.writing.rows import commit_plan
from glaive.io.store import ObjectStore
from glaive.table.load import open_latest
from glaive.table.references import FileSet
from glaive.table.versions import list_versions

__all__ = ["SHARES", "drawn_table"]

SHARES = {
    "manifest store": 0.12,
    "clone": 0.03,
    "texts": 0.03,
    "vectors": 0.03,
    "keys": 0.08,
    "bases": 0.05,
}
"""Shares of the tables that are no ordinary ones, by kind."""

_STATES = ["unused", "finished", "newest left", "tagged left", "one left"]
"""What a register knows of the versions that a schedule begins with."""

_STAGED = "-00000000-0000-4000-8000-000000000000"


def drawn_table(rng: random.Random) -> tuple[str, Place]:
    """A table, and what kind it is of."""
    about = rng.random() < 0.5, rng.random() < 0.4, rng.choice([0, 0, 0, 1, 3])
    weights = [*SHARES.values(), 1 - sum(SHARES.values())]
    (kind,) = rng.choices([*SHARES, "plain"], weights)
    match kind:
        case "manifest store":
            return kind, _with_register(*about, rng.choice(_STATES))
        case "clone":
            return kind, _clone(*about)
        case "texts" | "vectors":
            return kind, _with_column(*about, kind)
        case "keys":
            return kind, _keys(*about, rng.choice(KEY_TYPES), rng.random() < 0.5)
        case "bases":
            return kind, _bases(*about)
        case _:
            return kind, _plain(*about)


def _maker(bucket: Bucket, *about: object) -> Simulation:
    """With a seed that no schedule has, nor any other table: files of one name are equal."""
    seed = (1 << 40) + zlib.crc32(repr(about).encode())
    return Simulation(seed, bucket, Faults(wait=0.0))


@cache
def _plain(stable: bool, wide: bool, indexed: int) -> Place:
    """A table of two fragments with deleted rows; if it is wide, with a third column."""
    bucket = Bucket("memory://simulated/base")
    simulation = _maker(bucket, "plain", stable, wide, indexed)

    def make(actor: Actor) -> None:
        _made(SimulatedStore(actor), stable, wide, indexed)

    simulation.add("maker", make)
    simulation.run()
    return Place(bucket).copied()  # whose copies share their objects


@cache
def _keys(stable: bool, wide: bool, indexed: int, kind: pa.DataType, part: bool) -> Place:
    """The same, with keys of another type, or of two columns."""
    bucket = Bucket("memory://simulated/keys")
    simulation = _maker(bucket, "keys", stable, wide, indexed, kind, part)
    schema = schema_with_keys(kind, part=part)

    def make(actor: Actor) -> None:
        _made(SimulatedStore(actor), stable, wide, indexed, schema)

    simulation.add("maker", make)
    simulation.run()
    return Place(bucket).copied()


@cache
def _bases(stable: bool, wide: bool, indexed: int) -> Place:
    """The same, with base paths; its files are below them and its root, in turn."""
    bucket = Bucket("memory://simulated/bases")
    simulation = _maker(bucket, "bases", stable, wide, indexed)

    def make(actor: Actor) -> None:
        _made(SimulatedStore(actor), stable, wide, indexed, bases=bases_of(bucket.uri))

    simulation.add("maker", make)
    simulation.run()
    return Place(bucket, fixed=True).copied()


def _made(
    store: ObjectStore,
    stable: bool,
    wide: bool,
    indexed: int,
    schema: pa.Schema = SCHEMA,
    bases: tuple[DatasetBasePath, ...] = (),
) -> LanceDataset:
    options = WriteOptions(
        enable_stable_row_ids=stable,
        max_rows_per_file=4,
        initial_bases=bases,
        target_all_bases=bool(bases),
    )
    plan = plan_write(store, schema, options)
    rows = table({key: key * 10 for key in range(8)}, schema).to_batches()
    made = LanceDataset.of(store, commit_plan(plan, write_fragments(plan, rows)))
    made.tags.create("origin", 1)
    if wide:
        made.add_columns({"more": "value + 1"})
    for name in made.schema.names[:indexed]:
        made.create_scalar_index(name, "BTREE")
    made.delete("key = 6")
    return made


@cache
def _with_column(stable: bool, wide: bool, indexed: int, kind: str) -> Place:
    """A table with a column of texts or of vectors, and an index of it."""
    bucket = Bucket(f"memory://simulated/{kind}")
    simulation = _maker(bucket, kind, stable, wide, indexed)
    of_words = kind == "texts"

    def computed(batch: pa.RecordBatch) -> pa.RecordBatch:
        values: Any = batch["value"].to_pylist()
        numbers = [value // 10 for value in values]
        if of_words:
            return pa.RecordBatch.from_arrays([pa.array(map(words, numbers))], names=["words"])
        vectors = pa.array(map(vector, numbers), pa.list_(pa.float32(), 2))
        return pa.RecordBatch.from_arrays([vectors], names=["vectors"])

    def make(actor: Actor) -> None:
        made = _made(SimulatedStore(actor), stable, False, min(indexed, 2))
        made.add_columns(computed, read_columns=["value"])
        if of_words:
            made.create_scalar_index("words", "INVERTED")
        else:
            made.create_index("vectors", "IVF_FLAT", num_partitions=2)
        if wide:
            made.add_columns({"more": "value + 1"})

    simulation.add("maker", make)
    simulation.run()
    return Place(bucket).copied()


@cache
def _with_register(stable: bool, wide: bool, indexed: int, state: str) -> Place:
    """The same, with a register: before it knows a version, after the newest was staged, or one."""
    place = _plain(stable, wide, indexed)
    newest = open_latest(place.observed()).version
    versions = range(newest + 1, newest + 1) if state == "unused" else range(1, newest + 1)
    unfinished = {"newest left": newest, "tagged left": 1, "one left": newest - 1}.get(state)
    bucket, entries = Bucket(place.bucket.uri), Bucket("register")
    there = {one.version: one.path for one in list_versions(place.observed())}
    names = {path: path for path in there.values()}
    if unfinished is not None:
        names[there[unfinished]] += _STAGED
    for meta in place.bucket.walk(""):
        content = place.bucket.get(meta.path)
        assert content is not None
        path = names.get(meta.path, meta.path)
        bucket.put(path, content.to_pybytes(), "create", 0.0)
    for version in versions:
        entry = f"{names[there[version]]} 0".encode()
        entries.put(entry_path(version), entry, "create", 0.0)
    return Place(bucket, entries).copied()


@cache
def _clone(stable: bool, wide: bool, indexed: int) -> Place:
    """A shallow clone of such a table, which is below it in the bucket, and goes its own way."""
    bucket = Bucket("memory://simulated/clone")
    simulation = _maker(bucket, "clone", stable, wide, indexed)
    needed: set[str] = set()

    def make(actor: Actor) -> None:
        source = _made(SimulatedStore(actor, SOURCE), stable, wide, indexed)
        while source.version < CLONED:
            source.update_config({f"version {source.version}": "passed"})
        source.tags.create("cloned")
        files = FileSet.of([source.manifest])
        needed.update(f"{SOURCE}/{one.path}" for one in source.store.walk("") if one.path in files)
        clone_into(source, SimulatedStore(actor)).tags.create("origin")

    simulation.add("maker", make)
    simulation.run()
    return Place(bucket, oldest=CLONED, needed=frozenset(needed), fixed=True).copied()
