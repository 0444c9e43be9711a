"""polyfuse: pf.compile for the CPU, sizes known, all else by default. Networks have their weights as constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks.peers import nests
from benchmarks.peers.references import layers
from benchmarks.peers.workloads import EPSILON, NORM_GROUPS, THRESHOLD, WEIGHT
from papers.pipelines import PIPELINES
from polyfuse import nn
from polyfuse.ir.sizes import extent

FORMS = ("compile",)
PACKAGES = ("polyfuse", "numba", "islpy")
Arrays = Mapping[str, Any]
Call = Callable[[], Any]


class NotYet(Exception):
    """polyfuse cannot express this workload; the message says what there is not."""


def use(form: str, threads: int) -> None:
    """Threads are numba's, by its environment. The compiler is loaded first, as other libraries are."""
    pf.compile(pf.lower(nn.ReLU(), batch=1, features=(1,)), target="cpu")


def mlp(a: Arrays) -> nn.Value:
    h = nn.input("x", a["x"].shape)
    for n in range(layers(a, "w")):
        h = nn.relu(nn.linear(h, a[f"w{n}"], a[f"b{n}"]))
    return h


def ensemble(a: Arrays) -> nn.Value:
    """The members one by one, as a user has them."""
    x = nn.input("x", a["x"].shape)
    results = []
    for k in range(a["x"].shape[0]):
        h = x[k]
        for n in range(layers(a, "w")):
            h = nn.relu(nn.linear(h, a[f"w{n}"][k], a[f"b{n}"][k, 0]))
        results.append(h)
    return nn.stack(results)


def conv(a: Arrays) -> nn.Value:
    return nn.relu(nn.conv2d(nn.input("x", a["x"].shape), a["weight"], a["bias"], padding=1))


def grouped(a: Arrays) -> nn.Value:
    x, groups = nn.input("x", a["x"].shape), a["x"].shape[1] // a["weight"].shape[1]
    return nn.relu(nn.conv2d(x, a["weight"], a["bias"], padding=1, groups=groups))


def first_layers(a: Arrays) -> nn.Value:
    sums = nn.conv2d(nn.input("x", a["x"].shape), a["weight"], a["bias"], stride=2, padding=3)
    return nn.max_pool(nn.relu(sums), 3, 2, padding=1)


def separable(a: Arrays) -> nn.Value:
    inside = nn.conv2d(nn.input("x", a["x"].shape), a["deep"], padding=1, groups=len(a["deep"]))
    return nn.relu(nn.conv2d(nn.relu(inside), a["wide"]))


def normed(a: Arrays) -> nn.Value:
    x = nn.input("x", a["x"].shape)
    norm = nn.group_norm(x, NORM_GROUPS, gamma=a["gamma"], beta=a["beta"], eps=EPSILON)
    return x + nn.conv2d(nn.silu(norm), a["weight"], a["bias"], padding=1)


def upsampled(a: Arrays) -> nn.Value:
    n, c, h, w = a["x"].shape
    each = nn.reshape(nn.input("x", a["x"].shape), (n, c, h, 1, w, 1))
    twice = nn.reshape(nn.expand(each, (n, c, h, 2, w, 2)), (n, c, 2 * h, 2 * w))
    return nn.relu(nn.conv2d(twice, a["weight"], a["bias"], padding=1))


def bias_gradient(a: Arrays) -> nn.Value:
    return nn.sum(nn.input("gradient", a["gradient"].shape), axis=(0, 2, 3))


def lstm(a: Arrays) -> nn.Value:
    h = nn.input("x", a["x"].shape)
    for n in range(layers(a, "wx")):
        bias = a[f"b{n}"]
        h, _, _ = nn.lstm(h, a[f"wx{n}"].T, a[f"wh{n}"].T, bias, np.zeros_like(bias))
    return h


def softmax(a: Arrays) -> nn.Value:
    return nn.softmax(nn.input("x", a["x"].shape))


def layer_norm(a: Arrays) -> nn.Value:
    return nn.layer_norm(
        nn.input("x", a["x"].shape), a["x"].shape[-1], gamma=a["gamma"], beta=a["beta"], eps=EPSILON
    )


NETWORKS = {
    f.__name__: f
    for f in (
        mlp, ensemble, conv, grouped, first_layers, separable, normed, upsampled, bias_gradient, lstm, softmax,
        layer_norm,
    )
}  # fmt: skip
LOOPS = {
    f"{nest.name}": nest
    for nest in (nests.chain, nests.jacobi, nests.two_mm, nests.three_mm, nests.atax, nests.gemver)
}


def nest_of(kind: str, a: Arrays) -> tuple[pf.Nest, dict[str, int] | None, dict[str, Any]]:
    """(the nest, its sizes where they are symbols, arrays by name, its arguments among them)."""
    if kind in NETWORKS:
        value = NETWORKS[kind](a)
        nest = pf.lower(value)
        return nest, None, dict(a)
    if kind in PIPELINES:
        return image(kind, a)
    if kind not in LOOPS:
        raise NotYet(f"{kind} is neither a layer nor loops of ours")
    return LOOPS[kind], sizes_of(LOOPS[kind], a), dict(a)


def sizes_of(nest: pf.Nest, arrays: Arrays) -> dict[str, int]:
    """The sizes that the arrays' shapes give."""
    shapes = {tensor.name: tensor.shape for tensor in nest.inputs}
    return {
        str(size): extent_given
        for name, array in arrays.items()
        for size, extent_given in zip(shapes[name], array.shape, strict=True)
        if not isinstance(size, int) and str(size).isidentifier()
    }


def image(kind: str, a: Arrays) -> tuple[pf.Nest, dict[str, int], dict[str, Any]]:
    """A pipeline, which writes into arrays of the caller."""
    nest = PIPELINES[kind].nest
    sizes = sizes_of(nest, a)
    given = {**a, "weight": np.float32(WEIGHT), "threshold": np.float32(THRESHOLD)}
    for tensor in nest.with_role("inout"):
        given[tensor.name] = np.zeros([extent(size, sizes) for size in tensor.shape], np.float32)
    return nest, sizes, given


def compiled(kind: str, a: Arrays) -> Call:
    nest, sizes, arguments = nest_of(kind, a)
    net = pf.compile(nest, target="cpu", sizes=sizes)
    given = tuple(arguments[tensor.name] for tensor in nest.inputs)
    return partial(called, net, given, [arguments[tensor.name] for tensor in nest.with_role("inout")])


def called(net: pf.Executable, arguments: tuple[Any, ...], written: list[Any]) -> Any:
    """The results of a call: arrays that it made, or those it wrote into."""
    made = net(*arguments)
    if made is None:
        return written
    return made if isinstance(made, tuple) else (made,)


KINDS: Mapping[str, Callable[[Arrays], Call]] = {
    **{kind: partial(compiled, kind) for kind in (*NETWORKS, *LOOPS, "harris", "unsharp")},
}
