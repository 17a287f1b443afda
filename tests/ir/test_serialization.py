"""The JSON form: a round trip loses nothing, and an error in a file names its location."""

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aliasproof.generators.strategies import programs
from aliasproof.ir.errors import UserError
from aliasproof.ir.program import Input, Instruction, Program, Ref, Storage
from aliasproof.ir.serialization import dumps, from_json, loads, to_json
from aliasproof.ir.validation import validate
from tests.ir import test_printing

X = Ref("x")
EVERY_KIND = replace(
    test_printing.EVERY_KIND,
    storages=(Storage(torch.float32, 8, ("nan", "-0.0", "1e20")), Storage(torch.int64, 3)),
    outputs=("v", "x", "v"),
    seed=-3,
    fill="special",
)


def same(one: Program, other: Program) -> bool:
    # To Python, True equals 1, 1 equals 1.0 and -0.0 equals 0.0. Their texts differ.
    return one == other and repr(one) == repr(other)


def test_every_kind_of_argument_survives() -> None:
    assert same(loads(dumps(EVERY_KIND)), EVERY_KIND)


@given(programs())
@settings(max_examples=50, deadline=None)
def test_generated_programs_survive(program: Program) -> None:
    assert same(loads(dumps(program)), program)


def test_the_text_is_strict_json_with_one_instruction_per_line() -> None:
    text = dumps(EVERY_KIND)
    assert json.loads(text, parse_constant=pytest.fail) == to_json(EVERY_KIND)
    assert (
        sum('"op"' in line for line in text.splitlines()) == text.count('"op"') == len(EVERY_KIND)
    )
    assert dumps(loads(text)) == text


def test_fields_with_a_default_may_be_left_out() -> None:
    program = loads(
        """{
            "version": 1,
            "storages": [{"dtype": "float", "length": 1}],
            "inputs": [
                {"name": "x", "storage": 0, "dtype": "float32", "sizes": [1], "strides": [1]}
            ],
            "instructions": [{"op": "aten.zero_.default", "args": [{"ref": "x"}]}],
            "outputs": []
        }"""
    )
    zero = Instruction("aten.zero_.default", (X,))
    assert program == Program(
        (Storage(torch.float32, 1),), (Input("x", 0, torch.float32, (1,), (1,)),), (zero,), ()
    )


GONE = object()
FIRST = ("instructions", 0)
BAD_DATA = [
    (("version",), GONE, "version"),
    (("version",), 2, "version"),
    (("version",), True, "version"),
    (("seed",), 1.0, "seed"),
    (("seed",), 2**63, "seed"),
    (("outputs",), GONE, "outputs"),
    (("outputs",), "v", "outputs"),
    (("outputs", 1), 3, "outputs[1]"),
    (("outputs", 1), "nowhere", "outputs[1]"),
    (("colour",), "red", "program"),
    (("storages",), {}, "storages"),
    (("storages", 1), [], "storages[1]"),
    (("storages", 1, "length"), GONE, "storages[1].length"),
    (("storages", 1, "length"), True, "storages[1].length"),
    (("storages", 1, "length"), -1, "storages[1].length"),
    pytest.param(
        ("storages", 0, "length"), 10**5000, "storages[0].length", id="too many digits to print"
    ),
    (("storages", 1, "dtype"), "int46", "storages[1].dtype"),
    (("inputs", 0, "name"), None, "inputs[0].name"),
    (("inputs", 0, "shape"), [], "inputs[0]"),
    (("inputs", 0, "sizes", 1), 3.0, "inputs[0].sizes[1]"),
    (("inputs", 0, "offset"), 3, "inputs[0]"),
    ((*FIRST, "op"), "aten.index.Tensro", "instructions[0].op"),
    ((*FIRST, "op"), 7, "instructions[0].op"),
    ((*FIRST, "args"), GONE, "instructions[0].args"),
    ((*FIRST, "args", 0), "x", "instructions[0].args[0]"),
    ((*FIRST, "args", 0), {"ref": "x", "dtype": "float32"}, "instructions[0].args[0]"),
    ((*FIRST, "args", 0), {}, "instructions[0].args[0]"),
    ((*FIRST, "args", 0, "ref"), 0, "instructions[0].args[0].ref"),
    ((*FIRST, "args", 1, 1, "ref"), "e", "instructions[0].args[1][1]"),
    (("instructions", 1, "args", 2, "float"), "infinity", "instructions[1].args[2].float"),
    (
        ("instructions", 3, "kwargs", "dtype", "dtype"),
        "floaty",
        "instructions[3].kwargs.dtype.dtype",
    ),
    (("instructions", 3, "kwargs"), [], "instructions[3].kwargs"),
    (("instructions", 3, "args", 1), [[[[[[[[[[]]]]]]]]]], "instructions[3].args[1]" + 8 * "[0]"),
    (("instructions", 4, "args", 1), 2**64, "instructions[4].args[1]"),
    (("instructions", 9, "results", 1), "c", "instructions[9].results[1]"),
]


