"""Oracle *invariants*: stages are well-formed, have true metadata, and mutate only at the end.

The invariants are a table, one per line; each checks one run of a stage. They mirror what FX graphs
keep between passes (`torch/_inductor/fx_passes/README.md`), except that:

- a node mutates if its schema says so, or if a version counter changes,
- metadata is compared with a run on real tensors,
- metadata that no access depends on is not compared: strides, offset and storage of tensors without
  elements, and the strides of dims of size 1.

The specification of tinygrad (`tinygrad/uop/spec.py`) is the model for the form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import fx

from aliasproof.eager.trace import Trace
from aliasproof.ir.eager_call import tensors_in
from aliasproof.oracles.contract import Contract, Difference, Promise
from aliasproof.oracles.oracle import Needs, Oracle
from aliasproof.oracles.stage_run import Location, NodeCall, Operand, StageRun
from aliasproof.oracles.verdict import HOLDS, Report, Verdict, Violation, of_all_stages, report_of

# --- noted metadata -------------------------------------------------------------------------------
#
# `Noted`: a tensor's metadata in a graph, and the tensor's location in a run.
#
# Each function at the end of this section compares one property. If the graph and the run differ
# in it, the function returns both values.


NotedAndReal: TypeAlias = tuple[object, object]
Differs: TypeAlias = Callable[[torch.Tensor, Location], NotedAndReal | None]


class Noted(NamedTuple):
    """A tensor of a node: its metadata in the graph, and its location in the run.

    `knows_storage` says whether the metadata comes from one run on fakes, so that its offset and
    storage are valid. A trace on real tensors stores each value as a fake of a separate mode
    (`extract_val` in `torch/fx/experimental/proxy_tensor.py`), with size, strides and dtype only.
    """

    node: fx.Node
    meta: torch.Tensor
    location: Location
    knows_storage: bool


def noted_tensors(run: StageRun) -> list[Noted]:
    """All tensors that have metadata in the graph; lists and tuples are read in order.

    Leaves out a node whose metadata has another number of tensors than its value.
    """
    triples = []
    for node in run.nodes:
        metas = list(tensors_in(node.node.meta.get("val"))) if node.node.op != "output" else []
        if len(metas) == len(node.locations):
            pairs = zip(metas, node.locations, strict=True)
            triples += [(node.node, meta, location) for meta, location in pairs]
    # If two fakes have the same mode, one run on fakes made all of them.
    modes = [id(getattr(meta, "fake_mode", None)) for _, meta, _ in triples]
    knows_storage = len(set(modes)) < len(modes)
    return [Noted(node, meta, location, knows_storage) for node, meta, location in triples]


def dtype(meta: torch.Tensor, location: Location) -> NotedAndReal | None:
    return None if meta.dtype == location.dtype else (str(meta.dtype), str(location.dtype))


def sizes(meta: torch.Tensor, location: Location) -> NotedAndReal | None:
    return _lists(meta.shape, location.sizes)


def strides(meta: torch.Tensor, location: Location) -> NotedAndReal | None:
    """The strides of dims of size 2 or more, where the sizes agree."""
    if 0 in location.sizes or sizes(meta, location) is not None:
        return None
    # An index along a dim of size 1 is always 0, so its stride is never used.
    used = [dim for dim, size in enumerate(location.sizes) if size != 1]
    ours, theirs = meta.stride(), location.strides
    differ = _lists([ours[dim] for dim in used], [theirs[dim] for dim in used])
    return differ and _lists(ours, theirs)


def offset(meta: torch.Tensor, location: Location) -> NotedAndReal | None:
    """The offset in the storage, for tensors with elements."""
    if 0 in location.sizes:
        return None
    # An offset may be symbolic, like sizes and strides.
    differ = _lists([meta.storage_offset()], [location.offset])
    return differ and (meta.storage_offset(), location.offset)


def lazy_bits(meta: torch.Tensor, location: Location) -> NotedAndReal | None:
    """Whether a read conjugates or negates the values."""
    ours = meta.is_conj(), meta.is_neg()
    theirs = location.conj, location.neg
    return None if ours == theirs else (list(ours), list(theirs))


def _lists(noted: Sequence[Any], real: Sequence[int]) -> NotedAndReal | None:
    """Both lists, if they differ. A symbolic value equals any number."""
    if len(noted) == len(real) and all(
        one == other for one, other in zip(noted, real, strict=True) if isinstance(one, int)
    ):
        return None
    return [note if isinstance(note, int) else str(note) for note in noted], list(real)


# --- invariants -----------------------------------------------------------------------------------


aten = torch.ops.aten


MISSING = "metadata is missing"


class BrokenInvariant(NamedTuple):
    """The node that breaks an invariant, and the evidence."""

    node: fx.Node
    evidence: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Invariant:
    """An invariant: the kind of its violations, and a function that finds them.

    `functional` invariants hold for functional stages only. Those on metadata check only
    `node.meta["val"]`.
    """

    broken: str
    faults: Callable[[StageRun], Iterator[BrokenInvariant]]
    functional: bool = False

    @property
    def promise(self) -> Promise:
        """The promise that it belongs to."""
        if self.broken == MISSING:
            return Promise.NOTED
        on_metadata = self.broken.startswith("metadata")
        return Promise.GRAPH_METADATA if on_metadata else Promise.GRAPHS


# --- the graph ------------------------------------------------------------------------------------


def ill_formed(run: StageRun) -> Iterator[BrokenInvariant]:
    """What `Graph.lint` checks: unique names, nodes of this graph, targets that exist."""
    if next(used_before_definition(run), None) is not None:
        return  # lint would report the same fault a second time
    graph = run.stage.graph.graph
    try:
        graph.lint()
    except (RuntimeError, ValueError, TypeError) as error:
        yield BrokenInvariant(next(iter(graph.nodes)), {"message": str(error)[:500]})


def used_before_definition(run: StageRun) -> Iterator[BrokenInvariant]:
    defined: set[fx.Node] = set()
    for node in run.stage.graph.graph.nodes:
        for operand in node.all_input_nodes:
            if operand not in defined:
                yield BrokenInvariant(node, {"value": operand.name})
        defined.add(node)


# --- mutation -------------------------------------------------------------------------------------

# An epilogue writes the contents of inputs (copy_), and their metadata (set_, resize_).
_EPILOGUE = (aten.copy_.default, aten.set_.source_Tensor, aten.resize_.default)


def mutates(run: StageRun) -> Iterator[BrokenInvariant]:
    for node, _ in _mutating(run):
        if node.target not in _EPILOGUE:
            yield BrokenInvariant(node, {"op": str(node.target)})


def writes_elsewhere(run: StageRun) -> Iterator[BrokenInvariant]:
    """The epilogue writes to memory of no input, or changes the metadata of another tensor."""
    for node, call in _mutating(run):
        for operand in call.operands if node.target in _EPILOGUE else ():
            storage = operand.location.storage
            if operand.argument == "self" and storage not in run.inputs:
                evidence = {"storage": storage, "storages of inputs": sorted(run.inputs)}
                yield BrokenInvariant(node, evidence)


def computes_late(run: StageRun) -> Iterator[BrokenInvariant]:
    """A call after the start of the epilogue that computes, so is more than a view."""
    begun: fx.Node | None = None
    for node in run.nodes:
        if node.node.target in _EPILOGUE:
            begun = begun or node.node
        elif begun is not None and node.call is not None and node.new_locations:
            yield BrokenInvariant(node.node, {"epilogue begins with": begun.name})


def reads_late(run: StageRun) -> Iterator[BrokenInvariant]:
    """A read of bytes that the epilogue has overwritten; returning them does not count."""
    written: list[tuple[fx.Node, Operand]] = []
    for node in run.nodes:
        call = node.call
        if call is None:
            continue
        # A view of overwritten bytes does not read them yet.
        reads = call.read if call.written or call.is_data_dependent or node.new_locations else ()
        for operand in reads:
            writers = (it for it, other in written if other.location.overlaps(operand.location))
            if (writer := next(writers, None)) is not None:
                evidence = {
                    "argument": operand.argument,
                    "storage": operand.location.storage,
                    "overwritten by": writer.name,
                }
                yield BrokenInvariant(node.node, evidence)
        if node.node.target in _EPILOGUE:
            written += [(node.node, operand) for operand in call.written]


def _mutating(run: StageRun) -> Iterator[tuple[fx.Node, NodeCall]]:
    for node in run.nodes:
        if node.call is not None and node.call.mutates:
            yield node.node, node.call


# --- metadata -------------------------------------------------------------------------------------


def missing(run: StageRun) -> Iterator[BrokenInvariant]:
    """A value without metadata, in a graph where other values have metadata."""
    if not any("val" in node.node.meta for node in run.nodes):
        return
    for node in run.nodes:
        if node.node.op != "output" and node.locations and "val" not in node.node.meta:
            yield BrokenInvariant(node.node, {"op": str(node.node.target)})


def miscounts(run: StageRun) -> Iterator[BrokenInvariant]:
    """The value has another number of tensors than its metadata.

    A kernel may return None for a result that nobody uses.
    """
    raised = run.error[0] if run.error is not None else None
    for node in run.nodes:
        meta = node.node.meta.get("val")
        if meta is None or node.node.op == "output" or node.node is raised:
            continue
        expected, actual = len(list(tensors_in(meta))), len(node.locations)
        left_out = node.value.count(None) if isinstance(node.value, (list, tuple)) else 0
        if not 0 <= expected - actual <= left_out:
            yield BrokenInvariant(node.node, {"noted": expected, "in the run": actual})


def untrue(
    differs: Differs, *, on_storages: bool = False
) -> Callable[[StageRun], Iterator[BrokenInvariant]]:
    """Metadata that differs from the run.

    With `on_storages`, the property is checked only in metadata with a valid storage.
    """

    def faults(run: StageRun) -> Iterator[BrokenInvariant]:
        for tensor in noted_tensors(run):
            if on_storages and not tensor.knows_storage:
                continue
            difference = differs(tensor.meta, tensor.location)
            if difference is not None:
                evidence = {"noted": difference[0], "in the run": difference[1]}
                yield BrokenInvariant(tensor.node, evidence)

    return faults


def shares(*, as_noted: bool) -> Callable[[StageRun], Iterator[BrokenInvariant]]:
    """Values that share a storage in the run and not in metadata; if `as_noted`, the reverse."""

    def faults(run: StageRun) -> Iterator[BrokenInvariant]:
        first_in: dict[int, tuple[int, fx.Node]] = {}
        reported: set[tuple[int, int]] = set()
        for node, fake, real in _storages(run):
            shared, other = (fake, real) if as_noted else (real, fake)
            first, sharer = first_in.setdefault(shared, (other, node))
            if first != other and (fake, real) not in reported:
                reported.add((fake, real))
                noted = {"is noted to share storage with": sharer.name, "storages": [first, real]}
                really = {"shares storage with": sharer.name, "storage": real}
                yield BrokenInvariant(node, noted if as_noted else really)

    return faults


def _storages(run: StageRun) -> Iterator[tuple[fx.Node, int, int]]:
    """Each tensor's node, its storage in the metadata, and the number of its storage in the run.

    Leaves out tensors without elements: they have no byte to share, and their fakes often have a
    storage of their own, also in torch's cache of fake results.
    """
    for tensor in noted_tensors(run):
        if tensor.knows_storage and 0 not in tensor.location.sizes:
            yield tensor.node, tensor.meta.untyped_storage()._cdata, tensor.location.storage


# --- the table ------------------------------------------------------------------------------------

INVARIANTS: tuple[Invariant, ...] = (
    # A graph that fx accepts.
    Invariant("ill-formed graph", ill_formed),
    # A value exists when it is used.
    Invariant("use before definition", used_before_definition),
    # Only copy_, set_ and resize_ write, ...
    Invariant("mutation in a functional graph", mutates, functional=True),
    # ... only to the memory of inputs, ...
    Invariant("epilogue writes to memory that is not an input", writes_elsewhere, functional=True),
    # ... after everything is computed, ...
    Invariant("computes after the epilogue began", computes_late, functional=True),
    # ... and after everything is read.
    Invariant("reads what the epilogue overwrote", reads_late, functional=True),
    # Each value has metadata.
    Invariant(MISSING, missing),
    # It is true of the value: the number of tensors in it,
    Invariant("metadata has another number of tensors", miscounts),
    # its dtype,
    Invariant("metadata has another dtype", untrue(dtype)),
    # its sizes,
    Invariant("metadata has another size", untrue(sizes)),
    # its strides,
    Invariant("metadata has another stride", untrue(strides)),
    # its offset in its storage,
    Invariant("metadata has another offset", untrue(offset, on_storages=True)),
    # whether it is conjugated or negated lazily,
    Invariant("metadata has other conj or neg bits", untrue(lazy_bits, on_storages=True)),
    # and which values share its storage, and which do not.
    Invariant("metadata does not show that storage is shared", shares(as_noted=False)),
    Invariant("metadata shows shared storage that is not shared", shares(as_noted=True)),
)


def judge(contract: Contract, stages: Sequence[StageRun], trace: Trace) -> Report:
    """Judge each stage."""
    report = of_all_stages([judge_stage(run) for run in stages])
    promises = {invariant.broken: invariant.promise for invariant in INVARIANTS}
    differences = [
        Difference(promises[violation.kind], violation) for violation in report.violations
    ]
    return contract.report(differences, trace, HOLDS) if differences else report


def judge_stage(run: StageRun, invariants: Sequence[Invariant] = INVARIANTS) -> Report:
    """Judge one stage. If its run raised, the rest is unknown."""
    violations = [
        Violation("invariants", invariant.broken, run.name(fault.node), fault.evidence)
        for invariant in invariants
        if run.stage.functional or not invariant.functional
        for fault in invariant.faults(run)
    ]
    if run.error is None or violations:
        return report_of(violations)
    return Report(Verdict.UNKNOWN, reason=run.raised)


ORACLE = Oracle(
    "invariants",
    "the graphs keep the invariants of FX passes",
    Needs.STAGES,
    judge,
)
