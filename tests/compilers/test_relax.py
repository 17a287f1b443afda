"""Target *relax*: programs of values, views and writes through `DataflowUseInplaceCalls` of TVM."""

from __future__ import annotations

import pytest
import torch

from aliasproof.campaigns.publish.reproducer import render
from aliasproof.corpus.bug_files import known_bugs
from aliasproof.corpus.known_bug import patched
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import Rejected
from aliasproof.judge.examination import Examination, examine
from aliasproof.judge.trial import Case
from aliasproof.oracles.verdict import Violation
from aliasproof.targets.registry import target as target_named

tvm = pytest.importorskip("tvm", reason="TVM is not installed: pip install 'aliasproof[relax]'")
pytest.importorskip("tvm.relax", reason="TVM is not installed: pip install 'aliasproof[relax]'")

aten = torch.ops.aten


def relax(program, *inputs: torch.Tensor, variant: str = "") -> Examination:
    """The verdicts on a function, from the target."""
    return examine(Case.of_function(program, inputs), target_named(f"relax{variant}"))


def adds(x, y):
    z = aten.add.Tensor(x, y)
    return aten.mul.Tensor(z, y)


def writes_a_row(x, y):
    aten.copy_.default(aten.select.int(x, 0, 1), y)
    return aten.add.Tensor(x, 1)


def writes_columns(x, y):
    aten.add_.Tensor(aten.t.default(x), aten.t.default(x))
    return aten.add.Tensor(aten.select.int(x, 1, 0), y)


def calls_others(x, y):
    return aten.cumsum.default(aten.mul.Tensor(x, x), 0)


@pytest.mark.parametrize("program", [adds, writes_a_row, writes_columns, calls_others])
def test_it_computes_what_eager_computes(program) -> None:
    examination = relax(program, torch.arange(9.0).view(3, 3), torch.arange(3.0))
    assert examination.rejected is None
    assert examination.violations == []


def test_inputs_on_one_storage_are_a_vector() -> None:
    base = torch.arange(6.0)
    examination = relax(lambda x, y: aten.add.Tensor(aten.neg_.default(x), y), base[:4], base[2:])
    assert examination.rejected is None
    assert examination.violations == []


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (lambda x: aten.view.dtype(x, torch.int32), "no view of another dtype"),
        (aten.rand_like.default, "draws random numbers"),
        (aten.nonzero.default, "depend on data"),
        (lambda x: aten.add.Tensor(x, 1j), "no tensors of torch.complex64"),
    ],
)
def test_what_relax_has_no_form_of_is_rejected(program, reason: str) -> None:
    examination = relax(program, torch.arange(4.0))
    assert isinstance(examination.rejected, Rejected)
    assert reason in str(examination.rejected)


# --- reproducers ----------------------------------------------------------------------------------


def test_a_reproducer_needs_no_package_of_ours() -> None:
    bug = known_bugs()["relax-consumed-memory-reused"]
    violation = Violation("values", "wrong value", "output 0", {})
    text = render(bug.program, target_named("relax-vm-calls"), violation, exact=True)
    assert "import aliasproof" not in text
    assert "from aliasproof" not in text
    assert "R.call_inplace_packed(" in text
    compile(text, "reproducer.py", "exec")


# --- wrong passes, which the oracles must see -----------------------------------------------------


def in_place_where(chooses):
    """A pass that puts a binary call in place wherever `chooses` finds an operand."""

    def run(module):
        function = module["main"]
        (block,) = function.body.blocks
        bindings = list(block.bindings)
        for index, binding in enumerate(bindings):
            call = binding.value
            if getattr(getattr(call, "op", None), "name", "") in ("relax.add", "relax.multiply"):
                operands = [it for it in call.args if isinstance(it, tvm.relax.Var)]
                later = [it for other in bindings[index + 1 :] for it in used(other.value)]
                for place, operand in enumerate(operands):
                    if operand.ty == binding.var.ty and chooses(function, later, operand):
                        kernel = tvm.relax.call_tir_inplace(
                            tvm.ir.GlobalVar("kernel"), operands, place, binding.var.ty
                        )
                        bindings[index] = tvm.relax.VarBinding(binding.var, kernel)
                        break
        body = tvm.relax.SeqExpr([tvm.relax.DataflowBlock(bindings)], function.body.body)
        return tvm.IRModule({"main": tvm.relax.Function(function.params, body, function.ret_ty)})

    return run


def used(value) -> list[object]:
    """The variables of an expression, each once."""
    return list(tvm.relax.analysis.all_vars(value))


def is_parameter(function, operand) -> bool:
    return any(operand.same_as(it) for it in function.params)


WRONG = {
    "liveness is not asked": lambda function, later, operand: not is_parameter(function, operand),
    "parameters are not kept": lambda function, later, operand: True,
    "the last use is left out": lambda function, later, operand: (
        not is_parameter(function, operand) and sum(operand.same_as(it) for it in later) < 2
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_pass_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tvm.relax.transform, "DataflowUseInplaceCalls", lambda: in_place_where(WRONG[name])
    )

    def program(x):
        y = aten.mul.Tensor(x, x)
        z = aten.add.Tensor(y, x)
        return aten.sub.Tensor(z, y), z

    assert relax(program, torch.arange(1.0, 4.0)).failed


def test_drawn_programs_are_right_without_the_known_bugs() -> None:
    patches = [bug for name, bug in known_bugs().items() if name.startswith("relax-")]
    with patched(patches):
        for program in sample(swarm(7), 7, 25):
            assert not examine(Case.of(program), target_named("relax")).failed
