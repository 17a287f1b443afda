"""Targets of Inductor: documented differences are no violations, and kernels share a library."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast
from unittest import mock

import pytest
import torch
from torch import Tensor

from aliasproof.ir.lifting import lift_program
from aliasproof.ir.program import Program
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case, run_trial
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets import inductor
from aliasproof.targets.inductor import Library
from aliasproof.targets.registry import TARGETS, target
from aliasproof.targets.target import Build, Function, Target
from tests.targets.conftest import stages_of

BF16 = torch.bfloat16
PASSES = target("inductor-fx")


def wrong(name: str, changed: Callable[[Function], Function]) -> Target:
    """The target with a mistake that wraps its compiled function."""
    right = target(name)

    def build(function: Function, inputs: object) -> Build:
        return Build(changed(function), [], "planted")

    return replace(right, build=build, after=None)


def verdict(function: Function, inputs: list[Tensor], tested: Target) -> Verdict:
    return examined(function, inputs, tested).reports["values"].verdict


def equivalence(function: Function, inputs: list[Tensor]) -> Verdict:
    """The verdict on the function as a program."""
    case = Case.of(lift_program(function, inputs).program)
    return examine(case, PASSES, attribute=False).reports["equivalence"].verdict


def examined(function: Function, inputs: list[Tensor], tested: Target) -> Examination:
    return examine(Case.of_function(function, inputs), tested, attribute=False)


# --- rounding between two ops ---------------------------------------------------------------------


def chain(x: Tensor) -> Tensor:
    return x.to(torch.float16).to(BF16)


def off_by(number: float) -> Callable[[Function], Function]:
    return lambda function: lambda *inputs: cast("Tensor", function(*inputs)) + number


# Rounded to float16 first, it is halfway between two bfloat16 numbers, and goes down.
LOSES, FITS = [torch.tensor([1 + 2**-8 + 2**-13])], [torch.tensor([1.0])]
NEXT = 2**-7  # from 1 to the next bfloat16 number


def test_a_cast_that_inductor_leaves_out_is_documented() -> None:
    """The cast to float16 is removed, and so is its rounding."""
    (found,) = examined(chain, LOSES, PASSES).documented
    assert "emulate_precision_casts" in found.limitation.reason
    assert verdict(chain, FITS, PASSES) is Verdict.HOLDS
    emulated = target("inductor-fx:emulate_precision_casts=True")
    assert verdict(chain, LOSES, emulated) is Verdict.HOLDS


@pytest.mark.parametrize(
    ("name", "inputs", "number", "expected"),
    [
        ("inductor-fx", LOSES, NEXT, Verdict.DOCUMENTED),
        ("inductor-fx", LOSES, 1.0, Verdict.VIOLATED),
        ("inductor-fx", FITS, NEXT, Verdict.VIOLATED),
        ("inductor-fx:emulate_precision_casts=True", LOSES, NEXT, Verdict.VIOLATED),
        ("aot", LOSES, NEXT, Verdict.VIOLATED),
    ],
)
def test_only_what_rounding_explains_is_documented(name, inputs, number, expected):
    assert verdict(chain, inputs, wrong(name, off_by(number))) is expected


def test_an_input_may_end_with_the_digits_that_rounding_loses() -> None:
    def stored(x: Tensor) -> None:
        x.copy_(chain(x))

    def planted(function: Function) -> Function:
        return lambda x: (function(x), x.add_(NEXT))[0]

    for inputs, expected in ((LOSES, Verdict.DOCUMENTED), (FITS, Verdict.VIOLATED)):
        found = examined(stored, inputs, wrong("inductor-fx", planted))
        assert found.reports["inputs"].verdict is expected


# --- constants ------------------------------------------------------------------------------------


def test_folded_constants_are_equivalent() -> None:
    def of_constants(x: Tensor) -> Tensor:
        return x + torch.full_like(x, 2).neg().mul(3)

    assert equivalence(of_constants, [torch.arange(3.0)]) is Verdict.HOLDS


def test_a_product_with_zero_is_no_constant() -> None:
    """NaN * 0 is NaN (pytorch/pytorch#187580): on the inputs at hand, the value is right."""
    fixed = torch.__version__ >= "2.14"
    expected = Verdict.HOLDS if fixed else Verdict.VIOLATED
    assert equivalence(lambda x: torch.mul(x, 0), [torch.arange(3.0)]) is expected


# --- writes into an input that overlaps itself ----------------------------------------------------


@pytest.mark.parametrize(("strides", "label"), [((1, 1), "disputed"), ((3, 1), "")])
def test_a_wrong_write_into_an_overlapping_input_is_disputed(strides, label):
    x = torch.arange(9.0).as_strided((3, 3), strides)
    planted = wrong("inductor-fx", lambda function: lambda x: (function(x), x[0].add_(1))[0])
    first, *_ = examined(lambda x: (x[0].add_(1), None)[1], [x], planted).violations
    assert (first.oracle, first.label) == ("inputs", label)


# --- settings -------------------------------------------------------------------------------------


def test_a_setting_that_takes_a_promise_back_changes_the_contract() -> None:
    def draws(x: Tensor) -> Tensor:
        return x + torch.rand_like(x)

    planted = off_by(1)
    for name, expected in (
        ("inductor-fx", Verdict.VIOLATED),
        ("inductor-fx:fallback_random=False", Verdict.DOCUMENTED),
    ):
        assert verdict(draws, [torch.zeros(3)], wrong(name, planted)) is expected
    other = wrong("inductor-fx:fallback_random=False", planted)
    assert verdict(torch.neg, [torch.zeros(3)], other) is Verdict.VIOLATED


# --- properties that Dynamo passes on -------------------------------------------------------------


def splits(x: Tensor, y: Tensor) -> Tensor:
    view = x.view(-1)
    torch._dynamo.graph_break()
    view.add_(1)
    return y + 1


def test_a_view_and_an_input_that_overlap_are_refused() -> None:
    """After a graph break, an input of the second part is a view in autograd, and `y` is not."""
    tested = target("aot-eager")
    x = torch.zeros(4)
    assert not examined(splits, [x, x], tested).documented, "one tensor"
    (found,) = examined(splits, [x, x.view(4).detach()], tested).documented
    assert "autograd base" in found.limitation.name


def test_a_program_gets_the_inputs_that_dynamo_passes_in_its_order() -> None:
    def writes_the_second_first(x: Tensor, y: Tensor, unused: Tensor) -> Tensor:
        y.add_(1)
        return x.add_(1)

    inputs = [torch.zeros(2), torch.zeros(3), torch.zeros(4)]
    case = Case.of(lift_program(writes_the_second_first, inputs).program)
    for one in (case, Case.of_function(writes_the_second_first, inputs)):
        trial = run_trial(one, PASSES)
        (stage,) = stages_of(trial)
        given = cast("list[Tensor]", stage.inputs)
        assert [tensor.numel() for tensor in given] == [3, 2]


def test_what_a_pattern_leaves_to_code_generation_is_not_called_in_eager() -> None:
    def cat_of_slice_of_cat(x: Tensor, y: Tensor) -> Tensor:
        whole = torch.cat([x, y], 1)
        return torch.cat([whole, whole[:, 0:1]], 1)

    inputs = [torch.ones(2, 1), torch.zeros(2, 1)]
    assert verdict(cat_of_slice_of_cat, inputs, PASSES) is Verdict.HOLDS


# --- all kernels of a compile are in one library, and compute the same ----------------------------


SOURCE = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0, const double ks0, const long ks1)
{
    if (ks1 > 4) throw std::runtime_error("too long");
    for (int64_t i = 0; i < ks1; i++) out_ptr0[i] = in_ptr0[i] * ks0;
}
"""
TYPES = ("const float*", "float*", "double", "long")

needs_compiler = pytest.mark.skipif(
    inductor.unavailable() is not None, reason=str(inductor.unavailable())
)


@needs_compiler
def test_kernels_are_compiled_together_and_raise_what_they_throw() -> None:
    library = Library()
    twice, again = library.add(TYPES, SOURCE), library.add(TYPES, SOURCE)
    x, out = torch.arange(8.0), torch.zeros(8)
    twice(x, out, 2.5, 4)
    again(x[4:], out[4:], -1.0, 3)
    assert out.tolist() == [0, 2.5, 5, 7.5, -4, -5, -6, 0]
    with pytest.raises(RuntimeError, match="too long"):
        twice(x, out, 1.0, 5)


@needs_compiler
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


@needs_compiler
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
