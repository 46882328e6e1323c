"""Bytes of a file belong to one page, or to the metadata of one column."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.damage import page_message, rewritten

from glaive.errors import CorruptFileError
from glaive.file.open import create_writer, open_reader
from glaive.file.v2 import reader
from glaive.file.v2.reader import join_columns
from glaive.format.fields import LanceSchema
from glaive.io.local import LocalStore

INTEGERS = pa.array([1, 2, 3] * 9, pa.int32())


@pytest.mark.spec("align-5", "rel-24")
def test_pages_do_not_share_their_bytes(tmp_path: Path) -> None:
    """Each would keep as much as all of these bytes vouch for."""

    def share(descriptor: Any, columns: list[Any]) -> None:
        pages = columns[1].pages
        for _ in range(99):
            pages.add().CopyFrom(pages[0])
        for at, page in enumerate(pages):
            page.priority = at * len(INTEGERS)
        descriptor.length = 100 * len(INTEGERS)

    store = LocalStore(tmp_path)
    schema = LanceSchema.from_arrow(pa.schema({name: pa.int32() for name in "abc"}))
    writer = create_writer(store, "a.lance", schema, "2.2")
    writer.write(pa.table(dict.fromkeys("abc", INTEGERS)))
    writer.finish()
    raw = store.get("a.lance").to_pybytes()
    fields = schema.fields
    for _ in range(3):  # the same columns count once
        whole = open_reader(store, "a.lance")
        assert whole.bind(fields).read(0, 3)[2].equals(INTEGERS[:3])
        assert whole.bind(fields[:1]).read(0, 3)[0].equals(INTEGERS[:3])
    store.put("a.lance", [rewritten(raw, share)])
    shared = open_reader(store, "a.lance")
    with pytest.raises(CorruptFileError, match="as the file has"):
        shared.bind(shared.schema.fields[1:2])


@pytest.mark.spec("rel-42")
def test_codes_of_two_pages_are_decoded_with_the_symbols_of_each_also_with_other_files(
    tmp_path: Path,
) -> None:
    """Both have the same codes: a take from several files found their page by where they lie."""
    store, texts = LocalStore(tmp_path), {}
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.string()}))
    for name, words in (("one", ["alpha", "bravo", "charlie"]), ("two", ["11-22-33", "zz-top"])):
        texts[name] = [" ".join(words * 4) + str(at) for at in range(3000)]
        writer = create_writer(store, name, schema, "2.1")
        writer.write(pa.table({"a": texts[name]}))
        writer.finish()
    symbols: list[Any] = []

    def share(descriptor: Any, columns: list[Any]) -> None:
        pages = columns[0].pages
        pages.add().CopyFrom(pages[0])
        pages[1].priority = 3000
        page_message(
            pages[1],
            lambda message: message.mini_block_layout.value_compression.CopyFrom(symbols[0]),
        )
        descriptor.length = 6000

    def keep(_: Any, columns: list[Any]) -> None:
        page_message(
            columns[0].pages[0],
            lambda message: symbols.append(message.mini_block_layout.value_compression),
        )

    rewritten(store.get("two").to_pybytes(), keep)
    store.put("one", [rewritten(store.get("one").to_pybytes(), share, copies=2)])
    columns = [open_reader(store, name).bind(schema.fields).columns[0] for name in ("one", "two")]
    assert columns[0].read(0, 3000).to_pylist() == texts["one"]
    joined = join_columns(columns)
    assert joined is not None
    rows = np.arange(0, 9000, 7)
    expected = pa.concat_arrays([column.read(0, column.num_rows) for column in columns])
    whole = expected.cast(pa.binary())
    assert joined.take(rows).cast(pa.binary()).equals(whole.take(pa.array(rows)))


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.2"])
@pytest.mark.spec("rel-24")
def test_texts_of_different_rows_do_not_share_their_bytes(tmp_path: Path, version: str) -> None:
    """Offsets around each second row were right, and each of these had all bytes."""
    texts = [f"{at:030}" for at in range(60)]
    store = LocalStore(tmp_path)
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.string()}))
    writer = create_writer(store, "a.lance", schema, version)
    writer.write(pa.table({"a": texts}))
    writer.finish()
    raw = store.get("a.lance").to_pybytes()
    ends = np.arange(61) * 30
    stored = {
        "0.1": (raw.index("".join(texts).encode()) + ends).astype("<i8"),
        "2.0": ends[1:].astype("<u8"),
        "2.2": (4 * 61 + ends).astype("<u4"),
    }[version]
    changed = stored.copy()
    first = 0 if version == "2.0" else 1  # 2.0 has ends alone, of which each row has its own
    changed[1 - first :: 2] = stored[0] - (30 if version == "2.0" else 0)
    changed[first::2] = stored[-1]
    assert raw.count(stored.tobytes()) == 1
    store.put("a.lance", [raw.replace(stored.tobytes(), changed.tobytes())])
    file = open_reader(store, "a.lance")
    column = file.bind(file.schema.fields)
    with pytest.raises(CorruptFileError, match=r"bytes (at most )?in all"):
        column.take(np.tile(np.arange(0, 60, 2), 999))  # few have room in any case
    assert column.take(np.zeros(99, np.int64))[0][98].as_py() == "".join(texts)


@pytest.mark.parametrize("version", ["0.1", "2.0"])
@pytest.mark.spec("rel-24")
def test_lists_of_different_rows_do_not_share_their_items(tmp_path: Path, version: str) -> None:
    lists = [[at] * 30 for at in range(60)]
    store = LocalStore(tmp_path)
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.list_(pa.uint8())}))
    writer = create_writer(store, "a.lance", schema, version)
    writer.write(pa.table({"a": lists}, schema.to_arrow()))
    writer.finish()
    raw = store.get("a.lance").to_pybytes()
    ends = np.arange(61) * 30
    stored = ends.astype("<i4") if version == "0.1" else ends[1:].astype("<u8")
    changed = stored.copy()
    first = 1 if version == "0.1" else 0
    changed[first::2], changed[1 - first :: 2] = ends[-1], 0
    assert raw.count(stored.tobytes()) == 1
    store.put("a.lance", [raw.replace(stored.tobytes(), changed.tobytes())])
    file = open_reader(store, "a.lance")
    column = file.bind(file.schema.fields)
    rows = np.arange(0, 60, 2)
    assert len(column.take(np.repeat(rows[:1], 99))[0][98]) == 1800
    for some in (rows, rows[::-1], np.concatenate((rows[:2], rows[:2]))):
        with pytest.raises(CorruptFileError, match=r"items (in all|of one list)"):
            column.take(some)


@pytest.mark.parametrize("kind", [pa.list_(pa.uint8()), pa.string()])
@pytest.mark.spec("rel-24")
def test_empty_lists_do_not_hide_shared_items(tmp_path: Path, kind: Any) -> None:
    """An empty list begins where the next one does, whose items were not looked at."""
    texts = kind == pa.string()
    item: Any = "a" if texts else [1]
    lists = [[], [item * 2000], [item]] * 60
    store = LocalStore(tmp_path)
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.list_(kind)}))
    writer = create_writer(store, "a.lance", schema, "0.1")
    writer.write(pa.table({"a": lists}, schema.to_arrow()))
    writer.finish()
    raw = store.get("a.lance").to_pybytes()
    ends = np.concatenate(([0], np.cumsum([2000, 1] * 60))).astype("<i8" if texts else "<i4")
    ends += raw.index(b"a" * 2000) if texts else 0
    changed = ends.copy()
    changed[::2], changed[1::2] = ends[0], ends[-1]
    assert raw.count(ends.tobytes()) == 1
    store.put("a.lance", [raw.replace(ends.tobytes(), changed.tobytes())])
    file = open_reader(store, "a.lance")
    column = file.bind(file.schema.fields)
    assert column.take(np.array([0, 1] * 3))[0].value_lengths().to_pylist() == [0, 1] * 3
    with pytest.raises(CorruptFileError, match="offsets"):
        column.take(np.flatnonzero(np.arange(180) % 3 < 2))


@pytest.mark.spec("footer-6", "rel-24", "rel-25")
def test_columns_do_not_share_their_metadata(tmp_path: Path) -> None:
    """Pages of all columns took memory and time by the square of the bytes of the file."""
    names = [f"c{at}" for at in range(300)]
    store = LocalStore(tmp_path)
    schema = LanceSchema.from_arrow(pa.schema({name: pa.int32() for name in names}))
    writer = create_writer(store, "a.lance", schema, "2.1")
    writer.write(pa.table(dict.fromkeys(names, pa.nulls(1, pa.int32()))))
    writer.finish()

    def many_pages(descriptor: Any, columns: list[Any]) -> None:
        pages = columns[0].pages
        for at in range(1, 500):
            pages.add().CopyFrom(pages[0])
            pages[at].priority = at
        descriptor.length = 500

    raw = bytearray(rewritten(store.get("a.lance").to_pybytes(), many_pages))
    table = int.from_bytes(raw[-32:-24], "little")
    raw[table : table + 16 * 300] = raw[table : table + 16] * 300
    store.put("a.lance", [bytes(raw)])
    file = open_reader(store, "a.lance")
    with pytest.raises(CorruptFileError, match="metadata of all columns"):
        file.bind(file.schema.fields)


def test_a_column_whose_opening_is_interrupted_anywhere_counts_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    schema = LanceSchema.from_arrow(pa.schema({"a": pa.int32()}))
    writer = create_writer(store, "a.lance", schema, "2.2")
    writer.write(pa.table({"a": INTEGERS}))
    writer.finish()
    at = steps = stopped = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        code = frame.f_code
        if code.co_filename != reader.__file__ or code.co_name == "column":  # it holds a lock
            return trace if event == "call" else None
        steps += event == "line"
        if steps == at:
            steps += 1
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    while True:
        file, steps, at = open_reader(store, "a.lance"), 0, at + 1
        sys.settrace(trace)
        try:
            file.bind(schema.fields)
        except KeyboardInterrupt:
            stopped += 1
        else:
            break
        finally:
            sys.settrace(before)
        for _ in range(9):
            assert file.bind(schema.fields).read(0, 27)[0].equals(INTEGERS)
    assert stopped > 20
