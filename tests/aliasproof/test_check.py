"""`aliasproof check`: the verdict on a user's own function."""

import json
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch

import aliasproof
from aliasproof.checking import check
from oracles.check_result import Check
from oracles.verdict import Verdict
from programs.program import Input, Instruction, Program, Ref, Storage
from programs.serialization import dumps
from reports.side_by_side import value_text
from targets.registry import TARGETS
from targets.target import Build

ORACLES = {
    "errors",
    "values",
    "inputs",
    "aliasing",
    "metadata",
    "equivalence",
    "clobbers",
    "invariants",
}
SAFE = ("functionalize", "fx-reinplace", "aot", "aot-epilogue", "identity")

# In torch 2.13, zeroing an expanded input through AOTAutograd gives values other than zero.
MISCOMPILED = """
import torch

def program(x):
    x.expand(3, 4).zero_()
    return x + 0

def inputs():
    return torch.arange(4.)
"""


@pytest.fixture
def write(tmp_path):
    def write_file(text: str) -> str:
        (tmp_path / "mine.py").write_text(textwrap.dedent(text))
        return "mine.py"

    return write_file


def eager_outputs(found: Check) -> list[str]:
    assert found.eager.observation is not None
    return [value_text(output) for output in found.eager.observation.outputs]


def increments(x):
    return x.add_(1) * 2


# --- the command ----------------------------------------------------------------------------------


def test_nothing_wrong(call, write):
    outcome = call(
        "check",
        write(
            """
            import torch
            def program(x):
                return x + 1
            def inputs():
                return [torch.ones(2)]
            """
        ),
    )
    assert outcome.code == 0
    assert "Nothing wrong: functionalize, fx-reinplace, aot, aot-epilogue, identity." in outcome.out
    assert outcome.err == ""


def test_a_miscompile_of_torch(call, write):
    outcome = call("check", write(MISCOMPILED), "--target", "aot", "--target", "identity")
    assert outcome.code == 1
    assert "wrong value (output 0)" in outcome.out
    assert "input ends wrong (input 0)" in outcome.out
    assert "tensor([0., 0., 0., 0.])" in outcome.out
    assert outcome.out.strip().endswith("Wrong: aot.")


def test_what_an_earlier_target_breaks_is_shown_once(call, write):
    outcome = call("check", write(MISCOMPILED), "--target", "aot", "--target", "aot-epilogue")
    assert "wrong value (output 0), as in aot" in outcome.out
    assert (
        outcome.out.count("first wrong index") == 2
    )  # values and inputs of aot, and not of aot-epilogue


def test_json(call, write, forgetful_target):
    file = write(
        """
        import torch
        def program(x):
            return x.add_(1)
        def inputs():
            return torch.zeros(2)
        """
    )
    outcome = call("check", file, "--target", "forgetful", "--target", "identity", "--json")
    assert outcome.code == 1
    found = json.loads(outcome.out)
    assert set(found) == {"file", "torch", "notes", "eager", "targets", "violated"}
    assert (found["file"], found["torch"], found["violated"]) == (
        "mine.py",
        torch.__version__,
        True,
    )
    assert found["eager"]["judged"] is True
    assert found["eager"]["outputs"] == ["tensor([1., 1.])"]
    assert set(found["targets"]) == {"forgetful", "identity"}
    for target in found["targets"].values():
        assert set(target) == {"oracles", "violated", "missed"}
        assert set(target["oracles"]) == ORACLES
        for report in target["oracles"].values():
            assert set(report) == {"verdict", "reason", "violations"}
            assert report["verdict"] in {known.value for known in Verdict}
    assert found["targets"]["identity"]["violated"] is False
    inputs = found["targets"]["forgetful"]["oracles"]["inputs"]
    assert inputs["verdict"] == "violated"
    assert inputs["violations"][0]["place"] == "input 0"
    assert inputs["violations"][0]["evidence"]["eager"] == "1.0"


def test_what_the_file_prints_is_no_result(call, write):
    file = write(
        """
        import torch
        print('a')
        def program(x):
            print('b')
            return x
        def inputs():
            return torch.ones(1)
        """
    )
    outcome = call("check", file, "--json", "--target", "identity")
    assert json.loads(outcome.out)["violated"] is False
    assert {"a", "b"} <= set(outcome.err.split())


