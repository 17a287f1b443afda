"""`aliasproof gate`: baselines, also for code of a user, and what a change to it breaks."""

import shlex
from dataclasses import replace

import pytest

from aliasproof.campaigns.run import gate
from aliasproof.campaigns.run.gate import Baseline, Entry, Seen, Shown, changes, corpus_text, cover
from aliasproof.corpus.bug_files import known_bugs, python_bugs
from aliasproof.ir.errors import UserError
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.attribution import Symptom
from aliasproof.targets import registry, user_names
from tests.aliasproof.planted_targets import DROPS_WRITES
from tests.short_programs import python_of

# A process imports a file only once, so the backend reads another file to know if it is broken.
BACKEND = """\
from pathlib import Path


def my_backend(graph_module, example_inputs):
    if Path({flag!r}).exists():
        return lambda *given: graph_module.forward(*(it.clone() for it in given))
    return graph_module.forward
"""


@pytest.fixture
def few_programs(monkeypatch):
    bugs = [known_bugs()[name] for name in ("copy-of-written-input", "index-read-while-written")]
    few = [gate.Entry(bug.targets[0], bug.program) for bug in bugs]
    few.append(gate.Entry("aot-eager", python_of("x.add_(1)")))
    monkeypatch.setattr(gate, "corpus", lambda: few)
    monkeypatch.delenv("CI", raising=False)  # where a baseline must exist
    monkeypatch.setattr(user_names, "_granted", set())  # as in a new process
    monkeypatch.setattr(registry, "OWN", {})
    return few


def test_a_change_to_a_backend_fails_the_gate_once_it_breaks_programs(call, tmp_path, few_programs):
    given = ("--target", "mine.py:my_backend", "--baseline", "b.json")
    flag = tmp_path / "broken"
    (tmp_path / "mine.py").write_text(BACKEND.format(flag=str(flag)))
    first = call("gate", *given)
    assert first.code == 0, first.err
    assert "of 3 programs recorded" in first.out
    assert "note: b.json is new, so nothing was compared: commit it" in first.err
    same = call("gate", *given)
    assert (same.code, same.out) == (0, "3 programs, 0 changes, 0 new\n"), same
    flag.touch()
    broken = call("gate", *given)
    assert broken.code == 1, broken
    assert "new: inputs: " in broken.out
    assert call("gate", *given).out == broken.out
    # One command per violation, which shows it.
    commands = [line for line in broken.out.splitlines() if line.startswith("    ")]
    assert len(commands) == broken.out.count("new: ")
    folders = [shlex.split(command)[2] for command in commands]
    assert {(tmp_path / folder / "program.json").exists() for folder in folders} == {True, False}
    for command in commands:
        assert "Still there" in call(*shlex.split(command)[1:]).out


@pytest.mark.parametrize(("name", "changed"), [("keeps", 0), ("drops_writes", 3)])
def test_a_new_baseline_lists_what_it_accepts_and_how_often_a_pass_did_something(
    call, tmp_path, few_programs, name: str, changed: int
):
    (tmp_path / "mine.py").write_text(f"{DROPS_WRITES}\n\ndef keeps(graph_module): pass\n")
    for _ in range(2):  # with a new baseline, and with that one
        outcome = call("gate", "--target", f"mine.py:{name}", "--baseline", "b.json")
        assert outcome.code == 0, outcome
        note = f"note: your pass changed a graph in {changed} of 3 programs"
        assert note in " ".join(outcome.err.split())
    recorded = call("gate", "--target", f"mine.py:{name}", "--baseline", "other.json")
    lines = [line for line in recorded.out.splitlines() if line.startswith("recorded: ")]
    assert sum(2 if line.endswith(" (2 programs)") else 1 for line in lines) == changed
    assert recorded.out.count("    aliasproof show gate/") == len(lines)


RAISES_IF = """
from pathlib import Path


def my_pass(graph_module):
    if Path({flag!r}).exists():
        raise RuntimeError("unfinished")
"""
RAISES = RAISES_IF.format(flag="/")


def test_a_pass_that_raises_is_two_lines_for_all_programs(call, tmp_path, few_programs):
    (tmp_path / "mine.py").write_text(RAISES)
    outcome = call("gate", "--target", "mine.py:my_pass")
    assert outcome.code == 1, outcome
    raised, command, of_python, _, last = outcome.out.splitlines()
    assert raised.startswith("new: errors: raises RuntimeError: unfinished")
    assert raised.endswith(" (2 programs)")
    assert "Still there" in call(*shlex.split(command)[1:]).out
    assert "by RuntimeError: unfinished" in of_python
    assert last == "3 programs, 3 changes, 3 new"


