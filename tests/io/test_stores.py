"""Every store keeps the same promises."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.distant import DISTANT

from glaive.errors import (
    CorruptFileError,
    GlaiveError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
)
from glaive.io.access import open_store
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore, RangeReader, Sink
from glaive.testing import CountingStore
from glaive.types import ByteRange

CONTENT = bytes(range(256)) * 4


PLACES = {
    "directory": "{path}/root",
    "memory": "memory://{name}/root",
    "counted directory": "{path}/root",
    "counted memory": "memory://{name}/root",
    "fsspec directory": f"fsspec+{DISTANT.format('{path}/root')}",
    "fsspec memory": "fsspec+memory://{name}/root",
}


@pytest.fixture(params=list(PLACES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    place = PLACES[request.param].format(
        path=tmp_path, name=f"{tmp_path.parent.name}-{tmp_path.name}"
    )
    opened = open_store(place)
    return CountingStore(opened) if "counted" in request.param else opened


def names(store: ObjectStore, prefix: str, *, deep: bool = False) -> list[str]:
    return [meta.path for meta in (store.walk(prefix) if deep else store.list(prefix))]


class TestReading:
    def test_a_whole_object_comes_back(self, store: ObjectStore) -> None:
        store.put("a/b.bin", [CONTENT])
        assert store.get("a/b.bin").to_pybytes() == CONTENT

    def test_ranges_come_back_in_the_order_asked_for(self, store: ObjectStore) -> None:
        store.put("x", [CONTENT])
        asked = [ByteRange(900, 10), ByteRange(0, 5), ByteRange(3, 0), ByteRange(2, 500)]
        got = store.open("x").read(asked)
        assert [b.to_pybytes() for b in got] == [CONTENT[o : o + s] for o, s in asked]

    def test_far_ranges_come_back_too(self, store: ObjectStore) -> None:
        data = CONTENT * 1000
        store.put("x", [data])
        asked = [ByteRange(len(data) - 7, 7), ByteRange(500_000, 11), ByteRange(1, 3)]
        got = store.open("x", size=len(data)).read(asked)
        assert [b.to_pybytes() for b in got] == [data[o : o + s] for o, s in asked]

    def test_buffers_are_aligned_as_they_are_in_the_object(self, store: ObjectStore) -> None:
        store.put("x", [CONTENT])
        for buffer, offset in zip(
            store.open("x").read([ByteRange(64, 8), ByteRange(131, 8)]), (64, 131), strict=True
        ):
            assert buffer.address % 64 == offset % 64

    def test_the_tail_tells_the_size(self, store: ObjectStore) -> None:
        store.put("x", [CONTENT])
        reader = store.open("x")
        assert reader.tail(10).to_pybytes() == CONTENT[-10:]
        assert reader.size == len(CONTENT)

    def test_a_tail_longer_than_the_object_is_the_object(self, store: ObjectStore) -> None:
        store.put("x", [CONTENT])
        assert store.open("x").tail(10_000).to_pybytes() == CONTENT
        assert store.open("x", size=len(CONTENT)).tail(10_000).to_pybytes() == CONTENT

    def test_an_empty_object_is_readable(self, store: ObjectStore) -> None:
        store.put("x", [])
        assert store.get("x").size == 0
        assert store.open("x").tail(10).size == 0
        assert store.open("x").size == 0
        with pytest.raises(CorruptFileError, match="found a file of 0 bytes"):
            store.open("x").read([ByteRange(0, 1)])

    @pytest.mark.parametrize("asked", [ByteRange(1020, 5), ByteRange(5000, 1), ByteRange(0, 2000)])
    @pytest.mark.parametrize("size", [None, 1024])
    def test_a_range_beyond_the_end_names_file_and_size(
        self, store: ObjectStore, asked: ByteRange, size: int | None
    ) -> None:
        store.put("x", [CONTENT])
        with pytest.raises(CorruptFileError, match="found a file of 1024 bytes") as caught:
            store.open("x", size=size).read([ByteRange(0, 1), asked])
        assert store.full("x") in str(caught.value)
        assert f"bytes {asked.offset}..{asked.end}" in str(caught.value)

    def test_a_size_that_is_not_the_objects_is_found_out(self, store: ObjectStore) -> None:
        store.put("x", [CONTENT])
        for asked in (ByteRange(1020, 5), ByteRange(0, 2000), ByteRange(1999, 1)):
            with pytest.raises(CorruptFileError, match="found a file of 1024 bytes"):
                store.open("x", size=2000).read([asked])

    def test_buffers_outlive_their_reader(self, store: ObjectStore) -> None:
        store.put("x", [CONTENT])
        reader = store.open("x")
        buffer = reader.read([ByteRange(4, 8)])[0]
        reader.close()
        del reader
        assert buffer.to_pybytes() == CONTENT[4:12]

    def test_readers_serve_threads_at_once(self, store: ObjectStore) -> None:
        store.put("x", [CONTENT])
        reader = store.open("x")
        seen: list[bool] = []

        def work() -> None:
            for offset in range(200):
                got = reader.read([ByteRange(offset, 9)])[0].to_pybytes()
                seen.append(got == CONTENT[offset : offset + 9])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [True] * 800

    @pytest.mark.parametrize("action", ["get", "head", "tail", "size", "read"])
    def test_a_missing_object_is_named(self, store: ObjectStore, action: str) -> None:
        missing = "data/none.lance"
        actions: dict[str, Callable[[], object]] = {
            "get": lambda: store.get(missing),
            "head": lambda: store.head(missing),
            "tail": lambda: store.open(missing).tail(8),
            "size": lambda: store.open(missing).size,
            "read": lambda: store.open(missing).read([ByteRange(0, 1)]),
        }
        with pytest.raises(ObjectNotFoundError) as caught:
            actions[action]()
        assert store.full("data/none.lance") in str(caught.value)
        assert isinstance(caught.value, FileNotFoundError)

    def test_advice_changes_nothing(self, store: ObjectStore) -> None:
        store.put("x", [CONTENT])
        reader = store.open("x")
        for advice in ("random", "sequential", "willneed", "normal"):
            reader.advise([ByteRange(0, 10), ByteRange(900, 20)], advice)
        for pattern in ("random", "sequential", "random"):
            reader.advise_pattern(pattern)
        assert reader.read([ByteRange(900, 20)])[0].to_pybytes() == CONTENT[900:920]


class TestWriting:
    def test_pieces_of_all_kinds_are_joined(self, store: ObjectStore) -> None:
        numbers = memoryview(b"\1\0\2\0").cast("H")
        store.put("x", [b"ab", bytearray(b"cd"), numbers, b"", pa.py_buffer(b"ef")])
        assert store.get("x").to_pybytes() == b"abcd\1\0\2\0ef"

    def test_overwrite_replaces(self, store: ObjectStore) -> None:
        store.put("x", [b"long content"])
        store.put("x", [b"new"], mode="overwrite")
        assert store.get("x").to_pybytes() == b"new"

    def test_create_leaves_an_existing_object_alone(self, store: ObjectStore) -> None:
        store.put("v/1", [b"first"], mode="create")
        with pytest.raises(ObjectExistsError) as caught:
            store.put("v/1", [b"second"], mode="create")
        assert store.full("v/1") in str(caught.value)
        assert isinstance(caught.value, FileExistsError)
        assert store.get("v/1").to_pybytes() == b"first"
        assert names(store, "v") == ["v/1"]

    def test_of_many_creators_one_wins(self, store: ObjectStore) -> None:
        if store.uri.startswith("fsspec+distant"):
            pytest.skip("this file system decides no race")
        won: list[int] = []

        def work(me: int) -> None:
            try:
                store.put("v/1", [b"%d" % me], mode="create")
            except ObjectExistsError:
                return
            won.append(me)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert store.get("v/1").to_pybytes() == b"%d" % won[0]

    def test_a_sink_is_invisible_until_finished(self, store: ObjectStore) -> None:
        if store.uri.startswith("fsspec+memory"):
            pytest.skip("this file system shows what is being written")
        sink = store.create("data/f")
        sink.write([b"one", b"", b"two"])
        assert sink.position == 6
        assert names(store, "", deep=True) == []
        sink.write([b"three"])
        assert sink.finish() == 11
        assert store.get("data/f").to_pybytes() == b"onetwothree"

    def test_a_large_sink_keeps_order(self, store: ObjectStore) -> None:
        big = bytes(range(251)) * 90_000
        sink = store.create("f")
        sink.write([b"head", big, b"tail"])
        sink.write([b"!"] * 3000)
        assert sink.finish() == 4 + len(big) + 4 + 3000
        assert store.get("f").to_pybytes() == b"head" + big + b"tail" + b"!" * 3000

    def test_an_aborted_sink_leaves_nothing(self, store: ObjectStore) -> None:
        if store.uri.startswith("fsspec+memory"):
            pytest.skip("this file system shows what is being written")
        sink = store.create("data/f")
        sink.write([CONTENT])
        sink.abort()
        sink.abort()
        assert names(store, "", deep=True) == []
        with pytest.raises(StoreError, match="writing has ended"):
            sink.write([b"more"])
        with pytest.raises(StoreError, match="writing has ended"):
            sink.finish()

    def test_abort_after_finish_keeps_the_object(self, store: ObjectStore) -> None:
        sink = store.create("f")
        sink.write([b"x"])
        sink.finish()
        sink.abort()
        assert store.get("f").to_pybytes() == b"x"


class TestNaming:
    def test_lists_are_in_name_order_and_not_deep(self, store: ObjectStore) -> None:
        for name in ("d/b", "d/a", "d/a.x", "d/sub/c", "e"):
            store.put(name, [name.encode()])
        assert names(store, "d") == ["d/a", "d/a.x", "d/b"]
        assert [meta.size for meta in store.list("d")] == [3, 5, 3]
        assert names(store, "") == ["e"]

    @pytest.mark.parametrize(
        ("start", "stop"),
        [(None, "d/02"), ("d/02", "d/1"), ("d/1", None), ("d/", "e/"), ("d/01/x", "d/01/y")],
    )
    def test_walks_may_begin_and_end_between_names(
        self, store: ObjectStore, start: str | None, stop: str | None
    ) -> None:
        paths = ["d/0", "d/00.x", "d/01/x", "d/01/y", "d/02", "d/022", "d/1", "d/f", "e/1"]
        for path in paths:
            store.put(path, [b"1"])
        expected = [
            path
            for path in paths
            if path.startswith("d/") and (start or "") <= path < (stop or "e")
        ]
        assert [meta.path for meta in store.walk_between("d", start, stop)] == expected

    def test_walks_go_deep_in_name_order(self, store: ObjectStore) -> None:
        written = ["a/b/c", "a/b.x", "a/c", "b", "a.x"]
        for name in written:
            store.put(name, [b"1"])
        assert names(store, "", deep=True) == sorted(written)
        assert names(store, "a", deep=True) == ["a/b.x", "a/b/c", "a/c"]

    def test_an_absent_directory_is_empty(self, store: ObjectStore) -> None:
        assert names(store, "nothing") == []
        assert names(store, "nothing", deep=True) == []

    def test_a_prefix_is_a_directory_not_a_text(self, store: ObjectStore) -> None:
        store.put("data2/x", [b"1"])
        assert names(store, "data", deep=True) == []

    def test_head_tells_size_and_time(self, store: ObjectStore) -> None:
        store.put("x", [CONTENT])
        meta = store.head("x")
        assert (meta.path, meta.size) == ("x", 1024)
        assert meta.modified is not None
        assert meta.modified.tzinfo is not None

    def test_delete_forgives_what_is_gone(self, store: ObjectStore) -> None:
        store.put("a", [b"1"])
        store.put("b", [b"1"])
        store.delete(["a", "never there", "b"])
        store.delete([])
        assert names(store, "", deep=True) == []

    @pytest.mark.parametrize("path", ["../secret", "data/../../secret", "/etc/hostname"])
    def test_no_path_leads_out_of_the_root(self, store: ObjectStore, path: str) -> None:
        with pytest.raises(StoreError, match="leads out of"):
            store.get(path)
        with pytest.raises(StoreError, match="leads out of"):
            store.delete([path])

    @pytest.mark.parametrize(
        "path", ["data/%2e%2E/%2e./secret", "data/..%2f../secret", "data/..;x/..;/secret"]
    )
    def test_no_path_leads_out_as_a_part_of_an_address(self, path: str) -> None:
        """Clients of web servers by fsspec read ``%2e`` as a dot, and follow the result."""
        store = open_store("fsspec+memory://addresses/root")
        for read in (store.get, store.head, store.open):
            with pytest.raises(StoreError, match="leads out of"):
                read(path)

    def test_a_null_character_in_a_path_is_refused(self, store: ObjectStore) -> None:
        for read in (store.get, store.head):
            with pytest.raises(StoreError):
                read("data/a\0b")

    def test_half_of_a_surrogate_pair_in_a_path_is_refused(self, store: ObjectStore) -> None:
        with pytest.raises(StoreError, match="half of a surrogate pair"):
            store.head("data/\ud800")

    def test_stores_follow_their_protocols(self, store: ObjectStore) -> None:
        assert isinstance(store, ObjectStore)
        sink = store.create("x")
        assert isinstance(sink, Sink)
        sink.finish()
        assert isinstance(store.open("x"), RangeReader)


class TestDirectories:
    def test_making_a_store_touches_nothing(self, tmp_path: Path) -> None:
        LocalStore(tmp_path / "later")
        assert not (tmp_path / "later").exists()

    def test_a_temporary_file_is_not_listed(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path)
        sink = store.create("data/x.lance")
        assert len(list((tmp_path / "data").iterdir())) == 1
        assert names(store, "data") == []
        sink.abort()
        assert list((tmp_path / "data").iterdir()) == []

    def test_a_failing_write_is_a_store_error_with_remedy(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        store = LocalStore(tmp_path)
        with pytest.raises(StoreError, match=r"file/x.*Not a directory.*check the path"):
            store.put("file/x", [b"1"])
        (tmp_path / "folder").mkdir()
        with pytest.raises(StoreError, match=r"folder: .*directory where a file was expected"):
            store.get("folder")
        with pytest.raises(StoreError, match=r"folder: .*directory where a file was expected"):
            store.open("folder")
        with pytest.raises(StoreError, match=r"folder: it is a directory"):
            store.head("folder")
        with pytest.raises(StoreError, match=r"(?i)folder: is a directory"):
            store.put("folder", [b"1"])
        with pytest.raises(StoreError, match="too long"):
            store.put("n" * 300, [b"1"])
        assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]

    def test_a_full_disk_is_named_and_leaves_nothing(self, tmp_path: Path) -> None:
        code = """
