"""The first run of a graph, in which the results of its calls are compared with its metadata.

The passes reason about fakes. If a fake kernel is wrong about strides, they may take a wrong view,
or put a result where it does not fit, and no error shows it. So a graph is first run as it was
before reinplacing, node by node:

    inputs -> call -> compare -> call -> compare -> ... -> copies to the inputs -> outputs

Such a graph writes its inputs only at its end. If a result differs from its metadata, nothing has
been written yet, and the graph can be made again, with the observed metadata.
"""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from unittest import mock

import torch
from torch import fx
from torch._dynamo.convert_frame import compile_lock
from torch._ops import OpOverload
from torch.utils.checkpoint import get_device_states, set_device_states

from aliasproof.reference_pass.backend.differentiation import Runnable, Trained
from aliasproof.reference_pass.calls.nested import leaves_in, on_values, tensors_in
from aliasproof.reference_pass.calls.operator_forms import bind, writes
from aliasproof.reference_pass.eager.history import is_of_torch
from aliasproof.reference_pass.eager.real_runs import note
from aliasproof.reference_pass.exceptions import Refused


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """The settings of a Dynamo compilation, for a layout that Dynamo does not compile again for.

    A trace changes settings of the process, so two threads must not trace at once. One setting says
    that FX traces: compiled functions refuse that, in any thread, unless a compiler does it.
    """
    is_compiling = mock.patch.object(torch.compiler, "_is_compiling_flag", True)
    with compile_lock, is_compiling, without_collections():
        yield


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Turn garbage collection off: objects of a compilation live on, so a collection frees nothing.

    Collections take a tenth of the time of a first call.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Observed:
    """A compiled graph whose first run is an observed run of `pure`; None for no such run.

    `again` compiles once more; None for a graph with symbols, whose guards are read already.
    `given` is the graph that was compiled: it runs if compiling again does not help. With `frees`,
    a call frees its inputs, as AOTAutograd requires; then the first run always completes on `pure`.
    """

    compiled: Runnable
    pure: fx.GraphModule | None  # None once a run has shown that the metadata is true
    given: fx.GraphModule
    again: Callable[[], Runnable | None] | None
    frees: bool

    MOST_COMPILATIONS: ClassVar = 4

    def __call__(self, inputs: list[Any]) -> Any:
        """Run on these inputs, and clear the list."""
        for _ in range(self.MOST_COMPILATIONS):
            if (pure := self.pure) is None:
                return self.compiled(inputs)
            if self.frees:
                # Each input is freed after its last use, so the run cannot be repeated.
                observer = _Observer(pure, raises=False)
                result = observer.boxed_run(inputs)
                self._conclude(observer.wrong())
                return result
            try:
                result = observed_run(pure, inputs)
            except WrongMetadataError as error:
                self._conclude(error)
            except Unwritten as error:
                result = Trained(self.given, None)(inputs)  # raises what eager raises
                self._give_up(error.__cause__)
                return result
            else:
                self._conclude(None)
                return result
        self._give_up("its metadata is wrong after each compilation")
        return self.compiled(inputs)

    def _conclude(self, wrong: WrongMetadataError | None) -> None:
        """Trust the metadata, or compile again with what was noted."""
        if wrong is None:
            self.pure = self.again = None
            return
        other = None
        reason: object = wrong
        if wrong.is_noted and self.again is not None:
            _log.info("compiled again: %s", wrong)
            try:
                with compiling():
                    other = self.again()
            except Refused as error:
                reason = error
        if isinstance(other, Observed):
            self.compiled, self.pure = other.compiled, other.pure
        else:
            self._give_up(reason)

    def _give_up(self, reason: object) -> None:
        _log.info("not compiled: %s", reason)
        self.compiled, self.pure, self.again = Trained(self.given, None), None, None


class Unwritten(Exception):
    """A call has raised before the graph has written anything."""


class WrongMetadataError(Exception):
    """Calls returned something else than their metadata says.

    `is_noted` says whether that was noted, so that a new compilation has other metadata.
    """

    def __init__(self, reasons: Sequence[str], *, is_noted: bool) -> None:
        super().__init__("; ".join(reasons))
        self.is_noted = is_noted