def test_what_is_gone_from_several_programs_is_one_line(call, tmp_path, few_programs):
    flag = tmp_path / "broken"
    flag.touch()
    given = ("--target", "mine.py:my_pass", "--baseline", "b.json")
    (tmp_path / "mine.py").write_text(RAISES_IF.format(flag=str(flag)))
    recorded = call("gate", *given)
    assert recorded.code == 0, recorded
    warning = "warning: exceptions in 3 programs that eager does not raise; b.json now accepts them"
    assert warning in " ".join(recorded.err.split())
    flag.unlink()
    outcome = call("gate", *given)
    assert outcome.code == 0, outcome
    assert "warning" not in outcome.err
    first, second, *_ = outcome.out.splitlines()
    assert (
        first
        == "gone: errors: raises RuntimeError: unfinished through mine.py:my_pass (2 programs)"
    )
    assert second.startswith("gone: errors: raises BackendCompilerFailed by RuntimeError")
    assert "program" not in second


def test_ci_never_records_a_baseline(call, tmp_path, few_programs, monkeypatch):
    monkeypatch.setenv("CI", "true")
    (tmp_path / "mine.py").write_text(RAISES)
    outcome = call("gate", "--target", "mine.py:my_pass", "--baseline", "b.json")
    assert "b.json does not exist" in outcome.refusal
    assert not (tmp_path / "b.json").exists()


def test_a_baseline_in_no_folder_is_refused_before_the_work(call, tmp_path, few_programs):
    (tmp_path / "mine.py").write_text(RAISES)
    outcome = call("gate", "--target", "mine.py:my_pass", "--baseline", "missing/b.json")
    assert "the folder missing does not exist" in outcome.refusal
    assert not (tmp_path / "missing").exists()


def test_without_a_baseline_known_bugs_are_no_change(call, few_programs):
    outcome = call("gate", "--target", "inductor-fx", "--json")
    assert outcome.json() == {"programs": 2, "new": 0, "changes": []}
    assert "there is no baseline" in outcome.err


# --- baselines, and a set cover -------------------------------------------------------------------


WRONG = Symptom("aot", "values", "wrong value")
BUG = "expand-inverse"
ENTRY = Entry("aot", known_bugs()[BUG].program)
NARROW = next(bug for bug in known_bugs().values() if bug.vector_bits == (512,))


def baseline(it: Shown | None = None) -> Baseline:
    return Baseline(gate.release(), 256, {ENTRY.name: it} if it else {}, ("a", "b"))


def lines(seen: Seen, before: Baseline | None) -> list[tuple[bool, str]]:
    return [it[:2] for it in changes([ENTRY], {ENTRY.name: seen}, before)]


def test_what_is_as_before_is_no_change():
    shown = Shown(WRONG, BUG)
    assert lines(Seen(shown, frozenset("ab")), baseline(it=shown)) == []


def test_a_violation_is_new_if_no_program_showed_it():
    text = "new: values: wrong value through aot"
    assert lines(Seen(Shown(WRONG), frozenset("ab")), baseline()) == [(True, text)]
    other = Shown(replace(WRONG, kind="wrong stride"))
    assert lines(Seen(Shown(WRONG), frozenset("ab")), baseline(it=other)) == [(True, text)]


def test_a_known_bug_is_new_if_the_baseline_has_it_nowhere():
    shown = Seen(Shown(WRONG, BUG), frozenset("ab"))
    [(is_new, text)] = lines(shown, baseline())
    assert is_new
    assert text.startswith(f"new: known bug {BUG} ")
    assert lines(shown, None) == []
    assert [is_new for is_new, _ in lines(Seen(Shown(WRONG)), None)] == [True]


def test_a_known_bug_whose_file_names_this_torch_needs_no_entry_in_the_shipped_baseline():
    seen = {ENTRY.name: Seen(Shown(WRONG, BUG), frozenset("ab"))}
    assert changes([ENTRY], seen, baseline(), gate.stated_bugs()) == []
    [change] = changes([ENTRY], seen, baseline(), gate.stated_bugs() - {BUG})
    assert change.is_new
    unknown = {ENTRY.name: Seen(Shown(WRONG), frozenset("ab"))}
    [change] = changes([ENTRY], unknown, baseline(), gate.stated_bugs())
    assert change.is_new


