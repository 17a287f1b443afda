"""Variants: their names, the targets that take them, and the bugs that each shows."""

import functools

import pytest
from torch import Tensor

from aliasproof.campaigns.failure.signature import Signature
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.ir.values import input_tensors
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.trial import Case
from aliasproof.oracles.verdict import Verdict
from aliasproof.targets.control_flow import FORMS
from aliasproof.targets.registry import TARGETS, target
from aliasproof.targets.second_calls import SECOND_CALLS
from aliasproof.targets.user_targets import KINDS
from aliasproof.targets.variants import GRADS, VARIANTS, is_variant
from tests.short_programs import known_bug, of_vectors
from tests.targets.conftest import OF_TORCH, defined_by, ends, matrix, printed

SINGLE = [f"{name}:{own.name}" for name in TARGETS for own in TARGETS[name].variants]
DOUBLE = ["fx-reinplace:decompose:symbolic", "aot:decompose:grad", "aot-eager:symbolic:second-call"]
# Guards are Dynamo's: one target shows the bugs of all, and generated code takes seconds.
RUN = [
    name
    for name in SINGLE
    if (
        not (set(name.split(":")) & {*SECOND_CALLS} and name.startswith(("inductor", "reference")))
        # These are for programs only: see test_control_flow.
        and not set(name.split(":")) & {*FORMS}
        and name.split(":")[0] in OF_TORCH
    )
    or name in ("inductor-fx:second-call", "inductor:kept-outputs", "reference:kept-outputs")
]


# --- names ----------------------------------------------------------------------------------------


def test_a_name_gives_the_target_of_that_name() -> None:
    for name in (*SINGLE, *DOUBLE):
        found = target(name)
        assert found.name == name
        assert all(target(fewer.name).name == fewer.name for fewer in found.earlier)
    # In any order.
    assert target("fx-reinplace:symbolic:decompose").name == "fx-reinplace:decompose:symbolic"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("aot:secondcall", "unknown variant 'secondcall' of target 'aot'; did you mean"),
        ("aot:zzz", f"variants: {', '.join(VARIANTS)}"),
        ("aott:grad", "unknown target 'aott'; did you mean 'aot'?"),
        (
            "identity:symbolic",
            "'identity' has no variant 'symbolic' (it has grad, half-grad, captured, ",
        ),
        ("reference:symbolic:second-call", "'second-call' needs the backend"),
        ("functionalize:captured:symbolic", "exclude each other: a symbolic trace takes no"),
        ("aot:", "unknown variant ''"),
    ],
)
def test_an_impossible_variant_is_refused_with_advice(name: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        target(name)
    assert message in str(raised.value)


def test_a_target_takes_variants_of_the_table_in_its_order() -> None:
    for taken in (*(tested.variants for tested in TARGETS.values()), *KINDS.values()):
        names = [variant.name for variant in taken]
        assert names == [name for name in VARIANTS if name in names]
        assert all(
            {*variant.apart, variant.like or variant.name} <= {*VARIANTS} for variant in taken
        )


def test_an_identifier_is_a_name_of_a_folder_on_every_system() -> None:
    found = Signature(
        Symptom("aot-eager:second-call", "values", "wrong value"), "a cause"
    ).identifier
    assert found.startswith("aot-eager.second-call-values-")


# --- attribution ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "earlier"),
    [
        ("functionalize:decompose", ["functionalize"]),
        ("fx-reinplace:decompose", ["fx-reinplace", "functionalize:decompose"]),
        ("aot-eager:second-call", ["aot-eager"]),
        ("aot-eager", ["aot"]),
        (
            "fx-reinplace:decompose:symbolic",
            ["fx-reinplace:symbolic", "fx-reinplace:decompose", "functionalize:decompose:symbolic"],
        ),
    ],
)
def test_a_variant_builds_on_the_targets_with_one_variant_less(name, earlier):
    assert [found.name for found in target(name).earlier] == earlier


@known_bug
@pytest.mark.parametrize(
    "name", ["aot:symbolic", "aot-eager:second-call", "fx-reinplace:decompose"]
)
def test_a_bug_of_the_plain_target_is_not_one_of_the_variant(name: str) -> None:
    program = of_vectors(
        "v0 = aten.expand.default(x0, [3, 4])\naten.zero_.default(v0)\nreturn ()", 0
    )
    symptom = examine(Case.of(program), target(name)).symptom
    assert symptom is not None
    assert symptom.target in ("functionalize", "aot")


# --- what runs right ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*RUN, *DOUBLE])
def test_a_right_function_runs_right(name: str) -> None:
    def function(x: Tensor, y: Tensor) -> object:
        x = x * 2
        x[0].add_(y[1])
        return x.t(), (x + y).relu()

    found = examine(Case.of_function(function, [matrix(), -matrix()]), target(name))
    assert found.rejected is None
    assert not found.violations
    assert found.reports["values"].verdict is Verdict.HOLDS


CONDITIONS = ["grad", "captured", "kept-buffers", *SECOND_CALLS]
BOTH = [f"{grad.name}:{second}" for grad in GRADS for second in SECOND_CALLS]


@pytest.mark.parametrize("variants", [*CONDITIONS, *BOTH])
def test_identity_is_right_about_all_programs_under_the_same_conditions(variants: str) -> None:
    judged = 0
    for seed in range(8):
        for program in sample(swarm(seed), seed, 4):
            found = examine(Case.of(program), target(f"identity:{variants}"))
            assert not found.violations
            assert found.mistake is None
            judged += found.rejected is None
    assert judged >= (10 if variants in BOTH else 16)


# --- recipes --------------------------------------------------------------------------------------


# Inductor's recipes go through Dynamo, unlike its targets: layouts of empty tensors differ.
@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")  # a script may be warned
@pytest.mark.parametrize(
    "name", [name for name in (*RUN, *DOUBLE) if not name.startswith(("inductor", "aot-eager"))]
)
def test_a_recipe_does_what_build_does(name: str) -> None:
    tested, compared = target(name), 0
    namespace = defined_by(tested.recipe)
    # Programs of several features, until two are compared.
    for program in (drawn for seed in range(20) for drawn in sample(swarm(seed), seed, 1)):
        plain = Case(printed(program), functools.partial(input_tensors, program))
        case = plain.under(tested)
        try:
            built = ends(case, lambda function, inputs: tested.build(function, inputs).function)
        except Rejected:
            continue
        if "conditions" in namespace:
            case = Case(*namespace["conditions"](plain.function, plain.fresh_inputs))
        assert ends(case, namespace["compiled"]) == built
        compared += 1
        if compared == 2:
            return
    pytest.fail("no program can be compared")


@pytest.mark.parametrize(
    ("name", "of", "expected"),
    [
        ("aot", "aot", True),
        ("aot:grad", "aot", True),
        ("aot:decompose:grad", "aot:grad", True),
        ("aot", "aot:grad", False),
        ("aot-epilogue", "aot", False),
        ("aot:half-grad", "aot:grad", True),
        ("aot-eager:half-grad:second-call", "aot-eager:second-call", True),
        ("aot:grad", "aot:half-grad", False),
    ],
)
def test_a_variant_has_the_bugs_of_the_target_with_fewer(name, of, expected):
    assert is_variant(name, of) == expected
