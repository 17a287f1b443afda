"""`KnownBug` and `PythonBug`: known bugs of compilers, one cause each.

A bug is a text file in `corpus/bugs`, or in the plug-in of a compiler beyond torch;
`aliasproof.corpus.bug_files` reads it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from aliasproof import torch_parts
from aliasproof.corpus.patching import Patch, find_patch
from aliasproof.ir.devices import vector_bits
from aliasproof.ir.program import Program
from aliasproof.ir.python_program import PythonProgram, mechanisms, traits
from aliasproof.plugins import plugins

FOLDER = Path(__file__).parent / "bugs"


def folder_of(layer: str) -> Path:
    """The folder with the bugs of a layer of torch, or of a compiler beyond it."""
    return plugins()[layer].bugs if layer in plugins() else FOLDER / layer


# Prefix of the kind of a violation that ends a process (aliasproof/processes/outcome.py).
DEATHS = "dies of"
# The message of an assertion identifies the cause, whatever led to it.
_ASSERTION = r"^raises .*\bAssertionError: .|INTERNAL ASSERT"


@dataclass(frozen=True, slots=True)
class Mark:
    """How a violation of a bug is recognised if no patch removes it.

    The oracle must be one of `oracles`, and `kind` a regular expression that the violation's kind
    matches. `when` restricts the programs, so that the mark matches no other bug. With `reduced`,
    the mark holds only for reduced programs, since it checks for parts that cannot be removed.
    """

    oracles: tuple[str, ...]
    kind: str
    when: Callable[[Program], bool] = lambda program: True
    reduced: bool = False

    def fits(self, oracle: str, kind: str, program: Program) -> bool:
        """Whether a violation on this program has the mark."""
        return (
            oracle in self.oracles and re.search(self.kind, kind) is not None and self.when(program)
        )


@dataclass(frozen=True, slots=True)
class ShownDifference:
    """The difference that a target shows on the program of a bug, for which its reproducer checks.

    The reproducer can also run with a torch that has the bug fixed. `exact` says whether outputs
    are compared without tolerance. With `literal`, the reproducer calls the ops themselves.
    """

    target: str
    oracle: str
    kind: str
    place: str
    exact: bool
    literal: bool = False

    @property
    def error(self) -> str:
        """The type of the error, if one is raised."""
        found = re.match(r"raises (\w+)", self.kind)
        return found[1] if found else ""

    def __str__(self) -> str:
        """In the format of `shows` in the file of a bug."""
        words = "literal " * self.literal + "exact " * self.exact
        return f"{words}{self.oracle} at {self.place} through {self.target}: {self.kind}"


@dataclass(frozen=True, slots=True)
class KnownBug:
    """A bug of a compiler with its minimal program.

    `targets` differ from eager on `program`; the first of them is at fault. If a contract documents
    the difference, it is no violation. `versions` are the versions of torch in which the bug was
    seen, such as '2.13'. `vector_bits` are the vector widths of generated code that show the bug
    (`devices.vector_bits`); empty if all do. `shown` is the difference that its reproducer shows.
    `link` is the upstream issue or pull request, or empty if a search found none. `patch` corrects
    torch in this process while it is entered: a violation that vanishes then *is* this bug. Where
    torch cannot be patched from Python, or not for all forms of the bug, `mark` recognises it.
    `plausible` is a cheap test of whether a program can show the bug at all; it only saves time. Of
    several bugs that a program shows, the one of the lowest `rank` counts. `layer` is the folder of
    its file, and the module of its patch: a layer of torch, or a compiler beyond it. `note` is for
    readers.
    """

    identifier: str
    title: str
    link: str
    program: Program
    targets: tuple[str, ...]
    versions: tuple[str, ...]
    patch_name: str = ""
    mark: Mark | None = None
    plausible: Callable[[Program], bool] = lambda program: True
    vector_bits: tuple[int, ...] = ()
    shown: ShownDifference | None = None
    rank: int = field(kw_only=True)
    layer: str = field(kw_only=True)
    note: str = ""

    @property
    def file(self) -> Path:
        """The text file that it was read from."""
        return folder_of(self.layer) / f"{self.identifier}.txt"

    @property
    def patch(self) -> Patch | None:
        """The patch that corrects torch, if it can be applied here. The first access imports it."""
        if not self.patch_name or self.why_no_patch() is not None:
            return None
        found = find_patch(self.layer, self.patch_name)
        return found if found.available else None

    def why_no_patch(self) -> str | None:
        """In one line, why the patch does not fit this torch; None if it fits, or there is none."""
        if not self.patch_name:
            return None
        off = torch_parts.why_off(f"patches {self.layer}")
        return off or find_patch(self.layer, self.patch_name).why_not()

    @property
    def ends_process(self) -> bool:
        """Whether the program ends the process in which its target runs."""
        return self.mark is not None and self.mark.kind.startswith(DEATHS)

    @property
    def shows_here(self) -> bool:
        """Whether this machine's vectors for generated code have a width that shows the bug."""
        return not self.vector_bits or vector_bits() in self.vector_bits

    @property
    def title_and_link(self) -> str:
        """The title, and the report."""
        return f"{self.title} ({self.link or 'no issue was found in the tracker'})"


