"""Two outputs, of which one is a view of the other with its layout, become one object."""

from __future__ import annotations

from aliasproof.corpus.known_bug import KnownBug, Mark, program_of, view

BUG = KnownBug(
    "collapsed-views",
    "Inductor erases a view that changes nothing, so two outputs become one tensor object",
    "https://github.com/pytorch/pytorch/issues/191449",
    program_of(
        """
        v0 = aten.neg.default(x0)
        v1 = aten.view.default(v0, [4])
        return v0, v1
        """,
        view(4),
    ),
    ("inductor-fx", "inductor"),
    ("2.13",),
    # Where eager's two tensors do not share all their memory, *aliasing* speaks first.
    mark=Mark(("objects",), "two outputs became one object"),
    rank=970,
)
