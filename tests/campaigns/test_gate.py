"""The gate: differences from a baseline, and a set cover of programs that show all of them."""

from dataclasses import replace

import pytest

from aliasproof.campaigns.run import gate
from aliasproof.campaigns.run.gate import Baseline, Entry, Seen, Shown, changes, corpus_text, cover
from aliasproof.corpus.bug_files import known_bugs, python_bugs
from aliasproof.ir.errors import UserError
from aliasproof.ir.python_program import PythonProgram
from aliasproof.judge.attribution import Symptom

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
