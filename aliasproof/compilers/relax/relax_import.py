"""Targets *relax-import* and *relax-import-plain*: exported programs through the frontend of TVM.

`from_exported_program` takes a program of `torch.export`. By default, the program is decomposed
first, which makes it functional: the new contents of written tensors are outputs of its graph. The
plain target skips that, so that the frontend sees the writes themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch.utils._pytree import tree_leaves

from aliasproof.compilers.relax import relax
from aliasproof.oracles.contract import NATIVE, Contract, Refusal, always
from aliasproof.targets import export
from aliasproof.targets.export import FunctionModule
from aliasproof.targets.target import MODULE, Build, Function, Target

FRONTEND = "from_exported_program in tvm/relax/frontend/torch/exported_program_translator.py"
CONTRACT = Contract(
    waivers=(*relax.CONTRACT.waivers, *export.CONTRACT.waivers),
    preconditions=export.CONTRACT.preconditions,
    refusals=(
        *export.CONTRACT.refusals,
        Refusal(
            "operator that the frontend does not know",
            r"Unsupported function type",
            f"the frontend has a table of operators, and names those that it lacks ({FRONTEND})",
            always,
            (),
            ("tvm",),
        ),
        Refusal(
            "index_put with fewer indices than dimensions",
            r"IndexPut requires the number of index tensors",
            "the operator of Relax takes an index for each dimension, as the error says"
            " (relax.op.index_put)",
            always,
            (),
            ("tvm", NATIVE),
        ),
    ),
    disputes=export.CONTRACT.disputes,
)


def build(function: Function, inputs: Sequence[torch.Tensor], *, decomposed: bool = True) -> Build:
    """Export the function with these inputs, import it, and compile it for the machine of TVM."""
    from tvm.relax.frontend.torch import from_exported_program  # noqa: PLC0415 - may not be there

    from aliasproof.compilers.relax.relax_graph import run_by_machine  # noqa: PLC0415
    from aliasproof.compilers.relax.relax_lines import require_dtype  # noqa: PLC0415 - imports TVM

    program = torch.export.export(FunctionModule(function), tuple(inputs))
    for value in tree_leaves([node.meta.get("val") for node in program.graph.nodes]):
        if isinstance(value, torch.Tensor):
            require_dtype(value.dtype)
    module = from_exported_program(program, run_ep_decomposition=decomposed)
    main, returned = run_by_machine(module), program.call_spec.out_spec

    def run(*given: torch.Tensor) -> object:
        # TVM needs aligned arguments, and a part of a storage may not be aligned.
        values = main([it.clone(memory_format=torch.contiguous_format) for it in given])
        return returned.unflatten(values[: returned.num_leaves])

    return Build(run, [], relax.MACHINE)


def recipe(*, decomposed: bool) -> str:
    """The source of `build`."""
    return f"""
import tvm
from torch.export import export
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

{MODULE}
def compiled(program, inputs):
    exported = export(Module(program), tuple(inputs))
    module = from_exported_program(exported, run_ep_decomposition={decomposed})
    machine = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    returned = exported.call_spec.out_spec

    def run(*inputs):
        aligned = [it.clone(memory_format=torch.contiguous_format) for it in inputs]
        given = [tvm.runtime.from_dlpack(it) for it in aligned]
        values = [torch.from_dlpack(it) for it in machine["main"](*given)]
        return returned.unflatten(values[: returned.num_leaves])

    return run
"""


def _target(name: str, summary: str, *, decomposed: bool) -> Target:
    return replace(
        relax.TARGET,
        name=name,
        summary=summary,
        contract=CONTRACT,
        build=functools.partial(build, decomposed=decomposed),
        recipe=recipe(decomposed=decomposed),
        recipe_for=None,
        variants=(),
        generates_code=False,
        layer=export.TARGET,
        cost=10,
    )


IMPORT = _target(
    "relax-import",
    "torch.export and from_exported_program of TVM, run by its virtual machine",
    decomposed=True,
)
PLAIN = _target(
    "relax-import-plain", "the same without decompositions: writes stay", decomposed=False
)
