"""Compile all kernels to shared libraries, one for each level of processors.

``python tools/build_kernels.py`` builds the one for this machine, if its sources changed; so does
an editable installation. Building a wheel, as ``pip install .`` does, builds those for all
processors of this kind. ``GLAIVE_BUILD`` is ``here``, ``all`` (also other kinds) or ``none``
instead. Libraries lie in ``src/glaive/kernels/code``.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parents[1] / "src"
CODE = SOURCES / "glaive" / "kernels" / "code"

PERMUTES = "avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq"
WIDE = "avx512f avx512bw avx512cd avx512dq avx512vl"
PROCESSORS = {
    "x86_64_v4": ("x86-64-v4", ",".join(f"+{name}" for name in f"{WIDE} {PERMUTES}".split())),
    "x86_64_v3": ("x86-64-v3", ""),
    "x86_64_v2": ("x86-64-v2", ""),
    "aarch64": ("generic", ""),
}
"""What LLVM calls the processors of each level, and features that this name does not imply."""

SHARE = 2
"""Processes that share the kernels of a level: the longest kernel takes a sixth of all."""


def _library() -> Any:
    """The module that finds libraries."""
    if str(SOURCES) not in sys.path:
        sys.path.insert(0, str(SOURCES))
    return import_module("glaive.kernels.library")


def file_of(level: str) -> Path:
    """Where the library for a level lies."""
    return CODE / f"{level}-{_library().digest()}.so"


def wanted(*, editable: bool = False) -> list[str]:
    """Levels whose library is to be built, and is not there."""
    asked = os.environ.get("GLAIVE_BUILD") or ("here" if editable else "kind")
    if asked == "none" or platform.system() != "Linux":
        return []
    if asked == "here":
        levels = [level for level in PROCESSORS if level == _library().level()]
    else:
        mine = platform.machine()
        levels = [level for level in PROCESSORS if asked == "all" or level.startswith(mine)]
    return [level for level in levels if not file_of(level).exists()]


def linker(level: str) -> list[str]:
    """The command that links objects for a level; none where one is to be installed."""
    if level.startswith(platform.machine()) and (found := shutil.which("ld")):
        return [found]
    if found := shutil.which("ld.lld"):
        return [found]
    return [sys.executable, "-m", "ziglang", "ld.lld"] if find_spec("ziglang") else []


def packages() -> list[str]:
    """Packages that building needs."""
    levels = wanted()
    found = ["numpy>=2.1", "pyarrow>=24", "numba>=0.62"] if levels else []
    return found if all(map(linker, levels)) else [*found, "ziglang>=0.15"]


def compile_share(level: str, share: int, folder: Path) -> None:
    """Compile some of the kernels to object files; in a process of the level's environment."""
    sys.path.insert(0, str(SOURCES))
    import_module("glaive.kernels.machine").import_numba()
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    entry = import_module("glaive.kernels.loops.entry")
    called = import_module("glaive.kernels.native").called_kernels()
    kernels = [(module, name) for module, names in called.items() for name in names]
    triple = f"{level.partition('_v')[0]}-unknown-linux-gnu"
    for module, name in kernels[share::SHARE]:
        kernel = getattr(import_module(f"glaive.kernels.loops.{module}"), name)
        code = entry.compile_entry(kernel, f"glaive_{module}_{name}", triple)
        (folder / f"{module}.{name}.o").write_bytes(code)


def build(levels: list[str]) -> None:
    """Build the libraries for some levels, and remove those of other sources."""
    if not levels:
        return
    if not all(map(linker, levels)):
        raise RuntimeError("linking needs ld, ld.lld or the package ziglang")
    print(f"Compiling kernels for {', '.join(levels)} (about a minute of one core each) ...")
    with tempfile.TemporaryDirectory() as folder:
        shares = [(level, share) for level in levels for share in range(SHARE)]
        for level in levels:
            Path(folder, level).mkdir()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda one: _run_share(one[0], one[1], Path(folder)), shares))
        CODE.mkdir(exist_ok=True)
        for level in levels:
            made = Path(folder, f"{level}.so")
            objects = map(str, sorted(Path(folder, level).iterdir()))
            options = "-shared", "-s", "-z", "noexecstack", "-z", "relro", "-z", "now"
            command = [*linker(level), *options, "-o", str(made), *objects]
            subprocess.run(command, check=True)
            unfinished = file_of(level).with_suffix(f".{os.getpid()}")
            shutil.copyfile(made, unfinished)
            unfinished.replace(file_of(level))
    digest = _library().digest()
    for path in CODE.glob("*.so"):
        if digest not in path.name:
            path.unlink(missing_ok=True)


def _run_share(level: str, share: int, folder: Path) -> None:
    name, features = PROCESSORS[level]
    settings = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "GLAIVE_KERNELS": "auto"}
    command = [sys.executable, __file__, "--share", level, str(share), str(folder / level)]
    subprocess.run(command, env={**os.environ, **settings}, check=True)


def main() -> int:
    """Build the library for this machine."""
    if sys.argv[1:2] == ["--share"]:
        level, share, folder = sys.argv[2:]
        compile_share(level, int(share), Path(folder))
    elif all(map(linker, levels := wanted(editable=True))):
        build(levels)
    return 0


if __name__ == "__main__":
    sys.exit(main())
