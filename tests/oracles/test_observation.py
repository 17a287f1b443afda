"""Observations, and the fresh inputs that every run gets."""

import itertools

import pytest
import torch
from torch import Tensor

from aliasproof.eager.definedness import Undefined
from aliasproof.generators.features import swarm
from aliasproof.generators.strategies import sample
from aliasproof.ir.errors import Rejected
from aliasproof.ir.regions import Region, overlap
from aliasproof.ir.values import clone_inputs, input_tensors
from aliasproof.oracles.observation import observe, observe_eager

# --- fresh inputs ---------------------------------------------------------------------------------

BASE = torch.arange(12.0)


def layout(tensor: Tensor) -> tuple[object, ...]:
    return (
        tensor.dtype,
        tensor.shape,
        tensor.stride(),
        tensor.storage_offset(),
        tensor.untyped_storage().tolist(),
    )


@pytest.mark.parametrize(
    "inputs",
    [
        pytest.param([BASE], id="contiguous"),
        pytest.param([BASE.view(3, 4).t()], id="transposed"),
        pytest.param([BASE[1:10:3]], id="offset and gaps"),
        pytest.param([BASE[:3].expand(4, 3)], id="expanded"),
        pytest.param([BASE.as_strided((2, 2), (1, 1), 4)], id="overlapping itself"),
        pytest.param([BASE[:0]], id="empty"),
        pytest.param([torch.empty(0)], id="no storage"),
        pytest.param([BASE[3].squeeze()], id="0-d"),
        pytest.param([BASE[2:], BASE[:4], BASE.view(torch.int32)], id="sharing, of two dtypes"),
        pytest.param([BASE, BASE.clone(), BASE[1:]], id="sharing in part"),
    ],
)
def test_clones_have_equal_layouts(inputs: list[Tensor]) -> None:
    clones = clone_inputs(inputs)
    assert list(map(layout, clones)) == list(map(layout, inputs))
    for clone, each in zip(clones, inputs, strict=True):
        assert clone.untyped_storage()._cdata != each.untyped_storage()._cdata
        assert type(clone) is Tensor
    for one, other in itertools.combinations(range(len(inputs)), 2):
        ours = inputs[one].untyped_storage()._cdata == inputs[other].untyped_storage()._cdata
        theirs = clones[one].untyped_storage()._cdata == clones[other].untyped_storage()._cdata
        assert ours == theirs


def test_clones_of_sampled_inputs_overlap_as_these_do() -> None:
    pairs = 0
    for seed in range(20):
        for program in sample(swarm(seed), seed, 10):
            inputs = input_tensors(program)
            clones = clone_inputs(inputs)
            assert list(map(layout, clones)) == list(map(layout, inputs))
            for one, other in itertools.combinations(range(len(inputs)), 2):
                ours = overlap(Region.of(inputs[one]), Region.of(inputs[other]))
                assert overlap(Region.of(clones[one]), Region.of(clones[other])) == ours
                pairs += ours
    assert pairs > 20


def test_a_write_to_one_clone_shows_in_the_other_and_nowhere_else() -> None:
    base = torch.arange(4.0)
    x, y = clone_inputs([base[:3], base[1:]])
    x.zero_()
    assert y.tolist() == [0, 0, 3]
    assert base.tolist() == [0, 1, 2, 3]


def test_an_input_that_occurs_twice_stays_one_object() -> None:
    one, other, third = clone_inputs([BASE, BASE, BASE.view(12)])
    assert one is other
    assert third is not one


# --- observations ---------------------------------------------------------------------------------


def test_an_observation_has_the_tensor_objects_themselves() -> None:
    x = torch.arange(4.0)
    seen = observe(lambda x: (x.add_(1), x[1:], 7), [x])
    assert seen.inputs[0] is seen.outputs[0] is x
    assert seen.is_input(seen.outputs[0]) == 0
    assert seen.is_input(seen.outputs[1]) is None
    assert list(seen.tensors()) == ["input 0", "output 0", "output 1"]
    assert seen.regions()["output 1"] == Region(x.data_ptr() + 4, (3,), (4,), 4)


def test_outputs_are_the_leaves_of_whatever_is_returned() -> None:
    seen = observe(lambda x: {"b": [x, 1], "a": (None, x)}, [BASE])
    assert len(seen.outputs) == 4
    assert sum(each is BASE for each in seen.outputs) == 2


def test_storages_are_those_from_before_the_run() -> None:
    x = torch.arange(4.0)
    before = x.untyped_storage()._cdata
    seen = observe(lambda x: x.set_(torch.zeros(2)), [x])
    assert seen.before[0].untyped_storage()._cdata == before
    assert seen.inputs[0].untyped_storage()._cdata != before


@pytest.mark.parametrize(
    "error", [RuntimeError("a"), AssertionError(), RecursionError(), NotImplementedError()]
)
def test_an_error_is_part_of_the_observation(error: Exception) -> None:
    def function(x: Tensor) -> None:
        x.zero_()
        raise error

    seen = observe(function, [torch.ones(2)])
    assert seen.error is error
    assert seen.inputs[0].tolist() == [0, 0], "what was done before stays visible"


@pytest.mark.parametrize(
    "error", [Rejected("a"), Undefined("b"), KeyboardInterrupt(), SystemExit()]
)
def test_what_is_meant_for_others_passes(error: BaseException) -> None:
    def function(x: Tensor) -> None:
        raise error

    with pytest.raises(type(error)):
        observe(function, [BASE])
    with pytest.raises(type(error)):
        observe_eager(function, [BASE])


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # of torch.func.jvp
def test_a_run_that_raises_leaves_no_level_of_forward_mode_autograd() -> None:
    def fails(x: Tensor) -> None:
        torch._functorch.predispatch._enter_dual_level()  # as a graph that Dynamo captured does
        raise ValueError("within a level")

    seen = observe(fails, [torch.ones(2)])
    assert isinstance(seen.error, ValueError)
    assert torch.func.jvp(torch.sin, (torch.zeros(2),), (torch.ones(2),))[1].tolist() == [1, 1]


def test_only_dense_tensors_can_be_judged() -> None:
    with pytest.raises(Rejected, match="sparse"):
        observe_eager(lambda x: x.to_sparse(), [BASE])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nor_can_nested_ones() -> None:
    with pytest.raises(Rejected, match="output 0 is nested"):
        observe(lambda x: torch.nested.nested_tensor([x, x]), [BASE])


def test_no_gradients_are_recorded() -> None:
    x = torch.arange(4.0).requires_grad_()
    seen = observe(lambda x: x.mul_(2), [x])
    assert seen.error is None
    assert seen.inputs[0].tolist() == [0, 2, 4, 6]


def test_an_input_that_grew_and_was_not_written_is_undefined() -> None:
    with pytest.raises(Undefined, match="never written"):
        observe_eager(lambda x: x.resize_(20), [BASE.clone()])
    # Its storage is then compared as a whole.
    with pytest.raises(Undefined, match="never written"):
        observe_eager(lambda x: x.resize_(20).fill_(1).resize_(30).resize_(4), [BASE.clone()])
    observation, _ = observe_eager(lambda x: x.resize_(20).fill_(1), [BASE.clone()])
    assert observation.inputs[0].shape == (20,)


def test_set_may_lengthen_a_storage_too() -> None:
    set_ = torch.ops.aten.set_.source_Tensor_storage_offset
    with pytest.raises(Undefined, match="never written"):
        observe_eager(lambda x: set_(x, x, 5, [8], [1]), [BASE.clone()])
    observe_eager(lambda x: set_(x, x, 5, [7], [1]), [BASE.clone()])
