"""TVM on the CPU: the ONNX model imported into Relax, its products and reductions tuned by MetaSchedule.

Tuning measures TRIALS schedules; what was found is kept in build/tvm/tuned, by workload, and used the next time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from benchmarks.sides.onnx_models import GRAPHS, Arrays, model

FORMS = ("metaschedule",)
PACKAGES = ("apache-tvm",)
TRIALS = 32
TUNED = Path(__file__).parent.parent.parent / "build" / "tvm" / "tuned"

cores = 1


def use(form: str, threads: int) -> None:
    global cores
    cores = threads
    os.environ["TVM_NUM_THREADS"] = str(threads)


def tuned(kind: str, arrays: Arrays) -> Callable[[], Any]:
    made, inputs = model(kind, arrays)
    target = tvm.target.Target(
        {"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": cores}
    )
    digest = hashlib.sha256(made.graph.SerializeToString()).hexdigest()[:16]
    work = TUNED / f"{kind}-{digest}-{cores}"
    module = from_onnx(made, keep_params_in_input=False)
    done = work / "done"
    pipeline = relax.pipeline.static_shape_tuning_pipeline(0 if done.exists() else TRIALS, target, str(work))
    with target:
        module = pipeline(module)
    done.touch()
    machine = relax.VirtualMachine(relax.build(module, target), tvm.cpu())
    given = [tvm.runtime.tensor(array) for array in inputs.values()]
    main = machine["main"]

    return lambda: [main(*given)]  # every graph has one result


KINDS = {kind: partial(tuned, kind) for kind in GRAPHS}
