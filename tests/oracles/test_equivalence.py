"""Oracle *equivalence*: two functions compute the same for all values, or a difference is seen."""

from typing import Any

import pytest
import torch
from torch import Tensor

from aliasproof.eager.trace import Trace
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.execution import ProgramFunction
from aliasproof.ir.values import input_tensors
from aliasproof.oracles.contract import Contract, Precondition, Promise, Waiver
from aliasproof.oracles.equivalence import judge, run_uninterpreted
from aliasproof.oracles.observation import observe_eager
from aliasproof.oracles.verdict import Verdict
from tests.oracles.scenes import ALL, report

aten = torch.ops.aten
X = torch.arange(6.0)
M = torch.arange(12.0).view(3, 4)
Z = torch.complex(torch.arange(4.0), torch.ones(4))


def stale(x: Tensor) -> Tensor:
    """Reads an element before it is written: the functions below hide this mistake."""
    return x.clone()


# --- the same -------------------------------------------------------------------------------------

# The functions run on X, unless other inputs are given.
SAME: dict[str, tuple[Any, ...]] = {
    "in-place and functional": (lambda x: x.add_(1), lambda x: x.copy_(x + 1)),
    "out= and functional": (
        lambda x, y: torch.mul(x, x, out=y),
        lambda x, y: y.copy_(x * x),
        (X, X + 1),
    ),
    "operands of a sum swapped": (lambda x, y: x + y, lambda x, y: y + x, (X, X.flip(0))),
    "scatter and view with copy_": (
        lambda m, x: torch.select_scatter(m, x, 0, 1),
        lambda m, x: (out := m.clone(), out[1].copy_(x))[0],
        (M, torch.ones(4)),
    ),
    "slice_scatter and view with copy_": (
        lambda m, x: torch.slice_scatter(m, x, 1, 1, 3),
        lambda m, x: (out := m.clone(), out[:, 1:3].copy_(x))[0],
        (M, torch.ones(3, 2)),
    ),
    "view and its copy": (
        lambda m: aten.select.int(m, 0, 1) + 1,
        lambda m: aten.select_copy.int(m, 0, 1) + 1,
        (M,),
    ),
    "split and its copies": (
        lambda m: [each + 1 for each in aten.split.Tensor(m, 2, 1)],
        lambda m: [each + 1 for each in aten.split_copy.Tensor(m, 2, 1)],
        (M,),
    ),
    "concatenation, and each part stored": (
        lambda x, y: torch.cat((x, y)),
        lambda x, y: (out := x.new_empty(12), out[:6].copy_(x), out[6:].copy_(y))[0],
        (X, X + 10),
    ),
    "flip, and gathered views": (
        lambda x: x.flip(0),
        lambda x: torch.stack([x[5 - i] for i in range(6)]),
    ),
    "repeat and expand": (lambda x: x.repeat(2, 1), lambda x: x.expand(2, 6).clone()),
    "zeros, filled or made": (lambda x: x.zero_(), lambda x: x.copy_(torch.zeros_like(x))),
    "a fill, byte by byte": (lambda x: x.fill_(0), lambda x: (x.view(torch.uint8).fill_(0), x)[1]),
    "bytes moved, and elements": (
        lambda x: x.clone(),
        lambda x: x.view(torch.int32).clone().view(torch.float32),
    ),
    "conjugated twice, lazily and not": (
        lambda z: z.conj().conj() * 2,
        lambda z: torch.conj_physical(torch.conj_physical(z)) * 2,
        (Z,),
    ),
    "the imaginary part of a conjugate": (
        lambda z: torch.view_as_real(z.conj().resolve_conj())[:, 1] + 1,
        lambda z: torch.view_as_real(z)[:, 1].neg() + 1,
        (Z,),
    ),
    "a constant negated lazily, and by an op": (
        lambda x: torch._neg_view(torch.ones_like(x)) + 1,
        lambda x: torch.ones_like(x).neg() + 1,
        (X.long(),),
    ),
    "constants beside an input, negated lazily, and by an op": (
        lambda x: (x[:2].fill_(1), torch._neg_view(x) + 1)[1],
        lambda x: (x[:2].fill_(1), torch.cat((x.new_full((2,), -1), x[2:].neg())) + 1)[1],
    ),
    "the conjugate of a constant": (
        lambda z: torch.full_like(z, 1 + 2j).conj() + z,
        lambda z: torch.full_like(z, 1 - 2j) + z,
        (Z,),
    ),
    "an addend that is ignored": (
        lambda i: i.addmv_(i.new_zeros(2, 3), i.new_zeros(3), beta=0),
        lambda i: i.copy_(torch.zeros_like(i)),
        (X[:2].long(),),
    ),
    "computed from constants, before the run and in it": (
        lambda x: (x.copy_(torch.ones_like(x).exp()), torch.full((2,), 5.5).remainder(0.1))[1],
        lambda x: (x.fill_(2.7182817), torch.tensor([0.1, 0.1]))[1],
    ),
    "a product of integers with zero": (lambda i: i.mul_(0), lambda i: i.zero_(), (X.long(),)),
    "a product of bools with False": (
        lambda b: torch._foreach_mul([b], False),
        lambda b: [torch.zeros_like(b)],
        (X > 2,),
    ),
    "integers that are rounded": (
        lambda i: (i.ceil(), i.nan_to_num(7), torch.round(i, out=i.clone())),
        lambda i: (i.clone(), i.clone(), i.clone()),
        (X.long(),),
    ),
    "integers that are infinite or no number": (
        lambda i: (i.isposinf(), aten.isinf.default(i), aten.isnan.default(i)),
        lambda i: (torch.zeros(6, dtype=torch.bool),) * 3,
        (X.long(),),
    ),
    "a selection by indices": (
        lambda m, i: (m.index_select(-1, i) + 1, aten.index.Tensor(m, [i])),
        lambda m, i: (aten.index.Tensor(m, [None, i]) + 1, m.index_select(0, i)),
        (M, torch.tensor([2, 0])),
    ),
    "a pad of no elements": (lambda x: torch.constant_pad_nd(x, [0, 0], 7) + 1, lambda x: x + 1),
    "a dropout without training": (
        lambda x: aten.native_dropout(x, 0.5, False),
        lambda x: (x.clone(), torch.ones(6, dtype=torch.bool)),
    ),
    # The generator advances, so the next draw is another one.
    "a dropout of probability zero, and what is drawn after it": (
        lambda x, y: (aten.native_dropout(x, 0.0, True)[0], y.bernoulli_(0.5)),
        lambda x, y: (x * x.bool().bernoulli(1.0) * 1.0, y.bernoulli_(0.5)),
        (X, X.clone()),
    ),
    "running statistics of a batch norm in evaluation": (
        lambda m, x, y: aten._native_batch_norm_legit(m, x, x, x, y, False, 0.5, 1.0)[0],
        lambda m, x, y: aten._native_batch_norm_legit_functional(
            m, x.clone(), x, x, y, False, 0.5, 1.0
        )[0],
        (M, torch.ones(4), torch.ones(4)),
    ),
    "comparison written in place, and cast": (lambda x: x.ge_(2), lambda x: x.copy_(x.ge(2))),
    "an integer add to a float": (
        lambda x, i: i.add_(x.long()),
        lambda x, i: i.copy_(i + x.long()),
        (X, X.long()),
    ),
    "lists": (
        lambda x, y: torch._foreach_add_([x, y], 1),
        lambda x, y: [
            a.copy_(b) for a, b in zip([x, y], torch._foreach_add([x, y], 1), strict=True)
        ],
        (X, M.clone()),
    ),
    "one random fill": (lambda x: x.uniform_(), lambda x: x.copy_(aten.uniform.default(x))),
    "indexed store": (
        lambda x, i: x.index_put_((i,), x[:2] + 1),
        lambda x, i: x.copy_(x.index_put((i,), x[:2] + 1)),
        (X, torch.tensor([3, 1])),
    ),
    "a sum into its dtype": (
        lambda i, x: torch.cumsum(i, 0, out=x),
        lambda i, x: x.copy_(torch.cumsum(i, 0, dtype=torch.float32)),
        (X.long(), X),
    ),
    "no element": (lambda x: x[:0].add_(1), lambda x: x.new_empty(0)),
    "resized": (lambda x: x.resize_(12)[:6] + 1, lambda x: x.resize_(12)[:6] + 1, (X.clone(),)),
}


