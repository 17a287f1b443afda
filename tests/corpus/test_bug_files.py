"""The text files of known bugs: their contents as objects, and the errors for wrong files."""

from pathlib import Path

import pytest
import torch

from aliasproof.corpus.bug_files import LAYERS, known_bugs, program_with, read_bug
from aliasproof.corpus.known_bug import FOLDER, KnownBug, PythonBug
from aliasproof.corpus.patching import find_patch
from aliasproof.ir.errors import UserError
from aliasproof.ir.printing import source
from aliasproof.ir.program import Input, Storage
from aliasproof.oracles.judge import ORACLES

CALLS = """\
# title: a title
# link:
# target: aot aot-epilogue
# versions: 2.13
# rank: 7
# oracle: values inputs
# kind: ^wrong
# when: calls add_ and inputs_share
# note: one line
#   and another
# input: x0 float32[2, 2] strides [1, 2] offset 1
# input: x1 float32[2] storage 0
# storage: 0 float32[8] = 1 nan
def program(x0, x1):
    aten.add_.Scalar(x0, 1)
    return (x1,)
"""
PYTHON = """\
# title: a title
# link: https://example.org
# target: dynamo
# versions: 2.13
# oracle: values
# kind: ^wrong
# needs: write
# place: gradient
import torch


def program(x):
    x.add_(1)


def calls(program):
    program(torch.ones(2))
    return locals()
"""


def written(folder: Path, text: str, layer: str = "dynamo") -> Path:
    path = folder / layer / "a-bug.txt"
    path.parent.mkdir()
    path.write_text(text)
    return path


def test_a_bug_of_calls(tmp_path: Path) -> None:
    bug = read_bug(written(tmp_path, CALLS))
    assert isinstance(bug, KnownBug)
    assert (bug.identifier, bug.layer, bug.title, bug.link) == ("a-bug", "dynamo", "a title", "")
    assert (bug.targets, bug.versions, bug.rank) == (("aot", "aot-epilogue"), ("2.13",), 7)
    assert bug.note == "one line and another"
    assert bug.program.storages == (Storage(torch.float32, 8, ("1", "nan")),)
    assert bug.program.inputs == (
        Input("x0", 0, torch.float32, (2, 2), (1, 2), 1),
        Input("x1", 0, torch.float32, (2,), (1,)),
    )
    assert bug.patch is None
    assert bug.mark is not None
    assert bug.mark.fits("inputs", "wrong value", bug.program)
    apart = program_with(source(bug.program), [bug.program.inputs[0], Input("x1", 1, *REST)], {})
    assert not bug.mark.fits("inputs", "wrong value", apart)


REST = (torch.float32, (2,), (1,))


def test_a_bug_of_a_python_program(tmp_path: Path) -> None:
    bug = read_bug(written(tmp_path, PYTHON))
    assert isinstance(bug, PythonBug)
    assert (bug.target, *bug.oracles, *bug.needs) == ("dynamo", "values", "write")
    assert (bug.place, bug.parts, bug.lacks) == ("gradient", frozenset(), frozenset())
    assert bug.program.source == PYTHON[PYTHON.index("import torch") :]


