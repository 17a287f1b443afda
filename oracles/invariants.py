"""Oracle *rules*: a stage is a well-formed graph, a functional one mutates only at its end, and its metadata is true.

The rules are a table, one a line, and each looks at one run of the stage. They mirror what graphs
are to keep between passes (`torch/_inductor/fx_passes/README.md`). Differences: mutation is what
schemas say, metadata is held against a run on real tensors, and what places nothing (strides and
offset of tensors without elements, strides of dims of size 1) is not compared.

The specification of tinygrad (`tinygrad/uop/spec.py`) is the model for the form.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import fx
from torch._ops import OpOverload

from oracles.stage_run import NodeCall, NodeRun, Operand, Place, StageRun
from oracles.verdict import Report, Verdict, Violation, decided
from programs.definedness import tensors_in

aten = torch.ops.aten


class BrokenInvariant(NamedTuple):
    """Where a rule is broken, and the evidence."""

    node: fx.Node
    evidence: Mapping[str, object]


class Noted(NamedTuple):
    """A tensor of a node, as the metadata has it and as it lay in the run.

    `placed` says that the metadata is of one run on fakes, so that its offset and storage mean
    something. A trace on real tensors notes each value on a fake in a mode of its own
    (`extract_val` in `torch/fx/experimental/proxy_tensor.py`), which has a size, strides and a
    dtype alone.
    """

    node: fx.Node
    meta: torch.Tensor
    place: Place
    placed: bool


class Seen(NamedTuple):
    """What rules look at."""

    run: StageRun
    noted: Sequence[Noted]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: what its violations are called, and a function that finds them.

    `functional` rules judge such stages alone.
    """

    broken: str
    faults: Callable[[Seen], Iterator[BrokenInvariant]]
    functional: bool = False


Differs: TypeAlias = Callable[[torch.Tensor, Place], tuple[object, object] | None]


# --- the graph ------------------------------------------------------------------------------------


def ill_formed(seen: Seen) -> Iterator[BrokenInvariant]:
    """What fx itself asks: each name once, each node in this graph, each target there."""
    if next(used_before_definition(seen), None) is not None:
        return
    graph = seen.run.stage.graph.graph
    try:
        graph.lint()
    except (RuntimeError, ValueError, TypeError) as error:
        yield BrokenInvariant(next(iter(graph.nodes)), {"message": str(error)[:500]})


def used_before_definition(seen: Seen) -> Iterator[BrokenInvariant]:
    defined: set[fx.Node] = set()
    for node in seen.run.stage.graph.graph.nodes:
        for operand in node.all_input_nodes:
            if operand not in defined:
                yield BrokenInvariant(node, {"value": operand.name})
        defined.add(node)


def unused(seen: Seen) -> Iterator[BrokenInvariant]:
    """A call that has no effect but its value, which nobody uses."""
    for each in seen.run.nodes:
        target = each.node.target
        if each.node.users or each.node.op != "call_function":
            continue
        if target is operator.getitem or (
            isinstance(target, OpOverload) and _has_no_effect(target)
        ):
            yield BrokenInvariant(each.node, {})


def _has_no_effect(op: OpOverload) -> bool:
    mutates = any(
        each.alias_info is not None and each.alias_info.is_write for each in op._schema.arguments
    )
    return (
        not mutates
        and bool(op._schema.returns)
        and torch.Tag.nondeterministic_seeded not in op.tags
    )


# --- mutation -------------------------------------------------------------------------------------

# What an epilogue is made of: the contents of inputs, and what a program did to their metadata.
_EPILOGUE = (aten.copy_.default, aten.set_.source_Tensor, aten.resize_.default)


def mutates(seen: Seen) -> Iterator[BrokenInvariant]:
    for node, _ in _mutating(seen.run):
        if node.target not in _EPILOGUE:
            yield BrokenInvariant(node, {"op": str(node.target)})


def writes_elsewhere(seen: Seen) -> Iterator[BrokenInvariant]:
    """The epilogue writes to memory that did not come with an input, or gives a tensor that did not another shape."""
    for node, call in _mutating(seen.run):
        for operand in call.operands if node.target in _EPILOGUE else ():
            if operand.argument == "self" and operand.place.storage not in seen.run.inputs:
                yield BrokenInvariant(
                    node,
                    {
                        "storage": operand.place.storage,
                        "storages of inputs": sorted(seen.run.inputs),
                    },
                )