# Of this process. A kernel of torch can be replaced only once, so a bug is patched once.
_PATCHED: set[str] = set()


@contextlib.contextmanager
def patched(bugs: Iterable[KnownBug]) -> Iterator[None]:
    """Patch all of these that have a patch and are not patched already."""
    with contextlib.ExitStack() as stack:
        for bug in bugs:
            if bug.identifier not in _PATCHED and (patch := bug.patch) is not None:
                stack.enter_context(patch())
                _PATCHED.add(bug.identifier)
                stack.callback(_PATCHED.remove, bug.identifier)
        yield


# --- bugs of Python programs ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PythonBug:
    """A bug of torch that a `PythonProgram` shows, recognised by the features of its program.

    `kind` is a regular expression for the kind of the violation, and for the message of an error
    that only eager raises. `needs` are words that a program with this bug has (operators,
    attributes, kinds of statements), `lacks` words that it does not have. The word `write` is any
    write to a tensor, `writes_class` one to an attribute of a class in `program`,
    `writes_attribute` one to any attribute there; `control_flow`, `generator`, `grad_mode` and
    `membership` each stand for several words. `place` is 'gradient', 'value' for any other value,
    or empty for both. `parts` are the parts of the compiler to which experiments localize the bug,
    which may depend on the version of torch; if empty, any part fits. `sufficient` is the reason
    why `needs` identifies the cause, whatever else a reduced program has.
    """

    identifier: str
    title: str
    link: str
    target: str
    versions: tuple[str, ...]
    oracles: frozenset[str]
    kind: str
    needs: frozenset[str]
    program: PythonProgram
    lacks: frozenset[str] = frozenset()
    place: str = ""
    parts: frozenset[str] = frozenset()
    sufficient: str = ""
    layer: str = field(kw_only=True)
    note: str = ""

    @property
    def targets(self) -> tuple[str, ...]:
        """The only target, as a tuple like that of a `KnownBug`."""
        return (self.target,)

    @property
    def patch(self) -> None:
        """Python bugs have no patch."""

    @property
    def file(self) -> Path:
        """The text file that it was read from."""
        return folder_of(self.layer) / f"{self.identifier}.txt"

    def explains(
        self, cause: tuple[str, str, str], place: str, reduced: PythonProgram, part: str
    ) -> bool:
        """Whether a violation is this bug, by its target, oracle, kind, place and program.

        The program must have what the bug needs. Since it is reduced, it needs every feature that
        it has: a mechanism that this bug does not use indicates another cause, unless an assertion
        of torch identifies the cause, or `needs` is `sufficient`.
        """
        target, oracle, kind = cause
        there = traits(reduced)
        return (
            self.target == target
            and oracle in self.oracles
            and re.search(self.kind, kind) is not None
            and self.needs <= there
            and not self.lacks & there
            and self.place in ("", role(place, reduced))
            and (not self.parts or part in self.parts)
            and (
                bool(self.sufficient)
                or re.search(_ASSERTION, kind) is not None
                or mechanisms(reduced) <= mechanisms(self.program)
            )
        )


def role(place: str, program: PythonProgram) -> str:
    """Whether a gradient or any other value is at a place."""
    name = place.partition(".")[0].partition("[")[0]
    made = re.search(rf"^ +{re.escape(name)}(,[\w, ]*)? = .*\bgrad\(", program.source, re.MULTILINE)
    return "gradient" if place.endswith(".grad") or (name and made) else "value"
