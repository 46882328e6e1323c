"""Machine code of kernels: kept on disk, linked without the compiler, never trusted blindly."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZipFile

import pytest

import glaive
from glaive.config import settings
from glaive.kernels import native
from glaive.kernels.loops import hashing
from glaive.kernels.loops.entry import compile_entry
from glaive.kernels.loops.memory import kernel

pytestmark = pytest.mark.skipif(
    settings.kernels == "checked", reason="the checked build is not kept on disk"
)

COMPILED = {"GLAIVE_KERNELS": "numba"}
"""The environment of a process that does without the library of machine code."""

ROUND_TRIP = """
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
import pyarrow as pa
import glaive
from glaive.kernels import native

data = pa.py_buffer(b"glaive" * 100)
print(native.hashing.xxh64(data.address, data.size, 0), "numba" in sys.modules)
"""


def hashed(cache: Path, *, folder: Path | None = None, **variables: str) -> tuple[str, bool, str]:
    """Hash in a process of its own: the result, whether it loaded numba, and what it logged."""
    environment = {**os.environ, **COMPILED, "GLAIVE_KERNEL_CACHE": str(cache), **variables}
    done = subprocess.run(
        [sys.executable, "-c", ROUND_TRIP],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    result, compiled = done.stdout.split()
    return result, compiled == "True", done.stderr


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which a process kept the code that it compiled, and what it hashed."""
    folder = tmp_path_factory.mktemp("code") / "kept"
    first, compiled, _ = hashed(folder)
    assert compiled
    return folder, first


@pytest.fixture
def first(compiled_once: tuple[Path, str]) -> str:
    """What the process that compiled has hashed."""
    return compiled_once[1]


