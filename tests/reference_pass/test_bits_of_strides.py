"""Values written through a view with gaps are read with the strides of eager: the same bits."""

import pytest
import torch

from aliasproof.reference_pass import CONDITIONS, Broken, checked, functionalize, pipeline
from aliasproof.reference_pass.eager import rounding
from aliasproof.reference_pass.pipeline import operands_have_eager_strides, reinplace
from tests.reference_pass.scene import assert_alike, names, programs_of

VIEWS = {
    "columns": lambda x: x[:, : x.shape[1] // 2 + 3],
    "every second column": lambda x: x[:, ::2],
    "every second row": lambda x: x[::2],
    "a part of both": lambda x: x[1:, 1::3],
    "transposed columns": lambda x: x.t()[:, 1:],
    "diagonal": lambda x: x.diagonal(),
    "one column": lambda x: x.select(1, 3),
    "windows": lambda x: x.unfold(1, 8, 16),
    "as_strided": lambda x: x.as_strided((5, 40), (x.shape[1], 3), 2),
    "pairs": lambda x: x.view(x.shape[0], -1, 2)[..., 0],
    "permuted": lambda x: x.view(x.shape[0], 2, -1).permute(2, 0, 1)[1:],
}
WRITES = {
    "mul_": lambda q: q.mul_(0.3),
    "sigmoid_": lambda q: q.sigmoid_(),
    "copy_": lambda q: q.copy_(q * 0.3 + 1),
    "cumsum_": lambda q: q.cumsum_(-1),
    "a row": lambda q: q[0].fill_(0.21),
    "masked_fill_": lambda q: q.masked_fill_(q.abs() > 0.5, 0.3),
    "_foreach_mul_": lambda q: torch._foreach_mul_([q], 0.3),
    "sin.out": lambda q: torch.sin(q.clone(), out=q),
    "sigmoid.out": lambda q: torch.sigmoid(q.contiguous(), out=q),
}
SOURCES = {
    "an input": lambda x: x,
    "a product": lambda x: x @ x.t() @ x,
    "a sliced input": lambda x: x[1:, 2:],
    "a transposed result": lambda x: (x.t() + 1).t(),
}
SIZES = [(7, 130), (64, 256), (6, 1000)]
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.complex64]


def read(q):
    """Reductions, vector loops, matrix products: their rounding depends on strides."""
    reads = [
        *(q.sum(), q.sum(0), q.norm(), q.mean(-1), q.var(-1), q.cumsum(-1), q.prod(0)),
        *(q.sigmoid(), q.exp(), q.sqrt(), q.pow(1.7), q[1:].sum(), q.clone().sum()),
        *((q + 1).tanh(), torch.atan2(q.real, q.real + 1), q.mT.sum(-1) if q.dim() > 1 else q),
    ]
    if not q.is_complex():
        reads += [q.softmax(-1), torch.nn.functional.layer_norm(q, q.shape[-1:]), q.std()]
        reads += [torch.nn.functional.gelu(q), q.logsumexp(0)]
    return [*reads, q @ q.t() if q.dim() == 2 else q * q, q]


def drawn(sizes, dtype):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(sizes, dtype=torch.float64, generator=generator).to(dtype)


def assert_same_bits(program, x, **options):
    """Eager, and the graph that the passes make, with the invariants checked."""
    own, given = x.clone(), x.clone()
    with checked():
        compiled = pipeline(program, x.clone(), **options)
    wanted, results = (*program(own), own), (*compiled(given), given)
    torch.testing.assert_close(results, wanted, rtol=0, atol=0, equal_nan=True)


