"""OpenVINO: its targets, and readers of its graphs."""

from aliasproof.plugins import CompilerPlugin

SILENT = 'import sys; sys.modules["openvino_telemetry"] = None'
PLUGIN = CompilerPlugin(
    name="openvino",
    package=__name__,
    extra="openvino",
    page="docs/targets.md#compilers-beyond-torch",
    modules=("openvino.torch",),
    before=SILENT,
    targets={
        "openvino-model": "openvino_runtime:MODEL",
        "openvino-shared": "openvino_runtime:SHARED",
        "openvino-aot": "openvino_runtime:AOT",
        "openvino": "openvino_runtime:TARGET",
    },
)
