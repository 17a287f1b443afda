"""All kernels of a compile are in one library, and compute the same as Inductor's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

from aliasproof.ir.program import Program
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.targets import inductor
from aliasproof.targets.inductor import Library
from aliasproof.targets.registry import TARGETS

SOURCE = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0, const double ks0, const long ks1)
{
    if (ks1 > 4) throw std::runtime_error("too long");
    for (int64_t i = 0; i < ks1; i++) out_ptr0[i] = in_ptr0[i] * ks0;
}
"""
TYPES = ("const float*", "float*", "double", "long")

pytestmark = pytest.mark.skipif(
    inductor.unavailable() is not None, reason=str(inductor.unavailable())
)


def test_kernels_are_compiled_together_and_raise_what_they_throw() -> None:
    library = Library()
    twice, again = library.add(TYPES, SOURCE), library.add(TYPES, SOURCE)
    x, out = torch.arange(8.0), torch.zeros(8)
    twice(x, out, 2.5, 4)
    again(x[4:], out[4:], -1.0, 3)
    assert out.tolist() == [0, 2.5, 5, 7.5, -4, -5, -6, 0]
    with pytest.raises(RuntimeError, match="too long"):
        twice(x, out, 1.0, 5)


def test_one_compile_calls_the_compiler_once(program: Callable[..., Program]) -> None:
    from torch._inductor.codecache import CppCodeCache

    # A matrix product calls a library, so there are kernels before and after it.
    body = """
    v0 = aten.mul.Scalar(x0, 3)
    v1 = aten.mm.default(v0, v0)
    v2 = aten.add.Scalar(v1, 1)
    return (v0, v2)
    """
    found = []
    load: Any = vars(CppCodeCache)["load"].__func__

    def counted(cls: type, source: str) -> object:
        found.append(source)
        return load(cls, source)

    with mock.patch.object(CppCodeCache, "load", classmethod(counted)):
        shown = examine(Case.of(program(body, (8, 8))), TARGETS["inductor"])
    assert shown.violations == []
    [source] = found
    assert source.count("namespace kernel_") == 2
