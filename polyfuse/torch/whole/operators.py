"""An operator of a function of torch: not taken apart by AOTAutograd, computed by a region or by the function itself.

polyfuse::name(tensors, settings) -> results                                 the function
polyfuse::name_backward(tensors, counts, cotangents, settings) -> gradients   torch's autograd of the function
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensors = list[torch.Tensor]

ONE = -1
"""A tensor by itself among the counts of operands; others are lists of so many."""


def kept_whole(
    name: str,
    operands: str,
    settings: str,
    results: int,
    call: Callable[..., tuple[torch.Tensor, ...]],
    shapes: Callable[..., tuple[torch.Tensor, ...]],
) -> torch.library.CustomOpDef:
    """Register an operator, and that of its gradient.

    Args:
        name: Its name in the namespace polyfuse.
        operands: The tensors in torch's notation: "Tensor input, Tensor[] params".
        settings: The other arguments.
        results: The number of its results.
        call: The function of torch, on operands and settings; it returns new tensors.
        shapes: The same for tensors without values.

    Returns:
        The operator.
    """
    count = operands.count(",") + 1

    def single(found: tuple[torch.Tensor, ...]) -> Any:
        return found if results > 1 else found[0]

    def run_backward(tensors: Tensors, counts: Sequence[int], cotangents: Tensors, *given: Any) -> Tensors:
        with _above_autograd(), torch.enable_grad():
            own = [one.detach().requires_grad_() for one in tensors]
            found = call(*_grouped(own, counts), *given)
            gradients = torch.autograd.grad(found, own, cotangents, allow_unused=True, materialize_grads=True)
        return [one.contiguous() for one in gradients]

    def shapes_backward(tensors: Tensors, counts: Sequence[int], cotangents: Tensors, *given: Any) -> Tensors:
        return [torch.empty_like(one, memory_format=torch.contiguous_format) for one in tensors]

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.counts = [len(one) if isinstance(one, list | tuple) else ONE for one in inputs[:count]]
        ctx.settings = inputs[count:]
        flat = [one if isinstance(one, list | tuple) else [one] for one in inputs[:count]]
        ctx.save_for_backward(*(tensor for each in flat for tensor in each))

    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        found = backward_op(list(ctx.saved_tensors), ctx.counts, list(cotangents), *ctx.settings)
        return *_grouped(found, ctx.counts), *(None for _ in ctx.settings)

    made = torch.library.custom_op(
        f"polyfuse::{name}",
        lambda *given: single(call(*given)),
        mutates_args=(),
        schema=f"({operands}, {settings}) -> ({', '.join(['Tensor'] * results)})",
    )
    backward_op = torch.library.custom_op(
        f"polyfuse::{name}_backward",
        run_backward,
        mutates_args=(),
        schema=f"(Tensor[] tensors, int[] counts, Tensor[] cotangents, {settings}) -> Tensor[]",
    )
    made.register_fake(lambda *given: single(shapes(*given)))
    made.register_autograd(backward, setup_context=keep)
    backward_op.register_fake(shapes_backward)
    return made


def _grouped(tensors: Sequence[torch.Tensor], counts: Sequence[int]) -> list[Any]:
    """Tensors as operands: by themselves, and in lists."""
    left = iter(tensors)
    return [next(left) if count == ONE else [next(left) for _ in range(count)] for count in counts]


def _above_autograd() -> Any:
    """Let a kernel, which runs below autograd, use it again; nothing else that is switched off comes back."""
    included, excluded = (
        torch._C._dispatch_tls_local_include_set(),
        torch._C._dispatch_tls_local_exclude_set(),
    )
    for key in ("AutogradCPU", "AutogradCUDA", "AutogradOther", "ADInplaceOrView"):
        excluded = excluded.remove(getattr(torch._C.DispatchKey, key))
    return torch._C._ForceDispatchKeyGuard(included, excluded)
