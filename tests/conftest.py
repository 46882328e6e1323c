"""What all tests share: the hypothesis profiles, and a line on test files that were left out."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import settings

# No deadline: the first example of a test may compile a kernel.
settings.register_profile("fast", max_examples=25, deadline=None)
settings.register_profile("nightly", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many files were skipped as a whole, by reason: ``-ra`` folds each into one skip."""
    reasons = {  # several workers report the same file
        report.nodeid: report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report, pytest.CollectReport) and isinstance(report.longrepr, tuple)
    }
    for reason, count in Counter(reasons.values()).most_common():
        files = "1 test file was" if count == 1 else f"{count} test files were"
        terminalreporter.write_line(f"{files} left out as a whole: {reason}", yellow=True)
