"""ONNX's own tests of its operators (`onnx.backend.test`), compiled: `make test-onnx`.

`left_out.txt` lists those that are left out, below the reason. They are run on the oracle: one that passes is reported.
To make them takes ONNX five seconds, so `make test` does not collect this file.
"""

import warnings
from pathlib import Path

import onnx.backend.test
from onnx.backend.test.loader import load_model_tests

import polyfuse as pf
from polyfuse.errors import PolyfuseError
from polyfuse.onnx.backend import Backend

LEFT_OUT = Path(__file__).with_name("left_out.txt")


def left_out() -> list[str]:
    """The names in the list, without the reasons."""
    lines = LEFT_OUT.read_text("utf-8").splitlines()
    return [line.strip() for line in lines if line.startswith("  ")]


class Oracle(Backend):
    """The backend with `pf.interpret` in place of compiled kernels."""

    @staticmethod
    def make(nest):
        return lambda arrays: tuple(pf.interpret(nest, dict(arrays)).values())


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    tests = onnx.backend.test.BackendTest(Backend, __name__)
for name in left_out():
    tests.exclude(f"^{name}_(cpu|cuda)$")
globals()["OnnxBackendNodeModelTest"] = tests.test_cases["OnnxBackendNodeModelTest"]


def test_what_is_left_out_does_not_pass() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = {case.name: case for case in load_model_tests(kind="node")}
    strange = [name for name in left_out() if name not in every]
    passing = [name for name in left_out() if name in every and passes(every[name])]
    assert not strange
    assert not passing


def passes(case) -> bool:
    """Whether the oracle computes a test's outputs."""
    try:
        rep = Oracle.prepare(case.model)
        for inputs, outputs in case.data_sets:
            arrays = [onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in inputs]
            onnx.backend.test.BackendTest.assert_similar_outputs(
                outputs, rep.run(arrays), case.rtol, case.atol
            )
    except (PolyfuseError, AssertionError, TypeError, ValueError):
        return False
    return True
