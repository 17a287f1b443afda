"""ONNX Runtime: its targets, and readers of its graphs."""

from aliasproof.plugins import CompilerPlugin

PLUGIN = CompilerPlugin(
    name="onnx",
    package=__name__,
    extra="onnx",
    page="docs/targets.md#compilers-beyond-torch",
    modules=("onnx", "onnxscript", "onnxruntime"),
    targets={
        "onnx-translated": "onnx_runtime:TRANSLATED",
        "onnx-folded": "onnx_runtime:FOLDED",
        "onnx-bound": "onnx_runtime:BOUND",
        "onnx": "onnx_runtime:TARGET",
    },
)
