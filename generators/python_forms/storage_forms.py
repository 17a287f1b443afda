"""Storages behind tensors, and graph breaks."""

from __future__ import annotations

import torch

from aliasproof.generators.python_forms.tensor_forms import EVERYWHERE, number, view_of
from aliasproof.generators.sketch import Block, Node, Sketch, form


@form("storages", place=EVERYWHERE, weight=2)
def data_written(sketch: Sketch) -> None:
    name = sketch.tensor()
    write = sketch.pick.one(["add_(1)", "mul_(2)", "zero_()", "copy_(0 * {0} + 1)", "t_()"])
    alias = sketch.pick.one([".data", ".detach()"])
    sketch.add(f"{name}{alias}.{write.format(name)}")


@form("storages", place=EVERYWHERE)
def data_assigned(sketch: Sketch) -> None:
    name = sketch.tensor()
    other = sketch.tensor(lambda it: it.dtype == sketch.at(name).dtype)
    sketch.add(
        f"{name}.data = {sketch.pick.one([other, f'{other}.clone()', view_of(sketch, other)])}"
    )


@form("storages", place=EVERYWHERE)
def storage_set(sketch: Sketch) -> None:
    name = sketch.tensor()
    other = sketch.tensor(lambda it: it.dtype == sketch.at(name).dtype)
    sketch.add(f"{name}.set_({view_of(sketch, other)})")


@form("storages")
def resized(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.dim() == 1 and it.shape[0] > 1)
    sketch.add(f"{name}.resize_({sketch.at(name).shape[0] - 1})")


@form("storages")
def strided_view(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.numel() > 2)
    layout = sketch.pick.one(["(2,), (1,)", "(2,), (2,)", "(2, 1), (1, 1)", "(1,), (1,), 1"])
    sketch.add(f"{sketch.fresh('v')} = {name}.as_strided({layout})")


@form("storages")
def numpy_view(sketch: Sketch) -> None:
    """NumPy writes the memory of a tensor."""
    name = sketch.tensor(lambda it: it.dim() > 0)
    array = sketch.fresh("array")
    alias = f"{name}.detach()" if sketch.at(name).requires_grad else name
    sketch.add(f"{array} = {alias}.numpy()", f"{array}[0] = {number(sketch, sketch.at(name))}")


@form("storages", place=EVERYWHERE)
def storage_exchanged(sketch: Sketch) -> None:
    """Do as `torch.utils.swap_tensors` does: two tensor objects exchange everything."""
    name, other = sketch.tensor(), sketch.tensor()
    sketch.add(f"torch.utils.swap_tensors({name}, {other})")


@form("storages", place=EVERYWHERE)
def storage_resized(sketch: Sketch) -> None:
    """Free and reallocate the storage of a tensor, as sharded parameters do; write all of it.

    The program computes the size when it runs: torch writes beyond the end of a storage that is too
    small for its tensor, and a later call may pass a larger tensor.
    """
    name = sketch.tensor(_whole)
    storage, kept, size = f"{name}.untyped_storage()", sketch.fresh(), sketch.fresh("n")
    away = [f"{kept} = {name}.clone()", f"{size} = {storage}.nbytes()", f"{storage}.resize_(0)"]
    back = Block("with torch.no_grad():", [f"{name}.copy_({kept})"])
    grows = f"{storage}.resize_({storage}.nbytes() + 8)"
    lines: list[list[Node]] = [[grows], [*away, f"{storage}.resize_({size})", back]]
    sketch.add(*sketch.pick.one(lines))


def _whole(tensor: torch.Tensor) -> bool:
    bytes_ = tensor.numel() * tensor.element_size()
    return tensor.is_contiguous() and 0 < bytes_ == tensor.untyped_storage().nbytes()


@form("storages", place=EVERYWHERE)
def set_to_storage(sketch: Sketch) -> None:
    name = sketch.tensor()
    other = sketch.tensor(lambda it: it.dtype == sketch.at(name).dtype and it.numel() > 1)
    sketch.add(f"{name}.set_({other}.untyped_storage(), 0, (2,), (1,))")


@form("storages", place=EVERYWHERE, weight=3)
def facts_read(sketch: Sketch) -> None:
    """Properties of a tensor, often read after its storage was exchanged or written."""
    name, other = sketch.tensor(), sketch.tensor()
    facts = [
        f"{name}.is_leaf",
        f"{name}.requires_grad",
        f"{name}.grad_fn is None",
        f"{name}.grad is None",
        f"{name}.dim()",
        f"{name}.shape",
        f"{name}.stride()",
        f"{name}.storage_offset()",
        f"{name}.is_contiguous()",
        f"{name}.dtype",
        f"{name}.retains_grad",
        f"{name}._base is {other}",
        f"{name}._base is None",
        f"{name} is {other}",
        f"{name}.is_set_to({other})",
        f"{name}.data_ptr() == {other}.data_ptr()",
        f"{name}.untyped_storage().data_ptr() == {other}.untyped_storage().data_ptr()",
        f"{name}.untyped_storage().nbytes()",
        f"len({name})",
        "torch.is_grad_enabled()",
    ]
    said = ", ".join(sketch.pick.one(facts) for _ in range(2))
    sketch.add(f"{sketch.fresh('items')} = [{said}]")