@pytest.mark.parametrize(("path", "value", "location"), BAD_DATA)
def test_a_defect_is_reported_with_its_location(path: tuple, value: object, location: str) -> None:
    with pytest.raises(UserError) as error:
        from_json(changed(path, value))
    assert str(error.value).split(":")[0] == location


def changed(path: tuple, value: object) -> object:
    data: Any = copy.deepcopy(to_json(EVERY_KIND))
    *parents, last = path
    target = data
    for key in parents:
        target = target[key]
    if value is GONE:
        del target[last]
    else:
        target[last] = value
    return data


BAD_TEXTS = [
    ("", "line 1 column 1"),
    ('{\n  "version" 1}', "line 2 column 13"),
    ("[]", "program: expected an object"),
    ("[" * 100_000, "not a program"),
    ("9" * 5000, "not a program"),
    ('{"version": 1, "version": 1}', "the key 'version' occurs twice"),
    ('{"version": NaN}', "NaN is not JSON"),
]


@pytest.mark.parametrize(("text", "message"), BAD_TEXTS)
def test_a_broken_text_is_reported_with_its_file(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        loads(text, "bug.json")
    assert str(error.value).startswith(f"bug.json: {message}")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'int46'; did you mean 'int"):
        from_json(changed(("storages", 1, "dtype"), "int46"))
    with pytest.raises(UserError, match=r"did you mean .*aten\.index\.Tensor"):
        from_json(changed((*FIRST, "op"), "aten.index.Tensro"))


def paths(data: object, path: tuple = ()) -> list[tuple]:
    pairs = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    return [path, *(inner for key, value in pairs for inner in paths(value, (*path, key)))]


PATHS = [path for path in paths(to_json(EVERY_KIND)) if path]
SNIPPETS = [
    *({"ref": name} for name in "xvwe"),
    {"dtype": "bool"},
    {"float": "nan"},
    "x",
    "aten.add.Tensor",
]
JSON = st.recursive(
    st.sampled_from(SNIPPETS) | st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def loads_or_refuses(text: str) -> None:
    try:
        program = loads(text)
    except UserError as error:
        message = str(error)
    else:
        validate(program)
        assert same(loads(dumps(program)), program)
        return
    assert message.isprintable()
    assert len(message) < 500


@given(st.sampled_from(PATHS), st.just(GONE) | JSON)
@settings(max_examples=150, deadline=None)
def test_a_changed_value_loads_or_is_refused(path: tuple, value: object) -> None:
    loads_or_refuses(json.dumps(changed(path, value), default=repr))


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_changed_text_loads_or_is_refused(data: st.DataObject) -> None:
    text = dumps(EVERY_KIND)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    loads_or_refuses(text[:start] + data.draw(st.text(max_size=5)) + text[end:])
