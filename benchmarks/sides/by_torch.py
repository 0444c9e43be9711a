"""PyTorch: eager; compiled; compiled by max-autotune with weights frozen, its strongest form for inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.peers.workloads import ALPHA, BETA, EPSILON, NORM_GROUPS, STEPS, THRESHOLD, WEIGHT

FORMS = ("eager", "compiled", "max_autotune")
PACKAGES = ("torch",)
Arrays = Mapping[str, Any]
Compute = Callable[..., Any]

mode: str | None = None


def use(form: str, threads: int) -> None:
    global mode
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    mode = {"eager": None, "compiled": "default", "max_autotune": "max-autotune"}[form]
    if mode == "max-autotune":
        import torch._inductor.config as inductor

        inductor.freezing = True


def compiling(function: Any) -> Any:
    """The function, compiled if that is the form. What was compiled before is forgotten: there is a limit."""
    if mode is None:
        return function
    torch._dynamo.reset()
    return torch.compile(function, mode=mode, dynamic=False)


class Network(torch.nn.Module):
    """A function of x whose other arrays are parameters."""

    def __init__(self, compute: Compute, arrays: Arrays) -> None:
        super().__init__()
        self.compute = compute
        self.names = [name for name in arrays if name != "x"]
        for name in self.names:
            self.register_parameter(name, torch.nn.Parameter(torch.from_numpy(arrays[name])))

    def forward(self, x: Any) -> Any:
        return self.compute(x, {name: getattr(self, name) for name in self.names})


def network(compute: Compute) -> Callable[[Arrays], Callable[[], Any]]:
    def make(arrays: Arrays) -> Callable[[], Any]:
        net, x = compiling(Network(compute, arrays).eval()), torch.from_numpy(arrays["x"])
        return lambda: (net(x),)

    return make


def expression(compute: Compute) -> Callable[[Arrays], Callable[[], Any]]:
    """A function of all arrays, by position."""

    def make(arrays: Arrays) -> Callable[[], Any]:
        function, given = compiling(compute), [torch.from_numpy(array) for array in ordered(compute, arrays)]
        return lambda: function(*given)

    return make


def ordered(compute: Compute, arrays: Arrays) -> list[Any]:
    names = compute.__code__.co_varnames[: compute.__code__.co_argcount]
    return [arrays[name] for name in names]


def mlp(x: Any, p: Arrays) -> Any:
    for n in range(sum(name.startswith("w") for name in p)):
        x = torch.relu(torch.addmm(p[f"b{n}"], x, p[f"w{n}"]))
    return x


def ensemble(x: Any, p: Arrays) -> Any:
    for n in range(sum(name.startswith("w") for name in p)):
        x = torch.relu(torch.baddbmm(p[f"b{n}"], x, p[f"w{n}"]))
    return x


def ensemble_apart(x: Any, p: Arrays) -> Any:
    """Member after member."""
    return torch.stack([mlp(h, {name: array[k] for name, array in p.items()}) for k, h in enumerate(x)])


def ensemble_vmap(x: Any, p: Arrays) -> Any:
    return torch.vmap(mlp)(x, p)


def conv(x: Any, p: Arrays) -> Any:
    return torch.relu(F.conv2d(x, p["weight"], p["bias"], padding=1))


def conv_pooled(x: Any, p: Arrays) -> Any:
    return F.max_pool2d(conv(x, p), 2)


def grouped(x: Any, p: Arrays) -> Any:
    groups = x.shape[1] // p["weight"].shape[1]
    return torch.relu(F.conv2d(x, p["weight"], p["bias"], padding=1, groups=groups))


def first_layers(x: Any, p: Arrays) -> Any:
    sums = F.conv2d(x, p["weight"], p["bias"], stride=2, padding=3)
    return F.max_pool2d(torch.relu(sums), 3, 2, padding=1)


def separable(x: Any, p: Arrays) -> Any:
    inside = torch.relu(F.conv2d(x, p["deep"], padding=1, groups=x.shape[1]))
    return torch.relu(F.conv2d(inside, p["wide"]))


def normed(x: Any, p: Arrays) -> Any:
    norm = F.group_norm(x, NORM_GROUPS, p["gamma"], p["beta"], EPSILON)
    return x + F.conv2d(F.silu(norm), p["weight"], p["bias"], padding=1)


def upsampled(x: Any, p: Arrays) -> Any:
    return conv(F.interpolate(x, scale_factor=2, mode="nearest"), p)


def layer_norm(x: Any, p: Arrays) -> Any:
    return F.layer_norm(x, x.shape[-1:], p["gamma"], p["beta"], EPSILON)


def lstm(arrays: Arrays) -> Callable[[], Any]:
    """torch.nn.LSTM, whose weights are transposed and whose bias is a sum of two."""
    layers = sum(name.startswith("wx") for name in arrays)
    width = arrays["x"].shape[2]
    module = torch.nn.LSTM(width, width, layers).eval()
    for n in range(layers):
        for name, value in (
            (f"weight_ih_l{n}", arrays[f"wx{n}"].T), (f"weight_hh_l{n}", arrays[f"wh{n}"].T),
            (f"bias_ih_l{n}", arrays[f"b{n}"]), (f"bias_hh_l{n}", 0 * arrays[f"b{n}"]),
        ):  # fmt: skip
            getattr(module, name).copy_(torch.from_numpy(value))
    net, x = compiling(module), torch.from_numpy(arrays["x"])
    return lambda: (net(x)[0],)


def softmax(x: Any) -> Any:
    return (torch.softmax(x, 1),)


def bias_gradient(gradient: Any) -> Any:
    return (gradient.sum((0, 2, 3)),)


def chain(x: Any) -> Any:
    t = torch.relu(x * 1.1 + 0.3) * x
    return (torch.sum(torch.exp(1 / torch.sqrt(torch.abs(t) + 1)) - 0.5),)


def jacobi(arrays: Arrays) -> Callable[[], Any]:
    def means(x: Any, y: Any) -> None:
        mean = x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1]
        y[1:-1, 1:-1] = 0.2 * mean

    half = compiling(means)
    a, b = (torch.from_numpy(arrays[name]) for name in "ab")

    def call() -> Any:
        for _ in range(STEPS):
            half(a, b)
            half(b, a)
        return a, b

    return call


def two_mm(a: Any, b: Any, c: Any, d: Any) -> Any:
    return (torch.addmm(d, a @ b, c, beta=BETA, alpha=ALPHA),)


def three_mm(a: Any, b: Any, c: Any, d: Any) -> Any:
    return ((a @ b) @ (c @ d),)


def atax(a: Any, x: Any) -> Any:
    return ((a @ x) @ a,)


def gemver(a: Any, u1: Any, v1: Any, u2: Any, v2: Any, x: Any, y: Any, z: Any) -> Any:
    matrix = a + torch.outer(u1, v1) + torch.outer(u2, v2)
    x = x + BETA * (y @ matrix) + z
    return x, ALPHA * (matrix @ x)


def window(image: Any, rows: int, columns: int, up: int, left: int) -> Any:
    return image[..., up : image.shape[-2] - rows + 1 + up, left : image.shape[-1] - columns + 1 + left]


def harris(image: Any) -> Any:
    smooth, slope = (1.0, 2.0, 1.0), (-1.0, 0.0, 1.0)
    nine = [(up, left) for up in range(3) for left in range(3)]
    ix = sum(smooth[i] * slope[j] * window(image, 3, 3, i, j) for i, j in nine if slope[j]) / 12
    iy = sum(slope[i] * smooth[j] * window(image, 3, 3, i, j) for i, j in nine if slope[i]) / 12
    xx, xy, yy = (sum(window(p, 3, 3, i, j) for i, j in nine) for p in (ix * ix, ix * iy, iy * iy))
    return (xx * yy - xy * xy - 0.04 * (xx + yy) * (xx + yy),)


def unsharp(image: Any) -> Any:
    blur = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)
    along = sum(w * window(image, 5, 1, k, 0) for k, w in enumerate(blur))
    blurred = sum(w * window(along, 1, 5, 0, k) for k, w in enumerate(blur))
    middle = image[..., 2:-2, 2:-2]
    sharp = (1 + WEIGHT) * middle - WEIGHT * blurred
    return (torch.where(torch.abs(middle - blurred) < THRESHOLD, middle, sharp),)


KINDS = {
    **{
        f.__name__: network(f)
        for f in (
            mlp, ensemble, ensemble_apart, ensemble_vmap, conv, conv_pooled, grouped, first_layers, separable, normed,
            upsampled, layer_norm,
        )
    },
    **{
        f.__name__: expression(f)
        for f in (softmax, bias_gradient, chain, two_mm, three_mm, atax, gemver, harris, unsharp)
    },
    "lstm": lstm,
    "jacobi": jacobi,
}  # fmt: skip
