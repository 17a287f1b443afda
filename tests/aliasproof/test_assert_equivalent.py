"""`assert_equivalent` and `programs` in a user's tests."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings

from aliasproof import NotJudged, Program, UserError, assert_equivalent
from aliasproof.generators import programs
from aliasproof.generators.features import Features
from tests.aliasproof.planted_targets import drops_writes

SMALL = Features(
    dtypes=(torch.float32,),
    groups=("in-place",),
    layouts=("contiguous",),
    scenarios=(),
    large=False,
    instructions=2,
    gradients=False,
)


def writes(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def writes_to_expanded(x: torch.Tensor) -> torch.Tensor:
    x.expand(3, 4).zero_()
    return x + 0


def test_what_a_target_does_right_passes() -> None:
    x = torch.arange(4.0)
    assert_equivalent(writes, x, target="aot")
    assert x.tolist() == [0, 1, 2, 3]


def test_what_differs_is_said_as_by_check_and_can_be_reproduced(call, tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_equivalent(writes_to_expanded, torch.arange(4.0), target="aot")
    message = str(failed.value)
    assert message.startswith("aot differs from eager: values: wrong value (output 0)")
    assert "first wrong after: AOTAutograd: functionalization" in message
    assert "Wrong: aot." in message
    _, _, rest = message.partition("put its ATen calls into FILE.py:\n")
    command, source = rest.split("\n\n", maxsplit=1)
    (tmp_path / "FILE.py").write_text("\n".join(line[4:] for line in source.splitlines()))
    words = command.split()
    assert words[:3] == ["python", "-m", "aliasproof"]
    assert call(*words[3:], "--in-process").code == 1


def test_a_pass_or_backend_of_the_caller_is_a_target() -> None:
    with pytest.raises(AssertionError, match="input ends wrong"):
        assert_equivalent(writes, torch.arange(4.0), target=drops_writes)
    assert_equivalent(writes, torch.arange(4.0), target=lambda graph, examples: graph)
    with pytest.raises(UserError, match="expected a pass") as raised:
        assert_equivalent(writes, torch.arange(4.0), target=lambda: None)
    assert len(raised.traceback) == 2, "frames of aliasproof say nothing about the mistake"


def test_keyword_arguments_and_pairs_are_handed_on() -> None:
    def scaled(pair: tuple[torch.Tensor], more: dict[str, float], *, by: int) -> torch.Tensor:
        return pair[0] * by + more["a"]

    assert_equivalent(scaled, (torch.ones(2),), {"a": 1.0}, target="aot", kwargs={"by": 3})


def test_what_cannot_be_judged_does_not_pass() -> None:
    def undefined(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((3,), (0,)).copy_(x[:3])

    def raises(x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(7)

    with pytest.raises(NotJudged, match="undefined in eager"):
        assert_equivalent(undefined, torch.arange(4.0), target="aot")
    with pytest.raises(NotJudged, match="eager raises RuntimeError"):
        assert_equivalent(raises, torch.arange(4.0), target="aot")


@settings(max_examples=20, deadline=None)
@given(programs(SMALL))
def test_drawn_programs_run_through_a_right_target(program: Program) -> None:
    assert_equivalent(program, target="identity")


def test_a_wrong_target_is_found_and_its_program_is_shrunk() -> None:
    @settings(max_examples=10, deadline=None, database=None, derandomize=True)
    @given(programs(SMALL))
    def found(program: Program) -> None:
        assert_equivalent(program, target=drops_writes)

    with pytest.raises(AssertionError, match="input ends wrong") as failed:
        found()
    body = str(failed.value).partition("def program(")[2].partition("return")[0]
    assert len(body.strip().splitlines()) == 2, body  # the head, and one call


def test_a_target_that_no_command_can_import_goes_into_the_file():
    def doubles(module, examples):
        return lambda *args: [2 * output for output in module(*args)]

    with pytest.raises(AssertionError) as raised:
        assert_equivalent(lambda x: x + 1, torch.ones(2), target=doubles)
    assert "To reproduce, put its ATen calls and the target into FILE.py:" in str(raised.value)
    assert "check FILE.py --target FILE.py:doubles\n" in str(raised.value)


def test_a_tolerance_that_is_given_is_that_of_all_values() -> None:
    def off(graph: torch.fx.GraphModule) -> None:
        mul = torch.ops.aten.mul.Tensor
        for node in graph.graph.find_nodes(op="call_function", target=mul):
            node.args = (node.args[0], 3.003)

    with pytest.raises(AssertionError, match="wrong value"):
        assert_equivalent(lambda x: x * 3, torch.arange(1.0, 5), target=off)
    assert_equivalent(lambda x: x * 3, torch.arange(1.0, 5), target=off, rtol=0.01)
    with pytest.raises(AssertionError, match="wrong value"):
        assert_equivalent(lambda x: x * 3, torch.arange(1.0, 5), target=off, atol=0.001)
