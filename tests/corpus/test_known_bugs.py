"""Known bugs: the minimal program shows each, and the patch removes only this bug."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch._inductor import config as inductor_config

from aliasproof.campaigns.failure.recognition import by_mark, plausible_bugs
from aliasproof.campaigns.run.gate import release
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import KnownBug, patched
from aliasproof.ir.devices import vector_bits
from aliasproof.ir.serialization import dumps, loads
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case, Trial, run_eager, run_trial
from aliasproof.oracles.verdict import Verdict, Violation
from aliasproof.targets.registry import target as target_named
from tests.short_programs import program_of, programs_in, view

BUGS = list(known_bugs().values())
VERSION = release()


def tried(bug: KnownBug, target: str, *patches: KnownBug) -> Trial:
    """The minimal program of a bug through a target, with these bugs patched."""
    named = target_named(target)
    reason = named.unavailable()
    if reason is not None:
        pytest.skip(reason)
    if bug.ends_process:
        pytest.skip("it would end the process of the test")
    case = Case.of(bug.program).under(named)
    eager = run_eager(case)
    with patched(patches):
        return run_trial(case, named, eager=eager)


def require_shown_here(bug: KnownBug) -> None:
    """Skip a test of a bug that this torch, or the vectors of this processor, do not show."""
    if VERSION not in bug.versions:
        pytest.skip(f"torch {torch.__version__} does not have this bug")
    if not bug.shows_here:
        pytest.skip(f"vectors have {vector_bits()} bits here, it shows with {bug.vector_bits}")


def differences(trial: Trial) -> list[Violation]:
    """What differs from eager, the main difference first; documented ones come last."""
    reports = trial.judgement.reports.values()
    documented = [found.difference for report in reports for found in report.documented]
    return [*trial.judgement.violations, *documented]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.identifier)
def test_the_program_shows_the_bug_in_the_versions_that_have_it(bug: KnownBug) -> None:
    if VERSION in bug.versions:
        require_shown_here(bug)
    found = {difference.oracle for difference in differences(tried(bug, bug.targets[0]))}
    # In another version, its program may show another bug, such as an error for a wrong value.
    own = found if bug.shown is None or VERSION in bug.versions else {bug.shown.oracle}
    shown = bool(found & own)
    assert shown == (VERSION in bug.versions), f"{bug.file}: whether torch {VERSION} shows it"


@pytest.mark.vectors
@pytest.mark.parametrize("bits", [0, 256, 512])
@pytest.mark.parametrize(
    "bug", [bug for bug in BUGS if bug.vector_bits], ids=lambda bug: bug.identifier
)
def test_a_bug_shows_with_the_vectors_that_it_names(bug: KnownBug, bits: int) -> None:
    with inductor_config.patch({"cpp.simdlen": bits or 1}):
        if vector_bits() != bits:
            pytest.skip(f"this machine has no vectors of {bits} bits")
        if VERSION not in bug.versions:
            pytest.skip(f"torch {torch.__version__} does not have this bug")
        shown = [bool(differences(tried(bug, target))) for target in bug.targets]
    assert shown == [bits in bug.vector_bits] * len(shown)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.identifier)
def test_a_bug_is_recognised_and_the_patches_of_others_leave_it(bug: KnownBug) -> None:
    require_shown_here(bug)
    target = bug.targets[0]
    others = tried(bug, target, *(other for other in BUGS if other is not bug))
    patched = tried(bug, target, bug) if bug.patch is not None else None
    trial = tried(bug, target)
    main, *_ = differences(trial)  # fails if a patch outlives its context
    assert main in differences(others)
    if patched is not None:
        assert bug in plausible_bugs(bug.program, target)
        assert not patched.judgement.violations
        assert main not in differences(patched)
    elif trial.judgement.violations:  # a contract documents some differences
        symptom = Symptom(target, main.oracle, main.kind)
        assert by_mark(bug.program, symptom, reduced=True) == bug.identifier


@pytest.mark.parametrize(
    "bug", [bug for bug in BUGS if bug.ends_process], ids=lambda bug: bug.identifier
)
def test_a_program_that_ends_its_process_does_so(bug: KnownBug) -> None:
    for target in bug.targets:
        if (reason := target_named(target).unavailable()) is not None:
            pytest.skip(reason)
        run = (
            "from aliasproof.corpus.bug_files import known_bugs\n"
            "from aliasproof.targets.registry import target\n"
            "from aliasproof.judge.trial import Case, run_trial\n"
            f"run_trial(Case.of(known_bugs()[{bug.identifier!r}].program), target({target!r}))"
        )
        ended = subprocess.run([sys.executable, "-c", run], capture_output=True, check=False)
        symptom = Symptom(target, "errors", f"dies of signal {-ended.returncode}")
        assert by_mark(bug.program, symptom, reduced=True) == bug.identifier


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.identifier)
def test_a_bug_can_be_patched_or_recognised(bug: KnownBug) -> None:
    assert bug.patch is not None or bug.mark is not None
    assert loads(dumps(bug.program), "the program") == bug.program
    assert bug.plausible(bug.program)
    assert [target_named(name).name for name in bug.targets] == list(bug.targets)


def test_bugs_that_are_patched_already_stay_patched() -> None:
    bug = known_bugs()["composite-in-place"]
    main, *_ = differences(tried(bug, "functionalize"))
    with patched(BUGS):
        assert main not in differences(tried(bug, "functionalize", *BUGS))
        assert main not in differences(tried(bug, "functionalize"))
    assert main in differences(tried(bug, "functionalize"))


OTHER_FORMS = programs_in("""
relax-view-not-known through relax-vm: [1]
    v0 = aten.mul.Tensor(x0, 1)
    aten.add_.Scalar(v0, 1)
    return (x0,)

