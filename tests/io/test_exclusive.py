"""A file gets its name only where there is none, whatever the file system has for that."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.kit.crashes import killed_at_step
from tests.without_links import SYSTEMS, System, begin, end, needs_seccomp, restrict, run

from glaive.errors import ObjectExistsError
from glaive.io import local_sink
from glaive.io.local import LocalStore
from glaive.io.local_sink import removal_name, temporary_path

pytestmark = needs_seccomp

WHOLE = [b"whole " * 50, b"end"]
CONTENT = b"".join(WHOLE)
every_system = pytest.mark.parametrize("system", SYSTEMS)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def unfinished(folder: Path, name: str = "1", *, age: float = 3600) -> Path:
    """What a writer left that took the name a while ago and was stopped."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.touch()
    then = file.stat().st_mtime - age
    os.utime(file, (then, then))
    return file


def create(root: Path, content: bytes = CONTENT, path: str = "v/1") -> bool:
    try:
        LocalStore(root).put(path, [content], mode="create")
    except ObjectExistsError:
        return False
    return True


def told(root: Path, work: Callable[[], bool], me: int) -> None:
    """Leave a mark if the work says that it was done."""
    if work():
        (root / f"done {me}").touch()


def winners(root: Path) -> list[int]:
    numbers = [int(path.name.split()[1]) for path in root.glob("done *")]
    for path in root.glob("done *"):
        path.unlink()
    return numbers


@pytest.mark.sampled(every=2)
@every_system
def test_what_is_there_stays_and_nothing_else_is_left(tmp_path: Path, system: System) -> None:
    def work() -> None:
        assert create(tmp_path)
        assert not create(tmp_path, b"second")

    run(system, work)
    assert (tmp_path / "v/1").read_bytes() == CONTENT
    assert names(tmp_path / "v") == ["1"]


@pytest.mark.sampled(every=2)
@every_system
def test_large_files_and_those_forced_to_disk_too(tmp_path: Path, system: System) -> None:
    large = bytes(range(256)) * 2000

    def work() -> None:
        for options in ({}, {"fsync": "true"}):
            store = LocalStore(tmp_path, options)
            store.put(f"v/{len(options)}", [large, b"end"], mode="create")
            with pytest.raises(ObjectExistsError):
                store.put(f"v/{len(options)}", [large], mode="create")

    run(system, work)
    assert names(tmp_path / "v") == ["0", "1"]
    assert all((tmp_path / "v" / name).read_bytes() == large + b"end" for name in "01")


@pytest.mark.sampled(every=6)
@every_system
@pytest.mark.parametrize("begun", [False, True], ids=["nothing there", "an empty file there"])
def test_of_many_processes_one_is_first(tmp_path: Path, system: System, *, begun: bool) -> None:
    def work(me: int) -> bool:
        return create(tmp_path, b"%d " % me * 100)

    for _ in range(3):
        if begun:
            unfinished(tmp_path / "v")
        end([begin(system, partial(told, tmp_path, partial(work, me), me)) for me in range(6)])
        first = winners(tmp_path)
        assert len(first) <= 1  # of those that stand in each other's way none may be
        content = (tmp_path / "v/1").read_bytes()
        assert content == b"".join(b"%d " % me * 100 for me in first)
        assert names(tmp_path / "v") == ["1"]
        (tmp_path / "v/1").unlink()


@pytest.mark.sampled(every=4)
@every_system
def test_who_tries_again_gets_the_name_in_the_end(tmp_path: Path, system: System) -> None:
    unfinished(tmp_path / "v")

    def work(me: int) -> bool:
        return any(create(tmp_path, b"%d" % me) for _ in range(50))

    end([begin(system, partial(told, tmp_path, partial(work, me), me)) for me in range(4)])
    (first,) = winners(tmp_path)
    assert (tmp_path / "v/1").read_bytes() == b"%d" % first


@pytest.mark.sampled(every=6)
@every_system
@pytest.mark.parametrize("begun", [False, True], ids=["nothing there", "an empty file there"])
def test_a_writer_killed_at_every_step_shows_no_part(
    tmp_path: Path, system: System, *, begun: bool
) -> None:
    def work(root: Path) -> None:
        restrict(system)
        create(root)

    for step in itertools.count(1):
        root = tmp_path / str(step)
        file = root / "v" / "1"
        root.mkdir()
        if begun:
            unfinished(root / "v")
        killed = killed_at_step(str(root), partial(work, root), step)
        seen = file.read_bytes() if file.exists() else b""
        assert seen in (b"", CONTENT), step
        if not killed:
            assert seen == CONTENT
            break
        if file.exists() and not seen:
            unfinished(root / "v")  # some time later
        run(system, partial(create, root, b"next"))
        assert file.read_bytes() == (seen or b"next"), step
    assert step > 3


