"""Deleting stays below the root: links that lead out of it are not followed."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.distant import DISTANT

from glaive.errors import CorruptFileError, OptionError, StoreError
from glaive.io.access import open_store
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore
from glaive.testing import CountingStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a folder, beside a folder of somebody else."""
    (tmp_path / "root/set/_versions").mkdir(parents=True)
    for folder in ("root/data/sub", "root/other/data", "root/set/data", "root2/sub", "outside/sub"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x").write_bytes(b"1")
        (tmp_path / folder).parent.joinpath("x").write_bytes(b"1")
    return tmp_path / "root"


Links = dict[str, str]
"""Where links lie and lead, from the folder around the root on; ``{}`` is that folder's path."""

OUT: dict[str, Links] = {
    "to a place outside": {"root/link": "../outside"},
    "absolute": {"root/link": "{}/outside"},
    "to a link": {"root/link": "other/next", "root/other/next": "../../outside"},
    "out and back": {"root/link": "../outside/back", "outside/back": "{}/root/./data"},
    "to the parent": {"root/link": ".."},
    "to the root itself": {"root/link": "."},
    "to the root by its path": {"root/link": "{}/root"},
    "to everything": {"root/link": "/"},
    "to itself": {"root/link": "link"},
    "in circles": {"root/link": "other/link", "root/other/link": "../link"},
    "to another dataset": {"root/link": "set"},
    "to a folder of another dataset": {"root/link": "set/data"},
    "past its name": {"root/link": "../root-of-another/../outside"},
    "to a name that begins as the root's": {"root/link": "{}/root2"},
}

WITHIN: dict[str, Links] = {
    "beside it": {"root/link": "data"},
    "below": {"root/link": "./data/sub"},
    "by its path": {"root/link": "{}/root/./data"},
    "up and down": {"root/link": "data/sub/../../other"},
    "through another": {"root/link": "data/next", "root/data/next": "../other"},
    "by another path to the root": {"alias": "{}/root", "root/link": "{}/alias/data"},
}


def lay(root: Path, links: Links) -> None:
    for name, target in links.items():
        (root.parent / name).symlink_to(target.format(root.parent))


def everything(root: Path) -> set[str]:
    paths = (Path(at) / name for at, _, names in os.walk(root.parent) for name in names)
    return {str(path) for path in paths}


@pytest.mark.parametrize("links", OUT.values(), ids=OUT)
def test_nothing_is_deleted_behind_a_link_that_leads_out(root: Path, links: Links) -> None:
    lay(root, links)
    before = everything(root)
    store = LocalStore(root)
    assert "link" in (store.link_out("link") or "")
    for path in ("link/x", "link/sub/x", "link/other/data/x"):
        with pytest.raises(StoreError, match=r"link is a link to .*delete_through_links"):
            store.delete([path])
    assert everything(root) == before


@pytest.mark.parametrize("links", WITHIN.values(), ids=WITHIN)
def test_a_link_that_stays_below_the_root_is_followed(root: Path, links: Links) -> None:
    lay(root, links)
    store = LocalStore(root)
    assert store.link_out("link") is None
    there = root / "link" / "x"
    assert there.exists()
    store.delete(["link/x", "link/gone"])
    assert not there.exists()
    assert (root / "link").is_symlink()


def test_systems_without_descriptors_of_folders_look_at_each_name(tmp_path: Path) -> None:
    """As on Windows. Not so a folder exchanged meanwhile, or a way that comes back to the root."""
    code = f"""
import os, sys, pytest
os.supports_dir_fd = set()
others = ("meanwhile", "back", "without_descriptors", "deep", "on_the_way")
chosen = ["-k", " and ".join(f"not {{name}}" for name in others)]
sys.exit(pytest.main([{__file__!r}, "-q", "--basetemp", {str(tmp_path / "t")!r}, *chosen]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_root_may_be_reached_in_any_way(root: Path) -> None:
    (root.parent / "alias").symlink_to(root)
    store = LocalStore(root.parent / "alias")
    store.delete(["data/x"])
    assert not (root / "data/x").exists()


def test_the_folder_of_a_branch_is_reached_without_links(root: Path) -> None:
    (root / "tree").symlink_to("../outside")
    (root / "more").symlink_to("other")
    store = LocalStore(root)
    for branch in (store.below("tree/sub"), store.below("more"), store.below("more/data")):
        for again in (branch, pickle.loads(pickle.dumps(branch))):
            with pytest.raises(StoreError, match="is a link to"):
                again.delete(["x"])
    LocalStore(root / "tree").delete(["x"])  # named by the caller
    assert not (root.parent / "outside/x").exists()
    assert (root.parent / "outside/sub/x").exists()


def test_links_to_files_are_deleted_not_what_they_lead_to(root: Path) -> None:
    (root / "data/link").symlink_to("../../outside/x")
    (root / "data/nowhere").symlink_to("nothing")
    store = LocalStore(root)
    assert store.is_link("data/link")
    store.delete(["data/link", "data/nowhere"])
    assert sorted(path.name for path in (root / "data").iterdir()) == ["sub", "x"]
    assert (root.parent / "outside/x").exists()


@pytest.mark.parametrize("scheme", ["{}", "file://{}", "local://{}", DISTANT])
def test_the_caller_may_allow_it(root: Path, scheme: str) -> None:
    (root / "link").symlink_to("../outside")
    place = scheme.format(root)
    for options in ({}, {"delete_through_links": "false"}):
        with pytest.raises(StoreError, match="delete_through_links"):
            open_store(place, options).delete(["link/x"])
    assert (root.parent / "outside/x").exists()
    open_store(place, {"Delete_Through_Links": "true"}).delete(["link/x"])
    assert not (root.parent / "outside/x").exists()


def test_an_option_that_is_neither_true_nor_false_is_refused(root: Path) -> None:
    with pytest.raises(OptionError, match="delete_through_links is true or false, found 'maybe'"):
        LocalStore(root, {"delete_through_links": "maybe"})


def test_what_a_process_has_written_itself_it_may_take_back(root: Path) -> None:
    (root / "link").symlink_to("../outside")
    for store in (
        LocalStore(root),
        CountingStore(LocalStore(root)),
        open_store(DISTANT.format(root)),
    ):
        store.put("link/mine", [b"1"])
        store.discard(["link/mine", "link/gone"])
        assert not (root.parent / "outside/mine").exists()


def test_stores_that_hand_on_tell_of_links_too(root: Path) -> None:
    (root / "link").symlink_to("../outside")
    store: ObjectStore = CountingStore(LocalStore(root))
    assert store.link_out("link")
    assert store.is_link("link")
    assert not store.remove_unfinished("link/x")
    memory = open_store("memory://no-links")
    assert memory.link_out("link") is None
    assert not memory.is_link("link")


@pytest.mark.spec("sec-7")
def test_a_link_put_in_the_place_of_a_folder_meanwhile_is_not_followed(root: Path) -> None:
    """Whatever a check found before: the folder that files are deleted in is the one looked at."""
    outside = root.parent / "outside"
    names = [f"{number}.lance" for number in range(20)]
    real, link, at = root / "real", root / "way", root / "data"
    at.rename(real)
    link.symlink_to(outside)
    for name in names:
        (outside / name).write_bytes(b"precious")
    done = threading.Event()

    def exchange() -> None:
        while not done.is_set():
            for folder in (real, link):
                folder.rename(at)
                at.rename(folder)

    thread = threading.Thread(target=exchange)
    thread.start()
    refused = tries = 0
    try:
        while tries < 2000 or not refused:
            tries += 1
            try:
                LocalStore(root).delete([f"data/{name}" for name in names])
            except StoreError:
                refused += 1
    finally:
        done.set()
        thread.join()
    assert {path.name for path in outside.iterdir()} == {*names, "x", "sub"}


@pytest.mark.spec("sec-7")
def test_an_empty_folder_is_not_removed_behind_a_link_put_there_meanwhile(root: Path) -> None:
    real, link, at = root / "real", root / "way", root / "data"
    at.rename(real)
    link.symlink_to(root.parent / "outside")
    (root.parent / "outside" / "empty").mkdir()
    done = threading.Event()

    def exchange() -> None:
        while not done.is_set():
            for folder in (real, link):
                folder.rename(at)
                at.rename(folder)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for _ in range(1000):
            with suppress(FileNotFoundError, FileExistsError):
                (real / "empty").mkdir()
            LocalStore(root).remove_folders()
    finally:
        done.set()
        thread.join()
    assert (root.parent / "outside" / "empty").is_dir()


@pytest.mark.spec("sec-7")
@pytest.mark.parametrize("way", ["link", "sub/link", "link/empty"])
def test_a_folder_of_a_catalogue_that_became_a_link_is_not_removed(root: Path, way: str) -> None:
    """As where somebody exchanges the folder of a table while the table is dropped."""
    there = root.parent / "outside" / "empty"
    there.mkdir()
    link = root / way.removesuffix("/empty")
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(there if link.name == way.rpartition("/")[2] else there.parent)
    LocalStore(root).below(way).remove_folders()
    assert there.is_dir()
    assert link.is_symlink()


def test_a_folder_of_a_catalogue_goes_once_it_is_empty(root: Path) -> None:
    (root / "a/b/data").mkdir(parents=True)
    LocalStore(root).below("a/b").remove_folders()
    assert list((root / "a").iterdir()) == []
    LocalStore(root).below("a/b").remove_folders()
    (root / "a/x").touch()
    LocalStore(root).below("a").remove_folders()
    assert (root / "a/x").exists()


def test_empty_folders_go_but_links_stay(root: Path) -> None:
    (root / "link").symlink_to("../outside")
    store = LocalStore(root)
    store.delete([meta.path for meta in store.walk("")])
    store.remove_folders()
    assert [path.name for path in root.iterdir()] == ["link"]
    (root / "link").unlink()
    (root.parent / "alias").symlink_to(root)
    LocalStore(root.parent / "alias").remove_folders()
    assert not os.path.lexists(root)
    assert not os.path.lexists(root.parent / "alias")


def test_a_root_that_is_no_link_any_more_while_it_is_read_is_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(path: str) -> str:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)

    (root.parent / "alias").symlink_to(root)
    store = LocalStore(root.parent / "alias")
    monkeypatch.setattr(os, "readlink", no_link)
    with pytest.raises(StoreError, match=r"cannot remove .*alias.*: Invalid argument"):
        store.remove_folders()


def test_an_empty_folder_behind_a_link_that_leads_out_stays(root: Path) -> None:
    (root / "link").symlink_to("../outside")
    (root / "inside").symlink_to("data")
    for folder in (root.parent / "outside/empty", root / "data/empty"):
        folder.mkdir()
    store = LocalStore(root)
    assert [meta.path for meta in store.empty_folders("data")] == ["data/empty"]
    store.remove_empty(["link/empty", "inside/empty", "link", "data", "gone", "data/x"])
    assert (root.parent / "outside/empty").is_dir()
    assert (root / "link").is_symlink()
    assert sorted(path.name for path in (root / "data").iterdir()) == ["sub", "x"]


@pytest.mark.parametrize("size", [1, 1 << 20], ids=["small", "large"])
def test_a_writer_makes_its_folder_again_if_others_remove_it(tmp_path: Path, size: int) -> None:
    folder, done = tmp_path / "a/b", threading.Event()

    def remove() -> None:
        removed = 0
        while removed < 3 and not done.is_set():
            with suppress(OSError):  # it is not there, or not empty
                folder.rmdir()
                removed += 1

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        LocalStore(tmp_path).put("a/b/file", [b"1" * size])
    finally:
        done.set()
        thread.join()
    assert (folder / "file").stat().st_size == size


class TestListing:
    def test_links_to_folders_and_to_nothing_are_no_files(self, root: Path) -> None:
        (root / "data/folder").symlink_to("../../outside")
        (root / "data/file").symlink_to("../../outside/x")
        (root / "data/self").symlink_to("self")
        (root / "data/nowhere").symlink_to("nothing")
        store = LocalStore(root)
        assert [meta.path for meta in store.list("data")] == ["data/file", "data/x"]
        assert [meta.path for meta in store.walk("data")] == ["data/file", "data/sub/x", "data/x"]
        assert sorted(store.links("")) == [
            f"data/{name}" for name in ("file", "folder", "nowhere", "self")
        ]

    @pytest.mark.parametrize(
        "removed",
        [
            "by steps",
            pytest.param(
                "at once", marks=pytest.mark.nightly(reason="each folder is reached from the root")
            ),
        ],
    )
    def test_folders_may_be_as_deep_as_the_system_allows(
        self, tmp_path: Path, removed: str
    ) -> None:
        here, depth = Path.cwd(), 1050
        try:
            os.chdir(tmp_path)
            for _ in range(depth):
                Path("d").mkdir()
                os.chdir("d")
            Path("x").touch()
            store = LocalStore(tmp_path / "d")
            assert [meta.path for meta in store.walk("")] == ["d/" * (depth - 1) + "x"]
            Path("x").unlink()
            assert [meta.path for meta in store.empty_folders("")] == ["/".join("d" * (depth - 1))]
            if removed == "at once":
                store.remove_folders()
            else:
                for _ in range(depth):
                    os.chdir("..")
                    Path("d").rmdir()
        finally:
            os.chdir(here)
        assert list(tmp_path.iterdir()) == []


class TestReading:
    @pytest.mark.spec("sec-20")
    @pytest.mark.parametrize("place", ["{}", "file://{}", "local://{}", "fsspec+file://{}"])
    def test_a_pipe_or_a_device_is_no_file(self, tmp_path: Path, place: str) -> None:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "zero").symlink_to("/dev/zero")
        store = open_store(place.format(tmp_path))
        with pytest.raises(StoreError, match="pipe: it is a pipe, a socket or a device"):
            store.get_into("pipe", memoryview(bytearray(4)))
        for name in ("pipe", "zero"):
            for read in (store.get, store.open):
                with pytest.raises(StoreError, match=f"{name}: it is a pipe, a socket or a device"):
                    read(name)

    @pytest.mark.spec("rel-24")
    @pytest.mark.parametrize("place", ["{}", "fsspec+file://{}", "local://{}"])
    def test_what_takes_no_room_on_a_disk_takes_no_memory(self, tmp_path: Path, place: str) -> None:
        store = open_store(place.format(tmp_path))
        with (tmp_path / "_holes").open("wb") as file:
            file.truncate(1 << 40)
        with pytest.raises(CorruptFileError, match=r"holes in 1099511627776 bytes \(in .*_holes"):
            store.get("_holes")
        (tmp_path / "_endless").symlink_to("/proc/self/pagemap")
        if (tmp_path / "_endless").exists():
            with pytest.raises(StoreError, match="the system says that it has 0 bytes, and has"):
                store.get("_endless")


@pytest.mark.parametrize(
    "path", ["/x", "..", "../x", "a/..", "a/../../x", "a\0b", "a\nb", "a/\x1b[31m", "\x7f"]
)
@pytest.mark.parametrize("place", ["{}", "memory://paths/r", DISTANT])
def test_a_path_that_no_object_has_is_refused_by_all_that_writes_and_deletes(
    tmp_path: Path, place: str, path: str
) -> None:
    store = open_store(place.format(tmp_path / "root"))
    store.put("good", [b"1"])
    actions: dict[str, Callable[[], object]] = {
        "put": lambda: store.put(path, [b"1"]),
        "create only": lambda: store.put(path, [b"1"], mode="create"),
        "create": lambda: store.create(path),
        "delete": lambda: store.delete(["good", path]),
        "delete what was written": lambda: store.delete_written([path]),
        "list": lambda: list(store.list(path)),
        "walk": lambda: list(store.walk(path)),
        "get": lambda: store.get(path),
        "head": lambda: store.head(path),
    }
    for name, action in actions.items():
        with pytest.raises(StoreError) as caught:
            action()
        assert repr(path)[1:-1] in str(caught.value) or path in str(caught.value), name
    assert store.get("good").to_pybytes() == b"1"
    assert [path.name for path in tmp_path.iterdir()] in ([], ["root"])


@pytest.mark.parametrize("path", ["a..b", "..a", "a b", "ä", "a.", ".a", "a%2Fb", "\u200bx"])
def test_unusual_names_are_names(tmp_path: Path, path: str) -> None:
    store = LocalStore(tmp_path)
    store.put(f"d/{path}", [b"1"], mode="create")
    assert [meta.path for meta in store.list("d")] == [f"d/{path}"]
    store.delete([f"d/{path}"])
    assert list(store.walk("")) == []


@pytest.mark.spec("rel-20")
def test_a_folder_on_the_way_to_a_deletion_that_cannot_be_opened_is_no_file_in_it(
    tmp_path: Path,
) -> None:
    resource = pytest.importorskip("resource", reason="limits of POSIX")
    store = LocalStore(tmp_path)
    store.put("a/b/c/file", [b"1"])
    before, refused = resource.getrlimit(resource.RLIMIT_NOFILE), []
    last = max(int(path.name) for path in Path("/dev/fd").iterdir())
    taken = [os.open(os.devnull, os.O_RDONLY)]  # numbers of connections that ended are between
    while taken[-1] <= last:
        taken.append(os.open(os.devnull, os.O_RDONLY))
    os.close(free := taken.pop())
    for more in range(5):
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + more, before[1]))
        try:
            store.delete(["a/b/c/file"])
        except StoreError as error:
            refused.append(str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for number in taken:
        os.close(number)
    assert len(refused) == 4
    assert all(f"cannot delete {tmp_path}/a/b/c: Too many" in message for message in refused)
    assert not (tmp_path / "a/b/c/file").exists()


@pytest.mark.spec("sec-7")
@pytest.mark.parametrize("place", ["{}", "file://{}", "local://{}", DISTANT])
def test_what_a_process_has_written_is_not_taken_back_behind_a_link_in_the_place_of_its_folder(
    root: Path, place: str
) -> None:
    """Others who may write there see the name of a new folder, and know it before it is used."""
    store = open_store(place.format(root))
    inner = store.below("set")
    assert inner is not None
    for of, path in ((store, "data/new/x"), (inner, "data/new/x"), (inner, "data/new/deep/x")):
        of.put(path, [b"1"])
        folder = (root if of is store else root / "set") / "data/new"
        folder.rename(root / "moved")
        folder.symlink_to("../../outside" if of is store else "../../../outside")
        assert (folder / "x").exists()
        of.discard([path, path.replace("deep", "sub")])
        with pytest.raises(StoreError, match="new is a link"):
            of.delete_written([path])
        assert (root.parent / "outside/x").exists()
        assert (root.parent / "outside/sub/x").exists()
        folder.unlink()
        shutil.rmtree(root / "moved")


@pytest.mark.spec("rel-31")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_all_folders_on_the_way_to_a_deletion_are_closed_where_closing_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, close = LocalStore(tmp_path), os.close
    store.put("a/b/c/file", [b"1"])

    def failing(number: int) -> None:
        close(number)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    before = len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", failing)
        store.delete(["a/b/c/file"])
    assert not (tmp_path / "a/b/c/file").exists()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