reinplaced-operands through fx-reinplace: int64[]
    v0 = aten.arange.start_step(0, -1, -1)
    v1 = aten.index_put.default(v0, [v0], x0)
    return (v1,)

composite-in-place through functionalize: []
    v0 = aten.atleast_1d.default(x0)
    aten.add_.Scalar(v0, 1)
    return ()

composite-in-place through aot:cond: []
    aten.subtract_.Scalar(x0, 1)
    v0 = aten.neg.default(x0)
    return (v0,)

lost-strides through aot: [2, 2] strides [3, 1] [2]
    aten._foreach_zero_.default([x0])
    v0 = aten.select_scatter.default(x0, x1, 0, 0)
    return (v0,)

metadata-taken-for-data through functionalize: [0, 0] [0]
    v0 = aten.matrix_H.default(x0)
    aten.resize_as_.default(v0, x1)
    return ()

custom-result-unwritten through aot: []
    v0 = aten._neg_view.default(x0)
    torch.ops.aliasproof.add_.default(v0, x0)
    return ()

reinplaced-result-outlives through inductor-fx: []
    torch.ops.aliasproof.add_both.default(x0, x0)
    v0 = aten.clone.default(x0)
    aten.add_.Scalar(x0, 1)
    return (v0,)
""") | {
    "copy-of-odd-storage through aot": program_of(
        "aten.add_.Scalar(x0, 1)\nreturn (x1,)",
        view(storage=0),
        view(1, storage=0),
        bytes_of={0: 7},
    ),
    "copy-of-odd-storage through functionalize": program_of(
        "v0 = aten.slice.Tensor(x0, 0, 1)\naten.add_.Scalar(v0, 1)\nreturn ()",
        view(2, storage=0, dtype=torch.int16),
        bytes_of={0: 7},
    ),
}


@pytest.mark.parametrize("form", OTHER_FORMS)
@pytest.mark.skipif(VERSION != "2.13", reason="a later torch does not show all forms")
def test_a_patch_removes_the_other_forms_of_the_bug(form: str) -> None:
    identifier, target = form.split(" through ")
    bug = replace(known_bugs()[identifier], program=OTHER_FORMS[form])
    assert tried(bug, target).judgement.violations
    assert not tried(bug, target, bug).judgement.violations


def test_a_copy_before_reinplacing_has_the_gaps_of_the_operand() -> None:
    program = program_of(
        """
        v0 = aten.slice_scatter.default(x0, x1, 0, 1)
        aten.add_.Scalar(x0, 1)
        return (v0,)
        """,
        view(2, strides=(2,)),
        view(1),
    )
    bug = replace(known_bugs()["reinplaced-result-outlives"], program=program)
    assert not tried(bug, "inductor-reinplace", bug).judgement.violations


def test_the_patched_inverse_of_unfold_keeps_the_strides_of_the_base() -> None:
    body = """
    v0 = aten.add.Scalar(x0, 1)
    v1 = aten.unfold.default(v0, 0, 1, 1)
    aten.fill_.Scalar(v1, 1)
    return (v0,)
    """
    program = program_of(body, view(2, 2, strides=(1, 2)))
    bug = replace(known_bugs()["unfold-inverse"], program=program)
    assert tried(bug, "aot").judgement.violations
    assert not tried(bug, "aot", bug).judgement.violations


def test_a_write_through_an_expanded_number_is_equal_for_all_values_when_patched() -> None:
    program = program_of(
        "v0 = aten.expand.default(x0, [])\naten.add_.Scalar(v0, 1)\nreturn ()", view()
    )
    with patched(BUGS):
        found = examine(Case.of(program), target_named("aot"))
    assert found.reports["equivalence"].verdict is Verdict.HOLDS


RIGHT_WHEN_PATCHED = programs_in("""
sizes first, inductor-fx: [0]
    v0 = aten.randint_like.default(x0, 1)
    aten.rrelu_with_noise_.default(x0, x0)
    return ()

