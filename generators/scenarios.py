"""The aliasing scenarios: situations that are drawn on purpose, one table per layer.

The modules of the tables have the functions that play the scenarios.
"""

from __future__ import annotations

from aliasproof.generators.scenario_steps import Scenario
from aliasproof.generators.scenarios_of_inductor import CODE_SCENARIOS, GRAPH_PASS_SCENARIOS
from aliasproof.generators.scenarios_of_memory import (
    CUSTOM_SCENARIOS,
    PLANNING_SCENARIOS,
    REINPLACING_SCENARIOS,
)
from aliasproof.generators.scenarios_of_views import INPUT_SCENARIOS, VIEW_SCENARIOS

SCENARIOS: tuple[Scenario, ...] = (
    # These change how inputs are drawn: `aliasproof.generators.inputs`.
    Scenario(
        "shared inputs",
        "f(x[0:2], x[1:3])",
        "synthetic-base-views, renumbered-input, missing-overlap-guard",
        play=None,
    ),
    Scenario(
        "reinterpreted storage",
        "f(x, x.view(int32))",
        "merged-dtypes, copy-of-odd-storage",
        play=None,
    ),
    *VIEW_SCENARIOS,
    *INPUT_SCENARIOS,
    *REINPLACING_SCENARIOS,
    *GRAPH_PASS_SCENARIOS,
    *CODE_SCENARIOS,
    *CUSTOM_SCENARIOS,
    *PLANNING_SCENARIOS,
)
