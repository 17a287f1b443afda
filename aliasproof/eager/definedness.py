"""Is a program defined in eager? Decided at each ATen call, on the bytes that it reads and writes.

PyTorch raises an error on some writes to overlapping memory and is silently undefined on others. A
compiler may do anything there, so a program with such a call is discarded and never reported. Some
calls run in one order on the current device, though nothing specifies it: these are *unspecified*.
The trace notes them, and the program is compared. `Watch` sees every ATen call below a Python
function, so it judges programs and users' functions alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self
from unittest import mock

import torch
from torch._higher_order_ops.base_hop import BaseHOP
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph
from torch._higher_order_ops.scan import generic_scan, scan_op
from torch._higher_order_ops.strict_mode import strict_mode_op
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._pytree import tree_map

from aliasproof.eager.definedness_rules import (
    ABOUT_ORDER,
    BETWEEN_ARGUMENTS,
    DEFINED_BY_RULES,
    NEVER_RUN,
    RULES,
    Fill,
    converts_out_of_range,
    reads_what_it_writes,
)
from aliasproof.eager.indexed_stores import (
    replaced_elements,
    replaces_elements,
    same_values,
    value_stored,
)
from aliasproof.eager.rounding import moves, rounds_a_number, rounds_again
from aliasproof.eager.trace import InputLocation, StridedChains, Trace
from aliasproof.eager.uninitialised import UninitialisedMemory
from aliasproof.ir.custom_operators import NAMESPACE, READS_AGAIN, READS_LOCATION
from aliasproof.ir.eager_call import (
    EagerCall,
    depends_on_their_order,
    one_by_one,
    operands_overlap,
    refuses_overlap,
    tensors_in,
)
from aliasproof.ir.errors import Rejected, watch_failed
from aliasproof.ir.regions import Region, covers, overlaps_itself
from aliasproof.ir.schemas import Kind, has_fake_kernel, is_composite
from aliasproof.ir.values import clone_inputs

# --- data dependence ------------------------------------------------------------------------------


aten = torch.ops.aten

# These return a Python bool, and torch does not tag them.
_UNTAGGED = {aten.equal.default, aten.is_nonzero.default}


def is_data_dependent(op: OpOverload, arguments: Mapping[str, Any]) -> bool:
    """True if a trace without tensor data cannot continue after this call."""
    if torch.Tag.data_dependent_output in op.tags or op in _UNTAGGED:
        return True
    if torch.Tag.dynamic_output_shape not in op.tags:
        return False
    # The shape of an integer index does not depend on data, but the number of hits in a mask does.
    return op is not aten.index.Tensor or any(
        it is not None and it.dtype in (torch.bool, torch.uint8) for it in arguments["indices"]
    )


def reads_noted(note: Callable[[str], None]) -> AbstractContextManager[object]:
    """Note calls of `tolist` and `numpy`, which read tensor data without calling an operator."""

    def noted(name: str) -> Callable[..., Any]:
        right = getattr(torch.Tensor, name)

        def noting(*args: Any, **kwargs: Any) -> Any:
            note(f"Tensor.{name}")
            return right(*args, **kwargs)

        return noting

    return mock.patch.multiple(torch.Tensor, tolist=noted("tolist"), numpy=noted("numpy"))


# --- higher order ---------------------------------------------------------------------------------


# The kernels of these refuse to run in a dispatch mode.
_STEPS: dict[Any, Callable[..., Any]] = {
    cond_op: lambda chosen, yes, no, operands: (yes if chosen else no)(*operands),
    scan_op: lambda combine, init, xs, others: generic_scan(
        combine, init, xs, additional_inputs=others
    ),
    strict_mode_op: lambda function, operands: function(*operands),
    invoke_subgraph: lambda subgraph, identifier, *operands: _call_subgraph(subgraph, operands),
}


def eager_steps(op: HigherOrderOperator) -> Callable[..., Any] | None:
    """A function that calls the operators of which `op` consists; None if Python has none.

    A dispatch mode that meets `op` calls this function within the mode.
    """
    if op in _STEPS:
        return _STEPS[op]
    if isinstance(op, BaseHOP):
        return lambda subgraph, *operands, **kwargs: _call_subgraph(subgraph, operands)
    # This kernel calls the ops; those for other dispatch keys trace or transform them.
    return op.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)


def _call_subgraph(subgraph: Any, operands: tuple[Any, ...]) -> Any:
    boxed = getattr(subgraph, "_boxed_call", False)
    return subgraph(list(operands)) if boxed else subgraph(*operands)


# --- definedness ----------------------------------------------------------------------------------


class Undefined(Rejected):
    """The program is undefined in eager; the message names the op and says why."""

    harmless = False  # the call can run on copies, to see whether eager refuses it


def why_unjudged(rejected: Rejected) -> str:
    """Why an eager run cannot be compared, for people."""
    if isinstance(rejected, Undefined):
        return f"it is undefined in eager: {rejected}"
    return f"it cannot be judged: {rejected}"


# Zeros of autograd without memory. Within a mode, kernels still read them: torch 2.13 crashes.
_IN_A_MODE: dict[OpOverload, OpOverload] = {aten._efficientzerotensor.default: aten.zeros.default}


# --- the watch ------------------------------------------------------------------------------------


class Watch(TorchDispatchMode):
    """Raises `Undefined` before a call that is undefined in eager, at any depth below a function.

    A call that eager refuses raises eager's error: `require_defined` turns that into `Undefined` if
    nothing catches it. The watch records the run in `trace`, and follows a higher-order operator
    into the calls that it makes. Without `traces`, it only decides what is undefined, which is
    faster, and the trace stays empty. With a `fill`, a cast may meet values that its integer dtype
    does not have.
    """

    supports_higher_order_operators = True

    def __init__(
        self, inputs: Sequence[torch.Tensor] = (), *, traces: bool = True, fill: Fill | None = None
    ) -> None:
        super().__init__()
        self._traces, self._fill = traces, fill
        self.trace = Trace(tuple(map(InputLocation.of, inputs)))
        # Inputs that share a storage may read it as different dtypes from the start.
        dtypes = {(tensor.untyped_storage()._cdata, tensor.dtype): tensor for tensor in inputs}
        seen = Counter(storage for storage, _ in dtypes)
        for (storage, _), tensor in dtypes.items():
            if seen[storage] > 1:
                self.trace.rounding.mixed.add(tensor)
        self._uninitialised = UninitialisedMemory()
        self._noting: list[ExitStack] = []
        self._undefined: Undefined | None = None  # the first one, even if the function catches it
        self._refused: tuple[Exception, Undefined] | None = None  # the last such error of eager
        self._before_resize = 0  # bytes of a storage that the call may lengthen
        self._factor = False  # see `Rounding.note`
        self._strided = StridedChains()
        self._count(inputs, ())

    def __enter__(self) -> Self:
        self._noting.append(ExitStack())
        self._noting[-1].enter_context(self._uninitialised.noting_storages())
        self._noting[-1].enter_context(reads_noted(self._note_read))
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._noting.pop().close()

    def __torch_dispatch__(
        self,
        func: OpOverload | HigherOrderOperator,
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return self._higher_order(func, args, kwargs)
        op: OpOverload = _IN_A_MODE.get(func, func)
        if is_composite(op):  # called by `vmap` in inference mode
            with self:
                return op.decompose(*args, **kwargs)
        return self._watched(op, args, kwargs)

    def _watched(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        call = EagerCall.of(op, args, kwargs)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in call.only_read):
            self.trace.differentiates = True
        expected, mistake = None, None
        try:
            self._refuse_undefined(call)
            expected = value_stored(call.op, call.arguments)
            self._note_operands(call)
        except Undefined as undefined:
            if self._traces and undefined.harmless:
                self._let_eager_refuse(undefined, op, args, kwargs)
            self._undefined = self._undefined or undefined
            raise
        except Rejected:
            raise
        except Exception as reason:  # noqa: BLE001 - nothing is swallowed: it is raised below
            mistake = reason
        # A rule fails on invalid arguments. Then eager raises a better error here.
        result = op(*args, **kwargs)
        if self._fill is not None:
            self._fill.store(call, result)
        if mistake is not None:
            raise watch_failed(op, mistake) from mistake
        try:
            if expected is not None and not same_values(call.written[0], expected):
                raise Undefined(f"{op} writes different values to one position")
            returned = [tensor for tensor in tensors_in(result) if tensor.layout is torch.strided]
            self._note_memory(call, returned)
            if self._traces:
                self._note(call, returned)
        except Rejected:
            raise
        except Exception as reason:
            raise watch_failed(op, reason) from reason
        return result

    def _let_eager_refuse(
        self, undefined: Undefined, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Raise eager's error, if it refuses the call: then nothing undefined runs."""
        given = list(tensors_in([*args, *kwargs.values()]))
        copies = {id(it): copy for it, copy in zip(given, clone_inputs(given), strict=True)}
        copied = tree_map(lambda it: copies.get(id(it), it), (tuple(args), dict(kwargs)))
        try:
            op(*copied[0], **copied[1])
        except Exception as error:
            self.trace.overlap_error |= refuses_overlap(error)
            raised = str(error).split(". ")[0].split("\n")[0]
            refusal = f"{undefined}, and eager raises {type(error).__name__}: {raised}"
            self._refused = error, Undefined(refusal)
            raise error from None

    def require_defined(self, error: Exception | None) -> None:
        """Raise `Undefined` if a call was undefined, even if the function caught that error.

        `error` is the error that the function raised, if any.
        """
        if self._undefined is not None:
            raise self._undefined
        if self._refused is not None and error is self._refused[0]:
            raise self._refused[1]

    def _higher_order(
        self, op: HigherOrderOperator, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        run_steps = eager_steps(op)
        if run_steps is not None:
            with self:
                return run_steps(*args, **kwargs)
        # Its effects on memory are unknown, so its results are compared with a tolerance.
        result = op(*args, **kwargs)
        self.trace.unwatched[str(op)] = None
        for tensor in tensors_in([*args, *kwargs.values(), result]):
            self.trace.written.add(tensor.untyped_storage().data_ptr())
            self.trace.written_regions.add(Region.of(tensor))
            self.trace.rounding.inexact.add(tensor)
        operands = list(tensors_in([*args, *kwargs.values()]))
        self._follow(operands, [*operands, *tensors_in(result)])
        return result

    def shows_unwritten(self, tensor: torch.Tensor) -> bool:
        """True if the tensor covers a byte that was never written."""
        return self._uninitialised.shown_by(tensor)

    def require_initialised(self, tensors: Sequence[torch.Tensor]) -> None:
        """Raise `Undefined` if a result of the function shows memory that was never written."""
        if any(map(self.shows_unwritten, tensors)):
            raise Undefined("returns memory that was never written")

    def _refuse_undefined(self, call: EagerCall) -> None:
        steps, is_view = one_by_one(call), torch.Tag.inplace_view in call.op.tags
        for rule in RULES:
            if is_view and rule in ABOUT_ORDER:  # it writes no data, whatever its schema says
                continue
            reason = next(filter(None, map(rule, steps)), None)
            if reason is None or (rule is converts_out_of_range and self._fill is not None):
                continue
            # Our own operators are defined for arguments that overlap each other.
            if call.op.namespace == NAMESPACE and rule in BETWEEN_ARGUMENTS:
                self.trace.reads_again |= (
                    rule is reads_what_it_writes and str(call.op) in READS_AGAIN
                )
                continue
            # The kernel of an operator that torch does not define is a function of the user. Its
            # effect on overlapping memory is unknown, but it is the same each time.
            if rule not in ABOUT_ORDER or call.op.namespace in DEFINED_BY_RULES:
                undefined = Undefined(f"{call.op} {reason}")
                undefined.harmless = rule not in NEVER_RUN
                raise undefined
            self._note_unspecified(f"{call.op} {reason}")
        if depends_on_their_order(steps):
            self._note_unspecified(f"{call.op} runs one tensor after the other, and they overlap")
        # A view, or a write of only metadata, shows memory without reading it.
        if call.facts.kind is Kind.VIEW or is_view or not self._uninitialised:
            return
        # A store by index replaces elements, and does not read them.
        stored = replaces_elements(call.op.overloadpacket, call.arguments)
        if any(map(self._uninitialised.shown_by, call.only_read if stored else call.read())):
            raise Undefined(f"{call.op} reads memory that was never written")

    def _note_unspecified(self, how: str) -> None:
        self.trace.unspecified = self.trace.unspecified or how

    def _note_operands(self, call: EagerCall) -> None:
        """Note the operands as they are before the call, which may overwrite them."""
        reshapes = torch.Tag.inplace_view in call.op.tags
        if reshapes:
            # The tensor shows this storage afterwards; `resize_` may lengthen it.
            source = call.arguments.get("source", call.written[0])
            shown = source.untyped_storage() if isinstance(source, torch.Tensor) else source
            self._before_resize = shown.nbytes()
        if not self._traces:
            return
        if reshapes:
            self.trace.reshaped |= {tensor.untyped_storage().data_ptr() for tensor in call.written}
        self._factor = rounds_again(call.arguments) or rounds_a_number(call)
        self.trace.rounding.before(call, factor=self._factor)
        self.trace.fused.before(call)

    def _note_memory(self, call: EagerCall, returned: Sequence[torch.Tensor]) -> None:
        """Note which memory was written."""
        # The schema of `t_` and the like says that they write, but they write no data.
        if torch.Tag.inplace_view in call.op.tags:
            resized = call.written[0].untyped_storage()
            self._uninitialised.note_resize(resized, self._before_resize)
            return
        if self._uninitialised and call.written:
            elements = replaced_elements(call.op.overloadpacket, call.arguments)
            for tensor in call.written:
                self._uninitialised.note_write(tensor, elements)
        self._uninitialised.note_results(call.op.overloadpacket.__name__, call.only_read, returned)

    def _note(self, call: EagerCall, returned: Sequence[torch.Tensor]) -> None:
        trace = self.trace
        for tensor in call.written:
            trace.written.add(tensor.untyped_storage().data_ptr())
            trace.written_regions.add(region := Region.of(tensor))
            if overlaps_itself(region):
                trace.overlapping_writes.add(region)
                trace.expanded.add(tensor)
            trace.written_as_strided = trace.written_as_strided or self._strided.has(tensor)
        trace.overlapping_operands = trace.overlapping_operands or operands_overlap(call)
        self._count(returned, [*call.only_read, *call.written])
        operands, made = [*call.only_read, *call.written], [*call.written, *returned]
        trace.rounding.note(call.op, operands, made, factor=self._factor)
        trace.fused.note(call, made, moved=moves(call.op, [*operands, *made]))
        self._follow(operands, made)
        by_schema = bool(call.facts.writes)  # this call may have written nothing
        trace.custom_write |= by_schema and call.op.namespace not in ("aten", "prims")
        trace.reads_location = trace.reads_location or str(call.op) in READS_LOCATION
        trace.random = trace.random or call.facts.random
        trace.without_fake = trace.without_fake or not has_fake_kernel(call.op)
        if trace.data_dependent is None and is_data_dependent(call.op, call.arguments):
            trace.data_dependent = str(call.op)
        self._strided.note(call.op, call.only_read or call.written, returned)
        # Functionalization of torch documents limits for `as_strided`; contracts check these.
        if call.op is aten.as_strided.default:
            base = call.only_read[0]
            shown, given = Region.of(returned[0]), Region.of(base)
            trace.strided_layout |= base.storage_offset() != 0 or not base.is_contiguous()
            trace.overlapping_as_strided = trace.overlapping_as_strided or overlaps_itself(shown)
            trace.outside = trace.outside or not covers(given, shown)

    def _note_read(self, how: str) -> None:
        # During its own calls, and those of the oracles, another mode is the current one.
        if _get_current_dispatch_mode() is self:
            self.trace.data_dependent = self.trace.data_dependent or how

    def _follow(self, operands: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> None:
        """Follow data that the trace tracks into the results that are computed from them."""
        if self.trace.expanded.any(operands):
            for tensor in made:
                self.trace.expanded.add(tensor)
        if torch._C._current_graph_task_id() != -1 or self.trace.gradients.any(operands):
            self.trace.gradients.add_new(made, operands)

    def _count(self, tensors: Sequence[torch.Tensor], known: Sequence[torch.Tensor]) -> None:
        """Add the sizes of storages that are not storages of known tensors."""
        counted = {tensor.untyped_storage()._cdata for tensor in known}
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata not in counted:
                counted.add(storage._cdata)
                self.trace.nbytes += storage.nbytes()
