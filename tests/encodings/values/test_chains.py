"""Encodings within encodings stand for no more than their bytes and limits allow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from glaive.encodings.registry import read_encoding
from glaive.encodings.values.sequences import read_numbers
from glaive.encodings.values.variable import Variable
from glaive.errors import UnsupportedFeatureError
from glaive.format.pb import encodings21_pb2 as pb
from glaive.types import Where

HERE = Where("chains")
LIMITED = "GLAIVE_MAX_DECODED_BYTES_PER_PAGE"


def constant(number: int, bits: int) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(constant=pb.Constant(value=number.to_bytes(bits // 8, "little")))


def flat(bits: int) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=bits))


def runs(values: pb.CompressiveEncoding, lengths: pb.CompressiveEncoding) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(rle=pb.Rle(values=values, run_lengths=lengths))


def compressed(inner: pb.CompressiveEncoding) -> pb.CompressiveEncoding:
    general = pb.General(compression=pb.BufferCompression(scheme=2), values=inner)
    return pb.CompressiveEncoding(general=general)


def dictionary(
    indices: pb.CompressiveEncoding, items: pb.CompressiveEncoding, count: int
) -> pb.CompressiveEncoding:
    message = pb.Dictionary(indices=indices, items=items, num_dictionary_items=count)
    return pb.CompressiveEncoding(dictionary=message)


def delta(deltas: pb.CompressiveEncoding) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(delta=pb.Delta(uncompressed_bits_per_value=64, deltas=deltas))


def text_codes(inner: pb.CompressiveEncoding) -> pb.CompressiveEncoding:
    table = (0x46535354 << 32).to_bytes(8, "little") + bytes(2304)
    return pb.CompressiveEncoding(fsst=pb.Fsst(symbol_table=table, values=inner))


STRINGS = Variable().to_wire()
ONES = constant(1, 32)
CHAINS = {
    "runs of runs": runs(runs(constant(7, 64), ONES), ONES),
    "runs of as many runs": runs(constant(7, 64), runs(ONES, ONES)),
    "compressed twice": compressed(compressed(flat(64))),
    "compressed within a dictionary": compressed(dictionary(flat(32), compressed(flat(64)), 9)),
    "compressed three times, with runs": compressed(compressed(runs(compressed(flat(64)), ONES))),
    "compressed within runs of runs": runs(compressed(runs(flat(8), flat(8))), flat(8)),
    "sums of sums": delta(delta(constant(0, 64))),
    "a dictionary of items of a dictionary": dictionary(
        ONES, dictionary(ONES, constant(7, 64), 9), 9
    ),
    "texts of FSST within others": text_codes(compressed(text_codes(STRINGS))),
}


@pytest.mark.spec("enc-3", "rel-24", "rel-25")
@pytest.mark.parametrize("name", CHAINS)
def test_an_encoding_within_one_of_its_kind_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match="within another"):
        read_encoding(CHAINS[name], HERE)


@pytest.mark.spec("enc-3")
def test_runs_may_be_compressed_although_their_values_are() -> None:
    message = compressed(runs(compressed(flat(16)), compressed(flat(8))))
    assert read_encoding(message, HERE).to_wire() == message


@pytest.mark.spec("rel-25")
def test_few_bytes_of_runs_of_runs_take_no_time() -> None:
    """With each of them, counting the runs took three times as long: years."""
    lengths = ONES
    for _ in range(40):
        lengths = runs(ONES, lengths)
    with pytest.raises(UnsupportedFeatureError, match="within another"):
        read_encoding(lengths, HERE)


@pytest.mark.spec("fsl-1", "rel-24")
def test_lists_of_items_that_take_no_bytes_are_refused() -> None:
    """A chunk of eight bytes would have 32,768 lists of any size."""
    lists = pb.FixedSizeList(items_per_value=2**20, values=runs(ONES, constant(2**31, 32)))
    with pytest.raises(UnsupportedFeatureError, match="items of encoding 'rle'"):
        read_encoding(pb.CompressiveEncoding(fixed_size_list=lists), HERE)


@pytest.mark.spec("rel-24")
@pytest.mark.parametrize(
    "lengths",
    [ONES, constant(0, 32), dictionary(constant(0, 32), ONES, 2)],
    ids=["one", "none", "of a dictionary"],
)
def test_runs_that_only_the_message_tells_are_limited(lengths: pb.CompressiveEncoding) -> None:
    """Each takes more than the number of two bytes that it stands for."""
    many = 2**27
    encoding = read_encoding(runs(constant(0, 16), lengths), HERE)
    with pytest.raises(UnsupportedFeatureError, match=LIMITED):
        read_numbers(encoding, pa.py_buffer(b""), many, 16, "levels", HERE)


@pytest.mark.spec("rel-24")
def test_items_of_a_dictionary_that_only_the_message_tells_are_limited() -> None:
    one = np.array([7], "<u8").tobytes()
    items = len(one).to_bytes(8, "little") + one + (2**31).to_bytes(4, "little")
    block = bytes(8) + len(items).to_bytes(8, "little") + items
    message = dictionary(constant(0, 32), runs(flat(64), flat(32)), 2**31)
    with pytest.raises(UnsupportedFeatureError, match=LIMITED):
        read_numbers(read_encoding(message, HERE), pa.py_buffer(block), 3, 64, "numbers", HERE)
