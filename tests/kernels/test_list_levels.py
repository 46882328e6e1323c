"""Levels of chunks in one pass: the same as one after the other, or nothing at all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.kernels.tiers import Tier, force_tier

from glaive.arrow.blocks import FixedWidth
from glaive.encodings.protocol import ValueEncoding
from glaive.encodings.values.bitpack import InlineBitpacking, OutOfLineBitpacking
from glaive.encodings.values.flat import Flat
from glaive.encodings.values.rle import RunLength
from glaive.kernels.chunks import assemble_chunks
from glaive.kernels.list_levels import locate_rows, read_levels
from glaive.kernels.records import LevelPage

TIERS: list[Tier] = ["numpy", "numba"]

FORMS: list[tuple[ValueEncoding, int, int, int]] = [
    (Flat(16), 1, 16, 3000),
    (OutOfLineBitpacking(16, 2), 2, 2, 3000),
    (OutOfLineBitpacking(16, 5), 2, 5, 3000),
    (InlineBitpacking(16), 3, 16, 1024),
    (RunLength(16), 4, 16, 3000),
]


class Sample:
    """Chunks of random levels, and the table that goes with them."""

    def __init__(self, seed: int, rep_form: int, def_form: int | None, width: int) -> None:
        rng = np.random.default_rng(seed)
        chunks = int(rng.integers(1, 6))
        most = min(FORMS[rep_form][3], 3000 if def_form is None else FORMS[def_form][3])
        levels = rng.integers(1, most + 1, chunks)
        total = int(levels.sum())
        self.rep = rng.choice([0, 0, 0, 1, 2], total).astype(np.uint16)
        self.rep[0] = 2
        self.definition = rng.choice([0, 0, 0, 1, 2, 3], total).astype(np.uint16)
        visible = self.definition <= 1 if def_form is not None else np.ones(total, np.bool_)
        ends = np.cumsum(levels)
        firsts = ends - levels
        starts = np.flatnonzero(self.rep == 2)
        self.row_starts = np.searchsorted(starts, np.append(firsts, total)).astype(np.int64)
        self.enters = np.append(self.rep[firsts] != 2, False)
        self.counts = np.diff(np.append(0, np.cumsum(visible))[ends], prepend=0)
        self.visible, self.firsts, self.begins = visible, firsts, np.append(starts, total)
        self.values = int(ends[-1])
        pieces = [self._encode(self.rep, levels, rep_form)]
        if def_form is not None:
            pieces.append(self._encode(self.definition, levels, def_form))
        value = rng.integers(0, 9, chunks) * 8
        values = [(np.zeros(int(value.sum()), np.uint8), value)]
        self.data, self.sizes = assemble_chunks(levels, pieces, values, value_width=width)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.value_sizes = value
        self.has_def = def_form is not None
        self.page = LevelPage(
            rep=FORMS[rep_form][1],
            rep_width=FORMS[rep_form][2],
            definition=0 if def_form is None else FORMS[def_form][1],
            def_width=0 if def_form is None else FORMS[def_form][2],
            value_buffers=1,
            value_width=width,
            max_rep=2,
            visible_max=1 if def_form is not None else 0,
            max_def=3 if def_form is not None else 0,
        )

    @staticmethod
    def _encode(
        levels: NDArray[np.uint16], counts: NDArray[np.int64], form: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        encoded = FORMS[form][0].encode_blocks(
            FixedWidth(pa.py_buffer(levels.tobytes()), 16, len(levels)), counts
        )
        return encoded.data, encoded.sizes


SAMPLES = st.builds(
    Sample,
    st.integers(0, 2**32),
    st.integers(0, len(FORMS) - 1),
    st.one_of(st.none(), st.integers(0, len(FORMS) - 1)),
    st.sampled_from([2, 4]),
)


@given(SAMPLES)
def test_all_levels_of_chunks_come_back(sample: Sample) -> None:
    levels = read_levels(
        sample.data,
        sample.starts,
        sample.sizes,
        sample.counts,
        sample.row_starts,
        sample.enters[:-1],
        sample.page,
    )
    assert levels is not None
    np.testing.assert_array_equal(levels.rep, sample.rep)
    if sample.has_def:
        np.testing.assert_array_equal(levels.definition, sample.definition)
    np.testing.assert_array_equal(levels.firsts, sample.firsts)
    np.testing.assert_array_equal(levels.sizes[0], sample.value_sizes)
    assert ((levels.starts[0] >= sample.starts) & (levels.starts[0] % 8 == 0)).all()


@given(SAMPLES, st.data())
def test_rows_are_located_in_any_order(sample: Sample, data: st.DataObject) -> None:
    count = int(sample.row_starts[-1])
    rows = np.array(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=20)))
    order = np.argsort(rows)
    located = []
    for tier in TIERS:
        with force_tier(tier):
            located.append(locate_rows(rows[order], sample.row_starts, sample.enters))
    for numpy_result, numba_result in zip(*located, strict=True):
        np.testing.assert_array_equal(numpy_result, numba_result)


@given(SAMPLES, st.data())
def test_nothing_is_read_of_chunks_that_are_not_as_the_table_says(
    sample: Sample, data: st.DataObject
) -> None:
    chunk = data.draw(st.integers(0, len(sample.sizes) - 1))
    counts, row_starts = sample.counts.copy(), sample.row_starts.copy()
    enters, sizes = sample.enters.copy(), sample.sizes.copy()
    damaged = data.draw(st.sampled_from(["counts", "rows", "enters", "sizes"]))
    if damaged == "counts":
        counts[chunk] += 1
    elif damaged == "rows":
        row_starts[chunk + 1 :] += 1
    elif damaged == "enters":
        enters[chunk] ^= True
    else:
        sizes[chunk] = 4
    assert (
        read_levels(sample.data, sample.starts, sizes, counts, row_starts, enters[:-1], sample.page)
        is None
    )


@given(SAMPLES, st.data())
def test_damaged_chunks_are_given_up_or_read_within_their_memory(
    sample: Sample, data: st.DataObject
) -> None:
    raw = bytearray(sample.data.to_pybytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    damaged = pa.py_buffer(bytes(raw))
    levels = read_levels(
        damaged,
        sample.starts,
        sample.sizes,
        sample.counts,
        sample.row_starts,
        sample.enters[:-1],
        sample.page,
    )
    if levels is not None:
        assert levels.rep.max() <= 2
        assert ((levels.starts >= 0) & (levels.starts + levels.sizes <= len(raw))).all()
