"""Target *inductor*: what `torch.compile` runs by default, with generated code.

Generated code has no value hashes; the graphs of target *inductor-fx* are the same and have some.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import os
import platform
import shutil
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.utils._triton import has_triton_package

from aliasproof.ir.errors import InternalError, Rejected
from aliasproof.oracles.contract import Promise, Waiver
from aliasproof.targets import inductor_fx
from aliasproof.targets.target import Build, Function, Target
from aliasproof.targets.tracing import PLAIN, Tracing
from aliasproof.targets.variants import CONTROL_FLOW, FREEZING

# --- one library ----------------------------------------------------------------------------------
#
# Inductor calls the C++ compiler once per group of kernels, and a call takes 0.5 s before it reads
# the kernel. Here, the first call of a kernel compiles all kernels together, each in its own
# namespace, with Inductor's code and compiler flags. Only the bindings differ: they pass addresses,
# and need no headers of Python.
#
# The library is cached by its source, so equal libraries are compiled once.


PREFIX = "#include <torch/csrc/inductor/cpp_prefix.h>"

# An exception must not leave C++ here. Inductor's own bindings turn it into a RuntimeError, too.
_BINDING = """
extern "C" const char* call_{number}(const uint64_t* args) {{
    static thread_local std::string error;
    try {{
        kernel_{number}::kernel({arguments});
        return nullptr;
    }} catch (const std::exception& exception) {{
        error = exception.what();
    }} catch (...) {{
        error = "unhandled error";
    }}
    return error.c_str();
}}
"""


@dataclass(slots=True)
class Library:
    """The kernels of a compile: their argument types and source."""

    kernels: list[tuple[Sequence[str], str]] = field(default_factory=list)
    _loaded: Any = None

    def add(self, types: Sequence[str], source: str) -> Callable[..., None]:
        """Add a kernel, and return what generated code calls with tensors and numbers.

        The first call of any kernel compiles the library.
        """
        self.kernels.append((types, source))
        return functools.partial(self._call, f"call_{len(self.kernels) - 1}")

    def _call(self, name: str, *args: object) -> None:
        if self._loaded is None:
            with best_isa():
                self._loaded = _code_cache().load(self.source())
        c_function = self._loaded[name]
        c_function.restype = ctypes.c_char_p
        error = c_function((ctypes.c_uint64 * len(args))(*map(_word, args)))
        if error is not None:
            raise RuntimeError(error.decode())

    def source(self) -> str:
        """The source of the library."""
        parts = [PREFIX, "#include <bit>", "#include <exception>", "#include <string>"]
        for number, (types, source) in enumerate(self.kernels):
            # In a namespace, since all kernels have the same name. C linkage ignores namespaces.
            lines = source.replace('extern "C"', "").splitlines()
            parts += [line for line in lines if line.startswith("#include") and line not in parts]
            body = "\n".join(line for line in lines if not line.startswith("#include"))
            parts.append(f"namespace kernel_{number} {{\n{body}\n}}")
            arguments = ", ".join(_argument(kind, index) for index, kind in enumerate(types))
            parts.append(_BINDING.format(number=number, arguments=arguments))
        return "\n".join(parts)


@contextlib.contextmanager
def one_library() -> Iterator[None]:
    """Within this context, a compile puts its C++ kernels into one library."""
    from torch._inductor.async_compile import AsyncCompile  # noqa: PLC0415

    library = Library()

    def cpp_pybinding(_: object, types: Sequence[str], source: str) -> Callable[..., None]:
        return library.add(types, source)

    with mock.patch.object(AsyncCompile, "cpp_pybinding", cpp_pybinding), best_isa():
        yield


@contextlib.contextmanager
def best_isa() -> Iterator[None]:
    """Within this context, Inductor finds only the best vector instructions of the processor.

    It takes no others, but tests each kind by several compiles, which take 17 s in all.
    """
    from torch._inductor import config, cpu_vec_isa  # noqa: PLC0415

    find = cpu_vec_isa.valid_vec_isa_list

    @functools.wraps(find)
    def found() -> Sequence[Any]:
        if platform.machine() != "x86_64" or "ATEN_CPU_CAPABILITY" in os.environ:
            return find()
        # The search itself: with one kind at a time, torch must not remember what it finds.
        return _first_valid(inspect.unwrap(find), config.cpp.simdlen)

    with mock.patch.object(cpu_vec_isa, "valid_vec_isa_list", found):
        yield


@functools.cache
def _first_valid(find: Callable[[], Sequence[Any]], width: int | None) -> Sequence[Any]:
    """A list of the first vector instructions that are valid, of `width` bits unless None."""
    from torch._inductor import cpu_vec_isa  # noqa: PLC0415

    for isa in cpu_vec_isa.supported_vec_isa_list:
        if width in (None, isa.bit_width()):
            with mock.patch.object(cpu_vec_isa, "supported_vec_isa_list", [isa]):
                if valid := find():
                    return valid
    return []


def forget_compiled() -> None:
    """Forget what Inductor has compiled in this process."""
    if "torch._inductor.codecache" in sys.modules:
        sys.modules["torch._inductor.codecache"].PyCodeCache.cache_clear()
        _code_cache().cache.clear()


def _word(argument: object) -> int:
    """An argument as 64 bits: an address, an integer, or the bits of a float."""
    if isinstance(argument, torch.Tensor):
        return argument.data_ptr()
    if isinstance(argument, float):
        return int.from_bytes(struct.pack("=d", argument), sys.byteorder)
    if isinstance(argument, int):
        return argument
    raise InternalError(f"a kernel of Inductor got {type(argument).__name__}: {argument!r}")


def _argument(type_: str, index: int) -> str:
    """The C++ expression for an argument of a kernel."""
    if "*" in type_:
        return f"reinterpret_cast<{type_}>(args[{index}])"
    if type_ in ("float", "double"):
        return f"static_cast<{type_}>(std::bit_cast<double>(args[{index}]))"
    return f"static_cast<{type_}>(args[{index}])"


@functools.cache
def _code_cache() -> Any:
    """Inductor's cache of C++ libraries, with a precompiled header as for its kernels."""
    # Imported here: this takes two seconds, and other targets do not need it.
    from torch._inductor.codecache import CppCodeCache, _get_cpp_prefix_header  # noqa: PLC0415

    class Libraries(CppCodeCache):
        @classmethod
        def _get_uncompiled_header(cls, device: str) -> str | None:
            return _get_cpp_prefix_header(device)

    Libraries.cache = {}
    # As for `CppPythonBindingsCodeCache`.
    Libraries.cpp_compile_command_flags = {"include_pytorch": False, "shared": True}
    return Libraries


