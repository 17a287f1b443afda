"""The reference pass on operators and modules of PyTorch's own tests: a sample of `make sweep`.

No call is wrong and none crashes. A pass that is wrong, crashes or refuses shows as such.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import fx

from aliasproof.ir.errors import UserError
from aliasproof.processes.outcome import Death, Returned
from aliasproof.processes.pool import Pool, RemoteCall
from aliasproof.reference_pass import Refused, backend, functionalize, reinplace
from aliasproof.targets.target import Build
from benchmarks import sweep
from benchmarks.sweep import (
    BACKEND,
    EAGER_STEP,
    LAYOUTS,
    LIMITS,
    MODES,
    Mode,
    Outcome,
    SampleCall,
    SweepAnswer,
    SweepTable,
    Swept,
    calls_of,
    dtypes_of,
    measure,
    outcome,
    subjects,
)

pytest.importorskip("expecttest", reason="PyTorch's tests need it: make install")
pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of torch about odd samples
SUBJECTS = 12
DIRECT, INFERENCE, TRAINING, SYMBOLIC = MODES


@pytest.fixture(autouse=True)
def fresh_dynamo():
    yield
    torch._dynamo.reset()


def test_no_call_of_a_sample_is_wrong_or_crashes():
    infos, bad = subjects(), []
    found: Counter[SweepAnswer] = Counter()
    draw = random.Random(20)
    for name in draw.sample(sorted(infos), SUBJECTS):
        for call in calls_of(infos[name], draw.choice(dtypes_of(infos[name])), 1):
            for mode in MODES:
                layout = draw.choice(LAYOUTS)
                if (answer := outcome(call.in_layout(layout), mode)) is not None:
                    found[answer.answer] += 1
                    if answer.answer in (SweepAnswer.WRONG, SweepAnswer.CRASH):
                        bad.append((name, call.name, layout, mode.name, answer.detail))
    assert not bad
    assert found[SweepAnswer.RIGHT] > 2 * SUBJECTS


# --- it can fail ----------------------------------------------------------------------------------


def answer_of(function: Callable[..., Any], mode: Mode, *tensors: torch.Tensor) -> SweepAnswer:
    found = outcome(SampleCall("planted", function, (tensors, {})), mode)
    assert found is not None
    return found.answer


def planted(compiler: Callable[..., Any], mode: Mode = DIRECT) -> Mode:
    def build(function: Callable[..., Any], inputs: Any) -> Build:
        return Build(compiler(function, inputs), [], "planted")

    return replace(mode, target=replace(mode.target, build=build))


def raises(error):
    def compiler(function, sample):
        raise error

    return compiler


@pytest.mark.parametrize(
    ("compiler", "answer"),
    [
        # It overwrites the input.
        (
            lambda function, sample: reinplace(functionalize(function, *sample), conditions=[]),
            SweepAnswer.WRONG,
        ),
        (lambda function, sample: lambda x: [function(x)[0] + 1e-3], SweepAnswer.WRONG),
        (lambda function, sample: lambda x: x, SweepAnswer.WRONG),
        (raises(KeyError("x")), SweepAnswer.CRASH),
        (raises(Refused("a call cannot be traced")), SweepAnswer.CRASH),
    ],
    ids=["in place", "inexact", "identity", "error", "not our refusal"],
)
def test_a_wrong_pass_shows(compiler, answer):
    assert answer_of(torch.exp, DIRECT, torch.zeros(3, 4)) == SweepAnswer.RIGHT
    assert answer_of(torch.exp, planted(compiler), torch.zeros(3, 4)) == answer


def test_what_the_pass_refuses_is_documented_and_dynamo_splits_it():
    def branches(x):
        return x + 1 if x.sum() > 0 else x * 2

    assert answer_of(branches, DIRECT, torch.ones(3)) == SweepAnswer.DOCUMENTED
    assert answer_of(branches, INFERENCE, torch.ones(3)) == SweepAnswer.RIGHT


def test_a_wrong_gradient_shows(monkeypatch):
    inputs = torch.ones(3, requires_grad=True)
    assert answer_of(torch.exp, TRAINING, inputs) == SweepAnswer.RIGHT
    aliasproof = backend.aliasproof

    def detaches(graph_module: fx.GraphModule, given: Any) -> Any:
        compiled = aliasproof(graph_module, given)
        return lambda *tensors: [it.detach().requires_grad_() for it in compiled(*tensors)]

    monkeypatch.setattr(sweep, "aliasproof", detaches)
    assert answer_of(torch.exp, TRAINING, inputs) == SweepAnswer.WRONG


def test_symbolic_sizes_run_at_other_sizes_than_traced():
    def for_these_sizes(function, sample):
        return lambda x: torch.exp(x) if x.shape == sample[0].shape else x

    wrong, inputs = planted(for_these_sizes, SYMBOLIC), torch.ones(3, 4)
    assert answer_of(torch.exp, SYMBOLIC, inputs) == SweepAnswer.RIGHT
    assert answer_of(torch.exp, wrong, inputs) == SweepAnswer.WRONG
    assert answer_of(torch.exp, planted(for_these_sizes), inputs) == SweepAnswer.RIGHT
    # A layer before is wrong, too.
    identity = planted(lambda function, sample: lambda x: x).target
    both = replace(wrong, target=replace(wrong.target, after=replace(identity, name="layer")))
    assert answer_of(torch.exp, both, inputs) == SweepAnswer.INHERITED
    # A layer that is wrong in another way is no excuse.
    raising = planted(raises(KeyError("x"))).target
    other = replace(wrong, target=replace(wrong.target, after=replace(raising, name="layer")))
    assert answer_of(torch.exp, other, inputs) == SweepAnswer.WRONG


def test_what_was_not_compared_is_not_called_right():
    state = iter(range(100))

    def counts(x):
        return x + next(state)

    def undefined(x):
        return torch.empty(100_000) + x

    for function in (counts, undefined):
        assert answer_of(function, DIRECT, torch.ones(1)) == SweepAnswer.NOT_JUDGED
    in_python = torch.compiler.disable(torch.exp)
    assert answer_of(in_python, INFERENCE, torch.ones(1)) == SweepAnswer.NOT_JUDGED
    assert INFERENCE.target is BACKEND


# --- the process and the file ---------------------------------------------------------------------


def test_a_death_of_a_pass_is_a_crash_and_the_sweep_goes_on(monkeypatch):
    outcomes = iter(
        [
            Returned([(torch.float32, 0, "sample 0")]),
            Death("dies of signal 11", "direct"),
            Death("dies of signal 11", EAGER_STEP),
            *[Returned(Outcome(SweepAnswer.RIGHT))] * 6,
        ]
    )

    monkeypatch.setattr(Pool, "call", lambda *arguments: next(outcomes))
    found = sweep._swept("neg", 1, Pool(RemoteCall("", ""), LIMITS, 1))
    assert found.counts["direct", SweepAnswer.CRASH] == 1
    assert found.counts["inference", SweepAnswer.NOT_JUDGED] == 1
    assert sum(found.counts.values()) == len(MODES) * len(LAYOUTS)
    table = SweepTable(1, [found]).tables()[0]
    assert any("signal 11" in note for note in table.notes)


def test_results_are_kept_and_not_found_again(tmp_path):
    file = tmp_path / "results.jsonl"
    first = measure(samples=1, resume=file, names=["geqrf"])
    answers = {answer for _, answer in first.swept[0].counts}
    assert SweepAnswer.RIGHT in answers
    assert not {SweepAnswer.WRONG, SweepAnswer.CRASH} & answers
    # No second is left, so these results come from the file.
    again = measure(samples=1, resume=file, names=["geqrf"], seconds=0)
    assert again.tables() == first.tables()
    assert measure(samples=2, resume=file, names=["geqrf"], seconds=0).swept == []


def test_an_unknown_operator_is_named():
    with pytest.raises(UserError, match="no operator or module 'negg'"):
        measure(names=["negg"])


def test_the_table_counts_answers_and_reasons():
    found = Swept(
        "neg",
        Counter({("direct", "right"): 3, ("direct", "documented"): 2}),
        Counter({("direct", "data-dependent call"): 2}),
    )
    answers, refusals = SweepTable(816, [found, found]).tables()
    assert answers.rows[0][:5] == ("direct", "6", "0", "0", "4")
    assert refusals.rows == [("data-dependent call", "direct", "4")]
