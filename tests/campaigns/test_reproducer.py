"""Reproducers need only torch, and show a bug if and only if the installed torch has it."""

import ast
import functools
import sys
from dataclasses import replace

import pytest
import torch

from aliasproof.campaigns.publish.confirmation import confirm, run_text
from aliasproof.campaigns.publish.reproducer import Compiler, Reproducer, render
from aliasproof.generators.ops.custom import CUSTOM
from aliasproof.ir.custom_operators import definition
from aliasproof.ir.devices import on_device
from aliasproof.ir.program import Program, Storage
from aliasproof.oracles.judge import ORACLES
from aliasproof.oracles.verdict import Violation
from aliasproof.targets.registry import TARGETS
from tests.scripts_here import confirm_here
from tests.short_programs import program_of, view

CLEARED = program_of(
    "v0 = aten.expand.default(x0, [3, 4])\naten.zero_.default(v0)\nreturn (x0,)", view(4)
)

CHECKED = [oracle.name for oracle in ORACLES if oracle.check is not None]
CUSTOM_NAMES = [operator.name.split(".")[1] for operator in CUSTOM]

# The mistakes of targets, one per oracle, as sources of recipes.
COMPILED = "def compiled(program, inputs):\n    "
STRAY = "torch._C._dynamo.guards._empty_strided_cpu((4,), (1,), torch.float32)"
WRONG = {
    "bounds": COMPILED + f"{STRAY}.as_strided((5,), (1,)).zero_()\n    return program",
    "uninitialised": COMPILED + f"return lambda x: program(x).add_({STRAY})",
    "values": COMPILED + "return lambda x: program(x) + 1",
    "inputs": COMPILED + "return lambda x: program(x.clone()) * 0",
    "aliasing": COMPILED + "return lambda x: program(x).clone()",
    "objects": COMPILED + "return lambda x: program(x).view_as(x)",
    "metadata": COMPILED + "return lambda x: program(x).expand(1, 4)",
    "errors": COMPILED + "raise RuntimeError('no')",
}
RIGHT = TARGETS["identity"].recipe


def rendered(
    recipe: str,
    oracle: str = "values",
    place: str = "output 0",
    kind: str = "wrong",
    program: Program = CLEARED,
    *,
    literal: bool = False,
) -> str:
    """The script for a target that compiles as the recipe says."""
    target, violation = replace(TARGETS["identity"], recipe=recipe), Violation(oracle, kind, place)
    return render(program, target, violation, exact=True, literal=literal)


@pytest.mark.parametrize("kind", ["wrong", "dies of signal 11"])
@pytest.mark.parametrize("oracle", CHECKED)
def test_the_script_for_a_device_is_that_of_the_cpu_with_the_device(oracle: str, kind: str) -> None:
    violation = Violation(oracle, kind, "output 0, input 0")
    target, moved = TARGETS["identity"], on_device(CLEARED, "cuda:1")
    on_cpu = render(CLEARED, target, violation, exact=True)
    script = render(moved, target, violation, exact=True)
    ast.parse(on_cpu)
    ast.parse(script)
    assert "synchronize" not in on_cpu
    assert ("synchronize" in script) == (oracle == "errors" or kind.startswith("dies"))
    assert 'device="cuda:1"' in script
    assert "on cuda:1" in script.split('"""')[1]
    kept = [line for line in script.splitlines() if "cuda" not in line]
    assert kept == [line for line in on_cpu.splitlines() if line in kept]


@pytest.mark.parametrize("oracle", CHECKED)
def test_shows_what_is_wrong_and_says_when_it_is_gone(oracle: str) -> None:
    assert oracle in WRONG, "say in WRONG what a target does that this oracle reports"
    place = "input 0" if oracle == "inputs" else "output 0, input 0"
    for recipe, ending in ((WRONG[oracle], "exits 1"), (RIGHT, "exits 0")):
        confirmation = run_text(rendered(recipe, oracle, place), confirm_here)
        assert confirmation.ending == ending, confirmation.output
        assert confirmation.shown == (recipe != RIGHT)


