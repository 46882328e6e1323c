"""Machine code of all kernels in one library: nothing is compiled where it is for the processor."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from zipfile import ZipFile

import pytest

import glaive
from glaive.config import settings
from glaive.kernels import library, native
from glaive.kernels.native import called_kernels

pytestmark = pytest.mark.skipif(
    settings.kernels != "auto" or library.library() is None,
    reason="the library of this checkout is not built: make warmup",
)

FIRST_CALLS = """
import sys
import glaive, numpy as np, pyarrow as pa

vectors = np.random.default_rng(1).random((5_000, 16), np.float32)
items = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 16)
words = [f"name {i % 500}" for i in range(5_000)]
table = pa.table({"a": range(5_000), "b": words, "v": items})
dataset = glaive.write_dataset(table, sys.argv[1])
assert dataset.to_table(columns=["a", "b"]).equals(table.select(["a", "b"]))
print(dataset.to_table(filter="a % 3 = 0 and b like 'name 1%'").num_rows)
print(dataset.take([7, 4_999])["a"].to_pylist())
dataset.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=4)
near = dataset.to_table(nearest={"column": "v", "q": vectors[3], "k": 2, "refine_factor": 5})
print(near["a"][0])
print(sorted({"numba", "llvmlite"} & set(sys.modules)))
"""


def run(code: str, *arguments: str, **variables: str) -> str:
    """Run code in a process that has compiled nothing."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_first_calls_in_a_new_home_compile_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    said = run(FIRST_CALLS, str(tmp_path / "t"), HOME=str(home), GLAIVE_KERNEL_CACHE="")
    assert said.splitlines() == ["369", "[7, 4999]", "3", "[]"]
    assert not home.exists()


def test_a_package_in_an_archive_has_its_machine_code_there(tmp_path: Path) -> None:
    package = Path(glaive.__file__).parent
    archive = tmp_path / "packages.zip"
    with ZipFile(archive, "w") as written:
        for path in (*package.rglob("*.py"), *package.rglob("*.so")):
            written.write(path, path.relative_to(package.parent))
    code = f"import sys; sys.path.insert(0, {str(archive)!r})\n{FIRST_CALLS}"
    assert run(code, str(tmp_path / "t")).splitlines()[-1] == "[]"


def test_the_library_has_every_kernel_that_python_calls() -> None:
    for module, names in called_kernels().items():
        for name in names:
            assert library.find(f"glaive_{module}_{name}") is not None
            assert getattr(getattr(native, module), name).__name__ == name
    assert library.find("glaive_hashing_no_such_kernel") is None


def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "digest", lambda: "0" * 20)
    assert library.library.__wrapped__() is None


def test_each_level_has_what_the_levels_below_it_have() -> None:
    levels = list(library.LEVELS.values())
    assert all(above > below for above, below in pairwise(levels))
    assert library.level() in {*library.LEVELS, "aarch64"}
