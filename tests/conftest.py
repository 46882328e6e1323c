"""What all tests share: the hypothesis profiles and the report on cited sentences."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: the first example of a test may compile a kernel.
settings.register_profile("fast", max_examples=25, deadline=None)
settings.register_profile("nightly", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
