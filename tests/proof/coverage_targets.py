"""What coverage-guided fuzzing calls: functions that read bytes of somebody else.

Each returns whether the bytes were accepted; anything but a ``GlaiveError`` is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from tests.proof.coverage_indices import INDEX_TARGETS
from tests.proof.coverage_pages import PAGE_TARGETS, open_data_file, read_data_file

import glaive
from glaive.arrow.jsonb import decode_jsonb, encode_jsonb
from glaive.errors import GlaiveError
from glaive.expr.convert import read_substrait
from glaive.expr.parse import parse
from glaive.format.deletions import decode_deletions, encode_deletions
from glaive.format.manifest import decode_index_section, decode_manifest
from glaive.format.paths import DATA, VERSIONS
from glaive.format.rowids import decode_row_ids, decode_versions, encode_row_ids, encode_versions
from glaive.format.transaction import decode_transaction
from glaive.kernels.fsst import (
    TABLE_BYTES,
    SymbolTable,
    decode_strings,
    encode_strings,
    train_symbols,
)
from glaive.kernels.strings import Strings
from glaive.types import Where

ROWS = 1_000
WHERE = "fuzz"
_HERE = Where(WHERE)


def read_manifest(data: bytes) -> None:
    """The manifest, its fragments, indices and transaction."""
    manifest = decode_manifest(pa.py_buffer(data), where=WHERE, scheme="V2")
    for position in range(min(manifest.num_fragments, 100)):
        manifest.fragment(position)
    manifest.schema.to_arrow()
    decode_index_section(bytes(manifest.index_section or b""), WHERE)
    if manifest.transaction is not None:
        decode_transaction(manifest.transaction, where=WHERE)


def read_deletions(data: bytes) -> None:
    """A deletion file; the first byte says of which kind."""
    decode_deletions(pa.py_buffer(data[1:]), bitmap=bool(data[:1] == b"b"), rows=ROWS, where=WHERE)


def read_row_ids(data: bytes) -> None:
    """Row ids, or versions of rows."""
    if data[:1] == b"v":
        decode_versions(data[1:], ROWS, where=WHERE)
    else:
        decode_row_ids(data[1:], ROWS, where=WHERE)


def read_symbols(data: bytes) -> None:
    """A table of FSST symbols, and texts in its codes: one alone, and the same one in parts."""
    table, codes = SymbolTable.parse(data[:TABLE_BYTES], _HERE), data[TABLE_BYTES:]
    ends = np.linspace(0, len(codes), 9).astype(np.int32)
    for bounds in (ends[[0, -1]], ends):
        strings = Strings(pa.py_buffer(bounds), 32, pa.py_buffer(codes))
        decode_strings(table, strings, len(bounds) - 1, _HERE)


def written_symbols() -> bytes:
    """A table of symbols and the codes of texts, as :func:`read_symbols` reads them."""
    urls = [f"https://example.org/{at % 13}/page/{at}" for at in range(400)]
    offsets, data = pa.array(urls, pa.large_string()).buffers()[1:]
    strings = Strings(offsets, 64, data)
    table = train_symbols(strings)
    return table.to_bytes() + encode_strings(table, strings, len(urls)).data.to_pybytes()


TARGETS: dict[str, Callable[[bytes], None]] = {
    **INDEX_TARGETS,
    **dict.fromkeys(PAGE_TARGETS, read_data_file),
    "fsst": read_symbols,
    "data-file": read_data_file,
    "file-tail": lambda data: void(open_data_file(data)),
    "manifest": read_manifest,
    "transaction": lambda data: void(decode_transaction(data, where=WHERE)),
    "index-section": lambda data: void(decode_index_section(data, WHERE)),
    "deletions": read_deletions,
    "row-ids": read_row_ids,
    "filter": lambda data: void(parse(data.decode("utf-8", "replace"))),
    "substrait": lambda data: void(read_substrait(data)),
    "jsonb": lambda data: void(decode_jsonb(pa.array([data], pa.large_binary()), WHERE)),
}


def void(_: object) -> None:
    """Nothing is done with what was read."""


def is_accepted(target: str, data: bytes) -> bool:
    """Whether the bytes are read; otherwise they ended in an error of ours."""
    try:
        TARGETS[target](data)
    except GlaiveError:
        return False
    return True


def seeds() -> Iterator[tuple[str, bytes]]:
    """Valid inputs to begin with: target and bytes."""
    rows = pa.table(
        {
            "id": range(40),
            "text": [f"text {i % 7}" for i in range(40)],
            "list": [list(range(i % 4)) for i in range(40)],
            "vector": pa.array([[float(i), 1.0] for i in range(40)], pa.list_(pa.float32(), 2)),
        }
    )
    for version in ("2.0", "2.1", "2.2", "2.3", "legacy"):
        place = f"memory://fuzz-seeds-{version}/t"
        stable = version == "2.2"
        made = glaive.write_dataset(
            rows, place, data_storage_version=version, enable_stable_row_ids=stable
        )
        made.delete("id = 3")
        for folder, target in ((DATA, "data-file"), (VERSIONS, "manifest")):
            for meta in made.store.walk(folder):
                if meta.path.endswith((".lance", ".manifest")):
                    yield target, made.store.get(meta.path).to_pybytes()
                if meta.path.endswith(".lance"):
                    yield "file-tail", made.store.get(meta.path).to_pybytes()
        for meta in made.store.walk("_transactions"):
            yield "transaction", made.store.get(meta.path).to_pybytes()
    offsets = np.array([1, 5, 900], np.uint32)
    for bitmap, kind in ((True, b"b"), (False, b"a")):
        yield "deletions", kind + encode_deletions(offsets, bitmap=bitmap)
    for ids in (np.arange(ROWS), np.arange(ROWS) * 3, np.arange(ROWS)[::-1]):
        yield "row-ids", b"r" + encode_row_ids(ids.astype(np.uint64))
    yield "row-ids", b"v" + encode_versions([(ROWS // 2, 1), (ROWS // 2, 4)])
    yield "fsst", written_symbols()
    for text in (
        "a = 1 AND b IN ('x', NULL)",
        "NOT (lower(t) LIKE '%a_')",
        "d > date '2020-01-01'",
    ):
        yield "filter", text.encode()
    documents = encode_jsonb(pa.array(['{"a": [1, -2.5, null, "x"]}', "[]"]))
    for document in documents:
        yield "jsonb", document.as_py()
