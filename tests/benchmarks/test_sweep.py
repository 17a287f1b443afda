"""The reference pass on operators and modules of PyTorch's own tests: a sample of `make sweep`.

No call is wrong and none crashes. A pass that is wrong, crashes or refuses shows as such.
"""

import random
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from aliasproof.ir.errors import UserError
from aliasproof.ir.values import clone_inputs
from aliasproof.processes.outcome import Death, Returned
from aliasproof.processes.pool import Pool, RemoteCall
from aliasproof.reference_pass import Refused, functionalize, reinplace
from benchmarks import sweep
from benchmarks.sweep import (
    EAGER_STEP,
    LAYOUTS,
    LIMITS,
    MODES,
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


def call_of(function, *tensors):
    return SampleCall("planted", function, (tensors, {}), trains=True)


def answer_of(call, mode):
    found = outcome(call, mode)
    assert found is not None
    return found.answer


def planted(compiler, mode=MODES[0]):
    return replace(mode, compiler=compiler)


def without_conditions(function, sample):
    return reinplace(functionalize(function, *sample), conditions=[])


def raises(error):
    def compiler(function, sample):
        raise error

    return compiler


@pytest.mark.parametrize(
    ("compiler", "answer"),
    [
        (without_conditions, SweepAnswer.WRONG),  # it overwrites the input
        (lambda function, sample: lambda x: (function(x) + 1e-7).clone(), SweepAnswer.WRONG),
        (lambda function, sample: lambda x: x, SweepAnswer.WRONG),
        (raises(KeyError("x")), SweepAnswer.CRASH),
        (raises(Refused("no")), SweepAnswer.REFUSED),
    ],
)
def test_a_wrong_pass_shows(compiler, answer):
    call = call_of(torch.exp, torch.zeros(3, 4))
    assert outcome(call, MODES[0]) == Outcome(SweepAnswer.RIGHT)
    assert answer_of(call, planted(compiler)) == answer


def test_a_wrong_gradient_shows():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.exp()

        @staticmethod
        def backward(context, gradient):
            return gradient

    call, training = call_of(torch.exp, torch.ones(3)), MODES[2]
    assert answer_of(call, training) == SweepAnswer.RIGHT
    wrong = planted(lambda function, sample: Wrong.apply, training)
    assert answer_of(call, wrong) == SweepAnswer.WRONG


def test_symbolic_sizes_run_at_other_sizes_than_traced():
    def for_these_sizes(function, sample):
        return lambda x: torch.exp(x) if x.shape == sample[0].shape else x

    call = call_of(torch.exp, torch.ones(3, 4))
    assert answer_of(call, planted(for_these_sizes, MODES[3])) == SweepAnswer.WRONG
    assert answer_of(call, planted(for_these_sizes)) == SweepAnswer.RIGHT


def test_what_eager_or_aot_eager_do_as_well_is_not_called_wrong():
    state = iter(range(100))

    def counts(x):
        return x + next(state)

    def undefined(x):
        return torch.empty(100_000) + x

    one = torch.ones(1)
    assert answer_of(call_of(counts, one), MODES[0]) == SweepAnswer.EAGER_DIFFERS
    wrong = planted(lambda function, sample: lambda x: x)
    assert answer_of(call_of(undefined, one), wrong) in (
        SweepAnswer.UNDEFINED,
        SweepAnswer.EAGER_DIFFERS,
    )
    both = replace(wrong, beside=(wrong.compiler,))
    assert answer_of(call_of(torch.exp, one), both) == SweepAnswer.LIKE_AOT_EAGER


def test_a_lost_guard_is_wrong_though_the_trace_of_torch_loses_it_too():
    def branches(x):
        return x + 1 if x.shape[0] > 4 else x * 2

    def without_guards(function, sample):
        return make_fx(function, tracing_mode="symbolic")(*clone_inputs(sample))

    symbolic = replace(MODES[3], compiler=without_guards)
    assert answer_of(call_of(branches, torch.ones(4) + 2), symbolic) == SweepAnswer.WRONG


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
    assert found.counts["inference", SweepAnswer.EAGER_RAISES] == 1
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
        Counter({("direct", "right"): 3, ("direct", "refused"): 2}),
        Counter({("direct", "the function is data-dependent"): 2}),
    )
    answers, refusals = SweepTable(816, [found, found]).tables()
    assert answers.rows[0][:5] == ("direct", "6", "0", "0", "4")
    assert refusals.rows == [("the function is data-dependent", "direct", "4")]
