"""Findings are run under `torch.compile`; what is said about them is what the scripts showed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aliasproof.campaigns.publish.headline import headline
from aliasproof.campaigns.publish.issue_text import issue_text
from aliasproof.campaigns.publish.reproducer import Confirmation
from aliasproof.campaigns.publish.user_level import Reproduced, UserLevel, answer, at_user_level
from aliasproof.campaigns.store.finding import Finding
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
    return at_user_level(found(), RECIPE)


def test_a_bug_of_functionalization_shows_under_torch_compile(level: UserLevel) -> None:
    assert level.answers == {"aot_eager": "shows", "inductor": "shows"}
    assert 'torch.compile(program, backend="aot_eager")' in level.reproduced.script
    assert "    x.expand(3, 4).zero_()\n    return x + 0\n" in level.reproduced.script
    assert "actual:   [tensor([-2., -4., -6., -8.])]" in level.reproduced.output


def run_by(answers: dict[str, Confirmation]) -> tuple[list[str], object]:
    """A stand-in for the fresh process: it answers by what the script contains."""
    scripts: list[str] = []

    def run(path: Path) -> Confirmation:
        scripts.append(path.read_text())
        return next(found for text, found in answers.items() if text in scripts[-1])

    return scripts, run


SHOWN = Confirmation(True, "expected: 0\nactual:   1\nBUG: it", "exits 1")
GONE = Confirmation(False, "gone: both do the same", "exits 0")


def test_the_exact_syntax_is_tried_where_the_ordinary_one_shows_nothing() -> None:
    scripts, run = run_by({"aten.add.Scalar(x, 0)": SHOWN, "x + 0": GONE})
    level = at_user_level(found(), RECIPE, run)  # type: ignore[arg-type]
    assert level.answers == {"aot_eager": "shows", "inductor": "shows"}
    assert "aten.add.Scalar(x, 0)" in level.reproduced.script
    assert len(scripts) == 4


def test_a_backend_that_is_not_asked_is_named() -> None:
    scripts, run = run_by({"": SHOWN})
    level = at_user_level(found(), RECIPE, run, ["aot_eager"])  # type: ignore[arg-type]
    assert level.answers == {"aot_eager": "shows", "inductor": "not run, since the bug is known"}
    assert len(scripts) == 1


def test_inductor_is_left_out_where_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    scripts, run = run_by({"": SHOWN})
    level = at_user_level(found(), RECIPE, run)  # type: ignore[arg-type]
    assert level.answers["aot_eager"] == "shows"
    assert level.answers["inductor"].startswith("not run, since it needs a C++ compiler")
    assert len(scripts) == 1


def test_the_recipe_stays_where_no_backend_shows_it() -> None:
    _, run = run_by({"torch.compile": GONE, "aot_function": SHOWN})
    level = at_user_level(found(), RECIPE, run)  # type: ignore[arg-type]
    assert set(level.answers.values()) == {"does not show"}
    # In ordinary syntax, since that shows it too.
    assert "return x + 0" in level.reproduced.script
    _, run = run_by({"": GONE})
    assert at_user_level(found(), RECIPE, run).reproduced is RECIPE  # type: ignore[arg-type]


RAISES = Violation(
    "errors",
    "raises RuntimeError: result type # can't be cast",
    "call",
    {"type": "RuntimeError", "message": "result type Long 12 can't be cast"},
)


def test_another_error_is_not_the_same_bug() -> None:
    wrapped = (
        "actual:   BackendCompilerFailed: raised:\nRuntimeError: result type Long 7 can't be cast"
    )
    assert answer(RAISES, Confirmation(True, wrapped, "exits 1")) == "shows"
    other = Confirmation(True, "actual:   Unsupported: no\nBUG: it", "exits 1")
    assert answer(RAISES, other) == "raises another error: Unsupported: no"


def test_dynamos_own_line_says_nothing_of_the_error() -> None:
    def raised_by(backend: str, message: str) -> str:
        return f"backend='{backend}' raised:\nAssertionError: {message}"

    message = raised_by("_recorded", "does not yet handle it")
    accused = Violation("errors", "raises BackendCompilerFailed", "call", {"message": message})
    for raised, said in (("does not yet handle it", "shows"), ("no", "raises another error")):
        output = f"actual:   BackendCompilerFailed: {raised_by('inductor', raised)}\nBUG: it"
        assert answer(accused, Confirmation(True, output, "exits 1")).startswith(said)


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
    at_user_level(found(variants), RECIPE, run)  # type: ignore[arg-type]
    [script] = [text for text in scripts if 'backend="inductor"' in text][:1]
    assert expected in script
    compile(script, "reproducer.py", "exec")


# --- words ----------------------------------------------------------------------------------------


TITLES = [
    (Violation("values", "wrong value", "output 0"), "returns wrong values"),
    (Violation("metadata", "wrong stride", "output 0"), "returns an output with wrong strides"),
    (RAISES, "raises RuntimeError"),
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
        "expected: 0\nactual:   1\nBUG: it\n```",
        "eager has 0.0 in output 0 at index [1], the compiled function -2.0 (3 of 4 elements",
        '- `AOTAutograd` alone: shows\n- `backend="aot_eager"`: shows',
        "def forward(self, x):",
        f"PyTorch version: {torch.__version__}",
        "Outputs are compared exactly",
    ):
        assert part in text
    assert "logged by torch" not in text


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
    assert "to 3 operators, which keep what cannot be left out (write through expand)" in text
    error = found(
        oracle="errors", kind=RAISES.kind, evidence=RAISES.evidence, cause="error in a.py: f"
    )
    assert "(`a.py: f`)" in issue_text(error, Reproduced("import torch\n", "BUG: it"))
