"""`aliasing_kinds`: what a program does with storages, without the names of its ops.

Of a reduced program nothing can be left out. So the kinds of its writes and views, and what its
inputs share, tell its cause from others.
"""

from __future__ import annotations

from collections.abc import Iterator

from aliasproof.ir.program import Instruction, Program, names_in
from aliasproof.ir.schemas import Facts, Kind, facts, resolve

# Which kind of view an op makes; each kind is undone in its own way. Other views change the shape.
_VIEWS = {
    "expand": ("expand", "expand_as", "broadcast_to", "broadcast_tensors"),
    "unfold": ("unfold",),
    "as_strided": ("as_strided", "as_strided_"),
    "window": (
        "select", "slice", "narrow", "diagonal", "split", "split_with_sizes", "unbind", "chunk",
        "tensor_split", "hsplit", "vsplit",
    ),
    "complex": ("view_as_real", "view_as_complex", "real", "imag", "_conj", "_neg_view"),
}  # fmt: skip
_KIND_OF_VIEW = {name: kind for kind, names in _VIEWS.items() for name in names}


def aliasing_kinds(program: Program) -> tuple[str, ...]:
    """The kinds of writes, of views of written storages, and of sharing, in order and in words."""
    views, writes = _by_storage(program)
    written = {storage for storage, _ in writes}
    kinds = {f"writes {kind}" for _, kind in writes}
    kinds |= {f"views by {kind}" for storage, kind in views if storage in written}
    if any(_is_scatter(call) for call in program.instructions):
        kinds.add("scatters")
    used = [view.storage for view in program.inputs]
    if len(set(used)) < len(used):
        kinds.add("inputs share a storage")
    return tuple(sorted(kinds))


def _by_storage(program: Program) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The views and the writes of a program, each with a name for its storage."""
    storage_of = {view.name: f"storage {view.storage}" for view in program.inputs}
    views, writes = [], []
    for call in program.instructions:
        known = facts(resolve(call.op))
        operands = [storage_of[name] for name in _operands(call)]
        if known.kind is Kind.VIEW and operands:
            views.append((operands[0], _kind_of_view(call.op)))
        kind = _kind_of_write(known)
        writes += [(storage_of[name], kind) for name in _written_operands(call, known)]
        # A result of an op that makes no alias is a storage of its own.
        aliasing = known.kind in {Kind.VIEW, Kind.IN_PLACE} and bool(operands)
        for result in call.results:
            storage_of[result] = operands[0] if aliasing else result
    return views, writes


def _operands(call: Instruction) -> Iterator[str]:
    yield from names_in((call.args, tuple(value for _, value in call.kwargs)))


def _written_operands(call: Instruction, known: Facts) -> Iterator[str]:
    arguments = known.op._schema.arguments
    given = dict(call.kwargs)
    for index in known.writes:
        value = call.args[index] if index < len(call.args) else given.get(arguments[index].name)
        yield from names_in((value,))


def _kind_of_view(op: str) -> str:
    _, name, overload = op.split(".")
    if name == "view" and overload == "dtype":
        return "dtype"
    return _KIND_OF_VIEW.get(name, "shape")


def _kind_of_write(known: Facts) -> str:
    """How the op writes: into an output argument, a plain store, at indices, or in place."""
    name = known.op.overloadpacket.__name__
    if known.kind is Kind.OUT:
        return "out="
    if known.overwrites:
        return "by a store"
    if name.startswith(("index_", "scatter", "masked_", "put_")):
        return "at indices"
    return "in place"


def _is_scatter(call: Instruction) -> bool:
    return call.op.split(".")[1].endswith("_scatter")
