"""Operators one by one against torch, by the oracle: arguments, shapes, types, NaN and infinities."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import polyfuse as pf

torch = pytest.importorskip("torch")

F = torch.nn.functional


def numbers(*shape: int) -> "torch.Tensor":
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64)


SPECIAL = torch.tensor(
    [float("-inf"), -25.0, -1.5, -0.5, 0.0, 1e-4, 0.5, 2.0, 30.0, float("inf"), float("nan")]
)


def gelu_by_tanh(x: "torch.Tensor") -> "torch.Tensor":
    return F.gelu(x, approximate="tanh")


POINTWISE = [
    torch.abs, torch.cos, torch.erf, torch.exp, torch.exp2, torch.log, torch.log10, torch.log2, torch.neg,
    torch.reciprocal, torch.rsqrt, torch.sigmoid, torch.sign, torch.sin, torch.sqrt, torch.square, torch.tanh,
    torch.relu, F.relu6, F.hardsigmoid, F.leaky_relu, F.softplus, F.logsigmoid, F.selu, F.celu, F.elu, F.mish, F.silu,
    F.gelu, F.hardtanh, F.hardswish, torch.isnan, torch.isinf, torch.logical_not, torch.expm1, torch.log1p,
    gelu_by_tanh, lambda x: F.threshold(x, 0.1, -2.0), lambda x: x.clamp(-1, 2),
    lambda x: x.clamp(min=-1), lambda x: x**3, lambda x: x**2, lambda x: x**0.5, lambda x: 2 - x, lambda x: x * 2 + 1,
    lambda x: x > 0, lambda x: torch.where(x < 1, x, -x), lambda x: torch.logical_and(x > 0, x < 2),
    torch.floor, torch.ceil, torch.round, torch.trunc, torch.tan, torch.asin, torch.acos, torch.atan, torch.sinh,
    torch.cosh, torch.asinh, torch.acosh, torch.atanh, lambda x: torch.fmod(x, 0.7), lambda x: torch.remainder(x, -0.7),
    lambda x: torch.logical_xor(x > 0, x < 2),
]  # fmt: skip

LOSE_A_LIMIT = [
    F.mish, F.silu, F.gelu, gelu_by_tanh, F.hardswish, F.celu, F.elu, F.selu, F.softplus, F.logsigmoid,
    torch.log1p, torch.expm1,
]  # fmt: skip
"""Their formulas are 0 * inf or inf - inf at an infinity, where torch has a limit, or NaN by another formula."""

WHOLE = {
    "sum": (lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True)), [(2, 3, 4)]),
    "mean": (lambda x: (x.mean(), x.mean(-1, keepdim=True)), [(2, 3, 4)]),
    "extremes": (lambda x: (x.amax(1), x.amin((0, 1)), x.max(), x.max(1)[0], x.max(1)[1]), [(2, 3, 4)]),
    "places": (lambda x: (x.argmax(1), x.argmin(), x.argmax(-1, keepdim=True)), [(2, 3, 4)]),
    "prod": (lambda x: (x.prod(1), x.prod()), [(2, 3)]),
    "truth": (lambda x: ((x > 0).any(1), (x > 0).all(), x.any()), [(3, 4)]),
    "var": (lambda x: (x.var(1), x.std(), x.var((0, 1), correction=0, keepdim=True)), [(3, 4)]),
    "quotients": (
        lambda x, y: tuple(torch.div(x, y, rounding_mode=mode) for mode in (None, "floor", "trunc")),
        [(3, 4), (4,)],
    ),
    "norms": (lambda x: (x.norm(), torch.linalg.vector_norm(x, 1, 1), x.logsumexp(1)), [(3, 4)]),
    "softmax": (lambda x: (x.softmax(1), x.log_softmax(0)), [(3, 4)]),
    "products": (
        lambda x, y, z: (x @ y, torch.addmm(z, x, y, beta=2, alpha=3), x @ y[:, 0], x[0] @ y[:, 0]),
        [(3, 4), (4, 5), (3, 5)],
    ),
    "batches": (lambda x, y: (torch.bmm(x, y), torch.einsum("bik,bkj->bji", x, y)), [(2, 3, 4), (2, 4, 5)]),
    "views": (
        lambda x: (
            x.reshape(6, 4),
            x.permute(2, 0, 1),
            x[:, 1:, ::2],
            x[1],
            x.flip(0, 2),
            x.unsqueeze(1).expand(2, 5, 3, 4),
        ),
        [(2, 3, 4)],
    ),
    "parts": (lambda x: (*x.split(2, 1), *x.chunk(2, 0), *x.unbind(0), torch.stack([x, x], 1)), [(2, 3)]),
    "joined": (
        lambda x, y: (torch.cat([x, y], 1), torch.roll(x, 1, 1), x.repeat(2, 3), x.roll(2)),
        [(2, 3), (2, 4)],
    ),
    "padded": (
        lambda x: (
            F.pad(x, (1, 2)),
            F.pad(x, (1, -1), value=3.0),
            F.pad(x, (2, 1, 1, 1), "reflect"),
            F.pad(x, (1, 2, 0, 1), "replicate"),
        ),
        [(1, 2, 3, 4)],
    ),
    "pixels": (
        lambda x: (
            F.pixel_shuffle(x, 2),
            F.pixel_unshuffle(x, 2),
            F.interpolate(x, scale_factor=2),
            F.interpolate(x, size=(5, 3)),
        ),
        [(1, 4, 4, 2)],
    ),
    "windows added up": (
        lambda x: (
            F.fold(x, (5, 5), 3, padding=1),
            F.fold(x[..., :4], (7, 6), 3, stride=(3, 2), dilation=(1, 1)),
            F.fold(x[0, :, :4], (8, 9), 3, dilation=2, stride=3),
        ),
        [(2, 18, 25)],
    ),
    "triangles": (lambda x: (x.tril(), x.triu(1), x.tril(-1)), [(3, 4)]),
    "windows": (lambda x: (x.unfold(1, 3, 2), x.diff()), [(2, 7)]),
    "convolution": (
        lambda x, w, b: (
            F.conv2d(x, w, b, 2, 1),
            F.conv2d(x[0], w),
            F.conv1d(x[:, :, 0], w[:, :, 0], padding=1),
        ),
        [(2, 3, 5, 5), (4, 3, 3, 3), (4,)],
    ),
    "transposed": (
        lambda x, w, b: (
            F.conv_transpose2d(x, w, b, 2, 1, 1),
            F.conv_transpose2d(x[0], w, padding=2, dilation=2),
            F.conv_transpose1d(x[:, :, 0], w[:, :, 0], stride=3),
        ),
        [(2, 3, 5, 4), (3, 4, 3, 3), (4,)],
    ),
    "interpolated": (
        lambda x: (
            F.interpolate(x, scale_factor=2, mode="bilinear"),
            F.interpolate(x, size=(7, 3), mode="bilinear", align_corners=True),
            F.interpolate(x, size=(3, 5), mode="bicubic"),
            F.interpolate(x[0], size=9, mode="linear"),
        ),
        [(2, 3, 4, 5)],
    ),
    "known places": (
        lambda x: (
            x[:, [0, 2, 2]],
            x[:, torch.arange(3)[:, None], torch.tensor([3, 1])],
            x[torch.tensor([[0, 1], [1, -1]])],
            x[torch.arange(2)[:, None, None], torch.tensor([2, 0])],
            x.index_select(1, torch.tensor([2, 0, 2])),
            x.index_select(-1, torch.tensor([3])),
        ),
        [(2, 3, 4)],
    ),
    "scans": (lambda x: (x.cumsum(1), x.cumsum(0) * 2, x.cumprod(-1)), [(2, 3, 4)]),
    "replaced": (
        lambda x, y: (
            x.slice_scatter(y, 1, 1, 3),
            x.slice_scatter(y, 1, -2),
            x.select_scatter(y[:, 0], 1, -1),
        ),
        [(2, 4), (2, 2)],
    ),
    "grouped heads": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        [(2, 4, 3, 5), (2, 2, 6, 5)],
    ),
    "pooling": (
        lambda x: (
            F.max_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 2, padding=1),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.adaptive_avg_pool2d(x, (2, 3)),
            F.adaptive_max_pool2d(x, 2),
            F.max_pool1d(x[0], 2),
            F.avg_pool2d(x, 2, divisor_override=3),
        ),
        [(2, 3, 6, 6)],
    ),
    "pooling in ceil_mode": (
        lambda x: (
            F.max_pool2d(x, 3, 2, ceil_mode=True),
            F.max_pool2d(x, 2, 3, 1, 2, ceil_mode=True),
            F.max_pool1d(x[0], 2, ceil_mode=True),
            F.avg_pool2d(x, 2, ceil_mode=True),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            F.avg_pool2d(x, 2, ceil_mode=True, divisor_override=3),
            *F.max_pool2d(x, 3, 2, ceil_mode=True, return_indices=True),
        ),
        [(2, 3, 6, 7)],
    ),
    "normalised": (
        lambda x, w, b: (
            F.layer_norm(x, (4,), w, b),
            F.layer_norm(x, (4,), w),
            F.rms_norm(x, (4,), w),
            F.group_norm(x, 2),
            F.batch_norm(x, w, w * w, b, b),
            F.instance_norm(x),
        ),
        [(2, 4, 4), (4,), (4,)],
    ),
    "attention": (
        lambda q, k, m: (
            F.scaled_dot_product_attention(q, k, k, m),
            F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3),
        ),
        [(2, 2, 3, 4), (2, 2, 5, 4), (3, 5)],
    ),
    "mixed": (
        lambda x, w: (
            F.prelu(x, w),
            F.glu(x, 1),
            torch.lerp(x, -x, 0.3),
            torch.addcmul(x, x, x, value=2),
            F.mse_loss(x, -x),
        ),
        [(3, 4), (4,)],
    ),
}


class Call(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def check(function, args, atol: float) -> None:
    nest = pf.from_torch(Call(function), args)
    with np.errstate(all="ignore"):
        found = pf.interpret(nest, {t.name: a.numpy() for t, a in zip(nest.inputs, args, strict=True)})
    want = function(*args)
    for ours, theirs in zip(found.values(), want if isinstance(want, tuple) else (want,), strict=True):
        assert_allclose(ours, theirs.numpy().astype(ours.dtype), rtol=1e-9, atol=atol)


def test_pointwise() -> None:
    """All in one graph: an export takes most of the time. NaN and infinities are those of torch."""
    finite = SPECIAL[1:-2].double()
    check(lambda x: tuple(function(x) for function in POINTWISE), (finite,), 1e-12)
    limits = [function for function in POINTWISE if function not in LOSE_A_LIMIT]
    check(lambda x: tuple(function(x) for function in limits), (SPECIAL.double(),), 1e-12)


@pytest.mark.parametrize("name", WHOLE)
def test_operators(name: str) -> None:
    function, shapes = WHOLE[name]
    check(function, tuple(numbers(*shape) for shape in shapes), 1e-12)


def test_halves_are_computed_in_float32() -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).bfloat16()
    nest = pf.from_torch(Call(lambda x: (x + x.float()).softmax(-1).bfloat16()), (x,))
    (found,) = pf.interpret(
        nest, {nest.inputs[0].name: x.view(torch.int16).numpy().view("bfloat16")}
    ).values()
    want = (x + x.float()).softmax(-1).bfloat16().float().numpy()
    assert_allclose(found.astype("float32"), want, rtol=1e-2)


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True),
        torch.nn.GRU(3, 4, batch_first=True, bias=False),
        torch.nn.RNN(3, 4, nonlinearity="relu"),
    ],
    ids=["lstm", "gru", "rnn"],
)
def test_recurrent_layers(layer: torch.nn.Module) -> None:
    """Whole, not step by step: no operator of the layer is repeated for each time."""
    layer = layer.double().eval()
    x = numbers(5, 2, 3)
    nest = pf.from_torch(layer, (x,))
    with torch.no_grad():
        want, states = layer(x)
    states = states if isinstance(states, tuple) else (states,)
    found = pf.interpret(nest, {nest.inputs[0].name: x.numpy()})
    for ours, theirs in zip(found.values(), (want, *states), strict=True):
        assert_allclose(ours, theirs.numpy(), rtol=1e-9, atol=1e-12)
    assert sum(s.name.startswith("step") for s in nest.statements) <= 8


def test_a_recurrent_layer_with_dropout_in_training_is_refused() -> None:
    with pytest.raises(pf.BadArgument, match="draws random numbers"):
        pf.from_torch(torch.nn.LSTM(3, 4, num_layers=2, dropout=0.5), (torch.zeros(5, 2, 3),))


def test_elements_chosen_by_integers() -> None:
    def choose(x, index, source):
        return (
            x.gather(1, index),
            x.index_select(1, index[0]),
            x.index_select(-1, index[1]),
            x.scatter(1, index, source),
            x.scatter(1, index, 2.5),
            x.scatter_add(1, index, source),
        )

    x, source = numbers(2, 5), numbers(2, 3)
    index = torch.tensor([[4, 0, 2], [1, 3, 0]])
    found = pf.interpret(
        pf.from_torch(Call(choose), (x, index, source)), [x.numpy(), index.numpy(), source.numpy()]
    )
    for own, theirs in zip(found.values(), choose(x, index, source), strict=True):
        assert_allclose(own, theirs.numpy(), rtol=1e-12)


def agrees(module: torch.nn.Module, *given: torch.Tensor, rtol: float = 1e-12) -> None:
    """The oracle's results, and those of a compiled nest, are the module's, types too."""
    with torch.no_grad():
        want = module(*given)
    nest = pf.from_torch(module, given)
    arrays = [one.numpy() if one.dtype != torch.bool else one.numpy().astype("float32") for one in given]
    found, ours = tuple(pf.interpret(nest, arrays).values()), pf.compile(nest)(*arrays)
    every = want if isinstance(want, tuple) else (want,)
    for one, own, theirs in zip(found, ours if isinstance(ours, tuple) else (ours,), every, strict=True):
        assert one.dtype == own.dtype == theirs.numpy().dtype
        assert_allclose(one, theirs.numpy(), rtol=rtol)
        assert_allclose(own, theirs.numpy(), rtol=rtol)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sorted(axis: int, descending: bool) -> None:
    """Equal elements stay in their order, and NaN is the largest: a masked autoencoder draws patches so."""
    x = numbers(2, 7, 3)
    x[0, 2, 1] = x[0, 5, 1] = float("nan")
    x[1, 3, 2], x[1, 4, 0], x[1, 0, 0] = x[1, 1, 2], float("inf"), float("-inf")
    agrees(Call(lambda x: tuple(torch.sort(x, dim=axis, descending=descending, stable=True))), x)


def test_integers_and_single_numbers_sorted() -> None:
    x = torch.randint(-5, 5, (2, 6), generator=torch.Generator().manual_seed(0))
    agrees(Call(lambda x: torch.sort(x, dim=1, stable=True)[0]), x)
    agrees(Call(lambda x: tuple(torch.sort(x.sum()))), numbers(3))
    agrees(Call(lambda x: x.gather(1, torch.argsort(x, 1))), numbers(2, 5))


class Looked(torch.nn.Module):
    """Rows of a table by numbers that the module holds, as BERT's kinds of words and T5's distances are."""

    def __init__(self, rows: int, numbers: torch.Tensor) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(rows, 4, dtype=torch.float64)
        self.register_buffer("numbers", numbers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table(self.numbers) + x


APART = torch.arange(6)[:, None] - torch.arange(6)[None]


@pytest.mark.parametrize(
    ("rows", "known"),
    [
        (2, torch.zeros(2, 5, dtype=torch.int64)),
        (11, APART + 5),
        (1000, torch.tensor([[5, 7, 9], [2, 2, 2]])),
    ],
    ids=["one row", "distances", "few slices"],
)
def test_rows_at_known_places(rows: int, known: torch.Tensor) -> None:
    agrees(Looked(rows, known), numbers(*known.shape, 4))


def test_rows_at_many_known_places_of_a_long_table_are_left_to_torch() -> None:
    known = torch.randint(0, 500, (40,), generator=torch.Generator().manual_seed(0))
    with pytest.raises(pf.BadArgument, match=r"slices along an axis of 500; at most 16, or any .* of 256"):
        pf.from_torch(Looked(500, known), (numbers(40, 4),))
    with pytest.raises(pf.BadArgument, match="that a table of 3 rows does not have"):
        pf.from_torch(Looked(3, torch.tensor([0, 3])), (numbers(2, 4),))


def test_pairs_at_known_places() -> None:
    """The products of all pairs of features, as DLRM takes them."""
    first, second = torch.tril_indices(9, 9, -1)

    def pairs(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[:, first, second], x[:, first[:4], -1 - second[:4]], x[:, first[:4].view(2, 2), second[:2]]

    agrees(Call(pairs), numbers(2, 9, 9))


class Masked(torch.nn.Module):
    """Attention with a mask that the module holds."""

    def __init__(self, mask: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x, attn_mask=self.mask)


MASK = torch.rand(2, 1, 5, 5, generator=torch.Generator().manual_seed(0)) > 0.5
MASK[1, 0, 2] = False


@pytest.mark.parametrize("mask", [MASK, MASK[:1], MASK[0, 0]], ids=["row of none", "one", "matrix"])
def test_attention_leaves_out_what_a_mask_of_truth_values_does(mask: torch.Tensor) -> None:
    """False is -inf, and not 0 beside 1; a row of which nothing is left is 0."""
    x = numbers(2, 3, 5, 4)
    agrees(Masked(mask), x, rtol=1e-9)
    agrees(Call(lambda x, m: F.scaled_dot_product_attention(x, x, x, m)), x, mask, rtol=1e-9)
    agrees(
        Call(lambda x, m: F.scaled_dot_product_attention(x, x, x, attn_mask=m > 0.5)),
        x,
        mask.double(),
        rtol=1e-9,
    )


@pytest.mark.parametrize("mask", [MASK, MASK[:1], MASK[0, 0]], ids=["row of none", "one", "matrix"])
def test_a_row_of_a_mask_of_numbers_that_is_minus_infinity_alone_gives_0(mask: torch.Tensor) -> None:
    x, added = numbers(2, 3, 5, 4), torch.where(mask, numbers(*mask.shape), -torch.inf)
    agrees(Masked(added), x, rtol=1e-9)
    agrees(Call(lambda x, m: F.scaled_dot_product_attention(x, x, x, m)), x, added, rtol=1e-9)


def test_elements_along_a_long_axis_are_left_to_torch() -> None:
    x, index = numbers(300, 2), torch.tensor([[1, 2]])
    with pytest.raises(pf.BadArgument, match=r"along an axis of 300: all of them are read .*at most 256"):
        pf.from_torch(Call(lambda x, index: x.gather(0, index)), (x, index))


def test_integers_are_compared_and_become_numbers() -> None:
    def of_integers(x, ids, small):
        return (
            torch.where(ids > 2, x, -x),
            (ids == ids.flip(0)).float(),
            small.float() * 2,
            ids.bool(),
            ids >= 5,
        )

    args = numbers(2, 3), torch.tensor([[0, 2, 5], [3, 2, -1]]), torch.tensor([200, 3, 0], dtype=torch.uint8)
    check(of_integers, args, 0.0)