import resource, signal, sys
from glaive.io.local import LocalStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
LocalStore(sys.argv[1]).put("big", [bytes(5000)])
"""
        run = subprocess.run(
            [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False
        )
        assert "StoreError: cannot write" in run.stderr
        assert f"{tmp_path}/big: File too large" in run.stderr
        assert list(tmp_path.iterdir()) == []

    def test_many_maps_hold_no_descriptors(self, tmp_path: Path) -> None:
        fds = Path("/proc/self/fd")
        if not fds.exists():
            pytest.skip("descriptors cannot be counted here")
        store = LocalStore(tmp_path)
        store.put("x", [CONTENT])
        before = len(list(fds.iterdir()))
        readers = [store.open("x") for _ in range(50)]
        assert len(list(fds.iterdir())) == before
        assert readers[49].size == 1024

    def test_a_map_keeps_the_content_of_a_replaced_file(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path)
        store.put("x", [CONTENT])
        reader = store.open("x")
        store.put("x", [b"short"])
        assert reader.read([ByteRange(1000, 24)])[0].to_pybytes() == CONTENT[1000:]

    def test_a_closed_reader_says_so(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path)
        store.put("x", [CONTENT])
        reader = store.open("x")
        reader.close()
        with pytest.raises(StoreError, match="was closed"):
            reader.tail(1)

    def test_a_directory_store_can_be_pickled(self, tmp_path: Path) -> None:
        store = LocalStore(tmp_path)
        assert pickle.loads(pickle.dumps(store)) == store

    def test_files_get_the_usual_permissions(self, tmp_path: Path) -> None:
        LocalStore(tmp_path / "a").put("x", [b"1"])
        (tmp_path / "y").write_bytes(b"1")
        assert (tmp_path / "a/x").stat().st_mode == (tmp_path / "y").stat().st_mode


class TestMemory:
    def test_a_name_is_one_store_per_process(self) -> None:
        open_store("memory://shared-name/t").put("x", [b"1"])
        assert open_store("memory://shared-name").get("t/x").to_pybytes() == b"1"
        assert names(open_store("memory://other-name"), "", deep=True) == []

    def test_it_cannot_be_sent_to_another_process(self) -> None:
        with pytest.raises(GlaiveError, match="memory of this process"):
            pickle.dumps(open_store("memory://pickled"))

    def test_making_a_reader_makes_no_request(self) -> None:
        store = CountingStore(open_store("memory://quiet"))
        store.open("not there")
        assert store.requests == 0
