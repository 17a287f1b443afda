"""An output that is an input without a place in the memory plan takes the memory of that input.

`PyMethod::execute` in extension/pybindings/pybindings.cpp gives the outputs their memory after it
has set the inputs. A mutated input is an output, too.
"""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view
from aliasproof.ir.program import Program


def _returns_or_writes_an_input(program: Program) -> bool:
    names = {tensor.name for tensor in program.inputs}
    returned = set(program.outputs)
    written = any(call.mutates() for call in program.instructions)
    return written or bool(names & returned)


BUG = KnownBug(
    "executorch-unplanned-identity",
    "Method.execute gives an input that is an output, too, other memory after it was set",
    "",
    program_of("return (x0,)", view(2)),
    ("executorch:unplanned-inputs",),
    ("2.13",),
    mark=Mark(
        ("values", "inputs"), "^wrong value|^input ends", _returns_or_writes_an_input, reduced=True
    ),
    rank=2110,
)
