"""Machine code of one kernel, with an entry that Python calls directly.

numba compiles the kernel for ``int64`` arguments, unless annotated otherwise. The entry is a
function of the C interface (``METH_FASTCALL | METH_KEYWORDS``) around it. It turns numbers into
machine words, releases the interpreter lock and calls the kernel. Both are one object file, which
runs independently of numba. A text next to the entry has the names of the parameters.

Calls give all arguments by position, or all by keyword in the order of the parameters.
"""

from __future__ import annotations

import re
from inspect import signature
from typing import Any, Final

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core.compiler_lock import global_compiler_lock

from glaive.kernels.machine import CALLED_BY_KERNELS, processor

_I64: Final = ir.IntType(64)
_I32: Final = ir.IntType(32)
_OBJECT: Final = ir.IntType(8).as_pointer()
_NULL: Final = ir.Constant(_OBJECT, None)
_EQUAL: Final = ir.Constant(_I32, 2)
"""``Py_EQ``."""

_TYPES: Final = {
    "int": types.int64,
    "np.uint64": types.uint64,
    "float": types.float64,
    "np.float32": types.float32,
}
"""Machine types of the annotations of kernels."""

_LIBRARY: Final = frozenset({"memcpy", "memmove", "memset"})
"""Functions that the compiler writes calls of."""


def argument_types(kernel: Any) -> tuple[Any, ...]:
    """Return the machine types of the parameters of a kernel, by their annotations."""
    parameters = signature(kernel.py_func).parameters.values()
    return tuple(_TYPES[parameter.annotation] for parameter in parameters)


@global_compiler_lock  # type: ignore[untyped-decorator]  # numba ships no types
def compile_entry(kernel: Any, symbol: str, triple: str = "") -> bytes:
    """Compile a kernel to an object file.

    Parameters
    ----------
    kernel
        As ``@kernel`` makes it.
    symbol
        Name of the entry.
    triple
        System of a shared library that the object becomes a part of; by default the object is
        for this process.

    Raises
    ------
    TypeError
        An annotation lacks a machine type, or the code calls functions that may be missing.
    """
    numbers = argument_types(kernel)
    kernel.compile(numbers)
    compiled = kernel.overloads[numbers]
    entry = ir.Module(symbol)
    _Entry(entry, symbol).write(compiled)
    names = ",".join(signature(kernel.py_func).parameters).encode()
    text = ir.Constant(ir.ArrayType(ir.IntType(8), len(names) + 1), bytearray(names + b"\0"))
    listed = ir.GlobalVariable(entry, text.type, f"{symbol}_names")
    listed.initializer, listed.global_constant = text, True
    machine, code = _machine(triple), compiled.library.get_llvm_str()
    if triple:
        layout = f'target datalayout = "{machine.target_data}"\ntarget triple = "{triple}"\n'
        code = layout + re.sub(r'target (datalayout|triple) = ".*"', "", code)
    linked = llvm.parse_assembly(code)
    linked.link_in(llvm.parse_assembly(str(entry)))
    for name in (*linked.functions, *linked.global_variables):
        if not name.is_declaration and name.name not in (symbol, listed.name):
            name.linkage = "internal"  # so that the linker drops what the entry leaves unused
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = True
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(linked, passes)
    called = {
        function.name
        for function in linked.functions
        if function.is_declaration and not function.name.startswith("llvm.")
    }
    if unknown := called - _LIBRARY - set(CALLED_BY_KERNELS):
        raise TypeError(f"{symbol} calls {sorted(unknown)}: a kernel calls kernels only")
    return bytes(machine.emit_object(linked))


def _machine(triple: str) -> Any:
    name, features = processor()
    if triple:
        target = llvm.Target.from_triple(triple)
        return target.create_target_machine(
            cpu=name, features=features, opt=3, reloc="pic", codemodel="default"
        )
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=name,
        features=features,
        opt=3,
        reloc="static" if target.name.startswith("x86") else "default",
        codemodel="jitdefault",
        jit=True,
    )


