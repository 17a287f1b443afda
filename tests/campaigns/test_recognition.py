"""A violation that vanishes while a bug is patched is that bug; a remaining one is another bug."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from aliasproof.campaigns.failure.failure import Failure, Kept
from aliasproof.campaigns.failure.recognition import (
    cause_of,
    explaining_bugs,
    has_cause,
    recognised,
)
from aliasproof.campaigns.failure.reduction import reduce_failure
from aliasproof.campaigns.run.gate import release
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.ir.execution import glue
from aliasproof.ir.program import Program
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.user_names import grant
from tests.short_programs import known_bug, program_of, view

VERSION = release()


def symptom_of(program: Program, target: str) -> Symptom:
    """The symptom of a program that fails."""
    symptom = examine(Case.of(program), target_named(target)).symptom
    assert symptom is not None
    return symptom


@pytest.mark.parametrize(
    ("identifier", "exact"),
    [
        ("expand-inverse", True),
        ("detached-view-replayed", True),
        pytest.param("as-strided-of-new-base", False, id="no patch removes it"),
        pytest.param("overlap-of-item-sizes", False, id="torch refuses the patched program"),
    ],
)
def test_a_known_bug_is_recognised_through_each_target(identifier: str, exact: bool) -> None:
    bug = known_bugs()[identifier]
    if VERSION not in bug.versions:
        pytest.skip(f"torch {torch.__version__} does not have this bug")
    for target in bug.targets:
        found = recognised(bug.program, symptom_of(bug.program, target), reduced=True)
        assert (found.known, found.exact) == (identifier, exact)


PASSES = """
import torch
from torch._inductor.pattern_matcher import (
    Arg, CallFunction, PatternMatcherPass, register_graph_pattern,
)

aten = torch.ops.aten
patterns = PatternMatcherPass()


@register_graph_pattern(CallFunction(aten.sub.Tensor, Arg(), Arg()), pass_dict=patterns)
def rewritten(match, x, y):
    match.replace_by_example(lambda x, y: aten.add.Tensor(x, y, alpha=-1), [x, y])


def forgets_alpha(graph_module):
    patterns.apply(graph_module.graph)


def nothing(graph_module):
    return graph_module
"""


@pytest.mark.skipif(
    VERSION not in known_bugs()["pattern-keywords"].versions,
    reason="patterns of this torch do not ignore keywords",
)
def test_what_a_pass_does_by_code_of_torch_is_a_finding_of_the_pass(tmp_path, monkeypatch, program):
    """A pattern that ignores keywords is a known bug of Inductor, which makes the pass wrong."""
    (tmp_path / "passes.py").write_text(PASSES)
    monkeypatch.chdir(tmp_path)
    grant(["passes.py:forgets_alpha", "passes.py:nothing"])
    tested = program("aten.sub_.Tensor(x0, x0, alpha=2)\nreturn (x0,)", (4,))
    symptom = symptom_of(tested, "passes.py:forgets_alpha")
    assert recognised(tested, symptom, reduced=True).known is None
    finding = reduce_failure(Failure.of(symptom, tested, 0, past_known=False))
    assert finding is not None
    assert (finding.target, finding.known) == ("passes.py:forgets_alpha", None)
    # A bug of an earlier layer can explain violations of the pass, too.
    names = {bug.identifier for bug in explaining_bugs(target_named("passes.py:nothing"))}
    assert "lost-strides" in names
    assert "pattern-keywords" not in names


def test_what_does_not_fail_is_not_recognised(program) -> None:
    right = program("v0 = aten.expand.default(x0, [4])\nreturn (v0,)", ())
    symptom = Symptom("functionalize", "values", "wrong value")
    assert recognised(right, symptom, reduced=True) == (None, False, None)


def test_a_bug_is_recognised_where_torch_refuses_the_patched_program() -> None:
    body = """
        v0 = aten.slice.Tensor(x0, 0, 0, 1)
        torch.ops.aliasproof.double.default(v0)
        return ()
    """
    expanded = program_of(body, view(2, 1, strides=(0, 1)))
    found = recognised(expanded, symptom_of(expanded, "aot"), reduced=True)
    assert (found.known, found.exact) == ("custom-slice-by-zero", False)


# Functionalization adds up the copies (known), and AOTAutograd loses the strides of x1 (known too).
TWO_BUGS = """
    v0 = aten.expand.default(x0, [2])
    aten.zero_.default(v0)
    v1 = aten.copy.default(x1, x1)
    aten.add_.Scalar(v1, 0)
    return x0, v1
