"""`check` on operators, dtypes and sizes that people use; and on all values (*equivalence*)."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from aliasproof.checks.check import check
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.target import Build, Function
from tests.aliasproof.planted_targets import SAFE, judged_equal, losing, places

# --- operators ------------------------------------------------------------------------------------


@torch.library.custom_op("aliasproof_test::scale_", mutates_args={"x"})
def scale_(x: torch.Tensor, factor: float) -> None:
    x.mul_(factor)


def test_a_custom_operator_that_writes(forgetful_target):
    def scales(x: torch.Tensor) -> torch.Tensor:
        scale_(x[1:], 3.0)
        return x + 1

    found = check(scales, torch.arange(4.0), ["functionalize", "aot", "forgetful"])
    judged_equal(found, "aot")
    assert found.results["aot"].reports["equivalence"].verdict is Verdict.HOLDS
    assert places(found, "forgetful", "inputs") == {"input 'x'"}
    errors = found.results["functionalize"].reports["errors"]
    assert errors.verdict is Verdict.DOCUMENTED


def test_cond(stale_target):
    def chooses(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    found = check(chooses, -torch.ones(2), [*SAFE, "stale"])
    judged_equal(found, *SAFE)
    assert places(found, "stale", "values") == {"output 0"}
    reason = found.results["identity"].reports["equivalence"].reason
    assert "holds for these inputs only" in reason


def test_what_is_undefined_in_a_branch_is_seen():
    def overlaps(x: torch.Tensor) -> Any:
        def shifted(y: torch.Tensor) -> Any:
            z = y.clone()
            z[1:].add_(z[:-1])
            return z

        return torch.cond(x.sum() > 0, shifted, lambda y: y - 1, (x,))

    found = check(overlaps, torch.ones(3), ["identity"])
    assert "reads memory that it is writing" in (found.eager.unjudged or "")


def test_while_loop(stale_target):
    def doubles(i: torch.Tensor, x: torch.Tensor) -> Any:
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (i, x))

    found = check(doubles, (torch.tensor(0), torch.ones(3)), [*SAFE, "stale"])
    judged_equal(found, "functionalize", "aot", "aot-epilogue", "identity")
    assert places(found, "stale", "values") == {"output 1"}
    # The pass runs the graph in a FakeTensorMode of its own, which has no ShapeEnv.
    errors = found.results["fx-reinplace"].reports["errors"]
    assert errors.verdict is Verdict.VIOLATED
    assert "ignore_fresh_unbacked_symbols" in errors.violations[0].kind


def test_dropout_with_a_seed(stale_target):
    def drops(x: torch.Tensor) -> Any:
        return torch.nn.functional.dropout(x, 0.5).add_(torch.rand(64))

    found = check(drops, torch.ones(64), [*SAFE, "stale"])
    judged_equal(found, *SAFE)
    assert places(found, "stale", "values") == {"output 0"}


def test_random_numbers_in_another_layout_are_documented():
    def drops(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x.t()).bernoulli_(0.5)

    found = check(drops, torch.ones(8, 9), ["functionalize"])
    reports = found.results["functionalize"].reports
    assert reports["values"].verdict is Verdict.DOCUMENTED
    assert reports["equivalence"].verdict is Verdict.HOLDS


# --- dtypes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["uint1", "int3", "uint64"])
def test_integers_of_any_size(name, plant):
    plant("losing", losing)
    dtype = getattr(torch, name)
    x = torch.arange(8, dtype=torch.uint8).repeat(dtype.itemsize).view(dtype)

    def unpacks(packed: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
        read = packed.view(torch.uint8)
        low.add_(read & 15)
        read.bitwise_xor_(1)
        return packed

    low = torch.zeros(8 * dtype.itemsize)
    found = check(unpacks, (x, low), ["identity", "losing"])
    judged_equal(found, "identity")
    assert places(found, "losing", "inputs") == {"input 'packed'", "input 'low'"}


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8(dtype, forgetful_target):
    def scales(x: torch.Tensor) -> torch.Tensor:
        y = x.to(torch.float32) * 2
        x.copy_(y.to(dtype))
        return y

    found = check(scales, torch.arange(8.0).to(dtype), ["aot", "identity", "forgetful"])
    judged_equal(found, "aot", "identity")
    assert places(found, "forgetful", "inputs") == {"input 'x'"}
    assert found.results["forgetful"].reports["inputs"].differences[0].evidence["eager"] == "2.0"


# --- sizes ----------------------------------------------------------------------------------------


def test_a_thousand_writes(forgetful_target):
    def writes(x: torch.Tensor) -> torch.Tensor:
        for index in range(1000):
            x[index % 10].add_(index)
        return x * 2

    found = check(writes, torch.zeros(10, 2), ["identity", "forgetful"])
    judged_equal(found, "identity")
    assert places(found, "forgetful", "inputs") == {"input 'x'"}


# --- equivalence ----------------------------------------------------------------------------------


def test_another_decomposition_of_a_composite_operator_is_no_alarm(plant):
    def other(function: Function, inputs: Sequence[torch.Tensor]) -> Build:
        return Build(lambda x: (x * x * x).mean(), [])

    plant("other", other, contract=TARGETS["aot"].contract)
    found = check(lambda x: torch.linalg.vector_norm(x.pow(3), 1) / 4, torch.ones(4), ["other"])
    assert found.results["other"].reports["values"].verdict is Verdict.HOLDS
    assert found.results["other"].reports["equivalence"].verdict is not Verdict.HOLDS


def test_products_have_one_meaning():
    def products(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x @ y, torch.addmm(b, x, y), torch.einsum("ij,jk->ik", x, y), (x[None] @ y)[0]

    inputs = (torch.ones(2, 3), torch.ones(3, 4), torch.ones(4))
    found = check(products, inputs, ["aot", "functionalize", "reference"])
    for target in ("aot", "functionalize", "reference"):
        assert found.results[target].reports["equivalence"].verdict is Verdict.HOLDS