@form("storages")
def complex_parts(sketch: Sketch) -> None:
    """Views of the parts of a complex tensor, or of its conjugate."""
    name, view = sketch.tensor(lambda it: it.is_complex()), sketch.fresh("v")
    made = sketch.pick.one(
        [f"{name}.real", f"{name}.imag", f"{name}.conj()", f"torch.view_as_real({name})"]
    )
    write = sketch.pick.one([f"{view}.mul_(2)", f"{name}.add_(1)", f"{view}.copy_({view} + 1)"])
    sketch.add(f"{view} = {made}", write)


@form("storages")
def view_of_other_dtype(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.element_size() == 4 and not it.requires_grad)
    dtype = "int32" if sketch.at(name).dtype.is_floating_point else "float32"
    view = sketch.fresh("v")
    write = sketch.pick.one([f"{view}.zero_()", f"{name}.add_(1)", f"{name}.neg_()"])
    sketch.add(f"{view} = {name}.view(torch.{dtype})", write)


@form("frames", weight=2)
def graph_break(sketch: Sketch) -> None:
    sketch.add(sketch.pick.one(["torch._dynamo.graph_break()", "print(end='')"]))


@form("frames")
def number_of_data(sketch: Sketch) -> None:
    name, other = sketch.tensor(lambda it: it.numel() > 0), sketch.tensor()
    count = sketch.fresh("n")
    sketch.add(f"{count} = {name}.sum().item()", f"{sketch.fresh()} = {other} + {count}")


@form("frames", nests=True)
def condition_on_data(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.numel() > 0 and not it.is_complex())
    positive = bool((sketch.at(name).sum() > 0).item())
    with sketch.inside(Block(f"if {name}.sum() {'>' if positive else '<='} 0:")):
        sketch.statements(2)


@form("frames")
def list_of_data(sketch: Sketch) -> None:
    """Numbers that leave the graph, and return to it after a write."""
    name, numbers = sketch.tensor(lambda it: it.numel() > 0), sketch.fresh("numbers")
    write, fresh = f"{view_of(sketch, name)}.add_(1)", sketch.fresh()
    sketch.add(f"{numbers} = {name}.tolist()", write, f"{fresh} = torch.tensor({numbers})")


@form("frames")
def index_of_data(sketch: Sketch) -> None:
    name = sketch.tensor(lambda it: it.dim() > 0 and it.shape[0] > 0)
    index = sketch.tensor(lambda it: it.dim() > 0 and it.numel() > 0)
    sketch.add(f"{name}[int({index}.argmax().item()) % {sketch.at(name).shape[0]}] = 2")


@form("frames", weight=2)
def function_not_compiled(sketch: Sketch) -> None:
    """A function that Dynamo runs in Python writes a tensor that the graph before it wrote."""
    function, name, other = sketch.fresh("plain"), sketch.tensor(), sketch.tensor()
    body = [sketch.pick.one(["v.add_(1)", "v[0] = 2", "w.copy_(v)", "v = v * 2", "v.t_()"])]
    body.append(f"return {sketch.pick.one(['v', 'w', 'v[0]', '(v, w)', 'v.view(-1)'])}")
    block = Block(f"@torch.compiler.disable\ndef {function}(v, w):", list(body))
    sketch.add(f"{sketch.fresh('r')} = {function}({name}, {other})", definition=block)


@form("frames")
def break_in_helper(sketch: Sketch) -> None:
    """A graph break in a called function, between two writes."""
    function, name, other = sketch.fresh("breaks"), sketch.tensor(), sketch.tensor()
    stop = sketch.pick.one(["torch._dynamo.graph_break()", "print(end='')", "v.sum().item()"])
    body = [
        sketch.pick.one(["v.add_(1)", "u = v.view(-1)", "w = v"]),
        stop,
        sketch.pick.one(["v.mul_(2)", "w.add_(1)", "w = v[...]"]),
        f"return {sketch.pick.one(['v', 'w', 'v * w', '(v, w)'])}",
    ]
    block = Block(f"def {function}(v, w):", list(body))
    sketch.add(f"{sketch.fresh('r')} = {function}({name}, {other})", definition=block)