# --- inductor -------------------------------------------------------------------------------------


OPAQUE = "generated code has no value hashes; target inductor-fx has the same graphs"

# Strides are promised: `keep_output_stride` is on by default (torch/_inductor/config.py), and
# PyTorch treats other strides as a bug (#116433, #130394).
CONTRACT = replace(
    inductor_fx.CONTRACT,
    waivers=(
        *(
            waiver
            for waiver in inductor_fx.CONTRACT.waivers
            if waiver.promise is not Promise.STRIDE
        ),
        Waiver(
            Promise.STRIDE_OF_PART,
            "the lowering of an output that is a view asks for the order of eager's strides, not"
            " for their values, so that no view becomes a copy (require_stride_order in"
            " GraphLowering.run_node of torch/_inductor/graph.py)",
        ),
    ),
)


def build(function: Function, inputs: Sequence[torch.Tensor], tracing: Tracing = PLAIN) -> Build:
    """Compile. Raises `Rejected` for inputs on CUDA without Triton."""
    if any(tensor.is_cuda for tensor in inputs) and not has_triton_package():
        raise Rejected("generated code for CUDA needs Triton: install triton")
    with one_library():
        captured = inductor_fx.compiled(function, inputs, tracing)
    return Build(captured, [], OPAQUE)


def recipe(tracing: Tracing = PLAIN) -> str:
    """The source of `build`, through Dynamo."""
    return f"""
def compiled(program, inputs):
    return torch.compile(program{tracing.dynamic}{inductor_fx.options(tracing)})
"""


def unavailable() -> str | None:
    """Why no code can be generated on this machine, and what to install.

    Does what `cpp_compiler_search` in torch/_inductor/cpp_builder.py does, without importing torch.
    """
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        return f"needs a C++ compiler, and finds no '{compiler}': install g++, or name one in CXX"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "needs the headers of Python: install python3-dev (or python3-devel)"
    return None


TARGET = Target(
    name="inductor",
    summary="torch.compile as it is by default: Inductor with generated code",
    contract=CONTRACT,
    build=build,
    traced_recipe=recipe,
    has_settings=True,
    variants=(
        *inductor_fx.VARIANTS,
        *inductor_fx.BY_DYNAMO,
        *CONTROL_FLOW,
        FREEZING,
    ),
    after=inductor_fx.TARGET,
    lacking=unavailable,
    group=25,
    cost=8,
    backend="inductor",
    generates_code=True,
)
