"""Oracle *equivalence*: two functions compute the same for all values, or a difference is seen."""

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
from tests.oracles.scenes import ALL, pairs_in, report

aten = torch.ops.aten
X = torch.arange(6.0)
M = torch.arange(12.0).view(3, 4)
Z = torch.complex(torch.arange(4.0), torch.ones(4))


def stale(x: Tensor) -> Tensor:
    """Reads an element before it is written: the functions below hide this mistake."""
    return x.clone()


# --- the same -------------------------------------------------------------------------------------

SAME = pairs_in(
    """
in-place and functional: x.add_(1) => x.copy_(x + 1)
out= and functional (x, y): X, X + 1
    torch.mul(x, x, out=y)
    y.copy_(x * x)
operands of a sum swapped (x, y): X, X.flip(0)
    x + y
    y + x
scatter and view with copy_ (m, x): M, torch.ones(4)
    torch.select_scatter(m, x, 0, 1)
    (out := m.clone(), out[1].copy_(x))[0]
slice_scatter and view with copy_ (m, x): M, torch.ones(3, 2)
    torch.slice_scatter(m, x, 1, 1, 3)
    (out := m.clone(), out[:, 1:3].copy_(x))[0]
view and its copy (m): M
    aten.select.int(m, 0, 1) + 1
    aten.select_copy.int(m, 0, 1) + 1
split and its copies (m): M
    [each + 1 for each in aten.split.Tensor(m, 2, 1)]
    [each + 1 for each in aten.split_copy.Tensor(m, 2, 1)]
concatenation, and each part stored (x, y): X, X + 10
    torch.cat((x, y))
    (out := x.new_empty(12), out[:6].copy_(x), out[6:].copy_(y))[0]
flip, and gathered views: x.flip(0) => torch.stack([x[5 - i] for i in range(6)])
repeat and expand: x.repeat(2, 1) => x.expand(2, 6).clone()
zeros, filled or made: x.zero_() => x.copy_(torch.zeros_like(x))
a fill, byte by byte: x.fill_(0) => (x.view(torch.uint8).fill_(0), x)[1]
bytes moved, and elements: x.clone() => x.view(torch.int32).clone().view(torch.float32)
conjugated twice, lazily and not (z): Z
    z.conj().conj() * 2
    torch.conj_physical(torch.conj_physical(z)) * 2
the imaginary part of a conjugate (z): Z
    torch.view_as_real(z.conj().resolve_conj())[:, 1] + 1
    torch.view_as_real(z)[:, 1].neg() + 1
a constant negated lazily, and by an op (x): X.long()
    torch._neg_view(torch.ones_like(x)) + 1
    torch.ones_like(x).neg() + 1
constants beside an input, negated lazily, and by an op:
    (x[:2].fill_(1), torch._neg_view(x) + 1)[1]
    (x[:2].fill_(1), torch.cat((x.new_full((2,), -1), x[2:].neg())) + 1)[1]
the conjugate of a constant (z): Z
    torch.full_like(z, 1 + 2j).conj() + z
    torch.full_like(z, 1 - 2j) + z
an addend that is ignored (i): X[:2].long()
    i.addmv_(i.new_zeros(2, 3), i.new_zeros(3), beta=0)
    i.copy_(torch.zeros_like(i))
computed from constants, before the run and in it:
    (x.copy_(torch.ones_like(x).exp()), torch.full((2,), 5.5).remainder(0.1))[1]
    (x.fill_(2.7182817), torch.tensor([0.1, 0.1]))[1]
a product of integers with zero (i): X.long()
    i.mul_(0)
    i.zero_()
a product of bools with False (b): X > 2
    torch._foreach_mul([b], False)
    [torch.zeros_like(b)]
integers that are rounded (i): X.long()
    (i.ceil(), i.nan_to_num(7), torch.round(i, out=i.clone()))
    (i.clone(), i.clone(), i.clone())
integers that are infinite or no number (i): X.long()
    (i.isposinf(), aten.isinf.default(i), aten.isnan.default(i))
    (torch.zeros(6, dtype=torch.bool),) * 3
a selection by indices (m, i): M, torch.tensor([2, 0])
    (m.index_select(-1, i) + 1, aten.index.Tensor(m, [i]))
    (aten.index.Tensor(m, [None, i]) + 1, m.index_select(0, i))
a pad of no elements: torch.constant_pad_nd(x, [0, 0], 7) + 1 => x + 1
a dropout without training:
    aten.native_dropout(x, 0.5, False)
    (x.clone(), torch.ones(6, dtype=torch.bool))
# The generator advances, so the next draw is another one.
a dropout of probability zero, and what is drawn after it (x, y): X, X.clone()
    (aten.native_dropout(x, 0.0, True)[0], y.bernoulli_(0.5))
    (x * x.bool().bernoulli(1.0) * 1.0, y.bernoulli_(0.5))
running statistics of a batch norm in evaluation (m, x, y): M, torch.ones(4), torch.ones(4)
    aten._native_batch_norm_legit(m, x, x, x, y, False, 0.5, 1.0)[0]
    aten._native_batch_norm_legit_functional(m, x.clone(), x, x, y, False, 0.5, 1.0)[0]
comparison written in place, and cast: x.ge_(2) => x.copy_(x.ge(2))
an integer add to a float (x, i): X, X.long()
    i.add_(x.long())
    i.copy_(i + x.long())
lists (x, y): X, M.clone()
    torch._foreach_add_([x, y], 1)
    [a.copy_(b) for a, b in zip([x, y], torch._foreach_add([x, y], 1), strict=True)]
one random fill: x.uniform_() => x.copy_(aten.uniform.default(x))
indexed store (x, i): X, torch.tensor([3, 1])
    x.index_put_((i,), x[:2] + 1)
    x.copy_(x.index_put((i,), x[:2] + 1))
a sum into its dtype (i, x): X.long(), X
    torch.cumsum(i, 0, out=x)
    x.copy_(torch.cumsum(i, 0, dtype=torch.float32))
no element: x[:0].add_(1) => x.new_empty(0)
resized (x): X.clone()
    x.resize_(12)[:6] + 1
    x.resize_(12)[:6] + 1
""",
    globals(),
)


