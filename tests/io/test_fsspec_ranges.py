"""Through fsspec, what comes in the place of a range is not taken for the range."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import StoreError
from glaive.io.uri import open_store
from glaive.types import ByteRange

fsspec = pytest.importorskip("fsspec", reason="install the extra 'fsspec'")
from tests.distant import Distant  # noqa: E402  # once fsspec is known to be there


class Whole(Distant):
    """A server that may answer with the whole file where it was asked for a part of it."""

    protocol = "whole"
    sends_ranges: ClassVar[bool] = False

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        content = Path(path).read_bytes()
        return content[start:end] if self.sends_ranges else content

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("whole://")


@pytest.fixture(autouse=True)
def _known() -> None:
    fsspec.register_implementation("whole", Whole, clobber=True)


@pytest.mark.spec("rel-23")
@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_a_whole_file_is_not_read_as_a_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: Any
) -> None:
    values = pa.table({"it": np.random.default_rng(0).integers(0, 1 << 60, 200_000)})
    written = glaive.write_dataset(values, tmp_path / "t", data_storage_version=version)
    monkeypatch.setattr(Whole, "sends_ranges", True)
    rows = glaive.dataset(f"fsspec+whole://{tmp_path}/t").get_fragments()[0]
    assert rows.take([100_000]) == written.take([100_000])  # the end of the file was read
    monkeypatch.setattr(Whole, "sends_ranges", False)
    with pytest.raises(StoreError, match="returned more bytes than were requested"):
        rows.take([150_000])


def test_the_first_bytes_may_come_with_all_others(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(b"0123456789")
    reader = open_store(f"fsspec+whole://{tmp_path}").open("it")
    (first,) = reader.read([ByteRange(0, 4)])
    assert first.to_pybytes() == b"0123"
