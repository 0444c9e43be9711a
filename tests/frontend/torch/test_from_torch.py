"""Modules of torch as nests: values, names, memory, and what is refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import polyfuse as pf

torch = pytest.importorskip("torch")


class Tied(torch.nn.Module):
    """Two layers with one weight, a buffer, and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 6)
        self.second = torch.nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 6))

    def forward(self, x, mask):
        h = torch.nn.functional.mish(self.first(x)) * self.scale
        return self.second(h).masked_fill(mask, 0.0)


class Encoder(torch.nn.Module):
    """An encoder block on token numbers, with positions and a causal mask that are known before a call."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(11, 8)
        self.places = torch.nn.Embedding(9, 8)
        self.block = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)

    def forward(self, ids):
        length = ids.shape[1]
        x = self.tokens(ids) + self.places(torch.arange(length))
        mask = torch.triu(torch.full((length, length), float("-inf")), 1)
        return self.block(x, src_mask=mask, is_causal=True)


class Tables(torch.nn.Module):
    """Rows of tables of several sizes, each by numbers of its own column. DLRM's beginning."""

    def __init__(self, bags: bool) -> None:
        super().__init__()
        layer = torch.nn.EmbeddingBag if bags else torch.nn.Embedding
        self.tables = torch.nn.ModuleList(layer(rows, 4) for rows in (9, 50, 2))
        self.top = torch.nn.Linear(12, 3)

    def forward(self, numbers):
        return self.top(torch.cat([table(numbers[:, at]) for at, table in enumerate(self.tables)], -1))


def images() -> "torch.nn.Module":
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1, stride=2),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(4, 4, 3, groups=2, padding="same"),
        torch.nn.GroupNorm(2, 4),
        torch.nn.Hardswish(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 5),
    )


def check(model, *args) -> pf.Nest:
    """The nest's values, by the oracle, are torch's in float64."""
    model.eval()
    nest = pf.from_torch(model, args)
    arrays = {t.name: a.numpy() for t, a in zip(nest.inputs, args, strict=True)}
    arrays = {name: a.astype("float32") if a.dtype == bool else a for name, a in arrays.items()}
    results = list(pf.interpret(nest, arrays).values())
    wide = [a.double() if a.is_floating_point() else a for a in args]
    want = model.double()(*wide)
    want = want if isinstance(want, tuple) else (want,)
    for found, one in zip(results, want, strict=True):
        expected = one.detach().numpy()
        assert_allclose(found, expected, rtol=0, atol=1e-5 * max(1.0, abs(expected).max()))
    return nest


def test_parameters_are_constants_in_the_same_memory() -> None:
    torch.manual_seed(0)
    model = Tied()
    nest = check(model, torch.randn(3, 6), torch.rand(3, 6) > 0.5)
    assert [t.name for t in nest.inputs] == ["x", "mask"]
    assert set(nest.constants) == {"first_weight", "first_bias", "second_bias", "scale"}
    model = Tied()
    nest = pf.from_torch(model, (torch.randn(3, 6), torch.rand(3, 6) > 0.5))
    assert nest.constants["first_weight"].ctypes.data == model.first.weight.data_ptr()


def test_images() -> None:
    torch.manual_seed(1)
    model = images()
    model[1].running_mean.uniform_(-1, 1)
    model[1].running_var.uniform_(0.5, 2)
    nest = check(model, torch.randn(2, 3, 16, 16))
    assert "_1_running_var" in nest.constants


def test_an_encoder_on_numbers() -> None:
    torch.manual_seed(2)
    nest = check(Encoder(), torch.randint(0, 11, (2, 5)))
    assert str(nest.inputs[0]) == "input ids: int64[2, 5]"


@pytest.mark.parametrize("bags", [True, False])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_tables_of_several_sizes_by_columns_of_one_tensor(bags: bool, target: str) -> None:
    torch.manual_seed(7)
    numbers = torch.stack([torch.randint(0, rows, (5, 4)) for rows in (9, 50, 2)], 1)
    model = Tables(bags).eval()
    axes = None if bags else ({0: dim("N")},)
    nest = pf.from_torch(model, (numbers,), dynamic_shapes=axes)
    options = {"machine": "h200", "device": "lockstep"} if target == "cuda" else {}
    net = pf.compile(nest, target=target, **options)
    with torch.no_grad():
        assert torch.allclose(torch.as_tensor(net(numbers)), model(numbers), atol=1e-6)
    for column, rows in enumerate((9, 50, 2)):
        wrong = numbers.clone()
        wrong[3, column, 1] = rows
        place = rf"numbers\[3, {column}, 1\]"
        message = rf"^{place} is {rows}, expected 0 <= {place} < {rows}: .* constant tables_{column}_weight"
        with pytest.raises(pf.BadArgument, match=message):
            net(wrong)


def test_compiled_on_tensors_with_other_weights() -> None:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Softplus(), torch.nn.Linear(4, 2)).eval()
    x = torch.randn(5, 6)
    net = pf.compile(pf.from_torch(model, (x,)))
    with torch.no_grad():
        assert torch.allclose(net(x), model(x), atol=1e-6)
        other = torch.randn(4, 6)
        net.replace_constants({"_0_weight": other.numpy()})
        model[0].weight.copy_(other)
        assert torch.allclose(net(x), model(x), atol=1e-6)


def test_all_that_is_not_supported_is_named_at_once() -> None:
    class Strange(torch.nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x).cummax(-1)[0] + torch.i0(x)

    with pytest.raises(pf.BadArgument) as error:
        pf.from_torch(Strange(), (torch.randn(2, 3),))
    for operator in ("special_bessel_j0", "aten.cummax", "aten.i0"):
        assert operator in str(error.value)
    assert 'backend="polyfuse"' in str(error.value)


