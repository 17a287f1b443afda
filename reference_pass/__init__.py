"""The reference pass: functionalize and reinplace `torch.fx` graphs.

It is written to be read. The first chapter is `docs/first_chapter.py`: the algorithm for simple
tensors. Then read the files of this folder, in this order. Each says what the chapter gets wrong:

1. `exceptions`: what is refused
2. `semantics`: what the algorithm asks about calls, each with a naive answer
3. `alias_analysis`: which tensor of a graph sees which storage, and how
4. `views`: view ops and their inverses
5. `bases`, `rules`: which tensor contains the contents of a storage; the decisions, as one table
6. `functional_storage`, `flattening`: how a view is read and written without mutation; storages in
   one dimension
7. `environment`, `functional_calls`, `epilogue`, `functionalize`: mutation removed, call by call
8. `liveness`: who reads which bytes until when
9. `candidates`, `conditions`, `reinplace`: mutation put back where it is safe

It uses the words of `calls`, which knows nothing of it. Read a file there when you meet its words:

- `nested`, `operator_forms`, `view_forms`, `operand_reads`, `operand_strides`: what the schema of
  an operator says, its other forms (functional, in-place, out=), and what it reads of its operands
- `copied_operands`: the copies on which an operator without a functional form is called
- `fake_tensors`, `fake_inputs`, `storages`, `regions`: tensors without data; which storage each of
  them is on, and which bytes of it
- `metadata`, `refresh`, `emission`, `graphs`: graphs with true metadata while they are built and
  rewritten
- `invariants`: what a pass requires of a graph, and ensures

The folder `planning` goes on from there. It decides in which memory each result is:

- `noops`: copies that nobody can tell from their originals
- `timeline`, `unread`: how long each storage is live, and how many bytes are; results
  whose contents nobody reads
- `destinations`, `offers`, `marks`: where a result could be; marks that say it early, and are
  lowered late
- `join_buffers`: concatenations, whose parts are computed where they belong
- `reuse`, `graph_plan`: storages that are taken over; the plan of a graph, and what costs bytes
- `opaque_calls`: calls of which nobody knows what they keep

`pipeline` has the passes as users call them, and `memory_plan` those of planning. They assemble the
algorithm with three folders, which the algorithm does not import:

- `capture`: from a function to a graph of ATen calls; for which sizes a graph is right; what a
  graph allocates
- `eager`: what torch does otherwise than its schemas say, as tables, and as one value
  (`torch_semantics`)
- `backend`: `torch.compile`; `compiled` is the cache, and `building` makes a graph, and the key
  that says what it depends on

It imports torch and the standard library. It shares no code with the oracles that judge it.
"""

from aliasproof.reference_pass.candidates import Candidate, How
from aliasproof.reference_pass.conditions import Condition
from aliasproof.reference_pass.exceptions import Broken, Refused
from aliasproof.reference_pass.memory_plan import mark_in_place, plan_memory
from aliasproof.reference_pass.pipeline import (
    CONDITIONS,
    Functionalize,
    PlanMemory,
    Reinplace,
    RemoveNoOps,
    checked,
    functionalize,
    pipeline,
    reinplace,
    remove_noops,
    update_metadata,
)
from aliasproof.reference_pass.planning.marks import call_in_place
from aliasproof.reference_pass.reinplace import Decision, decisions

__all__ = [
    "CONDITIONS",
    "Broken",
    "Candidate",
    "Condition",
    "Decision",
    "Functionalize",
    "How",
    "PlanMemory",
    "Refused",
    "Reinplace",
    "RemoveNoOps",
    "call_in_place",
    "checked",
    "decisions",
    "functionalize",
    "mark_in_place",
    "pipeline",
    "plan_memory",
    "reinplace",
    "remove_noops",
    "update_metadata",
]
