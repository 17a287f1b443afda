"""Oracle *errors*: the target raises if and only if eager raises."""

from __future__ import annotations

import re

from aliasproof.eager.trace import Trace
from aliasproof.ir.custom_operators import NAMESPACE
from aliasproof.ir.eager_call import refuses_overlap
from aliasproof.ir.python_program import MODULE_PREFIX
from aliasproof.oracles.contract import Contract, Difference, Promise
from aliasproof.oracles.observation import Observation
from aliasproof.oracles.oracle import Needs, Oracle, StandaloneCheck
from aliasproof.oracles.verdict import Report, Violation

_MOST_CHARACTERS = 2000  # of a message, in the evidence: some of torch's hold a whole graph


def judge(contract: Contract, eager: Observation, target: Observation, trace: Trace) -> Report:
    """Compare whether eager and target raised."""
    differences = []
    # Both may raise different errors: which one comes first may differ, and users see one anyway.
    if target.error is not None and eager.error is None:
        shown = _violation(f"raises {skeleton(target.error)}", target.error)
        differences.append(Difference(Promise.NO_NEW_ERROR, shown, target.error))
    if eager.error is not None and target.error is None:
        overlap = refuses_overlap(eager.error)
        promise = Promise.SAME_OVERLAP_ERROR if overlap else Promise.SAME_ERROR
        shown = _violation(f"does not raise {type(eager.error).__name__}", eager.error)
        differences.append(Difference(promise, shown))
    return contract.report(differences, trace)


def _violation(kind: str, error: Exception) -> Violation:
    evidence = {"message": message_of(error)[:_MOST_CHARACTERS], "type": type(error).__name__}
    notes = [*getattr(error, "__notes__", ()), *getattr(_inner(error), "__notes__", ())]
    if notes:  # such as the line of the user's code that raised it
        evidence["note"] = "; ".join(notes)[:_MOST_CHARACTERS]
    return Violation("errors", kind, "call", evidence)


def message_of(error: BaseException) -> str:
    """The message of an error, equal in each run of a program.

    Dynamo's message around a backend's error names a function of aliasproof, so it is dropped.
    """
    inner = _inner(error)
    message = str(error) if inner is None else f"{type(inner).__name__}: {inner}"
    return _MODULE.sub("program", message)


def _inner(error: BaseException) -> BaseException | None:
    """The error of a backend, which Dynamo wraps."""
    inner = getattr(error, "inner_exception", None)
    return inner if isinstance(inner, BaseException) else None


_MODULE = re.compile(rf"{MODULE_PREFIX}\d+")  # the number differs from run to run of a process
# An op, `aten::add.Tensor` or `aten.add.Tensor`, with or without its schema.
_OP = re.compile(
    rf"\b(?:aten|prims|{NAMESPACE})(?:::|\.)\w+(?:\.\w+)?(?:\(.*?\) -> (?:\(.*\)|[^\s.]*))?"
)
_DTYPE = re.compile(
    r"\b(?:Byte|Char|Short|Int|Long|Half|Float|Double|Bool|BFloat16|Complex(?:Half|Float|Double))\b"
)
# How fake tensors print themselves: `FakeTensor(..., size=(2,), dtype=torch.int64)`.
_FAKE = re.compile(r"\bFakeTensor\((?:[^()]|\([^()]*\))*\)")
# Dynamo's name of a value: `L['box'][0].first`, `G['buffer']`.
_SOURCE = re.compile(r"\b[LG](?:\['\w+'\])(?:\[[^\]]*\]|\.\w+)*")
_PATH = re.compile(r"(?<![\w/])/(?:[\w.+-]+/)+([\w.+-]+)")
# Dynamo says this of every error that fake tensors raise; the error itself is in a later line.
_OF_FAKE = "when making fake tensor call"
_GOT = re.compile(r"\bgot (\w+)\((['\"])(.*?)\2\)\s*$", re.MULTILINE)


def skeleton(error: BaseException) -> str:
    """The type and the first line of the message, without numbers, addresses and names.

    So the same error in two programs has the same skeleton, whatever the ops and dtypes.
    """
    inner = _inner(error)
    if inner is not None:
        return f"{type(error).__name__} by {skeleton(inner)}"
    # Later lines often contain a graph or a stack, which differ from program to program.
    lines = str(error).strip().splitlines()
    got = _GOT.search(str(error)) if lines and lines[0].endswith(_OF_FAKE) else None
    if got is not None:
        return f"{type(error).__name__} by {got[1]}: {_without_names(got[3])}".rstrip(": ")
    return f"{type(error).__name__}: {_without_names(lines[0] if lines else '')}".rstrip(": ")


def _without_names(line: str) -> str:
    text = _PATH.sub(r"\1", _SOURCE.sub("#", _FAKE.sub("FakeTensor", line)))
    text = _DTYPE.sub("#", _OP.sub("#", text))
    text = re.sub(r"0x[0-9a-f]+|\bv?\d+\b|\[[^\]]*\]", "#", text)
    text = re.sub(r"-?\d+|-#", "#", text)
    text = re.sub(r"(?<!\w)\(#?(, ?#)*,?\)", "(#)", text)  # shapes of any rank
    text = re.sub(r"\{([^{},]*)(, ?\1)+\}", r"{\1}", text)  # sets of any size
    return text[:120]


def shows_error(violation: Violation, output: str) -> bool:
    """Whether a script printed the error of a violation, in the run that raised."""
    _, _, printed = output.partition("expected: ")
    expected, _, actual = printed.partition("actual:   ")
    actual, _, _ = actual.partition("\nBUG: ")  # the title of the script quotes the violation
    kind = violation.kind
    if kind.startswith("does not raise "):
        return _names_error(violation, expected) and actual.startswith("no error")
    if kind.startswith("raises "):
        return _names_error(violation, actual) and expected.startswith("no error")
    # Other kinds say how a process died; torch's message for too much memory has the word "memory".
    return kind in actual or ("memory" in kind and "memory" in actual.lower())


def _names_error(violation: Violation, printed: str) -> bool:
    lines = str(violation.evidence.get("message", "")).strip().splitlines()
    # Dynamo wraps errors, and names the backend in a separate line. Numbers and names of nodes
    # differ, so only words are compared.
    words = _words(next((line for line in lines if not line.startswith("backend=")), ""))
    return (words or str(violation.evidence.get("type", ""))) in _words(printed)


def _words(text: str) -> str:
    return " ".join(re.findall(r"[A-Za-z]{3,}", text))


ORACLE = Oracle(
    "errors",
    "raises if and only if eager raises",
    Needs.RESULTS,
    judge,
    # The reproducer of an error compares in a separate section whether eager and target raise.
    StandaloneCheck("nothing", "None", shows=shows_error),
    reason="Eager runs this program, and no documentation excludes it.",
)
