"""The converter of PolyBench/Python's kernels, on a checkout with one kernel."""

from __future__ import annotations

from pathlib import Path

from benchmarks.polybench_python import Kernel, checked, converted, kernels

MODULE = '''
"""A kernel as that project writes it."""
from benchmarks.polybench import PolyBench
import numpy as np


class Scale(PolyBench):
    def __init__(self, options: PolyBenchOptions, parameters: PolyBenchSpec):
        super().__init__(options, parameters)
        self.N = parameters.DataSets.get(self.DATASET_SIZE).get("N")
        self.STEPS = parameters.DataSets.get(self.DATASET_SIZE).get("STEPS")

    def run_benchmark(self):
        A = self.create_array(2, [self.N], self.DATA_TYPE(1))
        self.initialize_array(A)
        self.time_kernel(0.5, A)


class _StrategyList(Scale):
    def initialize_array(self, A: list):
        for i in range(0, self.N):
            A[i][0] = self.DATA_TYPE(i)

    def kernel(self, alpha, A: list):
        def doubled(x):
            return x + x

        b = self.create_array(1, [self.N], self.DATA_TYPE(0))
        c = d = alpha
        for t in range(0, self.STEPS):
            for i in range(0, self.N):
                b[i] = doubled(A[i][0]) / self.DATA_TYPE(self.N)
                A[i][i] += b[i] * c - d
'''


def only(folder: Path, text: str) -> Kernel:
    """The kernel of a checkout with one."""
    own = folder / "benchmarks" / "own" / "scale"
    own.mkdir(parents=True)
    (own / "scale.py").write_text(text)
    (folder / "polybench.spec").write_text("kernel\tcategory\n" + "scale\town\tdouble\tSTEPS N\t1 2\n")
    (kernel,) = kernels(folder, ["loops"])
    return kernel


def test_a_kernel_that_is_refused_is_read_for_its_sizes_alone(tmp_path: Path) -> None:
    strided = "A.ravel()[slice(0, self.N * self.N, self.N + 1)] *= 2.0"
    lines = MODULE.split("        def doubled")
    kernel = only(tmp_path, f"{lines[0]}        {strided}\n")
    found = checked(kernel, "oracle")
    assert found.startswith("right")
    assert found.endswith("one size")


def test_a_method_becomes_a_function_with_types_and_shapes(tmp_path: Path) -> None:
    kernel = only(tmp_path, MODULE)
    text = converted(kernel)
    assert "def kernel(alpha: 'f64', A: 'f64[N, N]', STEPS: 'i64'):" in text
    assert "b = np.zeros((N,), np.float64)" in text
    assert "float(N)" in text
    assert checked(kernel, "oracle").startswith("right")
