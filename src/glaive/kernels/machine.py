"""Machine code at run time: its processor, and linking it into this process.

This module uses llvmlite alone: importing it takes 30 ms, a tenth of the time for numba.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from sys import intern
from typing import Any, Final

_FAST_CALL: Final = 0x82
"""``METH_FASTCALL | METH_KEYWORDS``: an array of arguments, and the names of the last ones."""

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
    """Make a builtin function from an object file.

    Parameters
    ----------
    code
        Object file made by ``glaive.kernels.loops.entry``.
    symbol, name
        Name of the entry in it, and name of the function.
    """
    engine, llvm = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    entry = engine.get_function_address(symbol)
    if not entry:
        raise RuntimeError(f"the machine code has no entry {symbol}")
    return builtin(name, entry, engine.get_global_value_address(f"{symbol}_names"))


def builtin(name: str, entry: int, names: int) -> Any:
    """Make a builtin function from machine code.

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
    """Return the description of a builtin function, in memory that lasts until the process ends.

    The interpreter reads it until it deletes the function. This may be its last action, after it
    has deleted all modules and everything that could own this memory.
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
    """Return ``PyMem_RawMalloc``, which allocates plain memory."""
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
    return kind(("PyMem_RawMalloc", ctypes.pythonapi))


@cache
def _new_function() -> Any:
    """Return ``PyCFunction_NewEx`` with private types; other callers keep theirs."""
    kind = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.c_void_p
    )
    return kind(("PyCFunction_NewEx", ctypes.pythonapi))


def processor() -> tuple[str, str]:
    """Return name and features of the processor that code is for."""
    import llvmlite.binding as llvm

    name, features = map(os.environ.get, ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"))
    if features is None and name == "generic":
        features = ""
    if features is None:
        try:
            features = llvm.get_host_cpu_features().flatten()
        except RuntimeError:  # LLVM knows only some processors
            features = ""
    return llvm.get_host_cpu_name() if name is None else name, features


@cache
def _engine() -> tuple[Any, Any]:
    """Return the linker, and its module."""
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


# --- The compiler of kernels, isolated from the settings of the working directory -------
#
# With PyYAML, numba reads ``.numba_config.yaml`` in the working directory at its import and at each
# compilation. The settings name files to overwrite, such as ``dump_html``, and the working
# directory may be a stranger's dataset. Environment variables (``NUMBA_…``) have the same settings.

_FILE: Final = ".numba_config.yaml"


def import_numba() -> None:
    """Import numba, and stop it from reading the file.

    A program that imported numba earlier may rely on the file: then numba keeps using it.
    """
    if "numba" in sys.modules:
        return
    exists = os.path.exists

    def exists_elsewhere(path: Any) -> bool:
        return path != _FILE and exists(path)

    # Hide only this relative name: other threads may look for other names.
    os.path.exists = exists_elsewhere
    try:
        from numba.core import config
    finally:
        os.path.exists = exists
    config._config_fname = ""  # noqa: SLF001  # numba reads it before each compilation, too


def uses_settings_file() -> bool:
    """Return whether numba compiles with the file: the program imported it, and the file exists.

    The names of cached code depend on environment variables only.
    """
    from numba.core import config

    return bool(config._config_fname) and os.path.exists(_FILE)  # noqa: SLF001, PTH110  # as numba looks for it
