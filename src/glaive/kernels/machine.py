"""Machine code at run time: the processor that it is for, and linking it into this process.

llvmlite alone does it: importing that takes 30 ms, a tenth of what numba takes.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from sys import intern
from typing import Any, Final

_FAST_CALL: Final = 0x82
"""``METH_FASTCALL | METH_KEYWORDS``: arguments come as an array, then the names of the last."""

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
    "PyObject_RichCompareBool",
    "PyTuple_GetItem",
    "PyTuple_New",
    "PyTuple_SetItem",
    "Py_IncRef",
)
"""Functions of the interpreter that an entry calls."""


class _MethodDef(ctypes.Structure):
    """``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_void_p),
    )


def link(code: bytes, symbol: str, name: str) -> Any:
    """Make a builtin function of an object file.

    Parameters
    ----------
    code
        As ``glaive.kernels.loops.entry`` makes it.
    symbol, name
        Name of the entry in it, and of the function.
    """
    engine, llvm = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    entry = engine.get_function_address(symbol)
    if not entry:
        raise RuntimeError(f"the machine code has no entry {symbol}")
    return builtin(name, entry, engine.get_global_value_address(f"{symbol}_names"))


def builtin(name: str, entry: int, names: int) -> Any:
    """Make a builtin function of machine code.

    Parameters
    ----------
    name
        Name of the function.
    entry, names
        Addresses of its entry, and of the names of its parameters.
    """
    own = tuple(map(intern, ctypes.string_at(names).decode().split(","))), None
    return _new_function()(_method(name.encode(), entry), own, None)


def _method(name: bytes, address: int) -> _MethodDef:
    """The description of a builtin function, in memory that is never given back.

    The interpreter reads it until the function is deleted, which may be the last that it does:
    after all modules, and with them everything that could own this memory, are deleted.
    """
    size = ctypes.sizeof(_MethodDef)
    place = _allocate()(size + len(name) + 1)
    if place is None:
        raise MemoryError(f"{size + len(name) + 1} bytes for the kernel {name.decode()}")
    ctypes.memmove(place + size, name + b"\0", len(name) + 1)
    method = _MethodDef.from_address(place)
    method.name, method.function = place + size, address
    method.flags, method.doc = _FAST_CALL, None
    return method


@cache
def _allocate() -> Any:
    """``PyMem_RawMalloc``: memory of no object."""
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
    return kind(("PyMem_RawMalloc", ctypes.pythonapi))


@cache
def _new_function() -> Any:
    """``PyCFunction_NewEx``, with types that nobody else's use of it sees."""
    kind = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.c_void_p
    )
    return kind(("PyCFunction_NewEx", ctypes.pythonapi))


def processor() -> tuple[str, str]:
    """Name and features of the processor that code is for."""
    import llvmlite.binding as llvm

    name, features = map(os.environ.get, ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"))
    if features is None and name == "generic":
        features = ""
    if features is None:
        try:
            features = llvm.get_host_cpu_features().flatten()
        except RuntimeError:  # LLVM cannot list those of some processors
            features = ""
    return llvm.get_host_cpu_name() if name is None else name, features


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


# --- The compiler of kernels, imported without the settings of the working directory ----
# numba reads the file ``.numba_config.yaml`` there whenever it is imported and whenever it
# compiles,
# where PyYAML is installed. Its settings name files that are written over, such as ``dump_html``;
# and
# the working directory may be that of a stranger's dataset. Variables of the environment
# (``NUMBA_…``) have the same settings.

_FILE: Final = ".numba_config.yaml"


def import_numba() -> None:
    """Import numba, which then never reads the file.

    In a program that imported it before, it did so for that program: nothing is changed there.
    """
    if "numba" in sys.modules:
        return
    exists = os.path.exists

    def exists_elsewhere(path: Any) -> bool:
        return path != _FILE and exists(path)

    # Looked for by its relative name, so that a thread which asks for another one sees no change.
    os.path.exists = exists_elsewhere
    try:
        from numba.core import config
    finally:
        os.path.exists = exists
    config._config_fname = ""  # noqa: SLF001  # it is looked for before each compilation, too


def has_settings_of_a_file() -> bool:
    """Whether numba compiles by the file: in a program that imported it, and has such a file here.

    The names of kept code have the variables of the environment, and nothing of the file.
    """
    from numba.core import config

    return bool(config._config_fname) and os.path.exists(_FILE)  # noqa: SLF001, PTH110  # as numba looks for it