@pytest.mark.parametrize("name", SAME)
def test_it_holds(name: str) -> None:
    eager, target, inputs = (*SAME[name], (X,))[:3]
    assert report(eager, target, *inputs).violations == ()


# --- not the same ---------------------------------------------------------------------------------

HIDDEN: dict[str, tuple[Any, ...]] = {
    "by a product with 0": (lambda x: x.add_(1) * 0, lambda x: (stale(x) * 0, x.add_(1))[0]),
    "by relu": (lambda x: x.sub_(9).relu(), lambda x: ((stale(x) - 7).relu(), x.sub_(9))[0]),
    "by equal values": (lambda x: x[0] + 1, lambda x: x[1] + 1, (torch.ones(2),)),
    "by an identity": (lambda x: x * 1, lambda x: x.clone()),
    "by values that happen to be zero": (
        lambda x, y: x + y,
        lambda x, y: x - y,
        (X, torch.zeros(6)),
    ),
    "by the dtype that it is computed in": (lambda x: x + 1, lambda x: (x.double() + 1).float()),
    "by order that does not matter here": (
        lambda x: x.add_(1).mul_(2),
        lambda x: x.mul_(2).add_(1),
        (torch.full((2,), -0.0),),
    ),
    "in bytes that nobody returns": (
        lambda x: x[:3].zero_(),
        lambda x: (x[:4].zero_(), x[:3])[1],
        (torch.zeros(6),),
    ),
    "by a product of two that are zero": (
        lambda i, j: i * j,
        lambda i, j: torch.zeros_like(i),
        (X.long() * 0, X.long()),
    ),
    "by numbers that are whole": (lambda x: x.ceil(), lambda x: x.clone()),
    "by a sum of all": (lambda x: x.sum(), lambda x: x.flip(0).sum()),
    "by a scatter of what is there already": (
        lambda m: torch.select_scatter(m, m[1] * 1, 0, 1),
        lambda m: m.clone(),
        (M,),
    ),
    "by a random number drawn twice": (
        lambda x: (x.uniform_(), x)[1],
        lambda x: (x.uniform_(), x.uniform_())[1],
    ),
    "by unwritten memory": (lambda x: torch.zeros(2), lambda x: torch.empty(2)),
    "by a random number times zero": (
        lambda x: torch.rand(2) * 0,
        lambda x: (torch.rand(2), torch.rand(2))[1] * 0,
    ),
    "by an input beside constants": (
        lambda x: torch.cat((torch.zeros(2), x[:1] * 0)),
        lambda x: torch.zeros(3),
    ),
    "by a sign that zero does not have": (
        lambda z: z.conj(),
        lambda z: z.clone(),
        (torch.ones(2, dtype=torch.complex64),),
    ),
    "by an operand that does not commute": (lambda x, y: x - y, lambda x, y: y - x, (X, X.clone())),
    "by a mask that drops nothing": (
        lambda x, y: (aten.native_dropout(x, 0.0, True)[0], y.bernoulli_(0.5))[1],
        lambda x, y: (x.clone(), y.bernoulli_(0.5))[1],
        (X, X.clone()),
    ),
    "by an argument without effect here": (lambda x: x.clamp(min=-1), lambda x: x.clamp(min=-2)),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_difference_is_seen(name: str) -> None:
    eager, target, inputs = (*HIDDEN[name], (X,))[:3]
    assert report(eager, target, *inputs).verdict is Verdict.VIOLATED


def test_the_evidence_spells_both_symbolic_values() -> None:
    (violation,) = report(
        lambda x: x.add_(1)[1:] * 0, lambda x: (x[:5] * 0, x.add_(1))[0], X
    ).violations
    assert (violation.oracle, violation.kind, violation.place) == (
        "equivalence",
        "wrong symbolic value",
        "output 0",
    )
    assert violation.evidence["first wrong index"] == [0]
    assert violation.evidence["eager"] == "mul[other=0](add[other=1](x0[1]))"
    assert violation.evidence["target"] == "mul[other=0](x0[0])"


def test_an_operator_known_by_its_schema_alone() -> None:
    with torch.library._scoped_library("aliasproof_equivalence", "DEF") as library:
        library.define("twice_(Tensor(a!) x, Tensor y) -> ()")
        library.impl("twice_", lambda x, y: (x.mul_(y), None)[1], "CompositeExplicitAutograd")
        twice = torch.ops.aliasproof_equivalence.twice_.default

        def on_copy(x: Tensor, y: Tensor) -> None:
            copy = x.clone()
            twice(copy, y)
            x.copy_(copy)

        assert report(twice, on_copy, X, X + 1).violations == ()
        assert (
            report(twice, lambda x, y: twice(x, x.clone()), X, X.clone()).verdict
            is Verdict.VIOLATED
        )


def test_a_verdict_that_holds_for_these_inputs_only_says_so() -> None:
    found = report(lambda x: x * x[0].item(), lambda x: x * x[0].item(), X)
    assert found.verdict is Verdict.HOLDS
    assert "for these inputs only" in found.reason


def test_other_arithmetic_of_a_target_that_may_do_some_proves_nothing() -> None:
    waived = Contract(waivers=(Waiver(Promise.EQUIVALENCE, "it does arithmetic"),))
    found = report(lambda x: x + x, lambda x: x * 2, X, contract=waived)
    assert (found.verdict, found.differences) == (Verdict.UNKNOWN, ())
    assert found.reason.startswith("not shown equal: output 0 is computed by other operators")
    found = report(lambda x: x.add_(x), lambda x: x.mul_(2), X, contract=waived)
    assert found.reason.startswith("not shown equal: input 0")
    lerp, add = torch._foreach_lerp, torch._foreach_add
    found = report(lambda x: lerp([x], [x + 1], 2), lambda x: add([x], 2), X, contract=waived)
    assert "by other operators (_foreach_add" in found.reason
    assert "it does arithmetic" in found.reason
    assert report(lambda x: x + x, lambda x: x + x, X, contract=waived).verdict is Verdict.HOLDS


def test_a_difference_without_the_precondition_is_documented() -> None:
    never = Precondition("never", "for this test", lambda trace: False)
    contract = Contract((Waiver(Promise.EQUIVALENCE, "it does arithmetic"),), (never,))
    found = report(lambda x: x + x, lambda x: x * 2, X, contract=contract)
    assert [each.limitation.name for each in found.documented] == ["requires 'never'"]


def test_sizes_are_left_to_metadata() -> None:
    assert report(lambda x: x[1:], lambda x: x, X).violations == ()


@pytest.mark.parametrize("seed", range(8))
def test_a_program_is_equivalent_to_itself(seed: int) -> None:
    for program in sample(swarm(seed), seed, 10):
        function = ProgramFunction(program)
        if observe_eager(function, input_tensors(program))[0].error is None:
            one, other = (run_uninterpreted(function, input_tensors(program)) for _ in range(2))
            assert judge(ALL, one, other, Trace()).violations == ()


# --- where the storage of an input differs: by the input and its element, or bytes around ---------

BASE = torch.arange(8.0)
AROUND = [
    (BASE[2:4], 6, "bytes after input 1's view", 24),
    (BASE[2:4], 0, "bytes before input 1's view", 0),
    (BASE[1:6:2], 2, "bytes between the elements of input 1", 8),
]


@pytest.mark.parametrize(("view", "element", "place", "byte"), AROUND)
def test_bytes_around_an_input_are_named_by_it(view, element: int, place: str, byte: int) -> None:
    write = lambda x, y: y.as_strided((1,), (1,), element).zero_()  # noqa: E731
    (found,) = report(
        lambda x, y: None, lambda x, y: (write(x, y), None)[1], BASE[:1].clone(), view
    ).violations
    assert found.place == place
    assert found.evidence == {"first wrong byte": byte, "wrong bytes": 4}


def test_an_element_of_an_input_is_named_with_both_expressions() -> None:
    def eager(x: Tensor, y: Tensor) -> None:
        y[1] = x[0] + 1

    def target(x: Tensor, y: Tensor) -> None:
        y[1] = (x[0] * 3).abs() + 1

    (found,) = report(eager, target, BASE[:2].clone(), BASE[4:].view(2, 2)[:, 1]).violations
    assert found.place == "input 1"
    assert found.evidence == {
        "first wrong index": [1],
        "wrong elements": 1,
        "elements": 2,
        "eager": "add[other=1](x0[0])",
        "target": "add[other=1](abs(mul[other=3](x0[0])))",
        "eager never computes": "mul[other=3](x0[0])",
    }


def test_a_value_that_eager_computes_too_is_only_elsewhere() -> None:
    (found,) = report(
        lambda x: (x.copy_(x + 1), None)[1], lambda x: (x[:1].copy_(x[:1] + 1), None)[1], BASE[:2]
    ).violations
    assert (found.place, found.evidence["first wrong index"]) == ("input 0", [1])
    assert found.evidence["target"] == "x0[1]"
    assert "eager never computes" not in found.evidence
