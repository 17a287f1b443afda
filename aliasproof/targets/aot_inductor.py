"""Target *aot-inductor*: `torch.export`, compiled by Inductor into a package, and loaded from it.

The compiled package has no Python: its generated wrapper is C++, as it runs in deployment.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._inductor import aoti_compile_and_package, aoti_load_package

from aliasproof.oracles.contract import Contract, Promise, Waiver
from aliasproof.targets import export, inductor, inductor_fx
from aliasproof.targets.dynamo import DRAWS_AS_EAGER
from aliasproof.targets.target import MODULE, Build, Function, Target
from aliasproof.targets.variants import KEPT_BUFFERS, KEPT_OUTPUTS

OF_CPP = (
    "the package is C++ code that takes and returns handles of tensors, so Python makes an object"
    " for each output (torch/csrc/inductor/aoti_package/model_package_loader.h)"
)
CONTRACT = replace(
    export.CONTRACT,
    waivers=(
        *export.CONTRACT.waivers,
        *(
            Waiver(promise, OF_CPP)
            for promise in (Promise.IDENTITY, Promise.OBJECTS, Promise.KEEPS_OBJECTS)
        ),
        *(
            waiver
            for waiver in inductor.CONTRACT.waivers
            if waiver.promise in (Promise.ROUNDING, Promise.STRIDE_OF_PART)
        ),
    ),
    disputes=(*export.CONTRACT.disputes, inductor_fx.OVERLAPPING_INPUT),
)

OWN_COPIES = (
    "a package is loaded with copies of the buffers that it was compiled with, so an output that is"
    " a view of a buffer is one of the copy (torch/csrc/inductor/aoti_runtime/model_base.h)"
)
OWN_BUFFERS = replace(
    KEPT_BUFFERS,
    clauses=Contract(
        waivers=tuple(
            Waiver(promise, OWN_COPIES)
            for promise in (Promise.KEEPS_ALIASES, Promise.STRIDE, Promise.OFFSET)
        )
    ),
)

CONFIGS = f", inductor_configs={DRAWS_AS_EAGER}"
RECIPE = f"""
import tempfile

from torch._inductor import aoti_compile_and_package, aoti_load_package

{MODULE}
def compiled(program, inputs):
    exported = torch.export.export(Module(program), tuple(inputs))
    with tempfile.TemporaryDirectory() as folder:
        path = f"{{folder}}/model.pt2"
        aoti_compile_and_package(exported, package_path=path{CONFIGS})
        return aoti_load_package(path)
"""


def build(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
    """Export with these inputs, compile a package in a temporary folder, and load it."""
    exported = torch.export.export(export.FunctionModule(function), tuple(inputs))
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.pt2"
        options: dict[str, Any] = {**DRAWS_AS_EAGER}
        aoti_compile_and_package(exported, package_path=path, inductor_configs=options)
        loaded = aoti_load_package(path)
    return Build(loaded, [], inductor.OPAQUE)


TARGET = Target(
    name="aot-inductor",
    summary="torch.export, compiled by AOTInductor into a package, and loaded from it",
    contract=CONTRACT,
    build=build,
    recipe=RECIPE,
    variants=(OWN_BUFFERS, KEPT_OUTPUTS),
    after=export.TARGET,
    layer=inductor.TARGET,
    lacking=inductor.unavailable,
    group=25,
    cost=20,
    generates_code=True,
)
