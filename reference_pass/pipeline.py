"""The passes as `PassBase`, and the pipeline of them.

    compiled = pipeline(function, *sample_args)         # functionalize, remove_noops, reinplace
    with checked():                                     # the same, with the invariants checked
        compiled = pipeline(function, *sample_args)

Each pass can check the invariants that it requires and ensures, and raises `Broken` for one that
does not hold. Checks are off by default, since they run every graph again on fakes. The tests turn
them on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from torch import fx
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from aliasproof.reference_pass.capture.function_trace import SizeMode, capture
from aliasproof.reference_pass.conditions import CONDITIONS, Condition
from aliasproof.reference_pass.exceptions import Broken
from aliasproof.reference_pass.functionalize import Views, functionalize
from aliasproof.reference_pass.invariants import (
    Aliases,
    Invariant,
    aliases_at_end,
    is_aten_graph,
    is_functional,
    metadata_is_true,
    no_copy_reads_what_it_writes,
    operands_have_eager_strides,
)
from aliasproof.reference_pass.metadata import update_metadata
from aliasproof.reference_pass.noops import remove_noops
from aliasproof.reference_pass.reinplace import reinplace

_CHECKS = [False]  # a stack, as `checked` nests; the last one counts


@contextlib.contextmanager
def checked(on: bool = True) -> Iterator[None]:
    """A context in which passes check what they require and ensure, and raise `Broken`."""
    _CHECKS.append(on)
    try:
        yield
    finally:
        _CHECKS.pop()


class _Pass(PassBase):
    """A pass over a graph module; it requires the invariants `needs` and ensures those of `gives`.

    If it `keeps_aliases`, it also ensures that no input and output, and no two outputs, share a
    storage unless they did before.
    """

    needs: ClassVar[tuple[Invariant, ...]] = (is_aten_graph,)
    gives: ClassVar[tuple[Invariant, ...]] = (is_aten_graph, metadata_is_true)
    keeps_aliases: ClassVar[bool] = True

    def __init__(self, *sample_args: object) -> None:
        # PassBase calls `requires`, `call` and `ensures` in turn. These fields carry over what was
        # found and made in between.
        self.sample_args = sample_args
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

    def _check(
        self, graph_module: fx.GraphModule, invariants: Sequence[Invariant], verb: str
    ) -> None:
        for invariant in invariants:
            if (wrong := invariant(graph_module)) is not None:
                raise Broken(f"{type(self).__name__} {verb} {invariant.__name__}: {wrong}")


class Functionalize(_Pass):
    """`functionalize` as a pass. It makes a new graph module, which is in the result."""

    gives: ClassVar[tuple[Invariant, ...]] = (
        is_aten_graph,
        is_functional,
        metadata_is_true,
        no_copy_reads_what_it_writes,
        operands_have_eager_strides,
    )
    keeps_aliases: ClassVar[bool] = False  # a graph with mutation has no metadata to compare with

    def __init__(
        self,
        *sample_args: object,
        views: Views = "alias",
        strict: bool = False,
        noted: bool = False,
    ) -> None:
        super().__init__(*sample_args)
        self.views, self.strict, self.noted = views, strict, noted

    def call(self, graph_module: fx.GraphModule) -> PassResult:
        """Functionalize the graph module."""
        self._made = functionalize(
            graph_module,
            *self.sample_args,
            views=self.views,
            strict=self.strict,
            noted=self.noted,
        )
        return PassResult(self._made, True)


class RemoveNoOps(_Pass):
    """`remove_noops` as a pass."""

    needs: ClassVar[tuple[Invariant, ...]] = (is_aten_graph, is_functional)
    gives: ClassVar[tuple[Invariant, ...]] = (
        is_aten_graph,
        is_functional,
        metadata_is_true,
        no_copy_reads_what_it_writes,
        operands_have_eager_strides,
    )

    def call(self, graph_module: fx.GraphModule) -> PassResult:
        """Erase no-ops."""
        before = len(graph_module.graph.nodes)  # it only erases nodes
        remove_noops(graph_module, *self.sample_args)
        return PassResult(graph_module, len(graph_module.graph.nodes) != before)


class Reinplace(_Pass):
    """`reinplace` as a pass."""

    needs: ClassVar[tuple[Invariant, ...]] = (is_aten_graph, is_functional)
    # Not `is_functional`: this pass puts mutation back.
    gives: ClassVar[tuple[Invariant, ...]] = (
        is_aten_graph,
        metadata_is_true,
        no_copy_reads_what_it_writes,
        operands_have_eager_strides,
    )

    def __init__(self, *sample_args: object, conditions: Sequence[Condition] = CONDITIONS) -> None:
        super().__init__(*sample_args)
        self.conditions = conditions

    def call(self, graph_module: fx.GraphModule) -> PassResult:
        """Put mutation back."""
        before = str(graph_module.graph)  # a node in place keeps the number of nodes
        reinplace(graph_module, *self.sample_args, conditions=self.conditions)
        return PassResult(graph_module, str(graph_module.graph) != before)


def pipeline(
    function: Callable[..., Any],
    *sample_args: object,
    views: Views = "alias",
    sizes: SizeMode = "fixed",
    strict: bool = False,
    noted: bool = False,
) -> fx.GraphModule:
    """The function, or graph module, functionalized, without no-ops, and reinplaced.

    The keyword arguments are those of `functionalize`. Raises `Refused` if it cannot be compiled
    correctly; with `strict`, also for calls that eager does not define (`undefined_calls`).
    """
    graph_module = capture(function, sample_args, sizes)
    if sizes == "symbolic":
        # The sample arguments have fixed sizes. The fakes of the trace have the symbols.
        sample_args = tuple(
            node.meta["val"] for node in graph_module.graph.nodes if node.op == "placeholder"
        )
    # Only the first pass needs sample arguments: it leaves true metadata for the others.
    first = Functionalize(*sample_args, views=views, strict=strict, noted=noted)
    for graph_pass in (first, RemoveNoOps(), Reinplace()):
        result = graph_pass(graph_module)
        assert result is not None
        graph_module = result.graph_module
    return graph_module
