"""Graphs as torch prints them: accepted and refused texts, and the inputs that they get."""

import io
from contextlib import redirect_stdout

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd

from aliasproof.formats.printed_graph import is_printed, read_printed
from aliasproof.ir.errors import UserError

HEAD = "class GraphModule(torch.nn.Module):\n    def forward(self, "
CAPTURED: list[str] = []


def function(x, y, buffer):
    z = x[1:].view(-1)
    z += 1
    x[0] = 5
    z.mul_(y.shape[0])
    w = torch.nn.functional.gelu(y.float()) + float("inf")
    a, b = w.split(2)
    with torch.no_grad():
        b.add_(buffer[0])
    plain = torch.zeros(2, dtype=torch.float64, device="cpu")
    return plain, a.to(torch.bfloat16), z.transpose(0, 0), torch.full((2,), -1.5), -z, z @ z, z < 2


def inputs() -> tuple[torch.Tensor, ...]:
    return torch.arange(4.0), torch.arange(12).reshape(4, 3).t(), torch.arange(3.0)


def printed(graph: torch.fx.GraphModule) -> str:
    with redirect_stdout(io.StringIO()):
        return str(graph.print_readable(print_output=False, include_stride=True))


def keeping(graph: torch.fx.GraphModule, _: object) -> object:
    CAPTURED.append(printed(graph))
    return graph.forward


@pytest.mark.parametrize("layer", ["Dynamo", "AOTAutograd"])
def test_what_torch_prints_is_read_and_does_the_same(layer: str) -> None:
    CAPTURED.clear()
    backend = keeping if layer == "Dynamo" else aot_autograd(fw_compiler=keeping)
    torch._dynamo.reset()
    torch.compile(function, backend=backend)(*inputs())
    (text,) = CAPTURED
    read = read_printed(text)
    tensors = [it for it in read.inputs if isinstance(it, torch.Tensor)]
    layouts = [(it.shape, it.stride(), it.dtype) for it in tensors]
    assert layouts == [(it.shape, it.stride(), it.dtype) for it in inputs()]
    expected, actual = function(*inputs()), read.module(*inputs())
    if layer == "Dynamo":  # AOTAutograd also returns the values that it writes
        for one, other in zip(expected, actual, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_a_log_has_a_prefix_on_each_line_and_several_graphs() -> None:
    body = [
        " ===== Forward graph 0 =====",
        " /a/b.py class <lambda>(torch.nn.Module):",
        '    def forward(self, x: "f32[2][1]cpu"):',
        "        # code: x + 1",
        "        add = torch.ops.aten.add.Tensor(x, 1);  x = None",
        "        return (add,)",
        "",
    ]
    prefix = "V1126 01:17:43.750000 6284 torch/_x/y.py:2835] [0/0] [__aot_graphs] "
    lines = [prefix + line for line in [*body, *body]]
    text = "\n".join(["TRACED GRAPH", *lines, "done"]).replace("add.Tensor", "mul.Tensor", 1)
    with pytest.raises(UserError, match=r"there are 2 graphs.*\n  1: Forward graph 0 \(1 inputs"):
        read_printed(text)
    assert "mul" in read_printed(text, 1).module.code
    assert "aten.add" in read_printed(text, 2).module.code
    with pytest.raises(UserError, match="there is no graph 3"):
        read_printed(text, 3)


SCRIPT = """
import torch
class Repro(torch.nn.Module):
    def forward(self, arg0_1, arg1_1, arg2_1):
        copy_ = torch.ops.aten.copy_.default(arg0_1, arg1_1);  copy_ = None
        return (torch.ops.aten.mul.Tensor(arg0_1, arg2_1),)

def load_args(reader):
    buf0 = reader.storage(None, 40, dtype_hint=torch.int64)
    reader.tensor(buf0, (4,), dtype=torch.int64, is_leaf=True)  # arg0_1
    reader.tensor(buf0, (2, 2), (1, 0), dtype=torch.int64, storage_offset=1)  # arg1_1
    reader.symint(7)  # arg2_1
load_args._version = 0
mod = Repro()
"""


def test_the_script_of_a_minifier_says_what_shares_a_storage() -> None:
    read = read_printed(SCRIPT)
    first, second, third = read.inputs
    assert isinstance(first, torch.Tensor)
    assert isinstance(second, torch.Tensor)
    assert first.untyped_storage()._cdata == second.untyped_storage()._cdata
    assert (second.stride(), second.storage_offset(), third) == ((1, 0), 1, 7)
    assert not any("share" in note for note in read.notes)
    assert is_printed(SCRIPT, "program")
    assert not is_printed(SCRIPT, "load_args")
    assert not is_printed("def program(x):\n    return x\n", "program")


def test_what_a_text_leaves_open_is_told() -> None:
    text = (
        f'{HEAD}s0: "Sym(s0)", x: "f32[s0 - 1, 2]", y: "f32[2]cuda:0"):\n'
        '        c: "i64[]" = self._tensor_constant0\n'
        "        return (x, c)\n"
    )
    read = read_printed(text)
    size, x, _ = read.inputs
    assert isinstance(x, torch.Tensor)
    assert isinstance(size, int)
    assert x.shape == (size - 1, 2)
    notes = " ".join(read.notes)
    for told in ("values", "share a storage", f"s0 = {size}", "_tensor_constant0", "--device"):
        assert told in notes


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("y = torch.load('f')", "line 3: a stored graph may not call 'torch.load'"),
        ("y = torch.ops.aten.from_file.default('f')", "line 3"),
        ("y = __import__('os').system('x')", "line 3"),
        ("y = x.__class__", "may not read the attribute '__class__'"),
        ("y = getattr(x, '__class__')", "may not read the attribute '__class__'"),
        ("y = getattr(x, x)", "line 3: a stored graph may not read the attribute"),
        ("y = (lambda: x)()", "line 3"),
        ("import os", "line 3: not a statement of a graph"),
        ('y: "f32[2]"', "line 3: a joint graph; give the forward or the backward graph"),
        ("y = self.linear(x)", "line 3: the text does not keep what this module computes"),
        ("y = z + 1", "line 3: nothing has this name: 'z'"),
        ("y = x.share_memory_()", "may not call the method"),
        ("y = x + ", "line 3: this graph is not Python"),
        ("y = x + 1", "has no return"),
        ("return self.w", "does not keep what self.w is"),
        ('w: "f32[2]" = self.training\n        return w', "does not keep what self.training is"),
    ],
)
def test_nothing_else_is_looked_up_and_the_line_is_told(body: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        read_printed(f'{HEAD}x: "f32[2]"):\n        {body}\n')
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        ('x: "f33[2]"', "no dtype with sizes"),
        ("x", "does not say what input x is"),
        ('x: "f32[2, 2][1]"', "not as many strides as sizes"),
        ('x: "f32[99999999999]"', "too large"),
        ('x: "f32[len(s0)]"', "no size"),
    ],
)
def test_an_input_without_a_layout_is_refused(annotation: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_printed(f"{HEAD}{annotation}):\n        return (x,)\n")


def test_a_text_without_a_graph_is_told() -> None:
    with pytest.raises(UserError, match="no graph in this text"):
        read_printed("hello")
