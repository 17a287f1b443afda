"""The passes as users call them: one by one, as `PassBase`, and the pipeline of them.

    compiled = pipeline(function, *sample_args)         # functionalize, remove_noops, reinplace
    with checked():                                     # the same, with the invariants checked
        compiled = pipeline(function, *sample_args)

The algorithm takes a graph of ATen calls with true metadata. This file makes such a graph from what
users pass, and lets the result check its guards.

Each pass can check the invariants that it requires and ensures, and raises `Broken` for one that
does not hold. Checks are off by default, since they run every graph again on fakes. The tests turn
them on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import fx
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from aliasproof.reference_pass.alias_analysis import analyse
from aliasproof.reference_pass.calls.fake_inputs import refuse_another_number
from aliasproof.reference_pass.calls.invariants import (
    Aliases,
    Invariant,
    aliases_at_end,
    is_functional,
    no_copy_reads_what_it_writes,
    operand_of_other_strides,
    untrue_metadata,
)
from aliasproof.reference_pass.calls.refresh import refresh_metadata
from aliasproof.reference_pass.capture.aten_graphs import (
    is_aten,
    refuse_mutated_twice,
    replace_prims,
    require_aten,
    unchanged,
)
from aliasproof.reference_pass.capture.control_flow_calls import functional_branches
from aliasproof.reference_pass.capture.function_trace import (
    SizeMode,
    capture,
    is_symbolic,
    refusals,
)
from aliasproof.reference_pass.capture.size_guards import LOCATED, depends_on_location, guard_sizes
from aliasproof.reference_pass.conditions import Condition
from aliasproof.reference_pass.eager import torch_semantics
from aliasproof.reference_pass.eager.history import refuse_lost_history
from aliasproof.reference_pass.eager.torch_semantics import EAGER, IN_EAGER
from aliasproof.reference_pass.eager.undefined_calls import refuse_undefined
from aliasproof.reference_pass.exceptions import Broken, Refused
from aliasproof.reference_pass.functionalize import Views, functional_module
from aliasproof.reference_pass.memory_plan import plan_memory
from aliasproof.reference_pass.planning.graph_plan import (
    larger_output_storage,
    put_in_place_within_peak,
)
from aliasproof.reference_pass.planning.noops import NoOpRule, erase_noops
from aliasproof.reference_pass.planning.opaque_calls import with_opaque_calls
from aliasproof.reference_pass.planning.timeline import footprint
from aliasproof.reference_pass.rules import RULES, Rules

# All conditions of reinplacing, and all rules of removing no-ops.
CONDITIONS, NOOP_RULES = torch_semantics.CONDITIONS, torch_semantics.NOOP_RULES


# --- the passes, one by one -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """Options of all passes together: `plan_memory` runs in place of `reinplace`.

    `views` and `strict` are those of `functionalize`, `non_aliasing` is that of `reinplace`.
    """

    views: Views = "alias"
    strict: bool = False
    plan_memory: bool = False
    non_aliasing: Collection[object] = ()

    def updated(self, options: Mapping[str, Any] | None) -> PipelineOptions:
        """These options and the `options` of `torch.compile`. Raises `Refused` for unknown ones."""
        unknown = sorted({*(options or {})} - {*self.__slots__})
        if unknown:
            raise Refused(
                f"no option {', '.join(unknown)}: this backend has {', '.join(self.__slots__)}"
            )
        return dataclasses.replace(self, **(options or {}))


DEFAULT_OPTIONS = PipelineOptions()


def functionalize(
    function: Callable[..., Any],
    *sample_args: object,
    rules: Rules = RULES,
    views: Views = "alias",
    sizes: SizeMode = "fixed",
    strict: bool = False,
) -> fx.GraphModule:
    """The function, or graph module, as a graph module that mutates only its inputs, at its end.

    `rules` are the right ones, those of training, or planted wrong ones. `views` says whether the
    graph has view ops or view-copy ops. `sizes="symbolic"` traces a function for all sizes, not
    only those of the sample arguments, which are not mutated. Raises `Refused`, with a reason, for
    a program that it cannot compile correctly; with `strict`, also for calls that are undefined in
    eager.
    """
    if views not in ("alias", "copy"):
        raise Refused(f"views={views!r} is neither 'alias' nor 'copy'")
    captured = capture(function, sample_args, sizes)
    metas = [node.meta.get("val") for node in captured.graph.nodes if node.op == "placeholder"]
    inputs = metas if sizes == "symbolic" and captured is not function else sample_args
    refuse_another_number(metas, inputs)
    by_rules = functools.partial(functionalize, rules=rules, views=views, strict=strict)
    captured = functional_branches(captured, by_rules)
    with refusals(symbolic=any(map(is_symbolic, inputs))):
        analysis = analyse(captured, inputs, EAGER, detaches=rules.detaches)
        refuse_mutated_twice(captured, analysis, sample_args)
        if rules.detaches:
            refuse_lost_history(captured, analysis)
        if strict:
            refuse_undefined(analysis)
        # In training, a `copy_` of the program is recorded, and a `copy_` of the epilogue is not.
        as_it_is = views == "alias" and not rules.detaches
        made = unchanged(captured, analysis) if as_it_is else None
        made = made or functional_module(captured, analysis, inputs, EAGER, rules, views, IN_EAGER)
        made.meta["captured_footprint"] = footprint(captured.graph, analysis.value)
        made.meta[LOCATED] = depends_on_location(captured)
        return guard_sizes(made)


def remove_noops(
    graph_module: fx.GraphModule,
    *sample_args: object,
    rules: Sequence[NoOpRule] = NOOP_RULES,
    non_aliasing: Collection[object] = (),
) -> fx.GraphModule:
    """Erase clones, copies, scatters and views that do nothing, in a functional graph.

    Changes the graph module and returns it (`erase_noops`). The sample arguments, and
    `non_aliasing`, are as for `reinplace`.
    """
    require_aten(graph_module, sample_args)
    update_metadata(graph_module, *sample_args)
    erase_noops(graph_module, with_opaque_calls(EAGER, non_aliasing), rules)
    return guard_sizes(graph_module)


def reinplace(
    graph_module: fx.GraphModule,
    *sample_args: object,
    conditions: Sequence[Condition] = CONDITIONS,
    non_aliasing: Collection[object] = (),
) -> fx.GraphModule:
    """Turn functional ops of a functional ATen graph into in-place ones.

    Changes the graph module and returns it (`put_in_place`). The sample arguments say which inputs
    share storage; without them, the metadata of the placeholders does. An output gets no larger
    storage than in eager (`larger_output_storage`), and the peak of live bytes does not rise
    (`larger_storage_longer`). Operators of other libraries may retain their arguments, and return
    them later (`opaque_calls`), except those in `non_aliasing`. The decisions are in
    `graph_module.meta["reinplace"]`. Raises `Refused` if the graph writes anything except its
    inputs at its end.
    """
    require_aten(graph_module, sample_args)
    replace_prims(graph_module.graph)  # a prim has no in-place form
    update_metadata(graph_module, *sample_args)
    asked, semantics = (*conditions, larger_output_storage), with_opaque_calls(EAGER, non_aliasing)
    put_in_place_within_peak(graph_module, semantics, asked)
    return guard_sizes(graph_module)


def update_metadata(graph_module: fx.GraphModule, *sample_args: object) -> int:
    """Make `meta["val"]` true for every node; returns the number of nodes that ran.

    Inputs keep their values, or get those of the sample arguments (`refresh_metadata`).
    """
    return refresh_metadata(graph_module, sample_args, EAGER)


# --- invariants that need more than the graph -----------------------------------------------------


def is_aten_graph(graph_module: fx.GraphModule) -> str | None:
    """All calls are ATen calls, and the graph is well formed."""
    graph_module.graph.lint()
    return None if is_aten(graph_module) else "a node is not an ATen call"


def metadata_is_true(graph_module: fx.GraphModule) -> str | None:
    """The metadata of each node is that of a run on fakes, and the same nodes share storage."""
    return untrue_metadata(graph_module, EAGER)


def operands_have_eager_strides(graph_module: fx.GraphModule) -> str | None:
    """A call whose bits depend on strides has operands with the strides of the captured graph."""
    return operand_of_other_strides(graph_module, EAGER)


# --- the passes as `PassBase` ---------------------------------------------------------------------

_CHECKS = [False]  # a stack, since `checked` may be nested; the last entry counts


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """A context in which passes check what they require and ensure, and raise `Broken`."""
    _CHECKS.append(True)
    try:
        yield
    finally:
        _CHECKS.pop()


class _Pass(PassBase):
    """A pass over a graph module; it requires the invariants `needs` and ensures those of `gives`.

    `rewrite` is the function that does it, and `options` are its keyword arguments. If the pass
    `keeps_aliases`, it also ensures that no input and output, and no two outputs, share a storage
    unless they did before.
    """

    needs: ClassVar[tuple[Invariant, ...]] = (is_aten_graph, is_functional)
    gives: ClassVar[tuple[Invariant, ...]] = (
        is_aten_graph,
        is_functional,
        metadata_is_true,
        no_copy_reads_what_it_writes,
        operands_have_eager_strides,
    )
    keeps_aliases: ClassVar[bool] = True
    # A static method, since it does not use the object.
    rewrite: ClassVar[Callable[..., fx.GraphModule]]

    def __init__(self, *sample_args: object, **options: Any) -> None:
        # PassBase calls `requires`, `call` and `ensures` in turn. These fields carry results from
        # one to the next.
        self.sample_args, self.options = sample_args, options
        self._before: Aliases = frozenset()
        self._made: fx.GraphModule | None = None

    def requires(self, graph_module: fx.GraphModule) -> None:
        """Raise `Broken` if the graph module breaks an invariant that the pass requires."""
        if _CHECKS[-1]:
            self._check(graph_module, self.needs, "requires")
            if self.keeps_aliases:
                update_metadata(graph_module, *self.sample_args)
                self._before = aliases_at_end(graph_module)  # to compare with in `ensures`

    def ensures(self, graph_module: fx.GraphModule) -> None:
        """Raise `Broken` if the result breaks an invariant that the pass ensures."""
        made = self._made or graph_module  # a pass may make a new graph module
        if _CHECKS[-1]:
            self._check(made, self.gives, "ensures")
            if self.keeps_aliases and (new := aliases_at_end(made) - self._before):
                raise Broken(
                    f"{type(self).__name__} ensures no new aliasing,"
                    f" but {sorted(new)} share storage"
                )

    def call(self, graph_module: fx.GraphModule) -> PassResult:
        """Rewrite the graph module."""
        before = [node.target for node in graph_module.graph.nodes]
        self._made = self.rewrite(graph_module, *self.sample_args, **self.options)
        after = [node.target for node in self._made.graph.nodes]
        return PassResult(self._made, self._made is not graph_module or after != before)

    def _check(
        self, graph_module: fx.GraphModule, invariants: Sequence[Invariant], verb: str
    ) -> None:
        for invariant in invariants:
            if (wrong := invariant(graph_module)) is not None:
                raise Broken(f"{type(self).__name__} {verb} {invariant.__name__}: {wrong}")


class Functionalize(_Pass):
    """`functionalize` as a pass. It makes a new graph module, which is in the result."""

    needs = (is_aten_graph,)
    keeps_aliases = False  # a graph with mutation has no metadata to compare with
    rewrite = staticmethod(functionalize)


class RemoveNoOps(_Pass):
    """`remove_noops` as a pass."""

    rewrite = staticmethod(remove_noops)


class Reinplace(_Pass):
    """`reinplace` as a pass."""

    # It puts mutation back.
    gives = tuple(invariant for invariant in _Pass.gives if invariant is not is_functional)
    rewrite = staticmethod(reinplace)


class PlanMemory(Reinplace):
    """`plan_memory` as a pass."""

    rewrite = staticmethod(plan_memory)


def pipeline(
    function: Callable[..., Any],
    *sample_args: object,
    sizes: SizeMode = "fixed",
    planned: bool = False,
    views: Views = "alias",
    strict: bool = False,
) -> fx.GraphModule:
    """The function, or graph module, functionalized, without no-ops, and reinplaced.

    If `planned`, its memory is planned (`plan_memory`). The other keyword arguments and the errors
    are those of `functionalize`.
    """
    graph_module = capture(function, sample_args, sizes)
    if sizes == "symbolic":
        # The sample arguments have fixed sizes. The fakes of the trace have the symbols.
        sample_args = tuple(
            node.meta["val"] for node in graph_module.graph.nodes if node.op == "placeholder"
        )
    # Only the first pass needs sample arguments: it leaves true metadata for the others.
    first = Functionalize(*sample_args, views=views, strict=strict)
    return run_passes(graph_module, first, RemoveNoOps(), last_pass(planned=planned))


def last_pass(*, planned: bool, non_aliasing: Collection[object] = ()) -> Reinplace:
    """The pass that decides in which memory results are."""
    make = PlanMemory if planned else Reinplace
    return make(non_aliasing=non_aliasing)


def run_passes(graph_module: fx.GraphModule, *passes: PassBase) -> fx.GraphModule:
    """Run passes on a graph module, one after the other."""
    for graph_pass in passes:
        result = graph_pass(graph_module)
        assert result is not None
        graph_module = result.graph_module
    return graph_module
