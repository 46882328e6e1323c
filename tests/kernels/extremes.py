"""Run every kernel with extreme numbers in a build that checks each access to memory.

``GLAIVE_KERNELS=checked python -m tests.kernels.extremes`` records calls of the kernels' public
functions while their tests run, then repeats each with single numbers replaced: in every array
and buffer, at every place or many, by 0, 1, powers of two and sizes, one more and one less. A
call may give a result or one of our errors. What it may not do is load or store outside its
buffers, overflow, or shift by more than the word: ``UnsafeKernelError``.

Prints a report as JSON. Exit status 1: something was unsafe.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import faulthandler
import functools
import inspect
import json
import os
import random
import resource
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from glaive import kernels
from glaive.errors import GlaiveError
from glaive.kernels import _addresses, loops

MEMORY = 5 << 30
LARGEST_CALL = 160 << 10
"""Bytes of the arguments of a call that is worth repeating many times."""

HANGS_AFTER = 60
"""Seconds without a result after which the process ends with a traceback."""

EXPECTED = (GlaiveError, IndexError, MemoryError, pa.ArrowMemoryError)

Arguments = dict[str, Any]


class Recorder:
    """Keeps copies of the arguments of calls, a few of every signature for each function."""

    def __init__(self, per_function: int) -> None:
        self.calls: dict[str, dict[Any, Arguments]] = defaultdict(dict)
        self._per_function = per_function

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Put recording functions in the place of the kernels' public ones.

        Modules that are imported meanwhile find them where the functions come from; those
        imported before hold the functions by name, as kernels do that call each other.
        """
        recording = {
            function: self._recorded(f"{module.__name__}.{function.__name__}", function)
            for module in kernel_modules()
            for function in public_functions(module)
        }
        replace_globals(recording)
        try:
            yield
        finally:
            replace_globals({ours: function for function, ours in recording.items()})

    def _recorded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, for each call of which :meth:`_keep` is called first."""
        parameters = inspect.signature(function)

        @functools.wraps(function)
        def recorded(*given: Any, **named: Any) -> Any:
            if len(self.calls[name]) < self._per_function:
                bound = parameters.bind(*given, **named)
                bound.apply_defaults()
                self._keep(name, bound.arguments)
            return function(*given, **named)

        return recorded

    def _keep(self, name: str, arguments: Arguments) -> None:
        kept = self.calls[name]
        call_signature = tuple(signature(value) for value in arguments.values())
        if call_signature in kept:
            return
        if sum(size_of(leaf) for _, leaf in leaves(arguments)) <= LARGEST_CALL:
            kept[call_signature] = {key: copied(value) for key, value in arguments.items()}


def public_functions(module: Any) -> Iterator[Callable[..., Any]]:
    """What a module of kernels offers."""
    for name, function in list(vars(module).items()):
        if (
            not name.startswith("_")
            and inspect.isfunction(function)
            and function.__module__ == module.__name__
        ):
            yield function


def replace_globals(replacements: dict[Callable[..., Any], Callable[..., Any]]) -> None:
    """Give the names of all modules of glaive that stand for a function to another one."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "glaive":
            for name, value in list(vars(module).items()):
                if inspect.isfunction(value) and value in replacements:
                    setattr(module, name, replacements[value])


def kernel_modules() -> list[Any]:
    names = [module.name for module in iter_modules(kernels.__path__)]
    public = [name for name in names if name != "loops" and not name.startswith("_")]
    return [import_module(f"glaive.kernels.{name}") for name in public]


def signature(value: Any) -> Any:
    """Calls with equal signatures take the same branches more often than not."""
    if isinstance(value, pa.Buffer):
        return "buffer", value.size.bit_length()
    if isinstance(value, np.ndarray):
        return str(value.dtype), len(value).bit_length()
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if value <= 64 else value.bit_length()
    if isinstance(value, (list, tuple)):
        return tuple(signature(item) for item in value[:4])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(signature(getattr(value, f.name)) for f in dataclasses.fields(value))
    return type(value).__name__


def copied(value: Any) -> Any:
    """The same with memory of its own, so that one call cannot change the next."""
    if isinstance(value, pa.Buffer):
        if not is_mutable(value):
            return pa.py_buffer(value.to_pybytes())
        copy = pa.allocate_buffer(value.size)
        np.frombuffer(copy, np.uint8)[:] = np.frombuffer(value, np.uint8)
        return copy
    if isinstance(value, np.ndarray):
        copy_of = value.copy()
        copy_of.flags.writeable = value.flags.writeable
        return copy_of
    return rebuilt(value, copied)


