"""polyfuse: from layers or loops to checked, fused kernels.

    import polyfuse as pf

    nest = pf.lower(model, batch=64)    # tensors and statements, nothing decided yet
    net = pf.compile(nest)              # legal by isl, chosen by a cost model
    y = net(x)

Every public name is loaded when it is first used, so that importing polyfuse costs next to nothing.
"""

import sys
from importlib import import_module, metadata
from types import ModuleType
from typing import TYPE_CHECKING, Any

# One line a public name: the name, and the module it comes from. A type checker reads the same from the imports below.
_HOME = {
    "Access": "polyfuse.ir",
    "BadArgument": "polyfuse.errors",
    "Binding": "polyfuse.ir",
    "CoreMatrixLayout": "polyfuse.layouts",
    "DeviceFailure": "polyfuse.errors",
    "Executable": "polyfuse.compiler",
    "IllegalRewrite": "polyfuse.errors",
    "IllegalSchedule": "polyfuse.errors",
    "InvalidAlgorithm": "polyfuse.errors",
    "InvalidMath": "polyfuse.errors",
    "InvalidNest": "polyfuse.errors",
    "InvalidSchedule": "polyfuse.errors",
    "InvalidTuning": "polyfuse.errors",
    "Machine": "polyfuse.machine",
    "Nest": "polyfuse.ir",
    "NestBuilder": "polyfuse.frontend",
    "NoSource": "polyfuse.errors",
    "NotAffine": "polyfuse.errors",
    "OutOfDeviceMemory": "polyfuse.errors",
    "PolyfuseError": "polyfuse.errors",
    "Schedule": "polyfuse.schedule",
    "SmemLayout": "polyfuse.layouts",
    "Statement": "polyfuse.ir",
    "SwizzledLayout": "polyfuse.layouts",
    "TargetUnavailable": "polyfuse.errors",
    "Tensor": "polyfuse.ir",
    "Trials": "polyfuse.tune",
    "ValidationFailure": "polyfuse.errors",
    "Violation": "polyfuse.ir",
    "bounds": "polyfuse.workbench.bounds",
    "compare": "polyfuse.workbench.compare",
    "compile": "polyfuse.compiler",
    "cost": "polyfuse.strategy.cost.price",
    "einsum": "polyfuse.frontend",
    "from_onnx": "polyfuse.frontend.onnx",
    "from_torch": "polyfuse.frontend.torch",
    "grad": "polyfuse.optim.gradients",
    "interpret": "polyfuse.interpret",
    "jvp": "polyfuse.rewrite.gradient",
    "lower": "polyfuse.nn",
    "nest": "polyfuse.frontend",
    "program": "polyfuse.workbench.programs",
    "scalar": "polyfuse.nn.scalar_functions",
    "statement": "polyfuse.ir",
    "train_step": "polyfuse.optim",
    "verdict": "polyfuse.workbench.verdict",
    "vjp": "polyfuse.optim.gradients",
}
_SUBMODULES = {"bilinear", "measure", "nn", "optim", "rewrite", "show"}
# Needs an extra, so it is not among the names of `from polyfuse import *`.
_EXTRAS = {"onnx", "torch"}

__all__ = sorted({*_HOME, *_SUBMODULES, "__version__"})

if TYPE_CHECKING:
    __version__: str
    from polyfuse import bilinear as bilinear
    from polyfuse import measure as measure
    from polyfuse import nn as nn
    from polyfuse import optim as optim
    from polyfuse import rewrite as rewrite
    from polyfuse import show as show
    from polyfuse.compiler import Executable as Executable
    from polyfuse.compiler import compile as compile
    from polyfuse.errors import BadArgument as BadArgument
    from polyfuse.errors import DeviceFailure as DeviceFailure
    from polyfuse.errors import IllegalRewrite as IllegalRewrite
    from polyfuse.errors import IllegalSchedule as IllegalSchedule
    from polyfuse.errors import InvalidAlgorithm as InvalidAlgorithm
    from polyfuse.errors import InvalidMath as InvalidMath
    from polyfuse.errors import InvalidNest as InvalidNest
    from polyfuse.errors import InvalidSchedule as InvalidSchedule
    from polyfuse.errors import InvalidTuning as InvalidTuning
    from polyfuse.errors import NoSource as NoSource
    from polyfuse.errors import NotAffine as NotAffine
    from polyfuse.errors import OutOfDeviceMemory as OutOfDeviceMemory
    from polyfuse.errors import PolyfuseError as PolyfuseError
    from polyfuse.errors import TargetUnavailable as TargetUnavailable
    from polyfuse.errors import ValidationFailure as ValidationFailure
    from polyfuse.frontend import NestBuilder as NestBuilder
    from polyfuse.frontend import einsum as einsum
    from polyfuse.frontend import nest as nest
    from polyfuse.frontend.onnx import from_onnx as from_onnx
    from polyfuse.frontend.torch import from_torch as from_torch
    from polyfuse.interpret import interpret as interpret
    from polyfuse.ir import Access as Access
    from polyfuse.ir import Binding as Binding
    from polyfuse.ir import Nest as Nest
    from polyfuse.ir import Statement as Statement
    from polyfuse.ir import Tensor as Tensor
    from polyfuse.ir import Violation as Violation
    from polyfuse.ir import statement as statement
    from polyfuse.layouts import CoreMatrixLayout as CoreMatrixLayout
    from polyfuse.layouts import SmemLayout as SmemLayout
    from polyfuse.layouts import SwizzledLayout as SwizzledLayout
    from polyfuse.machine import Machine as Machine
    from polyfuse.nn import lower as lower
    from polyfuse.nn.scalar_functions import scalar as scalar
    from polyfuse.optim import train_step as train_step
    from polyfuse.optim.gradients import grad as grad
    from polyfuse.optim.gradients import vjp as vjp
    from polyfuse.rewrite.gradient import jvp as jvp
    from polyfuse.schedule import Schedule as Schedule
    from polyfuse.strategy.cost.price import cost as cost
    from polyfuse.tune import Trials as Trials
    from polyfuse.workbench.bounds import bounds as bounds
    from polyfuse.workbench.compare import compare as compare
    from polyfuse.workbench.programs import program as program
    from polyfuse.workbench.verdict import verdict as verdict


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _SUBMODULES or name in _EXTRAS:
        value = import_module(f"{__name__}.{name}")
    elif name == "__version__":
        value = metadata.version(__name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps a public name when a submodule is called the same.

    The import system binds each submodule it loads as an attribute of its package. `interpret` is a module and the
    function in it: `polyfuse.interpret` has to mean the function, whichever of the two was asked for first.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