def observed_run(graph_module: fx.GraphModule, inputs: list[Any]) -> Any:
    """Run a graph that writes its inputs only at its end, and compare each result before that.

    Clears the list. Raises `WrongMetadataError` if a result differs, after it has noted what was
    observed, and `Unwritten` for an error of a call. The inputs, the list, and the default
    generators are then as they were.
    """
    given, numbers, states = list(inputs), torch.get_rng_state(), get_device_states(*inputs)
    observer = _Observer(graph_module)
    try:
        return observer.boxed_run(inputs)
    except Exception as error:
        is_known = isinstance(error, WrongMetadataError) or is_of_torch(error)
        if observer.has_written or not is_known:
            raise
        inputs[:] = given
        torch.set_rng_state(numbers)
        set_device_states(*states)
        # A call may have failed because an operand had other strides than noted.
        raise observer.wrong() or Unwritten from error


class _Observer(fx.Interpreter):
    """Runs a graph, and compares what its calls return with its metadata."""

    def __init__(self, graph_module: fx.GraphModule, *, raises: bool = True) -> None:
        super().__init__(graph_module)
        self.extra_traceback = False  # an error of a kernel is raised unchanged
        self.raises = raises
        self.reasons: list[str] = []
        self.is_noted = self.has_written = False

    def wrong(self) -> WrongMetadataError | None:
        """The differences up to now."""
        return WrongMetadataError(self.reasons, is_noted=self.is_noted) if self.reasons else None

    def run_node(self, n: fx.Node) -> Any:
        """Run a node and compare it; before the first write, raise if any result differs."""
        is_end = n.op == "output" or writes(n.target)
        if is_end and self.raises and (wrong := self.wrong()) is not None:
            raise wrong
        self.has_written = self.has_written or (is_end and n.op != "output")
        result = super().run_node(n)
        if n.op == "call_function" and not is_end:
            self._compare(n, result)
        return result

    def _compare(self, node: fx.Node, result: Any) -> None:
        operands = [(one.meta.get("val"), self.env[one]) for one in node.all_input_nodes]
        wrong = difference(node.meta.get("val"), result, operands)
        if wrong is None:
            return
        self.reasons.append(f"{node.target} returns {wrong}")
        if isinstance(node.target, OpOverload):
            given = on_values(bind(node.target, node.args, node.kwargs), self.env.__getitem__)
            self.is_noted = note(node.target, given, result) or self.is_noted


def difference(noted: Any, result: Any, operands: Sequence[tuple[Any, Any]]) -> str | None:
    """The difference between the noted and the real result of a call; None if there is none.

    `operands` are the noted and the real operands. Symbols in the note are not compared.
    """
    notes, leaves = leaves_in(noted), leaves_in(result)
    if len(notes) != len(leaves):
        return f"{len(leaves)} values for {len(notes)}"
    own = tensors_in([note for note, _ in operands])
    real = tensors_in([value for _, value in operands])
    for note_, leaf in zip(notes, leaves, strict=True):
        if not isinstance(note_, torch.Tensor) or not isinstance(leaf, torch.Tensor):
            continue  # a number, or an optional result that was not requested
        for what, expected, observed in zip(
            ("sizes", "strides", "dtype", "lazy bits", "place"),
            (*_layout(note_), _place(note_, own)),
            (*_layout(leaf), _place(leaf, real)),
            strict=True,
        ):
            if not _agree(expected, observed):
                return f"{what} {observed}, and {expected} on fakes"
    return None


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    # If a number is passed for a tensor, fakes do not have its lazy bits.
    lazy = (tensor.is_conj(), tensor.is_neg()) if tensor.dim() else (False, False)
    return tuple(tensor.shape), tensor.stride(), tensor.dtype, lazy


def _place(tensor: torch.Tensor, operands: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """The operand whose storage a tensor is on, and its distance from it; a new tensor has none.

    Inputs, and copies of their storages, may have other offsets than on fakes. The size of a new
    storage may differ, too: then a view beyond the tensor raises.
    """
    storage, start = tensor.untyped_storage(), tensor.storage_offset() * tensor.itemsize
    for index, operand in enumerate(operands):
        if operand.untyped_storage()._cdata == storage._cdata:
            return index, start - operand.storage_offset() * operand.itemsize
    return -1, 0


def _agree(expected: Any, observed: Any) -> bool:
    if isinstance(expected, tuple):
        return len(expected) == len(observed) and all(map(_agree, expected, observed))
    return not isinstance(expected, (int, bool, torch.dtype)) or bool(expected == observed)
