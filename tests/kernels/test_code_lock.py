"""One process compiles at a time; nobody waits for ever."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from glaive.kernels import code_cache
from glaive.kernels.code_cache import alone_in

fcntl = pytest.importorskip("fcntl", reason="this system has no locks of folders")


@pytest.fixture
def held(tmp_path: Path) -> Iterator[int]:
    """A lock on the folder that another process has: one of another descriptor is as good."""
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    yield other
    os.close(other)


def test_a_process_waits_until_the_other_is_done(tmp_path: Path, held: int) -> None:
    steps: list[str] = []

    def release() -> None:
        steps.append("other")
        fcntl.flock(held, fcntl.LOCK_UN)

    timer = threading.Timer(0.2, release)
    timer.start()
    with alone_in(tmp_path, lambda: False):
        steps.append("mine")
        with pytest.raises(BlockingIOError):  # others wait now
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    timer.join()
    assert steps == ["other", "mine"]
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # free again


@pytest.mark.usefixtures("held")
def test_a_process_waits_no_longer_once_there_is_what_it_waits_for(tmp_path: Path) -> None:
    looks = iter([False, False, True])
    with alone_in(tmp_path, lambda: next(looks)):
        assert next(looks, None) is None
    third = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):  # the other still has the lock
        fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(third)


@pytest.mark.usefixtures("held")
def test_a_process_that_waited_long_enough_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_cache, "PATIENCE", 0.05)
    looks: list[str] = []

    def look() -> bool:
        looks.append("again")
        return False

    with alone_in(tmp_path, look):
        assert len(looks) > 1


@pytest.mark.usefixtures("held")
def test_a_process_that_waited_in_vain_does_not_wait_for_the_next_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_cache, "PATIENCE", 0.05)
    with alone_in(tmp_path, lambda: False):
        pass
    monkeypatch.setattr(code_cache, "PATIENCE", 30.0)
    with alone_in(tmp_path, lambda: pytest.fail("it waits for a process that may be stopped")):
        pass


@pytest.mark.parametrize("folder", [None, Path("/nowhere/at/all")])
def test_without_a_folder_nobody_waits(folder: Path | None) -> None:
    with alone_in(folder, lambda: pytest.fail("there is nothing to wait for")):
        assert folder is None or not folder.exists()


def test_an_error_releases_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), alone_in(tmp_path, lambda: False):
        raise ZeroDivisionError
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
