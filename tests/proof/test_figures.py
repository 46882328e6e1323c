"""The page of figures has what runs measured, and says what none has."""

from __future__ import annotations

from pathlib import Path

from tests.proof.coverage_targets import TARGETS
from tests.proof.figures import PAGE, of_fuzzing, of_tests, page, written


def test_the_page_is_that_of_the_figures_that_were_taken() -> None:
    assert PAGE.read_text("utf-8") == written(list(TARGETS)), "make figures writes it"


def test_what_no_run_has_measured_is_said_to_be_missing() -> None:
    runs = {
        "simulation": {
            "measured": "2026-11-21",
            "schedules": 1_000_000,
            "requests": 70_000_000,
            "versions": 3_000_000,
            "found": [],
        },
        "points": {"measured": "2026-11-21", "crash points": 120},
    }
    fuzzed = {"measured": "2026-11-20", "executions": 7000, "edges": 900, "seconds": 60}
    text = page(runs, {"manifest": fuzzed, "filter": {}})
    assert "1,000,000 orders, with 70,000,000 requests and 3,000,000 versions; 0 findings" in text
    assert "| moments at which tests kill a process | 120 | 2026-11-21 |" in text
    assert "| simulated power failures | not measured | – |" in text
    assert "| mixed work without a pause | not measured | – |" in text
    assert "| manifest | 7,000 | 900 | 60 | 2026-11-20 |" in text
    assert "| filter | not measured | – | – | – |" in text
    found = page({"simulation": {**runs["simulation"], "found": ["seed 3"]}}, {})
    assert "; 1 finding |" in found


def test_tests_and_the_points_that_they_record_are_counted(tmp_path: Path) -> None:
    report = tmp_path / "tests.xml"
    report.write_text(
        """<testsuites><testsuite tests="6" failures="1" errors="0" skipped="2">
        <testcase><properties><property name="crash points" value="12"/></properties></testcase>
        <testcase><properties><property name="crash points" value="5"/>
          <property name="mean_in_flight" value="20.5"/></properties></testcase>
        </testsuite></testsuites>""",
        "utf-8",
    )
    counts, points = of_tests(report)
    assert counts == {"tests": 4, "passed": 3, "left_out": 2}
    assert points == {"crash points": 17}


def test_a_run_of_the_fuzzer_that_did_not_end_has_no_figures() -> None:
    log = "#8\tNEW    cov: 242 ft: 699 corp: 79\n#9\tDONE   cov: 250 ft: 701 corp: 79\n"
    assert of_fuzzing(log) == {}
    ended = log + "Done 3500 runs in 6 second(s)\n"
    assert of_fuzzing(ended) == {"executions": 3500, "seconds": 6, "edges": 250}
