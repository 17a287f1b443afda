"""The language of Python programs: what it accepts, and that no other object can be reached."""

import importlib
import signal
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from aliasproof.ir import custom_operators, python_program
from aliasproof.ir.errors import Rejected, UserError
from aliasproof.ir.python_program import PythonProgram, limit_run_time

PROGRAM = """
import torch

total = torch.zeros(2)

class State:
    shared = 0

def program(x, history=[]):
    global total
    total = total + 1
    State.shared += 1
    history.append(x.add_(1))
    return len(history)

def calls(program):
    x = torch.ones(2)
    count = program(x)
    return locals()
"""


def with_line(line: str) -> str:
    return PROGRAM.replace("    return len(history)", f"    {line}\n    return len(history)")


def test_each_run_has_a_world_of_its_own():
    program = PythonProgram(PROGRAM)
    for _ in range(2):
        left: Any = program.run()
        assert left["count"] == 1
        assert left["total"].tolist() == [1, 1]
        assert left["State.shared"] == 1
        assert left["x"].tolist() == [2, 2]


def test_the_state_of_a_module_in_a_global_is_left():
    text = PROGRAM.replace("class State", "norm = torch.nn.BatchNorm1d(2)\n\nclass State")
    left: Any = PythonProgram(text).run()
    assert left["norm"].running_mean.tolist() == [0, 0]
    assert "State" not in left


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "from os import system",
        "import torch as t",
        "open('x')",
        "eval('1')",
        "getattr(x, 'data')",
        "__import__('os')",
        "x.__class__",
        "program.__globals__",
        "torch.load('x')",
        "torch.save(x, 'x')",
        "torch.hub",
        "torch.ops.load_library('x')",
        "torch.from_file('x')",
        "torch.utils.cpp_extension",
        "x.numpy().tofile('x')",
        "torch.os",
        "torch.serialization",
        "'{0}'.format(x)",
        "try: pass\n    except: pass",
        "try: pass\n    except Exception: pass",
        "try: pass\n    except BaseException: pass",
        "try: pass\n    except (ValueError, RuntimeError): pass",
        "try: pass\n    except ValueError as error: error.__traceback__",
        "try: pass\n    except x: pass",
        "try: pass\n    except* ValueError: pass",
        "while True:\n        try: x\n        finally: continue",
        "ValueError = x",
        "for RuntimeError in x: pass",
        "raise SystemExit",
        "torch.ops.aliasproof.reference_pass",
        "torch.ops.aliasproof.loader",
        "torch._higher_order_ops.inline_asm_elementwise",
        "torch._higher_order_ops.utils.importlib",
        "torch.compiler.set_stance('default')",
        "torch.compiler.load_cache_artifacts(x)",
        "torch.compiler.config",
        "torch._dynamo.config",
        "torch.autograd.graph.save_on_cpu()",
        "dataclasses.sys",
        "dataclasses.make_dataclass('x', [])",
        "x.share_memory_()",
        "class Kind:\n        def __del__(self): pass",
        "class Kind:\n        def __getattr__(self, name): pass",
        "class Kind:\n        def __exit__(self): return True",
        "class Kind:\n        __slots__ = 1",
        "async def f(): pass",
        "undefined_name",
        "__builtins__ = 1",
        "x = f'{x.__class__}'",
        "(__class__ := x)",
        "lambda: exec('1')",
    ],
)
def test_what_is_not_in_the_language_is_refused(line: str):
    with pytest.raises(UserError):
        PythonProgram(with_line(line))


def reached_through_attributes() -> Iterator[tuple[str, object]]:
    """The objects that attributes of modules and classes reach, each with its expression."""
    visited: dict[int, object] = {}
    waiting: list[tuple[str, Any]] = [
        (name, importlib.import_module(name)) for name in sorted(python_program.IMPORTED)
    ]
    for path, value in waiting:  # which grows
        for name in sorted(python_program.attributes()):
            part = getattr(value, name, None)
            if not callable(part) and not isinstance(part, types.ModuleType):
                continue
            if id(part) not in visited:
                visited[id(part)] = part
                yield f"{path}.{name}", part
                # Each name is an operator packet, which torch creates on access.
                if isinstance(part, (types.ModuleType, type)) and value is not torch.ops:
                    waiting.append((f"{path}.{name}", part))


@pytest.mark.filterwarnings("ignore")
def test_attributes_reach_torch_alone():
    allowed = (*python_program.IMPORTED, "typing", "builtins", "None", "")
    for path, value in reached_through_attributes():
        name = "__name__" if isinstance(value, types.ModuleType) else "__module__"
        module = getattr(value, name, None)
        # Parts of these modules are written in C, such as `_functools`.
        assert str(module).partition(".")[0].lstrip("_") in allowed, path
        assert module not in ("torch.serialization", "torch.hub", "torch.package"), path


@pytest.mark.parametrize("name", custom_operators.names())
def test_the_custom_operators_can_be_named(name: str):
    PythonProgram(with_line(f"torch.ops.aliasproof.{name}(x, x)"))
    assert len(custom_operators.definitions_in(f"torch.ops.aliasproof.{name}(x)")) == 1


def test_an_error_can_be_raised_and_caught():
    lines = "try:\n        x[99]\n    except IndexError:\n        x.add_(1)\n    finally: x.add_(1)"
    left: Any = PythonProgram(with_line(lines)).run()
    assert left["x"].tolist() == [4, 4]


def test_a_loop_that_catches_errors_ends_too():
    text = "while True:\n        try: x.view(7)\n        except RuntimeError: x.add_(1)"
    with pytest.raises(Rejected, match="takes more than"), limit_run_time(0.2):
        PythonProgram(with_line(text)).run()


def test_the_limit_of_a_worker_outlives_a_run_in_eager():
    signal.setitimer(signal.ITIMER_REAL, 1000.0)
    with limit_run_time():
        pass
    assert signal.setitimer(signal.ITIMER_REAL, 0.0)[0] > 900


def test_both_functions_are_needed():
    with pytest.raises(UserError, match="defines 'calls'"):
        PythonProgram("def program(x):\n    return x\n")