def test_a_slow_writer_does_not_replace_what_came_in_its_place(tmp_path: Path) -> None:
    def stop(event: str, arguments: tuple[object, ...]) -> None:
        if (
            event == "os.rename"
            and str(arguments[1]).endswith("v/1")
            and (tmp_path / "v/1").exists()
        ):
            os.kill(os.getpid(), signal.SIGSTOP)

    def work() -> None:
        sys.addaudithook(stop)
        assert not create(tmp_path, b"of the slow one")

    child = begin("neither", work)
    _, status = os.waitpid(child, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    unfinished(tmp_path / "v")
    try:
        run("neither", lambda: create(tmp_path) or pytest.fail("not created"))
    finally:
        os.kill(child, signal.SIGCONT)
    end([child])
    assert (tmp_path / "v/1").read_bytes() == CONTENT
    assert names(tmp_path / "v") == ["1"]


def test_a_writer_between_its_two_steps_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The empty file is young; its writer goes on while another one looks at it."""
    monkeypatch.setattr(
        local_sink, "EMPTY_FILE_SECONDS", 60.0
    )  # on a busy machine, 0.2 s may last 2
    (tmp_path / "v").mkdir()
    (tmp_path / "v/1").touch()

    def go_on() -> None:
        time.sleep(0.2)
        (tmp_path / "finished").write_bytes(b"of the first")
        (tmp_path / "finished").replace(tmp_path / "v/1")

    first = begin("neither", go_on)
    run("neither", lambda: create(tmp_path) and pytest.fail("not waited for"))
    end([first])
    assert (tmp_path / "v/1").read_bytes() == b"of the first"


@pytest.mark.sampled(every=2)
@every_system
def test_an_unfinished_file_is_removed_but_nothing_else(tmp_path: Path, system: System) -> None:
    file = unfinished(tmp_path / "v")

    def remove() -> None:
        assert LocalStore(tmp_path).remove_unfinished("v/1")
        assert not LocalStore(tmp_path).remove_unfinished("v/1")

    run(system, remove)
    assert not file.exists()
    create(tmp_path)
    run(system, lambda: LocalStore(tmp_path).remove_unfinished("v/1") and pytest.fail("removed"))
    assert file.read_bytes() == CONTENT
    assert names(tmp_path / "v") == ["1"]


@pytest.mark.sampled(every=3)
@every_system
def test_what_is_written_while_others_remove_is_kept(tmp_path: Path, system: System) -> None:
    def write(me: int) -> bool:
        return any(create(tmp_path, b"%d" % me) for _ in range(30))

    def remove(_: int) -> bool:
        for _ in range(10):
            LocalStore(tmp_path).remove_unfinished("v/1")
        return False

    for _ in range(2):
        unfinished(tmp_path / "v")
        work = [write, remove, write, remove]
        end(
            [
                begin(system, partial(told, tmp_path, partial(steps, me), me))
                for me, steps in enumerate(work)
            ]
        )
        (first,) = winners(tmp_path)
        assert (tmp_path / "v/1").read_bytes() == b"%d" % first
        (tmp_path / "v/1").unlink()


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_name_is_taken_though_somebody_says_from_a_later_year_to_be_removing_its_empty_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(local_sink, "EMPTY_FILE_SECONDS", 0.1)
    monkeypatch.setattr(local_sink, "REMOVAL_SECONDS", 1.0)
    unfinished(tmp_path / "v")
    marker = tmp_path / "v" / removal_name("1")
    make: dict[str, Callable[[], None]] = {
        "file": marker.touch,
        "folder": marker.mkdir,
        "link": lambda: marker.symlink_to("nowhere"),
    }
    make[kind]()
    os.utime(marker, (4e9, 4e9), follow_symlinks=False)
    assert create(tmp_path)
    assert (tmp_path / "v/1").read_bytes() == CONTENT


@pytest.mark.parametrize("work", ["take", "remove"])
def test_a_folder_that_is_named_like_the_file_of_a_writer_does_not_keep_a_name(
    tmp_path: Path, work: str
) -> None:
    file = unfinished(tmp_path / "v")
    folder = Path(temporary_path(str(file)))
    folder.mkdir()
    if work == "take":
        assert create(tmp_path)
        assert file.read_bytes() == CONTENT
    else:
        assert LocalStore(tmp_path).remove_unfinished("v/1")
        assert not file.exists()
    assert folder.is_dir()


def test_who_is_removing_an_empty_file_now_is_not_taken_for_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_sink, "EMPTY_FILE_SECONDS", 0.1)
    unfinished(tmp_path / "v")
    (tmp_path / "v" / removal_name("1")).touch()
    assert not create(tmp_path)
    assert (tmp_path / "v/1").read_bytes() == b""


@every_system
def test_a_link_in_the_place_of_a_file_is_not_written_through(
    tmp_path: Path, system: System
) -> None:
    outside = tmp_path / "outside"
    outside.touch()
    unfinished(tmp_path, "outside")
    (tmp_path / "v").mkdir()
    (tmp_path / "v/1").symlink_to(outside)
    (tmp_path / "v/2").symlink_to(tmp_path / "nowhere")

    def work() -> None:
        assert not create(tmp_path)
        assert not create(tmp_path, path="v/2")
        LocalStore(tmp_path).put_new("v/1", [b"new"])

    run(system, work)
    assert outside.read_bytes() == b""
    assert not (tmp_path / "nowhere").exists()
    assert (tmp_path / "v/1").read_bytes() == b"new"
    assert not (tmp_path / "v/1").is_symlink()


def test_a_hint_is_not_rewritten_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"0123")
    (tmp_path / "soft").symlink_to("secret")
    (tmp_path / "hard").hardlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    store = LocalStore(tmp_path)
    for name in ("soft", "hard", "pipe"):
        assert not store.rewrite(name, b"9999")
    assert (tmp_path / "secret").read_bytes() == b"0123"
