"""Reads the text files of known bugs: one per bug, in a folder per layer of torch in `corpus/bugs`.

Bugs of a compiler beyond torch are in the folder `bugs` of its plug-in.

A file is a header of lines `# key: value`, in any order, and the program. A value continues in
lines that begin with `#` and more than one space.

    # title: a sentence
    # link: the upstream issue or pull request, or nothing
    # target: aot aot-epilogue        the targets that show it, the one at fault first
    # versions: 2.13 2.15             the versions of torch in which it was seen
    # oracle: values inputs           the oracles that report it
    # kind: ^wrong value              a regular expression for the kind of the violation
    # note: what else a reader should know; this line can be left out

The kind of program decides the other keys. Straight-line ATen calls, as `aliasproof.ir.printing`
prints them, have (see `KnownBug`):

    # rank: 735                       bugs of a lower rank are tried first
    # input: x0 float32[2, 2] strides [1, 2] offset 1 storage 0
    # storage: 0 uint8[8]             where it is longer than its inputs need, or has
    # storage: 1 float32[3] = 1 nan   values of its own, repeated up to its length
    # shows: exact values at output 0 through aot: wrong value      what its reproducer looks for
    # plausible: calls cat stack      programs that may show it (`corpus.conditions`)
    # patch: cat_of_one               a patch in `corpus/patches`, in the module of the layer
    # when: writes and inputs_share   programs for which `kind` identifies the bug; default: all
    # reduced: yes                    if it does so for reduced programs only
    # vectors: 256 512                bits of the vectors of generated code with which it shows

After `rank` and the inputs, which each bug has, all of these can be left out. A bug has
a patch, or `oracle` and `kind`, or both. Python programs, with `program` and `calls`, have one
target (see `PythonBug`):

    # needs: words that a program with this bug has (operators, attributes, kinds of statements)
    # lacks: words that it does not have; this line can be left out, and the next, too
    # place: gradient, or value for what is no gradient
    # part: the part of the compiler that experiments name, or one | another; else it does not count
    # sufficient: why `needs` identifies the cause, whatever else a reduced program has

No code in a file is executed or imported: the names of patches and conditions are looked up in
tables. The error for a malformed file names the line.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch

from aliasproof.corpus.conditions import Condition, condition_of
from aliasproof.corpus.known_bug import FOLDER, KnownBug, Mark, PythonBug, ShownDifference
from aliasproof.ir.errors import UserError, did_you_mean
from aliasproof.ir.ordinary_syntax import ordinary_inputs, ordinary_source, with_short_names
from aliasproof.ir.parsing import parse_source
from aliasproof.ir.program import Input, Program, Storage
from aliasproof.ir.python_program import PythonProgram
from aliasproof.ir.regions import dense_strides, reach
from aliasproof.ir.serialization import DTYPE_BY_NAME
from aliasproof.plugins import plugins

LAYERS = (
    *("aot_autograd", "decompositions", "dynamo", "export", "functionalization", "fx_reinplace"),
    *("inductor", "inductor_fx", "inductor_patterns"),
)
_EACH = {"title", "link", "target", "versions"}  # required keys of each file
_OF_CALLS = {"rank", "input"}
_OF_PYTHON = {"oracle", "kind", "needs"}
_CALLS_MAY = {
    *("storage", "shows", "plausible", "patch"),
    *("oracle", "kind", "when", "reduced", "vectors"),
}
_PYTHON_MAY = {"lacks", "place", "part", "sufficient"}
_SEVERAL = {"input", "storage"}  # keys that a file may repeat

_LINE = re.compile(r"# (\w+):(?: (.*))?")
_FURTHER = re.compile(r"# {2,}(.*)")
_IS_PYTHON = re.compile(r"^def calls\(", re.MULTILINE)
_INTEGERS = r"\[((?:\d{1,18}(?:, )?)*)\]"
_INPUT = re.compile(
    rf"(\w+) (\w+){_INTEGERS}(?: strides {_INTEGERS})?(?: offset (\d{{1,18}}))?"
    r"(?: storage (\d{1,4}))?"
)
_SHOWS = re.compile(r"(literal )?(exact )?(\w+) at (.+?) through (\S+): (.+)")
_STORAGE = re.compile(r"(\d{1,4}) (\w+)\[(\d{1,18})\](?: = (\S+(?: \S+)*))?")

T = TypeVar("T")


@functools.cache
def known_bugs() -> dict[str, KnownBug]:
    """The bugs whose programs are ATen calls, by name, in the order in which they are tried.

    A program can show several: the first one that explains it counts.
    """
    bugs = [bug for bug in _read_all() if isinstance(bug, KnownBug)]

    def order(bug: KnownBug) -> tuple[int, str]:
        # The ranks of a plug-in are its own.
        return bug.rank, bug.layer if bug.layer in plugins() else ""

    bugs.sort(key=order)
    for first, second in itertools.pairwise(bugs):
        if order(first) == order(second):
            raise UserError(
                f"{second.file}: rank {second.rank} is that of {first.identifier}, too; which of"
                " the two should be tried first? Give the other one a higher number"
            )
    return {bug.identifier: bug for bug in bugs}


@functools.cache
def python_bugs() -> dict[str, PythonBug]:
    """The bugs whose programs are Python, by name."""
    return {bug.identifier: bug for bug in _read_all() if isinstance(bug, PythonBug)}


def all_bugs() -> dict[str, KnownBug | PythonBug]:
    """The bugs of both kinds, by name."""
    return {**known_bugs(), **python_bugs()}


@functools.cache
def _read_all() -> list[KnownBug | PythonBug]:
    bugs = [read_bug(path) for path in FOLDER.glob("*/*.txt")]
    for plugin in plugins().values():
        bugs += [read_bug(path, plugin.name) for path in plugin.bugs.glob("*.txt")]
    bugs.sort(key=lambda bug: bug.identifier)
    for first, second in itertools.pairwise(bugs):
        if first.identifier == second.identifier:
            raise UserError(f"{second.file}: {first.file} has this name, too; choose another")
    return bugs


def bug_json(bug: KnownBug | PythonBug) -> dict[str, object]:
    """A known bug as JSON values."""
    if isinstance(bug, KnownBug):
        # With its inputs, whose sharing is a part of the bug.
        program = with_short_names(bug.program)
        inputs = ordinary_inputs(program, near=True)
        text = f"{ordinary_source(program, near=True)}\n{inputs}".strip()
    else:
        text = bug.program.source
    return {
        "identifier": bug.identifier,
        "title": bug.title,
        "link": bug.link or None,
        "versions": list(bug.versions),
        "targets": list(bug.targets),
        "vector bits": list(bug.vector_bits) if isinstance(bug, KnownBug) else [],
        "patchable": isinstance(bug, KnownBug) and bug.patch is not None,
        "program": text,
    }


def read_bug(path: Path, layer: str = "") -> KnownBug | PythonBug:
    """The bug in a file. Without `layer`, the layer is the name of its folder.

    Raises `UserError` with the line if the file has another form.
    """
    return _BugFile(path, layer or path.parent.name).bug()


class _BugFile:
    def __init__(self, path: Path, layer: str) -> None:
        self.path, self.layer = path, layer
        try:
            self.lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot be read: {error}") from None
        self.values: dict[str, list[str]] = {}
        self.numbers: dict[str, list[int]] = {}  # the lines of the values
        self.start = self._read_header()
        self.program = "\n".join(self.lines[self.start :]).strip("\n") + "\n"

    def _read_header(self) -> int:
        """Read the header, and return the number of its lines."""
        key = ""
        for number, line in enumerate(self.lines, 1):
            if not line.startswith("#"):
                return number - 1
            if match := _LINE.fullmatch(line):
                key = match[1]
                if key in self.values and key not in _SEVERAL:
                    raise self._error(number, f"'{key}' is there already; leave one of them out")
                self.values.setdefault(key, []).append((match[2] or "").strip())
                self.numbers.setdefault(key, []).append(number)
            elif (match := _FURTHER.fullmatch(line)) and key:
                values = self.values[key]
                values[-1] = f"{values[-1]} {match[1].strip()}".strip()
            else:
                raise self._error(number, "expected '# key: value', or '#   more of the value'")
        return len(self.lines)

    def _error(self, at: int | str, message: str) -> UserError:
        """An error at a line, or at the line of a key."""
        line = at if isinstance(at, int) else self.numbers.get(at, [1])[0]
        return UserError(f"{self.path}:{line}: {message}")

    def bug(self) -> KnownBug | PythonBug:
        """The bug, checked."""
        if self.layer not in (*LAYERS, *plugins()):
            known = ", ".join(LAYERS)
            raise self._error(
                1, f"there is no layer '{self.layer}'; move the file to one of {known}"
            )
        return self._python_bug() if _IS_PYTHON.search(self.program) else self._known_bug()

    def _known_bug(self) -> KnownBug:
        self._require_keys(_EACH | _OF_CALLS, _CALLS_MAY)
        if "patch" not in self.values and "kind" not in self.values:
            raise self._error(1, "nothing recognises the bug; add 'oracle' and 'kind', or 'patch'")
        inputs = [self._input(index) for index in range(len(self.values["input"]))]
        storages = dict(self._storage(index) for index in range(len(self._several("storage"))))
        last = max({tensor.storage for tensor in inputs} | storages.keys())
        if last >= len(inputs):
            raise self._error("input", f"no input has storage {last}; number storages from 0")
        return KnownBug(
            self.path.stem,
            self._text("title"),
            self._text("link", empty=True),
            self._parsed(lambda text: program_with(text, inputs, storages)),
            self._words("target"),
            self._versions(),
            self._text("patch") if "patch" in self.values else "",
            self._mark(),
            self._condition("plausible"),
            tuple(map(int, self._words("vectors", r"\d{1,4}", "numbers of bits"))),
            self._shown(),
            rank=int(self._one("rank", r"\d{1,9}", "a number")),
            layer=self.layer,
            note=self._optional("note"),
        )

    def _versions(self) -> tuple[str, ...]:
        return self._words("versions", r"\d+\.\d+", "versions such as 2.13")

    def _mark(self) -> Mark | None:
        """How the bug is recognised without a patch."""
        for key in ("oracle", "when", "reduced"):
            if key in self.values and "kind" not in self.values:
                raise self._error(key, f"'{key}' needs a line '# kind: ' as well")
        if "kind" not in self.values:
            return None
        if "oracle" not in self.values:
            raise self._error("kind", "'kind' needs a line '# oracle: ' as well")
        reduced = self._one("reduced", "yes|no", "yes or no")
        return Mark(
            self._words("oracle"), self._pattern(), self._condition("when"), reduced == "yes"
        )

    def _shown(self) -> ShownDifference | None:
        if "shows" not in self.values:
            return None
        if (match := _SHOWS.fullmatch(self._text("shows"))) is None:
            raise self._error(
                "shows", "expected 'exact values at output 0 through aot: wrong value'"
            )
        literal, exact, oracle, place, target, kind = match.groups()
        return ShownDifference(target, oracle, kind, place, bool(exact), bool(literal))

    def _python_bug(self) -> PythonBug:
        self._require_keys(_EACH | _OF_PYTHON, _PYTHON_MAY)
        return PythonBug(
            self.path.stem,
            self._text("title"),
            self._text("link", empty=True),
            self._one("target", r"\S+", "one target where the program is Python"),
            self._versions(),
            frozenset(self._words("oracle")),
            self._pattern(),
            frozenset(self._words("needs")),
            self._parsed(PythonProgram),
            frozenset(self._words("lacks")),
            self._one("place", "gradient|value", "gradient or value"),
            frozenset(filter(None, self._optional("part").split(" | "))),
            self._optional("sufficient"),
            layer=self.layer,
            note=self._optional("note"),
        )

    # --- values -----------------------------------------------------------------------------------

    def _require_keys(self, required: set[str], optional: set[str]) -> None:
        known = required | optional | {"note"}
        for key in self.values:
            if key not in known:
                hint = did_you_mean(key, known, f"use {', '.join(sorted(known))}")
                raise self._error(key, f"unknown key '{key}'{hint}")
        for key in sorted(required - self.values.keys()):
            raise self._error(1, f"there is no '{key}'; add a line '# {key}: '")

    def _several(self, key: str) -> list[str]:
        return self.values.get(key, [])

    def _text(self, key: str, *, empty: bool = False) -> str:
        text = self.values[key][0]
        if not text and not empty:
            raise self._error(key, f"'{key}' is empty")
        return text

    def _optional(self, key: str) -> str:
        return self.values[key][0] if key in self.values else ""

    def _words(self, key: str, pattern: str = r"\S+", expected: str = "words") -> tuple[str, ...]:
        """The words of a value, which match a pattern; none if there is no such key."""
        words = self._text(key).split() if key in self.values else []
        for word in words:
            if re.fullmatch(pattern, word) is None:
                raise self._error(key, f"expected {expected}, got '{word}'")
        return tuple(words)

    def _one(self, key: str, pattern: str, expected: str) -> str:
        """The only word of a value, which matches a pattern; empty if there is no such key."""
        words = self._words(key, pattern, expected)
        if len(words) > 1:
            raise self._error(key, f"expected {expected}, got {len(words)} words")
        return "".join(words)

    def _pattern(self) -> str:
        text = self.values["kind"][0]  # if it is empty, any kind
        try:
            re.compile(text)
        except re.error as error:
            raise self._error("kind", f"not a regular expression: {error}") from None
        return text

    def _condition(self, key: str) -> Condition:
        if key not in self.values:
            return lambda program: True
        try:
            return condition_of(self._text(key))
        except UserError as error:
            raise self._error(key, str(error)) from None

    # --- the program ------------------------------------------------------------------------------

    def _input(self, index: int) -> Input:
        line, text = self.numbers["input"][index], self.values["input"][index]
        if (match := _INPUT.fullmatch(text)) is None:
            raise self._error(
                line, "expected an input such as x0 float32[2, 2] strides [1, 2] offset 1 storage 0"
            )
        name, dtype, sizes, strides, offset, storage = match.groups()
        shape = _integers(sizes)
        given = dense_strides(shape) if strides is None else _integers(strides)
        if len(given) != len(shape):
            raise self._error(line, f"{len(given)} strides for {len(shape)} sizes; write one each")
        return Input(
            name,
            -1 if storage is None else int(storage),
            self._dtype(line, dtype),
            shape,
            given,
            int(offset or 0),
        )

    def _storage(self, index: int) -> tuple[int, Storage]:
        line, text = self.numbers["storage"][index], self.values["storage"][index]
        if (match := _STORAGE.fullmatch(text)) is None:
            raise self._error(line, "expected a storage such as 0 uint8[8] or 1 float32[2] = 1 nan")
        number, dtype, length, values = match.groups()
        storage = Storage(self._dtype(line, dtype), int(length), tuple((values or "").split()))
        return int(number), storage

    def _dtype(self, line: int, name: str) -> torch.dtype:
        if name not in DTYPE_BY_NAME:
            raise self._error(line, f"unknown dtype {name}{did_you_mean(name, DTYPE_BY_NAME)}")
        return DTYPE_BY_NAME[name]

    def _parsed(self, parse: Callable[[str], T]) -> T:
        """Parse the program. An error gets the line number of the file."""
        message = ""
        for text in (self.program, "\n" * self.start + self.program):
            try:
                return parse(text)
            except UserError as error:
                message = str(error)
        line = re.search(r"\bline (\d+)", message)
        number = int(line[1]) if line else self.start + 1
        if part := re.search(r"\b(input|storage)s\[(\d+)\]", message):
            number = self._line_of(part[1], part[2])
        raise self._error(number, re.sub(r"^line \d+(?: of a Python program)?: ", "", message))

    def _line_of(self, key: str, index: str) -> int:
        """The line that declares an input, or a storage; else the line of the first input."""
        if key == "input":
            return self.numbers["input"][int(index)]
        for line, text in zip(self.numbers.get(key, ()), self._several(key), strict=True):
            if text.split()[0] == index:
                return line
        return self.numbers["input"][0]


def _integers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(", "))) if text else ()


def program_with(text: str, inputs: Sequence[Input], given: Mapping[int, Storage]) -> Program:
    """The program from `text`, as `source` prints it, with these inputs and storages.

    An input with storage -1 has the storage of its own index. A storage that is not given is as
    long as its views need, and has the dtype of the first of them.
    """
    inputs = [
        replace(tensor, storage=index) if tensor.storage < 0 else tensor
        for index, tensor in enumerate(inputs)
    ]
    storages = []
    for index in range(1 + max((tensor.storage for tensor in inputs), default=-1)):
        extents = [
            tensor.offset + reach(tensor.sizes, tensor.strides)
            for tensor in inputs
            if tensor.storage == index
        ]
        if index in given:
            storages.append(given[index])
        elif extents:
            first = next(tensor for tensor in inputs if tensor.storage == index)
            storages.append(Storage(first.dtype, max(extents)))
        else:
            raise UserError(f"storage {index} has no input; number storages without a gap")
    return parse_source(text, storages, inputs)
