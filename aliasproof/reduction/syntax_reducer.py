"""Makes a failing `PythonProgram` smaller, on its syntax.

A pass lists edits of the tree; `SyntaxReducer.consider` alone decides. Without a run, it refuses
what is no program, what is larger, what reads a name that nothing binds, and what was refused
before. So passes need not know what a name or a block means.
"""

from __future__ import annotations

import ast
import functools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from aliasproof.ir.errors import UserError
from aliasproof.ir.python_program import CALLS, COMPILED, PythonProgram
from aliasproof.reduction.reducer import ReductionCost
from aliasproof.reduction.syntax_passes import PASSES, shorten_results, unwrap_blocks
from aliasproof.reduction.syntax_trees import Edit, Path, at, blocks_of, delete_at, is_complete

# The lines that a candidate lacks, and those that it has instead.
Change: TypeAlias = tuple[frozenset[tuple[str, int]], frozenset[tuple[str, int]]]
_NO_PLACE = (LookupError, AttributeError, TypeError, ValueError, AssertionError)


@dataclass(slots=True)
class SyntaxReducer(ReductionCost):
    """A program that gets smaller as long as `is_interesting` holds.

    A text that was asked is not asked again. Nor is a change of the same lines, until nothing else
    makes the program smaller.
    """

    current: PythonProgram
    is_interesting: Callable[[PythonProgram], bool]
    most: int = 400
    _seen: set[str] = field(default_factory=set)
    _refused: set[Change] = field(default_factory=set)

    def run(self) -> PythonProgram:
        """Apply all passes until none of them changes anything."""
        self.consider(ast.parse(self.current.source))  # in the form in which trees are printed
        before = None
        while self.tried < self.most:
            if before == self.current:
                if not self._refused:
                    break
                self._refused.clear()  # what was needed then may not be needed now
            before = self.current
            self._apply(PASSES[0])
            for name in (CALLS, COMPILED):
                self._delete_in((*self._place(name), ("body", None)))
            self._delete_in((("body", None),))
            for edits in PASSES[1:]:
                self._apply(edits)
        return self.current

    def consider(self, tree: ast.Module, step: str = "print_plainly") -> bool:
        """Take the tree as the program if it is smaller, valid and interesting."""
        try:
            source = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
            change = _change(self.current.source, source)
            if source in self._seen or change in self._refused or self.tried >= self.most:
                return False
            self._seen.add(source)
            candidate = PythonProgram(source)
        except (UserError, ValueError, AttributeError):  # a tree without a meaning
            return False
        if size(candidate) > size(self.current) or not is_complete(ast.parse(source)):
            return False
        started = time.perf_counter()
        accepted = self.is_interesting(candidate)
        self.note(step, time.perf_counter() - started, accepted=accepted)
        if accepted:
            self.current = candidate
        else:
            self._refused.add(change)
        return accepted

    def _place(self, name: str) -> Path:
        (index,) = (
            index
            for index, it in enumerate(self._tree().body)
            if isinstance(it, ast.FunctionDef) and it.name == name
        )
        return (("body", index),)

    def _delete_in(self, block: Path) -> None:
        """Delete statements of a block from its end, as many at once as can be.

        What is needed is taken apart: its results, its branches, the blocks in it.
        """
        index = len(self._block(block))
        length = max(1, index // 2)
        while index > 0:
            length = min(length, index)
            place = (*block[:-1], (block[-1][0], index - 1))
            if self._try(
                functools.partial(delete_at, path=place, length=length), "delete_statements"
            ):
                index -= length
                length *= 2
            elif length > 1:
                length //= 2
            else:
                index += self._take_apart(place)

    def _take_apart(self, place: Path) -> int:
        """Simplify a statement that is needed; how far the next statement to delete is from it."""
        statement = at(self._tree(), place)
        if isinstance(statement, ast.Return):
            self._apply(shorten_results, within=place)
        if isinstance(statement, ast.FunctionDef) and statement.name in (CALLS, COMPILED):
            return -1
        before, around = self.current, (*place[:-1], (place[-1][0], None))
        count = len(self._block(around))
        self._apply(unwrap_blocks, within=place, first=True)
        if self.current != before:  # its body is in its place now, or another of its branches
            return len(self._block(around)) - count
        for path, block in blocks_of(statement) if isinstance(statement, ast.stmt) else ():
            self._delete_in((*place, *path, (block, None)))
        return -1

    def _block(self, block: Path) -> list[ast.stmt]:
        statements: list[ast.stmt] = getattr(at(self._tree(), block[:-1]), block[-1][0])
        return statements

    def _apply(
        self,
        edits: Callable[[ast.Module], Sequence[Edit]],
        within: Path = (),
        first: bool = False,
    ) -> None:
        """Try the edits of a pass, and those of the new tree after each that succeeds.

        Only those at a place `within` the tree; if `first`, until one of them succeeds.
        """
        index = 0
        while index < len(listed := edits(self._tree())):
            edit = listed[index]
            path = getattr(edit, "keywords", {}).get("path", ())
            if path[: len(within)] == within and self._try(edit, edits.__name__):
                if first:
                    return
            else:
                index += 1

    def _tree(self) -> ast.Module:
        return ast.parse(self.current.source)

    def _try(self, edit: Edit, step: str) -> bool:
        tree = self._tree()
        try:
            edit(tree)
        except _NO_PLACE:  # the place is gone, or the edit has no meaning there
            return False
        return self.consider(tree, step)


def size(program: PythonProgram) -> tuple[int, int]:
    """Statements, then nodes of the syntax: what a reader has to understand."""
    nodes = list(ast.walk(ast.parse(program.source)))
    return sum(isinstance(node, ast.stmt) for node in nodes), len(nodes) + len(program.source)


def _change(before: str, after: str) -> Change:
    lines, others = Counter(before.splitlines()), Counter(after.splitlines())
    return frozenset((lines - others).items()), frozenset((others - lines).items())
