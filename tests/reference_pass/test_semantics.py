"""The algorithm runs with naive semantics, and each answer of torch is needed.

A program is captured, and the three passes of the core transform it with the given semantics.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch
from torch import fx

from aliasproof.reference_pass.alias_analysis import analyse
from aliasproof.reference_pass.calls.refresh import refresh_metadata
from aliasproof.reference_pass.candidates import candidates
from aliasproof.reference_pass.capture.function_trace import capture
from aliasproof.reference_pass.conditions import Condition, all_conditions, same_layout
from aliasproof.reference_pass.eager.torch_semantics import CONDITIONS, EAGER, IN_EAGER, NOOP_RULES
from aliasproof.reference_pass.environment import InEager
from aliasproof.reference_pass.exceptions import Refused
from aliasproof.reference_pass.functionalize import Views, functional_module
from aliasproof.reference_pass.planning.noops import (
    NoOpRule,
    all_noop_rules,
    copy_has_the_location,
    erase_noops,
)
from aliasproof.reference_pass.reinplace import put_in_place
from aliasproof.reference_pass.semantics import NAIVE, Semantics
from tests.reference_pass.programs import PROGRAMS
from tests.reference_pass.scene import Example, afresh, counted, seen_afresh

aten = torch.ops.aten
EXAMPLES: dict[str, Example] = {example[0].__name__: example for example in PROGRAMS}
# They return None or nested results, which `seen_at_end` does not take.
OTHER_OUTPUTS = {
    "foreach_items_that_overlap",
    "foreach_over_views",
    "input_is_set_to_a_result_that_is_not_returned",
    "outputs_that_are_inputs",
    "swap",
}
# Programs that are wrong, or raise, without one answer of torch: some only with view copies.
NEEDS = {
    "run": {
        "out_that_is_resized_to_a_permuted_layout",
        "out_that_is_resized_to_columns",
        "strided_out_of_the_right_size",
    },
    "copies_whole_storage": {"as_strided_around_a_scatter_into_a_written_input"},
    "copied_around": {"as_strided_copy_of_a_written_view", "as_strided_copy_of_bools"},
    "in_eager": {
        "as_strided_copy_of_a_written_view",
        "as_strided_copy_of_bools",
        "dropout_in_place",
        "random_numbers_through_a_strided_view",
    },
}
NEEDS_WITH: dict[Views, dict[str, set[str]]] = {
    "alias": {"copies_whole_storage": {"storage_that_is_not_a_whole_number_of_elements"}},
    "copy": {
        "run": {"strides_of_an_index_that_is_strided"},
        "copied_around": {"as_strided_copies_of_overlapping_inputs", "as_strided_copy_of_a_view"},
        "in_eager": {
            "as_strided_copies_of_overlapping_inputs",
            "as_strided_copy_of_a_view",
            "random_numbers_in_the_order_of_memory",
        },
    },
}
# These need two answers at once.
NEEDS_SEVERAL: dict[Views, set[str]] = {
    "alias": set(),
    "copy": {
        "copy_of_a_storage_by_a_scatter_without_elements",
        "input_is_set_to_nothing_after_its_storage_was_copied",
        "strides_of_an_index_fill_of_a_strided_tensor",
    },
}
VIEWS: tuple[Views, ...] = ("alias", "copy")


def need(question: str, views: Views) -> set[str]:
    return NEEDS[question] | NEEDS_WITH[views].get(question, set())


@dataclass(frozen=True)
class Answers:
    semantics: Semantics = EAGER
    in_eager: InEager = IN_EAGER
    conditions: tuple[Condition, ...] = CONDITIONS
    noop_rules: tuple[NoOpRule, ...] = NOOP_RULES


AS_TORCH = Answers()
BY_SCHEMA = Answers(
    NAIVE, InEager(), all_conditions(same_layout), all_noop_rules(copy_has_the_location)
)


def without(question: str) -> Answers:
    """All answers of torch, except the one to this question."""
    if question in {field.name for field in fields(Answers)}:
        return replace(AS_TORCH, **{question: getattr(BY_SCHEMA, question)})
    return Answers(replace(EAGER, **{question: getattr(NAIVE, question)}))


def compiled(
    program: Any, inputs: tuple[Any, ...], answers: Answers, views: Views = "alias"
) -> fx.GraphModule:
    captured, semantics = capture(program, afresh(inputs)), answers.semantics
    analysis, in_eager = analyse(captured, afresh(inputs), semantics), answers.in_eager
    made = functional_module(
        captured, analysis, afresh(inputs), semantics, views=views, in_eager=in_eager
    )
    erase_noops(made, semantics, answers.noop_rules)
    put_in_place(made, semantics, answers.conditions, candidates)
    return made


def targets(program: Any, inputs: tuple[Any, ...], answers: Answers) -> list[object]:
    """The targets of a compiled program's calls."""
    return [node.target for node in compiled(program, inputs, answers).graph.nodes]


