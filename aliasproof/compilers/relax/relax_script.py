"""The Relax function of a program as a script, which needs TVM, and torch for the inputs.

The virtual machine of TVM must show the same difference as the graph of target *relax*.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from aliasproof.compilers.relax.patches import Spelling
from aliasproof.compilers.relax.relax_capture import Captured, captured
from aliasproof.compilers.relax.relax_lines import IN_PLACE, OpaqueCall
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.program import Program
from aliasproof.ir.values import input_tensors

IMPORTED = "from aliasproof.compilers.relax import relax\n"
IMPORTS = """import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
"""
_BODY = """    module = Module
PASSES    machine = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())

    def run(*inputs):
        given = [tvm.runtime.from_dlpack(it) for it in (ARGUMENTS)]
        values = [torch.from_dlpack(it)CLONED for it in machine["main"](*given)]
WRITES        return RETURNED

    return run
"""
_PACKED = """
@tvm.register_global_func("NAME")
def packed(*tensors):  # what Relax has no operator for
    tensors = [torch.from_dlpack(it) for it in tensors]
    operands = [it.clone() for it in tensors[:COUNT]]
    returned = CALL
    for out, value in zip(tensors[COUNT:], RESULTS):
        out.copy_(value)
"""

_IN_PLACE = """
@tvm.register_global_func("NAME")
def packed(*tensors):  # computes into one of its arguments, which it returns
    operands = [torch.from_dlpack(it) for it in tensors]
    CALL
    return tensors[WRITTEN]
"""


def with_module(
    recipe: str, built: str, passes: Sequence[str], by_functions: bool, program: Program
) -> str:
    """A recipe with the module of a program, and these passes, in place of the line `built`."""
    spelling = Spelling(by_functions=by_functions)
    with torch.no_grad():
        function = captured(ProgramFunction(program), input_tensors(program), spelling)
    given = [
        f"inputs[{index}]" if length is None else f"{_storage(index, length)}.clone()"
        for index, length in function.prologue
    ]
    lines = "".join(f"    module = relax.transform.{name}()(module)\n" for name in passes)
    arguments = "".join(f"{it}, " for it in given).strip()
    body = _BODY.replace("PASSES", lines).replace("ARGUMENTS", arguments)
    old = [
        f"inputs[{index}]" if length is None else _storage(index, length)
        for index, length in function.epilogue
    ]
    writes = (f"        {it}.copy_(values[{i}])\n" for i, it in enumerate(old, function.returned))
    body = body.replace("WRITES", "".join(writes))
    count = function.returned
    returned = "values[0]" if count == 1 else f"tuple(values[:{count}])"
    body = body.replace("RETURNED", returned)
    body = body.replace("CLONED", ".clone()" if function.epilogue else "")
    before, _, after = recipe.partition(built)
    head, definition, line = before.rpartition("def ")
    text = f"{head}{_module(function)}\n\n\n{definition}{line}{body}{after}"
    return text.replace(IMPORTED, IMPORTS)


def _module(function: Captured) -> str:
    """The module in TVMScript, with its constants and its packed functions."""
    script = function.module().script()
    lines = [line for line in script.splitlines() if not line.startswith("#")]
    text = "\n".join(lines).strip()
    # Types are inferred, and would make lines long.
    text = re.sub(r"(?m)^( +\w+): R\.\w+\(.*?\) = (?=[^=]*$)", r"\1 = ", text)
    text = re.sub(r"(def main\(.*\)) -> .*:$", r"\1:", text, flags=re.MULTILINE)
    text = re.sub(r'metadata\["ir\.GenericConst"\]\[(\d+)\]', r"R.const(C\1)", text)
    constants = [it.constant for it in function.lines.lines if it.constant is not None]
    made = [
        f"C{index} = tvm.runtime.from_dlpack(torch.tensor({tensor.tolist()}, dtype={tensor.dtype}))"
        for index, tensor in enumerate(constants)
    ]
    packed = [
        _packed(named, call)
        for name, call in function.lines.opaque.items()
        for named in (name, name + IN_PLACE)
        if f'"{named}"' in text
    ]
    return "\n\n\n".join(["\n".join(made), *packed, text]).strip()


def _packed(name: str, call: OpaqueCall) -> str:
    """A packed function of the module."""
    args, kwargs = call.arguments([_Text(f"operands[{i}]") for i in range(call.operands)])
    listed = [repr(it) for it in args] + [f"{key}={it!r}" for key, it in kwargs.items()]
    results = [f"operands[{index}]" for index in call.written]
    results += [f"returned[{i}]" if call.several else "returned" for i in call.results]
    form = _IN_PLACE if name.endswith(IN_PLACE) else _PACKED
    text = form.replace("NAME", name).replace("COUNT", str(call.operands))
    text = text.replace("WRITTEN", str(next(iter(call.written), 0)))
    text = text.replace("CALL", f"{call.op}({', '.join(listed)})")
    return text.replace("RESULTS", f"[{', '.join(results)}]").strip()


class _Text:
    """An expression that is printed unchanged."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _storage(index: int, length: int) -> str:
    return f"inputs[{index}].as_strided(({length},), (1,), 0)"
