"""Python programs through a user's own pass or backend."""

from pathlib import Path

import pytest

from aliasproof.campaigns.publish.python_issue import confirm_python
from aliasproof.campaigns.run.languages import judge_programs
from aliasproof.campaigns.store.plan import Shard
from aliasproof.ir.errors import UserError
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.attribution import Symptom
from aliasproof.judge.examination import examine
from aliasproof.judge.python_case import PythonCase
from aliasproof.targets.registry import backend_source
from aliasproof.targets.registry import target as target_named
from aliasproof.targets.user_names import grant
from tests.campaigns.made_findings import finding_of
from tests.short_programs import python_of
from tests.wrong_python import WRONG

CODE = '''
import torch

def loses_writes(graph):
    """A wrong pass: inputs stay as they were."""
    for node in list(graph.graph.nodes):
        if node.target is torch.ops.aten.copy_.default:
            graph.graph.erase_node(node)

def copies_outputs(graph, examples):
    """A wrong backend: no output is an input, or shares memory with one."""
    return lambda *args: [out.clone() for out in graph.forward(*args)]

def right(graph, examples):
    return graph.forward

NUMBER = 3
'''
PROGRAM = python_of("for row in x:\n    row += row\nreturn x[1:]", "torch.ones(3)")


@pytest.fixture
def code(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text(CODE)

    def granted(name: str) -> str:
        grant([f"{file}:{name}"])
        return f"{file}:{name}"

    return granted


@pytest.mark.parametrize(
    ("name", "oracle", "kind"),
    [
        ("loses_writes", "values", "wrong value"),
        ("copies_outputs", "aliasing", "lost alias between output and output"),
    ],
)
def test_wrong_code_of_a_user_is_found_and_shown(code, name, oracle, kind):
    target = code(name)
    found = examine(PythonCase(PROGRAM), target_named(target))
    assert found.symptom == Symptom(target, oracle, kind)
    place = found.violations[0].place
    confirmation = confirm_python(finding_of(PROGRAM, target, oracle, kind, place))
    assert confirmation.shown, confirmation.output


def test_right_code_of_a_user_holds(code):
    target = code("right")
    assert examine(PythonCase(PROGRAM), target_named(target)).symptom is None
    counts = judge_programs(Shard(3, target, 20, past_known=True, python=0)).statistics
    assert counts.judged - counts.violating - counts.documented >= 15


def test_the_layer_before_is_at_fault_if_it_is_wrong(code):
    """A known bug of AOTAutograd is not attributed to the pass behind it."""
    wrong = PythonCase(PythonProgram(WRONG))
    symptom = examine(wrong, target_named(code("loses_writes"))).symptom
    assert symptom is not None
    assert symptom.target == "aot-eager"


@pytest.mark.parametrize("name", ["NUMBER", "missing"])
def test_what_is_no_pass_is_refused(code, name):
    with pytest.raises(UserError):
        backend_source(code(name))


def test_code_that_was_not_asked_for_is_not_imported(tmp_path: Path):
    (tmp_path / "other.py").write_text("raise SystemExit")
    with pytest.raises(UserError, match="is not imported"):
        backend_source(f"{tmp_path / 'other.py'}:function")
