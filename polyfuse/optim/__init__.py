"""Training: optimizers as statements, and one executable for a step of forward pass, gradients and update.

The values on the way, and what makes each:

    Module, loss, batch
      -> Nest of the loss                                   nn.lower
      -> Nest of the loss and a gradient of each weight     rewrite.gradient.reverse
      -> … with the optimizer's statements after them       step.with_update
      -> Executable on the model's own arrays               compiler.compile
"""

from polyfuse.optim.gradients import kept_values
from polyfuse.optim.optimizers import SGD, Adam, AdamW, Optimizer
from polyfuse.optim.step import TrainStep, train_step, with_update

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "TrainStep", "kept_values", "train_step", "with_update"]
