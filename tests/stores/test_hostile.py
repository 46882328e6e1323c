"""Files that vanish, shrink or cannot be read; disks that are full; consumers that leave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import CorruptFileError, DataFileMissingError, GlaiveError, StoreError
from glaive.format.paths import HINT, manifest_path
from glaive.io.local import LocalStore
from glaive.types import ByteRange

from .server import Server

ROWS = pa.table(
    {"id": range(200_000), "text": [f"a text with some words and {i}" for i in range(200_000)]}
)

ENDLESS = "/proc/self/pagemap"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    glaive.write_dataset(ROWS, tmp_path / "t")
    return tmp_path / "t"


def data_file(place: Path) -> Path:
    (data_file,) = (place / "data").iterdir()
    return data_file


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own: some of it could end the process."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def calls_in_the_end(server: Server) -> int:
    """How many requests there were once none has come for half a second."""
    seen = -1
    while seen != len(server.calls):
        seen = len(server.calls)
        time.sleep(0.5)
    return seen


class TestDataFiles:
    def test_one_that_vanished_is_named(self, place: Path) -> None:
        dataset = glaive.dataset(place)
        data_file(place).rename(place / "elsewhere")
        name = "data/.*lance does not exist"
        for read in (
            dataset.to_table,
            lambda: dataset.take([5]),
            lambda: next(dataset.to_batches()),
        ):
            with pytest.raises(DataFileMissingError, match=name):
                read()

    def test_one_that_vanished_when_opened_is_still_read(self, place: Path) -> None:
        dataset = glaive.dataset(place)
        dataset.take([5])
        data_file(place).unlink()
        assert dataset.to_table() == ROWS

    @pytest.mark.sampled(every=18)
    @pytest.mark.spec("rel-47")
    @pytest.mark.parametrize("size", [0, 100, 4096, 1_000_000])
    @pytest.mark.parametrize(
        "read",
        ["to_table()", "take([199_999])", "take(list(range(0, 200_000, 7)))", "head(199_999)"],
    )
    def test_one_that_was_cut_off_after_it_was_opened_is_named(
        self, place: Path, size: int, read: str
    ) -> None:
        code = f"""
import os, sys, glaive
dataset = glaive.dataset(sys.argv[1])
dataset.take([5, 100_000])
dataset.{read}
os.truncate(sys.argv[2], {size})
try:
    dataset.{read}
except glaive.errors.CorruptFileError as error:
    print(error)
"""
        done = run(code, place, data_file(place))
        assert done.returncode == 0, done
        assert f"{data_file(place)}" in done.stdout
        assert f"found {size} bytes: it was truncated since" in done.stdout

    def test_one_that_is_cut_off_during_a_scan_is_named(self, place: Path) -> None:
        code = """
import os, sys, time, glaive
batches = glaive.dataset(sys.argv[1]).to_batches(batch_readahead=1)
next(batches)
spent = -1.0
while time.process_time() - spent > 0.01:  # until what is read ahead has been read
    spent = time.process_time()
    time.sleep(0.5)
os.truncate(sys.argv[2], 4096)
try:
    for batch in batches:
        pass
except glaive.errors.CorruptFileError as error:
    print(error)
