"""Compiled kernels as machine code: loaded without the compiler, kept on disk.

``native.offsets.unpack`` is the kernel ``unpack`` of ``glaive.kernels.loops.offsets``: a builtin
function that releases the interpreter lock. On first use it is read from the cache on disk and
linked by llvmlite, which takes about a millisecond, after 40 for the first kernel of a process.
Only where the cache has none is numba imported, the kernel compiled, and its code kept for
later processes.

Code is kept per kernel, processor and source: a file has the hash of all kernels' sources, of the
versions of the compiler and of what the processor can do in its name, and that of its contents
at its head. Processes may race: a file is complete before it gets its name.

Decision and figures: ``docs/adr/0002-kernels.md``.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from glaive.config import settings

if TYPE_CHECKING:  # what the names of this module stand for
    __all__ = ["is_loaded"]

_LOG = logging.getLogger(__name__)

_LOOPS: Final = Path(__file__).parent / "loops"
_DIGEST: Final = 32
_LAYOUT: Final = b"1"
"""Counts up when code of before cannot be called any more."""

_LOCK = RLock()
_METHODS: list[Any] = []
"""Descriptions of builtin functions, which live as long as these."""

_FAST_CALL: Final = 0x80
"""``METH_FASTCALL``: arguments come as an array."""

CALLED_BY_KERNELS: Final = (
    "PyBool_FromLong",
    "PyErr_BadArgument",
    "PyErr_BadInternalCall",
    "PyErr_Occurred",
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyFloat_AsDouble",
    "PyFloat_FromDouble",
    "PyLong_AsLongLong",
    "PyLong_AsUnsignedLongLongMask",
    "PyLong_FromLongLong",
    "PyLong_FromUnsignedLongLong",
    "PyTuple_New",
    "PyTuple_SetItem",
    "Py_IncRef",
)
"""Functions of the interpreter that an entry calls."""


class _MethodDef(ctypes.Structure):
    """``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Kernels:
    """The kernels of one module, each linked on first use."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        with _LOCK:
            kernel = _checked if settings.kernels == "checked" else _linked
            self.__dict__[name] = made = kernel(self._module, name)
        return made


def __getattr__(module: str) -> Any:
    if module.startswith("_") or not (_LOOPS / f"{module}.py").exists():
        raise AttributeError(f"module {__name__!r} has no attribute {module!r}")
    kernels = globals()[module] = _Kernels(module)
    return kernels


def is_loaded() -> bool:
    """Whether kernels of this process are linked already, so that the next one costs little."""
    return bool(_METHODS) or "glaive.kernels.loops.memory" in sys.modules


def _checked(module: str, name: str) -> Any:
    """The kernel in the build that checks every access: see ``loops/build.py``."""
    return getattr(import_module(f"glaive.kernels.loops.{module}"), name)


def _linked(module: str, name: str) -> Any:
    code = _read(module, name)
    if code is None:
        from glaive.kernels.loops.entry import compile_entry

        code = compile_entry(_checked(module, name), symbol(module, name))
        _keep(module, name, code)
    engine, llvm = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(symbol(module, name))
    method = _MethodDef(name.encode(), address, _FAST_CALL, None)
    _METHODS.append(method)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.c_void_p)
    return new(method, None, None)


def symbol(module: str, name: str) -> str:
    """Name of a kernel's entry in its machine code."""
    return f"glaive_{module}_{name}"


@cache
def _engine() -> tuple[Any, Any]:
    """The linker, and the module it is from."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name in CALLED_BY_KERNELS:
        function = getattr(ctypes.pythonapi, name)
        llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    machine = llvm.Target.from_default_triple().create_target_machine(
        codemodel="jitdefault", jit=True
    )
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine), llvm


# ------------------------------------------------------------------- the cache on disk


@cache
def _key() -> str:
    """What machine code depends on: sources, compiler, processor."""
    import llvmlite
    import llvmlite.binding as llvm

    digest = sha256(_LAYOUT)
    for path in sorted(_LOOPS.glob("*.py")):
        digest.update(path.read_bytes())
    for fact in (
        llvmlite.__version__,  # a version of numba needs its own
        llvm.get_process_triple(),
        os.environ.get("NUMBA_CPU_NAME", llvm.get_host_cpu_name()),
        os.environ.get("NUMBA_CPU_FEATURES", llvm.get_host_cpu_features().flatten()),
        f"{ctypes.sizeof(ctypes.c_void_p)} {sys.maxunicode} {sys.abiflags}",
    ):
        digest.update(fact.encode() + b"\0")
    return digest.hexdigest()[:20]


@cache
def _folders() -> tuple[Path, ...]:
    """Where code is kept, in the order in which they are tried."""
    if settings.kernel_cache:
        return (Path(settings.kernel_cache),)
    beside = _LOOPS / "__pycache__"
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # there is no home
        return (beside,)
    return (beside, home / "glaive" / "kernels")


def _file(folder: Path, module: str, name: str) -> Path:
    return folder / f"{module}.{name}-{_key()}.kernel"


def _read(module: str, name: str) -> bytes | None:
    """Code of a kernel; None where there is none to rely on."""
    for folder in _folders():
        path = _file(folder, module, name)
        try:
            with path.open("rb") as file:
                if not _is_ours(os.fstat(file.fileno())):
                    _LOG.warning("%s belongs to others, or they may write to it: not used", path)
                    continue
                content = file.read()
        except OSError:
            continue
        code = content[_DIGEST:]
        if sha256(code).digest() == content[:_DIGEST]:
            return code
        _LOG.warning("%s is damaged: compiled again", path)
    return None


def _is_ours(status: os.stat_result) -> bool:
    """Whether nobody else can have written a file: code is run."""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022


def _keep(module: str, name: str, code: bytes) -> None:
    """Write code for later processes, where that is allowed."""
    content = sha256(code).digest() + code
    for folder in _folders():
        path = _file(folder, module, name)
        unfinished = path.with_name(f"{path.name}.{os.urandom(6).hex()}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(content)
                unfinished.replace(path)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
        except OSError as error:
            _LOG.debug("kernels cannot be kept in %s: %s", folder, error)
        else:
            return
    _LOG.info("compiled kernels cannot be kept: every process compiles them again")
