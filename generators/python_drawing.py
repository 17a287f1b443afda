"""Drawing Python programs: inputs that share memory, the body of `program`, and its calls."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

# Importing each file adds its forms to the table.
from aliasproof.generators.python_forms import (  # noqa: F401
    call_forms,
    class_texts,
    container_forms,
    control_forms,
    function_forms,
    gradient_forms,
    state_forms,
    storage_forms,
    tensor_forms,
    training_forms,
    transform_forms,
)
from aliasproof.generators.scene import NoChoice, Pick
from aliasproof.generators.sketch import FORMS, Block, Sketch, StatementForm
from aliasproof.generators.strategies import integers
from aliasproof.ir.errors import InternalError
from aliasproof.ir.python_program import PythonProgram

ALWAYS = ("tensors", "writes", "calls")  # groups that a swarm never switches off
GROUPS = tuple(dict.fromkeys(form.group for form in FORMS))
# Names of values that are no tensors and can be returned: lists, and unfinished iterators.
KEPT = ("rows", "items", "it", "numbers", "d", "record")
SWARM_SHARE = 0.4  # how often another group is on
MOST_REFUSED = 1000  # programs in a row that eager refuses
MOST_STATEMENTS = 8  # of `program` before its return, blocks counted as one

_FLOATS = (
    "torch.arange(6.0)",
    "torch.arange(6.0).reshape(2, 3)",
    "torch.arange(4.0)",
    "torch.arange(8.0).reshape(4, 2)",
    "torch.ones(3)",
    "torch.tensor(3.0)",
    "torch.arange(4)",
    "torch.arange(12.0).reshape(2, 3, 2)",
    "torch.arange(4.0, dtype=torch.float64)",
    "torch.zeros(2, 2)",
    "torch.arange(4.0).to(torch.complex64)",
    "torch.arange(6.0).reshape(3, 2).t()",
)


@st.composite
def python_programs(draw: Callable[[Any], int]) -> PythonProgram:
    """Python programs that eager accepts; they shrink towards few and simple statements."""
    pick = Pick(lambda low, high: draw(integers(low, high)))
    return draw_python_program(pick, FORMS)


def sample_python(
    seed: int, numbers: Iterable[int], counts: Counter[tuple[str, str]] | None = None
) -> Iterator[PythonProgram]:
    """The programs with these numbers; deterministic in seed and number.

    Each program has a swarm of its own. `counts` counts how often each form was used in each
    aliasing situation.
    """
    for number in numbers:
        source = random.Random(f"{seed} {number}")
        pick = Pick(source.randint)
        on = {group for group in GROUPS if group in ALWAYS or source.random() < SWARM_SHARE}
        yield draw_python_program(pick, [form for form in FORMS if form.group in on], counts)


def draw_python_program(
    pick: Pick, forms: Sequence[StatementForm], counts: Counter[tuple[str, str]] | None = None
) -> PythonProgram:
    """One program; `pick` makes each choice.

    Raises `InternalError` if eager refuses every draw: then eager does not work in this process.
    """
    refused: Exception | None = None
    for _ in range(MOST_REFUSED):
        sketch = Sketch(pick, forms=forms)
        try:
            _draw(sketch)
            program = sketch.finished()
        except NoChoice as error:
            refused = error
            continue
        if counts is not None:
            counts.update(sketch.counts)
        return program
    assert refused is not None
    reason = refused.__cause__ or refused
    raise InternalError(f"eager refuses all that is drawn, at last by {reason!r}") from reason


def _draw(sketch: Sketch) -> None:
    groups = {form.group for form in sketch.forms}
    pick = sketch.pick
    if "state" in groups:
        sketch.module.append(f"global_tensor = {pick.one(_FLOATS)}")
        sketch.module.append("global_list = []")
    _draw_inputs(sketch)
    if pick.chance(20):
        sketch.statements(2)
    arguments = _arguments(sketch, groups)
    names = [name for name, _ in arguments]
    sketch.program.header = f"def program({', '.join(names)}):"
    call = f"out = program({', '.join(value for _, value in arguments)})"
    calls = sketch.point
    calls.append(call)
    sketch.point, sketch.function = sketch.program.body, "program"
    sketch.depth = 1
    sketch.look()
    sketch.statements(MOST_STATEMENTS)
    if pick.chance(4) and _end_with_backward(sketch):
        return
    sketch.point.append(f"return {_returned(sketch)}")
    sketch.point, sketch.function, sketch.depth = calls, "calls", 0
    sketch.look()
    sketch.arguments = [value for _, value in arguments]
    sketch.statements(4)
    if pick.chance(20):
        _end_with_backward(sketch)


def _end_with_backward(sketch: Sketch) -> bool:
    """Add a write between forward and backward pass, which eager may refuse."""
    recorded = [name for name, it in sketch.names.tensors.items() if it.requires_grad]
    if not recorded:
        return False
    name, result = sketch.pick.one(recorded), sketch.fresh()
    value = sketch.pick.one([f"{name} * {name}", f"{name}.exp()", f"{name}.view_as({name}) ** 2"])
    written = sketch.pick.one([name, f"{name}.detach()", f"{name}.data", result])
    write = Block("with torch.no_grad():", [f"{written}.mul_(2)"])
    sketch.point += [f"{result} = {value}", write, f"{result}.sum().backward()"]
    return True


def _draw_inputs(sketch: Sketch) -> None:
    """Draw tensors: some are parts of others, some require gradients."""
    pick = sketch.pick
    gradients = any(form.group in ("gradients", "training") for form in sketch.forms)
    for _ in range(pick.integer(1, 2)):
        name, made = sketch.fresh("x"), pick.one(_FLOATS)
        requires = gradients and "." in made.partition("(")[2] and pick.chance(50)
        sketch.add(f"{name} = {made}{'.requires_grad_()' * requires}")
        if requires and pick.chance(40):
            sketch.add(f"{sketch.fresh('x')} = {name} * 1")
    for _ in range(pick.integer(0, 2)):
        name = sketch.tensor()
        sketch.add(f"{sketch.fresh('x')} = {tensor_forms.view_of(sketch, name)}")


def _arguments(sketch: Sketch, groups: set[str]) -> list[tuple[str, str]]:
    """The parameters of `program`, each with the expression of its argument."""
    pick, names = sketch.pick, list(sketch.names.tensors)
    given = list(dict.fromkeys(pick.one(names[-4:]) for _ in range(pick.integer(1, 3))))
    arguments = [(f"a{index}", name) for index, name in enumerate(given)]
    if "containers" in groups and pick.chance(60):
        one, other = pick.one(names), pick.one(names)
        form = pick.one([f"[{one}, {other}]", f"{{'k': {one}, 'v': {other}}}", f"({one}, {other})"])
        name = sketch.fresh("given")
        sketch.point.append(f"{name} = {form}")
        arguments.append(("box", name))
    if "state" in groups:
        sketch.module += class_texts.state_class(pick)
        for parameter in ("obj", "second")[: 1 + pick.chance(30)]:
            name = sketch.fresh("obj")
            sketch.point.append(f"{name} = State({pick.one(names)})")
            arguments.append((parameter, name))
        sketch.module.append(class_texts.record_class(pick))
        if pick.chance(30):
            name = sketch.fresh("record")
            sketch.point.append(f"{name} = Record({pick.one(names)}, {pick.one(names)})")
            arguments.append(("record", name))
    if "training" in groups:
        arguments += _trained(sketch)
    if "modules" in groups:
        sketch.module.append(class_texts.layer_class(pick))
        name = sketch.fresh("layer")
        sketch.point.append(f"{name} = Layer()")
        arguments.append(("layer", name))
    if "conditions" in groups:
        arguments.append(("flag", "1"))
    sketch.look()
    return arguments


def _trained(sketch: Sketch) -> list[tuple[str, str]]:
    """A normalization module, and an optimizer of a leaf."""
    pick, given = sketch.pick, []
    if pick.chance(40):
        name = sketch.fresh("norm")
        widths = [it.shape[1] for it in sketch.names.tensors.values() if it.dim() == 2]
        width = pick.one(widths) if widths else 2
        sketch.point.append(f"{name} = torch.nn.BatchNorm1d({width})")
        given.append(("norm", name))
    leaves = [key for key, it in sketch.names.tensors.items() if it.requires_grad and it.is_leaf]
    if leaves and pick.chance(60):
        name, more = sketch.fresh("optimizer"), pick.one(["", ", momentum=0.5"])
        sketch.point.append(f"{name} = torch.optim.SGD([{pick.one(leaves)}], lr=0.5{more})")
        given.append(("optimizer", name))
    return given


def _returned(sketch: Sketch) -> str:
    """The return value of `program`: mostly new tensors, a view, a tuple, a dict, or nothing."""
    pick = sketch.pick
    parts = [sketch.tensor() for _ in range(pick.integer(1, 3))]
    parts = [tensor_forms.view_of(sketch, it) if pick.chance(20) else it for it in parts]
    kept = [name for name in sketch.names.values if name.startswith(KEPT)]
    if kept and pick.chance(60):
        parts.append(pick.one(kept))
    if len(parts) == 1:
        return parts[0]
    return pick.one(
        [", ".join(parts), f"[{', '.join(parts)}]", f"{{'a': {parts[0]}, 'b': {parts[1]}}}"]
    )
