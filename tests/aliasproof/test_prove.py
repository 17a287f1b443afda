"""`aliasproof prove`: given this function and this target, this is the answer for each pair."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from aliasproof.checks.proving import Range, prove_build, prove_function
from aliasproof.ir.program import Input, Instruction, Program, Ref, Storage
from aliasproof.ir.regions import Region, overlap
from aliasproof.oracles.contract import Contract, Precondition
from aliasproof.oracles.proofs.pair_decision import Answer
from aliasproof.oracles.proofs.target_proofs import Covered
from aliasproof.targets.target import Target
from tests.oracles.proofs.sized_programs import even_arena, no_clones


def halves(x):
    half = x.shape[0] // 2
    top, bottom = x[:half], x[half:]
    top.add_(1)
    return bottom, top.clone(), x + 0


def never_run(function, inputs):
    raise NotImplementedError


def stand_in(contract=None):
    return Target("stand-in", "", contract or Contract(), never_run, "")


def answers(found):
    return {(pair.proof.one, pair.proof.other): pair.proof.answer for pair in found.pairs}


def only(found, answer):
    return [pair for pair in found.pairs if pair.proof.answer is answer]


# --- what is right is proved ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "identity",
        "functionalize",
        "aot",
        "aot-epilogue",
        "reference",
        "reference-copy",
        "reference-planned",
    ],
)
@pytest.mark.parametrize("sizes", [Range(1, 64), Range(2, None)])
def test_a_right_target_adds_no_alias_at_any_size(target, sizes):
    (found,) = prove_function(halves, [torch.ones(6, 4)], [target], sizes)
    assert set(answers(found).values()) == {Answer.PROVED}
    assert len(found.pairs) == 6


def test_two_inputs_have_symbols_of_their_own_and_what_is_asked_of_them_is_an_assumption():
    def program(x, y):
        x.add_(y)
        return x.t(), y[1:]

    (found,) = prove_function(program, [torch.ones(4, 4), torch.ones(4)], ["reference"])
    assert found.shapes == (("n0", "n1"), ("n2",))
    assert found.assumptions == ("2 <= n0 <= 64", "3 <= n1 <= 64", "n2 == n1", "n1 - 1 >= 2")
    assert found.counts[Answer.PROVED] == 5


def test_captured_tensors_are_inputs():
    weight = torch.ones(3)
    (found,) = prove_function(lambda x: (x + weight, weight), [torch.ones(3)], ["reference"])
    assert found.shapes == (("n0",), ("n1",))
    assert set(answers(found).values()) == {Answer.PROVED}


def test_inputs_that_share_a_storage_are_taken_as_they_are():
    base = torch.ones(8)
    (found,) = prove_function(lambda x, y: (x.add_(1), y[2:]), [base[:4], base[2:]], ["reference"])
    assert found.shapes == (("4",), ("6",))
    assert set(answers(found).values()) == {Answer.PROVED}


def test_a_program_is_proved_at_the_sizes_that_it_was_made_for():
    program = Program(
        storages=(Storage(torch.float32, 4),),
        inputs=(Input("x", 0, torch.float32, (4,), (1,), 0),),
        instructions=(Instruction("aten.view.default", (Ref("x"), (2, 2)), (), ("v",)),),
        outputs=("v",),
    )
    (found,) = prove_function(program, targets=["reference"])
    assert set(answers(found).values()) == {Answer.PROVED}
    (beyond,) = prove_function(program, targets=["reference"], sizes=Range(8, 64))
    assert set(answers(beyond).values()) == {Answer.VACUOUS}


# --- what is wrong is refuted, and the refutation shown -------------------------------------------


def test_a_dropped_clone_is_refuted_by_sizes_that_show_it():
    def program(x):
        return x[: x.shape[0] // 2].clone(), x[x.shape[0] // 2 :].clone()

    found = prove_build(program, [torch.ones(6, 4)], stand_in(), no_clones)
    assert answers(found) == {
        ("input 0", "output 0"): Answer.REFUTED,
        ("input 0", "output 1"): Answer.REFUTED,
        ("output 0", "output 1"): Answer.PROVED,
    }
    for pair in only(found, Answer.REFUTED):
        ((rows, columns),) = pair.counterexample.shapes
        real = torch.ones(rows, columns)
        views = [real[: rows // 2], real[rows // 2 :]]
        output = views[int(pair.proof.other.removeprefix("output "))]
        assert overlap(Region.of(real), Region.of(output))
        for tensor, index in zip((real, output), pair.counterexample.indices, strict=True):
            assert tensor[index].data_ptr() - real.data_ptr() == pair.counterexample.byte


def test_how_many_sizes_in_range_satisfy_the_assumptions_is_counted():
    (found,) = prove_function(lambda x: x.view(2, -1), [torch.ones(6)], ["reference"], Range(1, 9))
    assert "Mod(n0, 2) == 0" in found.assumptions
    assert found.covered is not None
    assert found.covered.of == 9
    assert 2 <= found.covered.sizes <= 4


def test_a_target_that_is_wrong_at_odd_sizes_only_is_refuted_by_an_odd_size():
    found = prove_build(lambda x: (x + 1, x + 2), [torch.ones(6)], stand_in(), even_arena)
    (refuted,) = only(found, Answer.REFUTED)
    ((size,),) = refuted.counterexample.shapes
    assert size % 2 == 1
    assert refuted.counterexample.indices == ((size - 1,), (0,))
    found = prove_build(
        lambda x: (x + 1, x + 2), [torch.ones(6)], stand_in(), even_arena, Range(6, 6)
    )
    assert set(answers(found).values()) == {Answer.PROVED}


def test_a_refutation_that_a_run_does_not_show_is_unknown():
    def build(function, fakes):
        return lambda x: x if isinstance(x, FakeTensor) else x.clone()

    found = prove_build(lambda x: x.clone(), [torch.ones(6)], stand_in(), build)
    (pair,) = found.pairs
    assert (pair.proof.answer, pair.counterexample) == (Answer.UNKNOWN, None)
    assert "does not show it" in pair.proof.how


def test_a_proof_on_fake_tensors_with_another_layout_than_real_ones_is_unknown():
    def build(function, fakes):
        return lambda x: x.clone() if isinstance(x, FakeTensor) else x

    found = prove_build(lambda x: x.clone(), [torch.ones(6)], stand_in(), build)
    (pair,) = found.pairs
    assert pair.proof.answer is Answer.UNKNOWN
    assert "has another layout" in pair.proof.how


def test_a_proof_of_a_target_that_raises_on_real_tensors_is_unknown():
    def build(function, fakes):
        def run(x):
            if isinstance(x, FakeTensor):
                return x.clone()
            raise RuntimeError("no such kernel")

        return run

    found = prove_build(lambda x: x.clone(), [torch.ones(6)], stand_in(), build)
    (pair,) = found.pairs
    assert pair.proof.answer is Answer.UNKNOWN
    assert pair.proof.how == "the target raises RuntimeError: no such kernel in a real run"


@pytest.mark.parametrize("sizes", [Range(130, 300), Range(10**12, None)])
def test_a_proof_is_held_against_a_real_run_also_if_the_sample_is_out_of_range(sizes):
    """Few sizes fulfil the guard, or inputs of such sizes fit into no memory."""

    def build(function, fakes):
        return lambda x: x.clone() if isinstance(x, FakeTensor) else x

    found = prove_build(
        lambda x: x.view(64, -1).clone(), [torch.ones(128)], stand_in(), build, sizes
    )
    assert answers(found) == {("input 0", "output 0"): Answer.UNKNOWN}


def test_what_the_target_does_not_promise_is_not_refuted():
    contract = Contract(
        preconditions=(Precondition("never", "it is not for this", lambda trace: False),)
    )
    found = prove_build(lambda x: x.clone(), [torch.ones(6)], stand_in(contract), no_clones)
    (pair,) = found.pairs
    assert pair.proof.answer is Answer.UNKNOWN
    assert "promises nothing: it is not for this" in pair.proof.how


# --- what is not decided says why -----------------------------------------------------------------


def test_a_target_without_a_symbolic_build_is_unknown():
    found = prove_build(halves, [torch.ones(6, 4)], stand_in(), None)
    assert {pair.proof.how for pair in found.pairs} == {
        "the target has no build with symbolic sizes"
    }
    assert set(answers(found).values()) == {Answer.UNKNOWN}


def test_a_target_that_cannot_be_built_is_unknown_with_its_error():
    def build(function, fakes):
        raise ZeroDivisionError("of all things")

    found = prove_build(halves, [torch.ones(6, 4)], stand_in(), build)
    assert {pair.proof.how for pair in found.pairs} == {
        "with symbolic sizes, the target raises ZeroDivisionError: of all things"
    }


def test_a_data_dependent_function_is_unknown():
    (found,) = prove_function(lambda x: x[: int(x.sum())], [torch.ones(6)], ["reference"])
    assert set(answers(found).values()) == {Answer.UNKNOWN}


@pytest.mark.parametrize("target", ["identity", "aot", "reference"])
def test_a_data_dependent_size_is_unknown_for_that_reason(target):
    (found,) = prove_function(lambda x: (x[x > 0], x), [torch.ones(4)], [target])
    assert set(answers(found).values()) == {Answer.UNKNOWN}
    assert all("data-dependent" in pair.proof.how for pair in found.pairs)


@pytest.mark.parametrize("target", ["identity", "aot", "reference"])
def test_a_value_that_is_not_an_integer_is_not_a_size(target):
    (found,) = prove_function(lambda x: (x + x.sum().item(), x), [torch.ones(4)], [target])
    assert set(answers(found).values()) == {Answer.PROVED}


def test_sizes_that_no_graph_is_for_are_vacuous():
    (found,) = prove_function(halves, [torch.ones(6, 4)], ["aot"], Range(1, 1))
    assert set(answers(found).values()) == {Answer.VACUOUS}


def test_no_time_is_unknown():
    def packed(x):
        buffer = torch.empty(3 * x.numel())
        return buffer[: x.numel()].view(x.shape), buffer[x.numel() :].view(2, *x.shape)

    def function(x):
        return x + 1, torch.stack((x, x))

    def answer(limit):
        found = prove_build(
            function, [torch.ones(6, 4)], stand_in(), lambda *_: packed, limit=limit
        )
        return answers(found)["output 0", "output 1"]

    assert answer(1e-3) is Answer.UNKNOWN
    assert answer(10.0) is Answer.PROVED


def test_assumptions_are_written_as_python_has_them():
    (found,) = prove_function(
        lambda x: x.unflatten(0, (2, -1))[:, 1:], [torch.ones(6, 4)], ["reference"]
    )
    assert "(n0 == 2 or Mod(n0, 2) == 0)" in found.assumptions


@pytest.mark.parametrize(
    "large", [lambda n: n * 0.5 > 2, lambda n: n / 2 > 2, lambda n: n**0.5 + 1 > 3]
)
def test_a_guard_in_fractions_is_an_assumption(large):
    def program(x):
        return x[1:].clone() if large(x.shape[0]) else x

    found = prove_build(program, [torch.ones(9)], stand_in(), no_clones)
    assert answers(found) == {("input 0", "output 0"): Answer.REFUTED}
    assert found.covered == Covered(60, 64)
    found = prove_build(program, [torch.ones(9)], stand_in(), no_clones, Range(2, 4))
    assert set(answers(found).values()) == {Answer.VACUOUS}


def test_whether_function_or_target_fails_on_symbols_is_said():
    def build(function, fakes):
        return lambda x: x.no_such_method()

    found = prove_build(lambda x: x + 1, [torch.ones(4)], stand_in(), build)
    assert found.pairs[0].proof.how.startswith(
        "with symbolic sizes, the target raises AttributeError"
    )
    found = prove_build(lambda x: x[: int(x.sum())], [torch.ones(4)], stand_in(), build)
    assert found.pairs[0].proof.how.startswith(
        "with symbolic sizes, the function raises GuardOnDataDependent"
    )
