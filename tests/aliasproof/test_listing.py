"""`aliasproof targets`, `aliasproof ops`, `--help`, `--version`, and the public names."""

import pytest

import aliasproof
from aliasproof.commands.command_line import app
from aliasproof.corpus.bug_files import all_bugs, known_bugs
from aliasproof.corpus.known_bug import KnownBug
from aliasproof.generators.ops import OPERATORS
from aliasproof.targets.registry import TARGETS
from aliasproof.targets.variants import VARIANTS
from tests.subprocesses import python


def test_targets(call):
    outcome = call("targets")
    assert outcome.code == 0
    for target in TARGETS.values():
        assert target.name in outcome.out
        assert target.summary in outcome.out
    assert all(line == line.rstrip() for line in outcome.out.splitlines())
    assert len(outcome.out.splitlines()) < 3 * (len(TARGETS) + len(VARIANTS))


def test_the_contract_of_a_target(call):
    out = call("targets", "functionalize:captured", "export").out
    assert "does not promise  'raises if eager raises since memory overlaps'" in out
    assert "captured tensors are not written" in out
    assert "inductor-fx" not in out
    assert "did you mean 'export'?" in call("targets", "exprt").err


def test_the_contract_of_ones_own_pass(call, tmp_path):
    (tmp_path / "passes.py").write_text("def nothing(gm):\n    return gm\n")
    outcome = call("targets", f"{tmp_path / 'passes.py'}:nothing")
    assert outcome.code == 0
    assert "requires" in outcome.out


def test_known_bugs(call):
    lines = call("known").out.splitlines()
    assert len(lines) == len(all_bugs()) + 1
    for line, bug in zip(lines, all_bugs().values(), strict=False):
        assert line == f"{bug.identifier}: {bug.title}  {bug.link}".rstrip()


def test_known_bugs_of_a_target(call):
    lines = call("known", "--target", "relax").out.splitlines()
    bugs = [bug for bug in known_bugs().values() if "relax" in bug.targets]
    assert [line.split(":")[0] for line in lines[:-1]] == [bug.identifier for bug in bugs]
    assert "did you mean 'relax'?" in call("known", "--target", "rlax").err


def test_a_known_bug_in_full(call):
    for name in ("expand-inverse", "maximum_is_new"):
        assert call("known", name).out == all_bugs()[name].file.read_text()
    assert "did you mean 'expand-inverse'?" in call("known", "expand-invers").err


def test_known_bugs_as_json(call):
    found = call("known", "--json").json()["known"]
    assert [entry["identifier"] for entry in found] == list(all_bugs())
    for entry, bug in zip(found, all_bugs().values(), strict=True):
        assert entry["targets"] == list(bug.targets)
        assert entry["versions"] == list(bug.versions)
        if isinstance(bug, KnownBug):
            assert entry["patchable"] == (bug.patch is not None)
        assert entry["link"] == (bug.link or None)
        assert "def program(" in entry["program"]


def test_targets_as_json(call):
    found = {entry["name"]: entry for entry in call("targets", "--json").json()["targets"]}
    assert list(found) == list(TARGETS)
    for name, target in TARGETS.items():
        assert set(found[name]) == {
            *("name", "summary", "waived", "preconditions", "refusals", "disputes"),
            *("builds on", "page", "unavailable"),
        }
        assert [clause["promise"] for clause in found[name]["waived"]] == [
            w.promise.name.lower() for w in target.contract.waivers
        ]
        assert all(
            clause["reason"]
            for part in ("waived", "preconditions", "refusals", "disputes")
            for clause in found[name][part]
        )
    assert found["aot-epilogue"]["builds on"] == "aot"


def test_targets_lists_the_variants(call):
    assert "TARGET:second-call: called before" in call("targets").out
    found = {each["name"]: each for each in call("targets", "--json").json()["variants"]}
    assert found["second-call"]["targets"][:2] == ["identity", "dynamo"]
    assert found["captured"]["preconditions"][0]["name"] == "captured tensors are not written"


def test_ops(call):
    lines = call("ops").out.splitlines()
    assert "aten.add_.Tensor: in-place, writes self, drawn: in-place" in lines
    assert "aten.values.default: view, writes nothing, not applicable: of sparse tensors" in lines
    table = [line.split() for line in lines if line]
    assert ["kind", "drawn", "reachable", "not", "applicable", "undrawn"] in table
    number = sum(": " in line for line in lines[:-1])
    assert lines[-1].startswith(f"{number} of {number} ops.")


