"""Target *inductor*: what `torch.compile` runs by default, with generated code.

Generated code has no value hashes; target *inductor-fx* has the same graphs, and they have.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch.utils._triton import has_triton_package

from aliasproof.ir.errors import Rejected
from aliasproof.oracles.contract import Promise, Waiver
from aliasproof.targets import inductor_fx
from aliasproof.targets.one_library import one_library
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Tracing
from aliasproof.targets.variants import CONTROL_FLOW, FREEZING

OPAQUE = "generated code has no value hashes; target inductor-fx has the same graphs"

# Strides are promised: `keep_output_stride` is on by default (torch/_inductor/config.py), and
# PyTorch takes other strides for a bug (#116433, #130394).
CONTRACT = replace(
    inductor_fx.CONTRACT,
    waivers=(
        *(
            waiver
            for waiver in inductor_fx.CONTRACT.waivers
            if waiver.promise is not Promise.STRIDE
        ),
        Waiver(
            Promise.STRIDE_OF_PART,
            "the lowering of an output that is a view asks for the order of eager's strides, not"
            " for their values, so that no view becomes a copy (require_stride_order in"
            " GraphLowering.run_node of torch/_inductor/graph.py)",
        ),
    ),
)


def build(
    function: Function,
    inputs: Sequence[torch.Tensor],
    tracing: Tracing = PLAIN,
) -> Build:
    """Compile. Raises `Rejected` for inputs on CUDA without Triton."""
    if any(tensor.is_cuda for tensor in inputs) and not has_triton_package():
        raise Rejected("generated code for CUDA needs Triton: install triton")
    with one_library():
        captured = inductor_fx.compiled(function, inputs, tracing)
    return Build(captured, [], OPAQUE)


def recipe(tracing: Tracing = PLAIN) -> str:
    """The source of `build`, through Dynamo."""
    return f"""
def compiled(program, inputs):
    return torch.compile(program{tracing.dynamic}{inductor_fx.options(tracing)})
"""


def unavailable() -> str | None:
    """Why no code can be generated on this machine, and what to install.

    As `cpp_compiler_search` in torch/_inductor/cpp_builder.py asks, without an import of torch.
    """
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        return f"needs a C++ compiler, and finds no '{compiler}': install g++, or name one in CXX"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "needs the headers of Python: install python3-dev (or python3-devel)"
    return None


TARGET = Target(
    name="inductor",
    summary="torch.compile as it is by default: Inductor with generated code",
    contract=CONTRACT,
    build=build,
    recipe=recipe(),
    traced_recipe=recipe,
    has_settings=True,
    variants=(
        *inductor_fx.VARIANTS,
        *inductor_fx.BY_DYNAMO,
        *CONTROL_FLOW,
        FREEZING,
    ),
    after=inductor_fx.TARGET,
    lacking=unavailable,
    group=25,
    cost=6,
    backend="inductor",
    generates_code=True,
)