def test_what_is_gone_is_shown_and_does_not_fail():
    gone = lines(Seen(None, frozenset("a")), baseline(it=Shown(WRONG, BUG)))
    assert gone == [(False, f"gone: known bug {BUG}"), (False, "site gone: b")]
    [(is_new, text)] = lines(Seen(None, frozenset("ab")), baseline(it=Shown(WRONG)))
    assert not is_new
    assert text == "gone: values: wrong value through aot"


def test_new_violations_come_last_after_what_is_gone_and_what_is_latent():
    latent = Shown(Symptom("aot", "equivalence", "wrong symbolic value"))
    other, third = replace(ENTRY, target="aot-eager"), replace(ENTRY, target="dynamo")
    seen = {ENTRY.name: Seen(Shown(WRONG)), other.name: Seen(latent), third.name: Seen()}
    before = replace(baseline(), shown={third.name: Shown(WRONG)})
    texts = [it.text.split(":")[0] for it in changes([ENTRY, other, third], seen, before)]
    assert texts == ["gone", "site gone", "site gone", "latent, since no values show it", "new"]


def test_what_no_values_show_is_shown_and_does_not_fail():
    latent = Shown(Symptom("aot", "equivalence", "wrong symbolic value"))
    [(is_new, text)] = lines(Seen(latent, frozenset("ab")), baseline())
    assert not is_new
    assert text == f"latent, since no values show it: {latent}"


def test_a_bug_that_the_vectors_of_a_machine_cannot_show_is_no_change(monkeypatch):
    monkeypatch.setattr(gate, "vector_bits", lambda: 256)
    shown, right = Shown(WRONG, NARROW.identifier), Seen(None, frozenset("ab"))
    assert lines(right, replace(baseline(it=shown), vectors=512)) == []
    monkeypatch.setattr(gate, "vector_bits", lambda: 512)
    assert lines(Seen(shown, frozenset("ab")), baseline()) == []
    assert len(lines(right, replace(baseline(it=shown), vectors=512))) == 1


def test_a_baseline_is_read_as_it_was_written(tmp_path):
    written = baseline(it=Shown(WRONG, BUG))
    written.write(tmp_path / "new" / "file.json")
    assert Baseline.read(tmp_path / "new" / "file.json") == written
    replace(written, torch="1.0").write(tmp_path / "old.json")
    with pytest.raises(UserError, match=r"is of torch 1\.0"):
        Baseline.read(tmp_path / "old.json")
    (tmp_path / "broken.json").write_text("[]")
    with pytest.raises(UserError, match="is no baseline"):
        Baseline.read(tmp_path / "broken.json")


def test_an_entry_is_a_line_in_both_languages():
    source = "def calls(f, x):\n    f(x)\n\n\ndef program(x):\n    return x + 1\n"
    entries = [ENTRY, Entry("aot-eager", PythonProgram(source))]
    read = [*map(Entry.of_line, corpus_text(entries).splitlines())]
    assert sorted(read, key=lambda it: it.name) == sorted(entries, key=lambda it: it.name)


def test_a_cover_takes_the_best_first_and_nothing_that_adds_nothing():
    choices = {
        "both": (frozenset("ab"), 1),
        "one": (frozenset("a"), 1),
        "costly": (frozenset("abc"), 30),
    }
    assert cover(choices, "abc") == ["both", "costly"]
    assert cover(choices, "ab") == ["both"]
    assert cover(choices, "z") == []


def test_the_program_of_a_known_bug_shows_it_in_a_worker():
    [seen] = gate.run_entries([ENTRY], {}, 1).values()
    assert seen.shown is not None
    assert seen.shown.known == BUG
    assert seen.sites
    again = gate.run_entries([ENTRY], {ENTRY.name: seen.shown}, 1)
    assert again == {ENTRY.name: seen}


def test_the_shipped_baseline_is_of_the_shipped_programs():
    shipped = gate.shipped_baseline()
    assert shipped is not None, "run 'aliasproof gate --rebuild RUN' with this torch"
    names = {entry.name for entry in gate.corpus()}
    assert len(names) == len(gate.corpus())
    assert set(shipped.shown) <= names
    assert len(shipped.bugs) > 50
    assert not [name for name, it in shipped.shown.items() if it.known is None]


def test_a_bug_that_its_part_tells_from_others_is_known_without_a_baseline():
    bug = python_bugs()["data_of_clone"]
    assert bug.parts
    [seen] = gate.run_entries([Entry(bug.target, bug.program)], {}, 1).values()
    assert seen.shown is not None
    assert seen.shown.known == "data_of_clone"
