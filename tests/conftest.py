"""Hypothesis profiles, chosen by name: what Hypothesis does by default depends on where it runs.

`dev` on a developer's machine, `ci` where the variable CI is set, `nightly` for `make nightly`; the
variable HYPOTHESIS_PROFILE names another.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A program is drawn on live tensors, which takes as long as a busy machine makes it take.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("dev", UNTIMED, max_examples=100)
settings.register_profile(
    "ci", UNTIMED, max_examples=100, derandomize=True, database=None, print_blob=True
)
settings.register_profile("nightly", UNTIMED, max_examples=5_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))
