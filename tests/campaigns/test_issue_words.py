"""The titles and issues of findings."""

from typing import Any

import pytest
import torch

from aliasproof.campaigns.publish.confirmation import Reproduced, of_target
from aliasproof.campaigns.publish.issue_text import issue_text
from aliasproof.campaigns.publish.reproducer import headline
from aliasproof.ir.ordinary_syntax import with_short_names
from aliasproof.oracles.values import OTHER_ZERO
from aliasproof.oracles.verdict import Violation
from tests.campaigns.test_confirmation import CLEARED, PRINTED, RAISES, SHOWN, found
from tests.short_programs import programs_in

ERROR: Any = {"oracle": "errors", "kind": RAISES.kind, "evidence": RAISES.evidence}
TRANSPOSED = {"eager": [[2, 2], [1, 2]], "target": [[2, 2], [2, 1]]}
RESIZED = {"eager": [[2, 2], [2, 1]], "target": [[4], [1]]}
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
    (Violation("values", OTHER_ZERO, "output 0"), "returns a zero of the other sign"),
    (Violation("inputs", OTHER_ZERO, "input 1"), "leaves a zero of the other sign in an input"),
    (
        Violation("metadata", "input ends with another shape", "input 0", TRANSPOSED),
        "leaves an input with other strides",
    ),
    (
        Violation("metadata", "input ends with another shape", "input 0", RESIZED),
        "leaves an input with another shape",
    ),
]


def issue_of(output: str = "BUG: it", **others: Any) -> str:
    """The issue of a finding with these fields, whose script prints this."""
    return issue_text(found(**others), Reproduced("import torch\n", output))


@pytest.mark.parametrize(("violation", "does"), TITLES)
def test_a_title_says_who_does_what_and_when(violation: Violation, does: str) -> None:
    title = headline("aot:grad", violation, with_short_names(CLEARED))
    assert title == f"AOTAutograd (grad) {does} after x.expand(3, 4).zero_()"


@pytest.mark.parametrize(
    ("wrong_part", "words"),
    [
        ("post_grad: remove_noop_ops", " (Inductor's post_grad pass remove_noop_ops)"),
        ("AOTAutograd: RuntimeWrapper", " (AOTAutograd's RuntimeWrapper)"),
        ("lowering of aten.add.Tensor", " (Inductor's lowering of aten.add.Tensor)"),
        ("partitioner: fx_graph_cse", " (partitioner: fx_graph_cse)"),
        ("AOTAutograd: functionalization", ""),
        ("", ""),
    ],
)
def test_a_title_names_the_pass_at_fault(wrong_part: str, words: str) -> None:
    title = headline("inductor", TITLES[0][0], with_short_names(CLEARED), wrong_part)
    assert title == f"torch.compile returns wrong values after x.expand(3, 4).zero_(){words}"