@pytest.fixture
def kept(compiled_once: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of that folder, modes included."""
    return Path(shutil.copytree(compiled_once[0], tmp_path / "kept"))


OUTLIVES = """
import gc
import pyarrow as pa
import glaive
from glaive.kernels import machine, native

data = pa.py_buffer(b"glaive" * 100)
kernel = native.hashing.xxh64
engine, before = machine._engine(), kernel(data.address, data.size, 0)
vars(machine).clear()
gc.collect()
print(kernel.__name__, kernel(data.address, data.size, 0) == before)
"""


@pytest.mark.nightly(reason="compiles in several processes")
def test_a_kernel_outlives_the_module_that_linked_it(compiled_once: tuple[Path, str]) -> None:
    """At the end of a process modules are deleted first, and functions are looked at after it.

    Memory that was given back is overwritten where the C library is glibc, so that reading it
    there is noticed.
    """
    folder, _ = compiled_once
    environment = {
        **os.environ,
        **COMPILED,
        "GLAIVE_KERNEL_CACHE": str(folder),
        "PYTHONMALLOC": "malloc",
        "MALLOC_PERTURB_": "2",
    }
    done = subprocess.run(
        [sys.executable, "-c", OUTLIVES],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "xxh64 True\n"), done.stderr


def test_only_the_first_process_compiles(tmp_path: Path) -> None:
    first, compiled, _ = hashed(tmp_path)
    assert compiled
    assert hashed(tmp_path) == (first, False, "")
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("damage", ["cut off", "changed", "empty"])
def test_damaged_code_is_compiled_again(kept: Path, first: str, damage: str) -> None:
    (file,) = kept.iterdir()
    code = bytearray(file.read_bytes())
    code[len(code) // 2] ^= 1
    file.write_bytes({"cut off": code[:-9], "changed": code, "empty": b""}[damage])
    result, compiled, logged = hashed(kept)
    assert (result, compiled) == (first, True)
    assert "is damaged" in logged
    assert hashed(kept) == (first, False, "")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no such modes here")
def test_code_that_others_may_write_is_not_run(kept: Path, first: str) -> None:
    (file,) = kept.iterdir()
    file.chmod(0o666)
    assert hashed(kept)[:2] == (first, True)


@pytest.mark.nightly(reason="compiles in several processes")
def test_another_processor_has_code_of_its_own(kept: Path, first: str) -> None:
    assert hashed(kept, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")[:2] == (first, True)
    assert len(list(kept.iterdir())) == 2
    assert hashed(kept) == (first, False, "")


@pytest.mark.nightly(reason="compiles in several processes")
@pytest.mark.spec("sec-2")
def test_settings_of_the_compiler_in_the_working_directory_are_not_read(
    tmp_path: Path, first: str
) -> None:
    """The directory may be a dataset of a stranger: they name files that are written over."""
    pytest.importorskip("yaml")  # numba reads them with it
    mine, other, folder = tmp_path / "mine", tmp_path / "other", tmp_path / "dataset"
    for path in (mine, other):
        path.write_text("precious")
    folder.mkdir()
    said = f"dump_html: {mine}\nchrome_trace: {other}\ndisable_jit: 1\n"
    (folder / ".numba_config.yaml").write_text(said)
    assert hashed(tmp_path / "kept", folder=folder) == (first, True, "")
    assert [path.read_text() for path in (mine, other)] == ["precious", "precious"]


@pytest.mark.nightly(reason="compiles in several processes")
def test_code_that_was_compiled_by_a_file_of_settings_is_not_kept(
    tmp_path: Path, first: str
) -> None:
    """A program that imports numba has it read the file, which may be a stranger's."""
    pytest.importorskip("yaml")  # as above
    folder, kept = tmp_path / "dataset", tmp_path / "kept"
    folder.mkdir()
    (folder / ".numba_config.yaml").write_text("opt: 0\n")
    environment = {**os.environ, **COMPILED, "GLAIVE_KERNEL_CACHE": str(kept)}
    done = subprocess.run(
        [sys.executable, "-c", f"import numba\n{ROUND_TRIP}"],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [first, "True"]
    assert list(kept.glob("*")) == []


@pytest.mark.nightly(reason="compiles in several processes")
def test_where_nothing_can_be_kept_every_process_compiles(tmp_path: Path, first: str) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_bytes(b"")
    for _ in range(2):
        result, compiled, said = hashed(no_folder)
        assert (result, compiled) == (first, True)
        assert said.count("cannot be kept") == 1


@pytest.mark.nightly(reason="compiles in several processes")
def test_the_first_process_tells_a_terminal_that_it_compiles(tmp_path: Path) -> None:
    for expected in (1, 0):
        ours, theirs = os.openpty()
        subprocess.run(
            [sys.executable, "-c", ROUND_TRIP],
            env={**os.environ, **COMPILED, "GLAIVE_KERNEL_CACHE": str(tmp_path / "kernels")},
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            check=True,
        )
        os.write(theirs, b"end")
        assert os.read(ours, 1000).count(b"glaive warmup") == expected
        os.close(ours)
        os.close(theirs)


@pytest.mark.nightly(reason="compiles in several processes")
def test_processes_that_start_together_keep_one_file_of_code(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: hashed(tmp_path / "kept"), range(4)))
    assert len({result for result, _, _ in results}) == 1
    assert len(list((tmp_path / "kept").iterdir())) == 1
    assert hashed(tmp_path / "kept") == (results[0][0], False, "")


def test_a_kernel_refuses_other_arguments_than_its_own() -> None:
    with pytest.raises(TypeError):
        native.hashing.xxh64(0)  # type: ignore[call-arg]  # on purpose
    with pytest.raises(TypeError):
        native.hashing.xxh64(0, "0", 0)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(OverflowError):
        native.hashing.xxh64(0, 2**63, 0)
    assert native.hashing.xxh64(0, 0, 0) == 0xEF46DB3751D8E999


def test_what_is_no_kernel_is_no_attribute() -> None:
    with pytest.raises(AttributeError):
        native.no_such_module  # noqa: B018  # the access is the test
    with pytest.raises(AttributeError):
        native.hashing.no_such_kernel  # type: ignore[attr-defined]  # noqa: B018  # same


@kernel  # type: ignore[untyped-decorator]  # as numba has no types
def _calls_python(value: int) -> int:
    return len(str(value))


def test_a_kernel_that_calls_the_interpreter_is_refused() -> None:
    with pytest.raises(TypeError, match="a kernel calls kernels only"):
        compile_entry(_calls_python, "symbol")
    assert compile_entry(hashing.xxh64, "another_symbol")


@pytest.mark.nightly(reason="compiles in several processes")
def test_a_package_in_an_archive_compiles_its_kernels(tmp_path: Path) -> None:
    package = Path(glaive.__file__).parent
    archive = tmp_path / "packages.zip"
    with ZipFile(archive, "w") as written:
        for path in package.rglob("*.py"):
            written.write(path, path.relative_to(package.parent))
    environment = {**os.environ, **COMPILED, "PYTHONPATH": str(archive)}
    code = f"import sys; sys.path.insert(0, {str(archive)!r})\n{ROUND_TRIP}"
    command = [sys.executable, "-c", code + "assert '.zip' in native.__file__"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1] == "True"


def test_code_is_keyed_by_every_source_that_kernels_are_made_of() -> None:
    loops = Path(native.__file__).parent / "loops"
    pattern = re.compile(r"^from (glaive\.[\w.]+) import", re.MULTILINE)
    imported = {name for path in loops.glob("*.py") for name in pattern.findall(path.read_text())}
    imported = {name for name in imported if not name.startswith("glaive.kernels.loops")}
    # The sanitizer is for builds that are not kept; settings choose these builds.
    others = imported - {"glaive.config", "glaive.kernels", "glaive.kernels.machine"}
    assert others == {"glaive.kernels.records"}


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no such modes here")
def test_code_in_a_folder_that_all_may_write_to_is_not_run(kept: Path, first: str) -> None:
    kept.chmod(0o777)
    assert hashed(kept)[:2] == (first, True)
    kept.chmod(0o775)
    assert hashed(kept) == (first, False, "")


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links are followed here")
def test_code_of_another_kernel_and_links_are_not_run(
    kept: Path, first: str, tmp_path: Path
) -> None:
    (file,) = kept.iterdir()
    name = file.name
    other = file.rename(kept / name.replace("hashing.xxh64", "hashing.other"))
    file.symlink_to(other)
    assert hashed(kept)[:2] == (first, True)
    second = "from glaive.kernels import native; native.memory.wrapping_add(1, 2)"
    environment = {**os.environ, "GLAIVE_KERNEL_CACHE": str(tmp_path / "second")}
    subprocess.run([sys.executable, "-c", second], env=environment, check=True)
    (sum_of_two,) = (tmp_path / "second").iterdir()
    file.write_bytes(sum_of_two.read_bytes())
    result, compiled, logged = hashed(kept)
    assert (result, compiled) == (first, True)
    assert "is damaged" in logged


def test_threads_that_want_a_kernel_at_once_get_the_same() -> None:
    kernels = native._Kernels("hashing")  # noqa: SLF001  # a namespace that has linked nothing yet
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: kernels.xxh64, range(32)))
    assert len(set(map(id, found))) == 1


class _Failing:
    def __index__(self) -> int:
        raise KeyError("first")


def test_the_first_argument_that_fails_ends_the_call() -> None:
    with pytest.raises(KeyError, match="first"):
        native.hashing.xxh64(_Failing(), _Failing(), 0)  # type: ignore[arg-type]  # on purpose
