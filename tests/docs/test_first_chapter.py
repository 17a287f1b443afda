"""docs/first_chapter.py: compiled programs agree with eager, and each part is needed."""

import ast
import re
import runpy
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from aliasproof import reference_pass
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.execution import as_graph
from aliasproof.judge.trial import Case
from docs import first_chapter
from docs.first_chapter import CONDITIONS, Emitter, Refused, Storage, functionalize, reinplace
from tests.reference_pass.scene import Example, afresh, counted, names, programs_of, seen_at_end
from tests.reference_pass.test_reading_order import algorithm

aten = torch.ops.aten
CHAPTER = Path(first_chapter.__file__)
CORE = Path(reference_pass.__file__).parent
NAMES = {*vars(first_chapter), *vars(Emitter), *Storage.__dataclass_fields__}

PROGRAMS = programs_of(
    """
write_through_a_chain_of_views(x): counted(3, 4)
    a = x * 2
    a.view(4, 3).t()[1:].diagonal().add_(1)
    return a

write_to_the_base_of_a_view(x): counted(3, 4)
    a = x * 2
    b = a[1]
    a.mul_(3)
    return a.sum(), b * 1

two_views_written_in_turns(x): counted(3, 4)
    a = x * 2
    first, second = a[:2], a[1:]
    first.add_(1)
    second.mul_(first + 1)
    first.sub_(second.sum())
    return a.sum()

every_view_of_the_table(x): counted(3, 4)
    a = x * 2
    b = a.unsqueeze(0).transpose(0, 1).permute(2, -3, 1).squeeze(2).detach()
    b.add_(1)
    b.squeeze().view(3, 4)[0].mul_(5) if b.is_contiguous() else b.t().view(12)[::3].mul_(5)
    return a, b.expand(2, 4, 3).sum()

inputs_swapped(x, y): counted(4), counted(4) + 10
    old = x.clone()
    x.copy_(y)
    y.copy_(old)
    return old

outputs_share_memory(x): counted(3, 4)
    a = x * 2
    row = a[0]
    row.add_(1)
    x[1].zero_()
    return row, a, x.t(), x, row

result_read_after_its_operand(x): counted(4)
    a = x * 2
    b = a.add(1)
    return a.mul(b)

comparison_in_place(x): counted(4)
    x.ge_(2)
    a = x + 1
    return a.ge(1)

result_larger_than_its_operand(x): counted(1, 4)
    a = x * 2
    return a.add(torch.ones(3, 4))

result_has_other_strides_than_its_operand(x): counted(4)
    a = x * 2
    return a[::2].add(1).view(2, 1)

input_used_for_the_last_time(x): counted(4)
    return x.add(1)

operand_repeated(x): counted(2, 2)
    a = x + 1
    return a.addmm(a, a)

operand_transposed(x): counted(3, 3)
    a = x + 1
    return a.add(a.t())

scatter_into_what_is_read_later(x): counted(3, 4)
    a = x * 2
    b = torch.select_scatter(a, x[0], 0, 1)
    return a.sum(), b

scatter_of_what_is_there(x): counted(3, 4)
    return torch.select_scatter(x, x[1], 0, 1).add(1)

new_value_has_other_strides_than_the_view(x, y): counted(2, 3), counted(3, 3)
    a = x * 2
    a.t().addmm_(y, y[:, :2])
    return a.view(6) + 1
""",
    globals(),
    lambda *inputs: inputs,
)


def drawn() -> Iterator[Example]:
    """Programs of the generator on contiguous inputs, with many views and writes."""
    features = replace(
        swarm(0),
        dtypes=(torch.float32, torch.int64),
        groups=("view", "in-place", "functional", "scatter", "reduction"),
        layouts=("contiguous",),
        scenarios=(),
        gradients=False,
    )
    for program in sample(features, seed=0, count=100, special_share=0):
        graph_module = fx.GraphModule(torch.nn.Module(), as_graph(program))
        yield graph_module, tuple(Case.of(program).fresh_inputs())


def is_right(example: Example, conditions: Any = CONDITIONS) -> bool | None:
    """Whether a program agrees with eager, functional and in place; None if refused."""
    program, inputs = example
    wanted = seen(program, inputs)
    try:
        compiled = functionalize(program, *afresh(inputs))
        functional = seen(compiled, inputs)
        return functional == wanted == seen(reinplace(compiled, conditions), inputs)
    except Refused:
        return None
    except (RuntimeError, ValueError):  # a kernel refuses its operands
        return False


def seen(program: Any, inputs: tuple[Tensor, ...]) -> str:
    """The values that the caller sees at the end; as text, since a NaN is not equal to itself."""
    return repr(seen_at_end(program, afresh(inputs)))


def names_wrong(**mistake: Any) -> list[str]:
    return [example[0].__name__ for example in PROGRAMS if not is_right(example, **mistake)]