OF_CALLS = [
    ("# title: a title", "", 1, "there is no 'title'; add a line '# title: '"),
    ("# title: a title", "# titel: a title", 1, "unknown key 'titel'; did you mean 'title'?"),
    ("# title: a title", "# title:", 1, "'title' is empty"),
    ("# link:", "# title: two", 2, "'title' is there already; leave one of them out"),
    ("# link:", "#link", 2, "expected '# key: value'"),
    ("# versions: 2.13", "# versions: 2", 4, "expected versions such as 2.13, got '2'"),
    ("# rank: 7", "# rank: 7 8", 5, "expected a number, got 2 words"),
    ("# oracle: values inputs", "# reduced: no", 7, "'kind' needs a line '# oracle: ' as well"),
    ("# kind: ^wrong", "# kind: (", 7, "not a regular expression"),
    ("# when: calls add_ and inputs_share", "# when: writs", 8, "did you mean 'writes'?"),
    ("# when: calls add_ and inputs_share", "# when: os.getcwd()", 8, "no condition 'os.getc"),
    ("# when: calls add_ and inputs_share", "# when: computes x", 8, "no property 'x'"),
    ("# input: x1 float32[2] storage 0", "# input: x1", 12, "expected an input such as"),
    ("# input: x1 float32[2] storage 0", "# input: x1 float3[2]", 12, "unknown dtype float3"),
    ("# input: x1 float32[2] storage 0", "# input: x1 float32[2] storage 2", 11, "storage 2"),
    ("# input: x1 float32[2] storage 0", "# input: x1 float32[9] storage 0", 12, "inputs[1]"),
    (
        "# input: x1 float32[2] storage 0",
        "# input: x1 float32[2] strides [1, 1]",
        12,
        "2 strides for 1",
    ),
    ("# storage: 0 float32[8] = 1 nan", "# storage: 0 int8[8] = 1 nan", 13, "is not a value"),
    ("# storage: 0 float32[8] = 1 nan", "# storage: 0", 13, "expected a storage such as"),
    ("    aten.add_.Scalar(x0, 1)", "    aten.ad_.Scalar(x0, 1)", 15, "aten.ad_"),
    ("    return (x1,)", "    return x1", 16, "expected the tuple of the outputs"),
]
OF_PYTHON = [
    ("# needs: write", "# rank: 7", 7, "unknown key 'rank'; use"),
    ("# target: dynamo", "# target: dynamo aot-eager", 3, "one target"),
    ("# place: gradient", "# place: here", 8, "expected gradient or value, got 'here'"),
    ("    x.add_(1)", "    open(x)", 13, "no name 'open' in the language"),
    ("    x.add_(1)", "    x.add_(1", 13, "a Python program is no Python"),
]


@pytest.mark.parametrize(
    ("whole", "line", "instead", "at", "message"),
    [*((CALLS, *row) for row in OF_CALLS), *((PYTHON, *row) for row in OF_PYTHON)],
)
def test_what_is_wrong_with_a_file(tmp_path, whole, line, instead, at, message):
    text = whole.replace(f"{line}\n", f"{instead}\n" if instead else "")
    assert text != whole
    path = written(tmp_path, text)
    with pytest.raises(UserError) as refused:
        read_bug(path)
    assert str(refused.value).startswith(f"{path}:{at}: ")
    assert message in str(refused.value)


def test_a_folder_is_a_layer(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no layer 'inductr'"):
        read_bug(written(tmp_path, CALLS, layer="inductr"))
    assert {path.parent.name for path in FOLDER.glob("*/*")} == {*LAYERS}


def test_no_text_is_a_bug_without_what_recognises_it(tmp_path: Path) -> None:
    lines = [line for line in CALLS.splitlines() if not line.startswith(("# oracle", "# kind"))]
    with pytest.raises(UserError, match="needs a line '# kind: '"):
        read_bug(written(tmp_path, "\n".join(lines).replace("# note", "# patch: x\n# note")))


def test_a_patch_is_one_of_its_layer() -> None:
    with pytest.raises(UserError, match=r"inductor.py has no patch 'bool_argmi'; did you mean"):
        find_patch("inductor", "bool_argmi")
    with pytest.raises(UserError, match="has no patch 'together'"):
        find_patch("inductor", "together")
    with pytest.raises(UserError, match="has no patch"):
        find_patch("export", "anything")


def test_each_file_names_patches_and_oracles_that_are_there() -> None:
    oracles = {oracle.name for oracle in ORACLES}
    for bug in known_bugs().values():
        assert bug.mark is None or set(bug.mark.oracles) <= oracles, bug.file
        if bug.patch_name:
            find_patch(bug.layer, bug.patch_name)