def test_ops_as_json(call):
    found = call("ops", "--json").json()["ops"]
    drawn = [entry["op"] for entry in found if entry["status"] == "drawn"]
    assert sorted(drawn) == sorted(operator.name for operator in OPERATORS)
    by_name = {entry["op"]: entry for entry in found}
    assert by_name["aten.select.int"]["kind"] == "view"
    assert by_name["aten.add.out"]["writes"] == ["out"]
    assert by_name["aten.relu.default"]["writes"] == []


def test_ops_of_a_kind_and_a_status(call):
    found = call("ops", "--kind", "view", "--status", "drawn", "--json").json()["ops"]
    assert {(entry["kind"], entry["status"]) for entry in found} == {("view", "drawn")}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("aten.add_.Sc", ["aten.add_.Scalar"]),
        ("aten.add_.[ST]*", ["aten.add_.Scalar", "aten.add_.Tensor"]),
    ],
)
def test_ops_by_name(call, name, found):
    lines = call("ops", name).out.splitlines()
    assert [line.split()[0].strip(":") for line in lines if line.startswith("aten.")] == found
    assert f"{len(found)} of " in lines[-1]


@pytest.mark.parametrize("given", [["add_.Scalr"], ["add_.Scalar", "--kind", "view"], ["add_?"]])
def test_ops_by_a_name_that_no_op_has(call, given):
    assert f"has a name with '{given[0]}'" in call("ops", *given).refusal


def printed(code: str, *options: str, **variables: str) -> str:
    """The output of a process that executes this code."""
    done = python(*options, "-c", code, cwd=None, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("given", [["--help"], ["--version"], ["fuzz", "--help"]], ids=" ".join)
def test_short_answers_import_neither_torch_nor_z3(given):
    code = (
        "import sys\n"
        "from aliasproof.commands.command_line import run\n"
        f"run({given!r})\n"
        "assert not {'torch', 'z3'} & {*sys.modules}"
    )
    assert "aliasproof" in printed(code)


def test_a_doctor_finds_nothing_off_and_names_what_is_not_here(call):
    found = call("doctor", "--json").json()
    assert found["off"] == []
    assert "functionalize" in found["works"]
    assert all(name not in found["works"] and reason for name, reason in found["lacking"])
    assert call("doctor").out.endswith("off: nothing\n")


def test_help_lists_each_command_in_a_group(call):
    out = call("--help").out
    groups = [it.splitlines() for it in out[out.index("Search:") :].split("\n\n")]
    assert [title for title, *_ in groups][1:3] == ["Judge:", "Reduce:"]
    listed = [line.split()[0] for _, *lines in groups for line in lines if line[2] != " "]
    assert sorted(listed) == sorted(
        it.name or getattr(it.callback, "__name__", "") for it in app.registered_commands
    )


def test_a_shell_can_complete_a_command(monkeypatch):
    monkeypatch.setenv("_ALIASPROOF_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "aliasproof min")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert python("-m", "aliasproof").stdout.split() == ["minimize"]


def test_without_a_command(call):
    outcome = call()
    assert outcome.code == 0
    assert "fuzz" in outcome.out


def test_importing_loads_nothing():
    printed("import sys, aliasproof\nassert not {'torch', 'typer', 'rich'} & set(sys.modules)")


@pytest.mark.parametrize("name", aliasproof.__all__)
def test_every_public_name_is_there(name):
    assert getattr(aliasproof, name) is not None
    assert name in dir(aliasproof)


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = aliasproof.nonsense


def test_a_closed_pipe_is_not_an_error():
    code = (
        "import subprocess, sys\n"
        "command = [sys.executable, '-m', 'aliasproof', 'ops']\n"
        "one = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)\n"
        "one.stdout.close()\n"
        "print(one.stderr.read().decode())\n"
    )
    assert printed(code).strip() == ""


@pytest.mark.parametrize("command", ["targets", "ops"])
def test_a_narrow_terminal_in_ascii(call, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = call(command).out.splitlines()
    assert not any("…" in line for line in lines)
    names = OPERATORS if command == "ops" else TARGETS.values()
    assert all(any(line.startswith(each.name) for line in lines) for each in names)


def test_an_encoding_without_our_signs():
    code = (
        "from aliasproof.commands import command_line\n"
        "command_line.run = lambda arguments: print('≠ → … ─ ü')\n"
        "command_line.main()\n"
    )
    assert printed(code, "-X", "utf8", PYTHONIOENCODING="ascii") == "!= -> ... - ?\n"
