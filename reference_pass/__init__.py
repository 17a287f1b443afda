"""The reference pass: functionalize and reinplace `torch.fx` graphs.

It is written to be read, in this order:

1. `regions`: which bytes of its storage a tensor covers
2. `nested`, `prims`, `operator_forms`, `operand_access`: what the schema of an operator says, its
   other forms (functional, in-place, out=), and what it reads of its operands
3. `fake_corrections`, `out_layouts`, `fake_execution`, `alias_analysis`: which tensor of a graph
   sees which storage, and how
4. `control_flow_calls`, `aten_graphs`, `capture`: from a function to a graph of ATen calls
5. `metadata`, `emission`: graphs with true metadata while they are built and rewritten
6. `views`: view ops and their inverses
7. `undefined_calls`, `bases`, `rules`: calls that eager does not define; which tensor contains the
   contents of a storage; the decisions of functionalization
8. `functional_storage`, `flattening`: how a view is read and written without mutation; storages in
   one dimension
9. `environment`, `strided_calls`, `functional_calls`, `epilogue`, `functionalize`: mutation
   removed, call by call
10. `liveness`, `layout_uses`, `noops`: who reads which bytes until when; no-ops erased
11. `candidates`, `conditions`, `backtracking`, `reinplace`: mutation put back where it is safe
12. `invariants`, `size_guards`, `pipeline`, `output_views`, `backend`: what a pass requires and
   ensures; for which sizes a graph is right; all passes; `torch.compile`

It imports torch and the standard library. It shares no code with the oracles that judge it.
"""

from aliasproof.reference_pass.candidates import Candidate, How
from aliasproof.reference_pass.conditions import Condition
from aliasproof.reference_pass.exceptions import Broken, Refused
from aliasproof.reference_pass.pipeline import (
    CONDITIONS,
    Functionalize,
    Reinplace,
    RemoveNoOps,
    checked,
    functionalize,
    pipeline,
    reinplace,
    remove_noops,
    update_metadata,
)
from aliasproof.reference_pass.reinplace import Decision, decisions

__all__ = [
    "CONDITIONS",
    "Broken",
    "Candidate",
    "Condition",
    "Decision",
    "Functionalize",
    "How",
    "Refused",
    "Reinplace",
    "RemoveNoOps",
    "checked",
    "decisions",
    "functionalize",
    "pipeline",
    "reinplace",
    "remove_noops",
    "update_metadata",
]
