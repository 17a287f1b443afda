"""The first chapter: functionalization and reinplacing of simple tensors, in one file.

    python docs/first_chapter.py        prints the graphs of the example at its end

Read it before `aliasproof/reference_pass`, which has the same parts. Here, each part is as small as
it can be for simple tensors. There, each file says which line of this one is wrong for others.
The problem is that a tensor is not a value but a *view* of memory, its *storage*:

    def program(x):
        a = x * 2
        b = a[0]
        b.add_(1)
        return a.sum()

Only the first and the last line name `a`, but the third one changes its sum. So a compiler may not
move `sum` before `add_`, because `a` is another value there. *Functionalization* gives each value a
name of its own. A write makes a new value, and everything that shows the written memory gets one:

    a  = mul(x, 2)
    b  = select(a, 0, 0)
    b1 = add(b, 1)
    a1 = select_scatter(a, b1, 0, 0)        a copy of a, with b1 as row 0
    return sum(a1)

That costs memory, because a new value needs new memory. *Reinplacing*, the second half of this
file, puts mutation back where nobody can tell the difference.

Both are right for one graph of ATen calls whose inputs and results are contiguous tensors. Each
input fills its storage, and no two inputs share one. Sizes are constants of the trace. The rest is
`Refused`, because a pass that guesses is silently wrong. Refused are views by strides
(`as_strided`), of another dtype, or in a list (`split`); writes to `expand`; and calls that change
which memory a tensor shows (`t_`, `set_`, `resize_`), that have no functional form (`out=`,
operators on lists), or that draw random numbers.

Outputs have the values of eager, and share memory with inputs and with each other as in eager.
Their strides may differ. Autograd is not considered: trace without gradients.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._subclasses import fake_tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg

aten = torch.ops.aten


class Refused(Exception):
    """This chapter has no right answer for the program."""


# --- 1. A graph under construction ----------------------------------------------------------------
#
# The new graph is built call by call. Each call also runs on *fake* tensors, which have size, dtype
# and strides, but no data. To undo a reshape, for example, we need the size before it.


@dataclass
class Emitter:
    graph: fx.Graph = field(default_factory=fx.Graph)
    mode: fake_tensor.FakeTensorMode = field(default_factory=fake_tensor.FakeTensorMode)

    def call(self, op: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = self.graph.call_function(op, args, kwargs)
        given, named = map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
        with self.mode:
            node.meta["val"] = op(*given, **named)
        return node

    def contiguous(self, value: fx.Node) -> fx.Node:
        if value.meta["val"].is_contiguous():
            return value
        return self.call(aten.clone.default, value, memory_format=torch.contiguous_format)


# --- 2. Views and their inverses ------------------------------------------------------------------
#
# A view op shows a part of its *parent*, or all of it in another shape. A write to the view changes
# the parent. The *inverse* of the view op computes the new value of the parent, from its old value
# and the new value of the view. Where the view shows a part, the rest comes from the old parent, so
# the inverse is a *scatter*:
#
#     v = select(p, dim, index)           p1 = select_scatter(p, v1, dim, index)
#
# Where it shows everything, nothing of the old parent is left, so the inverse is a view back, such
# as `p1 = t(v1)` for `v = t(p)`.

Arguments: TypeAlias = tuple[Any, ...]  # of a view op, after its parent
# (emitter, old value of the parent, new value of the view, arguments) -> new value of the parent
Inverse: TypeAlias = Callable[[Emitter, fx.Node, fx.Node, Arguments], fx.Node]


def scatter(op: object) -> Inverse:
    return lambda emit, parent, new, args: emit.call(op, parent, new, *args)


def same_order(emit: Emitter, parent: fx.Node, new: fx.Node, args: Arguments) -> fx.Node:
    """The view has the elements of its parent in the same order, so only the shape is undone."""
    # `view` needs fitting strides. A computed value may have others: `add(t(x), 1)` has `t(x)`'s.
    return emit.call(aten.view.default, emit.contiguous(new), list(parent.meta["val"].shape))


def swap_back(emit: Emitter, parent: fx.Node, new: fx.Node, args: Arguments) -> fx.Node:
    return emit.call(aten.transpose.int if args else aten.t.default, new, *args)


def permute_back(emit: Emitter, parent: fx.Node, new: fx.Node, args: Arguments) -> fx.Node:
    dims = [dim % len(args[0]) for dim in args[0]]
    return emit.call(aten.permute.default, new, [dims.index(dim) for dim in range(len(dims))])


VIEWS: dict[object, Inverse | None] = {
    aten.alias.default: same_order,
    aten.detach.default: same_order,
    aten.view.default: same_order,
    aten._unsafe_view.default: same_order,
    aten.squeeze.default: same_order,
    aten.squeeze.dim: same_order,
    aten.squeeze.dims: same_order,
    aten.unsqueeze.default: same_order,
    aten.t.default: swap_back,
    aten.transpose.int: swap_back,
    aten.permute.default: permute_back,
    aten.select.int: scatter(aten.select_scatter.default),
    aten.slice.Tensor: scatter(aten.slice_scatter.default),
    aten.diagonal.default: scatter(aten.diagonal_scatter.default),
    aten.expand.default: None,  # one element has two new values: which one is stored?
}


# --- 3. Storages, and views of them ---------------------------------------------------------------
#
# The contents of a storage are the value of its *base*, the tensor that was made with it. The base
# shows each byte of the storage once, because inputs fill their storages, and results are
# contiguous. So each other tensor on it is reached from the base, by a chain of view ops: after
# `b = a.view(4, 2); c = b[0]` the chain of `c` is `view`, `select`, and the base is `a`.
#
# A write through `c` only queues its new value with the storage, because often `c` is used next. If
# another view is used, the update is *applied* first: it goes up the chain of `c`, by the inverse
# of each view op, to a new base. Then the other view is *regenerated* from it, down its own chain.


@dataclass(eq=False)
class View:
    """A tensor of the program; the base of its storage if it has no parent."""

    storage: Storage
    parent: View | None = None
    op: object = None
    args: Arguments = ()


@dataclass(eq=False)
class Storage:
    base: fx.Node
    queued: tuple[View, fx.Node] | None = None
    # The value of each view, computed from this base. Each view is emitted once.
    regenerated: dict[View, fx.Node] = field(default_factory=dict)

    def set_base(self, value: fx.Node) -> None:
        self.base, self.queued = value, None
        self.regenerated.clear()  # these values show the old contents


Inputs: TypeAlias = dict[fx.Node, Storage]


def read(emit: Emitter, view: View) -> fx.Node:
    queued = view.storage.queued
    if queued is not None and queued[0] is view:
        return queued[1]
    apply(emit, view.storage)
    return regenerate(emit, view)


def write(view: View, value: fx.Node) -> None:
    # The queue has room for one update, because each call reads the view that it writes. So an
    # update in the queue is an older value of this view.
    view.storage.queued = view, value


def apply(emit: Emitter, storage: Storage) -> None:
    if storage.queued is None:
        return
    view, value = storage.queued
    while view.parent is not None:
        inverse = VIEWS[view.op]
        if inverse is None:
            raise Refused(f"a write through {view.op}, which has no inverse; write to its parent")
        value = inverse(emit, regenerate(emit, view.parent), value, view.args)
        view = view.parent
    # A base stays contiguous, so each view op gets the strides that it gets in eager.
    storage.set_base(emit.contiguous(value))


def regenerate(emit: Emitter, view: View) -> fx.Node:
    if view.parent is None:
        return view.storage.base
    made = view.storage.regenerated
    if view not in made:
        made[view] = emit.call(view.op, regenerate(emit, view.parent), *view.args)
    return made[view]


# --- 4. Functionalization -------------------------------------------------------------------------
#
# One walk over the graph, as in an interpreter. It keeps the `View` that each node returned. A call
# does one of three things:
#
#     view(Tensor(a) self, ...)           returns a view: none is emitted yet, it might become stale
#     add_(Tensor(a!) self, ...)          writes `self`: its functional form, whose result is queued
#     add(Tensor self, ...)               neither: the same call, whose result is a new storage


def functionalize(function: Callable[..., Any], *sample_args: torch.Tensor) -> fx.GraphModule:
    """The same function without mutation, except a `copy_` into each input that it writes."""
    require_simple_inputs(sample_args)
    try:
        return without_mutation(make_fx(function, tracing_mode="fake")(*sample_args), sample_args)
    except (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException):
        raise Refused("a size, or a number, depends on data") from None


def without_mutation(captured: fx.GraphModule, samples: Sequence[torch.Tensor]) -> fx.GraphModule:
    emit = Emitter()
    inputs: Inputs = {}
    views: dict[fx.Node, View] = {}
    values: dict[fx.Node, fx.Node] = {}  # of all calls that return no view; some return tuples

    def current(node: fx.Node) -> fx.Node:
        return read(emit, views[node]) if node in views else values[node]

    for node in captured.graph.nodes:
        if node.op == "placeholder":
            new = emit.graph.placeholder(node.target)
            new.meta["val"] = emit.mode.from_tensor(samples[len(inputs)])
            inputs[new] = Storage(new)
            views[node] = View(inputs[new])
        elif node.op == "output":
            finish(emit, inputs, views, node.args[0])
        elif node.target in VIEWS:
            parent, *args = node.args
            views[node] = View(views[parent].storage, views[parent], node.target, tuple(args))
        elif writes(node.target):
            form = functional_form(node.target)
            views[node] = views[node.args[0]]  # the call returns the tensor that it writes
            args, kwargs = map_arg((node.args, node.kwargs), current)
            new, dtype = emit.call(form, *args, **kwargs), args[0].meta["val"].dtype
            # `ge_` keeps the dtype of what it writes, and `ge` returns a bool.
            if new.meta["val"].dtype != dtype:
                new = emit.call(aten._to_copy.default, new, dtype=dtype)
            write(views[node], new)
        else:
            require_simple_call(node.target)
            args, kwargs = map_arg((node.args, node.kwargs), current)
            values[node] = new = emit.call(node.target, *args, **kwargs)
            if isinstance(new.meta["val"], torch.Tensor):
                if not new.meta["val"].is_contiguous():
                    raise Refused(f"the result of {node.target} is not contiguous")
                views[node] = View(Storage(new))
    # Some results are not used, such as a view of which only the size was needed.
    for node in reversed(emit.graph.nodes):
        if node.op == "call_function" and not node.users and not writes(node.target):
            emit.graph.erase_node(node)
    return fx.GraphModule({}, emit.graph)


# The caller sees the memory of inputs and outputs, so mutation is put back at the end, in the
# *epilogue*. Each input whose storage has a new base is overwritten with that base. Then the
# outputs are regenerated. An output on the storage of an input is regenerated from that input,
# because in eager it shares the input's memory. Outputs on one new storage are regenerated from one
# base, for the same reason. A queued value shares no memory, so all updates are applied first.


def finish(emit: Emitter, inputs: Inputs, views: dict[fx.Node, View], output: Any) -> None:
    # All new contents are computed first: those of one input may depend on old ones of another.
    for view in views.values():
        apply(emit, view.storage)
    for argument, storage in inputs.items():
        if storage.base is not argument:
            emit.call(aten.copy_.default, argument, storage.base)
            storage.set_base(argument)
    emit.graph.output(map_arg(output, lambda node: read(emit, views[node])))


# Each check below is a premise of a line above. The schema says what a call does.


def require_simple_inputs(inputs: Sequence[torch.Tensor]) -> None:
    storages = {tensor.untyped_storage()._cdata for tensor in inputs}
    for tensor in inputs:
        lazy = tensor.is_conj() or tensor.is_neg()
        filled = tensor.untyped_storage().nbytes() == tensor.nbytes
        if lazy or not filled or not tensor.is_contiguous() or len(storages) < len(inputs):
            raise Refused("inputs must be contiguous, and have storages of their own; pass clones")


def require_simple_call(op: Any) -> None:
    if op is operator.getitem:  # one result of a call
        return
    if not isinstance(op, torch._ops.OpOverload):
        raise Refused(f"{op} is no call of an ATen operator; constants have to be inputs")
    is_view = not writes(op) and any(result.alias_info for result in op._schema.returns)
    if is_view or "as_strided" in op._schema.name:  # `as_strided_copy` reads around its operand
        raise Refused(f"{op} may show more than its operand, or is a view that is not in VIEWS")
    if found := {"inplace_view", "nondeterministic_seeded"} & {tag.name for tag in op.tags}:
        raise Refused(f"{op} is {found}")


def writes(op: Any) -> bool:
    return isinstance(op, torch._ops.OpOverload) and op._schema.is_mutable


def functional_form(op: Any) -> Any:
    """`add` for `add_`: it returns what `add_` writes to its first argument."""
    require_simple_call(op)
    form = overload(op._schema.name.removesuffix("_"), op)
    if form is None or writes(form) or str(op._schema.arguments[0].type) != "Tensor":
        raise Refused(f"{op} has no functional form")
    return form


def in_place_form(op: Any) -> Any:
    """`add_` for `add`; None if there is none."""
    form = overload(op._schema.name + "_", op) if hasattr(op, "_schema") else None
    return form if writes(form) else None


def overload(name: str, like: Any) -> Any:
    """The operator of this name with the same arguments and number of results; or None."""
    form = getattr(getattr(aten, name.removeprefix("aten::"), None), like._overloadname, None)
    if form is None or len(form._schema.returns) != len(like._schema.returns):
        return None
    one, other = ([(a.name, str(a.type)) for a in op._schema.arguments] for op in (form, like))
    return form if one == other else None


# --- 5. Where a value is --------------------------------------------------------------------------
#
# The graph is functional now, and `b = add(a, 1)` is to become `b = add_(a, 1)`, which needs no new
# memory. Whether that is safe depends on which values share memory. The graph shows it: a view is
# in the memory of its parent, and a call in place returns its operand. So the *location* of a value
# is the node that made its memory, and the view ops from there: after `b = add_(a, 1)`,
# `select(b, 0, 0)` is at `(a, (select, 0, 0))`. Equal locations are the same bytes. Other locations
# in the memory of one node may overlap, and it is safe to assume that they do.

Location: TypeAlias = tuple[Any, ...]
SCATTERS: dict[object, Any] = {
    aten.select_scatter.default: aten.select.int,
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.diagonal_scatter.default: aten.diagonal.default,
}


def location(value: Any) -> Location:
    if value.target in VIEWS:
        return (*location(value.args[0]), (value.target, *value.args[1:]))
    return location(value.args[0]) if writes(value.target) else (value,)


def stored_over(node: Any) -> Location:
    """The location at which a scatter stores its source: a view of its base."""
    base, _source, *args = node.args
    return (*location(base), (SCATTERS[node.target], *args))


def operands(node: fx.Node) -> list[fx.Node]:
    """The operands of a node; an operand that occurs twice is in the list twice."""
    found: list[fx.Node] = []
    map_arg((node.args, node.kwargs), found.append)
    return found


# --- 6. Candidates, and when they are safe --------------------------------------------------------
#
# A functional call may write its result into its first operand. A scatter may store its source into
# its base, which saves the copy of the base; then all users of `a1` use `a`:
#
#     b  = add(a, 1)                          b = add_(a, 1)
#     a1 = select_scatter(a, source, 0, 0)    v = select(a, 0, 0);  copy_(v, source)
#
# Both write at a location in the memory of the first operand. Four conditions say when nobody can
# tell the difference. The numbers are those of `torch.fx.passes.reinplace.reinplace`.


@dataclass(frozen=True)
class Candidate:
    node: fx.Node
    operand: fx.Node
    written: Location


def candidate_of(node: fx.Node) -> Candidate | None:
    operand = node.args[0] if node.args else None
    if node.op != "call_function" or not isinstance(operand, fx.Node):
        return None
    if node.target in SCATTERS:
        return Candidate(node, operand, stored_over(node))
    if node.target in VIEWS or in_place_form(node.target) is None:
        return None
    return Candidate(node, operand, location(operand))


def same_layout(candidate: Candidate) -> bool:
    """(1a) The result fits: `ge(a, 0)` is a bool, and `add(ones(1), ones(10))` is larger."""
    # Strides must match, since a later `view` may need them. So `ones(1).expand(4)` is not written.
    one, other = candidate.operand.meta["val"], candidate.node.meta["val"]
    return (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())


def not_an_input(candidate: Candidate) -> bool:
    """(1b) The written memory is not that of an input, because the caller would see the write."""
    made_by: fx.Node = candidate.written[0]
    return made_by.op != "placeholder"


def no_other_operand(candidate: Candidate) -> bool:
    """(1c) No other operand shares the memory: `addmm_(a, a, a)` would read what it has written."""
    _operand, *others = operands(candidate.node)
    if is_stored(candidate):  # then nothing is written
        _source, *others = others
    return all(location(other)[0] is not candidate.written[0] for other in others)


def no_later_use(candidate: Candidate) -> bool:
    """(2) No later call reads this memory, because it would need the old contents.

    (2a) To take a view is not a read. (2c) A scatter does not read what it stores over. Without
    (2c) no write through a view would be in place: if `b1 = add(b, 1)` is written into row 0 of
    `a`, the next call is `select_scatter(a, b1, 0, 0)`, but that only reads the other rows.
    """
    nodes = list(candidate.node.graph.nodes)
    for later in nodes[nodes.index(candidate.node) + 1 :]:
        reads = [] if later.target in VIEWS else operands(later)
        over = stored_over(later) if later.target in SCATTERS else ()
        if over and candidate.written[: len(over)] == over:
            _base, *reads = reads
        if any(location(operand)[0] is candidate.written[0] for operand in reads):
            return False
    return True


CONDITIONS = (same_layout, not_an_input, no_other_operand, no_later_use)


def is_stored(candidate: Candidate) -> bool:
    """True for a scatter whose source is already where it would be stored."""
    scatters = candidate.node.target in SCATTERS
    return scatters and location(candidate.node.args[1]) == candidate.written


# --- 7. Reinplacing -------------------------------------------------------------------------------
#
# One walk, in order. Each candidate is decided on the graph as earlier decisions left it: above,
# `add` becomes `add_` first, so the source of the scatter is where it would be stored, and the
# scatter is erased. No output gets a new alias: the memory is used later only through the result
# (`no_later_use`), and the caller does not have it (`not_an_input`).


def reinplace(
    graph_module: fx.GraphModule,
    conditions: Sequence[Callable[[Candidate], bool]] = CONDITIONS,
) -> fx.GraphModule:
    """Put the calls of a graph in place where that is safe. Changes the graph module."""
    graph = graph_module.graph
    for node in list(graph.nodes):
        candidate = candidate_of(node)
        if candidate is None or not all(holds(candidate) for holds in conditions):
            continue
        if node.target not in SCATTERS:
            node.target = in_place_form(node.target)
            continue
        if not is_stored(candidate):
            with graph.inserting_before(node):
                view = graph.call_function(SCATTERS[node.target], (node.args[0], *node.args[2:]))
                graph.call_function(aten.copy_.default, (view, node.args[1]))
        node.replace_all_uses_with(candidate.operand)
        graph.erase_node(node)
    graph_module.recompile()
    return graph_module


def example(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a = x * 2
    a.view(2, 4)[0].add_(1)
    x.mul_(a)
    return a, x.view(4, 2)


if __name__ == "__main__":
    functional = functionalize(example, torch.ones(8))
    print(f"functional:{functional.code}")
    print(f"in place:{reinplace(functional).code}")
