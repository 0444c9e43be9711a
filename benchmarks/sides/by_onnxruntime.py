"""onnxruntime on the CPU: a session with all of its graph optimisations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import onnxruntime

from benchmarks.sides.onnx_models import GRAPHS, Arrays, model

FORMS = ("session",)
PACKAGES = ("onnxruntime", "onnx")

options = onnxruntime.SessionOptions()


def use(form: str, threads: int) -> None:
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL


def session(kind: str, arrays: Arrays) -> Callable[[], Any]:
    made, inputs = model(kind, arrays)
    run = onnxruntime.InferenceSession(made.SerializeToString(), options, ["CPUExecutionProvider"])
    return lambda: run.run(None, inputs)


KINDS = {kind: partial(session, kind) for kind in GRAPHS}