def computes_late(seen: Seen) -> Iterator[BrokenInvariant]:
    """Once the epilogue has begun, only views are made."""
    begun: fx.Node | None = None
    for each in seen.run.nodes:
        if each.node.target in _EPILOGUE:
            begun = begun or each.node
        elif begun is not None and each.call is not None and _is_new(each, each.call):
            yield BrokenInvariant(each.node, {"epilogue begins with": begun.name})


def reads_late(seen: Seen) -> Iterator[BrokenInvariant]:
    """A read of bytes that the epilogue has overwritten; to return them is none."""
    written: list[tuple[fx.Node, Operand]] = []
    for each in seen.run.nodes:
        if each.call is None:
            continue
        makes = each.call.written or each.call.shows_numbers or _is_new(each, each.call)
        for operand in each.call.read if makes and written else ():
            for by, target in written:
                if target.place.meets(operand.place):
                    evidence = {
                        "argument": operand.argument,
                        "storage": operand.place.storage,
                        "overwritten by": by.name,
                    }
                    yield BrokenInvariant(each.node, evidence)
                    break
        if each.node.target in _EPILOGUE:
            written += [(each.node, operand) for operand in each.call.written]


def _mutating(run: StageRun) -> Iterator[tuple[fx.Node, NodeCall]]:
    return (
        (each.node, each.call) for each in run.nodes if each.call is not None and each.call.mutates
    )


def _is_new(each: NodeRun, call: NodeCall) -> bool:
    """True if a result lies in no operand's storage."""
    known = {operand.place.storage for operand in call.operands}
    return any(place.storage not in known for place in each.places)


# --- metadata -------------------------------------------------------------------------------------


def miscounts(seen: Seen) -> Iterator[BrokenInvariant]:
    """The value is one tensor, and its metadata tells of two, or of none.

    Kernels may leave out (None) what nobody needs.
    """
    for each in seen.run.nodes:
        if each.node.meta.get("val") is None or each.node.op == "output" or _raised(seen.run, each):
            continue
        noted = len(list(tensors_in(each.node.meta["val"])))
        left_out = each.value.count(None) if isinstance(each.value, (list, tuple)) else 0
        if not 0 <= noted - len(each.places) <= left_out:
            yield BrokenInvariant(each.node, {"noted": noted, "in the run": len(each.places)})


def untrue(
    differs: Differs, *, placed: bool = False
) -> Callable[[Seen], Iterator[BrokenInvariant]]:
    """The metadata that differ from the run.

    What means nothing but of one run on fakes is asked of such (`placed`).
    """

    def faults(seen: Seen) -> Iterator[BrokenInvariant]:
        for each in seen.noted:
            difference = None if placed and not each.placed else differs(each.meta, each.place)
            if difference is not None:
                yield BrokenInvariant(
                    each.node, {"noted": difference[0], "in the run": difference[1]}
                )

    return faults


def dtype(meta: torch.Tensor, place: Place) -> tuple[object, object] | None:
    return None if meta.dtype == place.dtype else (str(meta.dtype), str(place.dtype))


def sizes(meta: torch.Tensor, place: Place) -> tuple[object, object] | None:
    return _lists(meta.shape, place.sizes)


def strides(meta: torch.Tensor, place: Place) -> tuple[object, object] | None:
    """Of dims that place something, where the sizes agree."""
    if 0 in place.sizes or sizes(meta, place) is not None:
        return None
    placing = [index for index, size in enumerate(place.sizes) if size != 1]
    noted, strides = meta.stride(), place.strides
    differ = _lists([noted[index] for index in placing], [strides[index] for index in placing])
    return differ and _lists(noted, strides)


def offset(meta: torch.Tensor, place: Place) -> tuple[object, object] | None:
    """Where it starts, if it has elements."""
    if 0 in place.sizes:
        return None
    differ = _lists([meta.storage_offset()], [place.offset])
    return differ and (meta.storage_offset(), place.offset)


def lazy_bits(meta: torch.Tensor, place: Place) -> tuple[object, object] | None:
    """Whether the numbers are to be conjugated, or negated, when they are read."""
    noted = meta.is_conj(), meta.is_neg()
    return None if noted == (place.conj, place.neg) else (list(noted), [place.conj, place.neg])


def _lists(noted: Sequence[Any], real: Sequence[int]) -> tuple[object, object] | None:
    """Both, if they differ. Symbols stand for any number."""
    if len(noted) == len(real) and all(
        one == other for one, other in zip(noted, real, strict=True) if isinstance(one, int)
    ):
        return None
    return [each if isinstance(each, int) else str(each) for each in noted], list(real)