"""
        big = pa.concat_tables([ROWS] * 5)
        glaive.write_dataset(big, place, mode="overwrite")
        newest = max((place / "data").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        done = run(code, place, newest)
        assert done.returncode == 0, done
        assert f"found 4096 bytes: it was truncated since (in {newest})" in done.stdout

    def test_a_map_of_a_file_that_grew_or_was_replaced_is_read(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path)
        store.put("x", [b"0123456789"])
        reader = store.open("x")
        with (tmp_path / "x").open("ab") as file:
            file.write(b"more")
        time.sleep(0.02)
        assert reader.read([ByteRange(0, 4)])[0].to_pybytes() == b"0123"
        store.put("x", [b"new"])
        time.sleep(0.02)
        assert reader.read([ByteRange(6, 4)])[0].to_pybytes() == b"6789"

    @pytest.mark.spec("rel-47")
    def test_a_map_of_a_file_that_shrank_is_not_touched(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path)
        store.put("x", [bytes(100_000)])
        reader = store.open("x")
        os.truncate(tmp_path / "x", 10)
        with pytest.raises(CorruptFileError, match=r"expected 100000 bytes.*found 10 bytes"):
            reader.advise_pattern("random")
        time.sleep(0.02)
        with pytest.raises(CorruptFileError, match=r"expected 100000 bytes.*found 10 bytes"):
            reader.read([ByteRange(0, 4)])

    def test_one_that_cannot_be_read_is_named(self, place: Path) -> None:
        file = data_file(place)
        dataset = glaive.dataset(place)
        file.unlink()
        file.mkdir()
        with pytest.raises(StoreError, match=rf"{file.name}: it is a directory"):
            dataset.to_table()
        file.rmdir()
        file.symlink_to(file)
        with pytest.raises(StoreError, match=rf"{file.name}: .*symbolic links"):
            dataset.to_table()
        file.unlink()
        file.write_bytes(b"")
        with pytest.raises(glaive.errors.GlaiveError, match=file.name):
            dataset.to_table()

    def test_a_pipe_or_a_device_in_its_place_is_named(self, place: Path) -> None:
        """Nobody waits for a writer of a pipe, or reads what never ends."""
        file = data_file(place)
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(StoreError, match=rf"{file.name}: it is a pipe, a socket or a device"):
            glaive.dataset(place).to_table()
        store = LocalStore(place)
        with file.open("r+b", buffering=0) as pipe:
            pipe.write(b"for somebody else")
            with pytest.raises(StoreError, match="it is a pipe, a socket or a device"):
                store.get(f"data/{file.name}")
            with pytest.raises(StoreError, match="it is a pipe, a socket or a device"):
                store.get_into(f"data/{file.name}", memoryview(bytearray(10)))
            assert pipe.read(100) == b"for somebody else"
        file.unlink()
        file.symlink_to("/dev/zero")
        for read in (store.get, store.open):
            with pytest.raises(StoreError, match="it is a pipe, a socket or a device"):
                read(f"data/{file.name}")

    @pytest.mark.spec("rel-24", "rel-46")
    @pytest.mark.skipif(not Path(ENDLESS).exists(), reason="files of Linux")
    def test_a_link_to_a_file_without_end_takes_no_memory(self, place: Path) -> None:
        """The system makes up half a terabyte while it is read, and says that it is empty."""
        dataset = glaive.dataset(place)
        manifest = place / manifest_path(dataset.version, dataset.manifest.scheme)
        for path in (place / HINT, manifest):
            path.unlink()
            path.symlink_to(ENDLESS)
        for change in (lambda: dataset.delete("true"), lambda: glaive.dataset(place)):
            with pytest.raises(GlaiveError, match=r"the system says that it has 0 bytes, and has"):
                change()

    def test_a_pipe_in_the_place_of_a_manifest_is_not_one_that_is_not_finished(
        self, place: Path
    ) -> None:
        """It would be taken for that of a writer to whom every other one has to give way."""
        dataset = glaive.dataset(place)
        manifest = place / manifest_path(dataset.version + 1, dataset.manifest.scheme)
        os.mkfifo(manifest)
        for change in (lambda: dataset.delete("true"), lambda: glaive.dataset(place)):
            with pytest.raises(GlaiveError, match=rf"{manifest.name}: it is a pipe, a socket or"):
                change()
        manifest.unlink()
        assert glaive.dataset(place).version == dataset.version


class TestFullDisks:
    CODE = """
import resource, signal, sys, threading, glaive, numpy as np
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
rows = {"id": np.random.default_rng(0).integers(0, 2**62, 300_000)}
try:
    glaive.write_dataset(rows, sys.argv[1], mode="append", max_rows_per_file=100_000)
except glaive.errors.StoreError as error:
    print(error)