class _Entry:
    """Writes the function that Python calls."""

    def __init__(self, module: Any, symbol: str) -> None:
        self._module = module
        kind = ir.FunctionType(_OBJECT, [_OBJECT, _OBJECT.as_pointer(), _I64, _OBJECT])
        self._entry = ir.Function(module, kind, symbol)
        self._builder = ir.IRBuilder(self._entry.append_basic_block("entry"))

    def write(self, compiled: Any) -> None:
        """Check and unpack arguments, release the interpreter lock, call the kernel, and return."""
        context, described, builder = compiled.target_context, compiled.fndesc, self._builder
        result_type, argument_types = described.restype, described.argtypes
        convention = context.call_conv
        kind = convention.get_function_type(result_type, argument_types)
        kernel = ir.Function(self._module, kind, described.llvm_func_name)
        own, given, count, keywords = self._entry.args
        has_names = builder.icmp_unsigned("!=", keywords, _NULL)
        with builder.if_then(has_names):
            names = self._call("PyTuple_GetItem", _OBJECT, own, ir.Constant(_I64, 0))
            same = self._call("PyObject_RichCompareBool", _I32, names, keywords, _EQUAL)
            differs = builder.icmp_signed("!=", same, ir.Constant(_I32, 1))
            with builder.if_then(differs, likely=False):
                self._call("PyErr_BadArgument", _I32)
                builder.ret(_NULL)
        size = ir.Constant(_I64, len(argument_types))
        expected = builder.select(has_names, ir.Constant(_I64, 0), size)
        with builder.if_then(builder.icmp_signed("!=", count, expected), likely=False):
            self._call("PyErr_BadArgument", _I32)
            builder.ret(_NULL)
        words = []
        for at, number in enumerate(argument_types):
            value = builder.load(builder.gep(given, [ir.Constant(_I64, at)]))
            words.append(self._unboxed(value, number))
            # Only this result may mean an error, which must end the call before the next.
            minus_one = ir.Constant(words[-1].type, -1)
            is_minus_one = (
                builder.fcmp_ordered("==", words[-1], minus_one)
                if isinstance(number, types.Float)
                else builder.icmp_signed("==", words[-1], minus_one)
            )
            with builder.if_then(is_minus_one, likely=False):
                error = self._call("PyErr_Occurred", _OBJECT)
                with builder.if_then(builder.icmp_unsigned("!=", error, _NULL), likely=False):
                    builder.ret(_NULL)
        thread = self._call("PyEval_SaveThread", _OBJECT)
        status, result = convention.call_function(
            builder, kernel, result_type, argument_types, words
        )
        self._call("PyEval_RestoreThread", ir.VoidType(), thread)
        with builder.if_then(status.is_error, likely=False):
            self._call("PyErr_BadInternalCall", ir.VoidType())
            builder.ret(_NULL)
        if isinstance(result_type, types.NoneType):
            none = self._call("PyTuple_GetItem", _OBJECT, own, ir.Constant(_I64, 1))
            self._call("Py_IncRef", ir.VoidType(), none)
            builder.ret(none)
        else:
            builder.ret(self._boxed(result, result_type))

    def _call(self, name: str, result: Any, *arguments: Any) -> Any:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = self._module.globals.get(name) or ir.Function(self._module, kind, name)
        return self._builder.call(function, arguments)

    def _unboxed(self, value: Any, kind: Any) -> Any:
        """Convert an argument to a machine word; an error stays with the interpreter."""
        if isinstance(kind, types.Float):
            wide = self._call("PyFloat_AsDouble", ir.DoubleType(), value)
            return self._builder.fptrunc(wide, ir.FloatType()) if kind.bitwidth == 32 else wide
        convert = "PyLong_AsLongLong" if kind.signed else "PyLong_AsUnsignedLongLongMask"
        return self._call(convert, _I64, value)

    def _boxed(self, word: Any, kind: Any) -> Any:
        """Convert a result to an object."""
        builder = self._builder
        if isinstance(kind, types.BaseTuple):
            items = self._call("PyTuple_New", _OBJECT, ir.Constant(_I64, len(kind)))
            for at, item in enumerate(kind):
                boxed = self._boxed(builder.extract_value(word, at), item)
                self._call("PyTuple_SetItem", _I32, items, ir.Constant(_I64, at), boxed)
            return items
        if isinstance(kind, types.Boolean):
            return self._call("PyBool_FromLong", _OBJECT, builder.zext(word, _I64))
        if isinstance(kind, types.Float):
            wide = word if kind.bitwidth == 64 else builder.fpext(word, ir.DoubleType())
            return self._call("PyFloat_FromDouble", _OBJECT, wide)
        if kind.signed:
            wide = word if kind.bitwidth == 64 else builder.sext(word, _I64)
            return self._call("PyLong_FromLongLong", _OBJECT, wide)
        wide = word if kind.bitwidth == 64 else builder.zext(word, _I64)
        return self._call("PyLong_FromUnsignedLongLong", _OBJECT, wide)
