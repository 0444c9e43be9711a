"""A nest as an operator of torch: kernel, shapes and gradients, so that torch.compile, export and autograd take it.

    namespace::name(x, w) -> y                                  the nest, compiled for the device of its tensors
    namespace::name_backward([x, w, y's gradient], "0") -> [..] pf.vjp of it, for the inputs that want a gradient
    namespace::name_backward([.., x's gradient's], "0;0,2")     pf.vjp of that one, and so on: further derivatives

Neither is compiled before the first call. What decides about shapes is the nest alone, so torch needs no kernel to know
them, and sizes may be symbols of torch's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from polyfuse.compiler import compile
from polyfuse.errors import BadArgument
from polyfuse.frontend.torch.arrays import array_of, tensor_of
from polyfuse.ir import Nest, Tensor
from polyfuse.ir.given import nest_given
from polyfuse.ir.number_types import is_real, with_parts
from polyfuse.ir.sizes import solved
from polyfuse.optim.gradients import vjp
from polyfuse.runtime.executable import Executable
from polyfuse.torch.options import Options
from polyfuse.torch.symbols import extent_in
from polyfuse.torch.threads import on_threads

Tensors = Sequence[torch.Tensor]

Path = tuple[tuple[int, ...], ...]
"""The inputs by which a nest is differentiated, then those by which its gradient is, and so on."""


def custom_op(name: str, nest: Nest | Executable, **options: Any) -> torch.library.CustomOpDef:
    """Make an operator of torch of a nest.

    It is `torch.ops.namespace.name`, takes the nest's inputs in their order, or by name, and returns its outputs.
    Numbers with a default may be left out. Inouts are changed in place. Gradients are those of `pf.vjp`, of the inputs
    of floating point that want one; constants of the nest have none, nor has a nest with inouts.
    `torch.library.opcheck` passes.

    Args:
        name: The operator's name, "namespace::name"; it replaces an operator of that name that was made before.
        nest: A nest, which is compiled for the device of the tensors at the first call with them; or an executable.
        **options: Options as of torch.compile with this backend: `threads`, `target`, `fast_matmul`, `math`, `budget`,
            …. Those beside an executable are for its gradient alone, but for `threads`.

    Returns:
        The operator, to be called with tensors.

    Raises:
        BadArgument: if the name is not of this form, the nest has no inputs, or an option does not exist.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*::[A-Za-z_]\w*", str(name)):
        raise BadArgument(f"custom_op: the name is {name!r}, expected such as 'mylib::attention'")
    made = nest if isinstance(nest, Executable) else None
    given = made.nest if made is not None else nest_given("custom_op", nest, "a nest or an executable")
    if not given.inputs:
        raise BadArgument(
            f"custom_op: {given.name} has no inputs, so that torch cannot see its device: pass its constants instead"
        )
    for other in ("fallback", "freeze"):
        if other in options:
            raise BadArgument(f"custom_op: {other} is an option of torch.compile; a nest is compiled whole")
    return _Operator(name, given, Options.of(options, "custom_op"), made).registered()