def test_a_write_behind_an_input_is_shown() -> None:
    write = "ctypes.memset(x.data_ptr() + x.nbytes, 0, 4)"
    wrong = f"import ctypes\n\n\n{COMPILED}return lambda x: ({write}, program(x))[1]"
    for recipe, actual in ((wrong, "[4]"), (RIGHT, "[]")):
        text = rendered(recipe, "bounds", "input 0", "writes behind the end of an input")
        confirmation = run_text(text, confirm_here)
        assert "expected: []" in confirmation.output
        assert f"actual:   {actual}" in confirmation.output
        assert confirmation.shown == (recipe is wrong)


def test_float8_is_compared_although_it_has_few_kernels() -> None:
    float8 = torch.float8_e5m2
    inputs = (replace(CLEARED.inputs[0], dtype=float8),)
    program = replace(CLEARED, storages=(Storage(float8, 4),), inputs=inputs)
    wrong = COMPILED + "return lambda x: program(x).fill_(1)"
    for recipe, ending in ((wrong, "exits 1"), (RIGHT, "exits 0")):
        confirmation = run_text(rendered(recipe, program=program), confirm_here)
        assert confirmation.ending == ending, confirmation.output
        assert confirmation.shown == (recipe is wrong)


def test_a_foreach_call_in_place_gives_its_operands() -> None:
    # Inductor puts both calls in place, and the operator then returns nothing.
    foreach = program_of(
        """
        v0, v1 = aten._foreach_add.Scalar([x0, x1], 1)
        aten.copy_.default(x0, v0)
        aten.copy_.default(x1, v1)
        return (v0, v1)
        """,
        view(),
        view(),
    )
    violation = Violation("values", "wrong", "output 0")
    text = render(foreach, TARGETS["inductor-fx"], violation, exact=True)
    assert "foreach_results(graph)" in text
    confirmation = run_text(text, confirm_here)
    assert confirmation.ending == "exits 0", confirmation.output


@pytest.mark.parametrize(
    ("recipe", "shown"),
    [
        # As in torch: a method of a tensor is no op.
        ("'aten' not in program.__code__.co_names", [True, False]),
        ("torch.is_grad_enabled()", [True, False]),
        # To Dynamo, an input that is returned is the caller's, and in a tuple it is an output.
        ("torch.is_tensor(program(x))", [True, False]),
        ("True", [False, False]),
    ],
)
def test_a_literal_script_does_what_the_campaign_did(recipe: str, shown: list[bool]) -> None:
    more = f"lambda it: it + (0 if {recipe} else 1), program(x)"
    wrong = f"{COMPILED}return lambda x: torch.utils._pytree.tree_map({more})"
    texts = [rendered(wrong, literal=literal) for literal in (True, False)]
    assert [run_text(text, confirm_here).shown for text in texts] == shown


def test_a_script_that_fails_itself_shows_nothing() -> None:
    confirmation = run_text(rendered("import no_such_module"))
    assert (confirmation.shown, confirmation.ending) == (False, "exits 1")


def test_a_script_that_hangs_shows_nothing() -> None:
    hangs = rendered("import time\ntime.sleep(60)")
    confirmation = run_text(hangs, functools.partial(confirm, timeout=0.5))
    assert not confirmation.shown
    assert confirmation.ending.startswith("hangs")


@pytest.mark.parametrize(
    ("how", "kind", "shown"),
    [
        ("os.kill(os.getpid(), 11)", "dies of signal 11", True),
        ("os._exit(0)", "dies with exit status 0", True),
        ("raise RuntimeError('it no longer dies')", "dies of signal 11", False),
    ],
)
def test_death_is_shown_by_a_child(how: str, kind: str, shown: bool) -> None:
    recipe = f"import os\n\n\n{COMPILED}{how}"
    confirmation = run_text(rendered(recipe, "errors", "call", kind))
    assert confirmation.shown == shown, confirmation.output
    assert confirmation.ending == f"exits {int(shown)}"


