"""The plug-in: what aliasproof lists without torch and without the compiler."""

from aliasproof.plugins import CompilerPlugin

PLUGIN = CompilerPlugin(
    name="toy",
    package=__name__,
    page="the README of toy-compiler",
    modules=("toy_compiler.machine",),
    targets={"toy": "target:TARGET"},
    options={"shared-inputs": "the machine computes with its inputs themselves"},
)
