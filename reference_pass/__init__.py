"""The reference pass: functionalize and reinplace `torch.fx` graphs.

It is written to be read. The first chapter is `docs/first_chapter.py`: the algorithm for simple
tensors. Then read the files of this folder, in this order. Each says where the chapter is wrong:

1. `exceptions`: what is refused
2. `semantics`: the questions of the algorithm about calls, each with a naive answer
3. `alias_analysis`: which tensor of a graph sees which storage, and how
4. `views`: view ops and their inverses
5. `bases`, `rules`: which tensor contains the contents of a storage; the decisions, as one table
6. `functional_storage`, `flattening`: how a view is read and written without mutation; storages in
   one dimension
7. `environment`, `functional_calls`, `epilogue`, `functionalize`: mutation removed, call by call
8. `liveness`: which node reads which bytes until when
9. `candidates`, `conditions`, `reinplace`: mutation put back where it is safe

It uses the words of `calls`, which does not import it. Read a file there when you meet its words:

- `nested`, `operator_forms`, `view_forms`, `operand_reads`: what the schema of an operator says,
  its other forms (functional, in-place, out=), and what it reads of its operands
- `copied_operands`: the copies on which an operator without a functional form is called, and the
  strides that operands have in eager
- `fake_tensors`, `fake_inputs`, `storages`, `regions`: tensors without data; which storage each of
  them is on, and which bytes of it
- `metadata`, `refresh`, `emission`, `graphs`: graphs with true metadata while they are built and
  rewritten
- `invariants`: the properties of a graph that a pass requires, and those that it ensures

The folder `planning` goes on from there. It decides in which memory each result is:

- `noops`: copies that cannot be distinguished from their originals
- `timeline`, `unread`: how long each storage is live, how many bytes are live at once, and what a
  graph allocates; results whose contents nothing reads
- `offers`, `marks`: where a result could be; marks that record such a destination
  early and are lowered late
- `join_buffers`: concatenations whose parts are computed in the result itself
- `reuse`, `graph_plan`: reuse of dead storages; the plan of a graph, and what costs bytes
- `opaque_calls`: calls that may retain or alias their arguments

`pipeline` has the passes as users call them, and `memory_plan` those of planning. They combine the
algorithm with three folders, which the algorithm does not import:

- `capture`: from a function to a graph of ATen calls; for which sizes a graph is right
- `eager`: where torch differs from its schemas, as tables, and as one value (`torch_semantics`)
- `backend`: `torch.compile`; `compiled` is the cache; `building` makes a graph, and the key of the
  properties that it depends on

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
