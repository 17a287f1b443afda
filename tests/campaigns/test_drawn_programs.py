"""The counts of `stats`: layouts by kind, ops by group, and features that were never drawn."""

import pytest
import torch

from aliasproof.campaigns.run.drawn_programs import BROUGHT_ALONG, DrawnPrograms, layouts
from aliasproof.generators.features import DTYPES
from aliasproof.generators.ops import OPERATORS
from aliasproof.ir.program import Input, Instruction, Program, Ref, Storage

LONG = Storage(torch.float32, 200)
CONTIGUOUS = Input("x", 0, torch.float32, (2, 3), (3, 1))


def view(sizes: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Input:
    return Input("x", 0, torch.float32, sizes, strides, offset)


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        (CONTIGUOUS, {"contiguous"}),
        (view((1, 3), (7, 1)), set()),
        (view((3, 2), (1, 3)), {"another order of dimensions"}),
        (view((2, 3, 2, 2), (12, 1, 6, 3)), {"another order of dimensions", "channels last"}),
        (view((2, 3), (6, 2)), {"gaps"}),
        (view((2, 3), (0, 1)), {"expanded"}),
        (view((2, 3), (1, 1)), {"overlapping"}),
        (view((2, 3), (3, 1), 16), {"offset"}),
        (
            view((2, 3), (4, 1), 1),
            {"gaps", "offset", "offset, and gaps or another order", "start not aligned"},
        ),
    ],
)
def test_layouts(shown: Input, names: set[str]) -> None:
    program = Program((LONG,), (shown,), (), ())
    assert set(layouts(program, shown)) == names | {"unused end of the storage"}
    whole = Program((Storage(torch.float32, 6),), (CONTIGUOUS,), (), ())
    assert set(layouts(whole, CONTIGUOUS)) == {"contiguous"}


def test_what_is_not_drawn_has_the_count_0() -> None:
    drawn = DrawnPrograms()
    overlapping = Instruction("aten.add_.Tensor", (Ref("x"), Ref("x")))
    drawn.add(Program((LONG,), (view((2, 3), (1, 1)),), (overlapping,), ("x",)))
    drawn.add(Program((LONG,), (CONTIGUOUS,), (Instruction("aten.eq.Scalar", (Ref("x"), 1)),), ()))
    found = drawn.to_json()
    assert found["discarded"] == {"undefined": 1, "raises": 0}
    assert found["dtypes"] == {str(each).removeprefix("torch."): 0 for each in DTYPES} | {
        "float32": 2
    }
    groups = found["groups"]
    assert isinstance(groups, dict)
    assert groups["in-place"]["instructions"] == 1
    assert groups["in-place"]["ops"]["aten.mul_.Tensor"] == 0
    assert groups[BROUGHT_ALONG]["ops"] == {"aten.eq.Scalar": 1}
    named = [op for name, group in groups.items() if name != BROUGHT_ALONG for op in group["ops"]]
    assert sorted(named) == sorted(operator.name for operator in OPERATORS)


def test_the_programs_of_a_seed_are_counted_alike_each_time() -> None:
    one, other = DrawnPrograms(), DrawnPrograms()
    programs = list(one.draw(3, 30))
    assert len(programs) == one.programs == 30
    assert list(other.draw(3, 30)) == programs
    assert one.to_json() == other.to_json()
    assert one.instructions.kept == sum(map(len, programs)) == one.ops.total()
    assert sum(one.dtypes.values()) == sum(one.ranks.values()) == sum(one.sizes.values())
