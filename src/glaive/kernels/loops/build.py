"""How kernels are compiled: arithmetic that wraps, or a build that checks every step.

numba promises the compiler that signed ``+``, ``-`` and ``*`` stay in range. The compiler then
changes checks: ``k = offset - first; if k < 0`` becomes ``if offset < first``, and a ``k`` that
wrapped around passes. Offsets come from files and break this promise. glaive therefore removes the
promise: arithmetic wraps at 64 bits, and a check of a number holds for its later uses.

With ``GLAIVE_KERNELS=checked`` kernels compare every load, store and copy with the buffers whose
addresses were taken for the call. An overflow, a shift beyond the word or a float out of range
stops the kernel; see ``glaive.kernels._addresses``. This build is slow, and for tests.

Rules for kernels: "House rules" in ``CONTRIBUTING.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from llvmlite import ir
from numba import cfunc, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering, NativeLowering

from glaive.kernels import _addresses

_NO_SIGNED_WRAP = "nsw"
_I64 = ir.IntType(64)


class _WrappingBuilder(ir.IRBuilder):  # type: ignore[misc]  # llvmlite ships no types
    """Writes instructions for signed arithmetic that may overflow."""

    def add(self, lhs: Any, rhs: Any, name: str = "", flags: Sequence[str] = ()) -> Any:
        return super().add(lhs, rhs, name, _without_promise(flags))

    def sub(self, lhs: Any, rhs: Any, name: str = "", flags: Sequence[str] = ()) -> Any:
        return super().sub(lhs, rhs, name, _without_promise(flags))

    def mul(self, lhs: Any, rhs: Any, name: str = "", flags: Sequence[str] = ()) -> Any:
        return super().mul(lhs, rhs, name, _without_promise(flags))


def _without_promise(flags: Sequence[str]) -> tuple[str, ...]:
    return tuple(flag for flag in flags if flag != _NO_SIGNED_WRAP)


class _CheckedBuilder(ir.IRBuilder):  # type: ignore[misc]  # same
    """Writes a check and an exit before every instruction that could do harm.

    The builder recognises loads and stores at integer addresses by their pointer, which was made
    from an integer just before. It trusts memory that numba itself manages.
    """

    def __init__(self, block: Any, lower: Any) -> None:
        super().__init__(block)
        self._lower = lower

    def add(self, lhs: Any, rhs: Any, name: str = "", flags: Sequence[str] = ()) -> Any:
        if _NO_SIGNED_WRAP in flags:
            return self._exact(self.sadd_with_overflow(lhs, rhs), "sum")
        return super().add(lhs, rhs, name, flags)

    def sub(self, lhs: Any, rhs: Any, name: str = "", flags: Sequence[str] = ()) -> Any:
        if _NO_SIGNED_WRAP in flags:
            return self._exact(self.ssub_with_overflow(lhs, rhs), "difference")
        return super().sub(lhs, rhs, name, flags)

    def mul(self, lhs: Any, rhs: Any, name: str = "", flags: Sequence[str] = ()) -> Any:
        if _NO_SIGNED_WRAP in flags:
            return self._exact(self.smul_with_overflow(lhs, rhs), "product")
        return super().mul(lhs, rhs, name, flags)

    def neg(self, value: Any, name: str = "") -> Any:
        return self.sub(ir.Constant(value.type, 0), value, name, (_NO_SIGNED_WRAP,))

    def shl(self, lhs: Any, rhs: Any, name: str = "", flags: Sequence[str] = ()) -> Any:
        self._check_shift(rhs)
        return super().shl(lhs, rhs, name, flags)

    def lshr(self, lhs: Any, rhs: Any, name: str = "", flags: Sequence[str] = ()) -> Any:
        self._check_shift(rhs)
        return super().lshr(lhs, rhs, name, flags)

    def ashr(self, lhs: Any, rhs: Any, name: str = "", flags: Sequence[str] = ()) -> Any:
        self._check_shift(rhs)
        return super().ashr(lhs, rhs, name, flags)

    def fptosi(self, value: Any, target: Any, name: str = "") -> Any:
        limit = 2.0 ** (getattr(target, "element", target).width - 1)
        self._check_float(value, -limit, limit)
        return super().fptosi(value, target, name)

    def fptoui(self, value: Any, target: Any, name: str = "") -> Any:
        self._check_float(value, 0.0, 2.0**target.width)
        return super().fptoui(value, target, name)

    def load(self, ptr: Any, *args: Any, **options: Any) -> Any:
        self._check_access(ptr, _size_of(ptr.type.pointee), _addresses.READ)
        return super().load(ptr, *args, **options)

    def store(self, value: Any, ptr: Any, align: Any = None) -> Any:
        self._check_access(ptr, _size_of(value.type), _addresses.WRITE)
        return super().store(value, ptr, align)

    def call(self, fn: Any, args: Any, *more: Any, **options: Any) -> Any:
        if getattr(fn, "name", "").startswith("llvm.memcpy"):
            target, source, size = args[:3]
            self._check_access(target, size, _addresses.WRITE)
            self._check_access(source, size, _addresses.READ)
        return super().call(fn, args, *more, **options)

    def _check_access(self, pointer: Any, size: Any, access: int) -> None:
        while getattr(pointer, "opname", "") == "bitcast":
            (pointer,) = pointer.operands
        if getattr(pointer, "opname", "") != "inttoptr" or size is None:
            return
        (integer,) = pointer.operands
        length = ir.Constant(_I64, size) if isinstance(size, int) else size
        function = ir.FunctionType(_I64, [_I64] * 4).as_pointer()
        check = self.inttoptr(ir.Constant(_I64, _checker().address), function)
        table = ir.Constant(_I64, _addresses.REGIONS.ctypes.data)
        allowed = super().call(check, [table, integer, length, ir.Constant(_I64, access)])
        outside = self.icmp_signed("==", allowed, ir.Constant(_I64, 0))
        verb = "load" if access == _addresses.READ else "store"
        self._stop_if(outside, f"a {verb} outside the buffers of the call")

    def _exact(self, pair: Any, event: str) -> Any:
        self._stop_if(self.extract_value(pair, 1), f"a {event} that overflows")
        return self.extract_value(pair, 0)

    def _check_shift(self, amount: Any) -> None:
        if isinstance(amount.type, ir.VectorType):
            amount = self.extract_element(amount, ir.Constant(ir.IntType(32), 0))
        width = ir.Constant(amount.type, amount.type.width)
        self._stop_if(self.icmp_unsigned(">=", amount, width), "a shift beyond the word")

    def _check_float(self, value: Any, low: float, limit: float) -> None:
        if isinstance(value.type, ir.VectorType):
            for lane in range(value.type.count):
                one = self.extract_element(value, ir.Constant(ir.IntType(32), lane))
                self._check_float(one, low, limit)
            return
        above = self.fcmp_ordered(">=", value, ir.Constant(value.type, low))
        below = self.fcmp_ordered("<", value, ir.Constant(value.type, limit))
        self._stop_if(self.not_(self.and_(above, below)), "a float out of range")

    def _stop_if(self, wrong: Any, event: str) -> None:
        with self.if_then(wrong, likely=False):
            place = self._lower.loc
            where = f"{place.filename}:{place.line}"
            self._lower.call_conv.return_user_exc(
                self, _addresses.UnsafeKernelError, (f"{event}, {where}",)
            )


@cache
def _checker() -> Any:
    """Compile the comparison of one access with the entries of ``_sanitizer.REGIONS``."""
    numbers = types.CPointer(types.int64)
    max_regions = _addresses.MAX_REGIONS
    read = _addresses.READ

    def is_allowed(table: Any, address: int, size: int, access: int) -> int:
        if size == 0:
            return 1
        for back in range(1, min(table[0], max_regions) + 1):
            i = (table[0] - back) % max_regions
            start, stop = table[1 + 3 * i], table[2 + 3 * i]
            within = 0 < size <= stop - start and start <= address <= stop - size
            if within and (access == read or table[3 + 3 * i] != 0):
                return 1
        return 0

    int64 = types.int64
    return cfunc(int64(numbers, int64, int64, int64))(is_allowed)


def _size_of(value_type: Any) -> int | None:
    """Return the bytes of a value in memory."""
    if isinstance(value_type, ir.VectorType):
        lane = _size_of(value_type.element)
        return None if lane is None else lane * value_type.count
    if isinstance(value_type, ir.IntType):
        return int(value_type.width) // 8
    if isinstance(value_type, ir.FloatType):
        return 4
    if isinstance(value_type, ir.DoubleType):
        return 8
    return None


class _WrappingLower(Lower):  # type: ignore[misc]  # numba ships no types
    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        self.builder = _WrappingBuilder(self.entry_block)
        self.call_helper = self.call_conv.init_call_helper(self.builder)


class _CheckedLower(Lower):  # type: ignore[misc]  # same
    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        self.builder = _CheckedBuilder(self.entry_block, self)
        self.call_helper = self.call_conv.init_call_helper(self.builder)


@register_pass(mutates_CFG=True, analysis_only=False)
class _WrappingLowering(BaseNativeLowering):  # type: ignore[misc]  # same
    _name = "glaive_wrapping_lowering"

    @property
    def lowering_class(self) -> Any:
        return _WrappingLower


@register_pass(mutates_CFG=True, analysis_only=False)
class _CheckedLowering(BaseNativeLowering):  # type: ignore[misc]  # same
    _name = "glaive_checked_lowering"

    @property
    def lowering_class(self) -> Any:
        return _CheckedLower


class _Compiler(CompilerBase):  # type: ignore[misc]  # same
    """numba's pipeline with another last step, which writes instructions."""

    lowering: Any

    def define_pipelines(self) -> list[Any]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [
            (self.lowering if step is NativeLowering else step, description)
            for step, description in manager.passes
        ]
        if not any(step is self.lowering for step, _ in manager.passes):
            raise RuntimeError("numba's pipeline has no step NativeLowering to be replaced")
        manager.finalize()
        return [manager]


class WrappingCompiler(_Compiler):
    """Compiles kernels whose signed arithmetic wraps."""

    lowering = _WrappingLowering


class CheckedCompiler(_Compiler):
    """Compiles kernels that stop before they leave the buffers of the call or overflow."""

    lowering = _CheckedLowering
