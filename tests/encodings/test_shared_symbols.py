"""Pages of a text column share FSST symbols where one table serves them all."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import any_pb2

from glaive.arrow.blocks import Variable
from glaive.encodings.values.fsst import Fsst
from glaive.encodings.writing.string_stats import (
    Coding,
    PageSymbols,
    SharedSymbols,
    VariableStats,
    train,
)
from glaive.file.files import LanceFileWriter
from glaive.file.v2.container import Container
from glaive.file.v2.writer import PageJob
from glaive.format.pb import encodings21_pb2
from glaive.io.local import LocalStore

ENGLISH = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "again"]
LATIN = ["arma", "virumque", "cano", "troiae", "qui", "primus", "ab", "oris", "italiam", "fato"]


def text(words: list[str], seed: int, count: int = 20_000) -> Variable:
    picks = np.random.default_rng(seed).integers(0, len(words), (count, 6))
    values = [" ".join(words[pick] for pick in row).encode() for row in picks]
    ends = np.cumsum([0, *map(len, values)]).astype("<i4")
    return Variable(pa.py_buffer(ends), 32, pa.py_buffer(b"".join(values)), count)


def symbols_of(page: Any) -> bytes:
    """The symbol table in the message of a page."""
    message = any_pb2.Any.FromString(page.encoding.direct.encoding)
    layout: Any = encodings21_pb2.PageLayout.FromString(message.value)
    table: bytes = layout.mini_block_layout.value_compression.fsst.symbol_table
    return table


def test_a_page_like_the_first_uses_its_table() -> None:
    shared = SharedSymbols()
    first = PageSymbols(shared, True).coding(text(ENGLISH, 1))
    second = PageSymbols(shared, False).coding(text(ENGLISH, 2))
    assert second.table is first.table
    own = train(text(ENGLISH, 2))
    assert second.share <= own.share * 1.02


def test_a_page_of_other_text_trains_for_itself() -> None:
    shared = SharedSymbols()
    first = PageSymbols(shared, True).coding(text(ENGLISH, 1))
    other = PageSymbols(shared, False).coding(text(LATIN, 2))
    assert other.table != first.table
    assert other == train(text(LATIN, 2))


def test_the_first_page_trains_once_even_when_it_is_cut() -> None:
    shared = SharedSymbols()
    page = PageSymbols(shared, True)
    assert page.coding(text(ENGLISH, 1)).table is page.coding(text(ENGLISH, 2)).table


def test_a_later_page_waits_for_the_first() -> None:
    shared = SharedSymbols()
    pages = [VariableStats.of(text(ENGLISH, 1 + at), PageSymbols(shared, not at)) for at in (0, 1)]
    codings: list[Coding] = []
    threads = [
        Thread(target=lambda page=page: codings.append(page.coding), daemon=True)
        for page in reversed(pages)
    ]
    threads[0].start()
    threads[0].join(0.05)
    assert not codings
    threads[1].start()
    for thread in threads:
        thread.join(240)
    assert len(codings) == 2
    assert codings[0].table is codings[1].table


def test_pages_train_for_themselves_when_the_first_found_nothing() -> None:
    shared = SharedSymbols()
    shared.finish()
    assert PageSymbols(shared, False).coding(text(LATIN, 3)) == train(text(LATIN, 3))
    assert PageSymbols(shared, True).coding(text(LATIN, 3)) == train(text(LATIN, 3))


def test_what_is_proposed_is_the_shared_table() -> None:
    shared = SharedSymbols()
    for seed, first in ((1, True), (2, False)):
        stats = VariableStats.of(text(ENGLISH, seed), PageSymbols(shared, first))
        proposal = Fsst.propose(stats)
        assert proposal is not None
        coding = shared.wait()
        assert coding is not None
        assert proposal[1].table is coding.table


@pytest.mark.parametrize("turn", [0, 1])
def test_samples_of_few_values_are_all_of_them(turn: int) -> None:
    from glaive.kernels.fsst import sample_strings
    from glaive.kernels.strings import Strings

    block = text(ENGLISH, 4, 50)
    sample = sample_strings(Strings(block.offsets, 32, block.data), 50, turn)
    assert sample.data.size == block.data.size


def test_a_first_page_that_fails_keeps_nobody_waiting() -> None:
    shared = SharedSymbols()
    job = PageJob(None, pa.array(["x"]), {0: PageSymbols(shared, True)})  # type: ignore[arg-type]  # not used
    with pytest.raises(ValueError, match="no page"), job:
        raise ValueError("no page")
    assert shared.is_finished
    assert PageSymbols(shared, False).coding(text(ENGLISH, 1)) == train(text(ENGLISH, 1))


def test_pages_of_a_file_share_a_table_and_files_are_the_same_every_time(tmp_path: Path) -> None:
    block = text(ENGLISH, 5, 500_000)
    array = pa.Array.from_buffers(pa.string(), block.count, [None, block.offsets, block.data])
    files = []
    for name in ("one", "two"):
        with LanceFileWriter(tmp_path / name) as writer:
            writer.write_batch(pa.table({"text": array}))
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]
    file = Container(LocalStore(tmp_path).open("one"))
    tables = [symbols_of(page) for page in file.column(0).pages]
    assert len(tables) > 1
    assert {*tables} == {tables[0]} != {b""}
