"""Memory planning as users call it: marks that other passes can see, and the whole plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import fx

from aliasproof.reference_pass.calls.fake_tensors import fake_mode, on_fakes
from aliasproof.reference_pass.calls.refresh import refresh_metadata
from aliasproof.reference_pass.capture.aten_graphs import replace_prims, require_aten
from aliasproof.reference_pass.capture.size_guards import guard_sizes
from aliasproof.reference_pass.conditions import Condition
from aliasproof.reference_pass.eager.opaque_calls import check_calls
from aliasproof.reference_pass.eager.other_names import replace_names
from aliasproof.reference_pass.eager.torch_semantics import CONDITIONS, EAGER
from aliasproof.reference_pass.planning.graph_plan import larger_output_storage, plan_storages
from aliasproof.reference_pass.planning.marks import mark, refuse_malformed, without_marks
from aliasproof.reference_pass.planning.opaque_calls import (
    hide_functions,
    show_functions,
    with_opaque_calls,
)
from aliasproof.reference_pass.semantics import Semantics


def mark_in_place(
    graph_module: fx.GraphModule,
    *sample_args: object,
    conditions: Sequence[Condition] = CONDITIONS,
    non_aliasing: Collection[object] = (),
) -> fx.GraphModule:
    """Mark the calls of a functional ATen graph whose results may be in the memory of an operand.

    The graph stays functional (`call_in_place`). Arguments are those of `plan_memory`, which lowers
    the marks.
    """
    semantics = _before_planning(graph_module, sample_args, non_aliasing)
    with on_fakes(fake_mode(graph_module)):
        mark(graph_module.graph, semantics, (*conditions, larger_output_storage))
    show_functions(graph_module.graph)
    graph_module.recompile()
    return graph_module


def plan_memory(
    graph_module: fx.GraphModule,
    *sample_args: object,
    conditions: Sequence[Condition] = CONDITIONS,
    non_aliasing: Collection[object] = (),
    check_non_aliasing: bool = False,
) -> fx.GraphModule:
    """Plan the memory of a functional ATen graph (`plan_storages`): more than `reinplace` does.

    Arguments, result and errors are those of `reinplace`. Operators of other libraries, and Python
    functions whose value is noted, may retain their arguments, and return them later
    (`opaque_calls`). Those in `non_aliasing` do not; with `check_non_aliasing`, the graph checks it
    when it runs. Also raises `Refused` for a mark that no condition allows.
    """
    marks = without_marks(graph_module.graph)
    semantics = _before_planning(graph_module, sample_args, non_aliasing)
    refuse_malformed(graph_module.graph, marks)
    plan_storages(graph_module, semantics, (*conditions, larger_output_storage), marks)
    show_functions(graph_module.graph)
    if check_non_aliasing:
        check_calls(graph_module.graph, non_aliasing)
    graph_module.recompile()
    return guard_sizes(graph_module)


def _before_planning(
    graph_module: fx.GraphModule, sample_args: Sequence[object], non_aliasing: Collection[object]
) -> Semantics:
    """Give the graph true metadata. Returns the semantics to plan with."""
    hide_functions(graph_module.graph)
    require_aten(graph_module, sample_args)
    replace_prims(graph_module.graph)
    semantics = with_opaque_calls(EAGER, non_aliasing)
    refresh_metadata(graph_module, sample_args, semantics)
    with on_fakes(fake_mode(graph_module)):
        replace_names(graph_module.graph)
    return semantics
