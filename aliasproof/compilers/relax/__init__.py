"""Relax of TVM: its targets, and readers of its graphs."""

from aliasproof.plugins import CompilerPlugin

PLUGIN = CompilerPlugin(
    name="relax",
    package=__name__,
    extra="relax",
    page="docs/targets.md#relax",
    modules=("tvm.relax",),
    targets={
        "relax": "relax:TARGET",
        "relax-calls": "relax:CALLS",
        "relax-shared": "relax:SHARED",
        "relax-sorted": "relax:SORTED",
        "relax-vm": "relax:VM",
        "relax-vm-calls": "relax:VM_CALLS",
        "relax-import": "relax_import:IMPORT",
        "relax-import-plain": "relax_import:PLAIN",
    },
)
