"""The aliasing scenarios: a table of what is drawn on purpose, and for which layer.

There is one table per layer, with the functions that play its scenarios.
"""

from __future__ import annotations

from aliasproof.generators.scenario_steps import (
    AOT_AUTOGRAD,
    DYNAMO,
    GRAPH_PASSES,
    REINPLACING,
    Scenario,
    ScenarioTable,
    any_view,
    combine,
    fresh,
    has_rows,
    like,
    overwrite,
    same_view,
    some,
    some_input,
    write_somewhere,
)
from aliasproof.generators.scenarios_of_custom_operators import CUSTOM_SCENARIOS
from aliasproof.generators.scenarios_of_generated_code import CODE_SCENARIOS
from aliasproof.generators.scenarios_of_graph_passes import GRAPH_PASS_SCENARIOS
from aliasproof.generators.scenarios_of_planning import PLANNING_SCENARIOS
from aliasproof.generators.scenarios_of_reinplacing import REINPLACING_SCENARIOS
from aliasproof.generators.scenarios_of_views import VIEW_SCENARIOS
from aliasproof.generators.scene import Pick, Scene
from aliasproof.ir.program import Ref

# --- scenarios of inputs --------------------------------------------------------------------------
# Scenarios of AOTAutograd and Dynamo: what is written and returned of the inputs.
#
# Each function adds a few instructions to a scene, or raises `NoChoice`.


INPUT_SCENARIOS = ScenarioTable()


@INPUT_SCENARIOS.add("t = y + 1; x.copy_(t); use(t)", (AOT_AUTOGRAD, REINPLACING), "the epilogue")
def copy_into_input(pick: Pick, scene: Scene) -> None:
    """Compute something and copy it into an input, as an epilogue does.

    Later instructions may still use the value itself.
    """
    target = some_input(pick, scene)
    value = fresh(pick, scene, some(pick, scene, like(scene.values[target])))
    scene.call("aten.copy_.default", Ref(target), Ref(value), named=pick.chance(30))


@INPUT_SCENARIOS.add(
    "t = x.clone(); x.add_(1); x.copy_(z); y.copy_(t)",
    (GRAPH_PASSES, REINPLACING),
    "copy-of-written-input",
)
def copies_beside_a_clone(pick: Pick, scene: Scene) -> None:
    """A clone of an input, the input written several times, and the clone read in between."""
    name = some_input(pick, scene)
    saved = scene.call("aten.clone.default", Ref(name))[0]
    for _ in range(pick.integer(1, 3)):
        if pick.chance(50):
            overwrite(pick, scene, name)
        else:
            source = fresh(pick, scene, some(pick, scene, like(scene.values[name])))
            scene.call("aten.copy_.default", Ref(name), Ref(source))
    others = [view.name for view in scene.inputs if view.name != name]
    fitting = [other for other in others if like(scene.values[name])(scene.values[other])]
    if fitting and pick.chance(60):
        scene.call("aten.copy_.default", Ref(pick.one(fitting)), Ref(saved))
    scene.wants(saved)


@INPUT_SCENARIOS.add(
    "x.add_(1); y.mul_(2); return y[:1], x",
    (AOT_AUTOGRAD, DYNAMO),
    "renumbered-input, tangents-of-merged-inputs, write-to-float64-number",
)
def several_inputs_written(pick: Pick, scene: Scene) -> None:
    """All inputs are written, and some are returned, themselves or as views."""
    names = [view.name for view in scene.inputs]
    for name in names if pick.chance(60) else names[:1]:
        write_somewhere(pick, scene, name)
    returned = pick.one(names)
    if pick.chance(50):
        returned = any_view(pick, scene, returned)
    scene.wants(returned, pick.one(names))


@INPUT_SCENARIOS.add(
    "x.add_(1); a, b = x.split(1); return a, b", (AOT_AUTOGRAD,), "multi-output-view-of-written"
)
def parts_of_written(pick: Pick, scene: Scene) -> None:
    """The parts of an input that is written before or after it is split."""
    name = some_input(pick, scene, has_rows)
    early = pick.chance(50)
    if early:
        write_somewhere(pick, scene, name)
    rows = scene.values[name].shape[0]
    splits = [("aten.chunk.default", (2,)), ("aten.split.Tensor", ((rows + 1) // 2,))]
    op, args = pick.one(splits if rows > 3 else [*splits, ("aten.unbind.int", ())])
    parts = scene.call(op, Ref(name), *args)
    if not early or pick.chance(30):
        write_somewhere(pick, scene, name)
    scene.wants(*parts[:2])


@INPUT_SCENARIOS.add(
    "x.add_(1); a = x * 2; b = x * 3; return a, b, b.view(2)", (AOT_AUTOGRAD,), "renumbered-outputs"
)
def views_of_outputs(pick: Pick, scene: Scene) -> None:
    """Outputs that are views of other outputs, beside an input that is written."""
    name = some_input(pick, scene)
    if pick.chance(60):
        write_somewhere(pick, scene, name)
    first, second = fresh(pick, scene, name), fresh(pick, scene, name)
    viewed = pick.one((first, second))
    view = same_view(pick, scene, viewed) if pick.chance(50) else any_view(pick, scene, viewed)
    scene.wants(first, second, view)


@INPUT_SCENARIOS.add(
    "a = -x; b = a * y; x.add_(1); return b",
    (AOT_AUTOGRAD, GRAPH_PASSES),
    "recomputed-from-written",
)
def input_read_twice(pick: Pick, scene: Scene) -> None:
    """A product of an input with itself or another, and then a write to the input.

    Its gradient needs the values from before the write.
    """
    name = some_input(pick, scene)
    changed = fresh(pick, scene, name)
    partner = pick.one(scene.newest_first(like(scene.values[changed])))
    product = combine(pick, scene, changed, partner)
    write_somewhere(pick, scene, name)
    scene.wants(product)


# --- scenarios ------------------------------------------------------------------------------------


SCENARIOS: tuple[Scenario, ...] = (
    # How inputs are drawn: `aliasproof.generators.inputs`.
    Scenario(
        "shared inputs",
        "f(x[0:2], x[1:3])",
        (AOT_AUTOGRAD, DYNAMO),
        "synthetic-base-views, renumbered-input, missing-overlap-guard",
        None,
    ),
    Scenario(
        "reinterpreted storage",
        "f(x, x.view(int32))",
        (AOT_AUTOGRAD,),
        "merged-dtypes, copy-of-odd-storage",
        None,
    ),
    *VIEW_SCENARIOS,
    *INPUT_SCENARIOS,
    *REINPLACING_SCENARIOS,
    *GRAPH_PASS_SCENARIOS,
    *CODE_SCENARIOS,
    *CUSTOM_SCENARIOS,
    *PLANNING_SCENARIOS,
)