@pytest.mark.parametrize("name", SAME)
def test_it_holds(name: str) -> None:
    eager, target, inputs = SAME[name]
    assert report(eager, target, *inputs).violations == ()


# --- not the same ---------------------------------------------------------------------------------

HIDDEN = pairs_in(
    """
by a product with 0: x.add_(1) * 0 => (stale(x) * 0, x.add_(1))[0]
by relu: x.sub_(9).relu() => ((stale(x) - 7).relu(), x.sub_(9))[0]
by equal values (x): torch.ones(2)
    x[0] + 1
    x[1] + 1
by an identity: x * 1 => x.clone()
by values that happen to be zero (x, y): X, torch.zeros(6)
    x + y
    x - y
by the dtype that it is computed in: x + 1 => (x.double() + 1).float()
by order that does not matter here (x): torch.full((2,), -0.0)
    x.add_(1).mul_(2)
    x.mul_(2).add_(1)
in bytes that nobody returns (x): torch.zeros(6)
    x[:3].zero_()
    (x[:4].zero_(), x[:3])[1]
by a product of two that are zero (i, j): X.long() * 0, X.long()
    i * j
    torch.zeros_like(i)
by numbers that are whole: x.ceil() => x.clone()
by a sum of all: x.sum() => x.flip(0).sum()
by a scatter of what is there already (m): M
    torch.select_scatter(m, m[1] * 1, 0, 1)
    m.clone()
by a random number drawn twice: (x.uniform_(), x)[1] => (x.uniform_(), x.uniform_())[1]
by unwritten memory: torch.zeros(2) => torch.empty(2)
by a random number times zero: torch.rand(2) * 0 => (torch.rand(2), torch.rand(2))[1] * 0
by an input beside constants: torch.cat((torch.zeros(2), x[:1] * 0)) => torch.zeros(3)
by a sign that zero does not have (z): torch.ones(2, dtype=torch.complex64)
    z.conj()
    z.clone()
by an operand that does not commute (x, y): X, X.clone()
    x - y
    y - x
by a mask that drops nothing (x, y): X, X.clone()
    (aten.native_dropout(x, 0.0, True)[0], y.bernoulli_(0.5))[1]
    (x.clone(), y.bernoulli_(0.5))[1]
by an argument without effect here: x.clamp(min=-1) => x.clamp(min=-2)
""",
    globals(),
)


@pytest.mark.parametrize("name", HIDDEN)
def test_a_difference_is_seen(name: str) -> None:
    eager, target, inputs = HIDDEN[name]
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