def is_right(name: str, answers: Answers, views: Views) -> bool:
    """True if the program agrees with eager; False also if the passes raise."""
    program, inputs = EXAMPLES[name]
    try:
        made = compiled(program, inputs, answers, views)
        # As text, a NaN equals itself.
        return repr(seen_afresh(made, inputs)) == repr(seen_afresh(program, inputs))
    except (Refused, RuntimeError):
        return False


@pytest.mark.parametrize("views", VIEWS)
def test_with_naive_semantics_views_and_writes_are_as_in_eager(views: Views) -> None:
    wrong = {
        name for name in EXAMPLES.keys() - OTHER_OUTPUTS if not is_right(name, BY_SCHEMA, views)
    }
    needed = set().union(*(need(question, views) for question in NEEDS))
    assert wrong == needed | NEEDS_SEVERAL[views]
    assert len(wrong) < len(EXAMPLES) / 5


@pytest.mark.parametrize("views", VIEWS)
@pytest.mark.parametrize("question", NEEDS)
def test_without_an_answer_programs_are_wrong_that_are_right_with_it(question, views):
    for name in need(question, views):
        assert is_right(name, AS_TORCH, views)
        assert not is_right(name, without(question), views)


def test_each_question_is_left_out_once() -> None:
    others = {"held", "reads_whole", "conditions", "noop_rules"}  # tested below
    # `test_bits_of_strides.py` and `test_needed_entries.py` leave out what these look up.
    others |= {"rounds_by_strides", "in_place_form"}
    asked = {field.name for each in (Semantics, Answers) for field in fields(each)}
    assert asked - {"semantics"} == NEEDS.keys() | others


def test_a_copy_of_a_storage_that_is_seen_around_it_reads_all_of_the_storage() -> None:
    def program(x):
        whole = x + 1
        start = aten.mul.Tensor(whole[:2], 2)  # in place, it would change what the copy shows
        copy = aten.slice_scatter.default(whole[2:6], whole[2:3], 0, 0, 1)
        return start.sum(), copy.as_strided([8], [1], 0) + 0

    def in_place(semantics: Semantics) -> fx.GraphModule:
        graph_module = capture(program, x)
        refresh_metadata(graph_module, x, EAGER)
        put_in_place(graph_module, semantics, CONDITIONS, candidates)
        return graph_module

    x = (counted(8),)
    assert torch.equal(in_place(EAGER)(*x)[1], program(*x)[1])
    naive = without("reads_whole").semantics
    assert not torch.equal(in_place(naive)(*x)[1], program(*x)[1])


def test_without_held_values_the_operand_of_a_collective_is_overwritten(group: Any) -> None:
    def mean(x):
        made = aten.add.Tensor(x, 1)
        total = group.all_reduce.default(made, "sum", "0")
        sine = aten.sin.default(made)  # the collective may still read `made`
        return group.wait_tensor.default(total), sine

    program, inputs = fx.symbolic_trace(mean), (counted(3),)
    assert aten.sin.default in targets(program, inputs, AS_TORCH)
    assert aten.sin_.default in targets(program, inputs, without("held"))


def test_the_naive_conditions_keep_a_result_out_of_another_layout() -> None:
    def program(x):
        return ((x + 1)[:2] * 2).sum()

    inputs = (counted(4, 3),)
    assert aten.mul_.Tensor in targets(program, inputs, AS_TORCH)
    assert aten.mul.Tensor in targets(program, inputs, without("conditions"))


def test_the_naive_rules_keep_a_copy_in_another_layout() -> None:
    def program(x):
        return x[2:].clone() + 1

    inputs = (counted(6),)
    assert aten.clone.default not in targets(program, inputs, AS_TORCH)
    assert aten.clone.default in targets(program, inputs, without("noop_rules"))
