"""ExecuTorch: its targets, and readers of its graphs."""

from aliasproof.plugins import CompilerPlugin

REINPLACED, SHARED, COPIED_VIEWS = "reinplaced", "shared-operands", "copied-views"
NO_INPUTS, NO_OUTPUTS = "unplanned-inputs", "unplanned-outputs"
NAIVE, POOLS = "naive-plan", "pools"
PLUGIN = CompilerPlugin(
    name="executorch",
    package=__name__,
    extra="executorch",
    page="docs/targets.md#executorch",
    modules=("executorch.exir", "executorch.runtime"),
    targets={"executorch": "executorch:TARGET"},
    options={
        REINPLACED: "run_reinplace_pass: index_put in place",
        SHARED: "reinplace_extra_ops: results of minimum and maximum take the place of an operand",
        COPIED_VIEWS: "remove_view_copy=False: views are copies at run time, too",
        NO_INPUTS: "alloc_graph_input=False: inputs stay in the memory of the caller",
        NO_OUTPUTS: "alloc_graph_output=False: outputs are in memory of their own",
        NAIVE: "planned by the naive algorithm, which uses no memory twice",
        POOLS: "planned in two arenas by turns",
    },
)