class _Operator:
    """The functions that torch calls for one operator."""

    def __init__(self, name: str, nest: Nest, options: Options, made: Executable | None) -> None:
        self.name, self.nest, self.options, self.made = name, nest, options, made
        self.changed = tuple(one.name for one in nest.inputs if one.role == "inout")
        self.nests: dict[Path, Nest] = {(): nest}
        self.calls: dict[tuple[Path, str], Callable[..., Any]] = {}
        self.backward_op: Callable[..., Any] | None = None

    def registered(self) -> torch.library.CustomOpDef:
        """Register the operator, and that of its gradient."""
        made = torch.library.custom_op(
            self.name,
            self.run,
            mutates_args=self.changed,
            device_types=("cpu", "cuda"),
            schema=self.schema,
        )
        made.register_fake(self.shapes)
        if not self.changed:
            gradient = torch.library.custom_op(
                f"{self.name}_backward",
                self.run_backward,
                mutates_args=(),
                device_types=("cpu", "cuda"),
                schema="(Tensor[] tensors, str path) -> Tensor[]",
            )
            gradient.register_fake(self.shapes_backward)
            gradient.register_autograd(self.backward_of_backward, setup_context=_keep_path)
            self.backward_op = gradient
            made.register_autograd(self.backward, setup_context=_keep_inputs)
        return made

    @property
    def schema(self) -> str:
        """The nest's inputs and outputs in torch's notation."""
        names = (
            f"Tensor(a{at}!)" if one.role == "inout" else "Tensor" for at, one in enumerate(self.nest.inputs)
        )
        taken = ", ".join(
            f"Tensor? {one.name}=None" if one.name in self.nest.defaults else f"{kind} {one.name}"
            for kind, one in zip(names, self.nest.inputs, strict=True)
        )
        given = ", ".join("Tensor" for _ in self.nest.results)
        return f"({taken}) -> {given if len(self.nest.results) == 1 else f'({given})'}"

    # -- the nest ------------------------------------------------------------------------------------------------------

    def run(self, *given: torch.Tensor | None) -> Any:
        """The results, computed."""
        tensors = self._complete(given)
        return _called(self._call((), tensors), tensors)

    def _complete(self, given: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
        """A call's tensors, with the nest's own numbers for those that are left out."""
        device = next((one.device for one in given if one is not None), None)
        every = zip(self.nest.inputs, (*given, *[None] * len(self.nest.inputs)), strict=False)
        return [
            torch.tensor(self.nest.defaults[one.name], dtype=_dtype(one), device=device)
            if tensor is None
            else tensor
            for one, tensor in every
        ]

    def shapes(self, *given: torch.Tensor | None) -> Any:
        """The results without values; BadArgument for tensors that the nest does not take."""
        tensors = self._complete(given)
        sizes = self._sizes(tensors)
        found = tuple(
            tensors[0].new_empty([extent_in(size, sizes) for size in _shape(one)], dtype=_dtype(one))
            for one in self.nest.results
        )
        return found[0] if len(found) == 1 else found if found else None

    def _sizes(self, tensors: Tensors) -> dict[str, Any]:
        """The nest's symbolic sizes as the tensors have them: numbers, or symbols of torch's."""
        sizes: dict[str, Any] = {}
        pairs: list[tuple[int | str, Any]] = []
        for one, tensor in zip(self.nest.inputs, tensors, strict=True):
            if tensor.dtype != _dtype(one) or tensor.ndim != len(_shape(one)):
                raise BadArgument(
                    f"{self.name}: {one.name} is {tensor.dtype} of shape {list(tensor.shape)}, expected {one}"
                )
            pairs += zip(_shape(one), tensor.shape, strict=True)
        for size, extent in pairs:
            if isinstance(size, str) and size.isidentifier():
                sizes.setdefault(size, extent)
        if any(name not in sizes for name in self.nest.params):
            sizes = solved(pairs, sizes)
        unknown = [name for name in self.nest.params if name not in sizes]
        if unknown:
            raise BadArgument(
                f"{self.name}: no input's shape says the size {', '.join(unknown)} of {self.nest.name}"
            )
        for one, tensor in zip(self.nest.inputs, tensors, strict=True):
            for size, extent in zip(_shape(one), tensor.shape, strict=True):
                if extent_in(size, sizes) != extent:
                    raise BadArgument(
                        f"{self.name}: {one.name} has shape {list(tensor.shape)}, expected {one}"
                    )
        return sizes

    def _call(self, path: Path, tensors: Tensors) -> Callable[..., Any]:
        """The nest compiled for the tensors' device, or one of its derivatives."""
        key = path, tensors[0].device.type
        if key not in self.calls:
            given = None if path else self.made
            made = given or compile(self._nest(path), **self.options.arguments(key[1]))
            self.calls[key] = on_threads(made, self.options.threads)
        return self.calls[key]

    # -- its derivatives -----------------------------------------------------------------------------------------------

    def backward(self, context: Any, *cotangents: torch.Tensor | None) -> Any:
        """The gradients by the inputs that want one; what `pf.vjp` refuses is refused before anything runs."""
        tensors = self._complete(context.saved_tensors)
        floats = [at for at, one in enumerate(self.nest.results) if is_real(one.dtype)]
        given = [cotangents[at] for at in floats]
        if any(one is None for one in given):
            every = self.shapes(*tensors)
            shaped = every if isinstance(every, tuple) else (every,)
            given = _filled(given, [shaped[at] for at in floats])
        return tuple(self._gradients((), tensors, given, context.needs_input_grad))

    def backward_of_backward(self, context: Any, cotangents: Sequence[torch.Tensor | None]) -> Any:
        """The gradients of a derivative by its tensors: a derivative of one order more."""
        tensors, path = list(context.saved_tensors), _path(context.path)
        given = _filled(cotangents, [tensors[at] for at in path[-1]])
        return list(self._gradients(path, tensors, given, context.needs_input_grad[0])), None

    def _gradients(self, path: Path, tensors: Tensors, given: Tensors, wants: Sequence[bool]) -> list[Any]:
        """For each tensor that a nest of the path takes its gradient, or None where it wants none."""
        wanted = tuple(at for at, want in enumerate(wants) if want)
        self._nest((*path, wanted))
        assert self.backward_op is not None, "an operator with gradients has an operator for them"
        made = self.backward_op([*tensors, *given], _text((*path, wanted)))
        found = dict(zip(wanted, made, strict=True))
        return [found.get(at) for at in range(len(tensors))]

    def run_backward(self, tensors: list[torch.Tensor], path: str) -> Any:
        """The gradients, computed."""
        known, taken = _path(path), len(self.nest.inputs)
        every = (*tensors[:taken], *map(_as_pairs, tensors[taken:]))
        found = _called(self._call(known, every), every)
        gradients = found if isinstance(found, tuple) else (found,)
        return [
            torch.view_as_complex(one) if tensors[at].is_complex() else one
            for at, one in zip(known[-1], gradients, strict=True)
        ]

    def shapes_backward(self, tensors: list[torch.Tensor], path: str) -> list[torch.Tensor]:
        """The gradients without values: a tensor's gradient has its shape."""
        return [tensors[at].new_empty(tensors[at].shape) for at in _path(path)[-1]]

    def _nest(self, path: Path) -> Nest:
        """The nest, differentiated by the inputs of each step of a path."""
        if path not in self.nests:
            nest = self._nest(path[:-1])
            self.nests[path] = vjp(nest, [nest.inputs[at].name for at in path[-1]])
        return self.nests[path]


def _text(path: Path) -> str:
    """A path as torch passes it on.

    >>> _text(((0, 2), (1,)))
    '0,2;1'
    """
    return ";".join(",".join(map(str, wanted)) for wanted in path)


def _path(text: str) -> Path:
    """The path of a text.

    >>> _path("0,2;1")
    ((0, 2), (1,))
    """
    return tuple(tuple(map(int, wanted.split(","))) for wanted in text.split(";"))


def _filled(cotangents: Sequence[torch.Tensor | None], like: Tensors) -> list[torch.Tensor]:
    """Cotangents, zeros for those that nothing depends on."""
    return [torch.zeros_like(t) if one is None else one for one, t in zip(cotangents, like, strict=True)]


def _called(call: Callable[..., Any], tensors: Tensors) -> Any:
    """An executable's results for tensors; those of the CPU go as arrays, which a call takes faster."""
    if any(tensor.device.type != "cpu" for tensor in tensors):
        return call(*(tensor.detach() for tensor in tensors))
    found = call(*map(array_of, tensors))
    return (
        tuple(map(tensor_of, found))
        if isinstance(found, tuple)
        else None
        if found is None
        else tensor_of(found)
    )


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _keep_path(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tensors, ctx.path = inputs
    ctx.save_for_backward(*tensors)


def _shape(tensor: Tensor) -> tuple[int | str, ...]:
    """The shape as torch has it: without the last axis of pairs, which are complex numbers."""
    return tensor.shape[:-1] if tensor.pairs else tensor.shape


def _dtype(tensor: Tensor) -> torch.dtype:
    found: torch.dtype = getattr(torch, with_parts(tensor.dtype) if tensor.pairs else tensor.dtype)
    return found


def _as_pairs(tensor: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs, which cotangents of `pf.vjp` are; torch's gradients are those of both parts too."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
