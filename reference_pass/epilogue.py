"""The epilogue: restores the mutation that the caller can see, at the end of the graph.

The first chapter copies new contents to inputs and reads outputs (`finish`). That is wrong if
inputs share a storage, because one copy would undo another, and if `t_` has changed an input. The
caller of the program sees three things, and the epilogue emits them in this order:

    copy_(x, new)         1. inputs that the program wrote have their new contents
    v = view(x, ...)      2. outputs share memory with inputs, and with each other, as in eager
    set_(x, t)            3. inputs have the metadata that the program gave them (`t_`, ...)

The metadata is set last: after that the input is another tensor, so no view of it can be taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from aliasproof.reference_pass.bases import BaseKind
from aliasproof.reference_pass.calls.emission import clear_lazy_bits
from aliasproof.reference_pass.calls.nested import on_tensors, on_values, tensors_in
from aliasproof.reference_pass.calls.operator_forms import aten
from aliasproof.reference_pass.calls.regions import known
from aliasproof.reference_pass.calls.storages import storage_of
from aliasproof.reference_pass.environment import Environment
from aliasproof.reference_pass.functional_storage import FunctionalStorage, FunctionalView


def finish(env: Environment, output: fx.Node) -> None:
    """Emit the epilogue and the output of the new graph, given the output of the captured one."""
    returned = [
        id(tensor) for node in output.all_input_nodes for tensor in tensors_in(env.shown(node))
    ]
    epilogue = _Epilogue(env)
    epilogue.write_inputs(returned)
    mutated = epilogue.inputs_to_mutate()
    final = epilogue.final_tensors(returned, mutated)
    epilogue.mutate_metadata(mutated, final)

    def result(node: fx.Node) -> Any:
        if node in env.plain:
            return env.plain[node]
        return on_tensors(env.shown(node), lambda tensor: final[id(tensor)])

    env.emit.graph.output(on_values(output.args[0], result))


@dataclass(slots=True)
class _Epilogue:
    """Views of the memory that the caller has at the end: that of inputs, and of new storages."""

    env: Environment
    at_end: dict[FunctionalView, fx.Node] = field(default_factory=dict)

    # --- 1. inputs are written --------------------------------------------------------------------
    #
    # All new contents are computed before the first input is written. New contents that are a view
    # of an input (`x.copy_(y)`) are copied first, since a `copy_` into that input could overwrite
    # them. If an input is another tensor now (`x.set_(t)`), the storage of that counts as well.

    def write_inputs(self, returned: Sequence[int]) -> None:
        """A `copy_` into each input whose storage was written."""
        env = self.env
        for identity in (*returned, *env.inputs):
            env.views[identity].storage.apply()
        inputs = {storage_of(node.meta["val"]) for node in env.inputs.values()}
        storages = [one for one in env.storages.values() if one.origin is not None]
        for storage in storages:
            storage.apply()
        new = {
            storage: env.copy_if_on(storage.read(storage.base), inputs)
            for storage in storages
            if storage.version > 0
        }
        for storage, value in new.items():
            destination = self.at_end[storage.base] = self._destination(storage, value)
            env.emit.call(aten.copy_.default, destination, value)

    # The destination has the form of the base: it is the input, or its flattened storage. If the
    # program made the storage larger, the input is resized first.

    def _destination(self, storage: FunctionalStorage, value: fx.Node) -> fx.Node:
        """The memory of an input, in the form of the base of its storage."""
        emit, origin = self.env.emit, storage.origin
        assert origin is not None
        if storage.kind is not BaseKind.FLATTENED:
            return clear_lazy_bits(origin, emit.call)
        new, given = value.meta["val"], origin.meta["val"]
        nbytes = new.numel() * new.element_size()
        if nbytes > given.untyped_storage().nbytes():
            # `resize_` takes a number of elements, counted from the offset of the input.
            count = -(-nbytes // given.element_size())
            offset = given.storage_offset()
            before = 0 if known(offset >= count) else offset
            emit.call(aten.resize_.default, origin, [count - before])
        whole = emit.flattened(origin, nbytes, emit.call)
        if whole.meta["val"].dtype != new.dtype:
            whole = emit.call(aten.view.dtype, whole, new.dtype)
        return whole

    # --- 2. views are taken -----------------------------------------------------------------------
    #
    # An input whose metadata did not change is returned itself. Any other tensor is a view of
    # memory that the caller has: its chain starts at the destination of step 1, or at the final
    # value of a base. Two tensor objects of the program are two objects here: if both have one
    # node, the second becomes an alias of it.

    def final_tensors(self, returned: Sequence[int], mutated: Sequence[int]) -> dict[int, fx.Node]:
        """The node of each tensor object that is returned, or that an input becomes in step 3."""
        env = self.env
        final = {key: node for key, node in env.inputs.items() if key not in mutated}
        taken = set(env.inputs.values())
        for identity in (*returned, *mutated):
            if identity not in final:
                node = self._view_at_end(env.views[identity])
                if node in taken:
                    node = env.emit.call(aten.alias.default, node)
                final[identity] = node
                taken.add(node)
        return final

    def _view_at_end(self, view: FunctionalView) -> fx.Node:
        """A view at the end, by its chain."""
        chain = []
        while (node := self._known_at_end(view)) is None:
            chain.append(view)
            assert view.parent is not None
            view = view.parent
        for lower in reversed(chain):
            assert lower.step is not None
            op, arguments = lower.step
            node = self.at_end[lower] = self.env.emit.call(op, node, *arguments)
        return node

    def _known_at_end(self, view: FunctionalView) -> fx.Node | None:
        """The node that a view is at the end; None if it must be regenerated from its parent."""
        storage = view.storage
        if view in self.at_end:
            return self.at_end[view]
        # Without a write, the value shares memory as in eager, but a view copy never does.
        if storage.version == 0 and view.value is not None and not self.env.emit.copies:
            return view.value
        if view.parent is not None:
            return None
        if storage.origin is None:
            node = storage.read(view)
        elif storage.kind is BaseKind.CONSTANT:
            assert view.value is not None
            node = view.value
        else:
            node = self._destination(storage, storage.read(view))
        self.at_end[view] = node
        return node

    # --- 3. metadata is mutated -------------------------------------------------------------------
    #
    # An input becomes the tensor of step 2. Its metadata can have changed for two reasons: it is
    # another view now, or step 1 resized it.

    def inputs_to_mutate(self) -> list[int]:
        """The inputs that do not have their final metadata after step 1, by identity."""
        env = self.env
        return [
            identity
            for identity, node in env.inputs.items()
            if env.views[identity] is not env.at_start[identity]
            or any(user.target is aten.resize_.default for user in node.users)
        ]

    def mutate_metadata(self, mutated: Sequence[int], final: dict[int, fx.Node]) -> None:
        """A `set_` of each of these inputs. From here on, the input is its own final tensor."""
        for identity in mutated:
            node = self.env.inputs[identity]
            self.env.emit.call(aten.set_.source_Tensor, node, final[identity])
            final[identity] = node