"""

    @pytest.fixture
    def before(self, tmp_path: Path) -> Path:
        place = tmp_path / "t"
        glaive.write_dataset({"id": [1, 2, 3]}, place)
        return place

    def check_untouched(self, place: Path) -> None:
        dataset = glaive.dataset(place)
        assert (dataset.version, dataset.count_rows()) == (1, 3)
        assert dataset.to_table()["id"].to_pylist() == [1, 2, 3]
        left = [path.name for path in place.rglob("*") if path.name.startswith(".")]
        assert left == []
        assert glaive.write_dataset({"id": [4]}, place, mode="append").version == 2

    @pytest.mark.sampled(every=6)
    @pytest.mark.parametrize("limit", [0, 10, 100, 1000, 50_000, 500_000])
    def test_a_write_that_does_not_fit_leaves_the_version_before(
        self, before: Path, limit: int
    ) -> None:
        done = run(self.CODE, before, limit)
        assert done.returncode == 0, done.stderr
        if limit == 0:
            assert glaive.dataset(before).count_rows() == 300_003
            return
        assert "cannot write" in done.stdout
        assert "File too large" in done.stdout
        self.check_untouched(before)

    def test_a_full_disk_leaves_the_version_before(self, tmp_path: Path) -> None:
        mount = tmp_path / "small"
        mount.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)]
        try:
            if subprocess.run(command, capture_output=True, check=False).returncode:
                pytest.skip("nothing can be mounted here")
        except OSError:
            pytest.skip("nothing can be mounted here")
        try:
            place = mount / "t"
            glaive.write_dataset({"id": [1, 2, 3]}, place)
            done = run(self.CODE, place, 0)
            assert "The disk is full; free some space and try again" in done.stdout, done
            self.check_untouched(place)
        finally:
            subprocess.run(["umount", "-l", str(mount)], check=True)


class TestConsumers:
    def test_a_closed_pipe_ends_the_writer(self, place: Path) -> None:
        code = """
import sys, threading, pyarrow as pa, glaive
batches = glaive.dataset(sys.argv[1]).to_batches(batch_size=1000)
first = next(batches)
try:
    with pa.ipc.new_stream(sys.stdout.buffer, first.schema) as out:
        out.write_batch(first)
        for batch in batches:
            out.write_batch(batch)
except (BrokenPipeError, OSError) as error:
    batches.close()
    print(type(error).__name__, threading.active_count(), file=sys.stderr)
    sys.stderr.flush()
    import os
    os._exit(7)
"""
        command = [sys.executable, "-c", code, str(place)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.read(100)
            process.stdout.close()
            assert process.wait(240) == 7
            assert process.stderr is not None
            assert b"Error" in process.stderr.read()

    def test_a_consumer_that_leaves_stops_the_requests(self, server: Server) -> None:
        rng = np.random.default_rng(0)
        rows = pa.table({"id": rng.integers(0, 2**62, 600_000)})
        uri = f"s3://{server.bucket()}/t"
        glaive.write_dataset(rows, uri, max_rows_per_file=5000, storage_options=server.options)
        dataset = glaive.dataset(uri, storage_options=server.options)
        with server.slow(0.02):
            batches: Iterator[pa.RecordBatch] = dataset.to_batches()
            next(batches)
            batches.close()  # type: ignore[attr-defined]  # a generator
            assert calls_in_the_end(server) < 200  # of 241: 120 files, tail and rows each

    def test_a_consumer_that_fails_stops_the_requests(self, server: Server) -> None:
        uri = f"s3://{server.bucket()}/t"
        rows = pa.table({"id": range(400_000)})
        glaive.write_dataset(rows, uri, max_rows_per_file=5000, storage_options=server.options)
        dataset = glaive.dataset(uri, storage_options=server.options)

        def consume() -> None:
            for _ in dataset.to_batches():
                raise RuntimeError("enough")

        with server.slow(0.02):
            with pytest.raises(RuntimeError, match="enough"):
                consume()
            assert calls_in_the_end(server) < 120  # of 161: 80 files, tail and rows each