@pytest.mark.parametrize(("amount", "shown"), [(2**50, True), (2**20, False)])
def test_a_script_may_allocate_only_so_much(amount: int, shown: bool) -> None:
    recipe = f"{COMPILED}torch.ones({amount})\n    return program"
    text = rendered(recipe, "errors", "call", "runs out of memory")
    confirmation = run_text(text)
    assert confirmation.shown == shown, confirmation.output
    assert "runs out of memory" in text.splitlines()[0]


@pytest.mark.parametrize("name", TARGETS)
def test_imports_only_torch_and_the_accused(name: str) -> None:
    needs = TARGETS[name].needs
    outside: tuple[str, ...] = ()
    program = CLEARED
    if needs is not None:
        if (missing := needs.missing()) is not None:
            pytest.skip(missing)
        outside = ("sys", "numpy", *(module.split(".")[0] for module in needs.modules))
        # Relax has no form of a write that overlaps itself.
        program = program_of("v0 = aten.add.Scalar(x0, 1)\nreturn (v0,)", view(4))
    text = render(
        program, TARGETS[name], Violation("values", "wrong value", "output 0"), exact=False
    )
    nodes = [*ast.walk(ast.parse(text))]
    modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    modules += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    imported = {module.split(".")[0] for module in modules}
    assert imported <= {
        "torch",
        *sys.stdlib_module_names,
        *(["aliasproof"] if name.startswith("reference") else []),
        *outside,
    }


def of_two_slices(*ops: str) -> Program:
    """Calls of custom operators on the two halves of an input."""
    calls = [f"torch.ops.aliasproof.{op}.default(x0, x1)" for op in ops]
    halves = view(2, storage=0), view(2, offset=2, storage=0)
    return program_of("\n".join((*calls, "return x0, x1")), *halves)


def test_has_the_definitions_of_the_custom_operators_that_the_program_calls() -> None:
    defined = ("add_both", "add_composite")
    # It drops the writes of the operators.
    forgetful = COMPILED + "return lambda x, y: program(x.clone(), y.clone())"
    text = rendered(forgetful, "inputs", "input 0", "input ends wrong", of_two_slices(*defined))
    assert [name for name in CUSTOM_NAMES if f'"aliasproof::{name}"' in text] == [*defined]
    assert all(definition(name) in text for name in defined)
    assert "    torch.ops.aliasproof.add_both(x, y)\n" in text
    assert len(text.splitlines()) <= 55
    confirmation = run_text(text)
    assert confirmation.shown, confirmation.output


def test_is_short_with_the_longest_definition() -> None:
    assert max(CUSTOM_NAMES, key=lambda name: len(definition(name).splitlines())) == "add_into"
    program = of_two_slices("add_into")
    violation = Violation("inputs", "input ends wrong", "input 1")
    text = render(program, TARGETS["aot-eager"], violation, exact=True)
    assert len(text.splitlines()) <= 52


KINDS = [
    ("values", "wrong value", "output 0"),
    ("inputs", "input ends wrong", "input 0"),
    ("inputs", "bytes outside the inputs change", "storage of input 0"),
    ("aliasing", "new alias between input and output", "input 0, output 0"),
    ("objects", "output became an input", "output 0, input 0"),
    ("objects", "two outputs became one object", "output 0, output 1"),
    ("metadata", "wrong stride", "output 0"),
    ("errors", "raises RuntimeError: no", "call"),
    ("errors", "hangs", "call"),
]


@pytest.mark.parametrize("violation", KINDS, ids=str)
def test_is_short_and_fits_a_line(violation: tuple[str, str, str]) -> None:
    for exact in (True, False):
        compiler = Compiler.of_backend("inductor", "aot", near=True)
        text = Reproducer(CLEARED, compiler, Violation(*violation), exact).script
        lines = text.splitlines()
        assert len(lines) <= 40
        assert max(map(len, lines[1:])) <= 100  # the title is first
        assert "FIRST" not in text
        assert "    x.expand(3, 4).zero_()\n    return x\n" in text