def written_and_read(source, view, write):
    def program(x):
        base = SOURCES[source](x)
        q = VIEWS[view](base)
        WRITES[write](q)
        return [*read(q), base.sum()]

    return program


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_is_read_with_the_bits_of_eager(view) -> None:
    # Every fourth write; the other parameters are cycled.
    first = [*VIEWS].index(view)
    for index in range(first, first + 12, 4):
        write = [*WRITES][index % len(WRITES)]
        source = [*SOURCES][(index // 2) % len(SOURCES)]
        x = drawn(SIZES[index % len(SIZES)], DTYPES[index % len(DTYPES)])
        assert_same_bits(written_and_read(source, view, write), x)


def rotary(x):
    x = x * 1
    even, odd = x[..., ::2], x[..., 1::2]
    even.mul_(x.new_full([65], 0.3)).sub_(odd * 0.7)
    return [even.sum(), even @ odd.t(), x.norm(), torch.sigmoid(even)]


def two_writes(x):
    q = x[:, :48]
    q.mul_(0.3)
    first = q.sum()
    q.add_(1).tanh_()
    return [first, q.sum(), x.sum()]


@pytest.mark.parametrize("views", ["alias", "copy"])
@pytest.mark.parametrize("sizes", ["fixed", "symbolic"])
@pytest.mark.parametrize("program", [rotary, two_writes])
def test_the_bits_are_those_of_eager_for_all_views_and_sizes(program, sizes, views) -> None:
    assert_same_bits(program, drawn((64, 130), torch.float32), views=views, sizes=sizes)


def two_views(x, y):
    x.mul_(0.3)
    return [y.sum(), x.sum(), y.sigmoid()]


def test_inputs_that_share_a_storage() -> None:
    x = drawn((64, 130), torch.float32)
    inputs = x[:, :70], x[:, 60:]
    assert_alike(pipeline(two_views, *inputs), two_views, *inputs)


# --- the graphs -----------------------------------------------------------------------------------


X = drawn((64, 96), torch.float32)
W = X.t().contiguous()
PROGRAMS = programs_of(
    """
scaled_part(x, w): "mm.default mul_.Tensor sum.default linalg_vector_norm.default", X, W
    q = (x @ w)[:, :48]
    q.mul_(0.3)
    return q.sum(), q.norm()

in_place_twice(x): "sigmoid_.default exp_.default sum.default", X
    q = x[:, ::2]
    q.sigmoid_()
    q.exp_()
    return q.sum()

into_a_part(x, y): "sigmoid.out sum.default", X, X[:, :48].clone()
    return torch.sigmoid(y, out=x[:, ::2]).sum()
""",
    globals(),
    lambda calls, *inputs: (calls.split(), inputs),
)


@pytest.mark.parametrize(("program", "given"), PROGRAMS, ids=names(PROGRAMS))
def test_the_calls_are_those_of_the_program(reinplaced, program, given) -> None:
    expected, inputs = given
    calls = reinplaced(program, *inputs).calls
    assert [call for call in calls if call != "slice.Tensor"] == expected


# --- the check ------------------------------------------------------------------------------------


def part_summed(x):
    x = x + 1
    q = x[:, :48]
    q.mul_(0.3)
    return q.sum()


def test_an_operand_with_other_strides_is_an_error(monkeypatch) -> None:
    monkeypatch.setattr(rounding, "depends_on_strides", lambda env, call: False)
    with checked(), pytest.raises(Broken, match=r"the bits of .*sum.* depend on them"):
        pipeline(part_summed, drawn((64, 96), torch.float32))


def test_so_is_one_that_a_later_pass_puts_there() -> None:
    x = drawn((64, 96), torch.float32)
    graph_module = functionalize(lambda x: (x + 1)[:, ::2].mul(2).sum(), x)
    assert operands_have_eager_strides(graph_module) is None
    others = [condition for condition in CONDITIONS if condition.__name__ != "same_stride"]
    reinplace(graph_module, x, conditions=others)
    assert "the bits of" in str(operands_have_eager_strides(graph_module))


def test_scalars_of_a_call_on_lists_are_rounded_as_in_eager() -> None:
    def program(x):
        return torch._foreach_mul(torch._foreach_add([x], 1), 0.3)

    for dtype in (torch.bfloat16, torch.float16):
        assert_same_bits(program, drawn((64, 96), dtype))