def test_eager_leaves_it_undefined(call, write):
    text = """
        import torch
        def program(x):
            return x.expand(3, 3).add_(torch.arange(3.))
        def inputs():
            return torch.ones(3)
    """
    outcome = call("check", write(text))
    assert outcome.code == 0
    assert (
        "undefined in eager: aten.add_.Tensor writes through a region that overlaps itself"
        in outcome.out
    )
    found = json.loads(call("check", "mine.py", "--json").out)
    assert found["eager"]["judged"] is False
    assert "undefined in eager" in found["eager"]["reason"]
    verdicts = {
        r["verdict"] for target in found["targets"].values() for r in target["oracles"].values()
    }
    assert verdicts == {"not applicable"}


def test_eager_raises(call, write):
    text = """
        import torch
        def program(x):
            return x + torch.ones(7)
        def inputs():
            return torch.ones(3)
    """
    outcome = call("check", write(text), "--target", "aot")
    assert outcome.code == 0
    assert "eager raises RuntimeError: The size of tensor a" in outcome.out
    assert "(line 4)" in outcome.out
    assert "no results to compare" in outcome.out


def test_other_names_and_neighbours(call, write, tmp_path):
    (tmp_path / "neighbour.py").write_text("def f(x):\n    return x.sin()\n")
    file = write(
        "import torch\nfrom neighbour import f\ndef made():\n    return (torch.ones(1),)\n"
    )
    assert call("check", file, "--function", "f", "--inputs", "made", "--target", "aot").code == 0
    assert not (tmp_path / "__pycache__" / "mine.pyc").exists()


def test_a_note_says_that_gradients_are_left_out(call, write):
    text = """
        import torch
        def program(x):
            return x * 2
        def inputs():
            return torch.ones(2, requires_grad=True)
    """
    outcome = call("check", write(text), "--target", "aot")
    assert outcome.code == 0
    assert outcome.err.startswith("note: inputs that require gradients are detached")


def a_program() -> Program:
    return Program(
        (Storage(torch.float32, 4),),
        (Input("x", 0, torch.float32, (4,), (1,)),),
        (Instruction("aten.add_.Scalar", (Ref("x"), 1)),),
        ("x",),
    )


def test_a_program_and_the_folder_of_a_finding(call, tmp_path):
    (tmp_path / "program.json").write_text(dumps(a_program()))
    assert call("check", "program.json").code == 0
    assert call("check", tmp_path).code == 0


# --- the function ---------------------------------------------------------------------------------


@dataclass
class Pair:
    first: torch.Tensor
    second: object


WEIGHT = torch.arange(3.0)
LINEAR = torch.nn.Linear(3, 3)


def mutated_global(x):
    return WEIGHT.add_(x) + 1


def branches(x):
    return x + 1 if x.sum() > 1 else x - 1


@pytest.mark.parametrize(
    "function",
    [
        increments,
        lambda x: {"a": x + 1, "b": None, "c": [3, "text", True], "d": x.dtype, "e": x.shape},
        lambda x: Pair(x + 1, Pair(x.neg_(), None)),
        lambda x: None,
        lambda x: x * WEIGHT,
        lambda x: (WEIGHT, x.add_(WEIGHT)),
        mutated_global,
        LINEAR,
        lambda x: LINEAR(x).relu_(),
        LINEAR.forward,
        lambda x: x.add_(torch.rand(3)) + torch.rand(3),
        torch.vmap(lambda row: row + row),
        torch.func.grad(lambda y: (y * y).sum()),
        lambda x: torch.Tensor([1, 2, 3]).add_(x),
        lambda x: x[torch.tensor([0, 2])],
    ],
)
def test_any_function_that_torch_runs(function):
    found = check(function, [torch.arange(3.0)], SAFE)
    assert found.eager.unjudged is None
    assert not found.violated
    for name, result in found.results.items():
        for oracle, report in result.reports.items():
            inside = oracle in (
                "equivalence",
                "clobbers",
                "invariants",
            )  # not all promise these, and not all show a graph
            assert report.verdict is Verdict.HOLDS or (
                inside and report.verdict is Verdict.NOT_APPLICABLE
            ), (name, oracle)


def test_data_dependent_branches_are_run_where_they_can_be():
    assert not check(branches, [torch.ones(3)], ["identity", "aot"]).violated


def test_inputs_and_captured_tensors_stay_as_they_were():
    x, before = torch.zeros(3), WEIGHT.clone()
    check(lambda y: (y.add_(1), WEIGHT.mul_(2)), [x], ["aot"])
    assert torch.equal(x, torch.zeros(3))
    assert torch.equal(WEIGHT, before)