def is_mutable(buffer: pa.Buffer) -> bool:
    return buffer.is_mutable or (buffer.parent is not None and is_mutable(buffer.parent))


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """A container with ``change`` applied to what it holds; everything else as it is."""
    if isinstance(value, tuple):
        items = [change(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [change(item) for item in value]
    if isinstance(value, dict):
        return {key: change(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f for f in dataclasses.fields(value) if f.init]
        return dataclasses.replace(
            value, **{f.name: change(getattr(value, f.name)) for f in fields}
        )
    return value


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every array and buffer of an argument list, and the way to it."""
    if isinstance(value, (pa.Buffer, np.ndarray)):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, number))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), (*path, field.name))


def size_of(leaf: pa.Buffer | np.ndarray) -> int:
    return leaf.size if isinstance(leaf, pa.Buffer) else leaf.nbytes


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The argument list with the leaf at ``path`` replaced."""
    if not path:
        return new
    key, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {k: replaced(v, rest, new) if k == key else v for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [replaced(v, rest, new) if k == key else v for k, v in enumerate(value)]
        if isinstance(value, list):
            return items
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return dataclasses.replace(value, **{key: replaced(getattr(value, key), rest, new)})


def extremes(width: int, size: int, *, all_of_them: bool) -> list[int]:
    """Numbers of ``width`` bytes that break what was not thought of."""
    top = 1 << (8 * width)
    numbers = [0, 1, -1, size - 1, size, size + 1]
    numbers += [top >> 1, (top >> 1) - 1, 1 << 31, (1 << 31) - 1, 1 << 63, (1 << 63) - 1]
    if all_of_them:
        powers = [sign * (1 << bits) for bits in (7, 15, 31, 32, 62, 63) for sign in (1, -1)]
        numbers += [power + step for power in powers for step in (-1, 0, 1)] + [2, -2, -size]
    return sorted({number % top for number in numbers})


def positions(size: int, width: int, most: int, choose: random.Random) -> list[int]:
    """Positions of numbers of ``width`` bytes: all of them, or the first, the last and some."""
    every = range(0, size - width + 1, width)
    if len(every) <= most:
        return list(every)
    third = most // 3
    some = [choose.randrange(size - width + 1) for _ in range(most - 2 * third)]
    return [*every[:third], *every[-third:], *some]


def variants(
    arguments: Arguments, trials: int, choose: random.Random
) -> Iterator[tuple[str, Arguments]]:
    """Argument lists with one number replaced, and some with two."""
    targets = [(path, leaf) for path, leaf in leaves(arguments) if size_of(leaf)]
    options: list[tuple[tuple[Any, ...], Any, int, int]] = []
    for path, leaf in targets:
        widths = (1, 2, 4, 8) if isinstance(leaf, pa.Buffer) else (leaf.dtype.itemsize,)
        for width in widths:
            if width <= 8:
                most = max(trials // (len(targets) * len(widths)), 3)
                options += [
                    (path, leaf, width, at) for at in positions(size_of(leaf), width, most, choose)
                ]
    choose.shuffle(options)
    for turn in range(trials if options else 0):
        chosen = [options[turn % len(options)]]
        if turn % 4 == 3:
            chosen.append(choose.choice(options))
        changed, said = arguments, []
        for path, _, width, at in chosen:
            leaf = leaf_at(changed, path)
            size = choose.choice([size_of(leaf), at])
            number = choose.choice(extremes(width, size, all_of_them=turn % 3 == 2))
            # A structure that checks what it is made of refuses some numbers by itself.
            with contextlib.suppress(ValueError):
                changed = replaced(changed, path, with_number(leaf, width, at, number))
            said.append(f"{'.'.join(map(str, path))}[{at}:{at + width}] = {number:#x}")
        yield "; ".join(said), copied(changed)


def leaf_at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key] if isinstance(value, (dict, list, tuple)) else getattr(value, key)
    return value


def with_number(leaf: Any, width: int, at: int, number: int) -> Any:
    """A copy of an array or a buffer with ``width`` bytes replaced."""
    copy = copied(leaf)
    writable = copy if isinstance(leaf, np.ndarray) else as_mutable(copy)
    flat = np.frombuffer(writable, np.uint8) if isinstance(leaf, pa.Buffer) else bytes_of(writable)
    flat[at : at + width] = np.frombuffer(number.to_bytes(width, "little"), np.uint8)
    if isinstance(leaf, np.ndarray):
        writable.flags.writeable = leaf.flags.writeable
        return writable
    return writable if is_mutable(leaf) else pa.py_buffer(bytes(flat))


def bytes_of(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = True
    return array.reshape(-1).view(np.uint8)


def as_mutable(buffer: pa.Buffer) -> pa.Buffer:
    return copied(pa.py_buffer(bytearray(buffer.to_pybytes())))


def record(recorder: Recorder) -> None:
    """Run the kernels' own tests and a round of files under the recorder."""
    folder = Path(__file__).parent
    files = sorted(str(path) for path in folder.glob("test_*.py"))
    skipped = ("test_warmup.py", "test_extreme_numbers.py", "test_tiers.py")
    files = [file for file in files if not file.endswith(skipped)]
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--no-summary"]
    with recorder.recording(), contextlib.redirect_stdout(sys.stderr):
        pytest.main([*quiet, *files])


def replay(recorder: Recorder, trials: int, seed: int, only: str) -> dict[str, Any]:
    """Call everything again with extreme numbers; what happened, by kind and function.

    Each function has a child process: one that crashes or hangs does not hide the others.
    """
    outcomes: Counter[str] = Counter()
    unsafe: dict[str, str] = {}
    foreign: dict[str, str] = {}
    for name, kept in sorted(recorder.calls.items()):
        if only not in name:
            continue
        findings = in_child(functools.partial(replay_function, name, kept, trials, seed))
        if findings is None:
            unsafe[f"{name}: the process ended or hung"] = "see the traceback"
            continue
        outcomes.update(findings["outcomes"])
        unsafe.update(findings["unsafe"])
        foreign.update(findings["foreign"])
    calls = {name: len(kept) for name, kept in sorted(recorder.calls.items())}
    return {
        "outcomes": outcomes,
        "unsafe": unsafe,
        "foreign": foreign,
        "calls": calls,
        "idle": idle_kernels(),
    }


def idle_kernels() -> list[str]:
    """Compiled kernels that no recorded call reached."""
    idle = []
    for module in iter_modules(loops.__path__):
        contents = import_module(f"{loops.__name__}.{module.name}")
        for name, function in vars(contents).items():
            if name.startswith("_") or getattr(function, "__module__", "") != contents.__name__:
                continue
            if hasattr(function, "signatures") and not function.signatures:
                idle.append(f"{module.name}.{name}")
    return idle


def in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """The result of ``work`` in a forked process; None if that did not end by itself."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        status = 1
        try:
            with os.fdopen(write_end, "w") as pipe:
                json.dump(work(), pipe)
            status = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if status == 0 else None


def replay_function(
    name: str, kept: dict[Any, Arguments], trials: int, seed: int
) -> dict[str, Any]:
    module, _, short = name.rpartition(".")
    function = getattr(import_module(module), short)
    choose = random.Random(f"{seed} {name}")
    outcomes: Counter[str] = Counter()
    unsafe: dict[str, str] = {}
    foreign: dict[str, str] = {}
    for arguments in kept.values():
        for said, changed in variants(arguments, trials, choose):
            faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
            _addresses.forget()
            try:
                function(**changed)
                outcomes["result"] += 1
            except _addresses.UnsafeKernelError as error:
                outcomes["unsafe"] += 1
                unsafe.setdefault(f"{name}: {error}", said)
            except EXPECTED as error:
                outcomes[type(error).__name__] += 1
            except Exception as error:
                outcomes["foreign"] += 1
                place = traceback.extract_tb(error.__traceback__)[-1]
                line = f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}"
                foreign.setdefault(f"{name}: {line}", f"{error}: {said}")
    return {"outcomes": outcomes, "unsafe": unsafe, "foreign": foreign}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=40, help="variants of each recorded call")
    parser.add_argument("--calls", type=int, default=12, help="recorded calls of each function")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="functions whose name contains this")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    faulthandler.enable()
    recorder = Recorder(options.calls)
    record(recorder)
    report = replay(recorder, options.trials, options.seed, options.only)
    print(json.dumps(report, indent=1))
    return 1 if report["unsafe"] else 0


if __name__ == "__main__":
    sys.exit(main())
