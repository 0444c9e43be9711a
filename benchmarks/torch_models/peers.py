"""Other ways to run a model of torch: eager, torch.compile by inductor, and onnxruntime.

onnxruntime holds the weights as constants of its session and packs them once. The others take them as they are in
each call, as polyfuse does without `freeze`.
"""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.torch_models.written import Case

Call = Callable[[], Any]

OPSET = 17

PEERS = ("eager", "inductor", "onnxruntime")


def peers(case: Case, names: Sequence[str]) -> Iterator[tuple[str, Call | str, float]]:
    """Prepare some sides for a model.

    Args:
        case: The model and its arguments.
        names: Of `PEERS`.

    Yields:
        For each side its name, a call or why there is none, and the seconds that its first call took.
    """
    for name in names:
        started = time.perf_counter()
        try:
            call: Call | str = SIDES[name](case)
        except (ImportError, RuntimeError, TypeError, ValueError) as error:  # a remark of the row
            call = f"{type(error).__name__}: {(str(error).strip() or '?').splitlines()[0][:120]}"
        yield name, call, time.perf_counter() - started


def _eager(case: Case) -> Call:
    return partial(case.model, *case.args, **case.named)


def _inductor(case: Case) -> Call:
    call = partial(torch.compile(case.model), *case.args, **case.named)
    call()
    return call


def _onnxruntime(case: Case) -> Call:
    import onnxruntime

    file = io.BytesIO()
    args = (*case.args, case.named) if case.named else case.args
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(case.model, args, file, dynamo=False, opset_version=OPSET)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file.getvalue(), options, ["CPUExecutionProvider"])
    tensors = (*case.args, *case.named.values())
    taken = {put.name: one.numpy() for put, one in zip(session.get_inputs(), tensors, strict=True)}
    call = partial(session.run, None, taken)
    call()
    return call


SIDES: dict[str, Callable[[Case], Call]] = {
    "eager": _eager,
    "inductor": _inductor,
    "onnxruntime": _onnxruntime,
}