# --- it is right ----------------------------------------------------------------------------------


@pytest.mark.parametrize("example", PROGRAMS, ids=names(PROGRAMS))
def test_a_program_does_what_it_does_in_eager(example):
    assert is_right(example)


def test_a_drawn_program_does_what_it_does_in_eager_or_is_refused():
    judged = Counter(map(is_right, drawn()))
    assert judged[False] == 0
    assert judged[True] >= 60


def writes_two(x, count):
    return aten._amp_update_scale_(x, count, torch.zeros(1), 2.0, 0.5, 1)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: x.add_(1), [counted(4)[1:]]),
        (lambda x: x.add_(1), [counted(2, 3).t()]),
        (lambda x, y: x.add_(y), [counted(4)] * 2),
        (lambda x: x.as_strided((2,), (1,)).add_(1), [counted(4)]),
        (lambda x: aten.as_strided_copy(x[1:], (2,), (1,), 0), [counted(4)]),
        (lambda x: x.split(2)[0].add_(1), [counted(4)]),
        (lambda x: x.view(torch.int32) + 1, [counted(4)]),
        (lambda x: x.expand(2, 4).fill_(1), [counted(4)]),
        (lambda x: x.t().add(1), [counted(2, 3)]),
        (lambda x: x.t_(), [counted(2, 3)]),
        (lambda x: torch.add(x, 1, out=x), [counted(4)]),
        (lambda x: torch._foreach_add_([x], 1), [counted(4)]),
        (writes_two, [counted(1), torch.ones(1, dtype=torch.int32)]),
        (lambda x: x.uniform_(), [counted(4)]),
        (lambda x: x + torch.rand(4), [counted(4)]),
        (lambda x: x.nonzero(), [counted(4)]),
        (lambda x: x + x.sum().item(), [counted(4)]),
        (lambda x: x + torch.tensor([1.0]), [counted(4)]),
    ],
)
def test_what_is_not_simple_is_refused(function, inputs):
    with pytest.raises(Refused):
        functionalize(function, *inputs)


# --- it saves memory ------------------------------------------------------------------------------


def calls(graph_module: fx.GraphModule) -> list[str]:
    nodes = graph_module.graph.nodes
    return [node.target._schema.name[6:] for node in nodes if node.op == "call_function"]


def test_a_write_through_a_view_is_what_it_was():
    def program(x):
        a = x * 2
        b = a[0]
        b.add_(1)
        return a.sum()

    functional = functionalize(program, counted(2, 4))
    assert calls(functional) == ["mul", "select", "add", "select_scatter", "sum"]
    assert calls(reinplace(functional)) == ["mul", "select", "add_", "sum"]


def test_a_scatter_stores_into_its_base():
    functional = functionalize(lambda x: torch.select_scatter(x * 2, x[0], 0, 1), counted(2, 4))
    assert calls(functional) == ["mul", "select", "select_scatter"]
    assert calls(reinplace(functional)) == ["mul", "select", "select", "copy_"]


# --- each part is needed --------------------------------------------------------------------------


@pytest.mark.parametrize("dropped", CONDITIONS, ids=lambda each: each.__name__)
def test_without_a_condition_a_program_is_wrong(dropped):
    assert names_wrong(conditions=[each for each in CONDITIONS if each is not dropped])


@pytest.mark.parametrize(
    ("where", "mistake"),
    [
        ("apply", lambda emit, storage: None),
        ("Storage.set_base", lambda storage, value: setattr(storage, "base", value)),
        ("Emitter.contiguous", lambda emit, value: value),
    ],
)
def test_without_a_step_of_functionalization_a_program_is_wrong(where, mistake, monkeypatch):
    monkeypatch.setattr(f"docs.first_chapter.{where}", mistake)
    assert names_wrong()


# --- it is a first chapter ------------------------------------------------------------------------


def test_it_can_be_read_in_one_sitting_and_needs_torch_alone():
    text = CHAPTER.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 500
    imported = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
    assert set(imported) - sys.stdlib_module_names == {"torch"}


def test_as_a_script_it_prints_the_graphs_of_its_example(capsys):
    runpy.run_path(str(CHAPTER), run_name="__main__")
    functional, in_place = capsys.readouterr().out.split("in place:")
    assert "select_scatter" in functional
    assert "select_scatter" not in in_place
    assert "add_.Tensor" in in_place


@pytest.mark.parametrize("module", algorithm())
def test_each_file_of_the_core_says_what_the_first_chapter_gets_wrong(module):
    text = ast.get_docstring(ast.parse((CORE / f"{module}.py").read_text(encoding="utf-8"))) or ""
    parts = [" ".join(part.split()) for part in text.split("\n\n")]
    (said,) = [part for part in parts if "The first chapter" in part]
    assert set(re.findall(r"`(\w+)`", said)) & NAMES, "it names no part of docs/first_chapter.py"
    assert "because" in said
