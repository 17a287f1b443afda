"""The steps of the reducer, as a table.

A step enumerates candidates: programs that are simpler than the given one in one respect. It need
not know whether a candidate makes sense, since the reducer validates it and asks the predicate. So
a step may be bold. It enumerates large changes before small ones, and each position in the same
fraction of the program, since the reducer goes on at the position of its last success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from aliasproof.ir.program import Instruction, Program, Ref
from aliasproof.ir.validation import definitions
from aliasproof.reduction.input_steps import (
    drop_dimensions,
    drop_inputs,
    separate_storages,
    settle_inputs,
    shrink_sizes,
    simplify_dtypes,
    simplify_layouts,
    simplify_seed,
)
from aliasproof.reduction.instruction_steps import (
    drop_arguments,
    drop_instructions,
    drop_outputs,
    drop_result_names,
    enlarge_empty_results,
    plain_gradients,
    results_to_inputs,
    rewire_uses,
    simplify_constants,
    simplify_ops,
)
from aliasproof.reduction.slices import cut_head, cut_tail, keep_neighbourhood, slice_outputs
from aliasproof.reduction.value_steps import plain_values, simplify_fill, simplify_values
from aliasproof.reduction.windows import keep_window

ReductionStep: TypeAlias = Callable[[Program], Iterator[Program]]
StepGroups: TypeAlias = tuple[tuple[ReductionStep, ...], ...]

# In the order in which they are tried. What removes most comes first, so that the later steps,
# which have many candidates, work on a short program.
HALVES: tuple[ReductionStep, ...] = (keep_window,)
FEWER_INSTRUCTIONS: tuple[ReductionStep, ...] = (
    plain_values,
    settle_inputs,
    cut_tail,
    slice_outputs,
    keep_neighbourhood,
    cut_head,
    drop_instructions,
    results_to_inputs,
)
PLAINER_PARTS: tuple[ReductionStep, ...] = (
    drop_outputs,
    drop_inputs,
    separate_storages,
    drop_result_names,
    plain_gradients,
    simplify_ops,
    drop_arguments,
    simplify_dtypes,
    drop_dimensions,
    shrink_sizes,
    simplify_layouts,
    enlarge_empty_results,
    simplify_constants,
    rewire_uses,
    simplify_fill,
    simplify_values,
    simplify_seed,
)
# Each group is repeated until it changes nothing, before the next one begins.
GROUPS: StepGroups = (HALVES, FEWER_INSTRUCTIONS, PLAINER_PARTS)
STEPS: tuple[ReductionStep, ...] = HALVES + FEWER_INSTRUCTIONS + PLAINER_PARTS


def write_at_the_end(program: Program) -> Iterator[Program]:
    """Write to one value, and return the others. An alias too many makes one of them wrong.

    The program gets longer, and what is wrong easier to see.
    """
    names = [name for _, name in definitions(program)]
    for name in names:
        write = Instruction("aten.add_.Scalar", (Ref(name), 1))
        outputs = tuple(dict.fromkeys((*program.outputs, *names)))
        yield replace(program, instructions=(*program.instructions, write), outputs=outputs)


# What may turn a failure into a better one. These programs are not simpler.
BETTER: tuple[ReductionStep, ...] = (write_at_the_end,)
