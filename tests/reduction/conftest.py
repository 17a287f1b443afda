"""The scene of the reducer's tests: programs written as text, and compilers with a planted bug."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import dedent, indent

import pytest
import torch

from oracles.contract import Contract
from programs.execution import ProgramFunction
from programs.layouts import dense_strides
from programs.parsing import parse_source
from programs.program import Input, Program, Storage
from targets.target import Build, Function, Target


@pytest.fixture(scope="session")
def program() -> Callable[..., Program]:
    """`program(body, (4,), (2, 3))`: the body is what `source` prints, the inputs are dense float32 tensors x0, x1, ..."""

    def written(body: str, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Program:
        views = [
            Input(f"x{i}", i, dtype, sizes, dense_strides(sizes)) for i, sizes in enumerate(shapes)
        ]
        storages = [Storage(dtype, torch.Size(sizes).numel()) for sizes in shapes]
        head = f"def program({', '.join(each.name for each in views)}):\n"
        return parse_source(head + indent(dedent(body).strip(), "    ") + "\n", storages, views)

    return written


@pytest.fixture(scope="session")
def compiler() -> Callable[..., Target]:
    """`compiler(rewrite)`: a target that runs `rewrite(program)` instead of the program."""

    def planted(
        rewrite: Callable[[Program], Program],
        name: str = "planted",
        after: Target | None = None,
        contract: Contract | None = None,
    ) -> Target:
        def build(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
            assert isinstance(function, ProgramFunction)
            return Build(ProgramFunction(rewrite(function.program)), [])

        return Target(
            name,
            "a compiler with a planted bug",
            contract or Contract(),
            build,
            recipe="",
            after=after,
        )

    return planted