def test_training_is_refused_with_the_way_out() -> None:
    with pytest.raises(pf.BadArgument, match=r"model\.eval\(\)"):
        pf.from_torch(torch.nn.BatchNorm1d(3).train(), (torch.randn(4, 3),))


@pytest.mark.parametrize(
    ("module", "args", "said"),
    [
        (lambda: np.zeros(3), (), "neither a torch.nn.Module"),
        (lambda: torch.nn.ReLU(), None, "a tuple of tensors"),
    ],
)
def test_other_arguments_are_refused(module, args, said) -> None:
    with pytest.raises(pf.BadArgument, match=said):
        pf.from_torch(module(), args)


def dim(name: str, **bounds: int):
    return torch.export.Dim(name, **bounds)


SYMBOLIC = {
    "encoder": (
        lambda: torch.nn.TransformerEncoderLayer(8, 2, 12, batch_first=True),
        (3, 5, 8),
        lambda: {0: dim("N"), 1: dim("T")},
        [(1, 1, 8), (0, 4, 8), (2, 7, 8)],
    ),
    "images": (
        images,
        (2, 3, 16, 16),
        lambda: {0: dim("N"), 2: dim("H", min=8)},
        [(1, 3, 8, 16), (3, 3, 21, 16)],
    ),
    "lstm": (
        lambda: torch.nn.LSTM(4, 3, batch_first=True),
        (2, 3, 4),
        lambda: {0: dim("N")},
        [(1, 3, 4), (5, 3, 4)],
    ),
}


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("name", SYMBOLIC)
def test_one_nest_is_for_all_sizes_of_a_module(name: str, fast: bool) -> None:
    make, shape, axes, every = SYMBOLIC[name]
    model, before = make().eval(), torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(fast)  # else attention's rows are merged to a matrix
    try:
        nest = pf.from_torch(model, (torch.randn(shape),), dynamic_shapes=(axes(),))
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    assert nest.params == tuple(one.__name__ for one in axes().values())
    for sizes in every:
        x = torch.randn(sizes)
        with torch.no_grad():
            wanted = model(x)
        wanted = wanted[0] if isinstance(wanted, tuple) else wanted
        found = pf.interpret(nest, [x.numpy()])
        assert_allclose(found.get("out", found.get("out0")), wanted, rtol=1e-4, atol=1e-5)


def test_ranges_and_names_of_sizes_are_torchs() -> None:
    axes = ({0: dim("rows", min=4, max=9), 1: torch.export.Dim.AUTO},)
    nest = pf.from_torch(torch.nn.ReLU(), (torch.randn(5, 6),), dynamic_shapes=axes)
    rows, columns = nest.params
    assert (rows, columns[0]) == ("rows", "s")
    assert nest.with_sizes({"rows": 9, columns: 0}).tensor("out").shape == (9, 0)
    for size in (3, 10):
        with pytest.raises(pf.BadArgument, match="does not hold"):
            nest.with_sizes({"rows": size, columns: 1})


class Rows(torch.nn.Module):
    """Makes one axis of two."""

    def forward(self, x):
        return x.reshape(-1, 4) * 2.0


class Doubled(torch.nn.Module):
    """Makes rows of two axes, and adds them up."""

    def forward(self, x):
        return x.reshape(-1, 4).sum(0)


@pytest.mark.parametrize(
    ("module", "axes", "why"),
    [
        (Rows(), {0: "N", 1: "T"}, "an output of rows has 2 symbolic axes of .* as one"),
        (
            Doubled(),
            {0: "N", 1: "T"},
            "sum.*: acts on several symbolic axes as one, whose size is not affine",
        ),
        (torch.nn.AdaptiveAvgPool1d(2), {2: "W"}, "2 windows over the symbolic size W"),
        (torch.nn.LSTM(4, 3), {0: "T"}, "torch.export refuses lstm: Constraints violated .T."),
    ],
)
def test_what_is_not_affine_in_sizes_is_refused_by_its_node(module, axes, why: str) -> None:
    shapes = ({axis: dim(name) for axis, name in axes.items()},)
    with pytest.raises(pf.BadArgument, match=why):
        pf.from_torch(module.eval(), (torch.randn(3, 5, 4),), dynamic_shapes=shapes)


class Packed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.GRU(3, 4)

    def forward(self, x, lengths):
        return self.layer(torch.nn.utils.rnn.pack_padded_sequence(x, lengths))[1]


class Branched(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


class Wide(torch.nn.Module):
    def forward(self, x):
        return x @ torch.ones(7, 3)


@pytest.mark.parametrize(
    ("module", "args", "why"),
    [
        (
            Packed(),
            (torch.ones(5, 2, 3), torch.tensor([5, 3])),
            r"refuses packed at test_from_torch\.py.*pack_pad",
        ),
        (Branched(), (torch.ones(4, 3),), r"return x \* 2 if x\.sum.*data-dependent"),
        (
            Wide(),
            (torch.ones(4, 3),),
            r"refuses wide at test_from_torch\.py:\d+: return x @ .*same reduction",
        ),
        (torch.nn.Bilinear(3, 3, 2), (torch.ones(4, 3),), "refuses bilinear: missing a required argument"),
        (torch.nn.ReLU(), (torch.ones(4, 3).to_sparse(),), r"example_inputs\[0\] is a sparse tensor"),
        (torch.nn.Tanh(), (torch.ones(3) + 1j,), r"example_inputs\[0\] is a complex tensor"),
    ],
)
def test_what_torch_export_cannot_record_is_one_error(module, args, why: str) -> None:
    with pytest.raises(pf.BadArgument, match=why):
        pf.from_torch(module, args)