def test_the_random_numbers_of_the_caller_go_on():
    torch.manual_seed(7)
    expected = torch.rand(2)
    torch.manual_seed(7)
    check(increments, [torch.zeros(1)], ["identity"])
    assert torch.equal(torch.rand(2), expected)


def test_state_of_a_module_is_compared(forgetful_target):
    norm = torch.nn.BatchNorm1d(3)
    found = check(norm, [torch.randn(4, 3)], ["aot", "forgetful"])
    assert not found.results["aot"].violated
    places = {
        violation.place
        for violation in found.results["forgetful"].violations
        if violation.oracle == "inputs"
    }
    assert places == {
        "input 1",
        "input 2",
        "input 3",
    }  # the count of batches, the running mean and variance
    assert "input 1 (num_batches_tracked)" in found.notes[0]


def test_inputs_that_share_a_storage_still_do(forgetful_target):
    base = torch.zeros(4)
    found = check(lambda x, y: x.add_(y), [base[:3], base[1:]], ["identity"])
    assert "reads memory that it is writing" in (found.eager.unjudged or "")
    found = check(
        lambda x, y: (x.add_(1), y + 0)[1], [base[:3], base[1:]], ["identity", "forgetful"]
    )
    assert [violation.kind for violation in found.results["forgetful"].violations] == [
        "wrong value",
        "input ends wrong",
        "input ends wrong",
        "wrong term",
        "wrong term",
    ]


def test_a_function_with_state_outside_of_tensors_is_not_judged():
    calls = []

    def counts(x):
        calls.append(x)
        return x + len(calls)

    found = check(counts, [torch.zeros(1)])
    assert not found.violated
    assert "two eager runs on equal inputs differ" in (found.eager.unjudged or "")


def test_what_cannot_be_looked_into_is_not_called_right():
    found = check(lambda x: (x + 1, object()), [torch.zeros(1)], ["identity"])
    report = found.results["identity"].reports["values"]
    assert report.verdict is Verdict.UNKNOWN
    assert "cannot be compared: object" in report.reason


def test_what_a_dispatch_mode_cannot_watch_is_not_judged():
    def chooses(x):
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    found = check(chooses, [torch.ones(2)], ["identity"])
    assert "cannot watch" in (found.eager.unjudged or "")


def test_a_violation_counts_if_it_comes_again(monkeypatch):
    builds = []

    def wrong_at_first(function, inputs) -> Build:
        builds.append(function)
        difference = 1 if len(builds) == 1 else 0
        return Build(
            lambda x: [output + difference if difference else output for output in function(x)], []
        )

    monkeypatch.setitem(
        TARGETS, "moody", replace(TARGETS["identity"], name="moody", build=wrong_at_first)
    )
    found = check(lambda x: x * 2, [torch.ones(2)], ["moody"])
    assert not found.violated
    assert found.results["moody"].reports["values"].verdict is Verdict.UNKNOWN
    assert "not in a second run" in found.results["moody"].reports["values"].reason


def test_a_violation_that_comes_again_counts(forgetful_target):
    found = check(increments, [torch.zeros(2)], ["forgetful", "identity"])
    assert found.violated
    assert found.results["forgetful"].reports["inputs"].verdict is Verdict.VIOLATED
    assert not found.results["identity"].violated


def test_a_program_needs_no_inputs():
    assert not check(a_program(), targets=["identity", "aot"]).violated


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((increments,), "inputs are missing"),
        ((increments, [3]), r"inputs\[0\] is 3 of type int"),
        ((increments, [torch.ones(1)], ["idntity"]), "did you mean 'identity'"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(aliasproof.UserError, match=message):
        check(*arguments)


def test_captured_tensors_that_share_a_storage_still_do():
    base = torch.zeros(4)
    left, right = base[:3], base[1:]

    def through_both(x: torch.Tensor) -> torch.Tensor:
        left.add_(x)
        return right + 0

    found = check(through_both, [torch.ones(3)], ["identity", "aot"])
    assert not found.violated
    assert eager_outputs(found) == ["tensor([1., 1., 0.])"]


def test_a_global_that_is_an_input_is_that_input():
    x = torch.zeros(2)
    function: Callable[[torch.Tensor], torch.Tensor] = lambda y: x.add_(1) + y  # noqa: E731
    found = check(function, [x], ["identity", "aot"])
    assert not found.violated
    assert found.notes == []
    assert eager_outputs(found) == ["tensor([2., 2.])"]
