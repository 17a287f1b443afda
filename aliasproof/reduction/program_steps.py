"""`PROGRAM`: how a `Program` is reduced.

A step enumerates candidates: programs that are simpler than the given one in one respect. A step
need not know whether a candidate makes sense, since the reducer validates it and calls the
predicate. A step enumerates large changes before small ones, and each position in the same fraction
of the program, since the reducer continues at the position of its last success.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from aliasproof.ir.program import Instruction, Program, Ref
from aliasproof.ir.validation import definitions, first_defect
from aliasproof.reduction import input_steps, instruction_steps
from aliasproof.reduction.edits import is_simpler, simplicity, tidy_versions
from aliasproof.reduction.reducer import Problem

ReductionStep: TypeAlias = Callable[[Program], Iterator[Program]]

# In this order. The steps that remove most come first, so that later steps, which have many
# candidates, work on a short program.
HALVES: tuple[ReductionStep, ...] = (instruction_steps.keep_window,)
FEWER_INSTRUCTIONS: tuple[ReductionStep, ...] = (
    input_steps.plain_values,
    input_steps.settle_inputs,
    instruction_steps.cut_tail,
    instruction_steps.slice_outputs,
    instruction_steps.keep_neighbourhood,
    instruction_steps.cut_head,
    instruction_steps.drop_instructions,
    instruction_steps.results_to_inputs,
)
PLAINER_PARTS: tuple[ReductionStep, ...] = (
    instruction_steps.drop_outputs,
    input_steps.drop_inputs,
    input_steps.separate_storages,
    instruction_steps.drop_result_names,
    instruction_steps.plain_gradients,
    instruction_steps.simplify_ops,
    instruction_steps.drop_arguments,
    input_steps.simplify_dtypes,
    input_steps.drop_dimensions,
    input_steps.shrink_sizes,
    input_steps.simplify_layouts,
    instruction_steps.enlarge_empty_results,
    instruction_steps.simplify_constants,
    instruction_steps.rewire_uses,
    input_steps.simplify_fill,
    input_steps.simplify_values,
    input_steps.simplify_seed,
)
# Each group is repeated until it changes nothing, before the next one begins.
GROUPS: tuple[tuple[ReductionStep, ...], ...] = (HALVES, FEWER_INSTRUCTIONS, PLAINER_PARTS)
STEPS: tuple[ReductionStep, ...] = HALVES + FEWER_INSTRUCTIONS + PLAINER_PARTS


def write_at_the_end(program: Program) -> Iterator[Program]:
    """Write to one value, and return the others: this shows an alias that should not exist.

    The program gets longer, but its failure is easier to see.
    """
    names = [name for _, name in definitions(program)]
    for name in names:
        write = Instruction("aten.add_.Scalar", (Ref(name), 1))
        outputs = tuple(dict.fromkeys((*program.outputs, *names)))
        yield replace(program, instructions=(*program.instructions, write), outputs=outputs)


# Steps that may turn a failure into a better one. Their programs are not simpler.
BETTER: tuple[ReductionStep, ...] = (write_at_the_end,)


def tidy_candidates(step: ReductionStep) -> ReductionStep:
    """A step whose candidates are the tidy versions of another step's candidates.

    They have no input that no instruction uses, since Dynamo would drop it, and the failure with
    it. If the failure needs such an input, because it shares a storage, the input gets a use.
    """

    @functools.wraps(step)
    def tidy_step(program: Program) -> Iterator[Program]:
        return (tidy for raw in step(program) for tidy in tidy_versions(raw))

    return tidy_step


def _well_formed(current: Program, offered: Program) -> Program | None:
    return offered if first_defect(offered) is None else None


PROGRAM = Problem(
    groups=tuple(tuple(map(tidy_candidates, group)) for group in GROUPS),
    better=tuple(map(tidy_candidates, BETTER)),
    candidate=_well_formed,
    canonical=Program.renamed,
    size=simplicity,
    is_smaller=is_simpler,
)