a number first, inductor-fx: int64[]
    v0 = aten.mul.Tensor(x0, 0.0)
    v1 = aten.amax.default(v0, [], True)
    v2 = aten.sub.Tensor(v0, v1)
    return (v2,)

a zero of whole numbers, inductor-fx: []
    v0 = aten.mul.Scalar(x0, -0.0)
    v1 = aten.zeros_like.default(x0, dtype=torch.int64)
    v2 = aten.add.Tensor(v0, v1)
    return (v2,)

strides after a write through a view, aot: [3] strides [2]
    aten.bernoulli_.float(x0)
    v0 = torch.ops.aliasproof.strides.default(x0)
    return (v0,)

two copies, inductor-reinplace: [1]
    v0 = aten.slice.Tensor(x0)
    torch.ops.aliasproof.add_both.default(x0, x0)
    aten.add_.Scalar(v0, 1)
    return (v0,)

memory that set_ left, functionalize: [1]
    v0 = aten.alias.default(x0)
    aten.set_.default(x0)
    aten.add_.Scalar(v0, 1)
    return ()

metadata of a merged input, aot: [1] storage 0 [] storage 0
    aten.resize_.default(x0, [])
    aten.add_.Scalar(x1, 1)
    return ()

another dtype of a merged input, aot: [1] storage 0 [] storage 0
    aten.add_.Scalar(x1, 1)
    v0 = aten.view.dtype(x0, torch.int8)
    return (v0,)
""")


@pytest.mark.parametrize("name", RIGHT_WHEN_PATCHED)
def test_what_is_patched_shows_nothing_else(name: str) -> None:
    case = Case.of(RIGHT_WHEN_PATCHED[name])
    with patched(BUGS):
        assert not run_trial(case, target_named(name.split(", ")[1])).judgement.violations


def test_a_remainder_by_infinity_is_patched_for_an_integer_operand_too() -> None:
    bug = known_bugs()["remainder-of-infinity"]
    integer = replace(bug.program.inputs[0], dtype=torch.int32)
    storages = (replace(bug.program.storages[0], dtype=torch.int32), bug.program.storages[1])
    program = replace(bug.program, storages=storages, inputs=(integer, bug.program.inputs[1]))
    case, inductor = Case.of(program), target_named("inductor")
    if inductor.unavailable() is not None:
        pytest.skip("no code is generated here")
    if bug.shows_here:
        assert run_trial(case, inductor).judgement.violations
    with patched([bug]):
        assert not run_trial(case, inductor).judgement.violations
