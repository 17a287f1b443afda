"""From a function, a module, or any graph module, to a graph of ATen calls."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import fx
from torch._C._functorch import (
    get_dynamic_layer_stack_depth,
    pop_dynamic_layer_stack_and_undo_to_depth,
)
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch import eager_transforms
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from aliasproof.reference_pass.calls.fake_inputs import another_fake, refuse_without_regions
from aliasproof.reference_pass.calls.operator_forms import aten
from aliasproof.reference_pass.capture.aten_graphs import (
    DECOMPOSITIONS,
    composites_of_eager,
    is_aten,
    normalise,
    refuse_other_calls,
)
from aliasproof.reference_pass.capture.autograd_notes import (
    GradientNotes,
    as_results,
    saves_for_trace_alone,
)
from aliasproof.reference_pass.capture.trace_modes import PythonGuard, Seeds, TraceGuard
from aliasproof.reference_pass.eager.real_runs import NO_DATA, current
from aliasproof.reference_pass.exceptions import DataDependent, Refused

SizeMode = Literal["fixed", "symbolic"]


def capture(
    function: Callable[..., Any],
    sample_args: Sequence[object],
    sizes: SizeMode = "fixed",
    *,
    gradients: bool = False,
) -> fx.GraphModule:
    """The ATen calls of a function as a graph, mutation included.

    A graph of ATen calls is returned unchanged or by `normalise`, unless it must be right for other
    sizes, too. Any other function is traced on fake tensors. So the trace does not write the sample
    arguments, nor the parameters and buffers of a module. Raises `Refused` for a function that
    writes other tensors than these: such a write would already happen in the trace. With
    `gradients`, the function is traced as autograd sees it, for a graph that is differentiated
    later; if torch cannot trace it, the error of torch is raised.
    """
    traced = functools.partial(_trace, sizes=sizes, gradients=gradients)
    if (
        sizes == "fixed"
        and not gradients
        and isinstance(function, fx.GraphModule)
        and is_aten(function, sample_args)
    ):
        captured = normalise(function)
    elif isinstance(function, torch.nn.Module):
        captured = _traced_module(function, sample_args, traced)
    else:
        captured = traced(function, sample_args)
    refuse_other_calls(captured)
    return captured


def _traced_module(
    module: torch.nn.Module, sample_args: Sequence[object], traced: Callable[..., fx.GraphModule]
) -> fx.GraphModule:
    """The trace of a module: its tensors are inputs of the trace, and attributes after it."""
    named = [*module.named_parameters(), *module.named_buffers()]
    names = {tensor: name for name, tensor in named}
    captured = {name: tensor for tensor, name in names.items()}

    # `functional_call` lets the module run on the fakes of the trace instead of its own tensors. A
    # tensor with several names has one fake.
    def called(*tensors_and_args: Any) -> Any:
        given = dict(zip(captured, tensors_and_args, strict=False))
        return torch.func.functional_call(module, given, tensors_and_args[len(captured) :])

    graph_module = traced(called, [*captured.values(), *sample_args])
    # So the graph has the same inputs as the module, and sees later changes of its parameters.
    graph = graph_module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for index, (node, tensor) in enumerate(zip(placeholders, captured.values(), strict=False)):
        name = f"captured_{index}"  # its own name may have dots, which a module refuses
        if isinstance(tensor, torch.nn.Parameter):
            graph_module.register_parameter(name, tensor)
        else:
            graph_module.register_buffer(name, tensor)
        with graph.inserting_before(node):
            attribute = graph.get_attr(name)
        node.replace_all_uses_with(attribute)
        graph.erase_node(node)
    graph_module.recompile()
    return graph_module


def _without_graph(argument: object, gradients: bool) -> Any:
    """An argument of the trace: a tensor as a new leaf, which is in no other autograd graph."""
    if not isinstance(argument, torch.Tensor):
        return argument
    # A new object, since a trace may change the metadata of its arguments, and others may follow.
    leaf = another_fake(argument) if isinstance(argument, FakeTensor) else argument.detach()
    # Some composites test whether an operand requires a gradient: `matmul` folds other dimensions.
    # With gradients, the trace is also one of autograd, and writes to leaves would raise.
    keeps = argument.requires_grad and (gradients or not torch.is_grad_enabled())
    return leaf.requires_grad_() if keeps else leaf


def _trace(
    function: Callable[..., Any], args: Sequence[object], sizes: SizeMode, gradients: bool
) -> fx.GraphModule:
    for argument in args:
        refuse_without_regions(argument)
        if isinstance(argument, (list, tuple, dict)):
            raise Refused(
                f"an argument is a {type(argument).__name__}; pass each tensor in it as an argument"
                " of its own, or call torch.compile"
            )
    traced = functools.partial(_traced, gradients=gradients)
    # If a composite reads a size as a number, it may have a decomposition that does not. With
    # `sizes="symbolic"`, make_fx uses these decompositions itself.
    if any(map(is_symbolic, args)):
        with enable_python_dispatcher():
            return traced(function, args, "fake")
    if sizes == "symbolic":
        return traced(function, args, "symbolic")
    with contextlib.suppress(DataDependent):
        return traced(function, args, "fake")
    with enable_python_dispatcher():
        return traced(function, args, "fake")


def is_symbolic(argument: object) -> bool:
    """True for an argument of a trace that is a symbol, or has symbolic sizes or strides."""
    if isinstance(argument, torch.Tensor):
        return argument._has_symbolic_sizes_strides
    return isinstance(argument, torch.SymInt)


def _traced(
    function: Callable[..., Any],
    args: Sequence[object],
    mode: Literal["symbolic", "fake"],
    gradients: bool,
) -> fx.GraphModule:
    leaves = [_without_graph(argument, gradients) for argument in args]
    # The sizes in bytes of the storages of real tensors.
    nbytes = [
        leaf.untyped_storage().nbytes()
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, FakeTensor)
        else None
        for leaf in leaves
    ]
    # Gradients stay on or off as the caller has them, since the function may compute some
    # (`torch.func.grad`). They need autograd's record of views, which `on_fakes` excludes.
    seeds, notes = Seeds(), GradientNotes() if gradients else None
    function = as_results(function) if gradients else function
    with TraceGuard(seeds, notes), PythonGuard(), composites_of_eager(), saves_for_trace_alone():
        # No mode sees `x.data = y`. It only shows in the storage that x has at the end.
        swapped: list[int] = []
        watched = _watched(function, nbytes, swapped, symbolic=mode == "symbolic")
        trace = make_fx(
            watched,
            decomposition_table=DECOMPOSITIONS,
            tracing_mode=mode,
            _allow_non_fake_inputs=True,
        )
        symbolic = mode == "symbolic" or any(map(is_symbolic, args))
        errors = refusals(symbolic=symbolic) if gradients else _refusals_of(args, symbolic=symbolic)
        with errors, _levels_left():
            graph_module = trace(*leaves)
    seeds.refuse()
    targets = [getattr(node.target, "overloadpacket", None) for node in graph_module.graph.nodes]
    if swapped and aten.set_ not in targets:
        raise Refused(
            f"`x.data = y` on input {swapped[0]} goes past the dispatcher and cannot be traced;"
            " write x.set_(y)"
        )
    for node, argument in zip(graph_module.graph.find_nodes(op="placeholder"), args, strict=True):
        node.meta.setdefault("val", argument)  # not a tensor or symbol: a constant of the graph
    if notes is not None:
        notes.finish(graph_module.graph, leaves)
    _ask_sizes_at_once(graph_module.graph)
    return graph_module


def _ask_sizes_at_once(graph: fx.Graph) -> None:
    """Move each query of a size to where its tensor is made.

    The trace emits it at the first use of the size. A call may have changed the metadata by then:
    after `x.unsqueeze_(0)`, the first size of `x` is another one.
    """
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for node in list(graph.nodes):
        if node.target in _SIZE_QUESTIONS:
            tensor = node.args[0]
            if tensor.op != "placeholder":
                tensor.append(node)
            elif node is not first:
                first.prepend(node)
    graph.lint()


_SIZE_QUESTIONS = {
    *(aten.sym_size.int, aten.sym_stride.int),
    *(aten.sym_numel.default, aten.sym_storage_offset.default),
}


@contextlib.contextmanager
def _refusals_of(args: Sequence[object], *, symbolic: bool) -> Iterator[None]:
    """Turn errors of a trace with these arguments that eager does not raise into `Refused`."""
    try:
        with refusals(symbolic=symbolic):
            yield
    # For storages as arguments, and for an overload named `from`, which is not a Python name.
    except (NotImplementedError, SyntaxError) as error:
        raise Refused(f"the function cannot be traced: {error}") from error
    except RuntimeError as error:
        graded = any(isinstance(each, torch.Tensor) and each.requires_grad for each in args)
        if not (graded and "does not require grad and does not have a grad_fn" in str(error)):
            raise
        raise Refused(
            "the function takes gradients of its arguments, which the trace passes without any;"
            " call torch.func.grad, or torch.compile"
        ) from error


@contextlib.contextmanager
def _levels_left() -> Iterator[None]:
    """If a trace raises, leave all contexts that a graph of Dynamo has entered.

    These are levels of `torch.func`, `no_grad`, and autocast.
    """
    depth, nesting = get_dynamic_layer_stack_depth(), eager_transforms.JVP_NESTING
    was_dual = _is_in_dual_level()
    casts = {device: torch.is_autocast_enabled(device) for device in ("cpu", "cuda")}
    try:
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            yield
    except BaseException:
        pop_dynamic_layer_stack_and_undo_to_depth(depth)
        eager_transforms.JVP_NESTING = nesting
        for device, enabled in casts.items():
            torch.set_autocast_enabled(device, enabled)
        if not was_dual and _is_in_dual_level():
            torch._C._exit_dual_level(level=0)
        raise


def _is_in_dual_level() -> bool:
    """True if forward-mode AD is on."""
    try:
        level = torch._C._enter_dual_level()
    except RuntimeError:  # levels cannot be nested
        return True
    torch._C._exit_dual_level(level=level)
    return False


def _watched(
    function: Callable[..., Any],
    nbytes: Sequence[int | None],
    swapped: list[int],
    *,
    symbolic: bool,
) -> Callable[..., Any]:
    """The function on fakes whose storages have as many bytes as those of the real arguments.

    The storage of a fake ends where the tensor ends, but as_strided may show bytes after that. With
    symbolic sizes, a storage must not grow: the fakes of the trace are the inputs of the graph, and
    would have its later size. Adds to `swapped` the index of each input that ends on another
    storage.
    """

    def called(*args: Any) -> Any:
        # The storages are kept alive, so that no new storage gets the address of one of them.
        tensors = {i: each for i, each in enumerate(args) if isinstance(each, torch.Tensor)}
        storages = {index: tensor.untyped_storage() for index, tensor in tensors.items()}
        before = {index: size for index, size in enumerate(nbytes) if size is not None}
        for index, size in before.items():
            if current(storages[index].nbytes()) < size:  # without a guard
                storages[index].resize_(size)
            before[index] = current(storages[index].nbytes())
        result = function(*args)
        for index, size in before.items():
            if symbolic and current(storages[index].nbytes()) > size:
                raise Refused(
                    f"a resize_ of input {index} past its storage cannot be traced with symbolic"
                    " sizes; trace it with fixed sizes"
                )
        _refuse_named_tuples(result)
        for index, tensor in tensors.items():
            if tensor.untyped_storage()._cdata != storages[index]._cdata:
                swapped.append(index)
            if tensor.is_leaf and tensor.grad is not None:
                raise Refused(f"backward() sets the gradient of input {index}; return it instead")
        return result

    return called


def _refuse_named_tuples(result: object) -> None:
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        raise Refused(
            f"the function returns a {type(result).__name__}, and a graph returns plain tuples;"
            " return tuple(...) of it, or call torch.compile"
        )
    if isinstance(result, (list, tuple, dict)):
        for part in result.values() if isinstance(result, dict) else result:
            _refuse_named_tuples(part)


# --- errors of fakes ------------------------------------------------------------------------------


@contextlib.contextmanager
def refusals(*, symbolic: bool) -> Iterator[None]:
    """Turn errors of fakes that eager does not raise into `Refused`, with a reason for users.

    `symbolic` says if inputs have symbolic sizes. If not, a symbol is a data-dependent size.
    """
    try:
        yield
    except GuardOnDataDependentSymNode as error:
        raise DataDependent(
            f"a size is data-dependent, and the graph depends on it: whether {error.cond}"
        ) from error
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise DataDependent(
            f"the function is data-dependent, and one graph must be right for all data: {error}"
        ) from error
    except UnsupportedOperatorException as error:
        # Fakes run such an operator on real zeros, which need sizes as numbers.
        what = f"{error} has no kernel for tensors without data of"
        raise _needs_number(what, symbolic=symbolic) from error
    except RuntimeError as error:
        if (refused := _refused(str(error), symbolic=symbolic)) is None:
            raise
        raise refused from error


# Errors that C++ kernels, and their replacements in Python, raise only for symbolic sizes.
_NEEDS_NUMBERS = (
    r"Cannot call \w+\(\) on tensor with symbolic|^Expected out tensor to have.*"
    r"|nbytes % dtype_size == 0 INTERNAL ASSERT FAILED|^Expected !size_bytes_is_heap_allocated_"
    r"|SymIntArrayRef expected to contain only concrete integers"
)


def _needs_number(what: str, *, symbolic: bool) -> Refused:
    if symbolic:
        return Refused(f"{what} symbolic size; trace it with fixed sizes")
    return DataDependent(f"{what} a size that is data-dependent")


def _refused(text: str, *, symbolic: bool) -> Refused | None:
    """The reason why fakes raise an error where eager does not; None for any other error."""
    if NO_DATA in text:
        return DataDependent(
            "a size or a branch depends on data, and one graph must be right for all"
        )
    if "tried to directly modify sizes" in text:
        return _needs_number("a resize_ cannot be traced for a tensor of", symbolic=symbolic)
    if why := re.search(_NEEDS_NUMBERS, text):
        what = f"an operator has no kernel ({why[0]}) for tensors of"
        return _needs_number(what, symbolic=symbolic)
    # Whether such a size is broadcast depends on data; `u0` is the symbol of such a size.
    if re.search(r"Attempting to broadcast.*\bu\d", text):
        return DataDependent(f"a size is data-dependent, and the graph depends on it: {text}")
    return None
