"""Calls that are undefined in eager: the contents that they leave depend on the kernel.

    x.as_strided((3, 2), (1, 1)).add_(1)     an element is written several times
    y.diagonal().add_(y.view(-1)[0])         an element is read after it may have been written
    x.addmm_(x, x)                           the op reads all of what it writes
    torch._foreach_add_([a, b], [b, a])      one pair reads what another one writes

The graphs of the passes read all operands before they write, and write each element once. A kernel
of eager may do otherwise. So `functionalize(strict=True)` refuses such calls.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch._ops import OpOverload

from aliasproof.reference_pass.alias_analysis import Analysis
from aliasproof.reference_pass.calls.nested import nodes_in, tensors_in
from aliasproof.reference_pass.calls.operator_forms import (
    aten,
    bind,
    facts,
    functional_form,
    is_opaque,
    is_pointwise,
)
from aliasproof.reference_pass.calls.regions import overlap, overlaps_itself
from aliasproof.reference_pass.calls.storages import Geometry
from aliasproof.reference_pass.exceptions import Refused


def refuse_undefined(analysis: Analysis) -> None:
    """Raise `Refused` for a call of the captured graph that is undefined in eager."""
    value, shown = analysis.value, dict[int, Geometry]()  # the geometry that each object has now
    for node, effect in analysis.effects.items():
        op = node.target
        if isinstance(op, OpOverload) and facts(op).writes and not effect.mutated_metadata:
            # For each argument, the geometries of its tensors.
            operands = {
                name: [shown[id(x)] for each in nodes_in(given) for x in tensors_in(value(each))]
                for name, given in bind(op, node.args, node.kwargs).items()
            }
            wrong = next(_undefined(op, operands), None)
            if wrong is not None:
                raise Refused(f"{node.format_node()} {wrong}: undefined in eager")
        shown |= effect.shows | effect.mutated_metadata


def _undefined(op: OpOverload, operands: dict[str, list[Geometry]]) -> Iterator[str]:
    """The reasons why a call is undefined."""
    written = [
        (index, geometry)
        for name in facts(op).writes
        for index, geometry in enumerate(operands.get(name, ()))
    ]
    read = [
        (index, geometry)
        for name in operands.keys() - set(facts(op).writes)
        for index, geometry in enumerate(operands[name])
    ]
    for at, target in written:
        # A fill stores one value everywhere, so the order does not matter.
        if op not in _FILLS and overlaps_itself(target.region):
            yield "writes through a region that overlaps itself"
        if is_opaque(op):
            continue  # its author defines the order, and the graph shares memory as eager does
        for index, operand in read:
            # A pointwise kernel reads an element before it writes it. A foreach op is a loop.
            together = _is_by_element(op) and index == at and target.region.same(operand.region)
            if _shares_bytes(target, operand) and not together:
                yield "reads memory that it is writing at other positions"
        for other, target_too in written:
            if other > at and _shares_bytes(target, target_too):
                yield "writes the same memory twice"


_FILLS = {aten.fill_.Scalar, aten.zero_.default, aten.fill.Scalar_out, aten.zero.out}


def _is_by_element(op: OpOverload) -> bool:
    # For many ops, torch tags only the functional form.
    form = functional_form(op)
    return (
        is_pointwise(op)
        or (form is not None and is_pointwise(form))
        or op is aten.copy_.default
        or op.name().startswith("aten::_foreach_")
    )


def _shares_bytes(one: Geometry, other: Geometry) -> bool:
    return one.storage == other.storage and overlap(one.region, other.region)
