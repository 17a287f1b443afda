"""Oracle *errors*: the target raises if and only if eager raises."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aliasproof.eager.trace import Trace
from aliasproof.oracles.contract import Contract, Promise, Refusal
from aliasproof.oracles.errors import judge, skeleton
from aliasproof.oracles.verdict import HOLDS, Limitation, Verdict
from tests.oracles.scenes import ALL, runs, waiving

X = torch.arange(4.0)


def raising(error: Exception) -> Callable[..., object]:
    def function(*inputs: torch.Tensor) -> object:
        raise error

    return function


def fine(*inputs: torch.Tensor) -> object:
    return inputs


def test_a_target_that_raises_is_seen() -> None:
    report = judge(ALL, *runs(fine, raising(IndexError("index 3 is out of bounds")), [X]))
    (violation,) = report.violations
    assert report.verdict is Verdict.VIOLATED
    assert (violation.oracle, violation.kind) == (
        "errors",
        "raises IndexError: index # is out of bounds",
    )
    assert violation.evidence == {"message": "index 3 is out of bounds", "type": "IndexError"}
    assert not violation.silent


def test_a_target_that_does_not_raise_where_eager_does_is_seen() -> None:
    (violation,) = judge(ALL, *runs(raising(RuntimeError("no")), fine, [X])).violations
    assert violation.kind == "does not raise RuntimeError"


@pytest.mark.parametrize(
    "error",
    [AssertionError(), NotImplementedError("x"), KeyError("k"), ZeroDivisionError(), OSError()],
)
def test_every_type_of_error_counts(error: Exception) -> None:
    assert judge(ALL, *runs(fine, raising(error), [X])).verdict is Verdict.VIOLATED


def test_both_or_neither_may_raise() -> None:
    assert judge(ALL, *runs(fine, fine, [X])) == HOLDS
    assert judge(ALL, *runs(raising(RuntimeError("a")), raising(ValueError("b")), [X])) == HOLDS


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("aten::split.Tensor(Tensor(a -> *) self, SymInt size) -> Tensor(a)[]. So", "#. So"),
        ("no rule for aten.add.Tensor", "no rule for #"),
        ("no kernel for aten::t_", "no kernel for #"),
        ("aliasproof::f(Tensor(a!) x) -> (Tensor, Tensor(a!)). So", "#. So"),
        ("view Double as ComplexDouble", "view # as #"),
        ("std::bad_alloc", "std::bad_alloc"),
    ],
)
def test_an_error_has_one_kind_whatever_the_op_and_the_dtype(message: str, kind: str) -> None:
    assert skeleton(RuntimeError(message)) == f"RuntimeError: {kind}"


def refusing(message: str, reason: str) -> Contract:
    refusal = Refusal(
        "views", message, reason, lambda trace: True, ("ValueError",), raised_by=(__name__,)
    )
    return Contract(refusals=(refusal,))


def test_a_refusal_of_a_tracer_is_none_outside_of_it() -> None:
    refusal = Refusal(
        "a trace", "a trace", "", lambda trace: True, ("ValueError",), (__name__,), during="tracer"
    )
    scope: dict[str, Any] = {"__name__": "tracer"}
    exec("def trace(function): function()", scope)

    def raises() -> None:
        raise ValueError("no tensor in a trace")

    for call, covered in ((raises, False), (lambda: scope["trace"](raises), True)):
        with pytest.raises(ValueError, match="in a trace") as raised:
            call()
        assert refusal.covers(raised.value, Trace()) == covered


def test_a_documented_refusal_is_shown_with_its_source() -> None:
    contract = refusing(r"^cannot .* views", "the docstring says so")
    report = judge(contract, *runs(fine, raising(ValueError("cannot handle views")), [X]))
    assert report.verdict is Verdict.DOCUMENTED
    (found,) = report.documented
    assert found.limitation == Limitation("refuses 'views'", "the docstring says so")
    assert found.difference.evidence["message"] == "cannot handle views"
    other_message = judge(contract, *runs(fine, raising(ValueError("cannot handle this")), [X]))
    other_type = judge(contract, *runs(fine, raising(RuntimeError("cannot handle views")), [X]))
    assert other_message.verdict is other_type.verdict is Verdict.VIOLATED


def test_a_refusal_excuses_no_silence() -> None:
    contract = refusing(r".*", "everything")
    assert (
        judge(contract, *runs(raising(RuntimeError("no")), fine, [X])).verdict is Verdict.VIOLATED
    )


def test_waivers_are_respected() -> None:
    quiet = waiving(Promise.SAME_ERROR)
    assert judge(quiet, *runs(raising(RuntimeError("no")), fine, [X])).verdict is Verdict.DOCUMENTED
    assert judge(quiet, *runs(fine, raising(RuntimeError("no")), [X])).verdict is Verdict.VIOLATED
    loud = waiving(Promise.NO_NEW_ERROR)
    assert judge(loud, *runs(fine, raising(RuntimeError("no")), [X])).verdict is Verdict.DOCUMENTED
    assert judge(loud, *runs(raising(RuntimeError("no")), fine, [X])).verdict is Verdict.VIOLATED


def fake_error(said: str) -> Exception:
    """An error of fake tensors, as Dynamo rewords it."""
    text = "RuntimeError when making fake tensor call\n  Explanation: Dynamo failed to run FX node"
    return RuntimeError(
        f"{text} with fake tensors: call_method f(*(x0,), **{{}}): got {said}\n  Hint: no"
    )


def wrapped(inner: Exception) -> Exception:
    return torch._dynamo.exc.BackendCompilerFailed(wrapped, inner, None)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            IndexError("index 3 is out of bounds for size 2"),
            IndexError("index -17 is out of bounds for size 0"),
        ),
        (RuntimeError("shape [2, 3] does not fit"), RuntimeError("shape [7] does not fit")),
        (RuntimeError("got (2, 3) here"), RuntimeError("got () here")),
        (AssertionError("inputs={arg0_1, arg1_1}, no"), AssertionError("inputs={arg2_1}, no")),
        (RuntimeError("storage at 0x7f12ab"), RuntimeError("storage at 0xdeadbeef")),
        (RuntimeError("no\nsecond line 1"), RuntimeError("no\nsecond line, other")),
        (KeyError("v12"), KeyError("v3")),
        (
            RuntimeError("input 0 (L['x'][0].first) is"),
            RuntimeError("input 1 (G['global_list']) is"),
        ),
        (OSError("no /tmp/a/file.py"), OSError("no /home/b/c/file.py")),
        (fake_error("RuntimeError('size 2')"), fake_error("RuntimeError('size 3')")),
        (
            ValueError("no symbols in FakeTensor(..., size=(0,), dtype=torch.int64) ((1,), u2)"),
            ValueError("no symbols in FakeTensor(..., size=(2, s0)) ((1,), u3)"),
        ),
    ],
)
def test_errors_that_differ_in_numbers_only_are_alike(one: Exception, other: Exception) -> None:
    assert skeleton(one) == skeleton(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (IndexError("out of bounds"), RuntimeError("out of bounds")),
        (RuntimeError("sizes do not match"), RuntimeError("strides do not match")),
        (RuntimeError("x"), RuntimeError("")),
        (fake_error("RuntimeError('one')"), fake_error("RuntimeError('other')")),
        (fake_error("RuntimeError('one')"), fake_error("TypeError('one')")),
        (wrapped(RuntimeError("one")), wrapped(RuntimeError("other"))),
    ],
)
def test_other_errors_are_not_alike(one: Exception, other: Exception) -> None:
    assert skeleton(one) != skeleton(other)


def test_an_error_of_fake_tensors_is_named_by_what_they_raised() -> None:
    error = fake_error("RuntimeError('more than one element')")
    assert skeleton(error) == "RuntimeError by RuntimeError: more than one element"


def test_an_error_of_dynamo_itself_is_named_by_what_it_met() -> None:
    error = torch._dynamo.exc.InternalTorchDynamoError(
        "IndexError: list index out of range\n\nfrom"
    )
    assert skeleton(error).endswith("Error: IndexError: list index out of range")


def test_a_skeleton_is_short_and_never_empty() -> None:
    assert len(skeleton(RuntimeError("word " * 1000))) < 150
    assert skeleton(AssertionError()) == "AssertionError"


OVERLAP = "unsupported operation: more than one element of the written-to tensor refers to a single"


def test_an_error_on_overlapping_memory_is_a_promise_of_its_own() -> None:
    functional = waiving(Promise.SAME_OVERLAP_ERROR)
    overlap = raising(RuntimeError(f"{OVERLAP} memory location."))
    assert judge(functional, *runs(overlap, fine, [X])).verdict is Verdict.DOCUMENTED
    other = raising(RuntimeError("index out of range"))
    assert judge(functional, *runs(other, fine, [X])).verdict is Verdict.VIOLATED