"""


def test_of_two_known_bugs_the_one_that_is_visible_counts(program) -> None:
    both = program(TWO_BUGS, (), (2,))
    found = recognised(both, symptom_of(both, "aot"), reduced=False)
    assert (found.known, found.exact) == ("expand-inverse", True)


def test_what_a_known_bug_hides_is_found_and_reduced_past_it(program, monkeypatch) -> None:
    monkeypatch.delitem(known_bugs(), "unfold-inverse")
    body = """
        v0 = aten.expand.default(x0, [2])
        aten.zero_.default(v0)
        v1 = aten.unfold.default(x1, 0, 1, 2)
        aten.add_.Scalar(v1, 1)
        return (x0, x1)
    """
    both = program(body, (), (2,))
    symptom = symptom_of(both, "functionalize")
    failure = Failure.of(symptom, both, 0, past_known=False)
    assert failure.known is None
    reduced = reduce_failure(failure)
    assert reduced is not None
    assert reduced.known is None
    assert [call.op for call in reduced.program.instructions][:1] == ["aten.unfold.default"]


def test_the_evidence_of_a_known_bug_is_its_minimal_program(program) -> None:
    drawn = program(TWO_BUGS, (), (2,))
    failure = Failure.of(symptom_of(drawn, "aot"), drawn, 7, past_known=False)
    reduced = reduce_failure(failure)
    assert reduced is not None
    assert reduced.identifier == "known-expand-inverse"
    assert reduced.program == known_bugs()["expand-inverse"].program
    assert (reduced.original, reduced.seed, reduced.tried) == (drawn, 7, 0)
    assert reduced.violation.kind == "wrong value"


# --- causes ---------------------------------------------------------------------------------------


WRONG = Symptom("functionalize", "values", "wrong value")
EXPAND, UNFOLD = "expand-inverse", "unfold-inverse"


def returning_inputs(bug: str) -> Program:
    program = known_bugs()[bug].program
    return replace(program, outputs=tuple(view.name for view in program.inputs))


@known_bug
def test_the_known_bug_is_told_by_few_compiles() -> None:
    assert cause_of(returning_inputs(EXPAND), WRONG) == EXPAND
    assert has_cause(returning_inputs(EXPAND), WRONG, EXPAND)
    assert not has_cause(returning_inputs(EXPAND), WRONG, "")


@known_bug
def test_a_candidate_that_shows_another_bug_is_not_interesting() -> None:
    kept = Kept(WRONG, cause=UNFOLD)
    assert Kept(WRONG).grade(returning_inputs(EXPAND)) == 1
    assert kept.grade(returning_inputs(EXPAND)) == 0


@known_bug
def test_a_bug_that_another_patch_prevents_too_is_told_apart() -> None:
    # Two conditions of one pattern: with either patch, the pattern is not applied at all.
    cause, wrong = "attention-mask-of-numbers", Symptom("inductor-fx", "values", "wrong value")
    over_last = known_bugs()[cause].program
    calls = [
        replace(call, args=(call.args[0], 0, *call.args[2:])) if "softmax" in call.op else call
        for call in over_last.instructions
    ]
    over_first = replace(over_last, instructions=tuple(calls))
    assert has_cause(over_last, wrong, cause)
    assert not has_cause(over_first, wrong, cause)


@known_bug
def test_what_no_patch_removes_has_no_known_cause() -> None:
    both = glue([returning_inputs(EXPAND), returning_inputs(UNFOLD)]).program
    assert cause_of(both, WRONG) is None
    assert cause_of(returning_inputs(EXPAND), Symptom("identity", "values", "wrong value")) is None


@known_bug
def test_a_target_of_ours_has_no_excuse(program: Callable[..., Program]) -> None:
    given = program("v0 = aten.neg.default(x0)\nreturn (v0,)", (4,))
    assert cause_of(given, Symptom("reference", "values", "wrong value")) is None
