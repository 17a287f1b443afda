"""The matrix fails if the code of a fault raises, and names the fault and the error."""

from pathlib import Path
from unittest import mock

import pytest

import aliasproof.faults
from aliasproof.commands.command_line import INTERNAL_ERROR, run
from aliasproof.faults.catalogue import EVERY_FAULT
from aliasproof.faults.fault import Fault, Passes, after_functionalize, after_reinplace
from aliasproof.faults.matrix import kill_matrix, own_mistake
from aliasproof.ir.errors import InternalError
from aliasproof.reference_pass import liveness

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about odd programs

PLANTED = """
from aliasproof.reference_pass.calls.operator_forms import aten

def reads_missing_metadata(graph_module):
    for node in graph_module.graph.nodes:
        node.meta["no such key"]

def calls_what_is_not_there(graph_module):
    graph_module.grahp.nodes

def asserts_too_much(graph_module):
    assert len(graph_module.graph.nodes) > 1_000_000

def erases_a_node_that_is_used(graph_module):
    used = [node for node in graph_module.graph.nodes if node.users]
    graph_module.graph.erase_node(used[0])

def takes_two_parameters(node, liveness):
    return True

def selects_a_missing_dimension(graph_module):
    graph = graph_module.graph
    vector = next(iter(graph.nodes))
    with graph.inserting_before(graph.output_node()):
        select = graph.call_function(aten.select.int, (vector, 99, 0))
    select.meta["val"] = vector.meta["val"]
    graph.output_node().args = ((select,),)
"""


def planted(name: str):
    """A function of the source above, as if it were in a file of `aliasproof/faults/`."""
    namespace: dict[str, object] = {}
    path = Path(aliasproof.faults.__file__).with_name("planted_faults.py")
    exec(compile(PLANTED, str(path), "exec"), namespace)
    return namespace[name]


def matrix_of(fault: Fault, monkeypatch):
    monkeypatch.setitem(EVERY_FAULT, fault.name, fault)
    return kill_matrix([fault.name], most_programs=50, further=0)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("reads_missing_metadata", "KeyError"),
        ("calls_what_is_not_there", "AttributeError"),
        ("asserts_too_much", "AssertionError"),
        ("erases_a_node_that_is_used", "RuntimeError: Tried to erase Node"),
    ],
)
def test_an_error_in_the_function_of_a_fault_fails_the_matrix(name, error, monkeypatch):
    fault = after_functionalize(planted(name), "rule")
    with pytest.raises(InternalError) as caught:
        matrix_of(fault, monkeypatch)
    assert f"'{fault.name}'" in str(caught.value)
    assert error in str(caught.value)
    assert f"{name}, faults/planted_faults.py:" in str(caught.value)


def test_the_command_fails_as_by_a_mistake_of_aliasproof(monkeypatch, capsys):
    fault = after_functionalize(planted("asserts_too_much"), "rule")
    monkeypatch.setitem(EVERY_FAULT, fault.name, fault)
    assert (
        run(["faults", "--fault", fault.name, "--programs", "10", "--workers", "1"])
        == INTERNAL_ERROR
    )
    assert "the code of fault 'asserts too much' raises AssertionError" in capsys.readouterr().err


def test_a_call_with_other_arguments_fails_the_matrix(monkeypatch):
    """`instead_of` compares parameters, so this fault replaces the function by itself."""
    wrong = planted("takes_two_parameters")
    make = Passes(within=lambda: mock.patch.object(liveness, "is_view", wrong))
    with pytest.raises(InternalError, match=r"takes_two_parameters\(\) missing 1 required"):
        matrix_of(Fault("takes two parameters", "", "rule", make), monkeypatch)


def test_what_a_kernel_raises_for_a_wrong_graph_is_a_kill(monkeypatch):
    fault = after_reinplace(planted("selects_a_missing_dimension"), "rule")
    (row,) = matrix_of(fault, monkeypatch).rows
    assert row.first == {"errors": 1}


def test_an_error_that_was_never_raised_is_not_a_mistake_of_the_fault():
    assert own_mistake("any", KeyError("x")) is None
