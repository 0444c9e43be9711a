"""One region of a graph as a module: one nest for all sizes, or one for each combination of sizes of a call.

    graph of fixed sizes     ->  one executable, compiled at once
    graph of symbolic sizes  ->  one executable for all calls, if the nest has symbolic sizes and a plan was found;
                                 else one for each combination of sizes, with a remark

A call converts truth values to 1 and 0 and back, and gives results the strides that the graph expects. Weights may be
constants of the nest: a call with others, or with changed ones, replaces them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from polyfuse.compiler import compile
from polyfuse.errors import PolyfuseError
from polyfuse.frontend.torch.arrays import array_of
from polyfuse.frontend.torch.graph import KNOWN, Known
from polyfuse.ir import Nest
from polyfuse.ir.sizes import check_sizes
from polyfuse.runtime.executable import Executable
from polyfuse.strategy.pipeline import GIVEN_UP
from polyfuse.torch.nests import NotImported, is_fixed, nest_of, outputs, placeholders, sized
from polyfuse.torch.options import Options
from polyfuse.torch.record import Region
from polyfuse.torch.symbols import Values, last_axes, number, values_of
from polyfuse.torch.threads import on_threads
from polyfuse.torch.weights import Held, HeldWeights

Key = tuple[Any, ...]
Pass = Callable[[torch.Tensor], Any]

OF_NUMPY = (
    *(torch.float64, torch.float32, torch.float16, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
)
"""Element types that NumPy has too. An executable takes arrays in 1 µs, and tensors in 20: it reads them by DLPack."""

LOG = logging.getLogger("polyfuse.torch")


@dataclass(frozen=True)
class Form:
    """The element type and the strides that the graph's next nodes expect of a result."""

    dtype: torch.dtype
    strides: tuple[int, ...]

    @staticmethod
    def of(meta: torch.Tensor, values: Values) -> Form:
        """The form of a meta value, with values of torch's symbols."""
        return Form(meta.dtype, tuple(number(step, values) for step in meta.stride()))

    def of_result(self, found: Any) -> torch.Tensor:
        """A result in this form, of an array or a tensor."""
        tensor = torch.from_numpy(found) if isinstance(found, np.ndarray) else found
        typed = tensor if tensor.dtype == self.dtype else tensor.to(self.dtype)
        if typed.stride() == self.strides or typed.numel() < 2:
            return typed
        made = torch.empty_strided(typed.shape, self.strides, dtype=typed.dtype, device=typed.device)
        return made.copy_(typed)


@dataclass(frozen=True)
class Compilation:
    """A graph, the nest of it, its executable, the weights that are constants, and the symbols that are numbers."""

    module: torch.fx.GraphModule
    nest: Nest
    executable: Executable
    held: HeldWeights
    fixed: Values


@dataclass(frozen=True)
class Call:
    """What calls of some sizes run: an executable, its weights, the arguments it takes, and its results' forms.

    Attributes:
        run: Calls the executable, with as many threads as are allowed.
        several: Whether the graph wants a tuple.
        passed: The numbers of the arguments, each with how it is passed.
    """

    executable: Executable
    run: Callable[..., Any]
    several: bool
    forms: tuple[Form, ...]
    held: HeldWeights
    passed: tuple[tuple[int, Pass], ...]

    def __call__(self, args: tuple[Any, ...]) -> Any:
        """The region's results: one, or a tuple."""
        self.update(args)
        found = self.run(*[given(args[at]) for at, given in self.passed])
        if not self.several:
            return self.forms[0].of_result(found)
        every = (found,) if len(self.forms) == 1 else found
        return tuple([form.of_result(one) for form, one in zip(self.forms, every, strict=True)])

    def update(self, args: tuple[Any, ...]) -> None:
        """Replace the weights that are others than in the call before."""
        if new := self.held.changed(args):
            self.executable.replace_constants({one.name: array_of(tensor) for one, tensor in new})
            self.held.take(new)


