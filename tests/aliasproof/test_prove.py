"""`aliasproof prove`: given this function and this target, this is the answer for each pair."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from aliasproof.checks import proving
from aliasproof.checks.proving import Range, prove_build, prove_function
from aliasproof.ir.regions import Region, overlap
from aliasproof.oracles.contract import Contract, Precondition
from aliasproof.oracles.proofs import target_proofs
from aliasproof.oracles.proofs.target_proofs import Answer, Covered
from aliasproof.targets.target import Target
from tests.oracles.proofs.sized_programs import even_arena, no_clones
from tests.short_programs import program_of, view

DOCUMENT = Path(__file__).parents[2] / "docs" / "proofs.md"
HALVES = """
import torch


def program(x):
    half = x.shape[0] // 2
    top, bottom = x[:half], x[half:]
    top.add_(1)
    return bottom, top.clone(), x + 0


def inputs():
    return torch.ones(6, 4)
"""
names: dict[str, Any] = {}
exec(HALVES, names)
halves = names["program"]


def never_run(function, inputs):
    raise NotImplementedError


def stand_in(contract=None):
    return Target("stand-in", "", contract or Contract(), never_run, "")


def answers(found):
    return {(pair.one, pair.other): pair.answer for pair in found.pairs}


def only(found, answer):
    return [pair for pair in found.pairs if pair.answer is answer]


# --- correct programs are proved ------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        *("identity", "functionalize", "aot", "aot-epilogue"),
        *("reference", "reference-copy", "reference-planned"),
    ],
)
def test_a_right_target_adds_no_alias_at_any_size(target):
    (found,) = prove_function(halves, [torch.ones(6, 4)], [target])
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


def test_inputs_that_share_a_storage_are_taken_as_they_are():
    base = torch.ones(8)
    (found,) = prove_function(lambda x, y: (x.add_(1), y[2:]), [base[:4], base[2:]], ["reference"])
    assert found.shapes == (("4",), ("6",))
    assert set(answers(found).values()) == {Answer.PROVED}


def test_a_program_is_proved_at_the_sizes_that_it_was_made_for():
    program = program_of("v0 = aten.view.default(x0, [2, 2])\nreturn (v0,)", view(4))
    (found,) = prove_function(program, targets=["reference"])
    assert set(answers(found).values()) == {Answer.PROVED}
    (beyond,) = prove_function(program, targets=["reference"], sizes=Range(8, 64))
    assert set(answers(beyond).values()) == {Answer.VACUOUS}


# --- wrong programs are refuted, and the refutation is shown --------------------------------------


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
        output = views[int(pair.other.removeprefix("output "))]
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


@pytest.mark.parametrize("sizes", [Range(130, 300), Range(10**12, None)])
def test_a_proof_is_held_against_a_real_run_also_if_the_sample_is_out_of_range(sizes):
    """Few sizes satisfy the guard, or inputs of such sizes fit into no memory."""

    build = by_kind(on_fakes=torch.clone, on_real=torch.detach)
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
    assert pair.answer is Answer.UNKNOWN
    assert "promises nothing: it is not for this" in pair.how


# --- undecided programs have a reason -------------------------------------------------------------


def by_kind(on_fakes, on_real):
    """A build that behaves differently on real and on fake tensors."""
    return lambda *_: lambda x: (on_fakes if isinstance(x, FakeTensor) else on_real)(x)


def not_built(function, fakes):
    raise ZeroDivisionError("of all things")


@pytest.mark.parametrize(
    ("build", "how"),
    [
        (by_kind(torch.detach, torch.clone), "does not show it"),
        (by_kind(torch.clone, torch.detach), "has another layout"),
        (by_kind(torch.clone, lambda x: x.gone()), "AttributeError: 'Tensor' object has no"),
        (None, "the target has no build with symbolic sizes"),
        (not_built, "with symbolic sizes, the target raises ZeroDivisionError: of all things"),
        (by_kind(lambda x: x.gone(), torch.clone), "with symbolic sizes, the target raises Attr"),
    ],
)
def test_what_no_run_shows_is_unknown_with_the_reason(build, how):
    found = prove_build(torch.clone, [torch.ones(6)], stand_in(), build)
    (pair,) = found.pairs
    assert (pair.answer, pair.counterexample) == (Answer.UNKNOWN, None)
    assert how in pair.how


def test_a_data_dependent_function_is_unknown():
    (found,) = prove_function(lambda x: x[: int(x.sum())], [torch.ones(6)], ["reference"])
    assert set(answers(found).values()) == {Answer.UNKNOWN}
    reason = "with symbolic sizes, the function raises GuardOnDataDependent"
    assert found.pairs[0].how.startswith(reason)


@pytest.mark.parametrize("target", ["identity", "aot", "reference"])
def test_a_data_dependent_size_is_unknown_for_that_reason(target):
    (found,) = prove_function(lambda x: (x[x > 0], x), [torch.ones(4)], [target])
    assert set(answers(found).values()) == {Answer.UNKNOWN}
    assert all("data-dependent" in pair.how for pair in found.pairs)


@pytest.mark.parametrize("target", ["identity", "aot", "reference"])
def test_a_value_that_is_not_an_integer_is_not_a_size(target):
    (found,) = prove_function(lambda x: (x + x.sum().item(), x), [torch.ones(4)], [target])
    assert set(answers(found).values()) == {Answer.PROVED}


def test_sizes_that_no_graph_is_for_are_vacuous():
    (found,) = prove_function(halves, [torch.ones(6, 4)], ["aot"], Range(1, 1))
    assert set(answers(found).values()) == {Answer.VACUOUS}


def test_each_pair_gets_the_time_that_was_given(monkeypatch):
    limits = []

    def noting(*given):
        limits.append(given[-1])
        return target_proofs.prove(*given)

    monkeypatch.setattr(proving, "prove", noting)
    prove_function(lambda x: x + 1, [torch.ones(2)], ["identity", "aot"], limit=0.25)
    assert limits == [0.25, 0.25]


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


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def mine(write):
    return write(HALVES)


def test_a_refutation_ends_in_exit_code_1_and_can_be_checked_by_hand(call, mine, planted):
    planted("careless", no_clones)
    done = call("prove", mine, "--target", "careless")
    assert done.code == 1
    assert re.search(r"input 0, output 1 +refuted", done.out)
    shown = re.search(
        r"with input 0 of size \[(\d+), (\d+)\]: input 0 at \[(\d+), (\d+)\]"
        r" and output 1 at \[(\d+), (\d+)\] both contain byte (\d+)",
        done.out,
    )
    assert shown is not None
    rows, columns, *indices, byte = map(int, shown.groups())
    for row, column in (indices[:2], indices[2:]):
        assert 0 <= row < rows
        assert byte // 4 == row * columns + column


def test_json_has_all_of_it(call, mine, planted):
    planted("careless", no_clones)
    given = call(
        "prove", mine, "--target", "careless", "--target", "reference", "--sizes", "2:", "--json"
    ).json(1)
    assert given["sizes"] == [2, None]
    careless, reference = given["targets"]["careless"], given["targets"]["reference"]
    assert careless["inputs"] == [["n0", "n1"]]
    assert "2 <= n0" in careless["assumptions"]
    assert careless["sizes that satisfy them"] is None
    assert reference["counts"] == {"proved": 6, "refuted": 0, "unknown": 0, "vacuous": 0}
    refuted = [pair for pair in careless["pairs"] if pair["answer"] == "refuted"]
    assert refuted
    assert all(
        set(pair["counterexample"]) == {"sizes of inputs", "indices", "shared byte"}
        for pair in refuted
    )
    assert all(pair["counterexample"] is None for pair in reference["pairs"])


def test_one_reason_for_all_pairs_is_said_once(call, mine):
    done = call("prove", mine, "--target", "reference", "--sizes", "1:1")
    assert done.code == 0
    assert done.out.count("all pairs vacuous: no sizes in range satisfy the assumptions") == 1
    assert done.out.splitlines()[-1] == "0 proved, 0 refuted, 0 unknown, 6 vacuous"


def test_it_is_said_if_no_size_is_a_symbol(call, write_program):
    path = write_program("return x + 1", "torch.ones(1)")
    done = call("prove", path, "--target", "reference", "--sizes", "2:3")
    assert "no size became a symbol" in done.err
    assert "input 0 is [1]\n" in done.out
    assert " in range" not in done.out


def test_captured_tensors_are_named(call, write_program):
    path = write_program("return x * W", "torch.ones(5)", head="W = torch.ones(5)")
    printed = call("prove", path, "--target", "reference").out
    assert "input 0 is [n0], input 1 (W) is [n1]; sizes" in printed
    given = call("prove", path, "--target", "reference", "--json").json()
    assert given["targets"]["reference"]["captured by the function"] == ["W"]


def test_a_function_that_raises_in_eager_is_bad_input(call, write_program):
    path = write_program("return x.view(3, 3)", "torch.ones(4)")
    assert "eager raises RuntimeError" in call("prove", path, "--target", "reference").refusal


def test_the_document_shows_what_the_command_prints(call, tmp_path):
    """Times and the version of torch can differ."""
    text = DOCUMENT.read_text(encoding="utf-8")
    code, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "mine.py").write_text(code)
    (shown,) = re.findall(r"```console\n\$ aliasproof (.*?)\n(.*?)```", text, re.DOTALL)
    done = call(*shown[0].split())
    assert plain(done.out) == plain(shown[1])
    # The ranges of the command come first.
    assert "assumptions: 2 <= n0 <= 64, 2 <= n1 <= 64, " in done.out
    assert "assumptions: 2 <= n0 <= 64, 2 <= n1 <= 64, " in shown[1]


def plain(text):
    """The lines without times, widths and the version of torch.

    Each version of torch notes other guards for the same program, in another order.
    """
    lines = [
        re.sub(r" +[\d.]+$", "", line)
        for line in text.splitlines()
        if line and " in torch " not in line and not line.startswith("assumptions: ")
    ]
    return [re.sub(r"[ ─]+", " ", line).strip() for line in lines]
