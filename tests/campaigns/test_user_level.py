"""Findings are run under `torch.compile`; what is said about them is what the scripts showed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aliasproof.campaigns.publish.confirmation import Confirmation, Run, confirmed
from aliasproof.campaigns.publish.headline import headline
from aliasproof.campaigns.publish.issue_text import issue_text
from aliasproof.campaigns.publish.user_level import (
    Reproduced,
    UserLevel,
    answer,
    at_user_level,
    of_target,
)
from aliasproof.campaigns.store.finding import Finding
from aliasproof.corpus.known_bug import program_of, view
from aliasproof.oracles.verdict import Violation
from aliasproof.programs.ordinary_syntax import with_short_names
from aliasproof.programs.program import Input, Instruction, Program, Ref, Storage
from aliasproof.targets import inductor

CLEARED = Program(
    (Storage(torch.float32, 4),),
    (Input("x0", 0, torch.float32, (4,), (1,)),),
    (
        Instruction("aten.expand.default", (Ref("x0"), (3, 4)), results=("v0",)),
        Instruction("aten.zero_.default", (Ref("v0"),)),
        Instruction("aten.add.Scalar", (Ref("x0"), 0), results=("v1",)),
    ),
    ("v1",),
)
WRONG = {
    "eager": "0.0",
    "target": "-2.0",
    "first wrong index": [1],
    "wrong elements": 3,
    "elements": 4,
}


def found(target: str = "aot", program: Program = CLEARED, **others: object) -> Finding:
    values = {"oracle": "values", "kind": "wrong value", "place": "output 0", "evidence": WRONG}
    return Finding(
        identifier=f"{target}-values-0",
        target=target,
        program=program,
        original=program,
        seed=0,
        tried=0,
        accepted=0,
        count=1,
        torch_version=torch.__version__,
        **(values | others),  # type: ignore[arg-type]
    )


RECIPE = Reproduced("# the recipe", "BUG: recipe")


@pytest.fixture(scope="module")
def level() -> UserLevel:
    reason = inductor.unavailable()
    if reason is not None:
        pytest.skip(f"inductor {reason}")
    return at_user_level(
        found(evidence=WRONG | {"first wrong index": [0], "wrong elements": 4}), RECIPE
    )


def test_a_bug_of_functionalization_shows_under_torch_compile(level: UserLevel) -> None:
    assert level.answers == {"aot_eager": "shows", "inductor": "shows"}
    assert 'torch.compile(program, backend="aot_eager")' in level.reproduced.script
    assert "    x.expand(3, 4).zero_()\n    return x + 0\n" in level.reproduced.script
    assert "actual:   tensor([-2., -4., -6., -8.])" in level.reproduced.output


def run_by(answers: dict[str, Confirmation]) -> tuple[list[str], Run]:
    """A stand-in for the fresh process: it answers by what the script contains.

    Controls, in which eager is in the place of the compiler, show nothing.
    """
    scripts: list[str] = []

    def run(path: Path) -> Confirmation:
        text = path.read_text()
        if 'backend="eager"' in text or "(program, inputs):\n    return program\n" in text:
            return GONE
        scripts.append(text)
        return next(found for part, found in answers.items() if part in text)

    return scripts, run


PRINTED = "expected: 0\nactual:   1\ndiffers:  3 of 4, first [1]: -2.0 for 0.0\nBUG: it"
SHOWN = Confirmation(True, PRINTED, "exits 1")
GONE = Confirmation(False, "gone: both do the same", "exits 0")


def test_the_exact_syntax_is_tried_where_the_ordinary_one_shows_nothing() -> None:
    scripts, run = run_by({"aten.add.Scalar(x, 0)": SHOWN, "x + 0": GONE})
    level = at_user_level(found(), RECIPE, run)
    assert level.answers == {"aot_eager": "shows", "inductor": "shows"}
    assert "aten.add.Scalar(x, 0)" in level.reproduced.script
    assert len(scripts) == 4


def test_a_backend_that_is_not_asked_is_named() -> None:
    scripts, run = run_by({"": SHOWN})
    level = at_user_level(found(), RECIPE, run, ["aot_eager"])
    assert level.answers == {"aot_eager": "shows", "inductor": "not run, since the bug is known"}
    assert len(scripts) == 1


def test_inductor_is_left_out_where_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    scripts, run = run_by({"": SHOWN})
    level = at_user_level(found(), RECIPE, run)
    assert level.answers["aot_eager"] == "shows"
    assert level.answers["inductor"].startswith("not run, since it needs a C++ compiler")
    assert len(scripts) == 1


def test_the_recipe_stays_where_no_backend_shows_it() -> None:
    _, run = run_by({"torch.compile": GONE, "aot_function": SHOWN})
    level = at_user_level(found(), RECIPE, run)
    assert set(level.answers.values()) == {"does not show"}
    # In ordinary syntax, since that shows it too.
    assert "return x + 0" in level.reproduced.script
    _, run = run_by({"": GONE})
    assert at_user_level(found(), RECIPE, run).reproduced is RECIPE


RAISES = Violation(
    "errors",
    "raises RuntimeError: result type # can't be cast",
    "call",
    {"type": "RuntimeError", "message": "result type Long 12 can't be cast"},
)


def answer_to(violation: Violation, printed: str) -> str:
    """What is said of a finding whose script prints this."""
    finding = found(oracle="errors", kind=violation.kind, place="call", evidence=violation.evidence)
    _, run = run_by({"": Confirmation(True, f"expected: no error\nactual:   {printed}", "exits 1")})
    return at_user_level(finding, RECIPE, run, ["aot_eager"]).answers["aot_eager"]


def test_another_error_is_not_the_same_bug() -> None:
    wrapped = "BackendCompilerFailed: raised:\nRuntimeError: result type Long 7 can't be cast\n"
    assert answer_to(RAISES, wrapped) == "shows"
    other = answer_to(RAISES, "Unsupported: no\nBUG: it")
    assert other == "raises another error: Unsupported: no"


def test_dynamos_own_line_says_nothing_of_the_error() -> None:
    def raised_by(backend: str, message: str) -> str:
        return f"backend='{backend}' raised:\nAssertionError: {message}"

    message = raised_by("_recorded", "does not yet handle it")
    accused = Violation("errors", "raises BackendCompilerFailed", "call", {"message": message})
    for raised, said in (("does not yet handle it", "shows"), ("no", "raises another error")):
        output = f"BackendCompilerFailed: {raised_by('inductor', raised)}\nBUG: it"
        assert answer_to(accused, output).startswith(said)


def test_another_value_is_not_the_same_evidence() -> None:
    other = Confirmation(True, PRINTED.replace("-2.0", "-3.0"), "exits 1")
    _, run = run_by({"": other})
    level = at_user_level(found(), RECIPE, run)
    assert level.answers["inductor"] == "shows another result: 3 of 4, first [1]: -3.0 for 0.0"
    assert level.reproduced is RECIPE


def test_a_script_that_shows_eager_accuses_nobody() -> None:
    confirmation = confirmed(of_target(found()), lambda path: SHOWN)
    assert not confirmation.shown
    assert confirmation.ending.startswith("shows a difference also with eager")
    assert confirmed(of_target(found()), run_by({"": SHOWN})[1]).shown
    level = at_user_level(found(), RECIPE, lambda path: SHOWN, ["aot_eager"])
    assert level.answers["aot_eager"] == 'shows, as it does with `backend="eager"`'
    assert level.reproduced is RECIPE


def test_what_happens_instead_is_said() -> None:
    violation = Violation("values", "wrong value", "output 0")
    failed = Confirmation(False, "Traceback\n  ...\nInductorError: no", "exits 1")
    assert answer(violation, failed) == "the script exits 1: InductorError: no"
    hangs = Confirmation(False, "", "hangs: no end after 120 s")
    assert answer(violation, hangs) == "the script hangs: no end after 120 s"


@pytest.mark.parametrize(
    ("variants", "expected"),
    [
        ("aot:symbolic", 'torch.compile(program, backend="inductor", dynamic=True)'),
        ("aot-eager:second-call", "function(*later(inputs))"),
        ("aot:grad", "program, inputs = conditions(program, inputs)"),
        ("functionalize:captured", "def capturing(program, inputs):"),
    ],
)
def test_a_variant_is_called_as_it_says(variants: str, expected: str) -> None:
    scripts, run = run_by({"": GONE})
    at_user_level(found(variants), RECIPE, run)
    [script] = [text for text in scripts if 'backend="inductor"' in text][:1]
    assert expected in script
    compile(script, "reproducer.py", "exec")


# --- words ----------------------------------------------------------------------------------------


TITLES = [
    (Violation("values", "wrong value", "output 0"), "returns wrong values"),
    (Violation("metadata", "wrong stride", "output 0"), "returns an output with wrong strides"),
    (RAISES, "raises RuntimeError 'result type Long 12 can't be cast'"),
    (Violation("metadata", "wrong size", "output 0"), "returns an output with a wrong size"),
    (
        Violation("aliasing", "lost alias between input and input", "input 0, input 1"),
        "leaves two inputs that no longer share memory",
    ),
    (Violation("errors", "dies of signal 11", "call"), "dies of signal 11"),
]


@pytest.mark.parametrize(("violation", "does"), TITLES)
def test_a_title_says_who_does_what_and_when(violation: Violation, does: str) -> None:
    title = headline("aot:grad", violation, with_short_names(CLEARED))
    assert title == f"AOTAutograd (grad) {does} after x.expand(3, 4).zero_()"


@pytest.mark.parametrize(
    ("blamed", "words"),
    [
        ("post_grad: remove_noop_ops", " (Inductor's post_grad pass remove_noop_ops)"),
        ("AOTAutograd: RuntimeWrapper", " (AOTAutograd's RuntimeWrapper)"),
        ("lowering of aten.add.Tensor", " (Inductor's lowering of aten.add.Tensor)"),
        ("partitioner: fx_graph_cse", " (partitioner: fx_graph_cse)"),
        ("AOTAutograd: functionalization", ""),
        ("", ""),
    ],
)
def test_a_title_names_the_pass_at_fault(blamed: str, words: str) -> None:
    title = headline("inductor", TITLES[0][0], with_short_names(CLEARED), blamed)
    assert title == f"torch.compile returns wrong values after x.expand(3, 4).zero_(){words}"


@pytest.mark.parametrize(
    ("blamed", "sentence"),
    [
        (
            "post_grad: remove_noop_ops",
            "It is right before Inductor's post_grad pass remove_noop_ops and wrong after it",
        ),
        ("scheduler: in-place buffers", "It is right with `inplace_buffers=False`"),
        ("lowering of aten.add.Tensor", "It is right if it calls `aten.add.Tensor` of ATen."),
        ("code generation", "All graphs are right, and the code that Inductor generates is wrong"),
    ],
)
def test_an_issue_says_which_pass_is_at_fault(blamed: str, sentence: str) -> None:
    finding = found(target="inductor", blamed=blamed)
    text = issue_text(finding, Reproduced("import torch\n", "BUG: it"))
    assert sentence in text
    assert ("no generated code" in text) == blamed.startswith("post_grad")


def test_an_issue_has_what_the_tracker_asks_for() -> None:
    finding = found(
        user_level={"aot_eager": "shows", "inductor": "does not show"},
        graph="def forward(self, x):\n    return x\n",
    )
    text = issue_text(finding, Reproduced("import torch\n", SHOWN.output + "\nlogged by torch"))
    title, *rest = text.splitlines()
    assert title == (
        "torch.compile(backend='aot_eager') returns wrong values after x.expand(3, 4).zero_()"
    )
    headings = [line for line in rest if line.startswith("### ")]
    assert headings == ["### 🐛 Describe the bug", "### Error logs", "### Versions"]
    for part in (
        "```python\nimport torch\n```",
        f"{PRINTED}\n```",
        "eager has 0.0 in output 0 at index [1], the compiled function -2.0 (3 of 4 elements",
        '- AOTAutograd alone: shows\n- `backend="aot_eager"`: shows',
        "def forward(self, x):",
        f"PyTorch version: {torch.__version__}",
        "Values are compared exactly",
    ):
        assert part in text
    assert "logged by torch" not in text


WRITES = ("aten.mul_.Scalar(x0, 2)", "aten.set_.source_Tensor(x1, x0)", "aten.add_.Scalar(x0, 1)")


@pytest.mark.parametrize(
    ("writes", "said"),
    [
        (WRITES[1:], "after y.set_(x) and x.add_(1)"),
        (WRITES, "after x.mul_(2), y.set_(x) and x.add_(1)"),
        (
            (*WRITES, "aten.neg_.default(x0)", "aten.tanh_.default(x0)", "aten.exp_.default(x0)"),
            "after set_, tanh_ and exp_",
        ),
    ],
)
def test_a_title_names_all_writes_that_matter(writes: tuple[str, ...], said: str) -> None:
    """`set_` came before the last write of a finding, and was not named."""
    program = program_of("\n".join((*writes, "return ()")), view(2), view(2))
    lost = Violation("aliasing", "lost alias between input and input", "input 0, input 1")
    title = headline("aot", lost, with_short_names(program))
    assert title == f"AOTAutograd leaves two inputs that no longer share memory {said}"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            (
                "aten.add_.Scalar(x0, 1)\nv0 = aten.clone.default(x0)\n"
                "torch.ops.aliasproof.add_twice.default(x0, v0)\nreturn ()"
            ),
            "after x.add_(1) and torch.ops.aliasproof.add_twice(x, x.clone())",
        ),
        (
            (
                "v0, v1 = aten._foreach_add.Scalar([x0, x1], 1)\naten.copy_.default(x0, v1)\n"
                "aten.copy_.default(x1, v0)\nreturn ()"
            ),
            "after v0, v1 = torch._foreach_add([x, y], 1), x.copy_(v1) and y.copy_(v0)",
        ),
        (
            (
                "v0 = aten.alias.default(x0)\naten.set_.default(x0)\naten.add_.Scalar(v0, 1)\n"
                "return ()"
            ),
            "after alias, set_ and add_",
        ),
        (
            "v0 = aten.diagonal.default(x0)\naten.zero_.default(x0)\nreturn (v0,)",
            "after x.diagonal() and x.zero_()",
        ),
        (
            (
                "v0 = aten.neg.default(x0)\nv1 = aten.view.default(x0, [-1])\n"
                "aten.add_.Scalar(v1, 1)\nreturn v0, v1"
            ),
            "after v1 = x.view(-1) and v1.add_(1)",
        ),
    ],
)
def test_a_title_names_what_writes_and_what_it_uses(body: str, said: str) -> None:
    """A custom operator writes, too, and `v0` says nothing to whoever reads the title alone."""
    program = with_short_names(program_of(body, view(2, 2), view(2, 2)))
    wrong = Violation("inputs", "input ends wrong", "input 0")
    assert headline("aot", wrong, program).removesuffix(said).endswith(" in an input ")


@pytest.mark.parametrize("literal", [False, True])
def test_an_issue_says_that_gradients_are_off_where_its_script_needs_it(literal: bool) -> None:
    """AOTAutograd keeps other writes in its graph then, and a maintainer would not guess it."""
    script = of_target(found(), literal=literal).script
    text = issue_text(found(), Reproduced(script, "BUG: it"))
    said = "For this function, called under `torch.no_grad()`, AOTAutograd returns wrong values"
    assert (said in text) == literal


def test_sentences_follow_the_evidence() -> None:
    """No sentence speaks of an output, or of values, where neither is wrong."""
    lost = found(
        program=program_of("\n".join((*WRITES[1:], "return ()")), view(2), view(2)),
        oracle="aliasing",
        kind="lost alias between input and input",
        place="input 0, input 1",
        evidence={},
    )
    text = issue_text(lost, Reproduced("import torch\n", "BUG: it"))
    assert "output" not in text
    assert "Values are compared" not in text
    other = found(
        oracle="metadata", kind="wrong stride", evidence={"eager": "[2]", "target": "[1]"}
    )
    text = issue_text(other, Reproduced("import torch\n", "BUG: it"))
    assert "eager has [2] as stride of output 0, the compiled function [1]" in text


def test_an_error_is_quoted_in_full_and_logged() -> None:
    finding = found(oracle="errors", kind=RAISES.kind, place="call", evidence=RAISES.evidence)
    output = "expected: no error\nactual:   RuntimeError: result\n  a stack\nBUG: it"
    text = issue_text(finding, Reproduced("import torch\n", output))
    assert "`result type Long 12 can't be cast`" in text
    described, logs = text.split("### Error logs")
    assert "a stack" not in described
    assert "a stack" in logs
    assert "#" not in text.splitlines()[0]


def test_an_issue_says_that_the_bug_is_known() -> None:
    text = issue_text(found(known="expand-inverse"), Reproduced("import torch\n", "BUG: it"))
    assert "It is known: a write through expand adds up the copies" in text
    assert "https://github.com/pytorch/pytorch/issues/197448" in text


def test_an_issue_says_what_could_not_be_left_out() -> None:
    text = issue_text(found(cause="write through expand"), Reproduced("import torch\n", "BUG: it"))
    assert "The reduction could not leave out: write through expand." in text
    error = found(
        oracle="errors", kind=RAISES.kind, evidence=RAISES.evidence, cause="error in a.py: f"
    )
    assert "(`a.py: f`)" in issue_text(error, Reproduced("import torch\n", "BUG: it"))
