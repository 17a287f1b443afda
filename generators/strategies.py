"""Drawing programs: as a Hypothesis strategy for tests that shrink, from a seed for campaigns."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from hypothesis import strategies as st

from aliasproof.eager.definedness import Undefined, Watch
from aliasproof.eager.rounding import rounding_name
from aliasproof.generators.draft import Draft
from aliasproof.generators.features import DTYPES, Features
from aliasproof.generators.fused_loops import loop_scene
from aliasproof.generators.inputs import draw_inputs, with_gradients
from aliasproof.generators.operator import Operator
from aliasproof.generators.ops import OPERATORS
from aliasproof.generators.scenario_steps import Scenario, Steps
from aliasproof.generators.scenarios import SCENARIOS
from aliasproof.generators.scene import EAGER_ERRORS, Counts, NoChoice, Pick, Scene
from aliasproof.ir.execution import keep_random_state, run, seed_generators
from aliasproof.ir.program import Program, Ref
from aliasproof.ir.schemas import resolve
from aliasproof.ir.values import input_tensors

EVERYTHING = Features()
TRIES = 4  # per instruction, before the program continues without it
# Groups of many ops, and writes at data-dependent positions, are drawn more often.
GROUP_FREQUENCY = {"pointwise": 2, "comparison": 2, "indexed": 16}
MOST_OUTPUTS = 4
TURNS_PER_SEED = 25  # programs of a shard of a campaign; the next seed continues the count
MOST_PAIRS = 1_000_000  # no walk through the pairs of rules and situations is longer
FAVORED_SHARE = 40  # percent of the steps, where ops are favored
REPEATED_SHARE = 20  # percent of these, where a favored op was drawn before
SPECIAL_SHARE = 0.25  # of the programs of a shard: a special fill, where eager allows it


@st.composite
def programs(
    draw: Callable[[st.SearchStrategy[int]], int], features: Features = EVERYTHING
) -> Program:
    """Programs within the features, each defined in eager as far as the scene shows.

    Shrinks towards few instructions, few and simple inputs, float32, and the simplest op of each
    group.
    """
    program = draw_program(Pick(lambda low, high: draw(integers(low, high))), features)
    # Last, so that Hypothesis shrinks the rest in the same way with both fills.
    return specially_filled(program) if draw(integers(0, 3)) == 3 else program


def sample(
    features: Features,
    seed: int,
    count: int,
    counts: Counts | None = None,
    special_share: float = SPECIAL_SHARE,
) -> Iterator[Program]:
    """`count` programs; deterministic in features, seed, count and share.

    They are drawn as in `programs`, from a seeded uniform source. `counts` is updated during the
    draws. Campaigns do not draw through `@given`: it repeats itself on purpose (it mutates earlier
    examples and favours extreme values), costs more, and changes the meaning of a seed between
    versions of Hypothesis.
    """
    # A generator of its own, so that other draws do not change the meaning of a seed.
    source = random.Random(seed)
    pick = Pick(source.randint)
    # Another one for the fill, so that the drawn programs do not depend on the fill.
    fills = random.Random(f"fill {seed}")
    for index in range(count):
        program = draw_program(pick, features, counts, seed * TURNS_PER_SEED + index)
        yield specially_filled(program) if fills.random() < special_share else program


def draw_program(
    pick: Pick, features: Features, counts: Counts | None = None, turn: int | None = None
) -> Program:
    """One program; `pick` makes each choice.

    `turn` is its number in the run. It selects the rule of the compiler that a rule-derived program
    is derived from, if the features ask for that.
    """
    counts = Counts() if counts is None else counts
    scene = _draw_scene(pick, features, counts, turn)
    # `resize_` can leave unwritten memory in an input, which is undefined in eager.
    for _ in range(TRIES):
        if not scene.leaves_unwritten_memory():
            break
        scene = _draw_scene(pick, features, counts, turn)
    program = scene.program(_draw_outputs(pick, scene))
    return with_gradients(pick, scene, program) if features.gradients else program


def _draw_scene(pick: Pick, features: Features, counts: Counts, turn: int | None) -> Scene:
    """The inputs and instructions of a program."""
    if features.rules and pick.chance(features.rules):
        scene = _derived_scene(pick, features, counts, turn)
        if scene is not None:
            return scene
    if features.loops and pick.chance(features.loops):
        return loop_scene(pick, counts)
    storages, inputs = draw_inputs(pick, features)
    scene = Scene(storages, inputs, pick.integer(0, 99), counts)
    for _ in range(pick.integer(1, features.instructions)):
        # A step that finds nothing that fits is drawn again, with other ops and arguments.
        for _ in range(TRIES):
            try:
                _draw_step(pick, scene, features)
                break
            except NoChoice:
                continue
    return scene


def specially_filled(program: Program) -> Program:
    """The same program with the special fill; unchanged if it then raises or is undefined."""
    special = replace(program, fill="special")
    try:
        with Watch(traces=False), torch.no_grad(), keep_random_state():
            seed_generators()
            run(special, input_tensors(special))
    except (Undefined, *EAGER_ERRORS):
        return program
    return special


def _derived_scene(
    pick: Pick, features: Features, counts: Counts, turn: int | None
) -> Scene | None:
    """The scene of a rule-derived program, and a few random steps; None if no rule fits."""
    # Imported here: torch's Inductor takes seconds, and most draws do not need it.
    from aliasproof.generators.rules.derived import derived_scene  # noqa: PLC0415

    number = pick.integer(0, MOST_PAIRS) if turn is None else turn
    scene = derived_scene(pick, number, counts, features.variant)
    if scene is not None:
        for _ in range(pick.integer(0, 3) if pick.chance(50) else 0):
            with contextlib.suppress(NoChoice):
                _draw_step(pick, scene, features)
    return scene


@functools.cache
def integers(low: int, high: int) -> st.SearchStrategy[int]:
    """The strategy `st.integers(low, high)`, built once."""
    return st.integers(low, high)


def _draw_step(pick: Pick, scene: Scene, features: Features) -> None:
    favored = features.favored and favored_operators(features.favored)
    if favored and pick.chance(FAVORED_SHARE):
        # A call of a favored op, or an earlier one again, which a pass may then remove.
        names = {operator.name for operator in favored}
        earlier = [call for call in scene.instructions if call.op in names]
        if earlier and pick.chance(REPEATED_SHARE):
            call = pick.one(earlier)
            scene.call(call.op, *call.args, named=None, **dict(call.kwargs))
        else:
            draw_call(pick, scene, features, pick.one(favored))
        return
    scenarios = _scenarios(features)
    # A scenario adds two to six instructions, so about half of a program comes from them.
    if scenarios and pick.chance(25):
        scenario = pick.one(scenarios)
        assert scenario.play is not None
        scenario.play(Steps(pick, scene))
        scene.counts.scenarios[scenario.name] += 1
    else:
        operator = pick.one(_operators(pick.one(_groups(features))))
        draw_call(pick, scene, features, operator)


# Cached, since every step of drawing uses them.
@functools.cache
def _scenarios(features: Features) -> tuple[Scenario, ...]:
    return tuple(it for it in SCENARIOS if it.play is not None and it.name in features.scenarios)


@functools.cache
def _groups(features: Features) -> tuple[str, ...]:
    """The groups that are on, each repeated by its `GROUP_FREQUENCY`."""
    groups = (group for group in features.groups if _operators(group))
    return tuple(group for group in groups for _ in range(GROUP_FREQUENCY.get(group, 1)))


@functools.cache
def _operators(group: str) -> tuple[Operator, ...]:
    """The ops of a group, each repeated by its frequency."""
    of_group = [operator for operator in OPERATORS if operator.group == group]
    return tuple(operator for operator in of_group for _ in range(operator.frequency))


@functools.cache
def favored_operators(names: frozenset[str]) -> tuple[Operator, ...]:
    """The ops with these names (as in `rounding_name`), in all their overloads and forms."""
    return tuple(it for it in OPERATORS if rounding_name(resolve(it.name)) in names)


def draw_call(pick: Pick, scene: Scene, features: Features, operator: Operator) -> None:
    """Add one call of the operator to the scene. Raises `NoChoice` if no value fits."""
    draft = Draft(pick, scene, features, accepts=operator.accepts)
    if not operator.takes_tensor_list:
        fitting = scene.newest_first(operator.fits)
        fitting = fitting or [_conversion(pick, scene, operator)]
        # Recent values, so that instructions build on each other.
        recent = fitting[:4] if pick.chance(50) else fitting
        draft.drawn["self"] = Ref(pick.one(recent))
    for name, drawer in operator.arguments.items():
        draft.drawn[name] = drawer(draft)
    args, kwargs = operator.bind(draft.drawn)
    # Sometimes the result of an in-place op gets a name: a second name of the same tensor.
    scene.call(operator.name, *args, named=True if pick.chance(15) else None, **kwargs)


def _conversion(pick: Pick, scene: Scene, operator: Operator) -> str:
    """A value of the scene, converted to a dtype that the operator accepts, or `NoChoice`."""
    dtype = pick.one([dtype for dtype in DTYPES if operator.accepts(dtype)])
    # Eager warns when a conversion discards imaginary parts.
    fitting = scene.newest_first(
        lambda t: t.dim() in operator.ranks and (dtype.is_complex or not t.is_complex())
    )
    return scene.call("aten._to_copy.default", Ref(pick.one(fitting)), dtype=dtype)[0]


def _draw_outputs(pick: Pick, scene: Scene) -> list[str]:
    """Up to four values, mostly new ones; sometimes none, so that only inputs show a bug."""
    names = scene.newest_first(scene.is_written)
    count = pick.integer(1, 4) if names and not pick.chance(5) else 0
    outputs = [pick.one(names[:4] if pick.chance(60) else names) for _ in range(count)]
    # Two values that a scenario relates are rarely drawn together. A rule does not apply to calls
    # whose result nothing reads.
    if count and scene.wanted and (scene.hidden or pick.chance(60)):
        wanted = [name for name in reversed(scene.wanted) if name in names]
        outputs = [*wanted, *outputs][:MOST_OUTPUTS]
    return list(dict.fromkeys(outputs))
