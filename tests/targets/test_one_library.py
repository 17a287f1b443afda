"""All kernels of a compile are in one library, and compute the same as Inductor's own."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass
class Isa:
    """Vector instructions of `bits` that note each test of whether they are valid."""

    bits: int
    valid: bool
    tested: list[int]

    def __str__(self) -> str:
        return "avx2"

    def __bool__(self) -> bool:
        self.tested.append(self.bits)
        return self.valid

    def bit_width(self) -> int:
        return self.bits


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the list is for this processor")
def test_inductor_tests_vector_instructions_up_to_the_best(monkeypatch) -> None:
    from torch._inductor import config, cpu_vec_isa

    tested: list[int] = []
    isas = [Isa(1024, False, tested), Isa(512, True, tested), Isa(256, True, tested)]
    uncached = functools.cache(inductor._first_valid.__wrapped__)
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    monkeypatch.setattr(inductor, "_first_valid", uncached)
    monkeypatch.setattr(cpu_vec_isa, "supported_vec_isa_list", isas)
    monkeypatch.setattr(cpu_vec_isa, "x86_isa_checker", lambda: ["avx2"])
    with inductor.best_isa(), inductor.best_isa():  # as where a library loads during a compilation
        for width, found, tests in (
            (None, isas[1], [1024, 512]),
            (None, isas[1], []),
            (256, isas[2], [256]),
            (1, cpu_vec_isa.invalid_vec_isa, []),
        ):
            tested.clear()
            with config.patch({"cpp.simdlen": width}):
                assert cpu_vec_isa.pick_vec_isa() is found
            assert tested == tests
