"""The steps of the reducer, as a table.

A step enumerates candidates: programs that are simpler than the given one in one respect. It need
not know whether a candidate makes sense, since `Reducer.consider` validates it and asks the
predicate. So a step may be bold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from programs.program import Program
from reduction.input_steps import (
    drop_dimensions,
    drop_inputs,
    drop_storages,
    separate_storages,
    shrink_sizes,
    simplify_dtypes,
    simplify_layouts,
    simplify_seed,
)
from reduction.instruction_steps import (
    drop_arguments,
    drop_instructions,
    drop_outputs,
    drop_result_names,
    drop_tail,
    keep_one_output,
    results_to_inputs,
    rewire_uses,
    simplify_constants,
    simplify_ops,
)
from reduction.value_steps import simplify_fill, simplify_values

ReductionStep: TypeAlias = Callable[[Program], Iterator[Program]]

# In the order in which they are tried. What removes most comes first, so that the later steps,
# which have many candidates, work on a short program.
STEPS: tuple[ReductionStep, ...] = (
    drop_tail,
    drop_instructions,
    results_to_inputs,
    keep_one_output,
    drop_outputs,
    drop_inputs,
    drop_storages,
    separate_storages,
    drop_result_names,
    simplify_ops,
    drop_arguments,
    simplify_dtypes,
    drop_dimensions,
    shrink_sizes,
    simplify_layouts,
    simplify_constants,
    rewire_uses,
    simplify_fill,
    simplify_values,
    simplify_seed,
)