@pytest.mark.parametrize(
    ("wrong_part", "sentence"),
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
def test_an_issue_says_which_pass_is_at_fault(wrong_part: str, sentence: str) -> None:
    text = issue_of(target="inductor", wrong_part=wrong_part)
    assert sentence in text
    assert ("no generated code" in text) == wrong_part.startswith("post_grad")


def test_an_issue_has_what_the_tracker_asks_for() -> None:
    text = issue_of(
        SHOWN.output + "\nlogged by torch",
        user_level={"aot_eager": "shows", "inductor": "does not show"},
        graph="def forward(self, x):\n    return x\n",
    )
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


NAMED = programs_in("""
after y.set_(x) and x.add_(1): [2] [2]
    aten.set_.source_Tensor(x1, x0)
    aten.add_.Scalar(x0, 1)
    return ()

after x.mul_(2), y.set_(x) and x.add_(1): [2] [2]
    aten.mul_.Scalar(x0, 2)
    aten.set_.source_Tensor(x1, x0)
    aten.add_.Scalar(x0, 1)
    return ()

after set_, tanh_ and exp_: [2] [2]
    aten.mul_.Scalar(x0, 2)
    aten.set_.source_Tensor(x1, x0)
    aten.add_.Scalar(x0, 1)
    aten.neg_.default(x0)
    aten.tanh_.default(x0)
    aten.exp_.default(x0)
    return ()

after x.add_(1) and torch.ops.aliasproof.add_twice(x, x.clone()): [2, 2]
    aten.add_.Scalar(x0, 1)
    v0 = aten.clone.default(x0)
    torch.ops.aliasproof.add_twice.default(x0, v0)
    return ()

after v0, v1 = torch._foreach_add([x, y], 1), x.copy_(v1) and y.copy_(v0): [2, 2] [2, 2]
    v0, v1 = aten._foreach_add.Scalar([x0, x1], 1)
    aten.copy_.default(x0, v1)
    aten.copy_.default(x1, v0)
    return ()

after alias, set_ and add_: [2, 2]
    v0 = aten.alias.default(x0)
    aten.set_.default(x0)
    aten.add_.Scalar(v0, 1)
    return ()

after x.diagonal() and x.zero_(): [2, 2]
    v0 = aten.diagonal.default(x0)
    aten.zero_.default(x0)
    return (v0,)

after v1 = x.view(-1) and v1.add_(1): [2, 2]
    v0 = aten.neg.default(x0)
    v1 = aten.view.default(x0, [-1])
    aten.add_.Scalar(v1, 1)
    return v0, v1
""")


@pytest.mark.parametrize("said", NAMED)
def test_a_title_names_all_writes_that_matter_and_what_they_use(said: str) -> None:
    """A custom operator writes, too, and a reader of the title does not know what `v0` is."""
    wrong = Violation("inputs", "input ends wrong", "input 0")
    title = headline("aot", wrong, with_short_names(NAMED[said]))
    assert title == f"AOTAutograd leaves wrong values in an input {said}"


@pytest.mark.parametrize("literal", [False, True])
def test_an_issue_says_that_gradients_are_off_where_its_script_needs_it(literal: bool) -> None:
    """AOTAutograd then keeps other writes in its graph, which a maintainer would not guess."""
    script = of_target(found(), literal=literal).script
    text = issue_text(found(), Reproduced(script, "BUG: it"))
    said = "For this function, called under `torch.no_grad()`, AOTAutograd returns wrong values"
    assert (said in text) == literal


def test_sentences_follow_the_evidence() -> None:
    """No sentence mentions an output, or values, unless they are wrong."""
    text = issue_of(
        program=NAMED["after y.set_(x) and x.add_(1)"],
        oracle="aliasing",
        kind="lost alias between input and input",
        place="input 0, input 1",
        evidence={},
    )
    assert "output" not in text
    assert "Values are compared" not in text
    stride = {"eager": "[2]", "target": "[1]"}
    text = issue_of(oracle="metadata", kind="wrong stride", evidence=stride)
    assert "eager has [2] as stride of output 0, the compiled function [1]" in text
    shape = "input ends with another shape"
    text = issue_of(oracle="metadata", kind=shape, evidence=TRANSPOSED)
    assert "eager has [[2, 2], [1, 2]] as size and strides of output 0" in text


def test_an_error_is_quoted_in_full_and_logged() -> None:
    output = "expected: no error\nactual:   RuntimeError: result\n  a stack\nBUG: it"
    text = issue_of(output, **ERROR, place="call")
    assert "`result type Long 12 can't be cast`" in text
    described, logs = text.split("### Error logs")
    assert "a stack" not in described
    assert "a stack" in logs
    assert "#" not in text.splitlines()[0]


def test_an_issue_says_that_the_bug_is_known() -> None:
    text = issue_of(known="expand-inverse")
    assert "It is known: a write through expand adds up the copies" in text
    assert "https://github.com/pytorch/pytorch/issues/197448" in text
    text = issue_of(known="attention-mask-of-numbers")
    assert "The cause: a mask that hides where it is 0 becomes one that keeps where it is 1" in text


def test_an_issue_says_what_could_not_be_left_out() -> None:
    text = issue_of(cause="write through expand")
    assert "The reduction could not leave out: write through expand." in text
    assert "(`a.py: f`)" in issue_of(**ERROR, cause="error in a.py: f")
