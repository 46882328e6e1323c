"""A random walk over all operations, by both libraries in turns, against a plain model."""

from __future__ import annotations

import os
from itertools import product
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.kit.machine import DatasetMachine

import glaive

os.environ.setdefault("LANCE_LOG", "error")
lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")
pytestmark = pytest.mark.interop

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE", "fast") != "fast"
EXAMPLES = int(os.environ.get("WALK_EXAMPLES", "150" if NIGHTLY else "3"))
STEPS = 25 if NIGHTLY else 12
# Shrinking a walk repeats it dozens of times: only where there is a night for it.
PHASES = list(Phase) if NIGHTLY else [Phase.explicit, Phase.reuse, Phase.generate]

KINDS = list(product(["legacy", "2.0", "2.1", "2.2", "2.3"], [False, True], [False, True]))


@pytest.mark.sampled(every=20)
@pytest.mark.parametrize(
    ("version", "stable", "v2_names"),
    KINDS,
    ids=[
        f"{version}-{'ids' if s else 'addresses'}-{'V2' if v else 'V1'}" for version, s, v in KINDS
    ],
)
def test_both_in_turns_do_what_a_plain_table_does(
    version: str, *, stable: bool, v2_names: bool
) -> None:
    class Walk(DatasetMachine):
        libraries = (glaive, lance)
        reference = lance
        indexer = lance
        options: ClassVar[dict[str, Any]] = {
            "data_storage_version": version,
            "enable_stable_row_ids": stable,
            "enable_v2_manifest_paths": v2_names,
        }

    run_state_machine_as_test(
        Walk,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            phases=PHASES,
            suppress_health_check=list(HealthCheck),
        ),
    )
