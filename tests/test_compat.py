"""``import lance`` as glaive, and names of pylance that glaive does not have."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import glaive.mem_wal
import pyarrow as pa
import pytest

from glaive import compat
from glaive.compat.absent import Absence, needs_package, refuse_members
from glaive.errors import MissingDependencyError, OptionError, UnsupportedFeatureError


def run(script: str, *arguments: str) -> str:
    """What a process of its own prints: it has not imported pylance."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lance_is_glaive_once_installed(tmp_path: Path) -> None:
    script = """
import sys
from glaive import compat
compat.install()
compat.install()  # changes nothing
import glaive, lance, lance.fragment
from lance.dataset import LanceDataset, write_dataset
from lance.torch.data import get_safe_loader
import lance.lance
from lance._arrow.bf16 import BFloat16Array
from lance.lance import _Dataset, indices
import pyarrow as pa
print(lance.__version__, lance.__glaive__ == glaive.__version__, lance.lance.__version__)
print(LanceDataset is glaive.LanceDataset, lance.fragment is glaive.fragment)
print(BFloat16Array.__module__, indices.IvfModel.__name__, _Dataset)
print(lance.write_dataset(pa.table({"a": [1, 2]}), sys.argv[1]).count_rows())
print(lance.dataset(sys.argv[1]).to_table().num_rows, "write_dataset" in dir(lance))
try:
    import lance.nowhere
except ModuleNotFoundError as error:
    print(error)
compat.uninstall()
print("lance" in sys.modules, compat.is_installed())
"""
    assert run(script, str(tmp_path / "a.lance")).splitlines() == [
        "14.0.2 True 14.0.2",
        "True True",
        "glaive.arrow.bfloat16 IvfModel <glaive.lance._Dataset: not supported>",
        "2",
        "2 True",
        "No module named 'lance.nowhere'",
        "False False",
    ]


def test_an_imported_pylance_is_not_replaced() -> None:
    pytest.importorskip("lance", reason="install the 'interop' group")
    with pytest.raises(OptionError, match=r"lance was imported already, from .* before the first"):
        compat.install()
    assert not compat.is_installed()


def test_a_name_that_is_not_there_serves_until_it_is_used() -> None:
    writer: Any = glaive.mem_wal.ShardWriter
    Own = type("Own", (writer,), {})  # noqa: N806  # a class

    assert (writer | None).__args__ == (writer, type(None))
    assert not isinstance(None, writer)
    assert issubclass(Own, writer)
    assert repr(writer) == "<glaive.mem_wal.ShardWriter: not supported>"
    for use in (writer, Own, lambda: writer.open("x"), lambda: list(writer)):
        with pytest.raises(UnsupportedFeatureError, match=r"memory-WAL tables .* Write with"):
            use()
    assert glaive.mem_wal.ShardWriter is writer
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = glaive.mem_wal.Nothing


def test_members_that_are_not_there_say_so_and_others_stay() -> None:
    @refuse_members(
        (Absence("of a reason", "Do it so", "Thing.missing Thing.there Other.missing"),)
    )
    class Thing:
        def there(self) -> int:
            return 1

    assert Thing().there() == 1
    with pytest.raises(UnsupportedFeatureError, match=r"Thing.missing is .* reason. Do it so."):
        Thing().missing(1, option=2)


def test_what_a_package_would_bring_raises_when_it_is_used() -> None:
    loader = needs_package("glaive.torch.data", "Loader", "torch", "pip install torch")
    with pytest.raises(MissingDependencyError, match=r"needs torch, .*: pip install torch"):
        loader(1)


def test_members_that_clients_of_pylance_use(tmp_path: Path) -> None:
    written = glaive.write_dataset(pa.table({"id": [3, 1, 2]}), str(tmp_path / "a.lance"))
    options = {"client_max_retries": "1"}
    dataset = glaive.dataset(written.uri, storage_options=options)

    assert written.storage_options_accessor is None
    assert dataset.storage_options_accessor.get_storage_options() == options
    assert dataset._ds.schema == dataset.schema  # noqa: SLF001  # clients use it
    windows = dataset._ds.take_scan([(0, 1), (1, 3)], columns=["id"])  # noqa: SLF001  # same
    assert [batch.column(0).to_pylist() for batch in windows] == [[3], [1, 2]]
    file = dataset.get_fragments()[0].metadata.files[0]
    with pytest.warns(DeprecationWarning, match=r"DataFile.path\(\) is deprecated"):
        assert file.path() == file.path  # type: ignore[operator]  # older clients call it
    with pytest.warns(DeprecationWarning, match=r"DataFile.path\(\) is deprecated"):
        assert pickle.loads(pickle.dumps(file)).path() == file.path
    assert dataset.new_file_session().list("data") == [f"data/{file.path}"]


def test_a_dataset_is_a_pyarrow_dataset_once_somebody_can_ask(tmp_path: Path) -> None:
    script = """
import sys
import pyarrow as pa, glaive
dataset = glaive.write_dataset(pa.table({"id": [3, 1, 2]}), sys.argv[1])
print("pyarrow.dataset" in sys.modules, dataset.__class__ is glaive.LanceDataset)
import copy, pickle
import pyarrow.dataset as pads
print(isinstance(dataset, pads.Dataset), isinstance(dataset, glaive.LanceDataset))
print(type(pickle.loads(pickle.dumps(dataset))) is type(copy.copy(dataset)) is glaive.LanceDataset)
right = pa.table({"id": [2], "b": ["x"]})
print(dataset.filter(pads.field("id") > 1).to_table()["id"].to_pylist())
print(dataset.sort_by("id").to_table()["id"].to_pylist())
print(dataset.join(right, "id", join_type="inner").to_table().num_rows)
"""
    assert run(script, str(tmp_path / "a.lance")).splitlines() == [
        "False True",
        "True True",
        "True",
        "[3, 2]",
        "[1, 2, 3]",
        "1",
    ]