class Compiled(torch.nn.Module):
    """A region's module. It computes by polyfuse, and by torch at sizes where that fails."""

    def __init__(
        self, module: torch.fx.GraphModule, options: Options, record: Region, held: tuple[int, ...] = ()
    ) -> None:
        super().__init__()
        self._module, self._options, self._record, self._held = module, options, record, held
        self._metas = [node.meta["val"] for node in placeholders(module)]
        self._fixed = all(map(is_fixed, self._metas))
        self._made: dict[Key, Call | None] = {}
        self._general: Compilation | None = None
        self._tried = self._fixed
        if not held:
            if self._fixed:
                self._call((), ())
            else:
                self._try_for_all(())

    def forward(self, *args: Any) -> Any:
        """The region's results: one, or a tuple."""
        return self.called(args)

    def called(self, args: tuple[Any, ...]) -> Any:
        """As `forward`, of the tuple of arguments: an nn.Module's own call takes 2 µs."""
        key = () if self._fixed else tuple(map(_key, args))
        call = self._made[key] if key in self._made else self._call(key, args)
        return self._module(*args) if call is None else call(args)

    def _call(self, key: Key, args: tuple[Any, ...]) -> Call | None:
        """What to call for these sizes; None where there is nothing, which the record says."""
        try:
            self._made[key] = self._for_all(args) or self._for_one(args)
        except PolyfuseError as error:
            self._made[key] = None
            sizes = _text(self._metas if self._fixed else args)
            self._record.failed[sizes] = str(error)
            LOG.warning("%s runs in eager at %s: %s", self._record.name, sizes, error)
        return self._made[key]

    def _for_one(self, args: tuple[Any, ...]) -> Call:
        """Compile for the sizes of these arguments alone."""
        module = self._module if self._fixed else sized(self._module, args)
        return self._as_call(self._compilation(module, args, {}), {})

    def _for_all(self, args: tuple[Any, ...]) -> Call | None:
        """Use the code for all sizes, if there is one and it is for these too."""
        if not self._tried:
            self._try_for_all(args)
        if self._general is None:
            return None
        values = values_of(self._metas, args)
        try:
            self._check(self._general, values)
        except PolyfuseError as error:
            self._remark(f"code of its own for {_text(args)}: {error}")
            return None
        return self._as_call(self._general, values)

    def _check(self, made: Compilation, values: Values) -> None:
        """NotImported or BadArgument for values of symbols that the code for all sizes is not for."""
        for symbol, n in made.fixed.items():
            if values[symbol] != n:
                raise NotImported(f"{symbol} is {values[symbol]}, and {n} in the code for all other sizes")
        check_sizes(
            made.nest, {str(symbol): n for symbol, n in values.items() if str(symbol) in made.nest.params}
        )

    def _try_for_all(self, args: tuple[Any, ...]) -> None:
        """Compile for all sizes; a remark where that is not possible, or no plan is found for them.

        Where the nest cannot be made with symbols for the last axes, these are numbers.
        """
        self._tried = True
        try:
            made = self._symbolic(args)
            known = set(map(str, values_of(self._metas, self._metas)))
            if missing := ", ".join(sorted(set(made.nest.params) - known)):
                raise NotImported(f"the sizes {missing} are those of no argument")
            if any(one.pass_ == GIVEN_UP for one in made.executable.explain().remarks):
                raise NotImported("no plan was found for all sizes at once")
            self._general = made
        except PolyfuseError as error:
            self._remark(f"one compile for each combination of sizes: {error}")

    def _symbolic(self, args: tuple[Any, ...]) -> Compilation:
        """Compile for all sizes, or for all but those of last axes."""
        try:
            return self._compilation(self._module, args, {})
        except NotImported as error:
            ends = last_axes(self._metas)
            if not ends:
                raise
            numbers = ", ".join(f"{symbol} = {n}" for symbol, n in ends.items())
            self._remark(f"{numbers} in the code for all sizes: {error}")
            return self._compilation(self._module, args, ends)

    def _remark(self, text: str) -> None:
        self._record.remarks.append(text)
        LOG.info("%s: %s", self._record.name, text)

    def _compilation(self, module: torch.fx.GraphModule, args: tuple[Any, ...], fixed: Values) -> Compilation:
        held = self._holds(module, args)
        nest = nest_of(module, self._record.name, {one.name: one.tensor for one in held}, fixed)
        executable = compile(nest, **self._arguments(module))
        weights = HeldWeights(held, checked=self._options.freeze != "unchecked")
        return Compilation(module, nest, executable, weights, fixed)

    def _as_call(self, made: Compilation, values: Values) -> Call:
        """The call of an executable at some values of torch's symbols."""
        several, metas = outputs(made.module)
        constant = {one.at for one in made.held.every}
        passed = {
            at: meta
            for at, meta in enumerate(self._metas)
            if isinstance(meta, torch.Tensor) and at not in constant
        }
        known = {at: node.meta.get(KNOWN) for at, node in enumerate(placeholders(made.module))}
        arrays = all(
            meta.device.type == "cpu" and meta.dtype in OF_NUMPY for meta in (*passed.values(), *metas)
        )
        if made.executable not in self._record.compiled:
            self._record.compiled.append(made.executable)
        return Call(
            made.executable,
            on_threads(made.executable, self._options.threads),
            several,
            tuple(Form.of(meta, values) for meta in metas),
            made.held,
            tuple((at, _passed(meta, arrays, known.get(at))) for at, meta in passed.items()),
        )

    def _holds(self, module: torch.fx.GraphModule, args: tuple[Any, ...]) -> tuple[Held, ...]:
        """The weights that are to be constants; a tensor made in inference mode does not count its writes."""
        names = [node.name for node in placeholders(module)]
        return tuple(
            Held.of(at, names[at], args[at])
            for at in self._held
            if args[at].is_floating_point() and not args[at].is_inference()
        )

    def _arguments(self, module: torch.fx.GraphModule) -> Mapping[str, Any]:
        """Arguments of `compile`; the target is the device of the region's tensors unless one was asked for."""
        metas = (node.meta.get("val") for node in module.graph.nodes)
        kinds = {meta.device.type for meta in metas if isinstance(meta, torch.Tensor)}
        return self._options.arguments("cuda" if "cuda" in kinds else "cpu")


def _key(one: Any) -> Any:
    return tuple(one.shape) if isinstance(one, torch.Tensor) else one


def _text(args: Iterable[Any]) -> str:
    """The sizes of a call."""
    return ", ".join(str(list(one.shape)) if isinstance(one, torch.Tensor) else str(one) for one in args)


def _as_array(tensor: torch.Tensor) -> Any:
    return tensor.detach().numpy() if tensor.requires_grad else tensor.numpy()


def _as_tensor(tensor: torch.Tensor) -> Any:
    return tensor.detach()


def _passed(meta: torch.Tensor, arrays: bool, known: Known | None) -> Pass:
    """How an executable takes a tensor: without a gradient, truth values as 1 and 0; what is known, as it was made."""
    plain = _as_array if arrays else _as_tensor
    way = (lambda tensor: plain(tensor.to(torch.float32))) if meta.dtype == torch.bool else plain
    if known is None or not arrays:
        return way
    given = np.ascontiguousarray(known.array, np.float32 if meta.dtype == torch.bool else None)
    return lambda _: given
