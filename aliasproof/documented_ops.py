"""Prints docs/ops.md: `python -m aliasproof.documented_ops > docs/ops.md`."""

from __future__ import annotations

from aliasproof.commands.ops import listed_ops
from aliasproof.reports.op_table import ops_in_markdown

HEAD = """# Which ops of torch are drawn

Each overload of ATen that gives a view or writes an argument, and each other op that programs are
drawn from. `aliasproof ops` prints this table for the torch that is installed; `--kind`, `--status`
and `--json` select and convert it.

- *drawn*: programs call it.
- *reachable*: an `out=` form of an op that is drawn in another form, which computes the same.
- *not applicable*: programs on strided CPU tensors cannot call it, or torch generates it from
  another.
- *undrawn*: it could be drawn. No view and no in-place op is undrawn.

This file is generated (`python -m aliasproof.documented_ops > docs/ops.md`), for torch 2.13.

"""


def document() -> str:
    """The text of docs/ops.md."""
    return HEAD + ops_in_markdown(listed_ops())


if __name__ == "__main__":
    print(document(), end="")
