"""Which tests run a line, as ``make coverage`` found it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from coverage import CoverageData
from tests.proof.mutants.sites import Mutant

LOOPS = "kernels/loops/"
_MOST = 160
_MOST_OF_A_FILE = 40


class CoveringTests:
    """The tests that run lines of the library.

    Parameters
    ----------
    paths
        Files of coverage, with tests as contexts.
    root
        The folder of the package as it was then.
    """

    def __init__(self, paths: Sequence[Path], root: Path) -> None:
        self.data, self.root = CoverageData(no_disk=True), root
        for path in paths:
            found = CoverageData(str(path))
            found.read()
            self.data.update(found)

    def folders(self) -> set[str]:
        """The folders of tests there is something known of; files beside them by their names."""
        tests = {context.partition("::")[0] for context in self.data.measured_contexts()}
        return {Path(test).parts[1] for test in tests if test.startswith("tests/")}

    def of(self, mutant: Mutant) -> list[str]:
        """Ids of the tests that run what a mutant changes, those nearest to it first.

        Compiled kernels are seen by nobody: of them, those that run a call of their module.
        """
        if mutant.path.startswith(LOOPS):
            found = {test for path in self._callers(mutant.path) for test in self._calling(path)}
        else:
            found = self._running(mutant.path, self._lines(mutant))
        by_file: dict[str, list[str]] = {}
        for test in sorted(found):
            by_file.setdefault(test.split("::", maxsplit=1)[0], []).append(test)
        chosen: list[str] = []
        for path in sorted(by_file, key=lambda one: (_distance(mutant.path, one), one)):
            tests = by_file[path]
            chosen += tests[:: -(-len(tests) // _MOST_OF_A_FILE)]
        return chosen[:_MOST]

    def _lines(self, mutant: Mutant) -> set[int]:
        """The line of a mutant; for a default, which no test runs, those of the function."""
        for node in ast.walk(ast.parse((self.root / mutant.path).read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.lineno <= mutant.line:
                first = node.body[0].lineno
                if mutant.line < first:
                    return set(range(first, (node.end_lineno or first) + 1))
        return {mutant.line}

    @cache  # noqa: B019  # there is one of these in a process
    def _contexts(self, path: str) -> dict[int, list[str]]:
        return self.data.contexts_by_lineno(str(self.root / path))

    def _running(self, path: str, lines: set[int]) -> set[str]:
        contexts = self._contexts(path)
        return {
            context.partition("|")[0]
            for line in lines
            for context in contexts.get(line, ())
            if "::" in context
        }

    def _calling(self, path: str) -> set[str]:
        """Tests that run a line of a module that calls a kernel."""
        source = (self.root / path).read_text("utf-8")
        lines = {
            node.lineno
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id.startswith("compiled")
        }
        return self._running(path, lines)

    def _callers(self, loops: str) -> list[str]:
        """The modules with calls of the kernels of a module, or of those that use it."""
        modules = {Path(loops).stem}
        users = {path.stem: _imported(path) for path in (self.root / LOOPS).glob("*.py")}
        while more := {name for name, used in users.items() if used & modules} - modules:
            modules |= more
        return [
            path.relative_to(self.root).as_posix()
            for path in sorted((self.root / "kernels").glob("*.py"))
            if _imported(path) & modules
        ]


@cache
def _imported(path: Path) -> frozenset[str]:
    """Modules of kernels that a module imports names from, or calls."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        if node.module.startswith("glaive.kernels.loops."):
            found.add(node.module.rpartition(".")[2])
        elif node.module == "glaive.kernels.native":
            found |= {alias.name for alias in node.names}
    return frozenset(found)


def _distance(path: str, test: str) -> int:
    """How far a file of tests is from a module, by their names."""
    module, folder = Path(path), Path(path).parts[0]
    words = module.stem.strip("_").removesuffix("_reference")
    if words in Path(test).stem:
        return 0
    return 1 if test.startswith(f"tests/{folder}/") else 2
