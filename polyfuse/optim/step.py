"""Training steps: the nest of a loss, its gradients and the update, compiled to one executable on a model's arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyfuse.compiler import compile
from polyfuse.errors import BadArgument, quantity
from polyfuse.errors.proving import proving
from polyfuse.ir import DType, Nest, Statement, Tensor, statement
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.tensor import Role
from polyfuse.ir.tree import sequence
from polyfuse.ir.whole import whole
from polyfuse.machine import Machine
from polyfuse.nn.graph import Input, Value, input
from polyfuse.nn.layers import Module
from polyfuse.nn.losses.layers import Loss
from polyfuse.nn.lower import lower_values, model_input
from polyfuse.nn.nest_writer import Array, element
from polyfuse.nn.sizes import GivenSize
from polyfuse.nn.training import training
from polyfuse.optim.gradients import kept_values
from polyfuse.optim.optimizers import Optimizer
from polyfuse.rewrite.gradient import reverse
from polyfuse.runtime.executable import Executable
from polyfuse.strategy.remarks import Remark

Sizes = GivenSize | Sequence[GivenSize]


class TrainStep:
    """A training step: call it with a batch and its target. Print `net.explain()`, `net.source`, `net.report()`.

    Attributes:
        net: The executable.
        lr: The learning rate of the next calls.
        remarks: Under a limit of memory: for each value that the backward pass reads, whether it is kept, and prices.
    """

    def __init__(
        self,
        net: Executable,
        updated: Updated,
        parameters: Mapping[str, Array],
        lr: float,
        kept: Mapping[str, Array],
    ) -> None:
        """A step on these arrays, of which `kept` are those that layers keep; what the optimizer keeps is 0."""
        self.net, self.lr, self.remarks = net, lr, updated.remarks
        self._parameters, self._updated = dict(parameters), updated
        own = (updated.nest.tensor(name) for name in updated.kept if name not in kept)
        self._state = {t.name: np.zeros([int(n) for n in t.shape], t.dtype) for t in own} | dict(kept)
        self._rate = np.array(lr, "float64")
        held = {updated.lr: self._rate, **self._parameters, **self._state}
        self._held = [held[t.name] for t in updated.nest.inputs if t.name in held]

    def __call__(self, *batch: Any) -> float:
        """Update the weights and what the optimizer keeps, in place.

        Args:
            *batch: The model's inputs, most often one, and what the loss compares its output with.

        Returns:
            The loss, of the weights before the update.

        Raises:
            BadArgument: if an array has the wrong shape or element type, or there are too few or too many.
        """
        first = len(self._updated.nest.inputs) - len(self._held)
        if len(batch) != first:
            named = ", ".join(t.name for t in self._updated.nest.inputs[:first])
            raise BadArgument(f"a step of training takes {named}; given {quantity(len(batch), 'array')}")
        self._rate[...] = self.lr
        results = self.net(*batch, *self._held)
        if not self._updated.replaced:
            return float(results)
        for name, new in zip(self._updated.replaced, results[1:], strict=True):
            np.copyto(self._parameters[name], new)
        return float(results[0])

    def parameters(self) -> dict[str, Array]:
        """The weights by their names in the model's nest, as in `nn.named_constants`: the model's own arrays."""
        return dict(self._parameters)

    def state(self) -> dict[str, Array]:
        """What the optimizer and layers keep, by tensor name; change it in place, or save it.

        That is w0_momentum, …; t, the number of steps; mean0 and var0, the statistics of batch norm; and seed, of which
        the elements that dropout drops are a function.
        """
        return dict(self._state)


@dataclass(frozen=True)
class Updated:
    """The result of `with_update`.

    Attributes:
        nest: It takes the inputs, the learning rate, the parameters and what is kept; these two are changed in place.
        lr: The input that holds the learning rate.
        kept: The inouts that are the optimizer's own, or that layers keep.
        replaced: The parameters whose rows are chosen by number: their new values are further outputs, in this order.
        remarks: Under a limit of memory: for each value that the backward pass reads, whether it is kept, and prices.
    """

    nest: Nest
    lr: str
    kept: tuple[str, ...]
    replaced: tuple[str, ...]
    remarks: tuple[Remark, ...] = ()


@proving("train_step")
def train_step(
    model: Module,
    loss: Callable[[Value, Value], Value],
    optimizer: Optimizer,
    batch: Sizes | None = None,
    features: Sizes | None = None,
    dtype: str | None = None,
    labels: Value | None = None,
    seed: int = 0,
    memory: int | None = None,
    inputs: Sequence[Value] | None = None,
    **options: Any,
) -> TrainStep:
    """Compile a step of training: forward pass, gradients and update in one executable.

    Module, loss, optimizer -> Nest of the loss -> its gradients -> the update's statements -> Executable

    The step trains the model's own arrays, in place: lower and compile the model afterwards to use the weights.

    Args:
        model: The model.
        loss: A loss such as `nn.CrossEntropyLoss()`, or a function of the output and its target; it gives one number.
        optimizer: `pf.optim.SGD`, `Adam` or `AdamW`.
        batch: As for `lower`.
        features: As for `lower`.
        dtype: As for `lower`.
        labels: An input for the target; by default what the loss asks for, or one like the output.
        seed: Which elements dropout drops is a function of it, of the step and of their place.
        memory: The bytes of temporaries that the forward pass may keep for the backward pass, as for `pf.vjp`.
        inputs: Inputs such as `nn.input("x", (64, 13))`, for a model that is called with several; then neither batch
            nor features nor dtype.
        **options: As for `compile`.

    Returns:
        The step: it is called with an array for each input, and one for the target.

    Raises:
        BadArgument: if an argument is none of these, a layer of batch norm is used twice, the loss has more than one
            element or takes more than the target, no derivative connects it with a weight, or the weights are not all
            float32 or all float64.
        IllegalRewrite: as for `vjp`.
    """
    if not isinstance(model, Module):
        raise BadArgument(f"train_step: {model!r} is not a model; expected layers such as nn.Sequential(…)")
    if not isinstance(optimizer, Optimizer):
        raise BadArgument(
            f"train_step: {optimizer!r} is not an optimizer; expected one such as pf.optim.SGD(lr=0.1)"
        )
    if not callable(loss):
        raise BadArgument(f"train_step: {loss!r} is not a loss; expected one such as nn.CrossEntropyLoss()")
    if labels is not None and not (isinstance(labels, Value) and isinstance(labels.source, Input)):
        raise BadArgument(
            f"train_step: labels={labels!r}, expected an input such as nn.input('target', (64,), 'int64')"
        )
    taken = (model_input(model, batch, features, dtype),) if inputs is None else _inputs(inputs)
    if inputs is not None and not batch is features is dtype is None:
        raise BadArgument(
            "train_step: inputs= say shapes and types: batch, features and dtype are for models of one"
        )
    number = input("seed", (), "int64")
    with training(number) as mode:
        output = model(*taken)
        target = labels if labels is not None else _target(loss, output)
        value = loss(output, target)
    if not isinstance(value, Value) or any(size != 1 for size in value.shape):
        raise BadArgument(
            f"train_step: the loss is {value!r}, expected one number: reduce it by a mean or a sum"
        )
    given = (*taken, target, number) if mode.draws else (*taken, target)
    results = (value, *(new for _, new in mode.renewed))
    nest = lower_values(results, f"{type(model).__name__.lower()}_step", given)
    if further := ", ".join(t.name for t in nest.inputs[len(given) :]):
        raise BadArgument(
            f"train_step: the loss takes {further} too; a step is called with {_names(taken)} and the target only"
        )
    names = {id(array): name for name, array in nest.constants.items()}
    loss_of, *outputs = (t.name for t in nest.outputs)
    renewed = {out: names[id(array)] for out, (array, _) in zip(outputs, mode.renewed, strict=True)}
    weights = {id(array) for array in model.arrays()} - {id(array) for array, _ in mode.renewed}
    parameters = {name: array for name, array in nest.constants.items() if id(array) in weights}
    if not parameters:
        raise BadArgument(f"train_step: the loss reads no weights of {model!r}")
    counted = "seed" if mode.draws else None
    limit = None if memory is None else (memory, options.get("machine"))
    updated = with_update(nest, tuple(parameters), optimizer, loss_of, renewed, counted, limit)
    kept = {name: nest.constants[name] for name in renewed.values()}
    if counted is not None:
        kept[counted] = _first_seed(seed)
    return TrainStep(compile(updated.nest, **options), updated, parameters, optimizer.lr, kept)


def _inputs(inputs: Sequence[Value]) -> tuple[Value, ...]:
    """The inputs of a model that is called with several."""
    given = tuple(inputs) if isinstance(inputs, Sequence) else ()
    if not given or not all(isinstance(x, Value) and isinstance(x.source, Input) for x in given):
        raise BadArgument(
            f"train_step: inputs={inputs!r}, expected inputs such as (nn.input('x', (64, 13)),)"
        )
    return given


def _names(inputs: Sequence[Value]) -> str:
    return ", ".join(x.source.name for x in inputs if isinstance(x.source, Input))


def _first_seed(seed: int) -> Array:
    """The number of the first step: those of later steps follow it, far from those of other seeds."""
    whole("train_step: seed", seed)
    return np.random.SeedSequence(seed).generate_state(1, np.uint64).view(np.int64).reshape(())


def _target(loss: Callable[[Value, Value], Value], output: Value) -> Value:
    shape, dtype = loss.target_like(output) if isinstance(loss, Loss) else (output.shape, output.dtype)
    return input("target", shape, dtype)


def with_update(
    nest: Nest,
    parameters: Sequence[str],
    optimizer: Optimizer,
    loss: str = "out",
    renewed: Mapping[str, str] | None = None,
    counted: str | None = None,
    limit: tuple[int, Machine | str | None] | None = None,
) -> Updated:
    """Return the nest of a loss with its gradients, and with the statements that update some constants after them.

    Args:
        nest: The nest of a loss, an output of one element.
        parameters: Names of constants, which become inouts.
        optimizer: The optimizer.
        loss: The output.
        renewed: Other constants, which become inouts and get the value of an output, by the output.
        counted: An input of one whole number, which becomes an inout and grows by one.
        limit: The bytes that the forward pass may keep, and the machine whose model prices what is computed again.

    Returns:
        The nest, and the names of what it takes.

    Raises:
        BadArgument: if a parameter does not reach the loss, or they are not all float32 or all float64.
    """
    types = {nest.tensor(name).dtype for name in parameters}
    if types not in ({"float32"}, {"float64"}):
        raise BadArgument(
            f"train_step: the weights are {' and '.join(sorted(types))}, expected all float32 or all float64"
        )
    more = dict(renewed or {})
    found = reverse(nest, parameters, loss, values=True, seeded=True, unreached="error", further=tuple(more))
    kept = None if limit is None else kept_values(found, *limit, call="train_step")
    updated = _Update(kept.nest if kept else found.nest, found.gradients, optimizer, more, counted).done()
    return replace(updated, remarks=kept.remarks if kept else ())


class _Update:
    """The update while it is written: tensors and statements after those of the gradients."""

    def __init__(
        self,
        nest: Nest,
        gradients: Mapping[str, str],
        optimizer: Optimizer,
        renewed: Mapping[str, str],
        counted: str | None,
    ) -> None:
        self.nest, self.gradients, self.optimizer = nest, gradients, optimizer
        self.renewed, self.counted = renewed, counted
        self.taken = {t.name for t in nest.tensors} | {s.name for s in nest.statements} | set(nest.params)
        self.tensors: list[Tensor] = []
        self.statements: list[Statement] = []

    def done(self) -> Updated:
        """The number of the step, the numbers that depend on it, then each parameter."""
        kept: list[str] = []
        texts = self.optimizer.numbers
        lr = self._tensor("lr", (), "float64", "input")
        names = {"lr": lr}
        if any("{t}" in text for text in texts.values()):
            names["t"] = self._tensor("t", (), "float64", "inout")
            kept.append(names["t"])
            self._statement("count", (), f"{names['t']} = {names['t']} + 1.0")
        dtype = self.nest.tensor(next(iter(self.gradients))).dtype
        numbers = {name: self._tensor(name, (), dtype, "temporary") for name in texts}
        for name, text in texts.items():
            self._statement(f"find_{name}", (), f"{numbers[name]} = {text.format(**names)}")
        tables = {t.gather.table for t in self.nest.tensors if t.gather is not None}
        new = {name: self._parameter(name, numbers, kept, name in tables) for name in self.gradients}
        for output, name in self.renewed.items():
            self._copy(output, name)
        if self.counted is not None:
            self._statement("next_seed", (), f"{self.counted} = {self.counted} + 1")
        kept += [*self.renewed.values(), *([] if self.counted is None else [self.counted])]
        return self._assembled(lr, tuple(kept), {name: made for name, made in new.items() if made != name})

    def _copy(self, output: str, name: str) -> None:
        """Give a constant the value of an output."""
        tensor = self.nest.tensor(name)
        dims = [fresh(f"i{d}", self.taken) for d in range(tensor.rank)]
        target, source = (element(self.nest.tensor(one), dims) for one in (name, output))
        self._statement(f"renew_{name}", tensor.shape, f"{target} = {source}", dims)

    def _parameter(self, name: str, numbers: Mapping[str, str], kept: list[str], chosen: bool) -> str:
        """Add the update of a parameter; the tensor that holds its new value, another one if its rows are chosen."""
        tensor = self.nest.tensor(name)
        slots = {
            slot: self._tensor(f"{name}_{slot}", tensor.shape, tensor.dtype, "inout")
            for slot in self.optimizer.kept
        }
        kept += slots.values()
        new = self._tensor(f"{name}_new", tensor.shape, tensor.dtype, "output") if chosen else name
        places = {"p": name, "next": new, "g": self.gradients[name], **slots}
        dims = [fresh(f"i{d}", self.taken) for d in range(tensor.rank)]
        elements = {place: element(self._named(one), dims) for place, one in places.items()}
        for kind, text in self.optimizer.updates.items():
            self._statement(f"{kind}_{name}", tensor.shape, text.format(**elements, **numbers), dims)
        return new

    def _assembled(self, lr: str, kept: tuple[str, ...], new: Mapping[str, str]) -> Updated:
        """The nest, with its tensors in the order of a call."""
        roles: dict[str, Role] = {name: "input" if name in new else "inout" for name in self.gradients}
        roles |= dict.fromkeys((*self.gradients.values(), *self.renewed), "temporary")
        inouts = (*self.renewed.values(), *([] if self.counted is None else [self.counted]))
        roles |= dict.fromkeys(inouts, "inout")
        old = [replace(t, role=roles.get(t.name, t.role)) for t in self.nest.tensors]
        every = [*old, *self.tensors]
        first = [t.name for t in self.nest.inputs if t.name != self.counted]
        ranks = {name: place for place, name in enumerate([*first, lr, *self.gradients, *kept])}
        inputs = sorted((t for t in every if t.name in ranks), key=lambda t: ranks[t.name])
        rest = [t for t in every if t.name not in ranks]
        nest = self.nest
        made = Nest.of(
            [
                *inputs,
                *(t for t in rest if t.role != "output"),
                *(t for t in rest if t.role == "output"),
            ],
            [*nest.statements, *self.statements],
            sequence((nest.order, *map(own_loops, self.statements))),
            nest.context,
            {name: array for name, array in nest.constants.items() if name not in (*self.gradients, *inouts)},
            nest.name,
        )
        return Updated(replace(made, defaults=nest.defaults), lr, kept, tuple(new))

    def _named(self, name: str) -> Tensor:
        return next((t for t in self.tensors if t.name == name), None) or self.nest.tensor(name)

    def _tensor(self, name: str, shape: tuple[int | str, ...], dtype: DType, role: Role) -> str:
        name = fresh(name, self.taken)
        self.taken.add(name)
        self.tensors.append(Tensor(name, shape, dtype, role))
        return name

    def _statement(
        self, name: str, shape: tuple[int | str, ...], text: str, dims: Sequence[str] = ()
    ) -> None:
        name = fresh(name, self.taken)
        self.taken.add(name)
        box = " and ".join(f"0 <= {d} < {size}" for d, size in zip(dims, shape, strict=True)) or "1 = 1"
        self.statements.append(statement(f"{{ {name}[{', '.join(dims)}] : {box} }}", text))