def shares_unnoted(seen: Seen) -> Iterator[BrokenInvariant]:
    """Two values lie in one storage, and their metadata in two."""
    noted_as: dict[int, tuple[int, fx.Node]] = {}
    told: set[tuple[int, int]] = set()
    for each, fake, real in _storages(seen):
        first, node = noted_as.setdefault(real, (fake, each.node))
        if first != fake and (fake, real) not in told:
            told.add((fake, real))
            yield BrokenInvariant(each.node, {"shares storage with": node.name, "storage": real})


def shares_in_vain(seen: Seen) -> Iterator[BrokenInvariant]:
    """The metadata of two values lie in one storage, and the values in two."""
    lies_in: dict[int, tuple[int, fx.Node]] = {}
    told: set[tuple[int, int]] = set()
    for each, fake, real in _storages(seen):
        first, node = lies_in.setdefault(fake, (real, each.node))
        if first != real and (fake, real) not in told:
            told.add((fake, real))
            yield BrokenInvariant(
                each.node, {"is noted to share storage with": node.name, "storages": [first, real]}
            )


def _storages(seen: Seen) -> Iterator[tuple[Noted, int, int]]:
    return (
        (each, each.meta.untyped_storage()._cdata, each.place.storage)
        for each in seen.noted
        if each.placed
    )


RULES: tuple[Rule, ...] = (
    # A graph that fx takes.
    Rule("ill-formed graph", ill_formed),
    # A value is there when it is used.
    Rule("use before definition", used_before_definition),
    # Only copy_, set_ and resize_ write, ...
    Rule("mutation in a functional graph", mutates, functional=True),
    # ... to the memory of inputs alone, ...
    Rule("epilogue writes to what is no input", writes_elsewhere, functional=True),
    # ... after all that is computed, ...
    Rule("computes after the epilogue began", computes_late, functional=True),
    # ... and after all that is read.
    Rule("reads what the epilogue overwrote", reads_late, functional=True),
    # Metadata tells the value: how many tensors it is,
    Rule("metadata has another number of tensors", miscounts),
    # its dtype,
    Rule("metadata has another dtype", untrue(dtype)),
    # its sizes,
    Rule("metadata has another size", untrue(sizes)),
    # its strides,
    Rule("metadata has another stride", untrue(strides)),
    # where it starts in its storage,
    Rule("metadata has another offset", untrue(offset, placed=True)),
    # whether it is conjugated or negated lazily,
    Rule("metadata has other conj or neg bits", untrue(lazy_bits, placed=True)),
    # what it shares a storage with, and what it does not.
    Rule("metadata keeps apart what shares storage", shares_unnoted),
    Rule("metadata shares storage that is not shared", shares_in_vain),
)

# For passes that promise to drop dead code: `make_fx` and `torch.func.functionalize` do not.
TIDY: tuple[Rule, ...] = (
    *RULES,
    # Nothing is computed for nothing.
    Rule("value is never used", unused, functional=True),
)


def judge_stage(run: StageRun, rules: Sequence[Rule] = RULES) -> Report:
    """Hold a stage against the rules.

    If its run raised, the rest is unknown. Nodes without metadata are not judged.
    """
    seen = Seen(run, _noted(run))
    violations = [
        Violation("invariants", rule.broken, run.name(fault.node), fault.evidence)
        for rule in rules
        if run.stage.functional or not rule.functional
        for fault in rule.faults(seen)
    ]
    if run.error is None or violations:
        return decided(violations)
    node, error = run.error
    return Report(
        Verdict.UNKNOWN, reason=f"{run.name(node)} raises {type(error).__name__}: {error}"
    )


def _noted(run: StageRun) -> list[Noted]:
    """All tensors of which the graph has metadata, where these are as many; a list or tuple is gone through in order."""
    metas = (
        (each, list(tensors_in(each.node.meta.get("val"))))
        for each in run.nodes
        if each.node.op != "output"
    )
    found = [
        (each.node, meta, place)
        for each, noted in metas
        if len(noted) == len(each.places)
        for meta, place in zip(noted, each.places, strict=True)
    ]
    modes = [id(getattr(meta, "fake_mode", None)) for _, meta, _ in found]
    placed = len(set(modes)) < len(modes)
    return [Noted(node, meta, place, placed) for node, meta, place in found]


def _raised(run: StageRun, each: NodeRun) -> bool:
    return run.error is not None and run.error[0] is each.node
